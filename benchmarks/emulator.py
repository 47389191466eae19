"""How fast the emulator runs on one core: ``python -m benchmarks.emulator [--repeat N]``.

The kernels are Triton's PTX of the emulator's test fixtures, so that the numbers do not depend on this
project's own compiler. Results are compared with numpy before a time is believed. Targets are for one core of
a 2-core machine, checks off; loading is per PTX instruction (parsing and translating; compilation of blocks
to byte code happens in the first run).
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy is imported: one core

import argparse
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ptxforge.emulator import EmulatorDevice, launch

FIXTURES = Path(__file__).parent.parent / "tests" / "emulator" / "fixtures"


@dataclass
class Case:
    """One kernel at one size. ``arguments`` end up in the parameter buffer; ``check`` raises when the result
    is wrong.
    """

    name: str
    file: str
    entry: str
    grid: tuple[int, int, int]
    arguments: list
    check: Callable[[], None]
    target_ms: float | None


def softmax_case(capability: int) -> Case:
    x = np.random.default_rng(0).standard_normal((1024, 1024)).astype(np.float32)
    y = np.zeros_like(x)

    def check() -> None:
        e = np.exp(x - x.max(axis=1, keepdims=True))
        np.testing.assert_allclose(y, e / e.sum(axis=1, keepdims=True), rtol=1e-4)

    return Case(
        f"softmax 1024x1024 sm_{capability}",
        f"triton_softmax_sm{capability}",
        "softmax",
        (1024, 1, 1),
        [x, y, np.int32(1024), np.int32(1024)],
        check,
        100,
    )


def layer_norm_case(capability: int) -> Case:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((1024, 1024)).astype(np.float16)
    w, b = (rng.standard_normal(1024).astype(np.float32) for _ in range(2))
    y = np.zeros_like(x)

    def check() -> None:
        v = x.astype(np.float32)
        v = (v - v.mean(axis=1, keepdims=True)) / np.sqrt(v.var(axis=1, keepdims=True) + 1e-5)
        np.testing.assert_allclose(y, v * w + b, rtol=1e-2, atol=1e-2)

    return Case(
        f"layer norm 1024x1024 sm_{capability}",
        f"triton_layer_norm_sm{capability}",
        "layer_norm",
        (1024, 1, 1),
        [x, w, b, y, np.int32(1024), np.int32(1024), np.float32(1e-5)],
        check,
        100,
    )


def matmul_case(capability: int, size: int, target_ms: float) -> Case:
    rng = np.random.default_rng(2)
    a, b = (rng.standard_normal((size, size)).astype(np.float16) for _ in range(2))
    c = np.zeros((size, size), np.float16)

    def check() -> None:
        np.testing.assert_allclose(c, a.astype(np.float32) @ b.astype(np.float32), rtol=1e-2, atol=0.1)

    return Case(
        f"matmul f16 {size}^3 sm_{capability}",
        f"triton_matmul_sm{capability}",
        "matmul",
        (size // 128, size // 128, 1),
        [a, b, c] + [np.int32(size)] * 6,
        check,
        target_ms,
    )


def attention_case(capability: int) -> Case:
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal((4, 512, 64)).astype(np.float16) for _ in range(3))
    o = np.zeros_like(q)

    def check() -> None:
        s = q.astype(np.float32) @ k.astype(np.float32).transpose(0, 2, 1) * 0.125
        p = np.exp(s - s.max(axis=2, keepdims=True))
        np.testing.assert_allclose(
            o, p / p.sum(axis=2, keepdims=True) @ v.astype(np.float32), rtol=1e-2, atol=1e-2
        )

    return Case(
        f"attention 4x512x64 sm_{capability}",
        f"triton_attention_sm{capability}",
        "attention",
        (4, 4, 1),
        [q, k, v, o, np.float32(0.125 * 1.44269504), np.int32(512)],
        check,
        200,
    )


def cases() -> list[Case]:
    """All benchmarks, with the target in milliseconds."""
    found = []
    for capability in (80, 90):
        found += [
            softmax_case(capability),
            layer_norm_case(capability),
            matmul_case(capability, 512, 150),
            matmul_case(capability, 1024, 600),
            attention_case(capability),
        ]
    return found


def prepare(case: Case, device: EmulatorDevice) -> Callable[[], None]:
    """Load the kernel; returns a function that launches it."""
    ptx = (FIXTURES / f"{case.file}.ptx").read_text()
    function = device.load_module(ptx).function(case.entry)
    params = bytearray()
    for value in case.arguments:
        data = (
            np.uint64(device.register_host_array(value)).tobytes()
            if isinstance(value, np.ndarray)
            else value.tobytes()
        )
        params += bytes(-len(params) % len(data)) + data
    program = function.translation.program
    params += bytes(max(0, program.param_bytes - len(params)))
    block = program.entry.directives.get("reqntid", (128,))[0]
    shared = int(re.match(r"// shared bytes: (\d+)", ptx)[1])
    return lambda: function.launch(case.grid, (block, 1, 1), shared, 0, bytes(params))


def milliseconds(run: Callable[[], object], repeat: int) -> float:
    """The best of ``repeat`` runs."""
    best = float("inf")
    for _ in range(repeat):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return 1e3 * best


def load_microseconds(case: Case) -> float:
    """Parsing and translating, per PTX instruction."""
    ptx = (FIXTURES / f"{case.file}.ptx").read_text()

    def load() -> None:
        launch._TEXTS.clear()
        launch.load_text(ptx)

    spent = milliseconds(load, 3)
    return 1e3 * spent / launch.load_text(ptx).translations[case.entry].program.instruction_count


def measure(case: Case, repeat: int) -> str:
    """One line of the table."""
    load = load_microseconds(case)
    times = {}
    for check in ("off", "one", "all"):
        run = prepare(case, EmulatorDevice(check=check))
        times[check] = milliseconds(run, repeat + 1)
        case.check()
    verdict = (
        ""
        if case.target_ms is None
        else f"{case.target_ms:7.0f}{' ' if times['off'] <= case.target_ms else '!'}"
    )
    return (
        f"{case.name:30}{load:9.0f}{times['off']:9.1f}{verdict}{times['one']:9.1f}{times['all']:9.1f}"
        f"{times['all'] / times['off']:7.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    print(f"{'':30}{'load':>9}{'run':>9}{'target':>7} {'check':>9}{'check':>9}{'all /':>7}")
    print(f"{'':30}{'us/instr':>9}{'ms':>9}{'ms':>7} {'one':>9}{'all':>9}{'off':>7}")
    for case in cases():
        print(measure(case, options.repeat), flush=True)


if __name__ == "__main__":
    main()
