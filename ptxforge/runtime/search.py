"""One search for the fastest configuration: compile ahead and run in turn, or let workers do both.

Every configuration runs a few times, one after the other and not each for a long while, so that a clock
that goes down or a neighbour on the machine meets all of them alike. After each round those that are clearly
slower leave: the slower half, except those that may in truth be within :data:`TIE` of the best, as far as the
spread of their times tells; the rest run twice as often. What is left within :data:`TIE` at the end is a tie,
and a tie goes to the configuration that stands first, so that two searches agree; where the spread leaves
open which one that is, those that it depends on run on for a while.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import contextvars
import math
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from ptxforge.driver.cuda import CudaDevice
from ptxforge.driver.device_array import DeviceArray
from ptxforge.runtime.config import Config
from ptxforge.runtime.devices import default_device, to_device
from ptxforge.runtime.precompile import shows_progress
from ptxforge.runtime.resources import without_advice
from ptxforge.runtime.timing import Session
from ptxforge.support.errors import (
    AutotunerError,
    CompileTimeAssertionError,
    DeviceError,
    OutOfResourcesError,
    PtxforgeError,
)

if TYPE_CHECKING:
    from ptxforge.runtime.autotune import Autotuner


TIE = 0.02
"""Medians that differ by less than this part are equal."""
FIRST_RUNS, MOST_RUNS, ROUNDS = 3, 64, 5
DOUBT, MORE_ROUNDS = 2.5, 4
"""So many standard errors keep a configuration in; so often the last ones run on while the choice is open."""
UNSEEN = 0.01
"""The part by which single times may spread though the first few of them agree."""
SHORT = 0.5
"""Milliseconds below which a kernel runs twice at a time."""
ROUND_MILLISECONDS = 4.0
"""What the first round may take for each configuration; slower kernels run less often, but once."""


class Timer:
    """What measures one run: :class:`ptxforge.runtime.timing.Session`, or a test's."""

    def time(self, before: Callable[[], Any], fn: Callable[[], Any], after: Callable[[Any], None]) -> float:
        """Milliseconds of ``fn``."""
        raise NotImplementedError


@attrs.define(eq=False)
class Candidate:
    """One configuration in the search: how it is run, its ``times`` (milliseconds), the ``error`` for which
    it cannot work, and whether it left (``is_out``) because others are faster."""

    config: Any
    before: Callable[[], Any]
    run: Callable[[], Any]
    after: Callable[[Any], None]
    times: list[float] = attrs.Factory(list)
    error: Exception | None = None
    is_out: bool = False

    @property
    def median(self) -> float:
        """The median of its times; infinity before the first."""
        return statistics.median(self.times) if self.times else float("inf")

    @property
    def typical(self) -> float:
        """The mean of the middle half of its times; infinity before the first. Devices tick (by half a
        microsecond, where that was measured), and a median jumps from tick to tick where this moves."""
        if not self.times:
            return float("inf")
        quarter = len(self.times) // 4
        return statistics.fmean(sorted(self.times)[quarter : len(self.times) - quarter])

    @property
    def uncertainty(self) -> float:
        """The standard error of :attr:`typical`, by the distance between the quartiles (1.35 standard
        deviations of a normal distribution); infinity before the second run."""
        count = len(self.times)
        if count < 2:
            return float("inf")
        ordered = sorted(self.times)
        quarter = count // 4
        return (ordered[-1 - quarter] - ordered[quarter]) / 1.35 / count**0.5

    @property
    def figures(self) -> list[float]:
        """Median, 20 % and 80 % of its times."""
        if not self.times:
            return [float("inf")] * 3
        ordered = sorted(self.times)
        places = (round(part * (len(ordered) - 1)) for part in (0.2, 0.8))
        return [self.median, *(ordered[place] for place in places)]

    def measure(self, timer: Timer, count: int) -> None:
        """Run ``count`` times. What cannot work on this device is noted, other errors are raised."""
        try:
            self.times += [timer.time(self.before, self.run, self.after) for _ in range(count)]
        except Exception as error:
            if not cannot_work(error):
                raise
            self.error = error
            self.times.clear()


def cannot_work(error: Exception) -> bool:
    """Whether an error says that a configuration does not fit, and not that something is wrong: too much
    shared memory, a static assertion, PTX that the assembler refuses."""
    if isinstance(error, (OutOfResourcesError, CompileTimeAssertionError)):
        return True
    return isinstance(error, DeviceError) and bool(error.log)  # else the kernel ran, and failed


