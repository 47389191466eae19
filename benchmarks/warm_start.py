"""``python -m benchmarks.warm_start``: the first launch, of a kernel that an earlier process compiled.

The compiler is imported, the GPU's context made and the data there; what is measured is the first launch to
its end on the GPU, with whatever is imported, read and loaded for it: the median of a few processes, each
started anew. Counters show that ptxforge neither compiled nor assembled. (For ptxforge the device is asked
for beforehand, which imports cuda-python.)

    python -m benchmarks.warm_start [--runs 5] [--json FILE] [--commit ID]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.dialects import load
from benchmarks.processes import in_fresh_process, report
from benchmarks.starts import STARTS

CASES = ("add", "gemm", "attention")
LIMITS = {"add": 1.5, "gemm": 3.0, "attention": 3.0}
"""Milliseconds of ptxforge."""
TRITON_RUNS = 2
"""Each process imports for seconds, and Triton's hundreds of milliseconds vary little."""


def _first_launch(name: str, contender: str) -> dict[str, Any]:
    """Milliseconds of the first and the second launch in this process; what ptxforge's counters say."""
    kernels, start = load(contender), STARTS[name]()
    if contender == "ptxforge":
        from ptxforge.runtime.devices import default_device

        default_device()
    data = start.make()
    torch.cuda.synchronize()
    times = []
    for _ in range(2):
        begin = time.perf_counter()
        start.launch(kernels, data)
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) * 1e3)
    actual, expected = start.check(data)
    torch.testing.assert_close(actual, expected, rtol=start.tolerance, atol=start.tolerance)
    return {"ms": [round(ms, 3) for ms in times], "counters": _counters(contender)}


def _counters(contender: str) -> dict[str, int]:
    if contender != "ptxforge":
        return {}
    from ptxforge.runtime.cache import counters

    return {name: getattr(counters, name) for name in ("found", "compiled", "assembled", "loaded")}


def _row(name: str, runs: int) -> dict[str, Any]:
    row: dict[str, Any] = {"case": name, "unit": "ms", "limit": LIMITS[name]}
    for contender in ("ptxforge", "triton"):
        with tempfile.TemporaryDirectory() as folder:
            cold = in_fresh_process(_first_launch, name, contender, caches=folder)
            times = runs if contender == "ptxforge" else min(runs, TRITON_RUNS)
            warm = [in_fresh_process(_first_launch, name, contender, caches=folder) for _ in range(times)]
        row[contender] = [run["ms"][0] for run in warm]
        row[f"{contender} cold"] = cold["ms"][0]
        if contender == "ptxforge":
            row["counters"] = [run["counters"] for run in warm]
            row["again"] = [run["ms"][1] for run in warm]
    return row


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.warm_start")
    parser.add_argument("--runs", type=int, default=5, help="processes for each figure")
    parser.add_argument("--json", type=Path, help="write the results here")
    parser.add_argument("--commit", default="", help="the commit to note")
    options = parser.parse_args()
    rows, idle = [], True
    for name in CASES:
        row = _row(name, options.runs)
        rows.append(row)
        idle &= all(made["compiled"] == made["assembled"] == 0 for made in row["counters"])
        ours, theirs = median(row["ptxforge"]), median(row["triton"])
        print(f"{name:12} ptxforge {ours:.2f} ms (≤ {row['limit']})  triton {theirs:.2f} ms  "
              f"{row['counters'][-1]}", flush=True)  # fmt: skip
    report(rows, options.json, options.commit)
    if not idle:
        print("the frontend or the assembler ran in a warm process", file=sys.stderr)
    return 0 if idle else 1


if __name__ == "__main__":
    sys.exit(main())
