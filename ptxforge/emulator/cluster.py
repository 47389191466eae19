"""Clusters: the barrier of their CTAs, addresses in each other's shared memory, asynchronous stores there.

`barrier.cluster` has two halves. A thread that arrives belongs to the phase under way; the phase completes
when all threads of the cluster that have not exited have arrived; `wait` waits for the phase in which its
thread arrived. How a shared address names another CTA is told in `memory`.

Races between the CTAs of a cluster are found by `checks.Checker`, whose clocks cover all warps of a cluster.
Here stands what orders them, the barrier of the cluster, and what only clusters can get wrong:

* A CTA's shared memory may be accessed from outside when the CTA is known to run: after a barrier of the
  cluster, or after anything else that orders the access behind something that the CTA did.
* It must not be accessed when the CTA has ended. Whether that happens depends on chance, so what counts is
  whether it *can*: the last accesses of other CTAs must have happened before the end of some thread of the
  CTA.

`barrier.cluster.arrive.relaxed` releases only what a fence of the thread's warp covered before. It does make
known that the CTA runs, and, behind `fence.mbarrier_init`, that mbarriers are initialised.

`st.async` and `red.async` take registers to the shared memory of a CTA of the cluster and are announced on an
mbarrier there. They are captured when issued and land when a thread waits on the mbarrier, as bulk loads do
(`async_copy`). Both are ordinary stores as far as proxies are concerned.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ptxforge.emulator.access import ATOMIC, Locator, scatter
from ptxforge.emulator.arithmetic import unsigned
from ptxforge.emulator.async_copy import BulkCopies, BulkWork
from ptxforge.emulator.async_work import reduce_into, runs
from ptxforge.emulator.checks import Checker
from ptxforge.emulator.findings import Site
from ptxforge.emulator.mbarrier import MBarriers
from ptxforge.emulator.memory import (
    LOCAL_WINDOW,
    ORIGIN,
    RANK_SHIFT,
    SHARED_WINDOW,
    THREAD_BITS,
    WINDOW_MASK,
    address_of,
)
from ptxforge.emulator.parser import TYPE_BITS, Instruction, Memory, Vector
from ptxforge.emulator.program import SHARED_BASE
from ptxforge.emulator.registry import instruction
from ptxforge.emulator.state import EXIT, Machine
from ptxforge.emulator.translate import Emitter, merge

_NONE = -1


class ClusterBarriers:
    """The barriers of all clusters of a machine."""

    def __init__(self, machine: Machine):
        self.machine = machine
        self.arrived = np.zeros(machine.lanes, bool)
        self.awaited = np.full(machine.lanes, _NONE, np.int64)
        """Per lane: the phase in which it arrived, until it has waited for that."""
        self.phase = np.zeros(machine.clusters, np.int64)
        self.observers: list[object] = []
        """Checkers: `cluster_arrived(lanes, releases)`, `cluster_opened(clusters)`,
        `cluster_waited(lanes)`.
        """
        machine.idle_hooks.append(self.settle)

    def reset(self) -> None:
        self.arrived.fill(False)
        self.awaited.fill(_NONE)
        self.phase.fill(0)

    def arrive(self, lanes: np.ndarray, releases: bool, site: Site) -> None:
        again = self.awaited[lanes] != _NONE
        if again.any():
            text = "a thread arrives at the cluster's barrier again before it has waited"
            self.machine.report("barrier", text, site, lanes[again])
        self.awaited[lanes] = self.phase[self.machine.cluster_of_lane[lanes]]
        self.arrived[lanes] = True
        for observer in self.observers:
            observer.cluster_arrived(lanes, releases)
        self.settle()

    def settle(self) -> bool:
        """Complete the phases in which everybody has arrived. Threads that have exited are not waited for."""
        if not self.arrived.any():
            return False
        machine = self.machine
        rows = self.arrived.reshape(machine.clusters, -1)
        exited = (machine.pc == EXIT).reshape(rows.shape)
        full = (rows | exited).all(axis=1) & rows.any(axis=1)
        if not full.any():
            return False
        self.phase[full] += 1
        rows[full] = False
        machine.progressed = True
        for observer in self.observers:
            observer.cluster_opened(np.flatnonzero(full))
        return True

    def wait(self, lanes: np.ndarray, site: Site) -> np.ndarray | None:
        """Lanes wait; returns those that must stay as a mask, or None."""
        absent = self.awaited[lanes] == _NONE
        if absent.any():
            text = "a thread waits at the cluster's barrier without having arrived"
            self.machine.report("barrier", text, site, lanes[absent])
        stay = self.phase[self.machine.cluster_of_lane[lanes]] <= self.awaited[lanes]
        stay &= ~absent
        through = lanes[~stay]
        self.awaited[through] = _NONE
        for observer in self.observers:
            observer.cluster_waited(through)
        if not stay.any():
            return None
        mask = np.zeros(self.machine.lanes, bool)
        mask[lanes[stay]] = True
        return mask


def _check_whole(machine: Machine, site: Site, mask: np.ndarray | None) -> None:
    """Report warps of which only a part executes an aligned instruction."""
    if mask is None or not machine.watchers:
        return
    partial = machine.partial_warps(mask)
    if partial.any():
        text = "the barrier of the cluster reached by part of a warp"
        machine.report("barrier", text, site, np.flatnonzero(mask & np.repeat(partial, 32))[:1])


@instruction("barrier.cluster", defines=0)
def emit_unknown(e: Emitter, i: Instruction) -> None:
    """What is neither half."""
    raise e.error("unknown cluster barrier")


@instruction("barrier.cluster.arrive", defines=0)
def emit_arrive(e: Emitter, i: Instruction) -> None:
    """barrier.cluster.arrive{.release | .relaxed}{.aligned}"""
    if i.operands or i.has("acquire"):
        raise e.error("unknown cluster barrier")
    e.call(bind_arrive, e.site, not i.has("relaxed"), i.has("aligned"))


def bind_arrive(machine: Machine, site: Site, releases: bool, aligned: bool) -> Callable:
    barriers: ClusterBarriers = machine.family_state(ClusterBarriers)
    every = np.arange(machine.lanes)

    def run(mask: np.ndarray | None) -> None:
        if aligned:
            _check_whole(machine, site, mask)
        lanes = every if mask is None else np.flatnonzero(mask)
        if lanes.size:
            barriers.arrive(lanes, releases, site)

    return run


@instruction("barrier.cluster.wait", role="blocking", defines=0)
def emit_wait(e: Emitter, i: Instruction) -> None:
    """barrier.cluster.wait{.acquire}{.aligned}"""
    if i.operands or i.has("release", "relaxed"):
        raise e.error("unknown cluster barrier")
    e.block_on(bind_wait, e.site)


def bind_wait(machine: Machine, site: Site) -> Callable:
    barriers: ClusterBarriers = machine.family_state(ClusterBarriers)
    every = np.arange(machine.lanes)

    def run(mask: np.ndarray | None) -> np.ndarray | None:
        return barriers.wait(every if mask is None else np.flatnonzero(mask), site)

    return run


# ---- addresses ---------------------------------------------------------------------------------------------
@instruction("mapa")
def emit_mapa(e: Emitter, i: Instruction) -> None:
    """mapa{.shared::cluster}.type d, a, b: `a` in the shared memory of the cluster's CTA `b`."""
    dtype = unsigned(i.parts[-1])
    target, address, rank = i.operands
    e.call(bind_mapa, e.view(target, dtype), e.view(address, dtype), e.view(rank, "u4"))


