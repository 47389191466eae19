"""``python -m benchmarks.tuning``: the time that choosing among 20 configurations takes, and the choice.

Wall time of the first launch of a tuned kernel, in a process of its own with empty caches, beside Triton's on
the same configurations. Then, in one process, the same kernel is tuned anew many times; every configuration
is measured 20 times, all in turn; and each choice is held against the best of these medians. A difference up
to 2 % is a tie. Sizes are such that an H200 does not reach its power limit.

    python -m benchmarks.tuning [--repeats 10] [--no-triton] [--json FILE] [--commit ID]
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import attrs
import torch

from benchmarks.dialects import load
from benchmarks.processes import in_new_process, report

TIE, MEASUREMENTS, RUNS = 0.02, 20, 10
LIMIT = 0.3
"""Of Triton's wall time."""
GEMM_TILES = [
    (m, n, k, warps, stages)
    for m, n, warps in ((128, 256, 8), (256, 128, 8), (128, 128, 8), (128, 128, 4), (64, 128, 4))
    for k, stages in ((64, 3), (64, 4), (32, 4), (32, 3))
]
ROWS = [(rows, warps) for rows in (1, 2, 4, 8) for warps in (1, 2, 4, 8, 16)]


@attrs.frozen
class Subject:
    """A kernel to tune: its name and file, its configurations (constants, options), its data, its arguments
    (with the grid) and the check of its result."""

    kernel: str
    file: str
    configs: list[tuple[dict[str, int], dict[str, int]]]
    make: Callable[[], dict[str, Any]]
    call: Callable[[dict[str, Any]], tuple[Callable, tuple, dict[str, Any]]]
    check: Callable[[dict[str, Any]], tuple[Any, Any]]
    tolerance: float


def _gemm() -> Subject:
    size = 2048
    configs = [
        ({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}, {"num_warps": w, "num_stages": s})
        for m, n, k, w, s in GEMM_TILES
    ]

    def make() -> dict[str, Any]:
        a, b = (torch.randn(size, size, device="cuda").half() for _ in range(2))
        return {"a": a, "b": b, "c": torch.zeros_like(a)}

    def call(d: dict[str, Any]) -> tuple[Callable, tuple, dict[str, Any]]:
        a, b, c = d["a"], d["b"], d["c"]
        strides = (*a.stride(), *b.stride(), *c.stride())
        constants = {"PRECISION": "tf32", "GROUP_M": 8, "EVEN_K": True}
        return _grid_of_tiles(size), (a, b, c, size, size, size, *strides), constants

    def check(d: dict[str, Any]) -> tuple[Any, Any]:
        return d["c"].float() / size**0.5, torch.mm(d["a"].float(), d["b"].float()) / size**0.5

    return Subject("matmul", "kernels.py", configs, make, call, check, 2e-3)


