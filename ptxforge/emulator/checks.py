"""Checked mode: races and uninitialised reads in shared memory, races in global memory.

Lockstep execution hides races: with a barrier removed, every result is usually still right here. So checked
mode keeps a *shadow* of shared memory: for every granule (the smallest shared access of the kernel, 1 to 16
bytes) who wrote it last and which two warps read it last. A record is one u4: ``tick << 13 | thread``, 0 for
"never"; bit 31 marks an atomic access. The *tick* counts the memory instructions that the batch has executed,
so it also tells which instruction made the record.

What orders two accesses is kept at the granularity of warps, as vector clocks in ticks:
``seen[cluster, v, w]`` is the newest tick up to which all accesses of warp w happened before the present of
warp v (warps and threads are numbered within their cluster, which for most kernels is one CTA). A CTA barrier
takes the maximum over the warps that took part; ``bar.warp.sync``, ``shfl``, ``vote`` and the like order the
lanes of one warp; mbarriers carry a clock from their arrivals to their waiters (:mod:`async_checks`). A
conflict is a race when the earlier record's tick is newer than ``seen``. The quick tests, which settle nearly
all accesses, compare with ``floor``, the last tick at which every CTA passed a CTA-wide barrier: the record,
or the newest record of all.

A write checks the last writer and both readers, a read the last writer. Two lanes of one instruction that
write different values to one granule race too. Atomics do not race with atomics. Volatile, relaxed, acquire
and release accesses count as atomic.

Global memory has a shadow per allocation, with CTA and thread of the last writer and of two readers. ("CTA"
stands for a cluster here too: its threads are told apart as those of one CTA are.) Threads of one CTA race as
they do in shared memory. A conflict of two CTAs is a race, unless the earlier CTA executed a fence after its
access and then an atomic operation on an allocation where the later one did an atomic operation afterwards,
followed by a fence or a barrier (or the atomics have release and acquire semantics themselves). Most
allocations are only read, or filled row by row; for those the accesses are remembered as they are, and
entered into a shadow when something comes along that could conflict.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ptxforge.emulator.access import ATOMIC, READ, WRITE, Locator, gather
from ptxforge.emulator.findings import Site
from ptxforge.emulator.memory import (
    CTA_SHIFT,
    GLOBAL_ATOMIC,
    ORIGIN,
    SEVERAL,
    THREAD_BITS,
    TICK,
    WHO,
    Accesses,
    Allocation,
    Overwrites,
    address_of,
    per_granule,
)
from ptxforge.emulator.parser import TYPE_BITS, Instruction
from ptxforge.emulator.program import SHARED_BASE, Program
from ptxforge.emulator.registers import feeds_guarded_stores_only, unwritten
from ptxforge.emulator.state import EXIT, Machine

_ATOMIC_BIT = np.uint32(1 << 31)
_RECORD = np.uint32((1 << 31) - 1)
_THREAD = np.uint32((1 << THREAD_BITS) - 1)
_WARP = np.uint32(((1 << THREAD_BITS) - 1) & ~31)
_GROUPS = {1: "u4", 2: "u8", 4: "c16"}
"""Records per access -> the dtype that moves that many at once."""

_LAST_TICK = (1 << 31 - THREAD_BITS) - 2

_OTHER_SIZES = {"ldmatrix": 16, "stmatrix": 16, "mbarrier": 8, "wgmma": 16}
"""Opcodes other than loads and stores that access shared memory -> the size of an access."""


def granule_of(program: Program) -> int:
    """The smallest access to shared memory in the program: 1, 2, 4, 8 or 16 bytes."""
    sizes = [_shared_access(item) for block in program.blocks for item in block.instructions]
    return min([size for size in sizes if size], default=16)


def _shared_access(item: Instruction) -> int:
    """Bytes per access when the instruction may access shared memory, else 0."""
    name = item.parts[0]
    if item.has("bulk") and name == "st":
        return 8
    if name in ("ld", "st", "atom", "red", "ldu"):
        size = TYPE_BITS[item.types[-1]] // 8 * item.vector_width
        return min(size, 16) if item.space in ("shared", "generic") else 0
    if name == "cp":
        size = getattr(item.operands[2], "value", 4) if item.has("ca", "cg") and len(item.operands) > 2 else 4
        return 0 if item.has("commit_group", "wait_group", "wait_all", "commit") else min(size, 16)
    return _OTHER_SIZES.get(name, 0)


def _lost(indices: np.ndarray, values: np.ndarray, nbytes: int) -> np.ndarray:
    """Rows of a store that do not find there what they stored in pieces of ``nbytes``."""
    rows = []
    word = f"u{min(nbytes, 8)}"
    for piece, stored in enumerate(values.T if values.ndim == 2 else [values]):
        found = gather(indices + nbytes * piece if piece else indices, nbytes).view(word)
        different = np.flatnonzero(found != np.ascontiguousarray(stored).view(word))
        rows.append(different // max(nbytes // 8, 1))
    return np.unique(np.concatenate(rows)) if any(part.size for part in rows) else rows[0]


def _any_of(flags: np.ndarray) -> np.ndarray:
    """``flags.any(axis=1)`` of a contiguous bool array ``(n, 1 | 2 | 4)``."""
    return flags.view(f"u{flags.shape[1]}")[:, 0] != 0


class Checker:
    """The watcher of one machine in checked mode."""

    def __init__(self, machine: Machine, world: GlobalShadow | None = None):
        self.machine, self.world = machine, world
        self.granule = granule_of(machine.program)
        size = machine.shared.nbytes // self.granule
        self.writer = np.zeros(size, np.uint32)
        self.reader = np.zeros(size, np.uint32)
        self.other_reader = np.zeros(size, np.uint32)
        warps = machine.warps_per_cluster
        self.seen = np.zeros((machine.clusters, warps, warps), np.int64)
        self.all_synced = np.zeros(machine.clusters, np.int64)
        self.initialisations = self.seen
        """Like ``seen``, of initialisations of mbarriers alone, behind ``fence.mbarrier_init``."""
        self.thread = machine.thread_in_cluster.astype(np.uint32)
        self._threads = {
            count: np.ascontiguousarray(np.repeat(self.thread[:, None], count, axis=1)) for count in _GROUPS
        }
        self.warp = machine.thread_in_cluster // 32
        self.who = (machine.cluster_of_lane + 1 << 32 | machine.thread_in_cluster).astype(np.uint64)
        self.sites: list[Site] = []
        self._base = address_of(machine.shared) - ORIGIN
        self._shift = self.granule.bit_length() - 1
        machine.barrier_hooks.append(self.barrier)
        self.forget_hooks: list[Callable[[], None]] = []
        """Called when ticks start again: those who keep ticks forget them."""

    # ---- watcher protocol ----------------------------------------------------------------------------------
    def start(self) -> None:
        """A new batch: nothing was accessed."""
        for shadow in (self.writer, self.reader, self.other_reader):
            shadow.fill(0)
        self.seen.fill(0)
        self.all_synced.fill(0)
        self._begin_history()
        self.now, self.floor = 2, 1
        self._read_at = self._wrote_at = 0
        for site, message in unwritten(self.machine.program):
            self.machine.report("register", message, site, np.zeros(1, np.int64))

    def _begin_history(self) -> None:
        """No tick has a site yet."""
        self.sites = [None, None]
        if self.world is not None:
            first = self.machine.first_cluster
            for cluster in range(first, first + self.machine.clusters):
                self.world.histories[cluster] = self.sites

    def join(self, watch: object) -> None:
        """Watch another launch."""
        self.world = watch.world

    def finish(self) -> None:
        """The batch ended."""
        if self.world is not None:
            self.world.tell_waiting()

    def watches(self, space: str, kind: str) -> bool:
        return space in ("shared", "generic") or self.world is not None and space == "global"

    def access(self, locator: Locator, lanes: np.ndarray | None, indices: np.ndarray) -> None:
        if locator.space == "global":
            self.world.access(self, locator, lanes, indices)
            return
        if locator.space == "generic":
            self._generic(locator, lanes, indices)
            return
        self._shared(locator, lanes, indices)

    def stored(
        self, locator: Locator, lanes: np.ndarray | None, indices: np.ndarray, values: np.ndarray, nbytes: int
    ) -> None:
        """After a store: lanes that do not find their value lost it to another lane of the same
        instruction.
        """
        if self.world is not None:
            self.world.overwrites.tell(after_store=True)
        if indices.size < 2 or np.ndim(values) == 0:
            if self.world is not None:
                self.world.met = None  # one value for all
            return
        if locator.space == "global" and self.world is not None:
            self.world.stored(self, locator, lanes, lambda: _lost(indices, values, nbytes))
        if locator.space != "shared":
            return
        per_lane = _lost(indices, values, nbytes)
        if not per_lane.size:
            return
        where = per_lane if lanes is None else lanes[per_lane]
        self.machine.report(
            "race",
            "threads write different values to the same shared address in one instruction",
            locator.site,
            where,
            self._offsets(indices[per_lane], where),
        )

    # ---- shared memory -------------------------------------------------------------------------------------
    def _generic(self, locator: Locator, lanes: np.ndarray | None, indices: np.ndarray) -> None:
        """Split an access through generic addresses by where it goes."""
        lanes = self.machine.lanes_in(lanes)
        inside = (indices >= self._base) & (indices < self._base + self.machine.shared.nbytes)
        if inside.any():
            self._shared(locator, lanes[inside], indices[inside])
        if self.world is not None:
            local = self.machine.local
            start = address_of(local) - ORIGIN
            outside = ~inside & ((indices < start) | (indices >= start + local.nbytes))
            if outside.any():
                self.world.access(self, locator, lanes[outside], indices[outside])

    def _shared(self, locator: Locator, lanes: np.ndarray | None, indices: np.ndarray) -> None:
        if locator.kind == READ:
            self.read(locator.site, lanes, indices, locator.nbytes, locator.strong)
        else:
            self.write(locator.site, lanes, indices, locator.nbytes, locator.kind == ATOMIC or locator.strong)

    def granules(self, indices: np.ndarray, nbytes: int) -> np.ndarray:
        """Shadow positions ``(accesses, granules per access)`` of host indices."""
        first = np.right_shift(indices - self._base, self._shift)
        count = max(nbytes >> self._shift, 1)
        return first[:, None] if count == 1 else first[:, None] + np.arange(count)

    def _places(self, indices: np.ndarray, nbytes: int) -> tuple[np.ndarray, int]:
        """Where accesses of at most four granules are: positions in shadows seen as groups of ``count``
        records, and count.
        """
        count = max(nbytes >> self._shift, 1)
        where = indices - self._base
        np.right_shift(where, self._shift + count.bit_length() - 1, out=where)
        return where, count

    @staticmethod
    def _fetch(shadow: np.ndarray, where: np.ndarray, count: int) -> np.ndarray:
        """Records ``(accesses, count)``."""
        return shadow.view(_GROUPS[count]).take(where).view(np.uint32).reshape(-1, count)

    @staticmethod
    def _put(shadow: np.ndarray, where: np.ndarray, records: np.ndarray) -> None:
        """Store records ``(accesses, count)``."""
        count = records.shape[1]
        shadow.view(_GROUPS[count])[where] = np.ascontiguousarray(records).view(_GROUPS[count])[:, 0]

    def _pieces(self, indices: np.ndarray, nbytes: int) -> list[tuple[np.ndarray, int]]:
        """An access of more than four granules in parts."""
        step = 4 << self._shift
        return [(indices + offset, min(step, nbytes - offset)) for offset in range(0, nbytes, step)]

    def tick(self, site: Site) -> int:
        """The tick of a new access by ``site``."""
        if self.now >= _LAST_TICK:
            self._forget()
        self.sites.append(site)
        self.now += 1
        return self.now - 1

    def _forget(self) -> None:
        """Ticks ran out: keep what is initialised, call everything so far ordered."""
        self.writer[self.writer != 0] = 1 << THREAD_BITS
        self.reader.fill(0)
        self.other_reader.fill(0)
        self.seen.fill(1)
        self.all_synced.fill(1)
        self._begin_history()
        self.now, self.floor = 2, 1
        self._read_at = self._wrote_at = 0
        if self.world is not None:
            first = self.machine.first_cluster
            self.world.forget(range(first, first + self.machine.clusters))
        for hook in self.forget_hooks:
            hook()

    def read(
        self, site: Site, lanes: np.ndarray | None, indices: np.ndarray, nbytes: int, strong: bool = False
    ) -> None:
        """Lanes read shared memory now. ``indices`` are host addresses - ORIGIN, one per lane."""
        for part, size in self._pieces(indices, nbytes):
            where, record = self._look(site, lanes, part, size, strong)
            if not strong:
                self._note_readers(where, record)
                self._read_at = self.now - 1

    def _note_readers(self, where: np.ndarray, record: np.ndarray) -> None:
        """Make the accessing lanes the last readers; those that they displace, in this instruction or before,
        become the others.
        """
        count = record.shape[1]
        before = self._fetch(self.reader, where, count) if self._read_at > self.floor else None
        self._put(self.reader, where, record)
        after = self._fetch(self.reader, where, count)
        lost = _any_of(((after ^ record) & _WARP) != 0)
        if lost.any():
            self._put(self.other_reader, where[lost], record[lost])
        if before is None:
            return
        recent = before >= self._oldest
        if not recent.any():
            return
        displaced = _any_of(recent & (((before ^ record) & _WARP) != 0)) & ~lost
        if displaced.any():
            self._put(self.other_reader, where[displaced], before[displaced])

    def inspect(self, site: Site, lanes: np.ndarray, indices: np.ndarray, nbytes: int) -> None:
        """Like :meth:`read`, but the read is not remembered."""
        for part, size in self._pieces(indices, nbytes):
            self._look(site, lanes, part, size, False)

    def _look(
        self, site: Site, lanes: np.ndarray | None, indices: np.ndarray, nbytes: int, strong: bool
    ) -> tuple:
        """Check a read; returns its places and the records ``(accesses, count)`` that it leaves."""
        where, count = self._places(indices, nbytes)
        record = self._record(self.tick(site), lanes, count)
        written = self._fetch(self.writer, where, count)
        if not written.all():
            self._report_uninitialised(site, lanes, indices, written)
        if self._wrote_at > self.floor:
            self._conflicts(site, lanes, indices, written, record, "read", "written", forgive_atomic=strong)
        return where, record

    def write(
        self, site: Site, lanes: np.ndarray | None, indices: np.ndarray, nbytes: int, atomic: bool = False
    ) -> None:
        """Lanes write shared memory now."""
        for part, size in self._pieces(indices, nbytes):
            where, count = self._places(part, size)
            record = self._record(self.tick(site), lanes, count)
            if self._wrote_at > self.floor:
                known = self._fetch(self.writer, where, count)
                self._conflicts(site, lanes, part, known, record, "write", "written", forgive_atomic=atomic)
            if self._read_at > self.floor:
                for shadow in (self.reader, self.other_reader):
                    known = self._fetch(shadow, where, count)
                    self._conflicts(site, lanes, part, known, record, "write", "read")
            self._put(self.writer, where, record | _ATOMIC_BIT if atomic else record)
        self._wrote_at = self.now - 1

    def forgive(self, offsets: np.ndarray, nbytes: int) -> None:
        """Let the last writes there (bytes from the start of shared memory) count as atomic."""
        where = self.granules(offsets + self._base, nbytes)
        self.writer[where] |= np.where(self.writer[where] != 0, _ATOMIC_BIT, np.uint32(0))

    def _record(self, tick: int, lanes: np.ndarray | None, count: int) -> np.ndarray:
        """The records ``(accesses, count)`` of an access by these lanes."""
        threads = self._threads[count] if lanes is None else self._threads[count][lanes]
        return threads | np.uint32(tick << THREAD_BITS)

    def global_stamp(self, site: Site) -> np.uint64:
        """What a new access to global memory adds to :attr:`who` for its records (see
        :class:`Allocation`).
        """
        return np.uint64((self.machine.first_cluster << 32) + (self.tick(site) << THREAD_BITS))

    def alike(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """One index per lane as ``(bases, offsets)``, one base per CTA, when every CTA has the same
        offsets.
        """
        rows = indices.reshape(self.machine.ctas, -1)
        apart = self.machine.scratch("i8", 8).reshape(rows.shape)
        np.subtract(rows, rows[:, :1], out=apart)
        if not (apart == apart[0]).all():
            return None
        return rows[:, 0].copy(), apart[0].copy()

    def ordered(self, lanes: np.ndarray, records: np.ndarray) -> np.ndarray:
        """Whether records (tick and thread, i8) of the lanes' own clusters happened before their present."""
        warps = (records & int(_THREAD)) >> 5
        seen = self.seen[self.machine.cluster_of_lane[lanes], self.warp[lanes], warps]
        return (records >> THREAD_BITS) <= seen

    @property
    def _oldest(self) -> np.uint32:
        """The smallest record that may be unordered."""
        return np.uint32(self.floor + 1 << THREAD_BITS)

    def _conflicts(
        self,
        site: Site,
        lanes: np.ndarray | None,
        indices: np.ndarray,
        records: np.ndarray,
        me: np.ndarray,
        doing: str,
        done: str,
        forgive_atomic: bool = False,
    ) -> None:
        """Report records that are not ordered before the present of the accessing warps."""
        recent = records >= self._oldest  # atomic ones always: their bit is the highest
        if not recent.any():
            return
        rows, columns = np.nonzero(recent)
        old = records[rows, columns]
        if forgive_atomic:
            plain = (old & _ATOMIC_BIT) == 0
            rows, old = rows[plain], old[plain]
        old = old & _RECORD
        lane = rows if lanes is None else lanes[rows]
        ticks, warps = (old >> THREAD_BITS).astype(np.int64), (old & _THREAD) >> 5
        ordered = ticks <= self.seen[self.machine.cluster_of_lane[lane], self.warp[lane], warps]
        racing = ~ordered & ((old ^ me[rows, 0]) & _THREAD != 0)
        if racing.any():
            first = int(np.flatnonzero(racing)[0])
            self._report_race(site, rows[racing], lane[racing], indices, int(old[first]), doing, done)

    def _report_race(
        self,
        site: Site,
        rows: np.ndarray,
        lanes: np.ndarray,
        indices: np.ndarray,
        old: int,
        doing: str,
        done: str,
    ) -> None:
        other = self.sites[old >> THREAD_BITS]
        thread = self.machine.thread_name(old & int(_THREAD))
        where = "by an asynchronous copy" if other is None else f"by {thread} at {other}"
        message = f"shared {doing} of what is {done} {where}, with no barrier between"
        self.machine.findings.add(
            self.machine, "race", message, site, lanes, self._offsets(indices[rows], lanes), other
        )

    def _report_uninitialised(
        self, site: Site, lanes: np.ndarray | None, indices: np.ndarray, written: np.ndarray
    ) -> None:
        bad = np.flatnonzero((written == 0).any(axis=1))
        who = bad if lanes is None else lanes[bad]
        self.machine.report(
            "uninitialised",
            "shared memory is read that nobody has written",
            site,
            who,
            self._offsets(indices[bad], who),
        )

    def _offsets(self, indices: np.ndarray, lanes: np.ndarray) -> np.ndarray:
        """Shared addresses, as the kernel sees them."""
        return (indices - self._base) % self.machine.shared_stride + SHARED_BASE

    # ---- synchronisation -----------------------------------------------------------------------------------
    def barrier(self, ctas: np.ndarray, mask: np.ndarray | None) -> None:
        """A CTA barrier opened for the lanes in ``mask`` (None: every lane of the batch)."""
        machine, present = self.machine, self.now - 1
        if self.world is not None:
            clusters = (
                np.arange(machine.clusters) if mask is None else np.unique(ctas // machine.cluster_size)
            )
            self.world.barrier(clusters + machine.first_cluster)
        if mask is None and machine.cluster_size == 1:
            self.seen.fill(present)
            self.all_synced.fill(present)
            self.floor = present
            return
        for cta in range(machine.ctas) if mask is None else ctas.tolist():
            cluster, rank = divmod(cta, machine.cluster_size)
            lanes = slice(cta * machine.threads, (cta + 1) * machine.threads)
            met = np.ones(machine.threads, bool) if mask is None else mask[lanes]
            warps = np.flatnonzero(met.reshape(-1, 32).any(axis=1)) + rank * machine.warps_per_cta
            if not warps.size:  # all arrived without waiting: nobody was held, so nothing is ordered
                continue
            joined = self.seen[cluster, warps].max(axis=0)
            joined[warps] = present
            self.seen[cluster, warps] = joined
            if warps.size == machine.warps_per_cluster:
                self.all_synced[cluster] = present
        self.floor = int(self.all_synced.min())

    def warp_barrier(self, site: Site, mask: np.ndarray | None, members: np.ndarray) -> None:
        """Lanes of a warp meet: orders their accesses."""
        present = self.now - 1
        diagonal = np.arange(self.machine.warps_per_cluster)
        if mask is None:
            self.seen[:, diagonal, diagonal] = present
            return
        self._check_members(site, mask, members)
        met = mask.reshape(self.machine.clusters, -1, 32).any(axis=2)
        clusters, warps = np.nonzero(met)
        self.seen[clusters, warps, warps] = present

    def _check_members(self, site: Site, mask: np.ndarray, members: np.ndarray) -> None:
        """Every lane that the member mask names must take part (padding lanes of the last warp aside)."""
        machine = self.machine
        bits = np.uint32(1) << np.arange(32, dtype=np.uint32)
        active = mask.reshape(-1, 32)
        wanted = np.bitwise_or.reduce(np.where(active, members.reshape(-1, 32), np.uint32(0)), axis=1)
        absent = (wanted[:, None] & bits).astype(bool) & ~active
        if machine.padding is not None:
            absent &= ~machine.padding.reshape(-1, 32)
        if absent.any():
            lanes = np.flatnonzero(absent.reshape(-1))
            gone = "has exited" if machine.pc[lanes[0]] == EXIT else "is elsewhere"
            machine.report("barrier", f"a warp instruction names a thread that {gone}", site, lanes)

    def fence(self, mask: np.ndarray | None, parts: tuple[str, ...]) -> None:
        """fence and membar: what makes an atomic release global memory."""
        if self.world is None or "proxy" in parts:
            return
        lanes = slice(None) if mask is None else mask
        clusters = np.unique(self.machine.cluster_of_lane[lanes]) + self.machine.first_cluster
        self.world.fence(clusters)


@dataclass(frozen=True)
class RemoteAccess:
    """An access to global memory that no locator makes: what :class:`GlobalShadow` asks a locator for."""

    site: Site
    kind: str
    nbytes: int
    strong: bool = False
    acquires: bool = False
    releases: bool = False


class GlobalShadow:
    """Who wrote and read global memory in one launch. Shared by the checkers of all its batches."""

    def __init__(self, ctas: int):
        self.shadows: dict[int, Allocation] = {}
        self.fenced = np.zeros(ctas, bool)
        """CTAs that have written nothing since their last fence."""
        self.released: dict[int, np.ndarray] = {}
        self.acquired: dict[int, np.ndarray] = {}
        self.observed: dict[int, np.ndarray] = {}
        """CTA -> CTAs whose releases it has seen by relaxed operations: its next fence acquires them."""
        self.ctas = ctas
        self.unwritten: dict[int, np.ndarray] = {}
        """Of allocations that were poisoned, by start: the bytes that nobody has written."""
        self.histories: dict[int, list[Site | None]] = {}
        """CTA -> the site of each tick of its batch."""
        self._suspects: np.ndarray | None = None
        """Rows of the access under way that met another thread's write of the same instruction."""
        self.overwrites = Overwrites()
        self.met: tuple[tuple, np.ndarray, np.ndarray] | None = None
        """Of a store: the access, where other CTAs' lanes write the same place, and their records."""

    def tell_waiting(self) -> None:
        """Report what a store was about to do."""
        if self.met is not None:
            self.tell_met(np.arange(len(self.met[1])))
        self.overwrites.tell()

    def tell_met(self, rows: np.ndarray) -> None:
        """Report those of :attr:`met` that did not find their value in memory."""
        access, foreign, found = self.met
        self.met = None
        chosen = np.zeros(len(foreign), bool)
        chosen[rows] = True
        self._report(access, foreign & chosen.reshape(-1, *[1] * (foreign.ndim - 1)), found, "written")
        self.tell_waiting()

    def _add(
        self,
        access: tuple,
        done: str,
        kind: str,
        message: str,
        rows: np.ndarray,
        lane: np.ndarray,
        other: Site | None,
    ) -> None:
        """A finding about ``rows`` of an access: now, or when it has stored."""
        checker, locator, _, indices, *_ = access
        where, finding = indices[rows].copy(), (checker.machine, kind, message, locator.site, lane, other)
        if locator.kind == WRITE and done == "written":
            self.overwrites.add(where, locator.nbytes, finding)
        else:
            checker.machine.findings.add(*finding[:-1], where + ORIGIN, other)

    def forget(self, ctas: range) -> None:
        """The ticks of these CTAs start again: what they did so far counts as ordered within each."""
        for shadow in self.shadows.values():
            shadow.settle()
            for records in (shadow.writer, shadow.reader, shadow.other_reader):
                cta = ((records & ~GLOBAL_ATOMIC) >> CTA_SHIFT).astype(np.int64) - 1
                records[(cta >= ctas.start) & (cta < ctas.stop)] &= ~TICK

    def fence(self, ctas: np.ndarray) -> None:
        """CTAs execute a fence: it releases what they did, with their next atomic, and acquires what they
        observed.
        """
        self.fenced[ctas] = True
        self.barrier(ctas)

    def barrier(self, ctas: np.ndarray) -> None:
        """CTAs pass a barrier: what one thread's atomic observed before it, the others may use after it."""
        if not self.observed:
            return
        for cta in ctas.tolist():
            if cta in self.observed:
                self._merge(self.acquired, cta, self.observed.pop(cta))

    def _merge(self, table: dict[int, np.ndarray], cta: int, others: np.ndarray) -> None:
        known = table.setdefault(cta, np.zeros(self.ctas, bool))
        np.logical_or(known, others, out=known)

    def access(
        self, checker: Checker, locator: Locator, lanes: np.ndarray | None, indices: np.ndarray
    ) -> None:
        """Note an access, report conflicts with other threads and CTAs."""
        self._suspects = None
        if self.overwrites or self.met:
            self.tell_waiting()
        memory = checker.machine.memory
        low, high = _extent(locator, lanes, indices)
        stamp = checker.global_stamp(locator.site)
        if memory.contains(low, high):
            self._in_allocation(checker, locator, lanes, indices, stamp, low)
            return
        home = memory.home(indices + ORIGIN)
        lanes = checker.machine.lanes_in(lanes)
        for number in np.unique(home):
            chosen = home == number
            inside = int(indices[chosen][0]) + ORIGIN
            self._in_allocation(checker, locator, lanes[chosen], indices[chosen], stamp, inside)
            self._suspects = None

    def _in_allocation(
        self,
        checker: Checker,
        locator: Locator,
        lanes: np.ndarray | None,
        indices: np.ndarray,
        stamp: np.uint64,
        inside: int,
    ) -> None:
        machine = checker.machine
        start, nbytes = machine.memory.allocation_at(inside)
        atomic = locator.kind == ATOMIC or locator.strong
        if machine.memory.may_be_unwritten(start):
            self._check_written(checker, locator, lanes, indices, (start, nbytes))
        if atomic:
            self._synchronise(start, locator, _clusters(machine, lanes))
        shadow = self.shadows.get(start)
        if shadow is None:
            shadow = self.shadows[start] = Allocation(start, nbytes, min(locator.nbytes, 16))
        alike = checker.alike(indices) if lanes is None and not atomic else None
        who = checker.who if lanes is None else checker.who[lanes]
        bases, offsets = alike or (np.zeros(1, np.int64), indices)
        accesses = Accesses(bases, offsets, locator.nbytes, who, stamp)
        if locator.kind == READ and not atomic and not shadow.written:
            shadow.defer_read(accesses if alike else replace(accesses, offsets=indices.copy()))
            return
        if locator.kind == WRITE and not atomic and self.fenced.any():
            self.fenced[_clusters(machine, lanes)] = False
        if locator.kind == WRITE and not atomic and alike and shadow.defer_row(accesses):
            return
        shadow.settle()
        where = shadow.positions(indices, locator.nbytes)
        records = per_granule(accesses.records, where)
        self._exactly(shadow, where, atomic, (checker, locator, lanes, indices, records, where))

    def _check_written(
        self,
        checker: Checker,
        locator: Locator,
        lanes: np.ndarray | None,
        indices: np.ndarray,
        allocation: tuple[int, int],
    ) -> None:
        """Report reads of bytes that nobody has written, and note what is written now."""
        start, nbytes = allocation
        unwritten = self.unwritten.get(start)
        if unwritten is None:
            unwritten = self.unwritten[start] = checker.machine.memory.unwritten(start, nbytes)
        places = (indices + (ORIGIN - start))[:, None] + np.arange(locator.nbytes)
        if locator.kind != WRITE:
            bad = np.flatnonzero(unwritten[places].any(axis=1))
            checker.machine.report(
                "uninitialised",
                "global memory is read that nobody has written",
                locator.site,
                bad if lanes is None else lanes[bad],
                indices[bad] + ORIGIN,
            )
        if locator.kind != READ:
            unwritten[places] = False

    def _exactly(self, shadow: Allocation, where: np.ndarray, atomic: bool, access: tuple) -> None:
        """Compare with the records of the granules ``where``, and leave records there."""
        locator, me = access[1], access[4]
        if shadow.written:
            self._conflicts(access, shadow.writer.take(where), "written", atomic)
        if locator.kind == READ:
            if not atomic:
                shadow.note_read(where, me)
            return
        if shadow.was_read:
            self._forget_copies(shadow, where, access)
            self._conflicts(access, shadow.reader.take(where), "read", False)
            self._conflicts(access, shadow.other_reader.take(where), "read", False)
        shadow.written = True
        if atomic:
            self._note_atomic(shadow, where, me)
            return
        shadow.writer[where] = me
        self._met_in_one_instruction(access, shadow.writer.take(where))

    @staticmethod
    def _forget_copies(shadow: Allocation, where: np.ndarray, access: tuple) -> None:
        """Before a write: forget the reads that only repeat what the writing thread has read itself."""
        checker, me = access[0], access[4]
        first = shadow.first_reader.take(where)
        copied = (first != 0) & (((first ^ me) & WHO) == 0)
        if not copied.any():
            return
        for tick in np.unique((first[copied] & TICK) >> np.uint64(THREAD_BITS)).tolist():
            site = checker.sites[tick] if tick < len(checker.sites) else None
            if site is not None and feeds_guarded_stores_only(checker.machine.program, site.line):
                chosen = copied & ((first & TICK) >> np.uint64(THREAD_BITS) == tick)
                shadow.forget_copies(where[chosen], me[chosen])

    def _met_in_one_instruction(self, access: tuple, found: np.ndarray) -> None:
        """Lanes that do not find their own record wrote what another lane of the instruction writes: of
        another CTA or of their own, :meth:`stored` looks whether the values differ.
        """
        me = access[4]
        lost = found != me
        if not lost.any():
            return
        foreign = lost & ((found ^ me) >> CTA_SHIFT != 0)
        if foreign.any():
            self.met = access, foreign, found
        self._suspects = np.unique(np.nonzero(lost & ~foreign)[0])

    def stored(
        self, checker: Checker, locator: Locator, lanes: np.ndarray | None, lost: Callable[[], np.ndarray]
    ) -> None:
        """After a store: report threads that wrote different values to one address."""
        if self._suspects is None and self.met is None:
            return
        losers = lost()
        if self.met is not None:
            self.tell_met(losers)
        rows = np.intersect1d(() if self._suspects is None else self._suspects, losers).astype(np.int64)
        self._suspects = None
        checker.machine.report(
            "race",
            "threads write different values to the same global address in one instruction",
            locator.site,
            rows if lanes is None else lanes[rows],
        )

    @staticmethod
    def _note_atomic(shadow: Allocation, where: np.ndarray, me: np.ndarray) -> None:
        """Atomics of several CTAs are remembered as such, so that the last one's own read does not hide the
        others.
        """
        me = me | GLOBAL_ATOMIC
        before = shadow.writer.take(where)
        shadow.writer[where] = me
        found = shadow.writer.take(where)
        shared = (before & GLOBAL_ATOMIC != 0) & ((before ^ me) >> CTA_SHIFT != 0)
        shared |= (found ^ me) >> CTA_SHIFT != 0
        shadow.writer[where[shared]] = GLOBAL_ATOMIC | SEVERAL << CTA_SHIFT

    def _synchronise(self, start: int, locator: Locator, ctas: np.ndarray) -> None:
        """Atomics on this allocation, CTA by CTA: each takes over what others have released, and releases in
        its turn.

        It releases when it has executed a fence since its last plain store, or by the atomic's own semantics.
        """
        releasing = np.ones(ctas.size, bool) if locator.releases else self.fenced[ctas]
        released = self.released.get(start)
        if released is None and not releasing.any():
            return
        if released is None:
            released = self.released[start] = np.zeros(self.ctas, bool)
        for cta, releases in zip(ctas.tolist(), releasing.tolist()):
            self._merge(self.acquired if locator.acquires else self.observed, cta, released)
            if releases:
                released |= self.acquired.get(cta, False)
                released[cta] = True

    def _conflicts(self, access: tuple, records: np.ndarray, done: str, forgive_atomic: bool) -> None:
        """Report records of other CTAs, and of other threads of the own CTA that nothing has ordered."""
        if not records.any():
            return
        me = access[4]
        other = (records != 0) & (((records ^ me) & WHO) != 0)
        if forgive_atomic:
            other &= (records & GLOBAL_ATOMIC) == 0
        if not other.any():
            return
        foreign = ((records & ~GLOBAL_ATOMIC) ^ me) >> CTA_SHIFT != 0
        self._report(access, other & foreign, records, done)
        self._report_within(access, other & ~foreign, records, done)

    def _report_within(self, access: tuple, same: np.ndarray, records: np.ndarray, done: str) -> None:
        """Report conflicts between threads of one CTA."""
        checker, locator, lanes, indices, _, where = access
        rows = np.nonzero(same)[0]
        if not rows.size:
            return
        old = (records[same] & np.uint64(0xFFFFFFFF)).astype(np.int64)
        lane = rows if lanes is None else lanes[rows]
        racing = ~checker.ordered(lane, old)
        if self.acquired:
            clusters = checker.machine.cluster_of_lane[lane] + checker.machine.first_cluster
            racing &= np.array([not self._ordered(cta, cta) for cta in clusters.tolist()], bool)
        if locator.kind == READ and racing.any():
            racing &= ~self._reads_its_own(access, where[same], rows, old)
        if not racing.any():
            return
        first = int(old[np.flatnonzero(racing)[0]])
        site = checker.sites[first >> THREAD_BITS]
        thread = checker.machine.thread_name(first & int(_THREAD))
        doing = {READ: "read", WRITE: "write", ATOMIC: "atomic access"}[locator.kind]
        text = f"global {doing} of what is {done} by {thread} at {site}, with no barrier between"
        self._add(access, done, "race", text, rows[racing], lane[racing], site)

    @staticmethod
    def _reads_its_own(access: tuple, places: np.ndarray, rows: np.ndarray, old: np.ndarray) -> np.ndarray:
        """Of granules that another thread of the CTA wrote: whether that thread reads them in this
        instruction as well, and what the others read goes nowhere.
        """
        checker, locator, lanes, _, _, where = access
        machine = checker.machine
        if not feeds_guarded_stores_only(machine.program, locator.site.line):
            return np.zeros(places.shape, bool)
        every = machine.lanes_in(lanes)
        per_lane = where.reshape(every.size, -1)
        threads = np.repeat(machine.thread_in_cluster[every], per_lane.shape[1])
        clusters = np.repeat(machine.cluster_of_lane[every], per_lane.shape[1])
        readers = (per_lane.reshape(-1) * machine.clusters + clusters) << THREAD_BITS | threads
        of_row = machine.cluster_of_lane[every[rows]]
        return np.isin((places * machine.clusters + of_row) << THREAD_BITS | (old & int(_THREAD)), readers)

    def _report(self, access: tuple, foreign: np.ndarray, records: np.ndarray, done: str) -> None:
        """Report conflicts with other CTAs."""
        if not foreign.any():
            return
        checker, locator, lanes, indices, *_ = access
        machine = checker.machine
        rows = np.nonzero(foreign)[0]
        lane = rows if lanes is None else lanes[rows]
        old = records[foreign]
        theirs = ((old & ~GLOBAL_ATOMIC) >> CTA_SHIFT).astype(np.int64) - 1
        if self.acquired:
            clusters = machine.cluster_of_lane[lane] + machine.first_cluster
            racing = np.array(
                [not self._ordered(cta, other) for cta, other in zip(clusters.tolist(), theirs.tolist())]
            )
            rows, lane, theirs, old = rows[racing], lane[racing], theirs[racing], old[racing]
        if not rows.size:
            return
        doing = {READ: "read", WRITE: "write", ATOMIC: "atomic access"}[locator.kind]
        other = self._site_of(int(theirs[0]), int(old[0]))
        where = f" at {other}" if other is not None else ""
        text = f"global {doing} of what is {done} by {self._name(machine, int(theirs[0]))}{where}, "
        self._add(access, done, "global-race", f"{text}with nothing that orders them", rows, lane, other)

    def _site_of(self, cta: int, record: int) -> Site | None:
        """The instruction that left a record of a CTA, where that is still known."""
        history = self.histories.get(cta, ())
        tick = (record & int(TICK)) >> THREAD_BITS
        return history[tick] if tick < len(history) else None

    def _ordered(self, cta: int, other: int) -> bool:
        """Whether ``cta`` has acquired what ``other`` (perhaps several CTAs) released."""
        known = self.acquired.get(cta)
        return known is not None and bool(known.any() if other == int(SEVERAL) - 1 else known[other])

    @staticmethod
    def _name(machine: Machine, cta: int) -> str:
        if cta == int(SEVERAL) - 1:
            return "several CTAs"
        return machine.cluster_name(cta)


def _clusters(machine: Machine, lanes: np.ndarray | None) -> np.ndarray:
    """The clusters (counted in the grid) of some lanes."""
    if lanes is None:
        return np.arange(machine.first_cluster, machine.first_cluster + machine.clusters)
    return np.unique(machine.cluster_of_lane[lanes]) + machine.first_cluster


def _extent(locator: Locator, lanes: np.ndarray | None, indices: np.ndarray) -> tuple[int, int]:
    """The addresses ``[low, high)`` between which the access lies."""
    if lanes is None:
        return locator.extent
    return int(indices.min()) + ORIGIN, int(indices.max()) + ORIGIN + locator.nbytes
