"""Programs that walk over tiles in random kernels: a loop over output tiles around a loop along k, as
persistent matrix products are written, of sizes that ``wgmma`` takes and TMA feeds where the target has them;
and products of which the compiler makes such programs.

It draws whether pointers, block pointers or descriptors say where tiles lie, whether B is transposed, how
many steps a tile has (also another number for each tile, and none), how far the tiles hang over the matrices,
and what becomes of a tile's sum.
"""

from __future__ import annotations

import attrs
import numpy as np

BYTES = {"float16": 2, "bfloat16": 2, "int8": 1}
ALIGNED = 16
"""Bytes of which rows are multiples, as a rule: TMA copies no others."""
WISHES = ("", "", ", warp_specialize=True")


@attrs.frozen
class Operand:
    """An array of ``rows`` times ``columns``, of which tiles of ``box`` are read ``by`` pointers, block
    pointers or descriptors; ``name`` is what the kernel calls it."""

    name: str
    rows: int
    columns: int
    box: tuple[int, int]
    by: str

    def prepare(self, g) -> str:
        """What stands before the loops; the name of what tiles are read from."""
        if self.by != "descriptor":
            return self.name
        made, shape = g.fresh("d"), f"({self.rows}, {self.columns}), ({self.columns}, 1), {self.box}"
        g.emit(f"{made} = tl.make_tensor_descriptor({self.name}, {shape})")
        return made

    def tile(self, g, source: str, row: str, column: str, is_wrapped: bool) -> str:
        """The expression that reads the tile at a row and a column. Wrapped rows are read again from the
        first one on."""
        if self.by == "descriptor":
            return f"{source}.load([{row}, {column}])"
        if self.by == "block":
            made = (f"tl.make_block_ptr({source}, ({self.rows}, {self.columns}), ({self.columns}, 1), "
                    f"({row}, {column}), {self.box}, (1, 0))")  # fmt: skip
            return f"tl.load({made}, boundary_check=(0, 1))"
        i, j = g.fresh("i"), g.fresh("j")
        g.emit(f"{i} = ({row} + tl.arange(0, {self.box[0]}))[:, None]")
        g.emit(f"{j} = ({column} + tl.arange(0, {self.box[1]}))[None, :]")
        if is_wrapped:
            return (f"tl.load({source} + {i} % {self.rows} * {self.columns} + {j}, "
                    f"mask={j} < {self.columns}, other=0)")  # fmt: skip
        mask = f"({i} < {self.rows}) & ({j} < {self.columns})"
        return f"tl.load({source} + {i} * {self.columns} + {j}, mask={mask}, other=0)"


