"""``python -m benchmarks.cold``: from the call of a kernel that nobody compiled before to its end on the GPU.

Each figure is a process of its own with empty caches of ptxforge, Triton and the driver: the median of a few.
Counted is the first launch of a process, with all that either compiler imports then; importing the compiler,
the data and the first use of the GPU come before. The row ``imported`` has ptxforge with all its modules
imported beforehand; Triton imports its own with its package. Python files are compiled, as in an installed
package.

    python -m benchmarks.cold [--runs 5] [--json FILE] [--commit ID]
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.dialects import load
from benchmarks.processes import in_new_process, report
from benchmarks.starts import ATTENTION, STARTS, TILES

CONTENDERS = ("ptxforge", "imported", "triton")
CONFIGURATIONS = {"gemm": TILES, "attention": ATTENTION}
LIMITS = {"add": 0.07, "softmax": 0.09, "gemm": 0.33, "attention": 0.22}
"""Of Triton's time, imports excluded."""
_COMPILER = ("support", "ir", "frontend", "passes", "layouts", "codegen_ptx", "language", "runtime", "driver")


def _import_all() -> None:
    import ptxforge

    for package in _COMPILER:
        found = importlib.import_module(f"ptxforge.{package}")
        for module in pkgutil.walk_packages(found.__path__, f"{found.__name__}."):
            importlib.import_module(module.name)
    importlib.import_module("ptxforge.compiler")
    assert ptxforge.__version__


def _once(name: str, contender: str) -> float:
    """Milliseconds of the first launch, in this process."""
    is_ours = contender != "triton"
    kernels, start = load("ptxforge" if is_ours else contender), STARTS[name]()
    if contender == "imported":
        _import_all()
    if is_ours:
        from ptxforge.runtime.devices import default_device

        default_device()
    data = start.make()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    start.launch(kernels, data)
    torch.cuda.synchronize()
    milliseconds = (time.perf_counter() - begin) * 1e3
    actual, expected = start.check(data)
    torch.testing.assert_close(actual, expected, rtol=start.tolerance, atol=start.tolerance)
    return round(milliseconds, 1)


def _cold(name: str, contender: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        return in_new_process(_once, name, contender, caches=folder)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cold")
    parser.add_argument("--runs", type=int, default=5, help="processes for each figure")
    parser.add_argument("--json", type=Path, help="write the results here")
    parser.add_argument("--commit", default="", help="the commit to note")
    options = parser.parse_args()
    for contender in CONTENDERS:
        _cold("add", contender)  # compiles Python files
    rows: list[dict[str, Any]] = []
    for name in STARTS:
        runs: dict[str, list[float]] = {c: [] for c in CONTENDERS}
        for _ in range(options.runs):
            for contender in CONTENDERS:
                runs[contender].append(_cold(name, contender))
        middle = {contender: median(found) for contender, found in runs.items()}
        ratios = {c: round(middle[c] / middle["triton"], 3) for c in ("ptxforge", "imported")}
        facts = {"config": CONFIGURATIONS.get(name, {}), "limit": LIMITS[name], "ratio": ratios}
        rows.append({"case": name, "unit": "ms"} | facts | runs)
        figures = "  ".join(f"{contender} {ms} ms" for contender, ms in middle.items())
        print(f"{name:12} {figures}  {ratios} (≤ {LIMITS[name]})", flush=True)
    report(rows, options.json, options.commit)
    return 0


if __name__ == "__main__":
    sys.exit(main())
