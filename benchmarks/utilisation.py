"""``python -m benchmarks.utilisation``: how busy matrix products keep the tensor pipe, in cycles.

TFLOP/s depend on the clock, and the clock on what ran before: at 700 W an H200 throttles. Cycles do not. The
module runs itself under ``ncu``, which counts ``sm__cycles_elapsed.max`` of every launch, and prints

    2 · M · N · K / (cycles · multiprocessors · 4 · 4096 / 6)

for each configuration: the median of a few launches, caches flushed before each. (An ``mma.sync.m16n8k16`` is
4096 operations and takes a sub-partition of a multiprocessor 6 cycles, measured.) Figures of two machines of
one kind differ by up to .005.

    python -m benchmarks.utilisation [--only SUBSTRING] [--json FILE] [--no-triton] [--commit ID]
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.dialects import load
from benchmarks.harness import environment
from benchmarks.spine import Case, matmul_case
from benchmarks.tiles import F16_TILES

METRIC = "sm__cycles_elapsed.max"
LAUNCHES = 5
OPERATIONS, CYCLES, SUB_PARTITIONS = 4096, 6, 4
"""Of one instruction on one sub-partition; sub-partitions of a multiprocessor."""


def cases() -> list[Case]:
    """f16 and bf16 products, B row-major (NN) and column-major (NT)."""
    return [
        matmul_case(f"gemm {name} {layout} {size}^3", size, size, size, dtype, "tf32", F16_TILES, 1e-2,
                    transposed_b=layout == "NT")
        for name, dtype in (("f16", torch.float16), ("bf16", torch.bfloat16))
        for size in (8192, 4096)
        for layout in ("NN", "NT")
    ]  # fmt: skip


def _launches(only: str, contenders: list[str]) -> Iterator[tuple[Case, str, dict[str, Any]]]:
    """Every configuration, in the order in which it is launched."""
    for case in cases():
        if only in case.name:
            yield from ((case, name, config) for name in contenders for config in case.configurations)


def _launch_all(only: str, contenders: list[str], log: Path) -> None:
    """Launch each configuration a few times; what ran goes to ``log``, a line each."""
    kernels = {name: load(name) for name in contenders}
    data: dict[str, dict[str, Any]] = {}
    with log.open("w") as lines:
        for case, name, config in _launches(only, contenders):
            if case.name not in data:
                data = {case.name: case.make()}
            try:
                for _ in range(LAUNCHES):
                    case.launch(kernels[name], data[case.name], config)
                torch.cuda.synchronize()
            except Exception as error:  # a configuration that does not fit is a result, not a failure
                print(f"{case.name} {name} {config}: {str(error).splitlines()[0]}", file=sys.stderr)
                continue
            lines.write(json.dumps([case.name, name, config]) + "\n")


def _counted(arguments: list[str], log: Path) -> list[float]:
    """The cycles of every launch of a product."""
    command = [
        "ncu", "--clock-control", "none", "--csv", "-k", "regex:matmul", "--metrics", METRIC,
        sys.executable, "-m", "benchmarks.utilisation", "--launch", str(log), *arguments,
    ]  # fmt: skip
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    rows = [row for row in csv.reader(done.stdout.splitlines()) if len(row) > 10]
    place = rows[0].index("Metric Value")
    return [float(row[place].replace(",", "")) for row in rows[1:]]


def _figures(log: Path, cycles: list[float], multiprocessors: int) -> list[dict[str, Any]]:
    ran = [json.loads(line) for line in log.read_text().splitlines()]
    if len(ran) * LAUNCHES != len(cycles):
        raise RuntimeError(f"ncu counted {len(cycles)} launches where {len(ran) * LAUNCHES} were made")
    work = {case.name: case.work for case in cases()}
    peak = multiprocessors * SUB_PARTITIONS * OPERATIONS / CYCLES
    rows = []
    for index, (case, name, config) in enumerate(ran):
        counted = cycles[index * LAUNCHES : (index + 1) * LAUNCHES]
        used = [round(work[case] / (c * peak), 4) for c in counted]
        row = {"case": case, "compiler": name, "config": config}
        rows.append(row | {"utilisation": median(used), "all": used})
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.utilisation")
    parser.add_argument("--only", default="", help="run the cases whose name contains this")
    parser.add_argument("--json", type=Path, help="write the results here")
    parser.add_argument("--no-triton", action="store_true")
    parser.add_argument("--commit", default="", help="the commit to note")
    parser.add_argument("--launch", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.launch:
        contenders = ["ptxforge"] if options.no_triton else ["ptxforge", "triton"]
        _launch_all(options.only, contenders, options.launch)
        return 0
    if shutil.which("ncu") is None:
        print("ncu, of NVIDIA Nsight Compute, is not on the PATH", file=sys.stderr)
        return 1
    facts = environment()
    arguments = ["--only", options.only, *(["--no-triton"] if options.no_triton else [])]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "launches")
        rows = _figures(log, _counted(arguments, log), facts["multiprocessors"])
    best: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        key = row["case"], row["compiler"]
        best[key] = max(best.get(key, row), row, key=lambda r: r["utilisation"])
    for (case, name), row in best.items():
        print(f"{case:20} {name:9} {row['utilisation']:.4f}  {row['config']}")
    if options.json:
        report = {"environment": facts | {"commit": options.commit}, "rows": rows}
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
