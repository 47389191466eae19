"""One search for the best configuration: compile ahead, run in turn, or let workers do both."""

from __future__ import annotations

import concurrent.futures
import contextlib
import contextvars
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from ptxforge.driver.cuda import CudaDevice
from ptxforge.driver.device_array import DeviceArray
from ptxforge.runtime import tournament
from ptxforge.runtime.config import Config
from ptxforge.runtime.devices import default_device, to_device
from ptxforge.runtime.precompile import shows_progress
from ptxforge.runtime.resources import without_advice
from ptxforge.runtime.timing import Session
from ptxforge.runtime.tournament import Candidate, cannot_work
from ptxforge.support.errors import AutotunerError, PtxforgeError

if TYPE_CHECKING:
    from ptxforge.runtime.autotune import Autotuner

STRATEGIES = ("halving", "exhaustive", "random")
_QUANTILES = (0.5, 0.2, 0.8)
_LOADERS = 8
_FINALISTS = 3
_WORKER_RUNS, _WORKER_SECONDS = 20, 0.05


class Search:
    """A search for :class:`Autotuner` with the arguments of one launch."""

    def __init__(self, tuner: Autotuner, grid: Any, args: tuple, kwargs: dict[str, Any]):
        self._tuner, self._grid, self._args, self._kwargs = tuner, grid, args, kwargs
        self.failures: dict[Config, Exception] = {}
        self.best: Config | None = None
        self.has_run = False
        self.is_alone = True
        self._deadline = None if tuner.budget is None else time.monotonic() + tuner.budget

    def run(self, configs: list[Config], is_alone: bool = True) -> tuple[dict[Config, list[float]], bool]:
        """Figures (median, 20 %, 80 %; milliseconds) by configuration, and whether the search was not
        interrupted. ``best`` is set where runs in turn have decided, and these are all that there are
        (``is_alone``)."""
        tuner = self._tuner
        self.is_alone = is_alone
        if not configs:
            return {}, True
        if tuner.strategy == "random":
            configs = random.Random(tuner.__name__).sample(configs, len(configs))
        candidates = [self._candidate(config) for config in configs]
        complete = True
        with without_advice(), _progress(tuner.__name__, len(candidates)) as step:
            try:
                self._measure(candidates, step)
            except KeyboardInterrupt:
                if not any(candidate.times for candidate in candidates):
                    raise
                complete = False
        self.failures = {c.config: c.error for c in candidates if c.error is not None}
        return {c.config: c.figures for c in candidates if c.times}, complete

    def _measure(self, candidates: list[Candidate], step: Callable[[Candidate], None]) -> None:
        tuner = self._tuner
        if tuner.bench is not None:
            self._each_by_itself(candidates, tuner.bench, step)
            return
        if tuner.executor is not None:
            candidates = self._by_workers(candidates, tuner.executor, step)
        self.has_run = True
        try:
            with Session(default_device()) as timer, self._loaded(candidates) as ready:
                eliminates = tuner.strategy != "exhaustive"
                tournament.play(ready, timer, self._deadline, eliminates, step)
        finally:
            won = tournament.winner(candidates)
            if won is not None and self.is_alone:
                self.best = won.config

    def _each_by_itself(
        self, candidates: list[Candidate], bench: Callable, step: Callable[[Candidate], None]
    ) -> None:
        for candidate in candidates:
            self.has_run = True
            try:
                candidate.times = list(bench(_whole(candidate), quantiles=_QUANTILES))
            except PtxforgeError as error:
                if not cannot_work(error):
                    raise
                candidate.error = error
            step(candidate)

    # Compiling ahead

    @contextmanager
    def _loaded(self, candidates: list[Candidate]) -> Iterator[list[Candidate]]:
        """The candidates, compiled one after the other and assembled side by side: the assembler works
        without the interpreter's lock, and takes longer."""
        changes_arguments = any(candidate.config.pre_hook for candidate in candidates)
        if changes_arguments or not isinstance(default_device(), CudaDevice):
            yield candidates  # each is compiled when it runs
            return
        with concurrent.futures.ThreadPoolExecutor(min(_LOADERS, len(candidates))) as pool:
            context = contextvars.copy_context
            waiting = [(c, pool.submit(context().run, self._load, c.config)) for c in candidates]
            for candidate, future in waiting:
                error = future.exception()
                if error is not None and not cannot_work(error):
                    raise error
                candidate.error = error
        yield [candidate for candidate in candidates if candidate.error is None]

    def _load(self, config: Config) -> None:
        self._tuner.fn.warmup(*self._args, grid=self._grid, **self._kwargs | config.all_kwargs())

    # Running

    def _candidate(self, config: Config) -> Candidate:
        tuner = self._tuner
        chosen = self._kwargs | config.all_kwargs()
        everything = tuner.named(self._args, self._kwargs) | config.all_kwargs()
        failed: list[Exception] = []

        def before() -> dict[str, Any]:
            if config.pre_hook is not None:
                config.pre_hook(everything)
            return tuner._before(everything)

        def run() -> None:
            try:
                tuner.fn.run(*self._args, grid=self._grid, warmup=False, **chosen)
            except Exception as error:
                failed.append(error)
                raise

        def after(saved: dict[str, Any]) -> None:
            tuner._after(everything, saved, failed.pop() if failed else None)

        return Candidate(config, before, run, after)

    # Workers

    def _by_workers(
        self, candidates: list[Candidate], executor: concurrent.futures.Executor, step: Callable
    ) -> list[Candidate]:
        """Let workers compile and measure; the few that were fastest there, to be compared here in turn."""
        tuner = self._tuner
        if any(tuner.user_hooks) or any(candidate.config.pre_hook for candidate in candidates):
            raise AutotunerError(f"'{tuner.__name__}' has hooks, which cannot run in an executor's workers")
        futures = {}
        for candidate in candidates:
            chosen = self._kwargs | candidate.config.all_kwargs()
            grid = self._grid
            if callable(grid):
                grid = grid(tuner.named(self._args, chosen))
            args, options = tuple(map(_packed, self._args)), {k: _packed(v) for k, v in chosen.items()}
            futures[executor.submit(measure_here, tuner.fn, grid, args, options)] = candidate
        for future in concurrent.futures.as_completed(futures):
            candidate = futures[future]
            candidate.times, text = future.result()
            candidate.error = AutotunerError(text) if text else None
            step(candidate)
        measured = sorted((c for c in candidates if c.times), key=lambda c: c.median)[:_FINALISTS]
        finalists = [candidate for candidate in candidates if candidate in measured]
        for candidate in finalists:
            candidate.times.clear()
        return finalists


