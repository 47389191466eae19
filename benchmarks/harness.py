"""How the benchmarks measure, and what they tell about the machine that they ran on."""

from __future__ import annotations

import importlib.metadata
import math
import platform
import shutil
import statistics
import subprocess
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ptxforge.driver.cuda import CudaDevice
from ptxforge.driver.cuda_api import driver_version
from ptxforge.runtime.devices import default_device
from ptxforge.runtime.timing import FLUSH_BYTES, measure

PACKAGES = ("ptxforge", "numpy", "cuda-bindings", "torch", "triton")


def do_bench(fn: Callable[[], Any], warmup: float = 25, rep: float = 100) -> float:
    """Median seconds of a run of ``fn``, the L2 cache flushed before each; ``warmup`` and ``rep`` in
    milliseconds."""
    return float(np.median(measure(fn, warmup, rep))) / 1e3


def quantiles(fn: Callable[[], Any], at: Sequence[float] = (0.2, 0.5, 0.8), rep: float = 100) -> list[float]:
    """Seconds of a run of ``fn`` at the given quantiles."""
    return [float(figure) / 1e3 for figure in np.quantile(measure(fn, rep=rep), at)]


def seconds_in_a_graph(fn: Callable[[], Any], launches: int = 20, replays: int = 15) -> float:
    """Median seconds of a run of ``fn`` among ``launches`` of them in a CUDA graph: the GPU's time without
    the host's, with whatever the run before left in the L2 cache."""
    import torch

    fn()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(launches):
            fn()
    graph.replay()
    times = []
    for _ in range(replays):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return float(np.median(times)) / launches / 1e3


def seconds_with_clean_cache(fn: Callable[[], Any], runs: int = 60) -> float:
    """Median seconds of a run of ``fn`` before which the L2 cache is filled by reading: it holds nothing of
    ``fn``, and nothing that has to be written to memory while ``fn`` runs."""
    import torch

    other = torch.zeros(FLUSH_BYTES // 4, device="cuda")
    total = torch.empty((), device="cuda")
    times = []
    for _ in range(runs):
        torch.sum(other, 0, out=total)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        fn()
        end.record()
        times.append((start, end))
    torch.cuda.synchronize()
    return float(np.median([start.elapsed_time(end) for start, end in times])) / 1e3


def sustained_seconds(fn: Callable[[], Any], seconds: float = 0.7) -> float:
    """Mean seconds of a run of ``fn`` in the second half of ``seconds`` of runs back to back: clocks and
    temperature have settled there. The L2 cache holds what the run before left."""
    import torch

    def elapsed(runs: int) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(runs):
            fn()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3

    elapsed(1)
    half = max(1, round(seconds / 2 / (elapsed(3) / 3)))
    elapsed(half)
    return elapsed(half) / half


def median_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float, float]:
    """The median, and the ends of an interval that holds the true median with ``confidence`` at least.

    The ends are order statistics: of n independent values, each above the true median with probability 1/2,
    how many are above it is binomial. Of fewer than 6 values not even all hold it so: all are the interval.
    """
    ordered = sorted(values)
    n, outside = len(ordered), 0.0
    cut = 0
    while cut < n // 2 and outside + math.comb(n, cut) / 2**n <= (1 - confidence) / 2:
        outside += math.comb(n, cut) / 2**n
        cut += 1
    low = max(cut - 1, 0)
    return statistics.median(ordered), ordered[low], ordered[n - 1 - low]


def sm_clock(ordinal: int = 0) -> int | None:
    """The clock of the multiprocessors now, in MHz; ``None`` where ``nvidia-smi`` cannot tell."""
    text = _query("clocks.sm", ordinal)
    return int(text) if text and text.isdigit() else None


def environment(ordinal: int = 0) -> dict[str, Any]:
    """The device, its clocks and limits, and the versions of what runs on it."""
    device = default_device()
    facts: dict[str, Any] = {"python": platform.python_version(), "packages": _versions()}
    if isinstance(device, CudaDevice):
        facts |= {
            "device": device.product,
            "target": device.target,
            "multiprocessors": device.multiprocessors,
            "l2_bytes": device.attribute("L2_CACHE_SIZE"),
            "driver_cuda": ".".join(map(str, driver_version())),
            "driver": _query("driver_version", ordinal),
            "sm_clock_max_mhz": _query("clocks.max.sm", ordinal),
            "memory_clock_mhz": _query("clocks.mem", ordinal),
            "power_limit_w": _query("power.limit", ordinal),
        }
    else:
        facts["device"] = device.name
    return facts


def _query(field: str, ordinal: int) -> str | None:
    if shutil.which("nvidia-smi") is None:
        return None
    command = ["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader,nounits", "-i", str(ordinal)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
