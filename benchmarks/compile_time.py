"""``python -m benchmarks.compile_time OLD NEW``: CPU milliseconds of warm compilations in two source trees.

A process for each tree compiles the same kernels in turn (old, new, new, old, …), so that what else the
machine does falls on both alike. Shown are the median of each and the median quotient of the pairs; no GPU is
needed, and the garbage of a compilation is collected outside of what is timed.

    python -m benchmarks.compile_time ../main . [--pairs 21] [--only attention]
"""

from __future__ import annotations

import argparse
import gc
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

KERNELS = (
    ("add-1024-w4", "sm_80"),
    ("f16-NN-128-256-64-w8-s3", "sm_80"),
    ("f16-NN-128-256-64-w8-s3", "sm_90a"),
    ("attention-128-causal-128-128-w8-s2", "sm_90a"),
)
"""Configurations of the benchmarks, and the target of each."""
WARM_UP = 3


def serve() -> None:
    """Answer each index of a kernel on the standard input with the seconds that compiling it took."""
    from benchmarks.configurations import configurations
    from benchmarks.dialects import load
    from ptxforge.compiler import compile_function

    by_name, kernels = {one.name: one for one in configurations()}, load("ptxforge")
    for line in sys.stdin:
        name, target = KERNELS[int(line)]
        one = by_name[name]
        gc.collect()
        start = time.process_time()
        compile_function(getattr(kernels, one.kernel), one.signature, one.constants, target, **one.options)
        print(time.process_time() - start, flush=True)


class Tree:
    """A process that compiles with the sources in a folder."""

    def __init__(self, folder: str):
        command = [sys.executable, __file__, "--serve"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder,
            env=os.environ | {"PYTHONPATH": str(Path(folder).resolve())},
        )  # fmt: skip

    def milliseconds(self, index: int) -> float:
        """CPU time of one compilation of a kernel."""
        self.process.stdin.write(f"{index}\n")
        self.process.stdin.flush()
        return 1e3 * float(self.process.stdout.readline())


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compile_time", description=__doc__.splitlines()[0]
    )
    parser.add_argument("old", nargs="?")
    parser.add_argument("new", nargs="?")
    parser.add_argument("--pairs", type=int, default=21)
    parser.add_argument("--only", default="", help="kernels whose names contain this")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        serve()
        return 0
    trees = Tree(options.old), Tree(options.new)
    for index, (name, target) in enumerate(KERNELS):
        if options.only not in f"{name} @ {target}":
            continue
        for tree in trees * WARM_UP:
            tree.milliseconds(index)
        pairs = []
        for number in range(options.pairs):
            first, second = trees if number % 2 else trees[::-1]
            times = {first: first.milliseconds(index), second: second.milliseconds(index)}
            pairs.append([times[tree] for tree in trees])
        old, new = (median(column) for column in zip(*pairs, strict=True))
        quotient = median(new / old for old, new in pairs)
        print(f"{name} @ {target}: {old:.2f} -> {new:.2f} ms, new/old {quotient:.3f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