def bind_mapa(machine: Machine, target: np.ndarray, address: np.ndarray, rank: np.ndarray) -> Callable:
    kind = address.dtype.type
    keep = kind(~(0xFF << RANK_SHIFT) & (1 << 8 * kind(0).itemsize) - 1)

    def run(mask: np.ndarray | None) -> None:
        # A rank that no cluster has stays one: the access is reported, not this.
        tagged = np.minimum(rank, 0xFE).astype(kind) + kind(1) << kind(RANK_SHIFT)
        merge(target, address & keep | tagged, mask)

    return run


@instruction("getctarank")
def emit_getctarank(e: Emitter, i: Instruction) -> None:
    dtype = unsigned(i.parts[-1])
    e.call(bind_getctarank, e.view(i.operands[0], "u4"), e.view(i.operands[1], dtype))


def bind_getctarank(machine: Machine, target: np.ndarray, address: np.ndarray) -> Callable:
    def run(mask: np.ndarray | None) -> None:
        merge(target, _owner(machine, address), mask)

    return run


def _owner(machine: Machine, address: np.ndarray) -> np.ndarray:
    """``(lanes,)``: the ranks of the CTAs in whose shared memory addresses lie."""
    offset = address.astype(np.int64) & WINDOW_MASK
    return machine.shared_places(offset, np.arange(machine.lanes))[1]


