"""The instructions of a matrix product: how many a thread takes part in, in which order, and which registers
each of them uses.

``mma.sync``: the layouts of the operands say which registers make a fragment (``mma_atoms.py``): a word of A
in row m at k, the same 8 rows further down, and both again half a k-tile further on. With a larger
``k_width`` the words of one instruction are not neighbours in k, but A and B agree on it, so the sum is the
same. Order: k outermost, then columns of B, then rows of A back and forth (one operand pair stays while the
other walks).

FMA units: k outermost, too, so that each step needs one column of ``a`` and one row of ``b``; a step goes
through its rows to and fro, so that from one instruction to the next only one operand changes.

Their layouts, who computes what and how the operands wait in shared memory:

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
from typing import NamedTuple

from ptxforge.layouts.banks import ROW_BYTES
from ptxforge.layouts.cta import row_major
from ptxforge.layouts.encodings import WARP_SIZE, Blocked, Distributed, DotOperand, Mma
from ptxforge.layouts.linear import LinearLayout, register_constants
from ptxforge.layouts.shared import Shared
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


Registers = tuple[int, ...] | None
"""The registers of one word (None: the tile does not have it)."""


class Step(NamedTuple):
    """One instruction: the words of A and B, the registers of C and D (None where the tile ends)."""

    a: tuple[Registers, ...]
    b: tuple[Registers, ...]
    c: tuple[int | None, ...]


# -- tensor cores ----------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def mma_steps(
    a: LinearLayout, b: LinearLayout, c: LinearLayout, k_width: int, bits: int, layout: Mma
) -> tuple[Step, ...]:
    """All instructions of one thread on tensor cores, in order."""
    dims = layout.rank - 2, layout.rank - 1
    place_a, place_b = _places(a, layout, dims[:1]), _places(b, layout, dims[1:])
    place_c = _places(c, layout, dims)
    rows = layout.instr_shape[-2]
    per_word = max(1, 32 // bits)
    k_starts = _k_starts(a.out_shape[-1], k_width, per_word, halves=rows == 16)
    tiles = _tiles(place_c, rows)
    steps = []
    for ks in k_starts:
        for batch, by_column in tiles.items():
            for index, (n, ms) in enumerate(by_column.items()):
                for m in ms if index % 2 == 0 else reversed(ms):
                    steps.append(
                        Step(
                            _words_a(place_a, batch, m, ks, rows, per_word),
                            tuple(_word(place_b, [(*batch, k + i, n) for i in range(per_word)]) for k in ks),
                            _words_c(place_c, batch, m, n, rows),
                        )
                    )
    return tuple(steps)


def _places(tensor: LinearLayout, layout: Mma, dims: tuple[int, ...]) -> dict[tuple[int, ...], int]:
    """The first register of each element that thread 0 holds, by coordinates; rows and columns, ``dims``, as
    instructions count."""
    return {
        tuple(layout.as_counted(d, x) if d in dims else x for d, x in enumerate(at)): register
        for at, register in _places_of(tensor).items()
    }


def _k_starts(size: int, k_width: int, per_word: int, halves: bool) -> list[tuple[int, ...]]:
    """For each instruction the k (of lane 0) at which its words begin: two that a lane holds side by side, if
    it does, so that one load brings both."""
    tile = k_width * (8 if halves else 4)
    words = [base + half + word for base in range(0, max(size, tile), tile)
             for half in ((0, tile // 2) if halves else (0,)) for word in range(0, k_width, per_word)]
    count = 2 if halves else 1
    return [tuple(words[i : i + count]) for i in range(0, len(words), count)]


def _tiles(place_c: dict, rows: int) -> dict[tuple, dict[int, list[int]]]:
    """Per batch index and first column, the first rows of the result's tiles."""
    tiles: dict[tuple, dict[int, list[int]]] = {}
    for *batch, m, n in sorted(place_c):
        if m % rows == 0 and n % 8 == 0:
            tiles.setdefault(tuple(batch), {}).setdefault(n, []).append(m)
    return tiles


def _word(places: dict, coordinates: list[tuple]) -> Registers:
    registers = tuple(places.get(at) for at in coordinates)
    return None if None in registers else registers


def _words_a(
    places: dict, batch: tuple, m: int, ks: tuple, rows: int, per_word: int
) -> tuple[Registers, ...]:
    down = (m, m + 8) if rows == 16 else (m,)
    return tuple(_word(places, [(*batch, row, k + i) for i in range(per_word)]) for k in ks for row in down)


def _words_c(places: dict, batch: tuple, m: int, n: int, rows: int) -> tuple[int | None, ...]:
    down = (m, m + 8) if rows == 16 else (m,)
    return tuple(places.get((*batch, row, n + i)) for row in down for i in (0, 1))


# -- FMA units -------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def fma_steps(a: LinearLayout, b: LinearLayout, c: LinearLayout) -> tuple[tuple[int, int, int], ...]:
    """The triples (register of the result, of a, of b) that one thread multiplies and adds, in order."""
    place_a, place_b = _places_of(a), _places_of(b)
    outputs = [(r, c.unflatten(flat)) for r, flat in enumerate(register_constants(c))]
    return tuple(
        (r, place_a[(*out[:-1], k)], place_b[(*out[:-2], k, out[-1])])
        for k in sorted({coordinates[-1] for coordinates in place_a})
        for r, out in _to_and_fro(outputs)
    )


def _to_and_fro(outputs: list[tuple[int, tuple[int, ...]]]) -> list[tuple[int, tuple[int, ...]]]:
    """Elements of the result in rows, every other row backwards."""
    rows: dict[tuple[int, ...], list] = {}
    for register, out in sorted(outputs, key=lambda item: item[1]):
        rows.setdefault(out[:-1], []).append((register, out))
    return [item for i, row in enumerate(rows.values()) for item in (reversed(row) if i % 2 else row)]


def _places_of(layout: LinearLayout) -> dict[tuple[int, ...], int]:
    """The first register of each element that thread 0 holds."""
    places: dict[tuple[int, ...], int] = {}
    for register, flat in enumerate(register_constants(layout)):
        places.setdefault(layout.unflatten(flat), register)
    return places
