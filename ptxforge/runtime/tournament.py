"""Which of many configurations is the fastest, found by short runs in turn.

Every configuration runs a few times, one after the other and not each for a long while, so that a clock
that goes down or a neighbour on the machine meets all of them alike. After each round those that are clearly
slower leave: the slower half, except those that may in truth be within :data:`TIE` of the best, as far as the
spread of their times tells; the rest run twice as often. What is left within :data:`TIE` at the end is a tie,
and a tie goes to the configuration that stands first, so that two searches agree; where the spread leaves
open which one that is, those that it depends on run on for a while.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from ptxforge.support.errors import CompileTimeAssertionError, DeviceError, OutOfResourcesError

TIE = 0.02
"""Medians that differ by less than this part are equal."""
FIRST_RUNS, MOST_RUNS, ROUNDS = 3, 64, 5
DOUBT, MORE_ROUNDS = 2.0, 4
"""So many standard errors keep a configuration in; so often the last ones run on while the choice is open."""
ROUND_MILLISECONDS = 4.0
"""What the first round may take for each configuration; slower kernels run less often, but once."""


class Timer:
    """What measures one run: :class:`ptxforge.runtime.timing.Session`, or a test's."""

    def time(self, before: Callable[[], Any], fn: Callable[[], Any], after: Callable[[Any], None]) -> float:
        """Milliseconds of ``fn``."""
        raise NotImplementedError


@attrs.define(eq=False)
class Candidate:
    """One configuration in the search: how it is run, its ``times`` (milliseconds), or why it is out."""

    config: Any
    before: Callable[[], Any]
    run: Callable[[], Any]
    after: Callable[[Any], None]
    times: list[float] = attrs.Factory(list)
    error: Exception | None = None

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
        for _ in range(_affordable(left, runs)):
            for candidate in left:
                if _is_over(deadline):
                    return
                candidate.measure(timer, 1)
        left = [candidate for candidate in left if candidate.times]
        left = survivors(left) if eliminates else left
        runs = min(2 * runs, MOST_RUNS)
    if eliminates:
        _settle(left, timer, deadline)


def _settle(left: list[Candidate], timer: Timer, deadline: float | None) -> None:
    """Run on those that leave the choice open, as long as that is short."""
    for _ in range(MORE_ROUNDS):
        left = undecided([candidate for candidate in left if candidate.times])
        for _ in range(_affordable(left, MOST_RUNS, least=0) if left else 0):
            for candidate in left:
                if _is_over(deadline):
                    return
                candidate.measure(timer, 1)


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
    return [c for c in left if c.typical <= middle or c.typical <= _limit(best) + DOUBT * _doubt(c, best)]


def undecided(left: list[Candidate]) -> list[Candidate]:
    """Those that more runs could make the first of the ties, or keep from being it, with the best; empty when
    the choice is clear."""
    if len(left) < 2:
        return []
    best = min(left, key=lambda candidate: candidate.typical)
    limit, chosen = _limit(best), winner(left)
    contenders = left[: left.index(chosen) + 1]
    open_ones = [c for c in contenders if c is not best and abs(c.typical - limit) < DOUBT * _doubt(c, best)]
    return [c for c in left if c is best or c in open_ones] if open_ones else []


def _limit(best: Candidate) -> float:
    return best.typical * (1 + TIE)


def _doubt(candidate: Candidate, best: Candidate) -> float:
    """The standard error of the difference of two."""
    return (candidate.uncertainty**2 + best.uncertainty**2) ** 0.5


def winner(candidates: Sequence[Candidate]) -> Candidate | None:
    """The first of those that nobody beats by more than :data:`TIE`; ``None`` when none was measured. Those
    that left early have few times, and count only when they would win by more than that."""
    measured = [candidate for candidate in candidates if candidate.times]
    if not measured:
        return None
    most = max(len(candidate.times) for candidate in measured)
    finalists = [candidate for candidate in measured if 2 * len(candidate.times) >= most]
    best = min(candidate.typical for candidate in finalists)
    return next(candidate for candidate in finalists if candidate.typical <= best * (1 + TIE))


def _is_over(deadline: float | None) -> bool:
    return deadline is not None and time.monotonic() > deadline
