"""A process that runs cases of one package on one compiler, as the parent asks.

Whatever it imports as ``triton`` is the compiler; no process ever holds both. A case is prepared once
(compiled, tuned and compared with torch), with other processes busy on the same GPU, and timed later, when
no other process does anything: then its kernels are tuned anew, each configuration timed for a few runs."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import re
import signal
import statistics
import time
import types
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.packages import case as cases

PACKAGES = ("flag_gems", "liger", "conch", "gemlite", "triton_kernels", "fla")
TABLES = (*PACKAGES, "inductor")
STEPS = 8
"""Steps in one measurement, whose median counts."""
TUNING_RUNS = 7
"""Runs of each configuration when a kernel is tuned."""
FLUSH_BYTES = 256 << 20
"""What is written between two steps, more than any cache holds."""
LIBRARIES = re.compile(r"nvjet|sm\d+_|cutlass|ampere_|cudnn|splitK")
"""Kernels of CUDA's libraries have these names, or such as no function of Python has."""
VERSIONS = {"fla": "3.7.1"}
"""Which release of Triton ptxforge claims to be: fla refuses some backward passes on earlier ones, for a
fault of theirs (the other contender is what is installed)."""


def table(package: str) -> list[cases.Case]:
    """The cases of a package."""
    return importlib.import_module(f"benchmarks.packages.{package}").cases()


def serve(pipe: Any, package: str, contender: str, caches: Path, emulated: bool) -> None:
    """Answer requests ``(what, place of the case, seconds)`` until there are no more."""
    signal.signal(signal.SIGALRM, _too_late)
    _environment(package, contender, caches, emulated)
    worker = Worker(package, contender, emulated)
    while True:
        try:
            what, place, seconds = pipe.recv()
        except EOFError:
            os._exit(0)
        answer = worker.answer(what, place, seconds)
        pipe.send(answer)
        if answer.get("broken"):
            os._exit(1)


def _too_late(*_: object) -> None:
    raise TimeoutError("the time of the case is over")


def _environment(package: str, contender: str, caches: Path, emulated: bool) -> None:
    own = caches / contender
    for name in ("TRITON_CACHE_DIR", "PTXFORGE_CACHE_DIR", "XDG_CACHE_HOME", "FLAGGEMS_CACHE_DIR"):
        os.environ[name] = str(own)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(own / "inductor")
    os.environ |= {
        "FLA_CACHE_RESULTS": "0",
        "GEMS_VENDOR": "nvidia",
        "CUDA_CACHE_DISABLE": "1",
        "TEARDOWN_CUPTI": "0",
    }
    os.environ["FLAGGEMS_DB_URL"] = (
        f"sqlite:///{own / f'tuned-{os.getpid()}.db'}"  # choices of this process alone
    )
    own.mkdir(parents=True, exist_ok=True)
    if contender == "ptxforge":
        os.environ["PTXFORGE_TRITON_VERSION"] = VERSIONS.get(package, "3.6.0")
        if emulated:
            os.environ["PTXFORGE_DEVICE"] = "emulator"
            if package in PACKAGES:
                _pretend_a_gpu()
        importlib.import_module("ptxforge.triton_compat").install()


def _pretend_a_gpu() -> None:
    """Packages ask torch about a GPU when they are imported, or launch; and no kernel is tuned in the
    emulator: its first configuration is taken."""
    facts = types.SimpleNamespace(
        name="emulator", major=9, minor=0, multi_processor_count=4, warp_size=32, total_memory=1 << 34,
        L2_cache_size=1 << 26, regs_per_multiprocessor=1 << 16, max_threads_per_multi_processor=2048,
        shared_memory_per_block_optin=227 << 10,
    )  # fmt: skip
    told: dict[str, Any] = {
        "device_count": 1, "current_device": 0, "get_device_name": facts.name,
        "get_device_capability": (9, 0), "get_device_properties": facts,
    }  # fmt: skip
    for name, value in told.items():
        setattr(torch.cuda, name, lambda *_, value=value: value)
    torch.cuda.device = torch.cuda._DeviceGuard = lambda *_: contextlib.nullcontext()
    tuner = importlib.import_module("ptxforge.runtime.autotune").Autotuner
    tuner._tune = lambda self, grid, args, kwargs, named, key: self._pruned(args, kwargs)[0]


