"""``python -m tests.fuzz.beside_triton KIND FIRST LAST``: random programs as Triton compiles them.

Each is compiled by Triton itself (which must be installed; no GPU is needed), its PTX is run in the emulator,
and what it leaves in memory is compared with what the interpreter gives for the same source. KIND is
``programs`` or one of :data:`~tests.fuzz.kinds.KINDS`; FIRST to LAST - 1 are the seeds. Triton refuses many:
early exits, some types. A program that differs is printed. To be looked at by hand: out-of-range casts, NaN
and quotients by zero are nobody's promise.
"""

from __future__ import annotations

import importlib.util
import struct
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import ptxforge
from ptxforge import frontend, interpreter
from ptxforge.emulator import EmulatorDevice
from tests.fuzz import generate
from tests.fuzz.kinds import HEADER, KINDS, load, load_programs, options_of

GLOBAL_SCRATCH = 1 << 16
"""Bytes; Triton's kernels have two more parameters: this memory, and that of its profiler."""


class Case:
    """A program of either form, for a GPU that Triton knows."""

    def __init__(self, kind: str, seed: int, folder: Path):
        self.is_plain = kind == "programs"
        self.program = generate.generate(seed) if self.is_plain else KINDS[kind][0](seed)
        self.folder = folder
        options = options_of(self.program)[1] if self.is_plain else dict(self.program.options)
        self.options = {name: options[name] for name in ("num_warps", "num_stages") if name in options}
        self.target = "sm_80" if self.is_plain or self.program.target == "sm_80" else "sm_90a"

    def expected(self) -> dict[str, np.ndarray]:
        program = self.program
        kernel = self._ours()
        function = frontend.build(kernel, program.signature, {}, target=self.target, **self.options)
        arrays = {name: array.copy() for name, array in program.arrays.items()}
        interpreter.run(function, program.grid, arrays | program.scalars)
        return arrays

    def _ours(self):
        if self.is_plain:
            return load_programs([self.program], self.folder)[self.program.name]
        return load(self.program, self.folder)

    def by_triton(self) -> Any:
        """What Triton compiles. Raises what it raises."""
        program = self.program
        header = generate.HEADER if self.is_plain else HEADER
        text = f"{header}\n\n{program.source}\n".replace("ptxforge", "triton")
        if f"@triton.jit\ndef {program.name}" not in text:
            text = text.replace(f"def {program.name}", f"@triton.jit\ndef {program.name}")
        path = self.folder / f"triton_{program.name}.py"
        path.write_text(text)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        types = program.signature.values()
        facts = {(i,): [["tt.divisibility", 16]] for i, type in enumerate(types) if type.endswith(":16")}
        signature = {name: type.split(":")[0] for name, type in program.signature.items()}
        source = ASTSource(getattr(module, program.name), signature, constexprs={}, attrs=facts)
        return triton.compile(
            source, target=GPUTarget("cuda", int(self.target[3:5]), 32), options=self.options
        )

    def emulated(self, made: Any) -> dict[str, np.ndarray]:
        program, device = self.program, EmulatorDevice(target=self.target)
        placed = {name: ptxforge.to_device(array, device) for name, array in program.arrays.items()}
        scratch = ptxforge.to_device(np.zeros(GLOBAL_SCRATCH, np.uint8), device)
        packed = b""
        values = {name: array.data_ptr() for name, array in placed.items()} | program.scalars
        for name, type in program.signature.items():
            code = "Q" if name in placed else "q" if type.startswith("i64") else "i"
            packed += b"\0" * (-len(packed) % struct.calcsize(code)) + struct.pack(f"<{code}", values[name])
        packed += b"\0" * (-len(packed) % 8) + struct.pack("<QQ", scratch.data_ptr(), 0)
        kernel = device.load_module(made.asm["ptx"]).function(made.metadata.name)
        threads = 32 * made.metadata.num_warps
        kernel.launch((program.grid, 1, 1), (threads, 1, 1), made.metadata.shared, 0, packed)
        return {name: array.numpy() for name, array in placed.items()}

    def difference(self, expected: dict[str, np.ndarray], found: dict[str, np.ndarray]) -> str:
        for name, array in expected.items():
            if self.is_plain:
                tolerance = 2e-3 if name in self.program.inexact else 0.0
            else:
                tolerance = self.program.tolerance
            one, other = array.astype(np.float64), found[name].astype(np.float64)
            differs = ~np.isclose(other, one, rtol=tolerance, atol=tolerance, equal_nan=True)
            if differs.any():
                first = np.flatnonzero(differs)[0]
                return f"{name}[{first}]: {one.flat[first]} here, {other.flat[first]} there"
        return ""


def main(kind: str, first: int, last: int) -> None:
    """Print the programs that differ, and how many there were of each outcome."""
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, last):
            case = Case(kind, seed, Path(folder))
            expected = case.expected()
            try:
                made = case.by_triton()
            except Exception:
                outcomes["refused by Triton"] += 1
                continue
            difference = case.difference(expected, case.emulated(made))
            outcomes["differ" if difference else "the same"] += 1
            if difference:
                print(f"{kind} {seed}: {difference}\n{case.program.source}")
    print(dict(outcomes))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:4]))
