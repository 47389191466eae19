"""Asynchronous groups: work that was issued, committed to a numbered group, and lands when somebody waits for
it.

cp.async, bulk stores and wgmma share the scheme: each *agent* (a thread, or a warpgroup) counts its commits;
work that is issued belongs to the group of the next commit; `wait_group N` makes all groups but the newest N
complete. On the emulator, work lands exactly then: as late as PTX allows, so that a missing wait shows as
wrong data.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

import numpy as np


class Work(Protocol):
    """What lands. `chosen` are positions in the record's agents; None for all of them."""

    def land(self, chosen: np.ndarray | None) -> None: ...


class _Record:
    """Work of some agents: their indices (None: all), their group numbers, and which have not landed."""

    __slots__ = ("agents", "groups", "open", "work")

    def __init__(self, agents: np.ndarray | None, groups: np.ndarray, work: Work):
        self.agents, self.groups, self.work = agents, groups, work
        self.open: np.ndarray | None = None


class Groups:
    """The groups of one kind of work on one machine."""

    def __init__(self, agents: int):
        self.commits = np.zeros(agents, np.int64)
        self.records: deque[_Record] = deque()

    def reset(self) -> None:
        self.commits.fill(0)
        self.records.clear()

    def issue(self, agents: np.ndarray | None, work: Work) -> None:
        """Add work of `agents` (indices; None: every agent) to the group that their next commit closes."""
        groups = self.commits if agents is None else self.commits[agents]
        self.records.append(_Record(agents, groups.copy(), work))

    def commit(self, agents: np.ndarray | None) -> None:
        """`agents`: a bool array over all agents, or indices, or None for every agent."""
        if agents is None:
            self.commits += 1
        else:
            self.commits[agents] += 1

    def wait(self, agents: np.ndarray | None, pending: int, uncommitted: bool = False) -> bool:
        """Land all but the newest `pending` groups of `agents` (a bool array; None: every agent).

        With `uncommitted` also what no commit has closed yet. Returns whether anything landed.
        """
        if not self.records:
            return False
        limits = self.commits + (1 if uncommitted else -pending)
        if agents is not None:
            limits = np.where(agents, limits, -1)
        landed = False
        kept: deque[_Record] = deque()
        for record in self.records:
            done = record.groups < (limits if record.agents is None else limits[record.agents])
            if record.open is not None:
                done &= record.open
            if done.any():
                landed = True
                self._land(record, done)
            if record.open is None or record.open.any():
                kept.append(record)
        self.records = kept
        return landed

    @staticmethod
    def _land(record: _Record, done: np.ndarray) -> None:
        if record.open is None and done.all():
            record.work.land(None)
            record.open = np.zeros(1, bool)
            return
        record.work.land(np.flatnonzero(done))
        record.open = ~done if record.open is None else record.open & ~done
