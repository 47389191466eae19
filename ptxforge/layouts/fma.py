"""Layouts of matrix products on the FMA units: who computes what, and how the operands wait in shared memory.

*What limits such a product.* A scheduler issues one instruction per cycle, an FMA or something else; shared
memory delivers 128 bytes per cycle to four schedulers. A thread that computes ``m`` x ``n`` elements reads
m + n operands for m · n FMAs, in vectors of 16 bytes: 8 x 8 elements take 4 reads for 64 FMAs, 16 x 4 take 5.

*What a warp reads.* Lanes that read the same words share them, so that lanes in a square read least: 4 x 8
lanes read 4 and 8 vectors of 16 bytes, each time within the 128 bytes of one row of banks.

*How the operands lie.* A step along k needs a column of A and a row of B. Read in vectors without reading
ahead along k, which would cost registers (and so warps to hide latencies with), both must be contiguous along
the result's dimension, not along k. Where memory has k contiguous, the copy to shared memory transposes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import prod

from ptxforge.layouts.banks import ROW_BYTES
from ptxforge.layouts.cta import row_major
from ptxforge.layouts.encodings import WARP_SIZE, Blocked, Distributed, DotOperand, Shared
from ptxforge.support import machine

VECTOR = 4
"""Neighbouring elements of a thread along each dimension: 16 bytes of 32-bit operands."""



@lru_cache(maxsize=256)
def blocked_for_fma(shape: tuple[int, ...], num_warps: int) -> Blocked | None:
    """The layout of a product of ``shape`` (M, N), or (batch, M, N), that takes the fewest reads of its
    operands, then the fewest bytes from shared memory; ties go to longer rows. ``None`` if there are more
    threads than elements.

    >>> print(blocked_for_fma((128, 128), 8))
    #blocked<{sizePerThread = [4, 4], threadsPerWarp = [4, 8], warpsPerCTA = [4, 2], order = [1, 0]}>
    """
    *batch, m, n = shape
    outer = min(num_warps, prod(batch))
    candidates = list(_splits(m, n, num_warps // outer))
    if not candidates:
        return None
    lanes, warps = min(candidates, key=lambda split: _cost(m, n, *split))
    size = (min(VECTOR, m // (lanes[0] * warps[0])), min(VECTOR, n // (lanes[1] * warps[1])))
    ones = (1,) * len(batch)
    return Blocked((*ones, *size), (*ones, *lanes), (*(outer for _ in batch), *warps), row_major(len(shape)))


Split = tuple[tuple[int, int], tuple[int, int]]


def _splits(m: int, n: int, num_warps: int) -> Iterator[Split]:
    """(lanes, warps) along rows and columns that give every thread elements of its own."""
    for rows in _powers(WARP_SIZE):
        for down in _powers(num_warps):
            lanes, warps = (rows, WARP_SIZE // rows), (down, num_warps // down)
            if rows * down <= m and lanes[1] * warps[1] <= n:
                yield lanes, warps


def _powers(limit: int) -> list[int]:
    return [1 << i for i in range(limit.bit_length())]


def _cost(m: int, n: int, lanes: tuple[int, int], warps: tuple[int, int]) -> tuple[int, int, int]:
    """(vectors that a thread reads, rows of banks that a warp reads) per step along k; how short rows are."""
    reads = steps = 0
    for extent, lane, warp in zip((m, n), lanes, warps):
        own = extent // (lane * warp)
        vector = min(VECTOR, own)
        reads += own // vector
        steps += own // vector * max(1, lane * vector * 4 // ROW_BYTES)
    return reads, steps, -lanes[1]


def shared_for_fma_operand(
    operand: DotOperand, writer: Distributed, shape: Sequence[int], element_bits: int
) -> Shared:
    """How an operand of a dot on FMA units waits in shared memory.

    Contiguous along the result's dimension, transposed if need be. A copy that transposes writes with
    neighbouring lanes (and registers) along k, to the same bank if rows were not swizzled: each group of
    registers gets a phase, the phases fill the row of banks, and what lies between is left to the lanes along
    the other dimension. Elements too narrow to be copied one by one stay contiguous along k; then rows of the
    threads get phases.

    Args:
        operand: its layout in registers, under a blocked parent.
        writer: the layout in which it is copied to shared memory.
        shape: of the operand's tile.
        element_bits: in shared memory.
    """
    order, k = writer.order, operand.k_dim
    free = 2 * operand.rank - 3 - k
    if order[0] != k or not isinstance(writer, Blocked):
        return Shared(1, 1, 1, order)
    size = max(1, element_bits // 8)
    banks, vector = ROW_BYTES // size, machine.VECTOR_BYTES // size
    if size < machine.ASYNC_COPY_BYTES:
        vec = min(vector, shape[k])
        per_phase = max(operand.parent.size_per_thread[free], banks // shape[k])
        return Shared(vec, per_phase, max(1, min(banks, shape[k]) // vec), order)
    own = writer.size_per_thread[k]
    lanes = max(1, min(writer.threads_per_warp[k], shape[k] // own))
    vec = min(max(vector, banks // lanes), shape[free])
    phases = max(1, min(lanes, banks // vec, shape[free] // vec))
    return Shared(vec, own, phases, (free, k, *(d for d in order if d not in (free, k))))
