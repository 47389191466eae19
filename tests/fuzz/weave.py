"""Products of matrices under control flow: accumulators that loops carry, branches leave alone, and swaps
exchange, so that values of several layouts meet in every way that a program allows."""

from __future__ import annotations

import numpy as np

TILES = 4
"""Tiles of 16 × 16 in each array."""
LIMIT = 64
"""Accumulators are kept within this, so that all sums are exact."""


def weave(g) -> None:
    """Write such a piece with the generator ``g``; its accumulators join the pool."""
    a, b = (f"x{len(g.arrays) + n}" for n in range(2))
    for name in (a, b):
        g.arrays[name] = g.rng.integers(-1, 2, TILES * 256).astype(np.float16)
    i, along, across = (g.fresh(prefix) for prefix in "iwt")
    g.emit(f"{i} = tl.arange(0, 16)")
    g.emit(f"{along} = {i}[:, None] * 16 + {i}[None, :]")
    g.emit(f"{across} = {i}[None, :] * 16 + {i}[:, None]")
    tiles = [g.assign("tl.zeros((16, 16), tl.float32)", "float32", (16, 16), LIMIT).name for _ in range(2)]
    row = g.assign("tl.zeros((16,), tl.float32)", "float32", (16,), LIMIT).name
    weaver = _Weaver(g, (a, b), i, (along, across), tiles, row)
    for _ in range(int(g.rng.integers(1, 3))):
        weaver.loop(0)


class _Weaver:
    def __init__(self, g, arrays, i: str, offsets, tiles: list[str], row: str):
        self.g, self.arrays, self.i, self.offsets, self.tiles, self.row = g, arrays, i, offsets, tiles, row
        self.numbers = ["s", "pid"]

    # -- control flow ----------------------------------------------------------------------------------

    def loop(self, depth: int) -> None:
        g, k = self.g, self.g.fresh("k")
        end = g.pick(("s", "s", "2", "3", self.number()))
        stages = g.pick((1, 2, 3))
        header = g.pick((
            f"for {k} in range({end}):", f"for {k} in range({end}):", f"for {k} in range(2, -1, -1):",
            f"for {k} in tl.range(0, {end}, num_stages={stages}):", f"while {k} < {end}:",
        ))  # fmt: skip
        if header.startswith("while"):
            g.emit(f"{k} = 0")
        g.emit(header)
        g.indent += 1
        self.numbers.append(k)
        self.body(depth + 1)
        self.numbers.remove(k)
        if header.startswith("while"):
            g.emit(f"{k} += 1")
        g.indent -= 1

    def branch(self, depth: int) -> None:
        g = self.g
        g.emit(f"if ({self.number()}) % {g.pick((2, 3))} == 0:")
        g.indent += 1
        self.body(depth + 1)
        g.indent -= 1
        if g.rng.random() < 0.5:
            g.emit("else:")
            g.indent += 1
            self.body(depth + 1)
            g.indent -= 1

    def body(self, depth: int) -> None:
        for _ in range(int(self.g.rng.integers(1, 4 if depth < 3 else 2))):
            steps = [self.product] * 3 + [self.chain] + [self.plain] * 3
            if depth < 3:
                steps += [self.branch] * 2
            if depth < 2:
                steps += [self.loop]
            step = self.g.pick(steps)
            step(depth)

    # -- statements ------------------------------------------------------------------------------------

    def number(self) -> str:
        one, other = self.g.pick(self.numbers), self.g.pick(self.numbers)
        return self.g.pick((one, one, f"{one} + {self.g.pick((1, 2))}", f"{one} + {other}"))

    def load(self, array: str) -> str:
        """A variable with some tile of ``array``, or its transpose, perhaps not all of it."""
        g, name = self.g, self.g.fresh("l")
        where = f"{array} + ({self.number()}) % {TILES} * 256 + {g.pick((*self.offsets, self.offsets[0]))}"
        row, column = f"{self.i}[:, None]", f"{self.i}[None, :]"
        mask = g.pick((
            "", "", f", mask={column} < ({self.number()}) % 17, other=0.0",
            f", mask=({row} + {g.pick(self.numbers)}) % 3 != 0, other={g.pick((0.0, 1.0))}",
        ))  # fmt: skip
        text = f"tl.load({where}{mask})"
        g.emit(f"{name} = {g.pick((text, text, f'tl.trans({text})'))}")
        return name

    def add(self, target: str, text: str) -> None:
        self.g.emit(f"{target} = tl.minimum(tl.maximum({text}, -{LIMIT}.0), {LIMIT}.0)")

    def product(self, depth: int) -> None:
        c, x, y = self.g.pick(self.tiles), self.load(self.arrays[0]), self.load(self.arrays[1])
        self.add(c, self.g.pick((f"tl.dot({x}, {y}, {c})", f"{c} + tl.dot({x}, {y})", f"tl.dot({x}, {y})")))

    def chain(self, depth: int) -> None:
        c, p = self.g.pick(self.tiles), self.g.fresh("p")
        x, y = self.load(self.arrays[0]), self.load(self.arrays[1])
        self.g.emit(f"{p} = tl.where(tl.dot({x}, tl.trans({y})) > 0, 1.0, -1.0).to(tl.float16)")
        self.add(c, f"{c} + tl.dot({p}, {y})")

    def plain(self, depth: int) -> None:
        g = self.g
        c, d = (self.tiles if g.rng.random() < 0.5 else self.tiles[::-1])
        kind = g.pick(("exchange", "exchange", "mix", "rows", "spread", "load", "store", "clear"))
        if kind == "exchange":
            g.emit(f"{c}, {d} = {d}, {c}")
        elif kind == "mix":
            self.add(c, f"{c} + tl.where({self.i}[:, None] >= {self.i}[None, :], {d}, 1.0)")
        elif kind == "rows":
            self.add(self.row, f"{self.row} + tl.{g.pick(('sum', 'max'))}({c}, {g.pick((0, 1))})")
        elif kind == "spread":
            self.add(c, f"{c} - {self.row}{g.pick(('[:, None]', '[None, :]'))}")
        elif kind == "load":
            self.add(c, f"{c} + {self.load(self.arrays[1])}")
        elif kind == "store":
            out = f"o{len(g.arrays)}"
            g.arrays[out] = np.zeros(g.grid * TILES * 256, np.float32)
            place = f"(pid * {TILES} + ({self.number()}) % {TILES}) * 256"
            g.emit(f"tl.store({out} + {place} + {self.offsets[0]}, {c})")
        else:
            g.emit(f"{c} = {c} * 0.0")
