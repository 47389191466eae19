"""``python -m benchmarks``: our kernels beside Triton's and torch's, from one source, in one run, on a GPU.

For each case every configuration is checked against torch in higher precision, then timed; the best one of
each compiler is then timed again, the contenders in turn, so that a clock that drifts meets all of them. The
L2 cache is flushed between runs (cases "in a graph" find it warm), medians are reported, data is random.
Results go to a JSON file with the commit, the device and the SM clock at each measurement, and with the ratio
of ptxforge to each other contender: the median over the turns, and the interval that holds it (95 %).

    python -m benchmarks [--only SUBSTRING] [--turns N] [--sustained SECONDS] [--json FILE] [--no-triton]
                         [--commit ID]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks import spine, tensor
from benchmarks.dialects import load
from benchmarks.harness import (
    do_bench,
    environment,
    median_interval,
    seconds_in_a_graph,
    seconds_with_clean_cache,
    sm_clock,
    sustained_seconds,
)

TURNS = {"GB/s": 8, "TFLOP/s": 4}
"""How often the contenders are timed in turn. Events tick every half microsecond, up to .7 % of a kernel that
is bound by memory, and so do medians: more of them say more."""
FINALISTS, FINALIST_TURNS, FINALIST_SHARE = 6, 3, 0.9
"""How many configurations of each contender are timed again at most, how often, in turn, and what share of
the best figure these have reached: a short run on a chip that was idle has clocks that a long one does not
keep, and what is best then is not always best at the limit of power."""


def _wrong(case: spine.Case, data: dict[str, Any]) -> float:
    """The largest error, absolute and relative mixed, of the last launch."""
    actual, expected = case.check(data)
    difference = (actual.double() - expected.double()).abs() / (1 + expected.double().abs())
    return float(difference.max()) if not torch.isnan(difference).any() else float("inf")


def _figure(case: spine.Case, seconds: float) -> float:
    return round(case.work / seconds / (1e12 if case.unit == "TFLOP/s" else 1e9), 1)


def _seconds(case: spine.Case, run: Callable[[], Any], **effort: float) -> float:
    if case.clean_cache:
        return seconds_with_clean_cache(run)
    return seconds_in_a_graph(run) if case.in_graph else do_bench(run, **effort)


def _timed(case: spine.Case, run: Callable[[], Any], sustained: float | None) -> float:
    return sustained_seconds(run, sustained) if sustained else _seconds(case, run)


def _best(
    case: spine.Case, kernels: Any, data: dict[str, Any], sustained: float | None
) -> tuple[dict | None, list[dict], list[str]]:
    """The fastest configuration that gives right results, the figure of each,
    and notes on those that fail."""
    tried, figures, notes = [], [], []
    for config in case.configurations:
        try:
            case.launch(kernels, data, config)
            torch.cuda.synchronize()
        except Exception as error:  # a configuration that does not fit is a result, not a failure
            notes.append(f"{config}: {type(error).__name__}: {str(error).splitlines()[0]}")
            continue
        wrong = _wrong(case, data)
        if wrong > case.tolerance:
            notes.append(f"{config}: wrong by {wrong:.3g}")
            continue
        seconds = _seconds(case, lambda: case.launch(kernels, data, config), warmup=5, rep=15)
        figures.append(config | {"figure": _figure(case, seconds)})
        tried.append((seconds, config))
    return _last_of(case, kernels, data, tried, sustained), figures, notes


def _last_of(
    case: spine.Case, kernels: Any, data: dict, tried: list[tuple[float, dict]], sustained: float | None
) -> dict | None:
    """The configuration that is fastest when the ``tried`` ones with the least seconds are timed in turn, in
    the way in which the row is timed."""
    tried = sorted(tried, key=lambda pair: pair[0])
    finalists = [config for seconds, config in tried if tried[0][0] >= FINALIST_SHARE * seconds][:FINALISTS]
    if len(finalists) < 2:
        return next(iter(finalists), None)
    times: list[list[float]] = [[] for _ in finalists]
    for _ in range(FINALIST_TURNS):
        for config, seconds in zip(finalists, times, strict=True):
            seconds.append(_timed(case, lambda config=config: case.launch(kernels, data, config), sustained))
    return finalists[min(range(len(times)), key=lambda i: sorted(times[i])[FINALIST_TURNS // 2])]


def _ratios(row: dict[str, Any]) -> dict[str, list[float]]:
    """Of ptxforge's figures to each other contender's, turn by turn: median and its interval."""
    ours = row["ptxforge"].get("figures", [])
    ratios = {}
    for name in ("torch", "triton"):
        figures = row.get(name, {}).get("figures")
        if ours and figures:
            pairs = [own / other for own, other in zip(ours, figures, strict=True)]
            ratios[name] = [round(ratio, 4) for ratio in median_interval(pairs)]
    return ratios


def _measure(
    case: spine.Case, contenders: dict[str, Any], turns: int | None, sustained: float | None
) -> dict[str, Any]:
    data = case.make()
    row: dict[str, Any] = {"case": case.name, "unit": case.unit}
    runs = {"torch": lambda: case.torch(data)}
    for name, kernels in contenders.items():
        config, tried, notes = _best(case, kernels, data, sustained)
        row[name] = {"config": config, "tried": tried, "notes": notes}
        if config is not None:
            runs[name] = lambda kernels=kernels, config=config: case.launch(kernels, data, config)
    row["torch"] = {}
    for _ in range(turns or TURNS[case.unit]):
        for name, run in runs.items():
            seconds = _timed(case, run, sustained)
            clock = sm_clock()
            row[name].setdefault("figures", []).append(_figure(case, seconds))
            row[name].setdefault("sm_clock_mhz", []).append(clock)
    for name in runs:
        figures = row[name]["figures"]
        row[name]["figure"] = round(sum(figures) / len(figures), 1)
    row["ratios"] = _ratios(row)
    return row


def _line(row: dict[str, Any]) -> str:
    contenders = [name for name in ("ptxforge", "triton", "torch") if name in row]
    figures = [f"{name} {row[name].get('figure', 'failed')}" for name in contenders]
    ratios = [
        f"/{name} {mid:.3f} [{low:.3f}, {high:.3f}]" for name, (mid, low, high) in row["ratios"].items()
    ]
    return f"{row['case']:32} {row['unit']:8} " + "  ".join(figures + ratios)


def _checked_out() -> str:
    """The commit of the checkout."""
    return subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="run the cases whose name contains this")
    parser.add_argument("--turns", type=int, help="how often the contenders are timed (default: by unit)")
    parser.add_argument("--sustained", type=float, metavar="SECONDS", help="time runs back to back, so long")
    parser.add_argument("--json", type=Path, help="write the results here, after each case")
    parser.add_argument("--no-triton", action="store_true")
    parser.add_argument("--commit", help="the commit to note (default: that of the checkout)")
    options = parser.parse_args()
    contenders = {"ptxforge": load("ptxforge")}
    if not options.no_triton:
        contenders["triton"] = load("triton")
    facts = environment() | {"commit": options.commit or _checked_out()}
    rows = []
    for case in spine.cases() + tensor.cases():
        if options.only not in case.name:
            continue
        rows.append(_measure(case, contenders, options.turns, options.sustained))
        print(_line(rows[-1]), flush=True)
        for name in contenders:
            for note in rows[-1][name]["notes"]:
                print(f"    {name}: {note}", flush=True)
        if options.json:
            options.json.write_text(json.dumps({"environment": facts, "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
