"""Compile a vector sum, a softmax and a matrix product, run them on the GPU (or, without one, on the
emulator), and compare the results with numpy."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from ptxforge.cli import demo_kernels
from ptxforge.driver.cuda import CudaDevice
from ptxforge.driver.protocol import Device
from ptxforge.runtime.arithmetic import cdiv, next_power_of_2
from ptxforge.runtime.devices import default_device, empty, to_device, use_device
from ptxforge.runtime.jit import JITFunction
from ptxforge.runtime.timing import do_bench


@attrs.frozen(eq=False)
class Case:
    """A kernel on its data. ``arrays`` are numpy's; the last one is the output, which is compared with
    ``expected``. ``work`` is the number of bytes or operations of one launch, ``unit`` what it is per second
    in billions."""

    kernel: JITFunction
    size: str
    grid: tuple[int, ...]
    arrays: tuple[np.ndarray, ...]
    scalars: tuple[int, ...]
    constants: dict[str, int]
    expected: np.ndarray
    tolerance: float
    work: float
    unit: str


@attrs.frozen(eq=False)
class Result:
    """What became of a case: seconds to compile and milliseconds to run, the largest relative error."""

    case: Case
    compile_seconds: float
    milliseconds: float
    error: float

    @property
    def right(self) -> bool:
        return self.error <= self.case.tolerance


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", help="'emulator', 'cuda' or 'cuda:N' (default: the best there is)")


def run(options: argparse.Namespace) -> int:
    console = Console()
    with use_device(options.device or default_device()) as device:
        results = [_execute(case, device) for case in _cases(on_gpu=isinstance(device, CudaDevice))]
    console.print(_table(results, device))
    console.print(_next_steps(), highlight=False, soft_wrap=True)
    return 0 if all(result.right for result in results) else 1


def _cases(on_gpu: bool) -> list[Case]:
    random = np.random.default_rng(0)
    return [
        _add(random, 1 << 24 if on_gpu else 1 << 16),
        _softmax(random, *((8192, 1000) if on_gpu else (64, 1000))),
        _matmul(random, 2048 if on_gpu else 128),
    ]


def _add(random: np.random.Generator, n: int) -> Case:
    x, y = (random.standard_normal(n, np.float32) for _ in range(2))
    return Case(
        demo_kernels.add, f"{n} f32", (cdiv(n, 1024),), (x, y, np.empty_like(x)), (n,), {"BLOCK": 1024},
        expected=x.astype(np.float64) + y, tolerance=1e-6, work=3.0 * x.nbytes, unit="GB/s",
    )  # fmt: skip


def _softmax(random: np.random.Generator, rows: int, columns: int) -> Case:
    x = random.standard_normal((rows, columns), np.float32)
    wide = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    return Case(
        demo_kernels.softmax, f"{rows}x{columns} f32", (rows,), (x, np.empty_like(x)), (columns,),
        {"BLOCK": next_power_of_2(columns)},
        expected=wide / wide.sum(1, keepdims=True), tolerance=1e-5, work=2.0 * x.nbytes, unit="GB/s",
    )  # fmt: skip


def _matmul(random: np.random.Generator, n: int) -> Case:
    a, b = (random.standard_normal((n, n), np.float32).astype(np.float16) for _ in range(2))
    tiles = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}
    return Case(
        demo_kernels.matmul, f"{n}x{n}x{n} f16", (cdiv(n, 64), cdiv(n, 64)),
        (a, b, np.empty((n, n), np.float32)), (n, n, n), tiles,
        expected=a.astype(np.float32) @ b.astype(np.float32), tolerance=1e-3, work=2.0 * n**3, unit="GFLOP/s",
    )  # fmt: skip


def _execute(case: Case, device: Device) -> Result:
    placed = [to_device(array, device) for array in case.arrays[:-1]]
    placed.append(empty(case.arrays[-1].shape, case.arrays[-1].dtype, device))
    start = time.perf_counter()
    _launch(case, placed)()
    device.synchronize()
    compile_seconds = time.perf_counter() - start
    milliseconds = do_bench(_launch(case, placed), warmup=1, rep=20, return_mode="median")
    actual = placed[-1].numpy().astype(np.float64)
    error = float(np.max(np.abs(actual - case.expected) / (1 + np.abs(case.expected))))
    return Result(case, compile_seconds, milliseconds, error)


def _launch(case: Case, placed: list[Any]) -> Callable[[], Any]:
    return lambda: case.kernel[case.grid](*placed, *case.scalars, **case.constants)


def _table(results: list[Result], device: Device) -> Table:
    product = f" ({device.product})" if isinstance(device, CudaDevice) else ""
    title = f"ptxforge on {device.name}{product}, PTX for {device.target}"
    table = Table(
        "kernel", "size", "result", "error", "first launch", "then", "rate", title=title, box=box.SIMPLE
    )
    for result in results:
        case = result.case
        verdict = "right" if result.right else "WRONG"
        rate = case.work / (result.milliseconds * 1e6)
        table.add_row(
            case.kernel.__name__, case.size, verdict, f"{result.error:.0e}",
            f"{result.compile_seconds * 1e3:.0f} ms", f"{result.milliseconds:.3g} ms",
            f"{rate:.3g} {case.unit}",
        )  # fmt: skip
    return table


def _next_steps() -> str:
    path = demo_kernels.__file__
    return (
        f"The kernels are in {path}.\n"
        "Their PTX:      python -m ptxforge compile " + path + ":add "
        "--signature '*fp32:16,*fp32:16,*fp32:16,i32' --constants BLOCK=1024\n"
        "Every stage:    the same with --emit all\n"
        "A layout drawn: python -m ptxforge layout "
        "'#blocked<{sizePerThread = [1, 2], threadsPerWarp = [4, 8], warpsPerCTA = [1, 1], "
        "order = [1, 0]}>' 4x16xf16\n"
        "Why each pass:  python -m ptxforge passes"
    )