def walk_over_tiles(g) -> None:
    """c = a @ b, a tile after the other; b may be stored as columns."""
    dtype = g.pick(("float16", "float16", "bfloat16", "int8"))
    g.num_warps = g.pick((g.num_warps, 4, 4, 8))
    m, n, k = 64 * g.pick((1, max(1, g.num_warps // 4))), g.pick((16, 32, 64, 128)), g.pick((32, 32, 64))
    is_transposed = dtype == "int8" or g.rng.random() < 0.5
    down, across = g.pick((1, 2, 3)), g.pick((1, 1, 2))
    steps = g.pick(("s", "2", "3", "5", "{t} % 3", "s - {t} % 2", "0"))
    rows, columns = down * m - int(g.rng.integers(0, m)), _aligned(g, across * n, n, dtype)
    depth = _aligned(g, 5 * k, 3 * k, dtype)
    by = g.pick(("pointers", "pointers", "descriptor", "descriptor", "block"))
    a = _operand(g, dtype, rows, depth, (m, k), by)
    b = _operand(g, dtype, *((columns, depth) if is_transposed else (depth, columns)),
                 (n, k) if is_transposed else (k, n), by)  # fmt: skip
    c, result = f"o{len(g.arrays)}", "int32" if dtype == "int8" else "float32"
    g.arrays[c] = np.zeros(rows * columns, np.dtype(result))
    x, y, (t, z, i, j, acc) = a.prepare(g), b.prepare(g), map(g.fresh, "tzijv")
    carried = g.fresh("c") if g.rng.random() < 0.2 else ""
    if carried:
        g.emit(f"{carried} = tl.zeros(({m}, {n}), tl.{result})")
    advice = g.pick(("", ", flatten=True")) + g.pick(WISHES)
    g.emit(f"for {t} in tl.range(pid, {down * across}, {g.grid}{advice}):")
    g.indent += 1
    g.emit(f"{i}, {j} = {t} // {across} * {m}, {t} % {across} * {n}")
    g.emit(f"{acc} = tl.zeros(({m}, {n}), tl.{result})")
    g.emit(f"for {z} in tl.range(0, {steps.format(t=t)}{g.stages()}{g.pick(WISHES)}):")
    g.indent += 1
    left = a.tile(g, x, i, f"{z} * {k}", by == "pointers" and g.rng.random() < 0.5)
    place = (j, f"{z} * {k}") if is_transposed else (f"{z} * {k}", j)
    right = b.tile(g, y, *place, False)
    g.emit(f"{acc} = tl.dot({left}, {f'tl.trans({right})' if is_transposed else right}, {acc})")
    g.indent -= 1
    _finish(g, acc, carried, c, (i, j), (m, n), (rows, columns))
    g.indent -= 1


def large_product(g) -> None:
    """c = a @ b, a tile for each program, so large that the compiler lets programs walk over tiles."""
    g.num_warps, g.num_stages = g.pick((4, 8)), 4
    m, n, k = 128, 128, 64
    depth, columns = _aligned(g, g.pick((1, 2, 5)) * k, k, "float16"), _aligned(g, n, n // 2, "float16")
    rows = g.grid * m - int(g.rng.integers(0, m))
    by = g.pick(("pointers", "descriptor", "block"))
    a, b = _operand(g, "float16", rows, depth, (m, k), by), _operand(g, "float16", depth, columns, (k, n), by)
    c, z, acc = f"o{len(g.arrays)}", g.fresh("z"), g.fresh("v")
    g.arrays[c] = np.zeros(rows * columns, np.float32)
    x, y, (i, j) = a.prepare(g), b.prepare(g), (f"(pid * {m})", "0")
    g.emit(f"{acc} = tl.zeros(({m}, {n}), tl.float32)")
    g.emit(f"for {z} in tl.range(0, {-(-depth // k)}):")
    g.indent += 1
    left = a.tile(g, x, i, f"{z} * {k}", by == "pointers" and g.rng.random() < 0.5)
    g.emit(f"{acc} = tl.dot({left}, {b.tile(g, y, f'{z} * {k}', j, False)}, {acc})")
    g.indent -= 1
    _finish(g, acc, "", c, (i, j), (m, n), (rows, columns))


def _operand(g, dtype: str, rows: int, columns: int, box: tuple[int, int], by: str) -> Operand:
    name = f"x{len(g.arrays)}"
    if by == "descriptor":
        width = ALIGNED // BYTES[dtype]
        columns = -(-columns // width) * width
    g.arrays[name] = g.data("float16", rows * columns).astype(g.numpy(dtype))
    return Operand(name, rows, columns, box, by)


def _aligned(g, size: int, most: int, dtype: str) -> int:
    """``size`` less a part of ``most``, as a rule rounded to rows that TMA copies."""
    width = ALIGNED // BYTES[dtype] if g.rng.random() < 0.85 else 1
    return max(1, (size - int(g.rng.integers(0, most))) // width) * width


def _finish(g, acc: str, carried: str, c: str, place, tile, matrix) -> None:
    """What becomes of a tile's sum."""
    (i, j), (m, n), (rows, columns) = place, tile, matrix
    if carried:
        g.emit(f"{carried} = {carried} - {acc}")
        acc = carried
    value = g.pick((acc, acc, f"{acc} * 2 + 1", f"{acc} + tl.sum({acc}, 0)[None, :]"))
    p, q = g.fresh("p"), g.fresh("q")
    g.emit(f"{p} = ({i} + tl.arange(0, {m}))[:, None]")
    g.emit(f"{q} = ({j} + tl.arange(0, {n}))[None, :]")
    mask = f"({p} < {rows}) & ({q} < {columns})"
    g.emit(f"tl.store({c} + {p} * {columns} + {q}, {value}, mask={mask})")
