"""Exchanges inside a warp: moving registers between lanes with shuffles.

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

from attrs import frozen

from ptxforge.layouts import f2
from ptxforge.layouts.linear import LANE, REGISTER, WARP, LinearLayout


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
