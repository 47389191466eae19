"""Clusters: the barrier of their CTAs, and addresses in each other's shared memory.

`barrier.cluster` has two halves. A thread that arrives belongs to the phase under way; the phase completes
when all threads of the cluster that have not exited have arrived; `wait` waits for the phase in which its
thread arrived. How a shared address names another CTA is told in `memory`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ptxforge.emulator.arithmetic import unsigned
from ptxforge.emulator.findings import Site
from ptxforge.emulator.memory import LOCAL_WINDOW, RANK_SHIFT, SHARED_WINDOW, WINDOW_MASK
from ptxforge.emulator.parser import Instruction
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
    rows = mask.reshape(-1, 32)
    absent = ~rows & (machine.pc != EXIT).reshape(rows.shape)
    partial = rows.any(axis=1) & absent.any(axis=1)
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
