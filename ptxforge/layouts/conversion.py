"""Layout conversions, planned as data.

A tensor is distributed by ``src`` and wanted by ``dst``. Where its elements are now follows from the
matrices: C = src⁻¹ · dst maps each (register, lane, warp) of the result to the place that holds its element.
The shape of C decides, cheapest first:

==============  ===============================================  ======================================
plan            C                                                becomes
==============  ===============================================  ======================================
Nothing         the identity                                     no instruction
Registers       keeps lane and warp                              other names for the same registers
Shuffle         keeps the warp                                   selects and ``shfl.sync``
SharedMemory    anything                                         stores, a barrier, loads (swizzle.py)
==============  ===============================================  ======================================

Where elements have copies (replicated layouts) C is not unique: a copy in the own thread is preferred, then
one in the own warp. Between Shuffle and SharedMemory the cost decides, by which passes weigh layouts, too
(`estimated_cost`).

>>> from ptxforge.layouts.encodings import Blocked
>>> rows, columns = Blocked((1, 4), (8, 4), (4, 1), (1, 0)), Blocked((4, 1), (8, 4), (4, 1), (1, 0))
>>> plan = plan_conversion(rows, columns, (128, 16), 32)
>>> type(plan).__name__, plan.scratch_bytes, (plan.store.vec, plan.load.vec)
('SharedMemory', 8192, (4, 1))
>>> plan.store.degree, plan.load.degree                        # bank conflicts: none
(1, 1)
>>> plan_conversion(rows, Blocked((1, 2), (8, 4), (4, 1), (1, 0)), (128, 16), 32).exchange.shuffles
16

Exchanges inside a warp: moving registers between lanes with shuffles.

*The task.* Register r of lane l wants the element that register r' of lane l' holds now, where (r', l') is a
linear function of (r, l) and of the warp w:

    r' = A r + B (l, w)          l' = C r + D (l, w)          (+ is XOR)

A shuffle lets each lane name the lane to read from; *which* register is read must be the same in all lanes.
So shuffles alone can do B = 0: register r is one ``shfl`` of register A r, from lane C r + D (l, w). B is
what is difficult: readers want different registers of different lanes.

*Three steps.* A select, ``s = parity(l & mask) ? registers[r + x] : registers[r]``, lets a lane permute its
own registers by a value that depends on the lane. One select step before the shuffles (by a matrix G1,
applied where the data are) and one after (G3, where they arrive) give

    r' = Q q + G1 l'             l' = C q + K (l, w)           q = r + G3 (l, w)

with Q = A + G1 C and K = D + C G3. To fit the task, G3 must solve Q G3 = B + G1 D. So choose G1 such that
this has a solution: every column of B that A does not span must come from somewhere: either the reading lanes
differ in D, and then G1 D must supply it, or Q must span it, and then G1 C must.

*Example: a transpose of 2 registers and 2 lanes.* A = D = 0, B = C = 1. G1 = 1 makes Q = 1, then G3 = 1 and
K = 1: swap the registers in odd lanes; shuffle register 1 with the neighbour lane (register 0 stays: its lane
is its own); swap the registers in odd lanes. One shuffle for two registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from attrs import evolve, frozen

from ptxforge.layouts import f2
from ptxforge.layouts.banks import Access, SharedAccess, element_bytes
from ptxforge.layouts.encodings import Distributed, Mma
from ptxforge.layouts.linear import BLOCK, LANE, REGISTER, WARP, LayoutError, LinearLayout
from ptxforge.layouts.mma_atoms import MatrixMove, StMatrix
from ptxforge.layouts.swizzle import optimal_swizzle
from ptxforge.support import machine


@frozen
class Select:
    """Where parity(lane & ``lane_mask``) ^ parity(warp & ``warp_mask``) is 1, register r and register
    r ^ ``register_xor`` change places, for all r at once. At least one mask is nonzero."""

    register_xor: int
    lane_mask: int
    warp_mask: int


@frozen
class Round:
    """One shuffle: the value of register ``source`` in lane ``lane_xor`` ^ (the thread's own source lane)."""

    source: int
    lane_xor: int


@frozen
class Exchange:
    """A plan for one warp's registers, in four steps, all on whole arrays of registers.

    1. ``before``: selects on the source registers, in order.
    2. ``rounds[q]``: intermediate register q, for every q.
    3. ``after``: selects on the intermediate registers, in order.
    4. ``destination[r]``: which intermediate register is result register r.

    ``source_lane`` maps (lane, warp) to the lane that a round reads from when its ``lane_xor`` is 0. It is
    None when that is the thread's own lane: then a round is ``shfl.sync.bfly`` with ``lane_xor``, and no
    instruction at all where ``lane_xor`` is 0. Otherwise a round is ``shfl.sync.idx`` of source lane ^
    ``lane_xor``. Equal rounds are one instruction.
    """

    before: tuple[Select, ...]
    rounds: tuple[Round, ...]
    source_lane: LinearLayout | None
    after: tuple[Select, ...]
    destination: tuple[int, ...]

    @property
    def shuffles(self) -> int:
        """Shuffle instructions, for elements of up to 32 bits."""
        distinct = set(self.rounds)
        return len(distinct) if self.source_lane is not None else sum(1 for r in distinct if r.lane_xor)

    @property
    def selects(self) -> int:
        """Select instructions: each step replaces all registers."""
        return len(self.before) * self._source_registers + len(self.after) * len(self.rounds)

    @property
    def _source_registers(self) -> int:
        return 1 << max((r.source for r in self.rounds), default=0).bit_length()


def plan_exchange(wanted: LinearLayout) -> Exchange | None:
    """The exchange that makes ``wanted``: (register, lane, warp) of the result to (register, lane) of the
    source; None when there is none of this form.

    >>> swap = LinearLayout({"register": [(0, 1)], "lane": [(1, 0), (0, 2)], "warp": []},
    ...                     {"register": 2, "lane": 4})
    >>> plan = plan_exchange(swap)
    >>> plan.before, plan.source_lane
    ((Select(register_xor=1, lane_mask=1, warp_mask=0),), None)
    >>> plan.rounds
    (Round(source=0, lane_xor=0), Round(source=1, lane_xor=1))
    """
    lanes = wanted.in_bits(LANE)
    a, c = _split(wanted, REGISTER)
    # Register bits that make copies need no moving of their own.
    kept = [bit for bit in range(len(a)) if a[bit] or c[bit]]
    a, c = [a[bit] for bit in kept], [c[bit] for bit in kept]
    (b_lane, d_lane), (b_warp, d_warp) = _split(wanted, LANE), _split(wanted, WARP)
    b, d = [*b_lane, *b_warp], [*d_lane, *d_warp]
    g1 = _before(a, b, c, d, wanted.out_size(LANE).bit_length() - 1)
    q = [x ^ f2.multiply(g1, y) for x, y in zip(a, c)]
    g3 = f2.solve(q, [x ^ f2.multiply(g1, y) for x, y in zip(b, d)])
    if g3 is None:
        return None
    k = [x ^ f2.multiply(c, y) for x, y in zip(d, g3)]
    rounds = tuple(Round(f2.multiply(q, r), f2.multiply(c, r)) for r in range(1 << len(kept)))
    destination = tuple(
        sum((r >> bit & 1) << i for i, bit in enumerate(kept)) for r in range(wanted.in_size(REGISTER)))
    return Exchange(
        _selects(g1, lanes), rounds, _source_lane(k, wanted, lanes), _selects(g3, lanes), destination
    )


def _split(wanted: LinearLayout, name: str) -> tuple[list[int], list[int]]:
    """The columns of one input dimension, as source registers and as source lanes."""
    part = wanted.sublayout([name], [REGISTER, LANE])
    pairs = [part.unflatten(column) for column in part.columns]
    return [r for r, _ in pairs], [lane for _, lane in pairs]


def _before(
    a: Sequence[int], b: Sequence[int], c: Sequence[int], d: Sequence[int], lane_bits: int
) -> list[int]:
    """G1, as one register vector per bit of the source lane."""
    reached = f2.Span(a)
    lanes, registers = [], []  # G1 maps lanes[i] to registers[i]
    known = f2.Span()
    idle = [(x, f2.multiply(c, x)) for x in f2.kernel(a)]  # registers r with A r = 0, and the lanes they read
    for x, (wish, lane) in enumerate(zip(b, d)):
        if reached.contains(wish):
            continue
        if known.contains(lane):
            # No reading lane tells the wishes apart. Let a register that arrives from another lane, best
            # from the lane of the same number, bring it.
            lane = next((y for _, y in sorted(idle, key=lambda pair: pair[1] != 1 << x)
                         if not known.contains(y)), None)
            if lane is None:
                continue
        known.add(lane)
        reached.add(wish)
        lanes.append(lane)
        registers.append(wish)
    full = [*lanes, *f2.complete(lanes, lane_bits)]
    inverse = f2.invert(full, lane_bits)
    values = [*registers, *(0 for _ in range(lane_bits - len(registers)))]
    return [f2.multiply(values, column) for column in inverse]


def _selects(matrix: Sequence[int], lanes: int) -> tuple[Select, ...]:
    """The register permutation r ^= matrix · thread as few selects: one per independent register vector."""
    masks: dict[int, int] = {}
    basis = f2.independent(matrix)
    span = f2.Span(basis)
    for bit, vector in enumerate(matrix):
        for index in f2.set_bits(span.express(vector)):
            masks[basis[index]] = masks.get(basis[index], 0) ^ 1 << bit
    low = (1 << lanes) - 1
    return tuple(Select(vector, mask & low, mask >> lanes) for vector, mask in masks.items())


def _source_lane(k: Sequence[int], wanted: LinearLayout, lanes: int) -> LinearLayout | None:
    identity = [1 << i for i in range(lanes)] + [0] * (len(k) - lanes)
    if list(k) == identity:
        return None
    return LinearLayout.of_columns(
        [(LANE, lanes), (WARP, wanted.in_bits(WARP))], [(LANE, wanted.out_size(LANE))], k)


@frozen
class Nothing:
    """The result's registers are the source's, in order."""


@frozen
class Registers:
    """Result register r is source register ``source_of[r]`` of the same thread."""

    source_of: tuple[int, ...]


@frozen
class Shuffle:
    """An exchange inside each warp.

    Registers are first packed into words of 32 bits (as far as whole words travel together): word i is made
    of the source registers ``words_in[i]``, lowest bits first. ``exchange`` moves the words; word i of its
    result holds the result registers ``words_out[i]``.
    """

    words_in: tuple[tuple[int, ...], ...]
    exchange: Exchange
    words_out: tuple[tuple[int, ...], ...]


@frozen
class SharedMemory:
    """Through shared memory: store, barrier, load; once per part when the tile passes in several.

    ``layout`` maps offsets (in elements, the part's number in the top bits) to the tensor. Lanes and warps
    whose ``store.free_lanes`` or ``store.free_warps`` bits are not 0 hold copies and need not store. With
    ``matrices``, ``stmatrix`` does what ``store`` says. With ``warp_local`` each warp reads only what itself
    wrote: ``bar.warp.sync`` suffices.
    """

    layout: LinearLayout
    store: SharedAccess
    load: SharedAccess
    repetition_bits: int
    scratch_bytes: int
    warp_local: bool
    matrices: StMatrix | None = None

    @property
    def parts(self) -> tuple[tuple[tuple[Access | MatrixMove, ...], tuple[Access, ...]], ...]:
        """Per part: the vectors (or matrices) to store and, after a barrier, the vectors to load, their
        offsets relative to the scratch space. Before the stores of the next part comes another barrier."""
        stores = self.store.accesses if self.matrices is None else self.matrices.stores
        return tuple(zip(self._by_part(stores), self._by_part(self.load.accesses)))

    def _by_part(self, accesses: Sequence[Access | MatrixMove]) -> list[tuple[Access | MatrixMove, ...]]:
        if not self.repetition_bits:
            return [tuple(accesses)]
        inside = self.layout.in_bits_total - self.repetition_bits
        parts: list[list[Access | MatrixMove]] = [[] for _ in range(1 << self.repetition_bits)]
        for access in accesses:
            parts[access.offset >> inside].append(evolve(access, offset=access.offset & ((1 << inside) - 1)))
        return [tuple(part) for part in parts]


Plan = Nothing | Registers | Shuffle | SharedMemory


def plan_conversion(
    src: Distributed, dst: Distributed, shape: Sequence[int], element_bits: int,
    scratch_limit: int = machine.CONVERSION_SCRATCH,
) -> Plan:
    """How to turn a tensor of ``shape`` from encoding ``src`` into ``dst``.

    Args:
        element_bits: 1 for predicates, 64 for pointers.
        scratch_limit: bytes of shared memory to stay below where the layouts admit it.

    Raises:
        LayoutError: when the encodings are for different numbers of warps or CTAs.
    """
    shape = tuple(shape)
    matrices = isinstance(src, Mma) and src.version[0] == 3
    return plan_linear_conversion(src.linear(shape), dst.linear(shape), element_bits, scratch_limit, matrices)


@lru_cache(maxsize=2048)
def plan_linear_conversion(
    src: LinearLayout, dst: LinearLayout, element_bits: int,
    scratch_limit: int = machine.CONVERSION_SCRATCH, matrices: bool = False,
) -> Plan:
    """:func:`plan_conversion` for linear layouts of the same tensor; with ``matrices``, ``stmatrix`` may
    write (the accumulators of ``wgmma`` are only where that is, too)."""
    if src == dst:
        return Nothing()
    _check(src, dst)
    wanted = within_warp(src, dst)
    if wanted is not None:
        source_of = _registers_only(wanted)
        if source_of is not None:
            same = source_of == tuple(range(src.in_size(REGISTER)))
            return Nothing() if same else Registers(source_of)
    shuffle = _shuffle(wanted, element_bits) if wanted is not None else None
    if shuffle is not None and _cost(shuffle, element_bits) <= machine.WARP_ROUND_TRIP:
        return shuffle  # nothing through shared memory costs less: it need not be planned
    shared = _through_shared(src, dst, element_bits, scratch_limit, wanted is not None, matrices)
    if shuffle is not None and _cost(shuffle, element_bits) <= _cost(shared, element_bits):
        return shuffle
    return shared


def _check(src: LinearLayout, dst: LinearLayout) -> None:
    if src.out_dims != dst.out_dims:
        raise LayoutError(f"a conversion keeps the shape: {src.out_shape} and {dst.out_shape}")
    if src.in_bits(WARP) != dst.in_bits(WARP) or src.in_bits(LANE) != dst.in_bits(LANE):
        raise LayoutError(f"different numbers of warps: {src.in_size(WARP)} and {dst.in_size(WARP)}")
    if any(src.columns_of(BLOCK)) or any(dst.columns_of(BLOCK)):
        raise LayoutError("conversions of tensors that are split among CTAs are not supported")


# -- inside a warp -------------------------------------------------------------------------------------


def within_warp(src: LinearLayout, dst: LinearLayout) -> LinearLayout | None:
    """The map from the result's (register, lane, warp) to the source's (register, lane) in the same warp, or
    None when some element has to come from another warp."""
    registers, lanes = src.columns_of(REGISTER), src.columns_of(LANE)
    own, warp = f2.Span(registers), f2.Span((*registers, *lanes))
    shift = len(registers)
    solutions: list[int | None] = []
    for column in dst.columns_of(REGISTER):
        solutions.append(_first(own.express(column), warp.express(column)))
    for bit, (column, here) in enumerate(zip(dst.columns_of(LANE), lanes)):
        stay = own.express(column ^ here)
        solutions.append(warp.express(column) if stay is None else stay ^ 1 << (shift + bit))
    for column, here in zip(dst.columns_of(WARP), src.columns_of(WARP)):
        solutions.append(_first(own.express(column ^ here), warp.express(column ^ here)))
    if None in solutions:
        return None
    outs = ((REGISTER, 1 << len(registers)), (LANE, 1 << len(lanes)))
    low = (1 << shift) - 1
    columns = [(x & low) << len(lanes) | x >> shift for x in solutions]
    return LinearLayout.of_columns([(n, dst.in_bits(n)) for n in (REGISTER, LANE, WARP)], outs, columns)


def _first(*options: int | None) -> int | None:
    return next((x for x in options if x is not None), None)


def _registers_only(wanted: LinearLayout) -> tuple[int, ...] | None:
    """The register permutation when every element is in its thread already, in the same register of all."""
    lanes = wanted.out_size(LANE)
    if any(column % lanes for column in wanted.columns_of(REGISTER)):
        return None
    if wanted.columns_of(LANE) != tuple(1 << i for i in range(wanted.in_bits(LANE))):
        return None
    if any(wanted.columns_of(WARP)):
        return None
    columns = [column // lanes for column in wanted.columns_of(REGISTER)]
    return tuple(f2.multiply(columns, r) for r in range(1 << len(columns)))


def _shuffle(wanted: LinearLayout, element_bits: int) -> Shuffle | None:
    pairs = _packable(wanted, element_bits)
    exchange = plan_exchange(_without(wanted, pairs))
    if exchange is None:
        return None
    source_bits = wanted.out_size(REGISTER).bit_length() - 1
    words_in = _words(source_bits, [source for _, source in pairs])
    words_out = _words(wanted.in_bits(REGISTER), [result for result, _ in pairs])
    return Shuffle(words_in, exchange, words_out)


def _packable(wanted: LinearLayout, element_bits: int) -> list[tuple[int, int]]:
    """Pairs (result register bit, source register bit) that only rename each other: elements that differ in
    them travel together. As many as fill 32 bits."""
    limit = (32 // max(8, element_bits)).bit_length() - 1 if element_bits <= 16 else 0
    lanes = wanted.out_size(LANE).bit_length() - 1
    pairs = []
    for bit, column in enumerate(wanted.columns_of(REGISTER)):
        alone = column and column & (column - 1) == 0 and column >> lanes
        if alone and sum(1 for c in wanted.columns if c & column) == 1 and len(pairs) < limit:
            pairs.append((bit, column.bit_length() - 1 - lanes))
    return pairs


def _without(wanted: LinearLayout, pairs: Sequence[tuple[int, int]]) -> LinearLayout:
    """``wanted`` for words instead of registers: the packed bits are left out on both sides."""
    lane_bits = wanted.out_size(LANE).bit_length() - 1
    results = {result for result, _ in pairs}
    sources = sorted((source for _, source in pairs), reverse=True)
    columns = []
    registers = wanted.in_bits(REGISTER)
    for index, column in enumerate(wanted.columns):
        if index in results and index < registers:
            continue
        register, lane = column >> lane_bits, column & ((1 << lane_bits) - 1)
        for source in sources:
            register = register >> (source + 1) << source | register & ((1 << source) - 1)
        columns.append(register << lane_bits | lane)
    in_bits = [(n, b - len(pairs) if n == REGISTER else b) for n, b in wanted.in_items()]
    outs = ((REGISTER, wanted.out_size(REGISTER) >> len(pairs)), (LANE, wanted.out_size(LANE)))
    return LinearLayout.of_columns(in_bits, outs, columns)


def _words(register_bits: int, packed: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Registers per word, when the bits ``packed`` of a register's number say where in the word it lies."""
    rest = [bit for bit in range(register_bits) if bit not in packed]
    inside = [f2.deposit(i, packed) for i in range(1 << len(packed))]
    return tuple(tuple(f2.deposit(word, rest) | i for i in inside) for word in range(1 << len(rest)))


# -- through shared memory -----------------------------------------------------------------------------


def _through_shared(
    src, dst, element_bits: int, scratch_limit: int, same_warp: bool, matrices: bool
) -> SharedMemory:
    swizzle = optimal_swizzle(src, dst, element_bits, scratch_limit, matrices)
    scratch = element_bytes(element_bits) << (swizzle.layout.in_bits_total - swizzle.repetition_bits)
    warp_local = same_warp and not swizzle.store.free_warps
    return SharedMemory(
        swizzle.layout, swizzle.store, swizzle.load, swizzle.repetition_bits, scratch, warp_local,
        swizzle.matrices)


# -- what it costs -------------------------------------------------------------------------------------


def _shared_cost(wavefronts: float, barriers: int = 1, is_warp_local: bool = False) -> float:
    barrier = machine.WARP_ROUND_TRIP if is_warp_local else machine.SHARED_ROUND_TRIP
    return barriers * barrier + machine.WAVEFRONT * wavefronts


def _shuffle_cost(shuffles: float, selects: float) -> float:
    return machine.SHUFFLE_LATENCY + machine.SHUFFLE * shuffles + selects


def _cost(plan: Shuffle | SharedMemory, element_bits: int) -> float:
    if isinstance(plan, Shuffle):
        words = max(1, element_bits // 32)
        return _shuffle_cost(words * plan.exchange.shuffles, words * plan.exchange.selects)
    wavefronts = (plan.matrices or plan.store).wavefronts + plan.load.wavefronts
    return _shared_cost(wavefronts, (2 << plan.repetition_bits) - 1, plan.warp_local)


@lru_cache(maxsize=4096)
def estimated_cost(src: Distributed, dst: Distributed, shape: tuple[int, ...], element_bits: int) -> float:
    """What a conversion costs, in issue slots of a warp, for those who weigh layouts and ask too often for
    plans: without bank conflicts, with selects before and after every shuffle, all words full. Which kind of
    plan it is, the columns alone say.

    >>> from ptxforge.layouts.encodings import Blocked
    >>> rows, columns = Blocked((1, 4), (8, 4), (4, 1), (1, 0)), Blocked((4, 1), (8, 4), (4, 1), (1, 0))
    >>> estimated_cost(rows, columns, (128, 16), 32)               # 16 words to shared memory, 16 back
    124.0
    """
    a, b = src.linear(shape), dst.linear(shape)
    if a == b:
        return 0.0 if src == dst else machine.RENAMING
    words = max(0.25, element_bits / 32)
    before, after = a.in_size(REGISTER) * words, b.in_size(REGISTER) * words
    if a.columns_of(WARP) != b.columns_of(WARP):
        return _shared_cost(before + after)
    if a.columns_of(LANE) != b.columns_of(LANE):
        return _shuffle_cost(max(before, after), 2 * max(before, after))
    return machine.REGISTERS_RENAMED
