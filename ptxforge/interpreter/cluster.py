"""The CTAs of a program that exchange what they have: a thread of Python for each, one of which runs at a
time, in the order of their ranks, from one exchange to the next.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from ptxforge.interpreter.control import combine, results, scanned
from ptxforge.interpreter.registry import interprets
from ptxforge.ir.core import Function
from ptxforge.ir.ops.memory import Barrier
from ptxforge.ir.ops.reduce import ReduceCtas, Scan
from ptxforge.support.errors import InterpreterError


def do_ctas_meet(function: Function) -> bool:
    """Whether the CTAs of a program wait for each other."""
    exchanges = function.walk(ReduceCtas) + tuple(op for op in function.walk(Scan) if op.ranks)
    return bool(exchanges) or any(op.of_cluster for op in function.walk(Barrier))


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
    parts = list(_members(program, op, inputs).values())
    while len(parts) > 1:
        parts = [combine(program, op, one, other) for one, other in zip(parts[::2], parts[1::2])]
    return results(parts[0])


@interprets(Scan)
def scan(program, op, *inputs):
    arrays = scanned(program, op, [np.moveaxis(x, op.axis, 0) for x in inputs])
    if op.ranks:
        last = 0 if op.reverse else -1
        totals = _members(program, op, [x[last] for x in arrays])
        before = [r for r in totals if (r > program.rank if op.reverse else r < program.rank)]
        for rank in sorted(before, reverse=not op.reverse):  # the nearest first
            spread = [np.broadcast_to(total, x.shape) for total, x in zip(totals[rank], arrays)]
            arrays = combine(program, op, spread, arrays)
    return results([np.moveaxis(x, 0, op.axis) for x in arrays])


@interprets(Barrier)
def barrier(program, op):
    if op.of_cluster and program.meetings is not None:
        program.meetings.exchange(program.rank, None)


def _members(program, op, value: Any) -> dict[int, Any]:
    """What the CTAs bring whose ranks differ in the bits ``op.ranks`` alone, in the order of these."""
    said = program.meetings.exchange(program.rank, value)
    return {rank: said[rank] for rank in sorted(said) if not (rank ^ program.rank) & ~op.ranks}
