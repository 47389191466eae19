"""How a warp that holds fragments of tensor cores stores them: in vectors, line by line.

A lane has two neighbours of a row of the accumulator, four lanes are eight of them. Where a warp has a longer
piece of each row (``Mma.tiles_per_warp``) it can exchange elements until every lane has a vector and eight
lanes a whole line, without waiting for other warps.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from ptxforge.layouts.encodings import WARP_SIZE, Distributed, Linear
from ptxforge.layouts.linear import BLOCK, LANE, REGISTER, WARP, LinearLayout, log2_exact
from ptxforge.support import machine


@lru_cache(maxsize=256)
def lines_in_warp(
    layout: Distributed, shape: Sequence[int], width: int, element_bytes: int
) -> Linear | None:
    """``layout`` on a tensor of ``shape`` after an exchange within each warp: a thread's first registers hold
    ``width`` neighbours along the last dimension, lanes side by side a line of the caches. ``None`` where
    a warp has less than half a line of a row, or copies of elements.

    >>> from ptxforge.layouts.encodings import Mma
    >>> mma = Mma((2, 0), (2, 2), (16, 8), tiles_per_warp=(1, 8))
    >>> [mma.linear((32, 128)).columns_of(name) for name in ("register", "lane")]
    [(1, 1024, 8, 16, 32), (2, 4, 128, 256, 512)]
    >>> found = lines_in_warp(mma, (32, 128), 8, 2).linear((32, 128))
    >>> [found.columns_of(name) for name in ("register", "lane")]
    [(1, 2, 4, 512, 1024), (8, 16, 32, 128, 256)]
    """
    linear = layout.linear(shape)
    held = linear.columns_of(REGISTER) + linear.columns_of(LANE)
    if 0 in held:
        return None
    together = 1
    while together < shape[-1] and together in held and together * element_bytes < machine.LINE_BYTES:
        together *= 2
    together = min(together, WARP_SIZE * width)
    if together * element_bytes < machine.LINE_BYTES // 2 or together <= width:
        return None
    columns = [1 << bit for bit in range(log2_exact(together))]
    vector, line = columns[: log2_exact(width)], columns[log2_exact(width) :]
    rows = sorted(column for column in held if column >= together)
    spare = log2_exact(WARP_SIZE) - len(line)
    bases = {
        REGISTER: vector + rows[spare:],
        LANE: line + rows[:spare],
        WARP: linear.columns_of(WARP),
        BLOCK: linear.columns_of(BLOCK),
    }
    counts = [(name, len(columns)) for name, columns in bases.items()]
    return Linear(LinearLayout.of_columns(counts, linear.out_dims, [c for b in bases.values() for c in b]))


def register_run(layout: Distributed, shape: tuple[int, ...]) -> tuple[int, int]:
    """(dimension, length) of the run of neighbouring elements that a thread's first registers hold, aligned
    to its length; length 1 when there is none."""
    linear = layout.linear(shape)
    columns = linear.columns_of(REGISTER)
    if not columns or not columns[0]:
        return len(shape) - 1, 1
    first = linear.unflatten(columns[0])
    dim = next(d for d, v in enumerate(first) if v)
    shift = 0
    for size in shape[dim + 1 :]:
        shift += size.bit_length() - 1
    count = 0
    while count < len(columns) and columns[count] == 1 << (shift + count):
        count += 1
    below = [c for c in linear.columns if c >> shift & ((shape[dim] - 1))]
    while count and sum(1 for c in below if (c >> shift) & ((1 << count) - 1)) > count:
        count -= 1
    return dim, 1 << count
