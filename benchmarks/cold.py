"""``python -m benchmarks.cold``: from the call of a kernel that nobody compiled before to its end on the GPU.

Each figure is a process of its own with empty caches of ptxforge, Triton and the driver: the median of a few.
Counted is the first launch of a process, with all that either compiler imports then; importing the compiler,
the data and the first use of the GPU come before. Python files are compiled, as in an installed package.

    python -m benchmarks.cold [--json FILE] [--commit ID]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import torch

from benchmarks.dialects import load
from benchmarks.harness import environment
from benchmarks.spine import Case
from benchmarks.tensor import cases

CONFIGURATIONS = {
    "gemm f16 NN 4096^3": {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "num_warps": 8, "num_stages": 3},
    "attention f16 L=8192 D=128": {"BLOCK_M": 128, "BLOCK_N": 64, "num_warps": 8, "num_stages": 2},
}
CONTENDERS = ("ptxforge", "triton")
RUNS = 5


def _case(name: str) -> Case:
    return next(case for case in cases() if case.name == name)


def _once(name: str, contender: str) -> float:
    """Seconds of the first launch, in this process."""
    case, kernels = _case(name), load(contender)
    data = case.make()
    torch.cuda.synchronize()
    start = time.perf_counter()
    case.launch(kernels, data, CONFIGURATIONS[name])
    torch.cuda.synchronize()
    return time.perf_counter() - start


def _in_new_process(name: str, contender: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        caches = {v: folder for v in ("TRITON_CACHE_DIR", "PTXFORGE_CACHE_DIR", "XDG_CACHE_HOME")}
        command = [sys.executable, "-m", "benchmarks.cold", "--once", name, contender]
        variables = os.environ | caches | {"CUDA_CACHE_DISABLE": "1"}
        variables.pop("PYTHONDONTWRITEBYTECODE", None)
        done = subprocess.run(command, env=variables, stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout.split()[-1])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cold")
    parser.add_argument("--json", type=Path, help="write the results here")
    parser.add_argument("--commit", default="", help="the commit to note")
    parser.add_argument("--once", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.once:
        print(_once(*options.once))
        return 0
    rows = []
    for name in CONFIGURATIONS:
        runs: dict[str, list[float]] = {c: [] for c in CONTENDERS}
        for contender in CONTENDERS:
            _in_new_process(name, contender)  # compiles Python files
        for _ in range(RUNS):
            for contender in CONTENDERS:
                runs[contender].append(round(_in_new_process(name, contender) * 1e3, 1))
        rows.append({"case": name, "unit": "ms", "config": CONFIGURATIONS[name], **runs})
        ours, theirs = (median(runs[contender]) for contender in CONTENDERS)
        print(f"{name:28} ptxforge {ours} ms  triton {theirs} ms  {ours / theirs:.2f}", flush=True)
    if options.json:
        report = {"environment": environment() | {"commit": options.commit}, "rows": rows}
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
