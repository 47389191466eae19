"""Block pointers and tensor descriptors in random kernels: boxes of a matrix at any place, also outside.

``window`` reads boxes that a loop moves; ``box_product`` multiplies them, as a matrix product does; ``spill``
writes a box that hangs over the matrix it goes to. Each draws whether a block pointer or a descriptor says
where a box lies, and how far it hangs over.
"""

from __future__ import annotations

import attrs
import numpy as np

BYTES = {"int8": 1, "int16": 2, "int32": 4, "int64": 8, "float16": 2, "bfloat16": 2, "float32": 4}
NARROW = 16
"""Bytes that a descriptor's rows and its boxes' rows have at least."""


@attrs.frozen
class Matrix:
    """An array as ``rows`` times ``columns``, of which boxes are used; ``by`` is ``block`` or ``descriptor``.
    A block pointer may see it the other way round."""

    name: str
    rows: int
    columns: int
    box: tuple[int, int]
    by: str
    transposed: bool = False

    def made(self, row: str, column: str) -> str:
        """The expression that makes a block pointer to a box, or a descriptor."""
        shape = f"({self.rows}, {self.columns})"
        strides = f"(1, {self.rows})" if self.transposed else f"({self.columns}, 1)"
        if self.by == "descriptor":
            return f"tl.make_tensor_descriptor({self.name}, {shape}, {strides}, {self.box})"
        order = (0, 1) if self.transposed else (1, 0)
        return f"tl.make_block_ptr({self.name}, {shape}, {strides}, ({row}, {column}), {self.box}, {order})"


def matrix(g, dtype: str, itemsize: int, rows: int, columns: int, box: tuple[int, int]) -> Matrix:
    """An array of its own. A descriptor's rows are multiples of 16 bytes."""
    name = f"x{len(g.arrays)}"
    by = g.pick(("block", "descriptor"))
    if by == "descriptor" and box[1] * itemsize < NARROW:
        by = "block"
    if by == "descriptor":
        columns = -(-columns * itemsize // NARROW) * NARROW // itemsize
    g.arrays[name] = g.data(dtype, rows * columns)
    return Matrix(name, rows, columns, box, by, by == "block" and g.rng.random() < 0.3)


def _place(g, size: int, side: int) -> str:
    """Where a box begins along a dimension: somewhere inside, at an edge, or outside."""
    number = int(g.rng.integers(-side, size + side))
    return g.pick((str(number), f"pid * {side}", f"s - {g.pick((0, 1, 3))}", "0"))


def _sizes(g) -> tuple[int, int, tuple[int, int]]:
    box = g.pick((1, 2, 4, 16, 32)), g.pick((4, 8, 16, 32))
    return int(g.rng.integers(1, 40)), int(g.rng.integers(1, 50)), box


def window(g) -> None:
    """Boxes along a walk, added up."""
    dtype = g.pick(("int32", "int16", "int8", "float32", "float16"))
    rows, columns, box = _sizes(g)
    m = matrix(g, dtype, BYTES[dtype], rows, columns, box)
    row, column = (_place(g, size, side) for size, side in ((m.rows, box[0]), (m.columns, box[1])))
    down, across = (g.pick((0, 1, side, -side)) for side in box)
    count, most = g.trips()
    total = g.assign(f"tl.full({box}, 1, tl.{dtype})", dtype, box, 1 + 4 * max(most, 1))
    tile, k = g.fresh("p"), g.fresh("k")
    g.emit(f"{tile} = {m.made(row, column)}")
    g.emit(f"for {k} in tl.range(0, {count}{g.stages()}):")
    if m.by == "block":
        g.emit(f"    {total.name} += tl.load({tile}, boundary_check=(0, 1){g.pick(('', PADDED))})")
        g.emit(f"    {tile} = tl.advance({tile}, ({down}, {across}))")
    else:
        place = f"[{row} + {k} * {down}, {column} + {k} * {across}]"
        g.emit(f"    {total.name} += {tile}.load({place})")


PADDED = ', padding_option="zero"'


def box_product(g) -> None:
    """A matrix product whose operands hang over their matrices on all sides but the first."""
    m, n, k = g.pick((16, 32, 64, 128)), g.pick((16, 32, 64)), g.pick((16, 32, 64))
    dtype = g.pick(("float16", "float16", "bfloat16", "int8"))
    k = max(k, 32 // BYTES[dtype])
    count, most = g.trips()
    depth = max(1, k * max(most, 1) - int(g.rng.integers(0, k)))
    rows = max(1, g.grid * m - int(g.rng.integers(0, m)))
    a = matrix(g, dtype, BYTES[dtype], rows, depth, (m, k))
    b = matrix(g, dtype, BYTES[dtype], a.columns, max(1, n - int(g.rng.integers(0, 9))), (k, n))
    result = "int32" if dtype == "int8" else "float32"
    acc = g.assign(f"tl.full(({m}, {n}), 1, tl.{result})", result, (m, n), 1 + 64 * k * max(most, 1))
    x, y, z = (g.fresh(prefix) for prefix in "pqz")
    g.emit(f"{x} = {a.made(f'pid * {m}', '0')}")
    g.emit(f"{y} = {b.made('0', '0')}")
    g.emit(f"for {z} in tl.range(0, {count}{g.stages()}):")
    left = _operand(x, a, f"[pid * {m}, {z} * {k}]")
    right = _operand(y, b, f"[{z} * {k}, 0]")
    g.emit(f"    {acc.name} = tl.dot({left}, {right}, {acc.name})")
    for tile, of, step in ((x, a, (0, k)), (y, b, (k, 0))):
        if of.by == "block":
            g.emit(f"    {tile} = {tile}.advance({step})")


def _operand(tile: str, of: Matrix, place: str) -> str:
    return f"tl.load({tile}, boundary_check=(0, 1))" if of.by == "block" else f"{tile}.load({place})"


def spill(g) -> None:
    """Write, or add to, a box of which a part is outside; each program has rows of its own."""
    tile = g.choose(lambda t: t.is_exact and len(t.shape) == 2 and not t.is_bool and t.shape[1] <= 256)
    if tile is None:
        return g.arithmetic()
    value = g.converted(tile, g.pick(("int32", "int64", "float32")))
    value = g.bounded(value, 100) if value.is_float else value
    rows = max(1, g.grid * tile.shape[0] - int(g.rng.integers(0, tile.shape[0])))
    m = matrix(g, value.dtype, BYTES[value.dtype], rows, int(g.rng.integers(1, 40)), tile.shape)
    if tile.shape[0] > 256:
        m = attrs.evolve(m, by="block")
    array = np.zeros_like(g.arrays.pop(m.name))
    m = attrs.evolve(m, name=f"o{m.name[1:]}")
    g.arrays[m.name] = array
    row, column = f"pid * {tile.shape[0]}", str(int(g.rng.integers(-tile.shape[1], m.columns + 1)))
    if m.by == "block":
        g.emit(f"tl.store({m.made(row, column)}, {value.name}, boundary_check=(0, 1))")
        return
    use = g.pick(("store", "store", "atomic_add"))
    g.emit(f"{m.made(row, column)}.{use}([{row}, {column}], {value.name})")
