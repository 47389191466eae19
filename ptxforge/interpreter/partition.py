"""Groups of warps that run different code, and CTAs of a program that exchange what they have: a thread of
Python for each, one of which runs at a time.

CTAs take turns in the order of their ranks, from one exchange to the next. A group of warps runs until it
waits for something that has not happened, then the other one does. So a program takes the same course
whenever it is run, and where both groups wait, nothing will ever happen.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import Any

from ptxforge.interpreter.control import combine, results
from ptxforge.interpreter.registry import interprets
from ptxforge.ir.ops.partition import Partition
from ptxforge.ir.ops.reduce import ReduceCtas
from ptxforge.support.errors import InterpreterError


@interprets(Partition)
def run_partition(program, op):
    program.turns = Turns()
    try:
        values = program.turns.run(
            lambda: program.block(op.consumers, ()), lambda: program.block(op.producer, ())
        )
    finally:
        program.turns = None
    return results(values)


class _Abandoned(BaseException):
    """Ends the other group's thread when the first one has failed."""


class Turns:
    """Two groups: number 0 is the thread that makes this object and calls :meth:`run`."""

    def __init__(self) -> None:
        self._may_run = [threading.Semaphore(0), threading.Semaphore(0)]
        self._own = threading.local()
        self._failure: BaseException | None = None
        self._is_abandoned = False
        self._alive = {0, 1}
        self.waiting: set[int] = set()
        """Who has waited in vain since something happened last."""

    def run(self, first: Callable[[], Any], second: Callable[[], Any]) -> Any:
        """Run both to their ends; gives what the first one returns. Raises what one of them raises."""
        self._own.number = 0
        context = contextvars.copy_context()
        thread = threading.Thread(target=context.run, args=(self._other, second), daemon=True)
        thread.start()
        try:
            found = first()
            self._end(0)
        finally:
            self._is_abandoned = True
            self._may_run[1].release()
            thread.join()
        return found

    def pass_on(self, program: Any) -> bool:
        """Let the other group run until it waits or ends; False where it waits, too, or has ended."""
        own, current = self._own.number, program.current
        self.waiting.add(own)
        if self.waiting >= self._alive:
            return False
        self._hand_over(own)
        program.current = current
        return True

    def _hand_over(self, own: int) -> None:
        self._may_run[1 - own].release()
        self._may_run[own].acquire()
        if own and self._is_abandoned:
            raise _Abandoned
        if not own and self._failure is not None:
            raise self._failure

    def _end(self, own: int) -> None:
        """A group has come to its end; the other one goes on to its own."""
        self._alive.discard(own)
        self.waiting.clear()
        if own == 0 and 1 in self._alive:
            self._hand_over(own)

    def _other(self, second: Callable[[], Any]) -> None:
        self._own.number = 1
        self._may_run[1].acquire()
        try:
            if not self._is_abandoned:
                second()
                self._end(1)
        except _Abandoned:
            return
        except (Exception, KeyboardInterrupt) as fault:
            self._failure = fault
            self._alive.discard(1)
        self._may_run[0].release()


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
