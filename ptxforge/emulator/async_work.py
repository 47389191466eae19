"""What asynchronous work shares: groups, which somebody waits for; where bulk copies go in shared memory,
with bounds, and the CTAs of multicast copies; and the reductions that they and asynchronous stores do in
memory.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

import numpy as np

from ptxforge.emulator.findings import Site
from ptxforge.emulator.memory import ORIGIN, TABLES, WINDOW_MASK, address_of
from ptxforge.emulator.memory_ops import combiner
from ptxforge.emulator.numerics import NATURAL
from ptxforge.emulator.program import SHARED_BASE
from ptxforge.emulator.state import Machine

REDUCTIONS = ("add", "min", "max", "inc", "dec", "and", "or", "xor")
REDUCED_TYPES = ("f16", "bf16", "u32", "s32", "b32", "u64", "s64", "b64", "f32", "f64")


def reduce_into(indices: np.ndarray, values: np.ndarray, reduction: tuple[str, str]) -> None:
    """memory[index] = op(memory[index], value); indices are distinct, `values` raw bits."""
    dtype = NATURAL[reduction[1]]
    table = TABLES[dtype.itemsize]
    places = indices >> (dtype.itemsize.bit_length() - 1)
    result = combiner(*reduction)(table[places].view(dtype), values.view(dtype))
    table[places] = np.asarray(result).view(table.dtype)


def meet(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two arrays, of the slots that lanes wait for or arrive at, have one in common."""
    return not set(one.tolist()).isdisjoint(other.tolist())


class SharedAddress:
    """A shared-memory address operand without alignment to its size: lanes -> host indices, with bounds
    checked.
    """

    def __init__(
        self, machine: Machine, site: Site, base: np.ndarray, offset: int, reaches_cluster: bool = False
    ):
        self.machine, self.site, self.base, self.offset = machine, site, base, offset
        self.reaches_cluster = reaches_cluster

    def __call__(self, lanes: np.ndarray) -> np.ndarray:
        """Shared addresses (not host addresses) of the lanes, generic ones included."""
        return (self.base[lanes].astype(np.int64) & WINDOW_MASK) + self.offset

    def host(self, address: np.ndarray, lanes: np.ndarray) -> np.ndarray:
        """Shared addresses (Q, ...) -> indices."""
        machine, lanes = self.machine, lanes.reshape(lanes.shape + (1,) * (address.ndim - 1))
        offset, owner = machine.shared_places(address, lanes)
        apart = owner - machine.rank_of_lane[lanes]
        return offset + (machine.shared_base[lanes] - ORIGIN) + apart * machine.shared_stride

    def valid(self, low: np.ndarray, high: np.ndarray, lanes: np.ndarray, alignment: int) -> np.ndarray:
        """Which lanes' [low, high) lies in the CTA's shared memory (or, where that may be, in that of another
        CTA of its cluster), aligned; others are reported.
        """
        machine = self.machine
        end = SHARED_BASE + machine.shared_bytes
        offset, owner = machine.shared_places(low, lanes)
        inside = (offset >= SHARED_BASE) & (offset + (high - low) <= end)
        foreign = owner != machine.rank_of_lane[lanes]
        if foreign.any():
            inside &= ~foreign | self.reaches_cluster & (owner >= 0) & (owner < machine.cluster_size)
            inside[inside] &= runs(machine, lanes[inside], owner[inside])
        if not inside.all():
            whose = "the CTA's" if not foreign.any() else "reach: CTAs of the cluster that run have"
            text = f"shared address outside {whose} {machine.shared_bytes} bytes"
            machine.report("out-of-bounds", text, self.site, lanes[~inside], low[~inside])
        skewed = inside & (low % alignment != 0)
        if skewed.any():
            text = f"the shared address of a bulk copy must be a multiple of {alignment}"
            self.machine.report("misaligned", text, self.site, lanes[skewed], low[skewed])
        return inside & ~skewed


def runs(machine: Machine, lanes: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """Whether the CTAs of these ranks, in the clusters of the lanes, have not ended."""
    return machine.running()[machine.cluster_of_lane[lanes] * machine.cluster_size + ranks]


class Multicast:
    """The CTAs to which a load goes: its own, or those that a mask names."""

    def __init__(self, machine: Machine, site: Site, masks: np.ndarray | None):
        self.machine, self.site, self.masks = machine, site, masks
        self.origin = address_of(machine.shared) - ORIGIN

    def __call__(self, lanes: np.ndarray) -> list[tuple[int | None, np.ndarray]]:
        """Ranks with the lanes (positions in `lanes`) that send there; None: where the address points to."""
        if self.masks is None:
            return [(None, np.arange(lanes.size))]
        masks = self.masks[lanes].astype(np.int64)
        outside = masks >> self.machine.cluster_size != 0
        if outside.any():
            names = f"the mask {masks[outside][0]:#x} of a multicast copy names CTAs"
            text = f"{names} beyond the {self.machine.cluster_size} of the cluster"
            self.machine.report("out-of-bounds", text, self.site, lanes[outside])
        found = []
        for rank in range(self.machine.cluster_size):
            rows = np.flatnonzero(masks >> rank & 1)
            there = runs(self.machine, lanes[rows], np.full(rows.size, rank))
            if not there.all():
                text = f"a multicast copy to CTA {rank} of the cluster, which has ended"
                self.machine.report("out-of-bounds", text, self.site, lanes[rows[~there]])
            if there.any():
                found.append((rank, rows[there]))
        return found

    def moved(self, rank: int | None, indices: np.ndarray) -> np.ndarray:
        """Indices (Q, ...) in the shared memory of the CTA of that rank, at the same offsets."""
        if rank is None:
            return indices
        stride = self.machine.shared_stride
        first = indices.reshape(indices.shape[0], -1)[:, :1]
        apart = (rank - (first - self.origin) // stride % self.machine.cluster_size) * stride
        return indices + apart.reshape((-1,) + (1,) * (indices.ndim - 1))


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
    """The groups of one kind of work on one machine.

    cp.async, bulk stores and wgmma share the scheme: each *agent* (a thread, or a warpgroup) counts its
    commits; work that is issued belongs to the group of the next commit; `wait_group N` makes all groups but
    the newest N complete. Work lands exactly then: as late as PTX allows, so that a missing wait shows as
    wrong data.
    """

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
