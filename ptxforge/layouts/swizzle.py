"""Swizzles: orders of shared memory that neither the writer nor the reader regrets.

*The problem.* One layout writes a tile to shared memory, another reads it. Row-major order suits a writer
that walks rows; a reader that walks columns then finds all its lanes in one bank.

*As a question about subspaces.* A shared layout is an invertible matrix M from offset bits to the tensor.
Call the columns of its low bits (those inside 128 bytes) the *banks*, and the span H of all higher columns
the *segments*: two elements fight for a bank when they differ by a vector of H (up to the bits of the
access's own vector). If the lanes that are served together span the space A in the writer and B in the
reader, there is no conflict exactly when H meets neither A nor B.

*The answer.* Write A = E + A', B = E + B' with E what they share. Pair the basis vectors of A' and B': the
sums a + b lie in neither space. Together with everything outside A + B they give the largest H that avoids
both: its dimension is dim(tensor) - max(dim A, dim B), so nothing can do better. XOR swizzling as it is
usually written, column ^ row, is this construction for A = rows, B = columns.

*The vectors.* The lowest offset bits are a vector that both sides hold in registers, extended, where that is
narrower than 16 bytes, by registers of one side only; of these few candidates the cheapest is taken, counted
in steps of shared memory. (After Zhou et al., *Linear Layouts*, 2025, section 5.4; letting the two sides have
vectors of different widths is ours.)

*Rows of matrices.* ``stmatrix`` writes rows of 16 bytes that four lanes hold together; the eight rows of a
matrix are its step. For accumulators that is one more candidate: its vector is such a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from attrs import evolve, frozen

from ptxforge.layouts import f2
from ptxforge.layouts.banks import (
    ROW_BYTES,
    SharedAccess,
    element_bytes,
    lanes_per_step,
    offsets_of,
    shared_access,
)
from ptxforge.layouts.encodings import DotOperand, Mma
from ptxforge.layouts.linear import LANE, OFFSET, REGISTER, WARP, LinearLayout
from ptxforge.layouts.mma_atoms import StMatrix, plan_ldmatrix, plan_stmatrix
from ptxforge.layouts.panels import SWIZZLES, Panels
from ptxforge.layouts.shared import Shared
from ptxforge.support import machine


@frozen
class Swizzle:
    """A shared layout for one writer and one reader.

    ``layout`` maps offset (elements) to the tensor. The top ``repetition_bits`` of an offset say in which
    of several passes through a smaller scratch space the element goes.
    """

    layout: LinearLayout
    store: SharedAccess
    load: SharedAccess
    repetition_bits: int
    matrices: StMatrix | None = None
    """What writes in place of ``store``."""

    @property
    def cost(self) -> tuple[int, int]:
        """Steps of shared memory, then instructions."""
        writer = self.matrices or self.store
        stores = len(self.store.accesses if self.matrices is None else self.matrices.stores)
        return (writer.wavefronts + self.load.wavefronts, stores + len(self.load.accesses))

    @property
    def is_ideal(self) -> bool:
        """Whether nothing needs fewer steps or instructions: matrices, the widest vectors, no conflicts."""
        is_wide = self.load.vec * self.load.bytes_per_element == machine.VECTOR_BYTES
        return is_wide and self.load.degree == 1 and self.matrices is not None and self.matrices.degree == 1


@lru_cache(maxsize=2048)
def optimal_swizzle(
    store: LinearLayout, load: LinearLayout, element_bits: int, scratch_limit: int = 1 << 62,
    matrices: bool = False,
) -> Swizzle:
    """The best shared layout for writing with ``store`` and reading with ``load``.

    Args:
        store, load: distributed linear layouts of the same tensor, surjective.
        element_bits: size of an element.
        scratch_limit: bytes to stay below, if the layouts let the tile pass in several parts.
        matrices: whether ``stmatrix`` may write.
    """
    store = store.sublayout([REGISTER, LANE, WARP], store.out_names)
    load = load.sublayout([REGISTER, LANE, WARP], load.out_names)
    size = element_bytes(element_bits)
    best = None
    repetitions = _repetitions(store, load, size, scratch_limit, machine.BANK_BYTES) if matrices else []
    for vectors, step in _matrix_candidates(store, repetitions, element_bits) if matrices else ():
        found = _with_matrices(_swizzle(store, load, vectors, repetitions, element_bits, step))
        if found is not None and (best is None or found.cost < best.cost):
            best = found
        if best is not None and best.is_ideal:
            return best
    repetitions = _repetitions(store, load, size, scratch_limit, machine.VECTOR_BYTES)
    for vectors in _vector_candidates(store, load, repetitions, size):
        found = _swizzle(store, load, vectors, repetitions, element_bits)
        if best is None or found.cost < best.cost:
            best = found
    return best


def _matrix_candidates(
    store: LinearLayout, repetitions: Sequence[int], element_bits: int
) -> Iterable[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Vectors that are rows of ``stmatrix``, with the columns that tell the rows of a matrix apart."""
    registers = [column for column in store.columns_of(REGISTER) if column]
    lanes = store.columns_of(LANE)
    packed = max(0, (32 // element_bits).bit_length() - 1)
    candidates = [((*registers[:packed], *lanes[:2]), lanes[2:])]
    if element_bits == 16:
        candidates += [(lanes[2:], (register, *lanes[:2])) for register in registers[:2]]
    for vectors, step in candidates:
        span = f2.Span(repetitions)
        if element_bits <= 32 and len(lanes) == 5 and not any(span.add(vector) for vector in vectors):
            yield vectors, step


def _with_matrices(swizzle: Swizzle) -> Swizzle | None:
    offsets, inside = swizzle.store.layout, swizzle.layout.in_bits_total - swizzle.repetition_bits
    plan = plan_stmatrix(offsets, 8 * swizzle.store.bytes_per_element, 1 << inside)
    return None if plan is None else evolve(swizzle, matrices=plan)


def _swizzle(
    store, load, vectors: Sequence[int], repetitions: Sequence[int], element_bits: int,
    step: tuple[int, ...] | None = None,
) -> Swizzle:
    columns = _columns(store, load, vectors, repetitions, element_bytes(element_bits), step)
    layout = LinearLayout.of_columns([(OFFSET, len(columns))], store.out_dims, columns)
    inverse = layout.invert()
    accesses = [shared_access(side.compose(inverse), element_bits) for side in (store, load)]
    return Swizzle(layout, accesses[0], accesses[1], len(repetitions))


def _vector_candidates(store, load, repetitions, size: int) -> list[tuple[int, ...]]:
    """Bases for the lowest offset bits: what both sides hold in registers, then more of one of them.

    A vector that lanes and warps of the two sides can sum to is good for one side only: its threads' offsets
    would not be multiples of it. So each choice is tried with and without such vectors; for layouts without
    XORs there is no difference.
    """
    threads = [c for side in (store, load) for name in (LANE, WARP) for c in side.columns_of(name)]
    plain = _vectors_beside(repetitions, store, load, size)
    careful = _vectors_beside([*repetitions, *threads], store, load, size)
    return list(dict.fromkeys([*plain, *careful]))


def _vectors_beside(taken: Sequence[int], store, load, size: int) -> Iterable[tuple[int, ...]]:
    """The candidates that are independent of the vectors ``taken``."""
    limit = (machine.VECTOR_BYTES // size).bit_length() - 1
    span = f2.Span(taken)
    common = [v for v in _shared_basis(store.columns_of(REGISTER), load.columns_of(REGISTER))
              if not span.add(v)][:max(limit, 0)]
    yield tuple(common)
    for mine, other in ((store, load), (load, store)):
        lanes = f2.Span(other.columns_of(LANE))
        span = f2.Span([*taken, *common])
        # Registers that are lanes on the other side first: they take no bank away from it.
        more = [c for c in sorted(mine.columns_of(REGISTER), key=lambda c: not lanes.contains(c))
                if not span.add(c)]
        for count in range(1, min(limit - len(common), len(more)) + 1):
            yield (*common, *more[:count])


def _columns(store, load, vectors, repetitions, size: int, step: tuple[int, ...] | None) -> list[int]:
    """The columns of the shared layout: vector, banks, segments, repetitions. ``step`` is what one step of
    the writer serves, where that is not told by its lanes."""
    bits = store.out_bits_total
    inside = bits - len(repetitions)
    segments_wanted = max(0, inside - ((ROW_BYTES // size).bit_length() - 1))
    a_lanes, b_lanes = (_step_lanes(side, vectors, size) for side in (store, load))
    a_lanes = a_lanes if step is None else step
    a = f2.independent([*vectors, *a_lanes])
    b = f2.independent([*vectors, *b_lanes])
    both = _shared_basis(a, b)
    a_only, b_only = _complement(both, a), _complement(both, b)
    everything = f2.independent([*both, *a_only, *b_only])
    outside = _outside(everything, store, load, repetitions, bits)
    pairs = [x ^ y for x, y in zip(a_only, b_only)]
    longer = a_only if len(a_only) > len(b_only) else b_only
    # From the best candidates for a segment to the worst: without conflict; with one on one side; on both.
    pool = [*pairs, *longer[len(pairs):], *a_only[:len(pairs)], *reversed(both[len(vectors):])]
    segments = outside[-segments_wanted:] if segments_wanted else []
    segments = [*pool[:segments_wanted - len(segments)], *segments]
    low = list(vectors)
    span = f2.Span([*low, *segments, *repetitions])
    for column in [*both, *a_only, *outside, *b_only, *(1 << i for i in range(bits))]:
        if not span.add(column):
            low.append(column)
    return [*low, *segments, *repetitions]


def _step_lanes(side: LinearLayout, vectors: Sequence[int], size: int) -> tuple[int, ...]:
    """The lane columns that one step of the access serves, given which low bits the side holds itself."""
    registers = f2.Span(side.columns_of(REGISTER))
    vec = 1
    for vector in vectors:
        if not registers.contains(vector):
            break
        vec <<= 1
    lanes = lanes_per_step(vec * size).bit_length() - 1
    return side.columns_of(LANE)[:lanes]


def _outside(inner, store, load, repetitions, bits: int) -> list[int]:
    """A basis of the rest of the tensor, made of the layouts' own columns so that addresses stay simple."""
    span = f2.Span([*inner, *repetitions])
    names = (LANE, WARP, REGISTER)
    candidates = [c for name in names for side in (store, load) for c in side.columns_of(name)]
    return [c for c in (*candidates, *(1 << i for i in range(bits))) if not span.add(c)]


def _shared_basis(a: Sequence[int], b: Sequence[int]) -> list[int]:
    """A basis of span(a) ∩ span(b), made of vectors of ``a`` as far as possible."""
    span = f2.Span(b)
    return f2.independent([*(v for v in a if v and span.contains(v)), *f2.intersection(a, b)])


def _complement(inner: Sequence[int], outer: Sequence[int]) -> list[int]:
    """The vectors of ``outer`` that extend ``inner`` to its span."""
    span = f2.Span(inner)
    return [v for v in outer if not span.add(v)]


def _repetitions(store, load, size: int, scratch_limit: int, together: int) -> list[int]:
    """Vectors along which the tile can pass through scratch memory in parts: both sides hold them in
    registers, and no lane or warp of either has a share in them. As many as the limit asks for, or as there
    are, without those that make up what one thread writes ``together`` (bytes)."""
    wanted = 0
    while (size << store.out_bits_total) >> wanted > scratch_limit:
        wanted += 1
    if not wanted:
        return []
    threads = [c for side in (store, load) for name in (LANE, WARP) for c in side.columns_of(name)]
    common = _shared_basis(store.columns_of(REGISTER), load.columns_of(REGISTER))
    keep = (together // size).bit_length() - 1
    span = f2.Span([*threads, *common[:keep]])
    found = [v for v in reversed(common[keep:]) if not span.add(v)]
    return found[:wanted][::-1]


def swizzle_for_dot_operand(
    operand: DotOperand, shape: Sequence[int], order: Sequence[int], element_bits: int
) -> Shared:
    """The swizzled encoding in which a ``dot`` operand waits in shared memory for ``ldmatrix`` or loads.

    Copies write 16 bytes at once, so these stay together. The usual swizzle is tried first: rows of the
    tile that share banks (every 128 bytes) get different phases, up to eight of 16 bytes, which suits
    ``ldmatrix``. Readers whose lanes walk in other steps (of every second row, of 32 bytes in four rows)
    have conflicts with it and get larger units, or more rows to a phase. An operand of FMA instructions
    needs no swizzle.

    Args:
        operand: its layout in registers.
        shape: of the operand's tile (rank 2, or batches of them).
        order: of the tile in memory, fastest first.

    >>> a = DotOperand(0, Mma((2, 0), (4, 1)), 2)
    >>> print(swizzle_for_dot_operand(a, (128, 64), (1, 0), 16))
    #shared<{vec = 8, perPhase = 1, maxPhase = 8, order = [1, 0]}>
    >>> print(swizzle_for_dot_operand(a, (128, 32), (1, 0), 16))
    #shared<{vec = 8, perPhase = 2, maxPhase = 4, order = [1, 0]}>
    """
    order = tuple(order)
    if not isinstance(operand.parent, Mma):
        return Shared(1, 1, 1, order)
    return _swizzle_for_mma(operand, tuple(shape), order, element_bits)


@lru_cache(maxsize=256)
def _swizzle_for_mma(operand: DotOperand, shape, order, element_bits: int) -> Shared:
    registers, best, fewest = operand.linear(shape), None, 0
    for vec, per_phase, max_phase in _phases(shape[order[0]], element_bytes(element_bits)):
        shared = Shared(vec, per_phase, max_phase, order)
        steps = _steps_to_read(registers, shared.linear(shape), element_bits)
        if best is None or steps < fewest:
            best, fewest = shared, steps
        if fewest == _least_steps(registers, element_bits):
            break
    return best


@lru_cache(maxsize=256)
def panels_for_dot_operand(
    operand: DotOperand, shape: tuple[int, ...], order: tuple[int, ...], element_bits: int
) -> Panels | None:
    """The panels out of which the operand is read in no more steps than out of
    :func:`swizzle_for_dot_operand`; ``None`` if there are none. They are as wide as the tile, or as panels
    can be: how long TMA takes for a row of one does not depend on its width (``docs/performance.md``).

    >>> mma = Mma((3, 0), (4, 1), (16, 256, 16), interleave=(4, 1))
    >>> print(panels_for_dot_operand(DotOperand(0, mma, 1), (64, 32), (0, 1), 32))
    #panels<{swizzle = 128, elementBits = 32, order = [0, 1]}>
    """
    width = min(SWIZZLES[0], shape[order[0]] * element_bytes(element_bits))
    if width not in SWIZZLES:
        return None
    registers, panels = operand.linear(shape), Panels(width, element_bits, order)
    usual = swizzle_for_dot_operand(operand, shape, order, element_bits)
    steps = (_steps_to_read(registers, each.linear(shape), element_bits) for each in (panels, usual))
    return panels if next(steps) <= next(steps) else None


def _phases(columns: int, size: int) -> Iterable[tuple[int, int, int]]:
    """Candidates for (vec, per_phase, max_phase) of rows of ``columns`` elements of ``size`` bytes."""
    unit = min(columns, max(1, machine.VECTOR_BYTES // size))
    rows_per_line = max(1, ROW_BYTES // (columns * size))
    for vec in (unit, 2 * unit, 4 * unit):
        for factor in (1, 2, 4):
            per_phase = rows_per_line * factor
            phases = min(ROW_BYTES // (vec * size) // rows_per_line, columns // vec)
            if phases >= 1:
                yield vec, per_phase, phases


def _steps_to_read(registers: LinearLayout, shared: LinearLayout, element_bits: int) -> int:
    """Steps of shared memory in which a warp reads the operand."""
    plan = plan_ldmatrix(registers, shared, element_bits)
    if plan is not None:
        return len(plan.loads) * plan.count * plan.degree
    return shared_access(offsets_of(registers, shared), element_bits).wavefronts


def _least_steps(registers: LinearLayout, element_bits: int) -> int:
    """No reader needs fewer: 128 bytes a step."""
    unique = registers.sublayout([REGISTER, LANE], registers.out_names).rank
    return max(1, (element_bytes(element_bits) << unique) // ROW_BYTES)
