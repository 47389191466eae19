"""Pictures of layouts, as text and as SVG.

Tensor view (``show``): for each element who holds it, ``T9:2`` = register 2 of thread 9, copies joined by
``|``. In shared memory: for each place, row by row, which element lies there, ``(row:column)``.

>>> from ptxforge.layouts.encodings import Blocked
>>> from ptxforge.layouts.shared import Shared
>>> print(show(Blocked((1, 2), (2, 2), (1, 1), (1, 0)), (2, 4)))
[[T0:0, T0:1, T1:0, T1:1]
[ T2:0, T2:1, T3:0, T3:1]]
>>> print(show(Shared(2, 1, 4, (1, 0)), (4, 8)))
[[(0:0),(0:1),(0:2),(0:3),(0:4),(0:5),(0:6),(0:7)]
[ (1:2),(1:3),(1:0),(1:1),(1:6),(1:7),(1:4),(1:5)]
[ (2:4),(2:5),(2:6),(2:7),(2:0),(2:1),(2:2),(2:3)]
[ (3:6),(3:7),(3:4),(3:5),(3:2),(3:3),(3:0),(3:1)]]

Hardware view: for each thread what it holds, register by register.

>>> print(show_hardware(Blocked((1, 2), (2, 2), (1, 1), (1, 0)), (2, 4)))
Warp 0:
  T0: (0,0), (0,1)
  T1: (0,2), (0,3)
  T2: (1,0), (1,1)
  T3: (1,2), (1,3)

Thread view: only the threads' numbers, ``;`` where the next warp begins.

>>> print(show_threads(Blocked((1, 2), (2, 2), (1, 2), (1, 0)), (2, 8)))
[ 0 0 1 1 ; 4 4 5 5 ]
[ 2 2 3 3 ; 6 6 7 7 ]
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from html import escape
from math import prod

from ptxforge.layouts.encodings import Blocked, Distributed, Encoding, Linear, Mma, Slice
from ptxforge.layouts.linear import BLOCK, LANE, OFFSET, REGISTER, WARP, LinearLayout
from ptxforge.layouts.shared import InSharedMemory

Holder = tuple[int, int]  #: (thread of the CTA, register)


def show(layout: Encoding, shape: Sequence[int], align: bool = False, cta: int = 0) -> str:
    """The tensor view of a distributed encoding, or the memory view of a shared one.

    Args:
        shape: of the tensor.
        align: pad thread numbers so that columns stand below each other; without it, one space.
        cta: whose elements to show, when several CTAs share the tensor.
    """
    if isinstance(layout, InSharedMemory):
        return _show_shared(layout, tuple(shape), cta)
    text = _show_distributed(layout, tuple(shape), cta)
    return text if align else re.sub(" +", " ", text)


def show_hardware(layout: Distributed, shape: Sequence[int], cta: int = 0) -> str:
    """The hardware view: for every warp and thread the coordinates of its registers, in order."""
    linear = layout.linear(shape)
    lines = []
    for warp in range(linear.in_size(WARP)):
        lines.append(f"Warp {warp}:")
        for lane in range(linear.in_size(LANE)):
            held = [linear.apply(register=r, lane=lane, warp=warp, block=cta)
                    for r in range(linear.in_size(REGISTER))]
            thread = warp * linear.in_size(LANE) + lane
            lines.append(f"  T{thread}: " + ", ".join(_coordinates(c, ",") for c in held))
    return "\n".join(lines)


def show_threads(layout: Distributed, shape: Sequence[int], cta: int = 0) -> str:
    """The threads that hold each element of a 2-D tensor (the first, where there are copies)."""
    shape = tuple(shape)
    lanes = layout.linear(shape).in_size(LANE)
    holders = holders_of(layout, shape, cta)
    held = sorted(holders)
    rows = sorted({index[:-1] for index in held})
    width = len(str(max(thread for where in holders.values() for thread, _ in where)))
    lines = []
    for row in rows:
        threads = [holders[index][0][0] for index in held if index[:-1] == row]
        lines.append("[ " + _threads_of_row(threads, lanes, width) + " ]")
    return "\n".join(lines)


def _threads_of_row(threads: Sequence[int], lanes: int, width: int) -> str:
    """Numbers side by side; ``;`` where a later warp begins, a wide gap where the tile starts again."""
    text = str(threads[0]).ljust(width)
    for before, thread in zip(threads, threads[1:]):
        step = thread // lanes - before // lanes
        text += " " if step == 0 else " ; " if step > 0 else "  "
        text += str(thread).ljust(width)
    return text


def holders_of(
    layout: Distributed, shape: Sequence[int], cta: int = 0
) -> dict[tuple[int, ...], list[Holder]]:
    """For each element of the CTA's part of the tensor, the (thread, register) pairs that hold it, threads
    ascending."""
    linear = layout.linear(shape)
    lanes, registers = linear.in_size(LANE), linear.in_size(REGISTER)
    found: dict[tuple[int, ...], list[Holder]] = {}
    for thread in range(lanes * linear.in_size(WARP)):
        for register in range(registers):
            index = linear.apply(register=register, lane=thread % lanes, warp=thread // lanes, block=cta)
            found.setdefault(index, []).append((thread, register))
    return found


# -- tables --------------------------------------------------------------------------------------------


def _show_distributed(layout: Distributed, shape: tuple[int, ...], cta: int) -> str:
    holders = holders_of(layout, shape, cta)
    digits = len(str(max(thread for where in holders.values() for thread, _ in where)))
    cells = {index: "|".join(f"T{thread}".rjust(digits + 1) + f":{register}" for thread, register in where)
             for index, where in holders.items()}
    corner = min(cells)
    part = tuple(len({index[d] for index in cells}) for d in range(len(shape)))
    places = itertools.product(*(range(c, c + size) for c, size in zip(corner, part)))
    return _table((cells[index] for index in places), part, ", ")


def _show_shared(layout: InSharedMemory, shape: tuple[int, ...], cta: int) -> str:
    linear = layout.linear(shape)
    held = (linear.apply(offset=offset, block=cta) for offset in range(linear.in_size(OFFSET)))
    cells = (_coordinates(index, ":") for index in held)
    return _table(cells, layout.in_memory(shape), ",")


def _coordinates(index: Sequence[int], separator: str) -> str:
    return "(" + separator.join(map(str, index)) + ")"


def _table(cells: Iterable[str], shape: Sequence[int], separator: str) -> str:
    """Cells in row-major order as nested brackets, a line per row of the last dimension."""
    cells = iter(cells)
    rank, lines = len(shape), []
    rows = prod(shape[:-1])
    for row in range(rows):
        opened = 1 + _complete_dims(row, shape[:-1])
        closed = 1 + _complete_dims(row + 1, shape[:-1])
        text = separator.join(next(cells) for _ in range(shape[-1]))
        lines.append("[" * opened + " " * (rank - opened) + text + "]" * closed)
    return "\n".join(lines)


def _complete_dims(row: int, outer: Sequence[int]) -> int:
    """How many of the outer dimensions start over at this row."""
    count = 0
    for size in reversed(outer):
        if row % size:
            break
        row //= size
        count += 1
    return count


LARGEST_PICTURE = 1 << 16
"""Elements of the largest tensor of which a picture is still of use."""


def has_picture(layout: Encoding, shape: Sequence[int]) -> bool:
    """Whether a layout of a tensor of ``shape`` can be drawn: elements in threads or places in memory, of the
    encoding's rank, sizes that are powers of two, and not more than ``LARGEST_PICTURE`` of them.

    >>> from ptxforge.layouts.encodings import Blocked
    >>> layout = Blocked((1,), (32,), (4,), (0,))
    >>> has_picture(layout, (128,)), has_picture(layout, (3,))
    (True, False)
    """
    powers = all(size > 0 and size & (size - 1) == 0 for size in shape)
    is_drawn = isinstance(layout, (Distributed, InSharedMemory))
    return is_drawn and len(shape) == layout.rank and powers and prod(shape) <= LARGEST_PICTURE


# -- SVG -----------------------------------------------------------------------------------------------

_CELL_WIDTH, _CELL_HEIGHT = 58, 22


def svg(layout: Encoding, shape: Sequence[int], cta: int = 0) -> str:
    """The same picture as an SVG document: a grid of cells, each lane (or each vector of a shared tile) in a
    colour of its own, warps as shades; the leading dimensions of higher ranks are stacked."""
    shape = tuple(shape)
    if isinstance(layout, InSharedMemory):
        grid = _shared_grid(layout, shape, cta)
    else:
        grid = _distributed_grid(layout, shape, cta)
    columns, rows = max(x for x, _ in grid) + 1, max(y for _, y in grid) + 1
    width, height = columns * _CELL_WIDTH + 2, rows * _CELL_HEIGHT + 26
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
             f'font-family="monospace" font-size="10">',
             f'<text x="2" y="12">{escape(str(layout))} {"x".join(map(str, shape))}</text>']
    for (x, y), (text, colour) in grid.items():
        left, top = x * _CELL_WIDTH + 1, y * _CELL_HEIGHT + 20
        parts.append(f'<rect x="{left}" y="{top}" width="{_CELL_WIDTH}" height="{_CELL_HEIGHT}" '
                     f'fill="{colour}" stroke="#666"/>')
        parts.append(f'<text x="{left + _CELL_WIDTH // 2}" y="{top + 14}" text-anchor="middle">{text}</text>')
    return "\n".join([*parts, "</svg>", ""])


NOTEBOOK_CELLS = 4096


def notebook(layout: Encoding) -> str:
    """HTML of an encoding alone: its text, and the picture of :func:`typical_shape` where it has one of at
    most ``NOTEBOOK_CELLS`` cells."""
    shape = typical_shape(layout)
    if shape is None or prod(shape) > NOTEBOOK_CELLS or not has_picture(layout, shape):
        return f"<code>{escape(str(layout))}</code>"
    return svg(layout, shape)


def typical_shape(layout: Encoding) -> tuple[int, ...] | None:
    """The smallest tensor that shows all of an encoding; ``None`` where that is not told.

    >>> from ptxforge.layouts.encodings import Blocked, Mma, Slice
    >>> from ptxforge.layouts.shared import Shared
    >>> blocked = Blocked((1, 4), (8, 4), (4, 1), (1, 0))
    >>> typical_shape(blocked), typical_shape(Slice(0, blocked)), typical_shape(Mma())
    ((32, 16), (16,), (64, 8))
    >>> typical_shape(Shared(2, 1, 4, (1, 0)))
    (4, 8)
    """
    if isinstance(layout, Blocked):
        return layout.tile
    if isinstance(layout, Slice):
        parent = typical_shape(layout.parent)
        return None if parent is None else parent[: layout.dim] + parent[layout.dim + 1 :]
    if isinstance(layout, Mma) and layout.rank == 2:
        sizes = zip(layout.instr_shape[:2], layout.warps_per_cta, layout.tiles_per_warp, layout.interleave)
        return tuple(prod(size) for size in sizes)
    if isinstance(layout, Linear):
        return tuple(size for _, size in layout.layout.out_dims)
    if isinstance(layout, InSharedMemory) and layout.rank == 2:
        rows, columns = layout.pattern
        return (rows, columns) if layout.order[0] == 1 else (columns, rows)
    return None


def _distributed_grid(layout: Distributed, shape, cta: int) -> dict[tuple[int, int], tuple[str, str]]:
    lanes = layout.linear(shape).in_size(LANE)
    grid = {}
    for index, where in holders_of(layout, shape, cta).items():
        thread, register = where[0]
        more = "+" if len(where) > 1 else ""
        colour = _colour(thread % lanes, thread // lanes)
        grid[_position(index, shape)] = (f"T{thread}:{register}{more}", colour)
    return grid


def _shared_grid(layout: InSharedMemory, shape, cta: int) -> dict[tuple[int, int], tuple[str, str]]:
    linear = layout.linear(shape)
    columns = layout.in_memory(shape)[-1]
    grid = {}
    for offset in range(linear.in_size(OFFSET)):
        index = linear.apply(offset=offset, block=cta)
        group = index[layout.order[0]] // layout.vec
        grid[offset % columns, offset // columns] = (_coordinates(index, ":"), _colour(group, 0))
    return grid


def _position(index: Sequence[int], shape: Sequence[int]) -> tuple[int, int]:
    row = 0
    for value, size in zip(index[:-1], shape[:-1]):
        row = row * size + value
    return index[-1], row


def _colour(hue: int, shade: int) -> str:
    """Neighbouring numbers get hues far apart (the golden angle); shades repeat after four."""
    return f"hsl({hue * 137 % 360}, 65%, {88 - shade % 4 * 8}%)"


def describe(layout: LinearLayout) -> str:
    """A linear layout's bases, a line per input bit: ``lane bit 2 -> (1, 0)``."""
    return "\n".join(
        f"{name} bit {bit} -> {_coordinates(vector, ', ')}"
        for name, vectors in layout.bases if name != BLOCK or vectors for bit, vector in enumerate(vectors))
