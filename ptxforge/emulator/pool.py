"""Machines that wait for their next launch: a device's register files, within a budget of bytes."""

from __future__ import annotations

from collections import OrderedDict

from ptxforge.emulator.memory import GlobalMemory, address_of
from ptxforge.emulator.scheduler import Scheduler

BUDGET = 256 << 20
"""Bytes of idle machines that a device keeps; the ones that were used longest ago go first."""


class MachinePool:
    """Idle machines by (kernel, shape of the launch, number of CTAs, how it is watched)."""

    def __init__(self, memory: GlobalMemory):
        self.memory = memory
        self._idle: OrderedDict[tuple, list[Scheduler]] = OrderedDict()
        self._nbytes = 0

    def take(self, key: tuple) -> Scheduler | None:
        """An idle machine of this kind, which then belongs to the caller."""
        found = self._idle.get(key)
        if not found:
            return None
        scheduler = found.pop()
        self._nbytes -= scheduler.machine.nbytes
        if not found:
            del self._idle[key]
        return scheduler

    def give(self, key: tuple, scheduler: Scheduler) -> None:
        """Put a machine back; the oldest ones are dropped when there are too many."""
        self._idle.setdefault(key, []).append(scheduler)
        self._idle.move_to_end(key)
        self._nbytes += scheduler.machine.nbytes
        while self._nbytes > BUDGET and len(self._idle) > 1:
            _, dropped = self._idle.popitem(last=False)
            self._drop(dropped)

    def forget(self, kernel: object) -> None:
        """Drop the machines of one kernel."""
        for key in [key for key in self._idle if key[0] is kernel]:
            self._drop(self._idle.pop(key))

    def _drop(self, schedulers: list[Scheduler]) -> None:
        for scheduler in schedulers:
            self._nbytes -= scheduler.machine.nbytes
            self.memory.unregister(address_of(scheduler.machine.params))
