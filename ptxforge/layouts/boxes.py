"""Boxes of TMA as linear maps: which element of a box lies where in shared memory.

The rows of a box follow each other in memory, each of the ``swizzle`` bytes (32, 64 or 128) that it has room
for, or of any number of them without a swizzle. Under a swizzle the number of a 16-byte chunk within its row
is combined by xor with bits 7 and up of its address: as many bits as count the chunks of ``swizzle`` bytes
(PTX ISA, "Tensor Swizzling Modes"). A tile that is wider than a box is several of them, one after the other:
:class:`~ptxforge.layouts.panels.Panels`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod

from ptxforge.layouts.linear import OFFSET, LinearLayout, dim_names, log2_exact
from ptxforge.layouts.shared import InSharedMemory

CHUNK_BYTES, SWIZZLED_FROM = 16, 128
"""Bytes that stay together, and from which on bits of an address choose among them."""


@lru_cache(maxsize=256)
def box_layout(box: tuple[int, ...], bits: int, swizzle: int) -> LinearLayout:
    """From offsets in shared memory, in elements of ``bits`` bits, to the indices of a ``box`` (outermost
    dimension first). Raises :class:`ptxforge.layouts.linear.LayoutError` for extents that are no powers of 2.

    >>> layout = box_layout((8, 16), 16, 32)
    >>> [layout.apply(offset=offset) for offset in (5 * 16, 5 * 16 + 8)]
    [(5, 8), (5, 0)]
    """
    size, chunks = bits // 8, max(1, swizzle // CHUNK_BYTES)
    places = [1 << bit for bit in range(sum(log2_exact(extent) for extent in box))]
    columns = [at ^ (at * size // SWIZZLED_FROM % chunks) * CHUNK_BYTES // size for at in places]
    return LinearLayout.of_columns([(OFFSET, len(columns))], zip(dim_names(len(box)), box), columns)


def lies_in_boxes(
    layout: InSharedMemory, shape: Sequence[int], bits: int, box: Sequence[int], tile_dims: Sequence[int],
    swizzle: int,
) -> bool:  # fmt: skip
    """Whether a tile in shared memory lies as copies of boxes leave it there, one after the other along its
    fastest dimension. ``tile_dims`` has the tile's dimension for each of the box (-1: none, of extent 1).

    >>> from ptxforge.layouts.panels import Panels
    >>> tile = Panels(128, 16, (1, 0))
    >>> [lies_in_boxes(tile, (64, 256), 16, (1, 64, 64), (-1, 0, 1), swizzle) for swizzle in (64, 128)]
    [False, True]
    """
    tile, part = layout.linear(tuple(shape)), box_layout(tuple(box), bits, swizzle)
    for at, column in enumerate(part.columns):
        indices = [0] * len(shape)
        for dim, index in zip(tile_dims, part.unflatten(column), strict=True):
            if dim >= 0:
                indices[dim] = index
        if tile.unflatten(tile.columns[at]) != tuple(indices):
            return False
    fastest = layout.order[0]
    steps = range(len(tile.columns) - len(part.columns))
    width = prod(extent for dim, extent in zip(tile_dims, box) if dim == fastest)
    following = [tile.unflatten(column) for column in tile.columns[len(part.columns) :]]
    return following == [tuple(width << n if d == fastest else 0 for d in range(len(shape))) for n in steps]
