"""Random chains of signed minima and maxima, of what an assembler may know as a negation, give what numpy
gives: an assembler drops signs there (``spell_out_negations``), which only a GPU shows. ``PTXFORGE_FUZZ``
multiplies the number of programs."""

from __future__ import annotations

import importlib.util
import os
import random
from types import SimpleNamespace

import numpy as np
import pytest

import ptxforge

SEEDS = 24 * int(os.environ.get("PTXFORGE_FUZZ", "1"))
SIZE, RESULTS = 64, 6
NUMPY = SimpleNamespace(
    maximum=np.maximum, minimum=np.minimum, range=lambda *bounds, num_stages: range(*bounds)
)


class Drawn:
    """The text of a function ``values(x, y, z, n)`` with ``RESULTS`` results."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.chosen = self.random.choice(["tl.maximum", "tl.minimum"])
        lines = [line for number in range(RESULTS) for line in self.result(f"v{number}")]
        results = ", ".join(f"v{number}" for number in range(RESULTS))
        self.body = "\n".join(f"    {line}" for line in [*lines, f"return {results}"])

    def result(self, name: str) -> list[str]:
        lines = [f"{name} = {self.chain('xyz', self.random.randint(1, 4))}"]
        if self.random.random() < 0.5:
            return lines
        first, step = self.random.randint(-2, 1), self.random.choice([1, 1, 2, 3])
        bounds = f"{first}, {first + step * self.random.randint(1, 6)}, {step}"
        lines.append(f"for k in tl.range({bounds}, num_stages=2):")
        for _ in range(self.random.randint(1, 2)):
            lines.append(f"    {name} = {self.chosen}({name}, {self.number('xyzk')})")
        sign, operand = self.random.choice("+-^*"), self.random.choice("kkz")
        return [*lines, f"    {name} = {name} {sign} {operand}"]

    def chain(self, names: str, length: int) -> str:
        text = self.number(names)
        for _ in range(length):
            operands = [text, self.number(names)]
            self.random.shuffle(operands)
            text = f"{self.chosen}({', '.join(operands)})"
        return text

    def number(self, names: str, depth: int = 0) -> str:
        draw = self.random.random()
        if depth == 2 or draw < 0.2:
            return self.random.choice(names)
        if draw < 0.4:
            return f"({self.random.choice(['0', '4', 'n'])} - {self.number(names, depth + 1)})"
        if draw < 0.5:
            return f"({self.number(names, depth + 1)} * {self.random.choice([-1, -1, 2, -3])})"
        left, right = (self.number(names, depth + 1) for _ in range(2))
        return f"({left} {self.random.choice('+-*-')} {right})"

    @property
    def text(self) -> str:
        lines = [f"    tl.store(out + {SIZE * number} + at, v{number})\n" for number in range(RESULTS)]
        results = ", ".join(f"v{number}" for number in range(RESULTS))
        return (
            "import ptxforge\nimport ptxforge.language as tl\n\n\n"
            f"@ptxforge.jit\ndef values(x, y, z, n):\n{self.body}\n\n\n"
            f"@ptxforge.jit\ndef kernel(x, y, z, out, n):\n    at = tl.arange(0, {SIZE})\n"
            f"    {results} = values(tl.load(x + at), tl.load(y + at), tl.load(z + at), n)\n"
        ) + "".join(lines)

    def expected(self, x, y, z, n) -> np.ndarray:
        names = {"tl": NUMPY}
        exec(f"def values(x, y, z, n):\n{self.body}", names)
        return np.concatenate(names["values"](x, y, z, n))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_signs_are_kept(seed, tmp_path, devices):
    drawn = Drawn(seed)
    path = tmp_path / f"extrema_{seed}.py"
    path.write_text(drawn.text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    inputs = np.random.default_rng(seed).integers(-50, 50, (3, SIZE)).astype(np.int32)
    expected = drawn.expected(*inputs, 7)
    for device in devices:
        arrays = [ptxforge.to_device(array, device) for array in (*inputs, np.zeros_like(expected))]
        module.kernel[(1,)](*arrays, 7)
        np.testing.assert_array_equal(arrays[-1].numpy(), expected, err_msg=f"{device}\n{drawn.text}")
