"""Where bulk copies go in shared memory: addresses, with their bounds, and the CTAs of multicast copies; and
the reductions that they and asynchronous stores do in memory.
"""

from __future__ import annotations

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
