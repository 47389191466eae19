"""``python -m benchmarks.utilisation``: how busy matrix products keep the tensor pipe, in cycles.

TFLOP/s depend on the clock, and the clock on what ran before: at 700 W an H200 throttles. Cycles do not. The
module runs itself under ``ncu``, which counts ``sm__cycles_elapsed.avg`` of every launch, and prints

    2 · M · N · K / (cycles · multiprocessors · operations in a cycle)

for each configuration: the median of a few launches, caches flushed before each. A sub-partition of a
multiprocessor, of which there are 4, takes 6 cycles for the 4096 operations of an ``mma.sync.m16n8k16``
(measured), and does 1024 in a cycle by ``wgmma`` (the data sheet's 989.4 TFLOP/s at 1830 MHz): the target
decides. The chip's own counter for ``mma.sync``,
``sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed``, gives the same to all four digits. Cycles
are those of the mean multiprocessor, since groups of them have clocks of their own: in one launch the slowest
counted 3.476, the fastest 3.556 million. At ``--clock-control base`` the multiprocessors run slower, and
memory is nearer in cycles.

With ``--no-tensor-maps`` tiles come by ``cp.async`` where they would come by the tensor memory accelerator.

    python -m benchmarks.utilisation [--only SUBSTRING] [--no-tensor-maps] [--clock-control none|base]
                                     [--json FILE]
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.dialects import load
from benchmarks.harness import environment
from benchmarks.tensor import half_products

METRIC = "sm__cycles_elapsed.avg"
LAUNCHES = 5
SUB_PARTITIONS = 4
OPERATIONS = {"mma.sync": 4096 / 6, "wgmma": 1024}
"""That a sub-partition does in a cycle, for f16 and bf16."""


def _launch_all(only: str, maps: bool, log: Path) -> None:
    """Launch each configuration a few times; what ran goes to ``log``, a line each."""
    kernels = load("ptxforge")
    with log.open("w") as lines:
        for case in half_products():
            if only not in case.name:
                continue
            data = case.make()
            for config in case.configurations:
                config = config if maps else config | {"tensor_maps": False}
                for _ in range(LAUNCHES):
                    case.launch(kernels, data, config)
                torch.cuda.synchronize()
                lines.write(json.dumps([case.name, config]) + "\n")


def _counted(only: str, maps: bool, clock: str, log: Path) -> list[float]:
    """The cycles of every launch of a product."""
    command = [
        "ncu", "--clock-control", clock, "--csv", "-k", "regex:matmul", "--metrics", METRIC,
        sys.executable, "-m", "benchmarks.utilisation", "--launch", str(log), "--only", only,
        *([] if maps else ["--no-tensor-maps"]),
    ]  # fmt: skip
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    rows = [row for row in csv.reader(done.stdout.splitlines()) if len(row) > 10]
    place = rows[0].index("Metric Value")
    return [float(row[place].replace(",", "")) for row in rows[1:]]


def _peak(facts: dict[str, Any]) -> float:
    """The operations in a cycle of the whole GPU."""
    instruction = "wgmma" if facts["target"] == "sm_90a" else "mma.sync"
    return facts["multiprocessors"] * SUB_PARTITIONS * OPERATIONS[instruction]


def _figures(log: Path, cycles: list[float], peak: float) -> list[dict[str, Any]]:
    ran = [json.loads(line) for line in log.read_text().splitlines()]
    if len(ran) * LAUNCHES != len(cycles):
        raise RuntimeError(f"ncu counted {len(cycles)} launches where {len(ran) * LAUNCHES} were made")
    work = {case.name: case.work for case in half_products()}
    rows = []
    for index, (case, config) in enumerate(ran):
        counted = cycles[index * LAUNCHES : (index + 1) * LAUNCHES]
        used = [round(work[case] / (c * peak), 4) for c in counted]
        rows.append({"case": case, "config": config, "utilisation": median(used), "all": used})
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.utilisation")
    parser.add_argument("--only", default="", help="run the cases whose name contains this")
    parser.add_argument("--no-tensor-maps", dest="maps", action="store_false", help="copy by cp.async")
    parser.add_argument("--json", type=Path, help="write the results here")
    parser.add_argument("--clock-control", choices=("none", "base"), default="none", help="as of ncu")
    parser.add_argument("--commit", default="", help="the commit to note")
    parser.add_argument("--launch", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.launch:
        _launch_all(options.only, options.maps, options.launch)
        return 0
    if shutil.which("ncu") is None:
        print("ncu, of NVIDIA Nsight Compute, is not on the PATH", file=sys.stderr)
        return 1
    facts = environment()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "launches")
        cycles = _counted(options.only, options.maps, options.clock_control, log)
        rows = _figures(log, cycles, _peak(facts))
    best: dict[str, dict[str, Any]] = {}
    for row in rows:
        best[row["case"]] = max(best.get(row["case"], row), row, key=lambda r: r["utilisation"])
    for case, row in best.items():
        print(f"{case:20} {row['utilisation']:.4f}  {row['config']}")
    if options.json:
        facts |= {"commit": options.commit, "clock_control": options.clock_control}
        report = {"environment": facts, "rows": rows}
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