def measure_here(kernel: Any, grid: Any, args: tuple, chosen: dict[str, Any]) -> tuple[list[float], str]:
    """What a worker does for one configuration: milliseconds of some runs, or why it cannot work."""
    args, chosen = tuple(map(_unpacked, args)), {name: _unpacked(value) for name, value in chosen.items()}

    def run() -> None:
        kernel.run(*args, grid=grid, warmup=False, **chosen)

    candidate = Candidate(None, lambda: None, run, lambda kept: None)
    end = time.monotonic() + _WORKER_SECONDS
    with Session(default_device()) as timer:
        candidate.measure(timer, 1)
        candidate.times.clear()
        while candidate.error is None:
            candidate.measure(timer, 1)
            if len(candidate.times) >= _WORKER_RUNS or time.monotonic() > end:
                break
    return candidate.times, str(candidate.error or "")


@attrs.frozen
class _Shipped:
    """An array of a device on its way to a worker, which puts it onto its own device."""

    values: np.ndarray


def _packed(value: Any) -> Any:
    return _Shipped(value.numpy()) if isinstance(value, DeviceArray) else value


def _unpacked(value: Any) -> Any:
    return to_device(value.values) if isinstance(value, _Shipped) else value


def _whole(candidate: Candidate) -> Callable[[], None]:
    """A run with what belongs before and after it, for a measurement that knows nothing of these."""

    def once() -> None:
        kept = candidate.before()
        try:
            candidate.run()
        finally:
            candidate.after(kept)

    return once


def first_of_ties(timings: dict[Config, Sequence[float]]) -> Config:
    """The first configuration that no other beats by more than a tie."""
    best = min(figures[0] for figures in timings.values())
    limit = best if math.isinf(best) else best * (1 + tournament.TIE)
    return next(config for config, figures in timings.items() if figures[0] <= limit)


@contextmanager
def _progress(name: str, count: int) -> Iterator[Callable[[Candidate], None]]:
    """A line on the terminal with the best so far; none where nobody looks."""
    if not shows_progress():
        yield lambda candidate: None
        return
    from rich.console import Console
    from rich.progress import Progress

    best = [math.inf]
    with contextlib.ExitStack() as stack:
        bar = stack.enter_context(Progress(console=Console(stderr=True), transient=True))
        task = bar.add_task(f"tuning {name}", total=count)

        def step(candidate: Candidate) -> None:
            best[0] = min(best[0], candidate.median)
            bar.update(task, advance=1, description=f"tuning {name}: best {best[0]:.4g} ms")

        yield step
