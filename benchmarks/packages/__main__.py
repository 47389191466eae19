"""``python -m benchmarks.packages``: public packages that are written for Triton, on ptxforge and on Triton.

Each package is imported unmodified, for each compiler in processes of its own. First every case is compiled,
tuned and compared with torch, in many processes at once; then the kernels of one step (forward, and backward
where there are gradients) are timed, one case at a time, both compilers in turn, the L2 cache flushed between
steps.

    pip install --no-deps flag_gems==5.0.2 fla-core==0.6.0 liger-kernel==0.8.5
    pip install --no-deps conch-triton-kernels==1.3 gemlite==0.6.0
    pip install sqlalchemy pyyaml packaging einops tqdm      # what they import
    # triton_kernels: the folder of Triton's repository at its release 3.6, on PYTHONPATH

    python -m benchmarks.packages [--package NAME] [--without NAME] [--case SUBSTRING] [--seconds N]
                                  [--prepare SHARE] [--workers N] [--json FILE] [--no-triton] [--emulator]

``--package inductor`` takes functions that torch compiles, and tells what compiling took: it is no package,
and not among the others.

``--emulator`` compares results of small sizes on CPU tensors and times nothing; some packages refuse such
tensors.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch

from benchmarks.packages.worker import PACKAGES, TABLES, serve, table

PREPARING = 0.5
"""Which share of the time may be spent before anything is timed."""
LEAST_WORKERS = 2
"""How many processes each package has on each compiler at least, if it has as many cases."""
CASE_SECONDS = 45.0
"""How long a case may take to be prepared, tuning included."""
TIMING_SECONDS = 15.0
"""How long one measurement may take, tuning included."""


class Process:
    """A worker: it has at most one case in hand."""

    def __init__(self, package: str, contender: str, caches: Path, emulated: bool):
        self.package, self.contender = package, contender
        fork = multiprocessing.get_context("fork")
        self.pipe, theirs = fork.Pipe()
        self.process = fork.Process(
            target=_serve, args=(theirs, self.pipe, package, contender, caches, emulated)
        )
        self.process.start()
        theirs.close()
        self.case: int | None = None

    def ask(self, what: str, case: int, seconds: float) -> None:
        """Start on a case."""
        self.case = case
        self.pipe.send((what, case, seconds))

    def take(self) -> dict[str, Any]:
        """What came of the case."""
        try:
            return self.pipe.recv()
        except (EOFError, ConnectionError):
            return {"error": "the process ended", "broken": True}

    def kill(self) -> None:
        """End it, whatever it does."""
        if self.process.is_alive():
            os.kill(self.process.pid, signal.SIGKILL)
        self.process.join()


def _serve(pipe: Connection, parents: Connection, *how: Any) -> None:
    parents.close()
    serve(pipe, *how)


class Comparison:
    """All cases, both contenders' processes, and what is known so far."""

    def __init__(self, options: argparse.Namespace, caches: Path):
        self.options, self.caches = options, caches
        self.contenders = ["ptxforge"] + ([] if options.no_triton or options.emulator else ["triton"])
        self.begun = time.monotonic()
        self.rows: list[dict[str, Any]] = []
        for package in [options.package] if options.package else PACKAGES:
            if options.without != package:
                for place, case in enumerate(table(package)):
                    if options.case in case.name:
                        row = {
                            "package": package,
                            "case": case.name,
                            "place": place,
                            "products": case.products,
                        }
                        self.rows.append(row | {name: {} for name in self.contenders})
        self.processes: list[Process] = []
        self.homes: dict[tuple, Process] = {}

    def left(self) -> float:
        """Seconds that are left."""
        return self.options.seconds - (time.monotonic() - self.begun)

    def start(self, package: str, contender: str) -> Process:
        """A new worker."""
        process = Process(package, contender, self.caches, self.options.emulator)
        self.processes.append(process)
        return process

    def run(self) -> None:
        """Prepare the cases, then time them, turn by turn, until the time is over."""
        self.prepare()
        print(f"prepared after {time.monotonic() - self.begun:.0f} s", flush=True)
        self.save()
        turn = 0
        some = any(all(row[name].get("agrees") for name in self.contenders) for row in self.rows)
        while some and not self.options.emulator and self.left() > 10:
            self.measure(turn)
            self.save()
            turn += 1
            print(f"turn {turn} of timing after {time.monotonic() - self.begun:.0f} s", flush=True)

    def prepare(self) -> None:
        """Prepare all cases, as many at once as there are workers, until the share of time is over."""
        queues = {
            (package, name): [row for row in self.rows if row["package"] == package]
            for package in dict.fromkeys(row["package"] for row in self.rows)
            for name in self.contenders
        }
        for (package, name), queue in queues.items():
            share = max(LEAST_WORKERS, round(self.options.workers * len(queue) / len(self.rows)))
            for _ in range(min(share, len(queue))):
                self._next(self.start(package, name), queues)
        stop = self.options.seconds * (1 if self.options.emulator else self.options.prepare)
        while busy := [process for process in self.processes if process.case is not None]:
            timeout = stop - (time.monotonic() - self.begun)
            ready = wait([process.pipe for process in busy], timeout) if timeout > 0 else []
            if not ready:
                break
            for process in busy:
                if process.pipe in ready:
                    self._prepared(process, queues)
        for process in [p for p in self.processes if p.case is not None]:
            process.kill()
            self.processes.remove(process)

    def _prepared(self, process: Process, queues: dict) -> None:
        answer = process.take()
        row = self._row(process)
        row[process.contender] = answer
        self.homes[row["package"], row["place"], process.contender] = process
        if not answer.get("agrees"):
            print(f"{row['package']} {row['case']}: {process.contender}: {answer}", flush=True)
        if answer.pop("broken", False):
            process.kill()
            self.processes.remove(process)
            process = self.start(process.package, process.contender)
        self._next(process, queues)

    def _row(self, process: Process) -> dict[str, Any]:
        return next(r for r in self.rows if r["package"] == process.package and r["place"] == process.case)

    def _next(self, process: Process, queues: dict) -> None:
        queue = queues[process.package, process.contender]
        process.case = None
        if queue:
            process.ask("prepare", queue.pop(0)["place"], CASE_SECONDS)

    def measure(self, turn: int) -> None:
        """Time each case that both have compiled, once by each."""
        for number, row in enumerate(self.rows):
            if not all(row[name].get("agrees") for name in self.contenders):
                continue
            order = self.contenders if (number + turn) % 2 else self.contenders[::-1]
            for name in order:
                if self.left() < 3:
                    return
                if not any("time_error" in row[other] for other in self.contenders):
                    self._time(row, name)

    def _time(self, row: dict[str, Any], name: str) -> None:
        process = self.homes.get((row["package"], row["place"], name))
        if process not in self.processes:
            process = self._another(row["package"], name)
        process.ask("time", row["place"], TIMING_SECONDS)
        answer = {"error": "no answer in time", "broken": True}
        if wait([process.pipe], min(TIMING_SECONDS + 5, self.left())):
            answer = process.take()
        process.case = None
        if "milliseconds" in answer:
            row[name].setdefault("milliseconds", []).append(answer["milliseconds"])
            row[name]["kernels"] = answer["kernels"]
        else:
            row[name]["time_error"] = answer["error"]
        if answer.get("broken"):
            process.kill()
            self.processes.remove(process)

    def _another(self, package: str, name: str) -> Process:
        mine = [p for p in self.processes if (p.package, p.contender) == (package, name)]
        return mine[0] if mine else self.start(package, name)

    def save(self) -> None:
        """Ratios, the file, and a summary."""
        for row in self.rows:
            times = [sorted(row[name].get("milliseconds", [])) for name in self.contenders]
            if len(times) == 2 and all(times):
                own, other = (t[len(t) // 2] for t in times)
                row["ratio"] = round(other / own, 4)
        if self.options.json:
            self.options.json.write_text(
                json.dumps({"environment": _machine(), "rows": self.rows}, indent=1) + "\n"
            )


def _machine() -> dict[str, Any]:
    import importlib.metadata as metadata

    names = ("torch", "triton", "flag_gems", "fla-core", "liger-kernel", "conch-triton-kernels", "gemlite")
    versions = {}
    for name in names:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {"versions": versions, "python": sys.version.split()[0]}


def summary(rows: list[dict[str, Any]]) -> str:
    """Agreement by package, the geometric mean of the ratios, and the slowest cases."""
    lines = []
    for package in dict.fromkeys(row["package"] for row in rows):
        own = [row for row in rows if row["package"] == package]
        told = [f"{package}: {len(own)} cases"]
        for name in ("ptxforge", "triton"):
            ran = [row for row in own if row.get(name)]
            told.append(f"{name} {sum(bool(row[name].get('agrees')) for row in ran)} of {len(ran)} agree")
        for text, products in (("without products", False), ("with products", True)):
            told += _mean([r["ratio"] for r in own if "ratio" in r and r["products"] == products], text)
        lines.append(", ".join(told))
    ratios = sorted((row["ratio"], f"{row['package']} {row['case']}") for row in rows if "ratio" in row)
    lines += ["all: " + ", ".join(_mean([r for r, _ in ratios], "Triton's time by ours"))]
    lines += _compiling(rows)
    return "\n".join(lines + [f"  {ratio:.3f} {name}" for ratio, name in ratios[:20]])


def _compiling(rows: list[dict[str, Any]]) -> list[str]:
    """What both spent in compiling the same number of kernels, where torch compiles."""
    both = [(row["ptxforge"], row["triton"]) for row in rows if row.get("ptxforge") and row.get("triton")]
    same = [(own, other) for own, other in both if own.get("compiled", 0) == other.get("compiled") != 0]
    if not same:
        return []
    own, other = (sum(pair[i]["compiling"] for pair in same) for i in (0, 1))
    what = f"compiling {sum(pair[0]['compiled'] for pair in same)} kernels of {len(same)} cases"
    return [f"{what}: {own:.1f} s, Triton {other:.1f} s: {own / other:.3f}"]


def _mean(ratios: list[float], text: str) -> list[str]:
    if not ratios:
        return []
    return [f"{math.exp(sum(map(math.log, ratios)) / len(ratios)):.3f} ({len(ratios)} {text})"]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.packages", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--package", default="", choices=("", *TABLES), help="run this one alone")
    parser.add_argument("--without", default="", choices=("", *TABLES), help="leave this one out")
    parser.add_argument("--case", default="", help="run the cases whose name contains this")
    parser.add_argument("--seconds", type=float, default=280, help="how long the run may take")
    parser.add_argument("--prepare", type=float, default=PREPARING, metavar="SHARE")
    parser.add_argument(
        "--workers", type=int, default=os.cpu_count(), help="processes of each compiler, about"
    )
    parser.add_argument("--json", type=Path, help="write the results here")
    parser.add_argument("--no-triton", action="store_true")
    parser.add_argument("--emulator", action="store_true", help="small sizes on CPU tensors; no times")
    options = parser.parse_args()
    if torch.cuda.is_initialized():
        raise RuntimeError("workers are forks: nothing may touch the GPU before them")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as caches:
        comparison = Comparison(options, Path(caches))
        try:
            comparison.run()
        finally:
            for process in comparison.processes:
                process.kill()
    print(summary(comparison.rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
