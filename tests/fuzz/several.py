"""Loops of several products of sizes that ``wgmma`` takes, as attention's gradients have them: tiles that a
loop reads and tiles from in front of it are multiplied with each other, results are rounded and multiplied
again, summed up from iteration to iteration, stored, or added to memory.

Dimensions have letters: ``B``, rows of what is kept, ``S``, rows that an iteration reads, ``D``, columns.
"""

from __future__ import annotations

import numpy as np

STEPS = 3
"""Iterations, at most."""


def several_products(g) -> None:
    """Write such a loop with the generator ``g``."""
    g.num_warps = g.pick((4, 8))
    rows = 16 * g.num_warps
    _Several(g, {"B": rows, "S": g.pick((32, 64)), "D": g.pick((32, 64))}).write()


class _Several:
    def __init__(self, g, sizes: dict[str, int]):
        self.g, self.sizes = g, sizes
        self.tiles: list[tuple[str, str]] = []
        """Operands at hand, of f16: their names and dimensions."""
        self.computed: list[str] = []
        self.ranges = {letter: g.fresh("i") for letter in sizes}
        self.step = g.fresh("k")

    def write(self) -> None:
        g = self.g
        for letter, name in self.ranges.items():
            g.emit(f"{name} = tl.arange(0, {self.sizes[letter]})")
        self.tiles.append((self.read("BD", "pid"), "BD"))
        read = [self.source() for _ in range(g.pick((1, 2)))]
        sums = [(self.zeros(dims), dims) for dims in g.pick((("BD",), ("BD", "BD"), ("DD",), ("BD", "DB")))]
        count = g.pick(("s % 4", "s % 4", str(STEPS), "0"))
        wish = g.pick(("", "", ", warp_specialize=True"))
        g.emit(f"for {self.step} in tl.range(0, {count}{g.stages()}{wish}):")
        g.indent += 1
        for source in read:
            self.tiles.append((self.load(source, "SD", self.step), "SD"))
        steps = [self.compute] * g.pick((1, 2, 3)) + [self.leave] * g.pick((0, 1, 1, 2))
        for step in [self.compute, *(steps[n] for n in g.rng.permutation(len(steps)))]:
            step()
        for total, dims in sums:
            self.add(total, dims)
        g.indent -= 1
        for total, dims in sums:
            self.store(total, dims, "pid")

    # -- memory ----------------------------------------------------------------------------------------

    def place(self, dims: str, part: str) -> str:
        """The offsets of a tile, the ``part``-th one below the other."""
        rows, columns = (self.ranges[letter] for letter in dims)
        height, width = (self.sizes[letter] for letter in dims)
        return f"({part}) * {height * width} + {rows}[:, None] * {width} + {columns}[None, :]"

    def array(self, prefix: str, dims: str, parts: int, values) -> str:
        name = f"{prefix}{len(self.g.arrays)}"
        self.g.arrays[name] = values(parts * self.sizes[dims[0]] * self.sizes[dims[1]])
        return name

    def source(self) -> str:
        draw = self.g.rng.integers
        return self.array("x", "SD", STEPS, lambda count: draw(-1, 2, count).astype(np.float16))

    def load(self, source: str, dims: str, part: str) -> str:
        name = self.g.fresh("l")
        self.g.emit(f"{name} = tl.load({source} + {self.place(dims, part)})")
        return name

    def read(self, dims: str, part: str) -> str:
        draw = self.g.rng.integers
        source = self.array("x", dims, self.g.grid, lambda count: draw(-1, 2, count).astype(np.float16))
        return self.load(source, dims, part)

    def store(self, value: str, dims: str, part: str, parts: int = 0) -> None:
        out = self.array("o", dims, parts or self.g.grid, lambda count: np.zeros(count, np.float32))
        self.g.emit(f"tl.store({out} + {self.place(dims, part)}, {value})")

    # -- products --------------------------------------------------------------------------------------

    def zeros(self, dims: str) -> str:
        name = self.g.fresh("v")
        height, width = (self.sizes[letter] for letter in dims)
        self.g.emit(f"{name} = tl.zeros(({height}, {width}), tl.float32)")
        return name

    def product(self, dims: str = "") -> tuple[str, str] | None:
        """Operands of a product of these dimensions (or any) and which they are; newer tiles preferred."""
        turned = [(f"tl.trans({name})", dims[::-1]) for name, dims in self.tiles]
        sides = [*self.tiles, *turned]
        fitting = [
            (f"{x}, {y}", a[0] + b[1]) for x, a in sides for y, b in sides
            if a[1] == b[0] and x not in y and y not in x and dims in ("", a[0] + b[1])
        ]  # fmt: skip
        new = [one for one in fitting if any(name in one[0] for name in self.computed)]
        return self.g.pick(new or fitting) if fitting else None

    def compute(self) -> None:
        """A product that is rounded, to be multiplied again."""
        found = self.product(self.g.pick(("BS", "BS", "SB", "", "")))
        if found is None:
            return
        g, (operands, dims) = self.g, found
        name = g.fresh("h")
        g.emit(f"{name} = tl.dot({operands})")
        if g.rng.random() < 0.3:
            g.emit(f"{name} -= tl.max({name}, {g.pick((0, 1))}, keep_dims=True)")
        if g.rng.random() < 0.3:
            i, j = (self.ranges[letter] for letter in dims)
            g.emit(f"{name} = tl.where({i}[:, None] >= {j}[None, :], {name}, 0.0)")
        g.emit(f"{name} = tl.minimum(tl.maximum({name}, -2.0), 2.0).to(tl.float16)")
        self.tiles.append((name, dims))
        self.computed.append(name)

    def add(self, total: str, dims: str) -> None:
        found = self.product(dims)
        if found is not None:
            self.g.emit(f"{total} = tl.dot({found[0]}, {total})")

    def leave(self) -> None:
        """A product that is stored, or added by a descriptor."""
        found = self.product("SD")
        if found is None:
            return
        g = self.g
        if g.rng.random() < 0.5:
            return self.store(f"tl.dot({found[0]})", "SD", f"pid * {STEPS} + {self.step}", STEPS * g.grid)
        height, width = self.sizes["S"], self.sizes["D"]
        out = self.array("o", "SD", STEPS, lambda count: np.zeros(count, np.float32))
        shape = f"({STEPS * height}, {width}), ({width}, 1), ({height}, {width})"
        use = f"atomic_add([{self.step} * {height}, 0], tl.dot({found[0]}))"
        g.emit(f"tl.make_tensor_descriptor({out}, {shape}).{use}")
