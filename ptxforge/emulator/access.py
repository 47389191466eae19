"""Addresses of memory instructions: state spaces resolved to host addresses, bounds and alignment checked.

:class:`Locator` is what every family that touches memory uses: called with the mask, it gives host addresses
(minus ``ORIGIN``, ready to index :data:`ptxforge.emulator.memory.TABLES`) and the lanes they belong to. Lanes
whose address is invalid are reported and left out; so are lanes that the mask excludes.
"""

from __future__ import annotations

import numpy as np

from ptxforge.emulator.findings import Site
from ptxforge.emulator.memory import (
    LOCAL_WINDOW,
    ORIGIN,
    PARAM_BASE,
    PARAM_END,
    RANK_SHIFT,
    SHARED_WINDOW,
    TABLES,
    WINDOW_MASK,
    address_of,
)
from ptxforge.emulator.program import LOCAL_BASE, SHARED_BASE
from ptxforge.emulator.state import Machine

READ, WRITE, ATOMIC = "read", "write", "atomic"

_STRONG = {"volatile", "relaxed", "acquire", "release", "acq_rel", "mmio"}
_RELEASING = {"release", "acq_rel"}
_ACQUIRING = {"acquire", "acq_rel"}

OF_THE_BATCH = ("shared", "local")
"""Spaces that only the batch itself sees: what it writes there helps no other one to go on."""