class Worker:
    """The cases of a package on one compiler."""

    def __init__(self, package: str, contender: str, emulated: bool):
        self.cases = table(package)
        self.emulated = emulated
        self.data = cases.Data("cpu" if emulated else "cuda", emulated)
        self.tuners: list[Any] = []
        self.timings = 0
        self.prepared = False
        self.package, self.contender = package, contender
        self.compile_time: Any = None

    def answer(self, what: str, place: int, seconds: float) -> dict[str, Any]:
        """What came of a request: ``prepare`` or ``time``."""
        begun = time.perf_counter()
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            self._set_up()
            result = getattr(self, what)(place)
        except BaseException as error:  # also what the package or a signal raises: it is the case's result
            text = f"{type(error).__name__}: {error}"[:2000]
            result = {"error": text, "broken": "CUDA" in text and "out of memory" not in text}
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        if what == "prepare":
            gc.collect()
        if not self.emulated and not result.get("broken"):
            torch.cuda.empty_cache()
        return result | {"seconds": round(time.perf_counter() - begun, 3)}

    def _set_up(self) -> None:
        if self.package == "inductor" and self.compile_time is None:
            compile_time = importlib.import_module("benchmarks.packages.inductor").CompileTime
            self.compile_time = compile_time(self.emulated)
        if self.prepared or self.emulated:
            return
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        tuner = importlib.import_module("triton.runtime.autotuner").Autotuner
        if self.contender == "ptxforge":
            importlib.import_module("ptxforge.runtime.timing").do_bench = self._quick
        else:
            importlib.import_module("triton.testing").do_bench = self._quick
            tuner.do_bench = staticmethod(self._quick)
        made = tuner.__init__

        def noted(tuner: Any, *arguments: Any, **options: Any) -> None:
            made(tuner, *arguments, **options)
            self.tuners.append(tuner)

        tuner.__init__ = noted
        if self.package == "flag_gems":
            # Its entries keep the kernel that was chosen first, past the tuner: for each timing another one.
            entry = importlib.import_module("flag_gems.utils.libentry").LibEntry
            key = entry.key
            entry.key = lambda entry, *arguments: (self.timings, key(entry, *arguments))
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]):
            torch.zeros(1, device="cuda").sum().item()  # the profiler's first start takes long
        self.prepared = True

    def _quick(self, function: Callable[[], Any], *_: Any, quantiles: Any = None, **__: Any) -> Any:
        """Milliseconds of a few runs: the time of each configuration, for both compilers alike. As when a
        step is timed, caches hold nothing; and the GPU has enough to do that no run waits for its launch."""
        function()
        scratch, pairs = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda"), []
        torch.cuda.synchronize()
        for _ in range(TUNING_RUNS):
            scratch.zero_()
            pairs.append((torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)))
            pairs[-1][0].record()
            function()
            pairs[-1][1].record()
        torch.cuda.synchronize()
        runs = sorted(start.elapsed_time(end) for start, end in pairs)
        middle = runs[len(runs) // 2]
        return [middle, runs[1], runs[-2]] if quantiles else middle

    def prepare(self, place: int) -> dict[str, Any]:
        """Call the function for the first time, and with other numbers once more, and compare with torch's
        results."""
        case = self.cases[place]
        torch.manual_seed(7)
        if self.compile_time:
            self.compile_time.take()
        furthest, agrees, calls = 0.0, True, []
        for _ in range(2):
            inputs = case.inputs(self.data)
            copies = cases.widened(case, inputs)
            begun = time.perf_counter()
            results, upstream = cases.step(case, case.run, inputs)
            if not self.emulated:
                torch.cuda.synchronize()
            calls.append(round(time.perf_counter() - begun, 3))
            wanted, _ = cases.step(case, case.reference, copies, upstream)
            distance, fits = cases.distance(case, results, wanted)
            furthest, agrees = max(furthest, distance), agrees and fits
        spent = self.compile_time.take() if self.compile_time else {}
        return {"distance": furthest, "agrees": agrees, "calls": calls} | spent

    def time(self, place: int) -> dict[str, Any]:
        """Milliseconds of the kernels of a step: the median of some steps, and each kernel's part of it."""
        case = self.cases[place]
        torch.manual_seed(7)
        inputs = case.inputs(self.data)
        for tuner in self.tuners:  # what was measured before, other processes disturbed
            tuner.cache = {}
            if hasattr(tuner, "benchmark_table_name"):  # flag_gems', which keep times in a data base
                tuner.benchmark_table_name += "_"
        self.timings += 1
        upstream = None
        for _ in range(3):
            upstream = cases.step(case, case.run, inputs, upstream)[1]
        scratch = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
        torch.cuda.synchronize()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            for _ in range(STEPS):
                scratch.zero_()
                cases.step(case, case.run, inputs, upstream)
            torch.cuda.synchronize()
        return _milliseconds(profile)


def _is_of_the_package(kernel: str) -> bool:
    """Whether a kernel has a name as Python's functions have: those of torch and CUDA's libraries have
    others."""
    return bool(re.fullmatch(r"[\w$]+", kernel)) and not LIBRARIES.match(kernel)


def _milliseconds(profile: Any) -> dict[str, Any]:
    events = profile.profiler.kineto_results.events()
    kernels = sorted(
        (event.start_ns(), event.name(), event.duration_ns() / 1e6)
        for event in events
        if event.device_type() == torch.autograd.DeviceType.CUDA and _is_of_the_package(event.name())
    )
    if not kernels:
        return {"error": "the step has no kernels of the package"}
    each: dict[str, float] = defaultdict(float)
    for _, name, taken in kernels:
        each[name] += taken / STEPS
    count = len(kernels) // STEPS
    whole = sum(each.values())
    if count * STEPS == len(kernels):
        steps = [sum(k[2] for k in kernels[i * count : (i + 1) * count]) for i in range(STEPS)]
        whole = statistics.median(steps)
    return {"milliseconds": whole, "kernels": {name: round(taken, 6) for name, taken in each.items()}}
