"""Random functions of scalars with loops in loops, branches and early exits give what Python gives: called
with scalars, and with blocks whose elements each go their own way (``map_elementwise``). ``PTXFORGE_FUZZ``
multiplies the number of functions."""

from __future__ import annotations

import importlib.util
import os
import random

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl

TIMES = int(os.environ.get("PTXFORGE_FUZZ", "1"))
SHARD, ELEMENTS = 6, 32
MODULI = (17, 31, 101)


class Drawn:
    """The text of a function ``f(a, b)``. All variables are natural numbers below 101, so that nothing
    overflows, and quotients are as in Python. A loop's variable is read after the loop, too."""

    def __init__(self, seed: int):
        self.random, self.names = random.Random(seed), 0
        body = "\n".join(self.block(1, ["a", "b", "c"], 0, False))
        self.text = (
            "import ptxforge\n\n\n@ptxforge.jit\ndef f(a, b):\n    c = 1\n"
            f"{body}\n    return a + 3 * b + 7 * c\n"
        )

    def number(self, names: list[str], depth: int = 0) -> str:
        if depth > 1 or self.random.random() < 0.35:
            return self.random.choice([*names, *names, str(self.random.randint(0, 9))])
        left, right = self.number(names, depth + 1), self.number(names, depth + 1)
        form = self.random.choice(["({} + {})", "({} * {})", "({} + 50 - {} % 50)"])
        return form.format(left, right)

    def test(self, names: list[str]) -> str:
        order = self.random.choice(["<", "==", "!=", ">="])
        return f"{self.number(names)} % {self.random.randint(2, 7)} {order} {self.random.randint(0, 4)}"

    def name(self) -> str:
        self.names += 1
        return f"v{self.names}"

    def block(self, level: int, names: list[str], depth: int, in_loop: bool) -> list[str]:
        """One to three statements."""
        lines = []
        for _ in range(self.random.randint(1, 3)):
            kinds = ["assign"] * 3 + (["branch", "for", "while"] if depth < 3 else []) + ["leave"]
            made = getattr(self, self.random.choice(kinds) + "_")(names, depth, in_loop)
            lines += ["    " * level + line for line in made]
        return lines

    def inner(self, names: list[str], depth: int, in_loop: bool) -> list[str]:
        return self.block(1, names, depth + 1, in_loop)

    def assign_(self, names: list[str], depth: int, in_loop: bool) -> list[str]:
        return [f"{self.random.choice('abc')} = {self.number(names)} % {self.random.choice(MODULI)}"]

    def branch_(self, names: list[str], depth: int, in_loop: bool) -> list[str]:
        lines = [f"if {self.test(names)}:", *self.inner(names, depth, in_loop)]
        return lines if self.random.random() < 0.5 else [*lines, "else:", *self.inner(names, depth, in_loop)]

    def for_(self, names: list[str], depth: int, in_loop: bool) -> list[str]:
        name, first, last = self.name(), self.number(names), self.number(names)
        bounds = self.random.choice([
            f"{last} % 5", f"{self.random.randint(1, 4)}", f"{last} % 6, -1, -2",
            f"{first} % 3, {last} % 9, {self.random.randint(1, 3)}",
        ])  # fmt: skip
        body = self.inner([*names, f"({name} + 2)"], depth, True)
        return [f"{name} = 4", f"for {name} in range({bounds}):", *body, f"a = (a * 5 + {name} + 2) % 31"]

    def while_(self, names: list[str], depth: int, in_loop: bool) -> list[str]:
        name = self.name()
        times = self.random.choice([f"{self.number(names)} % 6", str(self.random.randint(1, 3))])
        body = self.inner([*names, name], depth, True)
        return [f"{name} = {times}", f"while {name} > 0:", f"    {name} -= 1", *body]

    def leave_(self, names: list[str], depth: int, in_loop: bool) -> list[str]:
        ways = ["break", "continue"] if in_loop else []
        way = self.random.choice([*ways, f"return {self.number(names)} % 1000"])
        return [f"if {self.test(names)}:", f"    {way}"]


@ptxforge.jit
def by_elements(x, y, out, F: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.map_elementwise(F, tl.load(x + i), tl.load(y + i)))


@ptxforge.jit
def by_programs(x, y, out, F: tl.constexpr, N: tl.constexpr):
    i = tl.program_id(0)
    tl.store(out + i, F(tl.load(x + i), tl.load(y + i)))


@pytest.mark.parametrize("shard", range(4 * TIMES))
def test_elements_go_their_own_way(shard, tmp_path, devices):
    for seed in range(shard * SHARD, (shard + 1) * SHARD):
        text = Drawn(seed).text
        path = tmp_path / f"drawn_{seed}.py"
        path.write_text(text)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        drawn = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(drawn)
        rng = np.random.default_rng(seed)
        x, y = rng.integers(0, 20, (2, ELEMENTS)).astype(np.int32)
        expected = [drawn.f.fn(int(a), int(b)) for a, b in zip(x, y, strict=True)]
        for device in devices:
            for kernel, grid in ((by_elements, (1,)), (by_programs, (ELEMENTS,))):
                out = ptxforge.to_device(np.zeros(ELEMENTS, np.int32), device)
                placed = [ptxforge.to_device(array, device) for array in (x, y)]
                kernel[grid](*placed, out, drawn.f, ELEMENTS, num_warps=1)
                assert out.numpy().tolist() == expected, f"seed {seed}, {kernel.__name__}\n{text}"