@instruction("isspacep")
def emit_isspacep(e: Emitter, i: Instruction) -> None:
    """isspacep.space p, a: `.shared` is `.shared::cta`, the own CTA's part of `.shared::cluster`."""
    space = i.parts[1].partition("::")[0]
    if space == "shared" and not i.has("shared::cluster"):
        e.call(bind_in_own_cta, e.view(i.operands[0], "?"), e.view(i.operands[1], "u8"))
        return
    e.apply(_in_space(space), (i.operands[0], "?"), (i.operands[1], "u8"))


_WINDOW = np.uint64(~WINDOW_MASK & 0xFFFFFFFFFFFFFFFF)


def bind_in_own_cta(machine: Machine, target: np.ndarray, address: np.ndarray) -> Callable:
    def run(mask: np.ndarray | None) -> None:
        inside = (address & _WINDOW) == SHARED_WINDOW
        merge(target, inside & (_owner(machine, address) == machine.rank_of_lane), mask)

    return run


def _in_space(space: str) -> Callable:
    wanted = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW}.get(space, 0)
    return lambda address: np.equal(address & _WINDOW, np.uint64(wanted)) & (space not in ("param", "const"))


_RECORD = np.uint32((1 << 31) - 1)
_THREAD = (1 << THREAD_BITS) - 1
_FENCE_SCOPES = {"cluster", "gpu", "sys", "gl"}


