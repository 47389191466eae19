"""The state of one batch of CTAs: registers, addresses, special registers, per-family state.

A batch runs ``ctas`` CTAs of ``threads`` threads (rounded up to whole warps, with ``wgmma`` to whole
warpgroups: the padding lanes have exited before they start). Lane = cta * threads + thread; there are
``lanes`` of them and ``warps = lanes / 32``.
CTAs are numbered cluster by cluster, so that those of a cluster lie side by side; a CTA that is launched
without a cluster is a cluster of its own. Each PTX register is one contiguous array ``(lanes,)``; views of
other dtypes are made once per register.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ptxforge.emulator.findings import Site
from ptxforge.emulator.memory import (
    LOCAL_WINDOW,
    PARAM_BASE,
    RANK_SHIFT,
    SHARED_OFFSET,
    SHARED_WINDOW,
    GlobalMemory,
    address_of,
    aligned_zeros,
)
from ptxforge.emulator.parser import TYPE_BITS
from ptxforge.emulator.program import LOCAL_BASE, SHARED_BASE, Program
from ptxforge.emulator.registers import exposed

EXIT = 1 << 28
"""Program counter of a lane that has finished."""

WAITING = 1 << 20
"""Added to the program counter of a lane that waits for an event (``BARRIER`` likewise, at a barrier)."""

BARRIER = 1 << 21
FROZEN = 1 << 22
DIVERGED = -1
"""What a block returns when it has set ``Machine.pc`` itself."""

CARRY = "%cc"
"""The condition code that ``add.cc`` writes and ``addc`` reads."""

_UNSIGNED = {8: "u1", 16: "u2", 32: "u4", 64: "u8", 128: "c16", 1: "?"}


def _coordinates(number: int | np.ndarray, extents: tuple[int, int, int]) -> tuple:
    """x, y, z of something that is counted along x first."""
    width, height, _ = extents
    return number % width, number // width % height, number // (width * height)


class Machine:
    """Everything that the code of one kernel works on, for one batch at a time."""

    def __init__(
        self,
        program: Program,
        memory: GlobalMemory,
        symbols: dict[str, int],
        ctas: int,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared_bytes: int,
        cluster: tuple[int, int, int] = (1, 1, 1),
    ):
        self.program, self.memory, self.symbols = program, memory, symbols
        self.grid, self.block, self.ctas = grid, block, ctas
        self.cluster = cluster
        self.cluster_size = cluster[0] * cluster[1] * cluster[2]
        self.clusters = ctas // self.cluster_size
        self.live_threads = block[0] * block[1] * block[2]
        whole = 128 if program.has_warpgroups else 32
        self.threads = -(-self.live_threads // whole) * whole
        self.lanes = ctas * self.threads
        self.warps = self.lanes // 32
        self.warps_per_cta = self.threads // 32
        self.warps_per_cluster = self.warps_per_cta * self.cluster_size
        self.threads_per_cluster = self.threads * self.cluster_size
        self.dynamic_shared = shared_bytes
        self.shared_bytes = program.static_shared + shared_bytes
        self.namespace: dict[str, object] = {}
        self.pc = np.zeros(self.lanes, np.int64)
        self.findings = None
        self.watchers: list = []
        self.idle_hooks: list[Callable[[], bool]] = []
        self.finish_hooks: list[Callable[[], None]] = []
        self.barrier_hooks: list[Callable[[np.ndarray, np.ndarray], None]] = []
        self.polls = 0
        self.progressed = True
        self.changed = True
        self.clock = 0
        self.output: list[str] = []
        self._families: dict[type, object] = {}
        self._views: dict[tuple[str, str], np.ndarray] = {}
        self._scratch: dict[tuple[str, int, int], np.ndarray] = {}
        self._frames: dict[str, np.ndarray] = {}
        self._allocate_registers()
        self._allocate_memory()
        self._number_lanes()
        registers = sum(array.nbytes for array in self._base.values())
        self.nbytes = registers + self.shared.nbytes + self.local.nbytes
        """Bytes of registers, shared and local memory."""

    # ---- construction --------------------------------------------------------------------------------------
    def _allocate_registers(self) -> None:
        by_width: dict[int, list[str]] = {}
        for name, kind in self.program.registers.items():
            by_width.setdefault(TYPE_BITS[kind], []).append(name)
        self._exposed, self._base = [], {}
        read_first = exposed(self.program)
        for bits, names in by_width.items():
            names.sort(key=lambda name: name not in read_first)
            pool = np.zeros((len(names), self.lanes), _UNSIGNED[bits])
            self._exposed.append(pool[: sum(name in read_first for name in names)])
            self._base.update({name: pool[row] for row, name in enumerate(names)})

    def _allocate_memory(self) -> None:
        self.shared_stride = -(-max(self.shared_bytes, 16) // 1024) * 1024
        self.shared = aligned_zeros(self.ctas * self.shared_stride)
        self.local_stride = -(-max(self.program.local_bytes, 16) // 16) * 16
        self.local = aligned_zeros(self.lanes * self.local_stride if self.program.local_bytes else 16)
        self.params = aligned_zeros(max(self.program.param_bytes, 16))
        lane = np.arange(self.lanes, dtype=np.int64)
        self.cta_of_lane = lane // self.threads
        self.rank_of_lane = self.cta_of_lane % self.cluster_size
        self.cluster_of_lane = lane // self.threads_per_cluster
        self.thread_in_cluster = lane % self.threads_per_cluster
        self.shared_base = address_of(self.shared) + self.cta_of_lane * self.shared_stride - SHARED_BASE
        """(lanes,) i8: add to a shared address for the host address."""
        self.local_base = address_of(self.local) + lane * self.local_stride - LOCAL_BASE
        """(lanes,) i8: add to a local address for the host address."""

    def _number_lanes(self) -> None:
        thread = np.arange(self.threads, dtype=np.uint32)
        x, y, _ = self.block
        every = {
            "tid.x": thread % x,
            "tid.y": thread // x % y,
            "tid.z": thread // (x * y),
            "laneid": thread % 32,
            "warpid": thread // 32,
        }
        self._special = {name: np.tile(values.astype(np.uint32), self.ctas) for name, values in every.items()}
        lane = self._special["laneid"].astype(np.uint64)
        one = np.uint64(1)
        masks = {
            "lanemask_eq": one << lane,
            "lanemask_lt": (one << lane) - one,
            "lanemask_le": (one << lane + one) - one,
            "lanemask_gt": ~((one << lane + one) - one),
            "lanemask_ge": ~((one << lane) - one),
        }
        self._special.update({name: values.astype(np.uint32) for name, values in masks.items()})
        for name in ("ctaid", "clusterid"):
            self._special.update({f"{name}.{axis}": np.zeros(self.lanes, np.uint32) for axis in "xyz"})
        within = _coordinates(self.rank_of_lane, self.cluster)
        for axis, place in zip("xyz", within):
            self._special[f"cluster_ctaid.{axis}"] = place.astype(np.uint32)
        self._special["cluster_ctarank"] = self.rank_of_lane.astype(np.uint32)
        self._special["smid"] = np.zeros(self.lanes, np.uint32)
        self.thread_of_lane = np.tile(thread.astype(np.int64), self.ctas)
        self.padding = self.thread_of_lane >= self.live_threads if self.threads > self.live_threads else None

    # ---- one batch -----------------------------------------------------------------------------------------
    def start(self, first_cta: int, params: bytes) -> None:
        """Reset for the CTAs ``first_cta ... first_cta + ctas - 1``, counted cluster by cluster."""
        self.first_cta = first_cta
        self.first_cluster = first_cta // self.cluster_size
        for registers in self._exposed:
            registers.fill(0)
        self.shared.fill(0)
        if self.program.local_bytes:
            self.local.fill(0)
        self.params[: len(params)] = np.frombuffer(params, np.uint8)
        number = first_cta + np.arange(self.ctas)
        clusters = _coordinates(number // self.cluster_size, self.grid_of_clusters)
        for axis, place, cluster in zip("xyz", self._places(number), clusters):
            self._tell_ctas(f"ctaid.{axis}", place)
            self._tell_ctas(f"clusterid.{axis}", cluster)
        self._tell_ctas("smid", number % 132)
        self.pc.fill(0)
        if self.padding is not None:
            self.pc[self.padding] = EXIT
        for state in self._families.values():
            state.reset()

    def _tell_ctas(self, name: str, values: np.ndarray) -> None:
        """Set a special register to one value in all threads of a CTA."""
        self._special[name].reshape(self.ctas, self.threads)[:] = values[:, None]

    def cta_index(self, cta: int) -> tuple[int, int, int]:
        """Grid coordinates of the batch's CTA number ``cta``."""
        return self._places(self.first_cta + cta)

    @property
    def grid_of_clusters(self) -> tuple[int, int, int]:
        """How many clusters stand along each axis of the grid."""
        return tuple(ctas // extent for ctas, extent in zip(self.grid, self.cluster))

    def _places(self, number: int | np.ndarray) -> tuple:
        """Grid coordinates of CTAs that are numbered cluster by cluster."""
        cluster = _coordinates(number // self.cluster_size, self.grid_of_clusters)
        within = _coordinates(number % self.cluster_size, self.cluster)
        return tuple(c * extent + w for c, extent, w in zip(cluster, self.cluster, within))

    def shared_places(self, addresses: np.ndarray, lanes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Shared addresses of lanes as offsets and ranks of CTAs; the ranks may be of CTAs that are not
        there.
        """
        rank = addresses >> RANK_SHIFT
        own = self.rank_of_lane[lanes]
        if not rank.any():
            return addresses, own
        return np.where(rank > 0, addresses & SHARED_OFFSET, addresses), np.where(rank == 0, own, rank - 1)

    def cluster_name(self, number: int) -> str:
        """Words for a cluster of the grid: its CTA, where it has but one."""
        if self.cluster_size == 1:
            return f"CTA {self._places(number)}"
        return f"cluster {_coordinates(number, self.grid_of_clusters)}"

    def thread_name(self, thread: int) -> str:
        """Words for a thread, numbered within its cluster."""
        rank, own = divmod(thread, self.threads)
        name = f"thread {self.thread_index(own)}"
        return f"{name} of the cluster's CTA {rank}" if self.cluster_size > 1 else name

    def running(self) -> np.ndarray:
        """``(ctas,)``: whether any thread of the CTA has not ended."""
        return (self.pc.reshape(self.ctas, self.threads) != EXIT).any(axis=1)

    def thread_index(self, thread: int) -> tuple[int, int, int]:
        x, y, _ = self.block
        return thread % x, thread // x % y, thread // (x * y)

    # ---- views ---------------------------------------------------------------------------------------------
    def view(self, name: str, dtype: str) -> np.ndarray:
        """Register ``name`` as ``(lanes,)`` of ``dtype``; a narrower dtype gives the low part of
        every lane.
        """
        found = self._views.get((name, dtype))
        if found is None:
            found = self._views[name, dtype] = self._make_view(name, dtype)
        return found

    def registers(self) -> list[np.ndarray]:
        """All registers, each contiguous."""
        return list(self._base.values())

    def part(self, name: str, dtype: str, index: int) -> np.ndarray:
        """Part ``index`` (0 is the lowest) of a register cut into pieces of ``dtype``: ``(lanes,)``,
        strided.
        """
        pieces = self._base[name].view(dtype)
        return pieces[index :: pieces.size // self.lanes]

    def _make_view(self, name: str, dtype: str) -> np.ndarray:
        if name == CARRY:
            self._base.setdefault(CARRY, np.zeros(self.lanes, bool))
        base = self._base[name] if name in self._base else self._special[name]
        made = base.view(dtype)
        return made if made.size == self.lanes else made[:: made.size // self.lanes]

    def special(self, name: str) -> np.ndarray:
        """A special register that is an array over the lanes (u4)."""
        return self._special[name]

    def scratch(self, dtype: str, slot: int = 0, per_lane: int = 1) -> np.ndarray:
        """Shared scratch ``(lanes * per_lane,)``. Its content lasts until the next instruction."""
        key = (dtype, slot, per_lane)
        found = self._scratch.get(key)
        if found is None:
            found = self._scratch[key] = np.zeros(self.lanes * per_lane, dtype)
        return found

    def frame(self, name: str) -> np.ndarray:
        """Storage of a call's ``.param`` variable: u1 ``(lanes, size)``."""
        found = self._frames.get(name)
        if found is None:
            size = self.program.locations[name][1]
            found = self._frames[name] = aligned_zeros(self.lanes * size).reshape(self.lanes, size)
        return found

    def family_state(self, kind: type) -> object:
        """The one instance of ``kind(machine)`` of this machine; its ``reset()`` is called before
        each batch.
        """
        found = self._families.get(kind)
        if found is None:
            found = self._families[kind] = kind(self)
            found.reset()
        return found

    def symbol_address(self, name: str, generic: bool = False) -> int:
        """The address that ``mov reg, name`` gives, in its state space (global addresses are generic)."""
        if name in self.program.params:
            return self.program.params[name][0] + (address_of(self.params) if generic else PARAM_BASE)
        if name in self.program.locations:
            space, address = self.program.locations[name]
            window = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW}.get(space, 0) if generic else 0
            return window + address
        return self.symbols[name]

    def symbol_value(self, name: str, offset: int, dtype: str) -> np.generic | np.ndarray:
        """What ``mov reg, name+offset`` gives: a number, or one for each lane.

        In a cluster a shared variable's address tells its CTA, as on a GPU (sm_90: the rank in bits 24 and
        up; CTA 0 has none there). Code that takes an address apart must reckon with it.
        """
        address = np.dtype(dtype).type(self.symbol_address(name) + offset)
        is_shared = self.program.locations.get(name, ("",))[0] == "shared"
        if self.cluster_size == 1 or not is_shared:
            return address
        rank = self.rank_of_lane
        return address + np.where(rank > 0, rank + 1 << RANK_SHIFT, 0).astype(dtype)

    def read_clock(self, name: str) -> int:
        """A clock that advances with every reading: 1 GHz nominal, so that ``globaltimer`` and ``clock``
        agree.
        """
        self.clock += 32
        return self.clock >> 32 if name.endswith("hi") else self.clock

    def lanes_in(self, chosen: np.ndarray | None) -> np.ndarray:
        """The indices of some lanes, given as a mask, as indices, or by None: all."""
        if chosen is None:
            return np.arange(self.lanes)
        return np.flatnonzero(chosen) if chosen.dtype == bool else chosen

    def partial_warps(self, mask: np.ndarray) -> np.ndarray:
        """Per warp: whether some of its lanes are in ``mask`` and others, which have not exited, are not."""
        rows = mask.reshape(-1, 32)
        return rows.any(axis=1) & (~rows & (self.pc != EXIT).reshape(rows.shape)).any(axis=1)

    def goto(self, mask: np.ndarray | None, index: int) -> None:
        if mask is None:
            self.pc.fill(index)
        else:
            np.copyto(self.pc, index, where=mask)

    def report(
        self, kind: str, message: str, site: Site, lanes: np.ndarray, addresses: np.ndarray | None = None
    ) -> None:
        """Record a finding at ``site`` for the given lanes (the first one is named)."""
        self.findings.add(self, kind, message, site, lanes, addresses)