class Locator:
    """Resolves one memory operand of one instruction.

    ``semantics`` are the opcode's parts, for its memory ordering. ``base`` is the register's unsigned view
    ``(lanes,)`` (u4 or u8) or an int for a symbol; ``offset`` the immediate; ``nbytes`` the size of the
    access, to which it must be aligned; ``kind`` read, write or atomic.
    """

    def __init__(
        self,
        machine: Machine,
        site: Site,
        space: str,
        base: np.ndarray | int,
        offset: int,
        nbytes: int,
        kind: str,
        alignment: int | None = None,
        semantics: tuple[str, ...] = (),
    ):
        self.machine, self.site, self.space = machine, site, space
        self.offset, self.nbytes, self.kind = offset, nbytes, kind
        self.alignment = alignment or nbytes
        self.copies = False
        """The target of an asynchronous copy: its accesses are announced when issued and when landed."""
        self.extent = 0, 0
        """Of the last access by all lanes: the addresses ``[low, high)`` between which it lies."""
        self.strong = any(word in _STRONG for word in semantics)
        self.acquires = any(word in _ACQUIRING for word in semantics)
        self.releases = any(word in _RELEASING for word in semantics)
        self.reaches_cluster = space == "generic" or "shared::cluster" in semantics
        """Whether the shared memory of other CTAs of the cluster may be accessed."""
        if isinstance(base, int):
            base = np.full(machine.lanes, base, np.uint64)
        self.base = base
        self.signed = base.view(np.int64 if base.itemsize == 8 else np.int32)
        self.watchers = [watcher for watcher in machine.watchers if watcher.watches(space, kind)]
        self.window = (SHARED_BASE, SHARED_BASE + machine.shared_bytes)
        self.locals = (LOCAL_BASE, LOCAL_BASE + machine.program.local_bytes)

    def __call__(self, mask: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None]:
        """``(indices, lanes)``: host address - ORIGIN per lane as i8; ``lanes`` is None when all lanes take
        part.

        The indices live in scratch memory of the machine; use them before the next locator is called.
        """
        if mask is None or np.count_nonzero(mask) == mask.size:
            return self._all_lanes()
        return self._some_lanes(np.flatnonzero(mask))

    def peek(self, mask: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Like a call, in fresh memory, but nobody watches and faults are left out in silence."""
        lanes = self.machine.lanes_in(mask)
        raw = self.signed[lanes].astype(np.int64) + self.offset
        if not lanes.size:
            return raw, lanes
        host, valid = self._host(raw, lanes)
        good = valid & ((raw & (self.alignment - 1)) == 0)
        return host[good] - ORIGIN, lanes[good]

    # ---- the fast path: every lane -------------------------------------------------------------------------
    def _all_lanes(self) -> tuple[np.ndarray, np.ndarray | None]:
        low = int(self.signed.min()) + self.offset
        high = int(self.signed.max()) + self.offset + self.nbytes
        if not self._plain(low, high) or self._skewed(self.base):
            return self._some_lanes(np.arange(self.machine.lanes))
        self.extent = low, high
        indices = self.machine.scratch("i8", 7)
        if self.space == "shared" or self.space == "local":
            lane_base = self.machine.shared_base if self.space == "shared" else self.machine.local_base
            np.add(self.signed, lane_base, out=indices)
            indices += self.offset - ORIGIN
        else:
            np.add(self.signed, self.offset - ORIGIN, out=indices)
        for watcher in self.watchers:
            watcher.access(self, None, indices)
        return indices, None

    def _plain(self, low: int, high: int) -> bool:
        """Whether all addresses of ``[low, high)`` are valid in the instruction's own space."""
        if self.space == "shared":
            return self.window[0] <= low and high <= self.window[1]
        if self.space == "local":
            return self.locals[0] <= low and high <= self.locals[1]
        return low > 0 and self.machine.memory.contains(low, high)

    def _skewed(self, base: np.ndarray) -> bool:
        if self.alignment == 1:
            return False
        bits = (
            int(np.bitwise_or.reduce(base))
            if not self.offset % self.alignment
            else int(np.bitwise_or.reduce(base + base.dtype.type(self.offset % self.alignment)))
        )
        return bool(bits & (self.alignment - 1))

    # ---- chosen lanes --------------------------------------------------------------------------------------
    def _some_lanes(self, lanes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        raw = self.signed[lanes].astype(np.int64) + self.offset
        if lanes.size == 0:
            return raw, lanes
        host, valid = self._host(raw, lanes)
        lanes, host = self._drop(lanes, host, raw, valid)
        indices = host - ORIGIN
        for watcher in self.watchers:
            if lanes.size:
                watcher.access(self, lanes, indices)
        return indices, lanes

    def _drop(self, lanes: np.ndarray, host: np.ndarray, raw: np.ndarray, valid: np.ndarray) -> tuple:
        """Report invalid lanes and leave them out."""
        skewed = (raw & (self.alignment - 1)) != 0
        if not valid.all():
            self._report("out-of-bounds", lanes[~valid], raw[~valid])
        if skewed.any():
            self._report("misaligned", lanes[skewed & valid], raw[skewed & valid])
        good = valid & ~skewed
        return (lanes, host) if good.all() else (lanes[good], host[good])

    def _report(self, kind: str, lanes: np.ndarray, addresses: np.ndarray) -> None:
        if not lanes.size:
            return
        address = int(addresses[0])
        doing = {READ: "read", WRITE: "write", ATOMIC: "atomic access"}[self.kind]
        if kind == "misaligned":
            message = f"{self.space} {doing} of {self.nbytes} bytes is not aligned to {self.alignment}"
        elif self.space == "shared" or address & ~WINDOW_MASK == SHARED_WINDOW:
            message = f"shared {doing} of {self.nbytes} bytes {self._why_not(address, int(lanes[0]))}"
        elif self.space == "local":
            message = f"local {doing} of {self.nbytes} bytes outside the thread's local memory"
        else:
            message = f"{self.space} {doing} of {self.nbytes} bytes: {self.machine.memory.describe(address)}"
        self.machine.report(kind, message, self.site, lanes, addresses)

    def _why_not(self, address: int, lane: int) -> str:
        """Words for what is wrong with a shared address."""
        machine = self.machine
        rank = ((address & WINDOW_MASK) >> RANK_SHIFT) - 1
        if rank < 0 or rank == machine.rank_of_lane[lane]:
            return f"outside the CTA's {machine.shared_bytes} bytes"
        if rank >= machine.cluster_size:
            return f"in CTA {rank} of a cluster of {machine.cluster_size}"
        if not self.reaches_cluster:
            return f"in CTA {rank} of the cluster: only .shared::cluster reaches other CTAs"
        if not machine.running()[machine.cta_of_lane[lane] - machine.rank_of_lane[lane] + rank]:
            return f"in CTA {rank} of the cluster, which has ended"
        return f"outside the {machine.shared_bytes} bytes of CTA {rank} of the cluster"

    def _host(self, raw: np.ndarray, lanes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Host addresses and their validity, by space."""
        if self.space == "shared":
            return self._in_shared(raw, lanes)
        if self.space == "local":
            return self._windowed(raw, lanes, self.locals, self.machine.local_base)
        if self.space == "param":
            raw = np.where(raw < PARAM_END, raw + (address_of(self.machine.params) - PARAM_BASE), raw)
        if self.space in ("generic", "param"):
            return self._generic(raw, lanes)
        if self.machine.memory.contains(int(raw.min()), int(raw.max()) + self.nbytes):
            return raw, np.ones(raw.shape, bool)
        return raw, self.machine.memory.valid(raw, self.nbytes)

    def _in_shared(self, raw: np.ndarray, lanes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        machine = self.machine
        offset, owner = machine.shared_places(raw, lanes)
        host, valid = self._windowed(offset, lanes, self.window, machine.shared_base)
        foreign = owner != machine.rank_of_lane[lanes]
        if not foreign.any():
            return host, valid
        apart = owner - machine.rank_of_lane[lanes]
        valid &= ~foreign | self.reaches_cluster & (owner >= 0) & (owner < machine.cluster_size)
        apart[~valid] = 0
        valid &= ~foreign | machine.running()[machine.cta_of_lane[lanes] + apart]
        return host + apart * machine.shared_stride, valid

    def _windowed(
        self, raw: np.ndarray, lanes: np.ndarray, window: tuple[int, int], lane_base: np.ndarray
    ) -> tuple:
        return raw + lane_base[lanes], (raw >= window[0]) & (raw <= window[1] - self.nbytes)

    def _generic(self, raw: np.ndarray, lanes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        host, valid = raw.copy(), self.machine.memory.valid(raw, self.nbytes)
        inside = (raw & ~WINDOW_MASK) == SHARED_WINDOW
        if inside.any():
            host[inside], valid[inside] = self._in_shared(raw[inside] & WINDOW_MASK, lanes[inside])
        inside = (raw & ~WINDOW_MASK) == LOCAL_WINDOW
        if inside.any():
            there = self._windowed(
                raw[inside] & WINDOW_MASK, lanes[inside], self.locals, self.machine.local_base
            )
            host[inside], valid[inside] = there
        return host, valid


def gather(indices: np.ndarray, nbytes: int, out: np.ndarray | None = None) -> np.ndarray:
    """Load ``nbytes`` (1, 2, 4, 8, 16) per index from host memory, as the width's table dtype."""
    shift = nbytes.bit_length() - 1
    if shift:
        indices = np.right_shift(indices, shift)
    return TABLES[nbytes].take(indices, out=out, mode="clip")


def scatter(indices: np.ndarray, nbytes: int, values: np.ndarray) -> None:
    """Store one value of the width's table dtype per index; the last lane wins where two agree."""
    shift = nbytes.bit_length() - 1
    TABLES[nbytes][np.right_shift(indices, shift) if shift else indices] = values