def _measure_in_turn(left: list[Candidate], timer: Timer, runs: int, deadline: float | None) -> bool:
    """Run each ``runs`` times, the candidates in turn; whether there was time for all.

    Short kernels run twice at a time: every other launch of such kernels may take longer, whichever kernel it
    is, and of an even number of candidates that run once at a time half would meet the slow launches always,
    the others never.
    """
    in_pairs = [candidate.median < SHORT for candidate in left]
    for _ in range(-(-runs // 2) if all(in_pairs) else runs):
        for candidate, is_pair in zip(left, in_pairs, strict=True):
            if _is_over(deadline):
                return False
            candidate.measure(timer, 2 if is_pair else 1)
    return True


def play(
    candidates: Sequence[Candidate],
    timer: Timer,
    deadline: float | None = None,
    eliminates: bool = True,
    on_run: Callable[[Candidate], None] = lambda candidate: None,
) -> None:
    """Fill the candidates' times. ``deadline`` is of ``time.monotonic``; without ``eliminates`` nobody leaves
    before the last round. ``KeyboardInterrupt`` is passed on, with the times so far kept."""
    for candidate in candidates:
        if _is_over(deadline) and any(other.times for other in candidates):
            return
        candidate.measure(timer, 2)  # the first one loads, and warms up
        del candidate.times[:1]
        on_run(candidate)
    left = [candidate for candidate in candidates if candidate.times]
    runs = FIRST_RUNS
    for number in range(ROUNDS):
        if not left or (eliminates and number and len(left) == 1):
            return
        if not _measure_in_turn(left, timer, _affordable(left, runs), deadline):
            return
        left = [candidate for candidate in left if candidate.times]
        left = _only(survivors(left), left) if eliminates else left
        runs = min(2 * runs, MOST_RUNS)
    if eliminates:
        _settle(left, timer, deadline)


def _settle(left: list[Candidate], timer: Timer, deadline: float | None) -> None:
    """Run on those that leave the choice open, as long as that is short."""
    for _ in range(MORE_ROUNDS):
        left = [candidate for candidate in left if candidate.times]
        open_ones = undecided(left)
        runs = _affordable(open_ones, MOST_RUNS, least=0) if open_ones else 0
        if not runs:
            return
        left = _only(open_ones, left)
        if not _measure_in_turn(left, timer, runs, deadline):
            return


def _only(kept: list[Candidate], left: list[Candidate]) -> list[Candidate]:
    """``kept``, after the others have left. Who stays was measured as often as each other, in turn; who is
    out met other clocks, and is compared with nobody any more."""
    for candidate in left:
        candidate.is_out = candidate not in kept
    return kept


def _affordable(left: list[Candidate], runs: int, least: int = 1) -> int:
    """How often each may run in a round."""
    typical = statistics.median(candidate.median for candidate in left)
    most = max(least, int(ROUND_MILLISECONDS * runs / FIRST_RUNS / max(typical, 1e-3)))
    return min(runs, most)


def survivors(left: list[Candidate]) -> list[Candidate]:
    """The faster half, and whoever may in truth be as fast as the best; in the order in which they stand."""
    ranked = sorted(left, key=lambda candidate: candidate.typical)
    if not ranked:
        return []
    best = ranked[0]
    middle = ranked[(len(ranked) - 1) // 2].typical
    unseen = UNSEEN * best.typical / len(best.times) ** 0.5
    return [
        c for c in left if c.typical <= max(middle, _limit(best) + DOUBT * (_doubt(c, best) + unseen))
    ]


def undecided(left: list[Candidate]) -> list[Candidate]:
    """Those among which more runs could decide which is the first of the ties: the best, those of which it is
    open whether they are a tie, and the first that surely is one; empty when the choice is clear."""
    if len(left) < 2:
        return []
    best = min(left, key=lambda candidate: candidate.typical)
    limit, is_open, kept = _limit(best), False, [best]
    for candidate in left:
        if candidate is best:
            break
        if abs(candidate.typical - limit) < DOUBT * _doubt(candidate, best):
            is_open = True
            kept.append(candidate)
        elif candidate.typical <= limit:
            kept.append(candidate)
            break
    return [candidate for candidate in left if candidate in kept] if is_open else []


def _limit(best: Candidate) -> float:
    return best.typical * (1 + TIE)


def _doubt(candidate: Candidate, best: Candidate) -> float:
    """The standard error of the difference of two."""
    return (candidate.uncertainty**2 + best.uncertainty**2) ** 0.5


def winner(candidates: Sequence[Candidate]) -> Candidate | None:
    """The first of those that stayed to the end and that nobody beats by more than :data:`TIE`; ``None`` when
    none was measured."""
    measured = [candidate for candidate in candidates if candidate.times and not candidate.is_out]
    if not measured:
        return None
    most = max(len(candidate.times) for candidate in measured)
    finalists = [candidate for candidate in measured if 2 * len(candidate.times) >= most]
    best = min(candidate.typical for candidate in finalists)
    return next(candidate for candidate in finalists if candidate.typical <= best * (1 + TIE))


def _is_over(deadline: float | None) -> bool:
    return deadline is not None and time.monotonic() > deadline


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
                play(ready, timer, self._deadline, eliminates, step)
        finally:
            won = winner(candidates)
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
    limit = best if math.isinf(best) else best * (1 + TIE)
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
