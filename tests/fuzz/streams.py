"""Random loops without products, nested, with all that may be asked of them: rows are summed up, looked up by
indices that another load gives, stored, counted by atomics, while numbers are carried; bounds may be empty,
steps negative, indices wide."""

from __future__ import annotations

import numpy as np

MOST = 4
"""Steps of a loop."""


def stream_program(g) -> None:
    """Write such a kernel with the generator ``g`` of ``loops``."""
    _Streams(g).write()


class _Streams:
    def __init__(self, g):
        self.g = g
        self.block = g.pick((32, 128, 256, 1024))
        self.parts = MOST**3
        self.depth = 0

    def write(self) -> None:
        g = self.g
        g.warps, g.stages, g.grid = g.pick((1, 2, 4, 8)), g.pick((1, 2, 3, 4)), g.pick((1, 2))
        size = g.grid * self.parts * self.block
        kinds = "float32", "float32", "float16", "int8"
        self.sources = [g.array("x", size, g.pick(kinds), 3) for _ in range(2)]
        self.indices = g.array("x", self.parts, "int32")
        g.arrays[self.indices] = g.rng.integers(0, self.parts, self.parts).astype(np.int32)
        self.out = g.array("o", size, "float32")
        self.counter = g.array("o", self.block, "int32")
        g.emit(f"i = tl.arange(0, {self.block})", "pid = tl.program_id(0)", "c = pid * 0")
        g.emit(f"acc = tl.zeros(({self.block},), tl.float32)")
        self.loop("0")
        last = g.array("o", g.grid * self.block, "float32")
        g.emit(f"tl.store({last} + pid * {self.block} + i, acc + c)")

    def loop(self, place: str) -> None:
        """A loop whose steps are parts of the part ``place``."""
        g, name = self.g, "stu"[self.depth]
        count = g.number("LMN"[self.depth], g.pick((0, 1, 1, 2, 3, 4)))
        bounds = g.pick((f"0, {count}", f"0, {count}", f"{count} - 1, -1, -1", f"0, {count} * 2, 2"))
        g.emit(f"for {name} in tl.range({bounds}{g.advice(self.depth == 0)}):")
        g.indent += 1
        here = f"({place}) * {MOST} + {name}{' // 2' if '* 2' in bounds else ''}"
        self.depth += 1
        for _ in range(g.pick((1, 1, 2, 3))):
            g.pick((self.add, self.add, self.look_up, self.store, self.count, self.carry, self.branch))(here)
        if self.depth < 3 and g.chance(0.5):
            self.loop(here)
            if g.chance(0.5):
                self.add(here)
        self.depth -= 1
        g.indent -= 1

    def load(self, part: str) -> str:
        g = self.g
        wide = g.pick(("", "", ".to(tl.int64)"))
        mask = g.pick(("", "", f", mask=i < {g.number('R', self.block - 3)}, other={g.pick((0, 1))}"))
        place = f"((pid * {self.parts} + {part}) * {self.block} + i){wide}"
        return f"tl.load({g.pick(self.sources)} + {place}{mask})"

    def add(self, here: str) -> None:
        self.g.emit(self.g.pick((f"acc += {self.load(here)}", f"acc = tl.maximum(acc, {self.load(here)})")))

    def look_up(self, here: str) -> None:
        self.g.emit(f"n = tl.load({self.indices} + {here})", f"acc += {self.load('n')}")

    def store(self, here: str) -> None:
        value = self.g.pick(("acc", self.load(here), f"{self.load(here)} + c"))
        self.g.emit(f"tl.store({self.out} + (pid * {self.parts} + {here}) * {self.block} + i, {value})")

    def count(self, here: str) -> None:
        self.g.emit(f"tl.atomic_add({self.counter} + i, {self.g.pick(('1', 'c', f'c + {here}'))})")

    def carry(self, here: str) -> None:
        self.g.emit(f"c = {self.g.pick(('c + 1', f'c * 3 % 7 + {here}', f'tl.maximum(c, {here}) % 5'))}")

    def branch(self, here: str) -> None:
        self.g.emit(f"if {self.g.pick(('c % 2 == 0', here + ' > 2'))}:", f"    acc -= {self.load(here)}")
