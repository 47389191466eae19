"""``python -m benchmarks.launch``: what the host needs to queue a kernel, on a GPU.

Kernels that do nothing, or copy or multiply one tile by tensor maps; torch tensors as arguments: the mean of
3000 launches, five times; medians. The contenders take turns after each 300 launches, which are queued
without waiting: the clocks of the machine, and what else it does, are then the same for all, and the GPU's
queue never fills. Beside ptxforge's and Triton's launches stand torch's ``x.add_(1)``, cuda.bindings with its
arguments packed beforehand, and a loop in C.

    python -m benchmarks.launch [--json FILE] [--commit ID]
"""

from __future__ import annotations

import argparse
import ctypes
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.dialects import load
from benchmarks.processes import in_new_process, report

ROUNDS, LAUNCHES, TURN = 5, 3000, 300
LIMITS = {
    "no arguments": ("ptxforge", "triton", 0.42),
    "5 arguments + 1 constexpr": ("ptxforge", "triton", 0.40),
    "19 arguments": ("ptxforge", "triton", 0.45),
    "5 arguments + 1 constexpr, bound": ("ptxforge", "triton", 0.35),
    "no arguments, bound": ("ptxforge", "cuda.bindings", 1.15),
}
"""Of each row: whose time must be at most this part of whose."""
LOOP = """
#include <time.h>
typedef unsigned u;
typedef int launcher(void *, u, u, u, u, u, u, u, void *, void **, void **);
double loop(launcher *launch, void *kernel, void *stream, int count) {
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    for (int i = 0; i < count; i++)
        if (launch(kernel, 1, 1, 1, 128, 1, 1, 0, stream, 0, 0)) return -1;
    clock_gettime(CLOCK_MONOTONIC, &b);
    return (b.tv_sec - a.tv_sec) + 1e-9 * (b.tv_nsec - a.tv_nsec);
}
"""

Run = Callable[[], Any]
Timing = Callable[[int], float]
"""Seconds of so many launches."""


