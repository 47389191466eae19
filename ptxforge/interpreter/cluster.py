"""The CTAs of a program that exchange what they have: a thread of Python for each, one of which runs at a
time, in the order of their ranks, from one exchange to the next.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import Any

from ptxforge.interpreter.control import combine, results
from ptxforge.interpreter.registry import interprets
from ptxforge.ir.ops.reduce import ReduceCtas
from ptxforge.support.errors import InterpreterError


class Meetings:
    """``count`` CTAs, which :meth:`run` runs."""

    def __init__(self, count: int) -> None:
        self._turn = [threading.Semaphore(0) for _ in range(count)]
        self._said: dict[int, dict[int, Any]] = {}
        self._met = [0] * count
        self._failure: BaseException | None = None

    def run(self, work: Callable[[int], None]) -> None:
        """``work(rank)`` for each CTA. Raises what the first one that fails raises."""
        context = contextvars.copy_context
        threads = [
            threading.Thread(target=context().run, args=(self._one, work, rank), daemon=True)
            for rank in range(len(self._turn))
        ]
        for thread in threads:
            thread.start()
        self._turn[0].release()
        for thread in threads:
            thread.join()
        if self._failure is not None:
            raise self._failure

    def exchange(self, rank: int, value: Any) -> dict[int, Any]:
        """What each CTA has brought to this meeting."""
        number, self._met[rank] = self._met[rank], self._met[rank] + 1
        said = self._said.setdefault(number, {})
        said[rank] = value
        self._pass_on(rank)
        self._turn[rank].acquire()
        if self._failure is not None or len(said) < len(self._turn):
            raise InterpreterError("a CTA of the program has ended where another one waits for it")
        return said

    def _pass_on(self, rank: int) -> None:
        self._turn[(rank + 1) % len(self._turn)].release()

    def _one(self, work: Callable[[int], None], rank: int) -> None:
        self._turn[rank].acquire()
        try:
            if self._failure is None:
                work(rank)
        except BaseException as fault:
            self._failure = self._failure or fault
        self._pass_on(rank)


@interprets(ReduceCtas)
def reduce_ctas(program, op, *inputs):
    said = program.meetings.exchange(program.rank, inputs)
    members = [rank for rank in sorted(said) if not (rank ^ program.rank) & ~op.ranks]
    parts = [said[rank] for rank in members]
    while len(parts) > 1:
        parts = [combine(program, op, one, other) for one, other in zip(parts[::2], parts[1::2])]
    return results(parts[0])