class ClusterChecker:
    """A watcher of the shared memory of a machine whose CTAs stand in clusters."""

    def __init__(self, machine: Machine, races: Checker):
        self.machine, self.races = machine, races
        self._base = address_of(machine.shared) - ORIGIN
        clusters, warps = machine.clusters, machine.warps_per_cluster
        self.met = np.zeros((clusters, warps), bool)
        """Whether a warp has passed a barrier of the cluster: all its CTAs run."""
        self.fenced = np.zeros((clusters, warps, warps), np.int64)
        """Per warp: its clock at its newest fence."""
        self.released, self.arrived = (np.zeros((2, clusters, warps), np.int64) for _ in range(2))
        """Clocks of the phase under way and of the one that completed last: of what its arrivals release, and
        of all that lies before them."""
        races.initialisations = np.zeros_like(races.seen)
        machine.family_state(ClusterBarriers).observers.append(self)
        machine.family_state(BulkCopies).observers.append(self)
        races.forget_hooks.append(self._forget)

    def start(self) -> None:
        """A batch begins."""
        self.met.fill(False)
        for clock in (self.fenced, self.released, self.arrived, self.races.initialisations):
            clock.fill(0)

    def _forget(self) -> None:
        """Ticks start again, and everything so far counts as ordered."""
        for clock in (self.fenced, self.released, self.arrived, self.races.initialisations):
            clock.fill(1)

    # ---- the barrier ---------------------------------------------------------------------------------------
    def cluster_arrived(self, lanes: np.ndarray, releases: bool) -> None:
        clusters, warps = self._warps(lanes)
        before = self.races.seen[clusters, warps]
        before[np.arange(warps.size), warps] = self.races.now - 1
        np.maximum.at(self.arrived[0], clusters, before)
        np.maximum.at(self.released[0], clusters, before if releases else self.fenced[clusters, warps])

    def cluster_opened(self, clusters: np.ndarray) -> None:
        for clocks in (self.released, self.arrived):
            clocks[1, clusters] = clocks[0, clusters]
            clocks[0, clusters] = 0

    def cluster_waited(self, lanes: np.ndarray) -> None:
        if not lanes.size:
            return
        clusters, warps = self._warps(lanes)
        races, machine = self.races, self.machine
        races.seen[clusters, warps] = np.maximum(races.seen[clusters, warps], self.released[1, clusters])
        known = races.initialisations[clusters, warps]
        races.initialisations[clusters, warps] = np.maximum(known, self.arrived[1, clusters])
        self.met[clusters, warps] = True
        touched = np.unique(clusters)
        races.all_synced[touched] = races.seen[touched].min(axis=(1, 2))
        races.floor = int(races.all_synced.min())
        if races.world is not None:
            races.world.barrier(touched + machine.first_cluster)

    def _warps(self, lanes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The warps that lanes belong to, once each: clusters, and numbers within those."""
        return np.divmod(np.unique(lanes // 32), self.machine.warps_per_cluster)

    def fence(self, mask: np.ndarray | None, parts: tuple[str, ...]) -> None:
        """A fence whose scope holds the cluster: a relaxed arrival behind it releases what lies before it."""
        if "proxy" in parts or "mbarrier_init" in parts or not _FENCE_SCOPES.intersection(parts):
            return
        every = np.arange(self.machine.lanes)
        clusters, warps = self._warps(every if mask is None else every[mask])
        clock = self.races.seen[clusters, warps]
        clock[np.arange(warps.size), warps] = self.races.now - 1
        self.fenced[clusters, warps] = clock

    # ---- lifetimes -----------------------------------------------------------------------------------------
    def watches(self, space: str, kind: str) -> bool:
        return space in ("shared", "generic")

    def access(self, locator: Locator, lanes: np.ndarray | None, indices: np.ndarray) -> None:
        if locator.reaches_cluster:
            self._touch(locator.site, self.machine.lanes_in(lanes), indices)

    def bulk_issued(self, work: BulkWork, store: bool) -> None:
        if not store:
            self._touch(work.site, work.lanes, work.units[:, 0])

    def bulk_landed(self, work: BulkWork, store: bool, chosen: np.ndarray | slice) -> None:
        """Looked at when issued."""

    def _touch(self, site: Site, lanes: np.ndarray, indices: np.ndarray) -> None:
        """Report accesses to CTAs of which the accessing warps do not know yet that they run."""
        machine = self.machine
        owner = (indices - self._base) // machine.shared_stride
        foreign = (owner != machine.cta_of_lane[lanes]) & (owner >= 0) & (owner < machine.ctas)
        if not foreign.any():
            return
        lanes, rank = lanes[foreign], owner[foreign] % machine.cluster_size
        clusters, warps = machine.cluster_of_lane[lanes], self.races.warp[lanes]
        seen = self.races.seen[clusters, warps].reshape(lanes.size, machine.cluster_size, -1).max(axis=2)
        unknown = ~self.met[clusters, warps] & (seen[np.arange(lanes.size), rank] == 0)
        if unknown.any():
            text = (
                f"shared memory of CTA {rank[unknown][0]} of the cluster is accessed, and nothing before "
                "shows that this CTA has started"
            )
            machine.report("cluster", text, site, lanes[unknown])

    def finish(self) -> None:
        """The batch has ended: report accesses that a CTA did not wait for before it ended."""
        machine, races = self.machine, self.races
        shape = (machine.clusters, machine.cluster_size, machine.warps_per_cta, machine.warps_per_cluster)
        known = races.seen.reshape(shape).max(axis=2)
        for shadow in (races.writer, races.reader, races.other_reader):
            places = np.flatnonzero(shadow)
            records = (shadow[places] & _RECORD).astype(np.int64)
            cluster, rank = np.divmod(places * races.granule // machine.shared_stride, machine.cluster_size)
            ticks, threads = records >> THREAD_BITS, records & _THREAD
            late = threads // machine.threads != rank
            late &= ticks > known[cluster, rank, threads // 32]
            lanes = cluster * machine.threads_per_cluster + threads
            self._report_late(ticks[late], lanes[late], rank[late])

    def _report_late(self, ticks: np.ndarray, lanes: np.ndarray, ranks: np.ndarray) -> None:
        for tick in np.unique(ticks).tolist():
            site = self.races.sites[tick]
            chosen = ticks == tick
            if site is not None:
                cta = f"CTA {ranks[chosen][0]} of the cluster may have ended"
                text = f"{cta} when its shared memory is accessed here: it does not wait for this access"
                self.machine.report("cluster", text, site, np.unique(lanes[chosen]))


_REDUCTIONS = {
    "u32": ("inc", "dec", "min", "max", "add"),
    "s32": ("min", "max", "add"),
    "b32": ("and", "or", "xor"),
    "u64": ("add",),
}


@instruction("st.async", "red.async", defines=0)
def emit_async_store(e: Emitter, i: Instruction) -> None:
    """st.async{.weak}.shared::cluster.mbarrier::complete_tx::bytes{.vec}.type [a], b, [mbar], and
    red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.op.type [a], b, [mbar].
    """
    target, value, barrier = i.operands
    kind, count = i.types[-1], i.vector_width
    if not isinstance(target, Memory) or not i.has("shared::cluster") or TYPE_BITS[kind] not in (32, 64):
        raise e.error("unknown form")
    reduction = _reduction(e, i, kind) if i.parts[0] == "red" else None
    size = TYPE_BITS[kind] // 8
    values = list(value.elements) if isinstance(value, Vector) else [value]
    if len(values) != count:
        raise e.error(f"{count} elements are expected")
    views = [e.view(element, f"u{size}") for element in values]
    barriers = e.locator(barrier, "shared", 8, ATOMIC)
    e.call(bind_async_store, e.site, *e.address(target), views, barriers, reduction)


def _reduction(e: Emitter, i: Instruction, kind: str) -> tuple[str, str]:
    name = i.first_of(_REDUCTIONS.get(kind, ()))
    if name is None:
        raise e.error("unknown reduction")
    return name, kind


def bind_async_store(
    machine: Machine,
    site: Site,
    target: np.ndarray,
    offset: int,
    values: list[np.ndarray],
    barrier: Locator,
    reduction: tuple[str, str] | None,
) -> Callable:
    bulk: BulkCopies = machine.family_state(BulkCopies)
    state: MBarriers = machine.family_state(MBarriers)
    size = values[0].itemsize
    total = size * len(values)

    def run(mask: np.ndarray | None) -> None:
        lanes = machine.lanes_in(mask)
        places, owners = machine.shared_places((target[lanes].astype(np.int64) & WINDOW_MASK) + offset, lanes)
        good = valid(lanes, places, owners)
        lanes, places, owners = lanes[good], places[good], owners[good]
        if not lanes.size:
            return
        announced = np.zeros(machine.lanes, np.int64)
        chosen = np.zeros(machine.lanes, bool)
        chosen[lanes] = True
        indices, located = barrier(chosen)
        announced[lanes if located is None else located] = state.slots(indices)
        apart = (owners - machine.rank_of_lane[lanes]) * machine.shared_stride
        first = places + machine.shared_base[lanes] - ORIGIN + apart
        issue(lanes, first, announced[lanes])

    def valid(lanes: np.ndarray, places: np.ndarray, owners: np.ndarray) -> np.ndarray:
        inside = (places >= SHARED_BASE) & (places + total <= SHARED_BASE + machine.shared_bytes)
        inside &= (owners >= 0) & (owners < machine.cluster_size)
        inside[inside] &= runs(machine, lanes[inside], owners[inside])
        if not inside.all():
            text = f"shared write of {total} bytes outside the CTAs of the cluster that run"
            machine.report("out-of-bounds", text, site, lanes[~inside], places[~inside])
        skewed = inside & (places % total != 0)
        if skewed.any():
            text = f"shared write of {total} bytes is not aligned to {total}"
            machine.report("misaligned", text, site, lanes[skewed], places[skewed])
        return inside & ~skewed

    def issue(lanes: np.ndarray, first: np.ndarray, slots: np.ndarray) -> None:
        units = first[:, None] + np.arange(0, total, size)
        data = np.stack([value[lanes] for value in values], axis=1)

        def move(_: np.ndarray | slice) -> None:
            if reduction is None:
                scatter(units, size, data)
                return
            for unit, value in zip(units, data):  # lanes may meet
                reduce_into(unit, value, reduction)

        BulkWork(
            bulk, site, lanes, units, size, move, slots, total, reduces=reduction is not None, generic=True
        ).issue()

    return run