def of(run: Run) -> Timing:
    """The timing of a Python function that launches."""

    def timing(count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            run()
        return time.perf_counter() - start

    return timing


def microseconds(contenders: dict[str, Timing]) -> dict[str, list[float]]:
    """Every contender's time a launch in each round."""
    found: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(ROUNDS + 1):
        spent = dict.fromkeys(contenders, 0.0)
        for _ in range(LAUNCHES // TURN):
            for name, timing in contenders.items():
                torch.cuda.synchronize()
                spent[name] += timing(TURN)
        if number:  # the first round warms up
            for name, seconds in spent.items():
                found[name].append(round(seconds / LAUNCHES * 1e6, 3))
    return found


def _prepacked(handle: int) -> Run:
    from cuda.bindings import driver

    function, stream = driver.CUfunction(handle), driver.CUstream(0)
    arguments = (ctypes.c_void_p * 1)()
    address = ctypes.addressof(arguments)
    return lambda: driver.cuLaunchKernel(function, 1, 1, 1, 128, 1, 1, 0, stream, address, 0)


def _in_c(handle: int) -> Timing | None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder, "loop.c"), Path(folder, "loop.so")
        source.write_text(LOOP)
        subprocess.run([compiler, "-O2", "-shared", "-fPIC", source, "-o", made], check=True)
        library = ctypes.CDLL(str(made))
    library.loop.restype = ctypes.c_double
    launch = ctypes.cast(ctypes.CDLL("libcuda.so.1").cuLaunchKernel, ctypes.c_void_p)
    return lambda count: library.loop(launch, ctypes.c_void_p(handle), None, count)


def _plain(dialects: dict[str, Any], name: str, launch: Callable[[Any], Run]) -> dict[str, Timing]:
    """The ordinary launch in each dialect. ``launch`` has it written out as a program does: arguments that
    come out of a tuple and a dictionary take Python longer to hand over than many a launch."""
    return {dialect: of(launch(getattr(kernels, name))) for dialect, kernels in dialects.items()}


def _rows() -> list[dict[str, Any]]:
    dialects = {name: load(name, "host_kernels.py") for name in ("ptxforge", "triton")}
    x, y, out = (torch.zeros(1024, device="cuda") for _ in range(3))
    _check_results(x)
    ours = dialects["ptxforge"]
    ours.nothing[(1,)]()
    handle = int(ours.nothing.newest.function)
    nothing = {"cuda.bindings": of(_prepacked(handle)), "torch x.add_(1)": of(lambda: x.add_(1))}
    loop = _in_c(handle)
    if loop is not None:
        nothing["C loop"] = loop
    bound = ours.five.bind((1,), x, y, out, 1000, 64, BLOCK=128)
    plain_five = _plain(dialects, "five", lambda k: lambda: k[(1,)](x, y, out, 1000, 64, BLOCK=128))

    def nineteen(k: Any) -> Run:
        return lambda: k[(1,)](
            x, y, out, x, y, 2, 3, 4, 5, 6, 7, 8, 9, 10, c1=1, c2=2, c3=3, c4=4, c5=5
        )  # fmt: skip

    cases = {
        "no arguments": _plain(dialects, "nothing", lambda k: lambda: k[(1,)]()) | nothing,
        "5 arguments + 1 constexpr": plain_five,
        "19 arguments": _plain(dialects, "nineteen", nineteen),
        "5 arguments + 1 constexpr, bound": {"ptxforge": of(bound), "triton": plain_five["triton"]},
        "no arguments, bound": {"ptxforge": of(ours.nothing.bind((1,))), **nothing},
        "update of an array and a number, then bound": {"ptxforge": of(lambda: bound.update(x=y, n=1001)())},
        "two tensor descriptors": _described(dialects),
        "tiles by maps that the launcher makes": _mapped(dialects),
    }
    rows = []
    for name, contenders in cases.items():
        row = {"case": name, "unit": "us", **microseconds(contenders)}
        rows.append(row | _ratio(name, row))
    return rows


def _described(dialects: dict[str, Any]) -> dict[str, Timing]:
    """A kernel whose arguments are two descriptors; and ours of two arrays: what is between, they cost."""
    found: dict[str, Timing] = {}
    arrays = [torch.zeros(64, 64, device="cuda", dtype=torch.float16) for _ in range(2)]
    for dialect, kernels in dialects.items():
        x, y = (kernels.TensorDescriptor.from_tensor(array, [64, 64]) for array in arrays)
        found[dialect] = of(lambda k=kernels.copied_tile, x=x, y=y: k[(1,)](x, y))
    x, y = arrays
    return found | {"ptxforge, two arrays": of(lambda k=dialects["ptxforge"].two: k[(1,)](x, y))}


def _mapped(dialects: dict[str, Any]) -> dict[str, Timing]:
    """A product of plain pointers whose tiles come by tensor maps where the launcher can make them, and
    without these: what the difference is, they cost."""
    a, b, c = (torch.zeros(128, 128, device="cuda", dtype=torch.float16) for _ in range(3))

    def run(kernel: Any) -> Run:
        return lambda: kernel[(1,)](a, b, c, 128, 128, 128, BLOCK=64)

    found = _plain(dialects, "tile_product", run)
    ours = dialects["ptxforge"].tile_product
    run(ours)()
    if not ours.newest.artifact.tensor_maps:
        raise RuntimeError("the product has no tensor maps")
    found["ptxforge, no maps"] = of(lambda: ours[(1,)](a, b, c, 128, 128, 128, BLOCK=64, tensor_maps=False))
    return found


def _ratio(name: str, row: dict[str, Any]) -> dict[str, Any]:
    if name not in LIMITS:
        return {}
    ours, theirs, limit = LIMITS[name]
    return {"ratio": round(median(row[ours]) / median(row[theirs]), 3), "to": theirs, "limit": limit}


def _check_results(x: Any) -> None:
    """Each way to launch gives right results."""
    kernels = load("ptxforge")
    a, b = torch.randn_like(x), torch.randn_like(x)
    n, out = x.numel(), torch.zeros_like(x)
    kernels.add[(8,)](a, b, out, n, BLOCK=128)
    torch.testing.assert_close(out, a + b, rtol=0, atol=0)
    bound = kernels.add.bind((8,), a, b, out, n, BLOCK=128)
    bound.update(y=a, n=n - 1)()
    torch.testing.assert_close(out[:-1], (a + a)[:-1], rtol=0, atol=0)
    torch.testing.assert_close(out[-1:], (a + b)[-1:], rtol=0, atol=0)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.launch")
    parser.add_argument("--json", type=Path, help="write the results here")
    parser.add_argument("--commit", default="", help="the commit to note")
    options = parser.parse_args()
    rows = in_new_process(_rows)
    for row in rows:
        figures = [f"{name} {median(row[name]):.2f}" for name in row if isinstance(row[name], list)]
        ratio = f"  = {row['ratio']} of {row['to']}'s (≤ {row['limit']})" if "ratio" in row else ""
        print(f"{row['case']:45} " + "  ".join(figures) + ratio, flush=True)
    report(rows, options.json, options.commit)
    return 0


if __name__ == "__main__":
    sys.exit(main())
