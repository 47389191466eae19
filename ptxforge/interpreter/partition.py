"""Groups of warps that run different code, or the same each for itself: a thread of Python for each, one of
which runs at a time.

A group runs until it waits for something that has not happened, then the next one does. So a program takes
the same course whenever it is run, and where all groups wait, nothing will ever happen.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ptxforge.interpreter.control import results
from ptxforge.interpreter.registry import interprets
from ptxforge.ir.ops.partition import GetConsumerGroup, Partition
from ptxforge.ir.warps import warps_of


@interprets(Partition)
def run_partition(program, op):
    blocks = [op.consumers] * warps_of(op.function).groups + [op.producer]
    program.turns = Turns()
    try:
        values = program.turns.run(program, [partial(program.block, block, ()) for block in blocks])
    finally:
        program.turns = None
    return results(values)


@interprets(GetConsumerGroup)
def get_consumer_group(program, op):
    return np.int32(program.turns.number)


class _Abandoned(BaseException):
    """Ends the other groups' threads when one has failed."""


class Turns:
    """Groups that take turns: number 0 is the thread that calls :meth:`run`."""

    def __init__(self) -> None:
        self._may_run: list[threading.Semaphore] = []
        self._own = threading.local()
        self._failure: BaseException | None = None
        self._is_abandoned = False
        self._alive: set[int] = set()
        self.waiting: set[int] = set()
        """Who has waited in vain since something happened last."""

    @property
    def number(self) -> int:
        """Of the group that runs."""
        return self._own.number

    def run(self, program: Any, parts: list[Callable[[], Any]]) -> Any:
        """Run all to their ends; gives what the first one returns. Raises what one of them raises."""
        self._own.number = 0
        self._alive = set(range(len(parts)))
        self._may_run = [threading.Semaphore(0) for _ in parts]
        outside = dict(program.values)
        threads = [
            threading.Thread(
                target=contextvars.copy_context().run, args=(self._other, program, outside, number, part),
                daemon=True,
            )
            for number, part in enumerate(parts)
            if number
        ]  # fmt: skip
        for thread in threads:
            thread.start()
        try:
            found = parts[0]()
            self._end(program, 0)
        finally:
            self._is_abandoned = True
            for semaphore in self._may_run:
                semaphore.release()
            for thread in threads:
                thread.join()
        return found

    def pass_on(self, program: Any) -> bool:
        """Let the next group run until it waits or ends; False where all others wait, too, or have ended."""
        own = self.number
        self.waiting.add(own)
        if self.waiting >= self._alive:
            return False
        self._hand_over(program, own)
        return True

    def _hand_over(self, program: Any, own: int) -> None:
        """Let the next group run that does not wait, in a circle; come back when it is this one's turn."""
        ready = self._alive - self.waiting
        following = min(ready, key=lambda number: (number <= own, number), default=0)
        state = program.current, program.values
        self._may_run[following].release()
        self._may_run[own].acquire()
        if own and self._is_abandoned:
            raise _Abandoned
        if not own and self._failure is not None:
            raise self._failure  # the operation that failed stays the current one
        program.current, program.values = state

    def _end(self, program: Any, own: int) -> None:
        """A group has come to its end; the others go on to their own."""
        self._alive.discard(own)
        self.waiting.clear()
        if own == 0 and self._alive:
            self._hand_over(program, own)

    def _other(self, program: Any, outside: dict, number: int, part: Callable[[], Any]) -> None:
        self._own.number = number
        self._may_run[number].acquire()
        try:
            if not self._is_abandoned:
                program.values = dict(outside)
                part()
                self._end(program, number)
        except _Abandoned:
            return
        except (Exception, KeyboardInterrupt) as fault:
            self._failure = fault
            self._alive.clear()
        self._may_run[min(self._alive, default=0)].release()
