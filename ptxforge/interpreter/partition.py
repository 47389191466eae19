"""Groups of warps that run different code: a thread of Python for each, one of which runs at a time.

A group runs until it waits for something that has not happened, then the other one does. So a program takes
the same course whenever it is run, and where both groups wait, nothing will ever happen.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import Any

from ptxforge.interpreter.control import results
from ptxforge.interpreter.registry import interprets
from ptxforge.ir.ops.partition import Partition


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