def _grid_of_tiles(size: int) -> Callable[[dict], tuple[int]]:
    return lambda meta: (-(-size // meta["BLOCK_M"]) * -(-size // meta["BLOCK_N"]),)


def _rows(kernel: str, file: str, rows: int, columns: int, reference: Callable, others: tuple) -> Subject:
    configs = [({"ROWS": r}, {"num_warps": w}) for r, w in ROWS]

    def make() -> dict[str, Any]:
        x = torch.randn(rows, columns, device="cuda").half()
        given = {name: torch.randn(columns, device="cuda").half() for name in others}
        return {"x": x, "out": torch.zeros_like(x)} | given

    def call(d: dict[str, Any]) -> tuple[Callable, tuple, dict[str, Any]]:
        more = (*(d[name] for name in others), columns, columns, *((1e-5,) if others else ()))
        return lambda meta: (rows // meta["ROWS"],), (d["out"], d["x"], *more), {"BLOCK": columns}

    return Subject(kernel, file, configs, make, call, lambda d: (d["out"].float(), reference(d)), 4e-2)


def _softmax() -> Subject:
    return _rows("softmax_rows", "kernels.py", 16384, 1024, lambda d: torch.softmax(d["x"].float(), 1), ())


def _layer_norm() -> Subject:
    def reference(d: dict[str, Any]) -> Any:
        weight, bias = d["weight"].float(), d["bias"].float()
        return torch.nn.functional.layer_norm(d["x"].float(), (1024,), weight, bias, 1e-5)

    return _rows("layer_norm_rows", "host_kernels.py", 16384, 1024, reference, ("weight", "bias"))


SUBJECTS = {"gemm": _gemm, "softmax": _softmax, "layer norm": _layer_norm}


def _tuned(subject: Subject, contender: str) -> Any:
    package = importlib.import_module(contender)
    configs = [package.Config(dict(constants), **given) for constants, given in subject.configs]
    kernel = getattr(load(contender, subject.file), subject.kernel)
    return package.autotune(configs=configs, key=[])(kernel)


def _launch(tuned: Any, subject: Subject, data: dict[str, Any]) -> float:
    """Seconds of a launch to its end."""
    grid, arguments, constants = subject.call(data)
    begin = time.perf_counter()
    tuned[grid](*arguments, **constants)
    torch.cuda.synchronize()
    return time.perf_counter() - begin


def _check(subject: Subject, data: dict[str, Any]) -> None:
    actual, expected = subject.check(data)
    torch.testing.assert_close(actual, expected, rtol=subject.tolerance, atol=subject.tolerance)


def _cold(name: str, contender: str) -> dict[str, Any]:
    """Seconds to the end of the first launch, and the choice, in this process."""
    subject = SUBJECTS[name]()
    data, tuned = subject.make(), _tuned(subject, contender)
    torch.cuda.synchronize()
    seconds = _launch(tuned, subject, data)
    _check(subject, data)
    return {"seconds": round(seconds, 3), "choice": str(tuned.best_config)}


def _choices(name: str, repeats: int) -> dict[str, Any]:
    """What tuning anew chooses each time, how long that takes, and every configuration's median time."""
    subject = SUBJECTS[name]()
    data = subject.make()
    chosen, seconds = [], []
    for _ in range(repeats):
        tuned = _tuned(subject, "ptxforge")
        seconds.append(round(_launch(tuned, subject, data), 3))
        chosen.append(str(tuned.best_config))
    _check(subject, data)
    return {"choices": chosen, "warm_seconds": seconds, "median_ms": _exhaustive(subject, data, tuned)}


def _exhaustive(subject: Subject, data: dict[str, Any], tuned: Any) -> dict[str, float]:
    """Median milliseconds of every configuration that works, measured all in turn."""
    from ptxforge.runtime.devices import default_device
    from ptxforge.runtime.timing import Session

    grid, arguments, constants = subject.call(data)
    kernel = tuned.base_fn
    times: dict[str, list[float]] = {str(c): [] for c in tuned.configs if c not in tuned.failures}
    with Session(default_device()) as timer:
        for _ in range(MEASUREMENTS):
            for config in tuned.configs:
                if config in tuned.failures:
                    continue
                given = constants | config.all_kwargs()
                launch = lambda given=given: kernel[grid](*arguments, **given)  # noqa: E731
                runs = [timer.time(lambda: None, launch, lambda kept: None) for _ in range(RUNS)]
                times[str(config)].append(median(runs))
    return {config: round(median(found), 5) for config, found in times.items()}


def _judged(found: dict[str, Any]) -> dict[str, Any]:
    """How far each choice is from the best, and how many runs agree."""
    medians = found["median_ms"]
    best = min(medians.values())
    beyond = [round(medians[choice] / best - 1, 4) for choice in found["choices"]]
    agreeing = Counter(found["choices"]).most_common(1)[0][1]
    return {"slower_than_best": beyond, "within_tie": sum(b <= TIE for b in beyond), "agree": agreeing}


def _row(name: str, repeats: int, with_triton: bool) -> dict[str, Any]:
    row: dict[str, Any] = {"case": name, "unit": "s", "limit": LIMIT}
    for contender in ("ptxforge", "triton") if with_triton else ("ptxforge",):
        with tempfile.TemporaryDirectory() as folder:
            row[contender] = in_new_process(_cold, name, contender, caches=folder)
    if with_triton:
        row["ratio"] = round(row["ptxforge"]["seconds"] / row["triton"]["seconds"], 3)
    with tempfile.TemporaryDirectory() as folder:
        found = in_new_process(_choices, name, repeats, caches=folder)
    return row | _judged(found) | found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tuning")
    parser.add_argument("--repeats", type=int, default=10, help="how often it is tuned for the choice")
    parser.add_argument("--no-triton", action="store_true")
    parser.add_argument("--only", default="", help="kernels whose name contains this")
    parser.add_argument("--json", type=Path, help="write the results here")
    parser.add_argument("--commit", default="", help="the commit to note")
    options = parser.parse_args()
    rows = []
    for name in SUBJECTS:
        if options.only not in name:
            continue
        row = _row(name, options.repeats, not options.no_triton)
        rows.append(row)
        seconds = "  ".join(f"{c} {row[c]['seconds']} s" for c in ("ptxforge", "triton") if c in row)
        print(f"{name:12} {seconds}  ratio {row.get('ratio', '–')} (≤ {LIMIT})  within 2 %: "
              f"{row['within_tie']}/{options.repeats}, agreeing: {row['agree']}", flush=True)  # fmt: skip
    report(rows, options.json, options.commit)
    return 0


if __name__ == "__main__":
    sys.exit(main())
