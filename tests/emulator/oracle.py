"""An independent judge of address conflicts: every access of a launch is traced, then all pairs are compared.

It shares nothing with the emulator's checkers but the events that they see. Every thread has a vector clock
of *segments*: what it does between two synchronisations is one segment, and its clock says which segments of
the other threads happened before the present. A bulk copy or a wgmma is an *agent* of its own, with one
segment. Two accesses of the same bytes, at least one of them a write and not both atomic, conflict unless one
happened before the other. An asynchronous copy lasts from its issue until somebody has waited for it.

    trace = Trace(); with trace.recording(): launch; trace.conflicts()
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from ptxforge.emulator import launch
from ptxforge.emulator.access import ATOMIC, READ
from ptxforge.emulator.async_copy import BulkCopies, CopyGroups
from ptxforge.emulator.mbarrier import MBarriers
from ptxforge.emulator.memory import ORIGIN, address_of
from ptxforge.emulator.wgmma import Wgmma

AGENTS = 4096
"""Columns of a clock that are kept for asynchronous copies and products."""

NEVER = 1 << 30
SHARED = 1 << 60
"""Added to shared addresses, which are numbered over the whole grid."""

WARPGROUP = 128

_MIX = np.random.default_rng(0).integers(1 << 61, 1 << 62, 12) | 1


@dataclass(frozen=True)
class Conflict:
    """Two accesses of the same bytes that nothing orders; ``kind`` is race, global-race or uninitialised."""

    kind: str
    lines: frozenset[int]


class Trace:
    """The accesses of all launches while it records."""

    def __init__(self) -> None:
        self.launches: list[Launch] = []

    @contextmanager
    def recording(self) -> Iterator[Trace]:
        attach, begin = launch.Watch.attach, launch.Observers.begin

        def attach_with_recorder(watch: launch.Watch, machine) -> None:
            attach(watch, machine)
            machine.watchers.append(_Recorder(self, machine))

        def begin_launch(observers: launch.Observers, ctas: int) -> None:
            begin(observers, ctas)
            self.launches.append(Launch(ctas))

        launch.Watch.attach, launch.Observers.begin = attach_with_recorder, begin_launch
        try:
            yield self
        finally:
            launch.Watch.attach, launch.Observers.begin = attach, begin

    def conflicts(self) -> set[Conflict]:
        return set().union(*(one.conflicts() for one in self.launches))

    def room(self, line: int, space: str) -> int | None:
        """How many bytes the accesses of a PTX line to global or shared memory can move up until the highest
        one begins at the end of its allocation (of shared memory: its CTA's). None when there were none.

        A copy's access to its mbarrier does not count: it has an address of its own.
        """
        found = [
            (event.atomic, one.end_of(event) - int(event.address.max()))
            for one in self.launches
            for event in one.events
            if event.line == line
            and event.address.size
            and (int(event.address.max()) >= SHARED) == (space == "shared")
        ]
        return min(found, default=(False, None))[1]


@dataclass
class _Stamp:
    """When something happened: per access the actor, its segment, its clock (a row) and the place in the
    trace.
    """

    actor: np.ndarray
    segment: np.ndarray
    clock: np.ndarray
    serial: np.ndarray

    def rows(self, chosen: slice | list[int]) -> _Stamp:
        return _Stamp(self.actor[chosen], self.segment[chosen], self.clock[chosen], self.serial[chosen])


def _joined(entries: list[tuple[_Stamp, int]]) -> _Stamp:
    """One row of each stamp. Neighbours are mostly of one stamp, which gives them together."""
    parts = []
    for _, run in itertools.groupby(entries, lambda entry: id(entry[0])):
        stamps, rows = zip(*run)
        parts.append(stamps[0].rows(list(rows)))
    if len(parts) == 1:
        return parts[0]
    columns = [(one.actor, one.segment, one.clock, one.serial) for one in parts]
    return _Stamp(*(np.concatenate(column) for column in zip(*columns)))


@dataclass
class _Event:
    line: int
    kind: str
    atomic: bool
    address: np.ndarray
    nbytes: int
    begin: _Stamp
    end: _Stamp
    benign: bool = False
    """All writers of the instruction wrote the same values where they met."""


class Launch:
    """Clocks and events of one launch."""

    def __init__(self, ctas: int):
        self.ctas, self.threads = ctas, 0
        self.events: list[_Event] = []
        self.serial = 0

    def prepare(self, machine) -> None:
        """The first batch begins."""
        if self.threads:
            return
        self.threads = threads = machine.threads
        self.shared_bytes, self.shared_stride = machine.shared_bytes, machine.shared_stride
        self.allocations = machine.memory.allocations()
        self.actors = self.ctas * threads
        self.clocks = [np.zeros(self.actors + AGENTS, np.int32)]
        self.clock = np.zeros(self.actors + AGENTS, np.int64)
        self.segment = np.zeros(self.actors + AGENTS, np.int32)
        self.agents = self.actors
        self.objects: dict[object, np.ndarray] = {}
        self.observed: dict[int, np.ndarray] = {}
        self.fenced: dict[int, np.ndarray] = {}

    # ---- clocks --------------------------------------------------------------------------------------------
    def stamp(self, actors: np.ndarray) -> _Stamp:
        self.serial += 1
        serial = np.full(actors.size, self.serial)
        return _Stamp(actors, self.segment[actors].copy(), self.clock[actors].copy(), serial)

    def release(self, actor: int) -> np.ndarray:
        """The clock of who sees all that the actor has done; its next accesses are a new segment."""
        self.segment[actor] += 1
        made = self.clocks[self.clock[actor]].copy()
        made[actor] = self.segment[actor]
        return made

    def acquire(self, actors: np.ndarray, clock: np.ndarray) -> None:
        for row in np.unique(self.clock[actors]):
            joined = np.maximum(self.clocks[row], clock)
            if (joined != self.clocks[row]).any():
                self.clocks.append(joined)
                mine = actors[self.clock[actors] == row]
                self.clock[mine] = len(self.clocks) - 1

    def meet(self, actors: np.ndarray) -> None:
        """All see what each has done."""
        joined = np.maximum.reduce([self.clocks[row] for row in np.unique(self.clock[actors])])
        self.segment[actors] += 1
        joined[actors] = self.segment[actors]
        self.clocks.append(joined)
        self.clock[actors] = len(self.clocks) - 1
        for table in (self.observed, self.fenced):
            known = [table[actor] for actor in actors.tolist() if actor in table]
            if known and table is self.observed:
                self.acquire(actors, np.maximum.reduce(known))
            elif known:
                together = np.maximum.reduce(known)
                self.fenced.update(dict.fromkeys(actors.tolist(), together))

    def fork(self, clock: np.ndarray) -> int:
        """A new agent that knows what ``clock`` says."""
        agent = self.agents
        self.agents += 1
        assert agent < self.clock.size, "more asynchronous work than AGENTS"
        self.clocks.append(clock)
        self.clock[agent] = len(self.clocks) - 1
        return agent

    def done(self, agent: int) -> np.ndarray:
        """The clock of who has waited for an agent."""
        made = self.clocks[self.clock[agent]].copy()
        made[agent] = 1
        return made

    def end_of(self, event: _Event) -> int:
        """Where the allocation of an event's highest access ends, in the event's addresses."""
        top = int(event.address.max())
        if top >= SHARED:
            return top - (top - SHARED) % self.shared_stride + self.shared_bytes
        return next(
            start + size - ORIGIN
            for start, size in self.allocations
            if start <= top + ORIGIN < start + size
        )

    # ---- judgement -----------------------------------------------------------------------------------------
    def conflicts(self) -> set[Conflict]:
        """All pairs of conflicting accesses, by lines."""
        events = [event for event in self.events if event.address.size]
        if not events:
            return set()
        table = _Table(events, np.stack(self.clocks), self.threads)
        return table.races() | table.uninitialised()


class _Table:
    """The accesses of a launch as columns, one row per access and granule."""

    def __init__(self, events: list[_Event], clocks: np.ndarray, threads: int):
        granule = min(event.nbytes for event in events)
        parts = []
        for number, event in enumerate(events):
            pieces = max(event.nbytes // granule, 1)
            address = (event.address[:, None] // granule + np.arange(pieces)).reshape(-1)
            columns = [event.begin.actor, event.begin.segment, event.begin.clock, event.begin.serial,
                       event.end.segment, event.end.clock, event.end.serial]  # fmt: skip
            rows = np.stack([np.asarray(column, np.int64) for column in columns], axis=1)
            known = np.array([event.line, event.kind != READ, event.atomic, number * (event.benign or -1)])
            rows = np.concatenate([rows, np.broadcast_to(known, (len(rows), 4))], axis=1)
            parts.append(np.concatenate([address[:, None], np.repeat(rows, pieces, axis=0)], axis=1))
        rows = np.concatenate(parts)
        self.shared_from = SHARED // granule
        self.clocks, self.threads = clocks, threads
        self.rows = rows[np.argsort(rows[:, 0], kind="stable")]

    def races(self) -> set[Conflict]:
        """Compare the k-th next row of the same granule with each row, for all k."""
        rows = self._once()
        columns = np.ascontiguousarray(rows[self._contended(rows)].T)
        granule = columns[0]
        found: set[Conflict] = set()
        ones = np.arange(granule.size)
        for distance in range(1, granule.size):
            ones = ones[: np.searchsorted(ones, granule.size - distance)]
            ones = ones[granule[ones] == granule[ones + distance]]
            if not ones.size:
                break
            found |= self._compare(columns, ones, ones + distance)
        return found

    def _once(self) -> np.ndarray:
        """Rows that differ in more than the place in the trace (kept for those that last)."""
        lasting = self.rows[:, 4] != self.rows[:, 7]
        key = self.rows.copy()
        key[~lasting, 4] = key[~lasting, 7] = 0
        key[key[:, 8] == 0, 11] = 0
        with np.errstate(over="ignore"):
            mixed = (key * _MIX).sum(axis=1)  # wraps: a hash of the row
        _, first = np.unique(mixed, return_index=True)
        return self.rows[np.sort(first)]

    @staticmethod
    def _contended(rows: np.ndarray) -> np.ndarray:
        """Rows of granules that somebody writes and more than one access touches."""
        start = np.flatnonzero(np.r_[True, rows[1:, 0] != rows[:-1, 0]])
        counts = np.diff(np.r_[start, len(rows)])
        written = np.logical_or.reduceat(rows[:, 9] != 0, start)
        return np.repeat(written & (counts > 1), counts)

    def _compare(self, columns: np.ndarray, a: np.ndarray, b: np.ndarray) -> set[Conflict]:
        """The conflicts among pairs of rows, by their numbers."""
        granule, actor, *_, line, writes, atomic, number = columns
        pairs = ((writes[a] | writes[b]) != 0) & ((atomic[a] & atomic[b]) == 0)
        together = (number[a] == number[b]) & (number[a] > 0) & (writes[a] & writes[b] != 0)
        pairs &= ~together
        a, b = a[pairs], b[pairs]
        unordered = ~self._before(columns, a, b)
        a, b = a[unordered], b[unordered]
        bad = ~self._before(columns, b, a)
        a, b = a[bad], b[bad]
        one_cta = actor[a] // self.threads == actor[b] // self.threads
        shared = (granule[a] >= self.shared_from) | one_cta
        return {
            Conflict("race" if inside else "global-race", frozenset((int(x), int(y))))
            for x, y, inside in set(zip(line[a].tolist(), line[b].tolist(), shared.tolist()))
        }

    def _before(self, columns: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Whether the end of ``a`` happened before the beginning of ``b``."""
        actor = columns[1]
        known = self.clocks[columns[3][b], actor[a]] > columns[5][a]
        return np.where(actor[a] == actor[b], columns[7][a] <= columns[4][b], known)

    def uninitialised(self) -> set[Conflict]:
        """Granules of shared memory that are read before anything is written there."""
        rows = self.rows[self.rows[:, 0] >= self.shared_from]
        if not rows.size:
            return set()
        start = np.flatnonzero(np.r_[True, rows[1:, 0] != rows[:-1, 0]])
        counts = np.diff(np.r_[start, len(rows)])
        written = np.where(rows[:, 9] != 0, rows[:, 7], NEVER)
        first = np.repeat(np.minimum.reduceat(written, start), counts)
        early = (rows[:, 9] == 0) & (rows[:, 4] < first)
        return {Conflict("uninitialised", frozenset((line,))) for line in set(rows[early, 8].tolist())}


class _Recorder:
    """A watcher of one machine that writes the trace."""

    def __init__(self, trace: Trace, machine):
        self.trace, self.machine = trace, machine
        self.base = address_of(machine.shared) - ORIGIN
        self.every = np.arange(machine.lanes)
        machine.barrier_hooks.append(self.barrier)
        machine.family_state(CopyGroups).observers.append(self)
        machine.family_state(BulkCopies).observers.append(self)
        machine.family_state(Wgmma).observers.append(self)
        machine.family_state(MBarriers).observers.append(self)

    # ---- watcher protocol ----------------------------------------------------------------------------------
    def start(self) -> None:
        self.launch = self.trace.launches[-1]
        self.launch.prepare(self.machine)
        self.copies: dict[tuple[int, int], list[tuple[_Stamp, int, int, int]]] = {}
        self.products: dict[int, list[tuple[int, np.ndarray]]] = {}
        self.bulk: dict[int, np.ndarray] = {}

    def finish(self) -> None:
        """Copies that nobody waited for never end."""
        for (_, address), entries in self.copies.items():
            for begin, row, nbytes, line in entries:
                one = begin.rows(slice(row, row + 1))
                self.note(line, "write", np.array([address]), nbytes, one, _never(one))

    def watches(self, space: str, kind: str) -> bool:
        return space in ("shared", "global", "generic")

    def actors(self, lanes: np.ndarray | None) -> np.ndarray:
        lanes = self.every if lanes is None else lanes
        return lanes + self.machine.first_cta * self.machine.threads

    def place(self, indices: np.ndarray, lanes: np.ndarray) -> np.ndarray:
        """Addresses that are unique over the grid."""
        offset = indices - self.base
        inside = (offset >= 0) & (offset < self.machine.shared.nbytes)
        before = self.machine.first_cta * self.machine.shared_stride
        return np.where(inside, SHARED + before + offset, indices)

    def note(
        self, line: int, kind: str, address: np.ndarray, nbytes: int, begin: _Stamp, end: _Stamp
    ) -> None:
        self.launch.events.append(_Event(line, kind, kind == ATOMIC, address, nbytes, begin, end))

    def access(self, locator, lanes: np.ndarray | None, indices: np.ndarray) -> None:
        if locator.copies:
            return  # `copy_issued` and `copy_landed` tell
        lanes = self.every if lanes is None else lanes
        address = self.place(indices, lanes)
        stamp = self.launch.stamp(self.actors(lanes))
        atomic = locator.kind == ATOMIC or locator.strong
        self.note(locator.site.line, locator.kind, address, locator.nbytes, stamp, stamp)
        self.launch.events[-1].atomic = atomic
        if atomic:
            self.synchronise(locator, stamp.actor, address)

    def stored(self, locator, lanes, indices, values, nbytes) -> None:
        """Stores of one instruction that meet in one place are harmless when their values agree."""
        bytes_of = indices[:, None] + np.arange(locator.nbytes)
        rows = np.ascontiguousarray(np.broadcast_to(values, (indices.size,) + np.shape(values)[1:]))
        written = rows.view(np.uint8).reshape(indices.size, locator.nbytes)
        _, first, same = np.unique(bytes_of, return_index=True, return_inverse=True)
        agree = written.reshape(-1)[first][same.reshape(-1)] == written.reshape(-1)
        self.launch.events[-1].benign = bool(agree.all())

    # ---- synchronisation -----------------------------------------------------------------------------------
    def barrier(self, ctas: np.ndarray, mask: np.ndarray | None) -> None:
        lanes = self.every.reshape(self.machine.ctas, -1)
        for cta in range(self.machine.ctas) if mask is None else ctas.tolist():
            met = lanes[cta] if mask is None else lanes[cta][mask[lanes[cta]]]
            if met.size:
                self.launch.meet(self.actors(met))

    def warp_barrier(self, site, mask: np.ndarray | None, members: np.ndarray) -> None:
        for warp in self.every.reshape(-1, 32):
            met = warp if mask is None else warp[mask[warp]]
            if met.size:
                self.launch.meet(self.actors(met))

    def fence(self, mask: np.ndarray | None, parts: tuple[str, ...]) -> None:
        if "proxy" in parts:
            return
        for actor in self.actors(self.every if mask is None else np.flatnonzero(mask)).tolist():
            if actor in self.launch.observed:
                self.launch.acquire(np.array([actor]), self.launch.observed[actor])
            self.launch.fenced[actor] = self.launch.release(actor)

    def synchronise(self, locator, actors: np.ndarray, addresses: np.ndarray) -> None:
        """Atomics one by one: each sees what others have released at its address, and releases."""
        one = self.launch
        for actor, address in zip(actors.tolist(), addresses.tolist()):
            seen = one.objects.get(address)
            if seen is not None and locator.acquires:
                one.acquire(np.array([actor]), seen)
            elif seen is not None:
                one.observed[actor] = np.maximum(one.observed.get(actor, seen), seen)
            released = one.release(actor) if locator.releases else one.fenced.get(actor)
            if released is not None:
                one.objects[address] = released if seen is None else np.maximum(seen, released)

    # ---- mbarriers -----------------------------------------------------------------------------------------
    def initialised(self, lanes: np.ndarray, slots: np.ndarray) -> None:
        """An ordinary write, which the locator has told."""

    def used(self, site, lanes: np.ndarray, slots: np.ndarray) -> None:
        """An atomic access, which the locator has told."""

    def arrived(self, lanes: np.ndarray, slots: np.ndarray) -> None:
        for actor, slot in zip(self.actors(lanes).tolist(), slots.tolist()):
            self.join(slot, self.launch.release(actor))

    def join(self, slot: int, clock: np.ndarray) -> None:
        known = self.launch.objects.get(("mbarrier", slot))
        self.launch.objects["mbarrier", slot] = clock if known is None else np.maximum(known, clock)

    def waited(self, lanes: np.ndarray, slots: np.ndarray) -> None:
        actors = self.actors(lanes)
        for slot in np.unique(slots).tolist():
            clock = self.launch.objects.get(("mbarrier", slot))
            if clock is not None:
                self.launch.acquire(actors[slots == slot], clock)

    # ---- asynchronous work ---------------------------------------------------------------------------------
    def copy_issued(self, site, lanes: np.ndarray | None, indices: np.ndarray, nbytes: int) -> None:
        lanes = self.every if lanes is None else lanes
        begin = self.launch.stamp(self.actors(lanes))
        for row, place in enumerate(zip(lanes.tolist(), self.place(indices, lanes).tolist())):
            self.copies.setdefault(place, []).append((begin, row, nbytes, site.line))

    def copy_landed(self, site, lanes: np.ndarray | None, indices: np.ndarray, nbytes: int) -> None:
        lanes = self.every if lanes is None else lanes
        if not lanes.size:
            return
        address = self.place(indices, lanes)
        begins = [self.copies[place].pop(0)[:2] for place in zip(lanes.tolist(), address.tolist())]
        self.note(site.line, "write", address, nbytes, _joined(begins), self.launch.stamp(self.actors(lanes)))

    def bulk_issued(self, work, store: bool) -> None:
        agents = [self.launch.fork(self.launch.release(actor)) for actor in self.actors(work.lanes).tolist()]
        self.bulk[id(work)] = np.array(agents)
        kind = "read" if store else "write"
        self.run_agents(work.site.line, kind, work.units, work.unit, agents, work.lanes)

    def run_agents(self, line: int, kind: str, units: np.ndarray, unit: int, agents: list, lanes) -> None:
        """One event in which each agent touches its row of ``units``."""
        flat = units.reshape(len(agents), -1)
        stamp = self.launch.stamp(np.repeat(np.array(agents), flat.shape[1]))
        address = self.place(flat.reshape(-1), np.repeat(lanes, flat.shape[1]))
        self.note(line, kind, address, unit, stamp, stamp)

    def bulk_landed(self, work, store: bool, chosen) -> None:
        agents, lanes = self.bulk[id(work)][chosen], work.lanes[chosen]
        for position, agent in enumerate(agents.tolist()):
            clock = self.launch.done(agent)
            if store:
                self.launch.acquire(self.actors(lanes[position : position + 1]), clock)
            else:
                self.join(int(work.slots[position]), clock)

    def fenced(self, groups: np.ndarray) -> None:
        """Orders registers."""

    def products_read(self, site, lanes: np.ndarray, indices: np.ndarray, product) -> None:
        """A product knows what all four warps of its warpgroup know."""
        agents = []
        for lane in lanes.tolist():
            group = self.actors(np.arange(lane, lane + WARPGROUP))
            clocks = [self.launch.clocks[row] for row in np.unique(self.launch.clock[group])]
            agents.append(self.launch.fork(np.minimum.reduce(clocks)))
            self.products.setdefault(id(product), []).append((agents[-1], group))
        self.run_agents(site.line, "read", indices, 16, agents, lanes)

    def products_landed(self, product, chosen) -> None:
        for agent, group in self.products.pop(id(product), []):
            self.launch.acquire(group, self.launch.done(agent))


def _never(begin: _Stamp) -> _Stamp:
    """The end of what never ends."""
    late = np.full(begin.actor.size, NEVER)
    return _Stamp(begin.actor, late, begin.clock, late)
