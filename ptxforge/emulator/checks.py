"""Checked mode: races and uninitialised reads in shared memory, races between CTAs in global memory.

Lockstep execution hides races: with a barrier removed, every result is usually still right here. So checked
mode keeps a *shadow* of shared memory: for every granule (the smallest shared access of the kernel, 1 to 16
bytes) who wrote it last and which two warps read it last. A record is one u4: ``tick << 10 | thread``, 0 for
"never"; bit 31 marks an atomic access. The *tick* counts the memory instructions that the batch has executed,
so it also tells which instruction made the record.

What orders two accesses is kept at the granularity of warps, as vector clocks in ticks: ``seen[cta, v, w]``
is the newest tick up to which all accesses of warp w happened before the present of warp v. A CTA barrier
takes the maximum over the warps that took part; ``bar.warp.sync``, ``shfl``, ``vote`` and the like order the
lanes of one warp; mbarriers carry a clock from their arrivals to their waiters (:mod:`async_checks`). A
conflict is a race when the earlier record's tick is newer than ``seen``. The quick test, which settles nearly
all accesses, compares with ``floor``, the last tick at which every CTA passed a CTA-wide barrier.

A write checks the last writer and both readers, a read the last writer. Two lanes of one instruction that
write different values to one granule race too. Atomics do not race with atomics. Volatile, relaxed, acquire
and release accesses count as atomic.

Global memory has a shadow per allocation with the last writing CTA and two reading CTAs. A conflict of two
CTAs is a race, unless the earlier CTA executed a fence after its access and then an atomic operation on an
allocation where the later one did an atomic operation afterwards, followed by a fence or a barrier (or the
atomics have release and acquire semantics themselves).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ptxforge.emulator.access import ATOMIC, READ, WRITE, Locator, gather
from ptxforge.emulator.findings import Site
from ptxforge.emulator.memory import ORIGIN, address_of
from ptxforge.emulator.parser import TYPE_BITS, Instruction
from ptxforge.emulator.program import Program
from ptxforge.emulator.registers import unwritten
from ptxforge.emulator.state import EXIT, Machine

_ATOMIC_BIT = np.uint32(1 << 31)
_RECORD = np.uint32((1 << 31) - 1)
_THREAD_BITS = 10
_THREAD = np.uint32((1 << _THREAD_BITS) - 1)
_WARP = np.uint32(((1 << _THREAD_BITS) - 1) & ~31)
_GROUPS = {1: "u4", 2: "u8", 4: "c16"}
"""Records per access -> the dtype that moves that many at once."""

_SEVERAL = np.uint32((1 << 31) - 1)
"""In place of a CTA's number: several CTAs did it."""

_LAST_TICK = (1 << 21) - 2


_OTHER_SIZES = {"ldmatrix": 16, "stmatrix": 16, "mbarrier": 8, "wgmma": 16}
"""Opcodes other than loads and stores that access shared memory -> the size of an access."""


def granule_of(program: Program) -> int:
    """The smallest access to shared memory in the program: 1, 2, 4, 8 or 16 bytes."""
    sizes = [_shared_access(item) for block in program.blocks for item in block.instructions]
    return min([size for size in sizes if size], default=16)


def _shared_access(item: Instruction) -> int:
    """Bytes per access when the instruction may access shared memory, else 0."""
    name = item.parts[0]
    if name in ("ld", "st", "atom", "red", "ldu"):
        spaces = {part.partition("::")[0] for part in item.parts} & {
            "global",
            "shared",
            "local",
            "param",
            "const",
        }
        lanes = next((int(part[1:]) for part in item.parts if part in ("v2", "v4", "v8")), 1)
        return min(TYPE_BITS[item.types[-1]] // 8 * lanes, 16) if not spaces or "shared" in spaces else 0
    if name == "cp":
        size = getattr(item.operands[2], "value", 4) if item.has("ca", "cg") and len(item.operands) > 2 else 4
        return 0 if item.has("commit_group", "wait_group", "wait_all", "commit") else min(size, 16)
    return _OTHER_SIZES.get(name, 0)


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
        warps = machine.warps_per_cta
        self.seen = np.zeros((machine.ctas, warps, warps), np.int64)
        self.all_synced = np.zeros(machine.ctas, np.int64)
        self.thread = machine.thread_of_lane.astype(np.uint32)
        self._threads = {
            count: np.ascontiguousarray(np.repeat(self.thread[:, None], count, axis=1)) for count in _GROUPS
        }
        self.warp = machine.thread_of_lane // 32
        self.sites: list[Site] = []
        self._base = address_of(machine.shared) - ORIGIN
        self._shift = self.granule.bit_length() - 1
        machine.barrier_hooks.append(self.barrier)
        self.forget_hooks: list[Callable[[], None]] = []
        """Called when ticks start anew: whoever keeps ticks forgets them."""

    # ---- watcher protocol ----------------------------------------------------------------------------------
    def start(self) -> None:
        """A new batch: nothing was accessed."""
        for shadow in (self.writer, self.reader, self.other_reader):
            shadow.fill(0)
        self.seen.fill(0)
        self.all_synced.fill(0)
        self.sites = [None, None]
        self.now, self.floor = 2, 1
        for site, message in unwritten(self.machine.program):
            self.machine.report("register", message, site, np.zeros(1, np.int64))

    def join(self, watch: object) -> None:
        """Watch another launch."""
        self.world = watch.world

    def finish(self) -> None:
        """The batch ended."""

    def watches(self, space: str, kind: str) -> bool:
        return space in ("shared", "generic") or self.world is not None and space == "global"

    def access(self, locator: Locator, lanes: np.ndarray | None, indices: np.ndarray) -> None:
        if locator.space == "global":
            self.world.access(self.machine, locator, lanes, indices)
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
        if locator.space != "shared" or indices.size < 2 or np.ndim(values) == 0:
            return
        found = gather(indices, nbytes)
        lost = found.view(np.uint8) != np.ascontiguousarray(values).view(np.uint8)
        if not lost.any():
            return
        per_lane = np.flatnonzero(lost.reshape(indices.size, -1).any(axis=1))
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
        lanes = np.arange(self.machine.lanes) if lanes is None else lanes
        inside = (indices >= self._base) & (indices < self._base + self.machine.shared.nbytes)
        if inside.any():
            self._shared(locator, lanes[inside], indices[inside])
        if self.world is not None:
            local = self.machine.local
            start = address_of(local) - ORIGIN
            outside = ~inside & ((indices < start) | (indices >= start + local.nbytes))
            if outside.any():
                self.world.access(self.machine, locator, lanes[outside], indices[outside])

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
        self.writer[self.writer != 0] = 1 << _THREAD_BITS
        self.reader.fill(0)
        self.other_reader.fill(0)
        self.seen.fill(1)
        self.all_synced.fill(1)
        self.sites = [None, None]
        self.now, self.floor = 2, 1
        for hook in self.forget_hooks:
            hook()

    def read(
        self, site: Site, lanes: np.ndarray | None, indices: np.ndarray, nbytes: int, strong: bool = False
    ) -> None:
        """Lanes read shared memory now. ``indices`` are host addresses - ORIGIN, one per lane."""
        for part, size in self._pieces(indices, nbytes):
            where, mine = self._look(site, lanes, part, size, strong)
            if not strong:
                self._note_readers(where, mine)

    def _note_readers(self, where: np.ndarray, mine: np.ndarray) -> None:
        """Make the accessing lanes the last readers; whom they displace, in this instruction or before,
        become the others.
        """
        count = mine.shape[1]
        before = self._fetch(self.reader, where, count)
        self._put(self.reader, where, mine)
        after = self._fetch(self.reader, where, count)
        lost = _any_of(((after ^ mine) & _WARP) != 0)
        if lost.any():
            self._put(self.other_reader, where[lost], mine[lost])
        recent = before >= self._oldest
        if not recent.any():
            return
        displaced = _any_of(recent & (((before ^ mine) & _WARP) != 0)) & ~lost
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
        mine = self._record(self.tick(site), lanes, count)
        written = self._fetch(self.writer, where, count)
        if not written.all():
            self._report_uninitialised(site, lanes, indices, written)
        self._conflicts(site, lanes, indices, written, mine, "read", "written", forgive_atomic=strong)
        return where, mine

    def write(
        self, site: Site, lanes: np.ndarray | None, indices: np.ndarray, nbytes: int, atomic: bool = False
    ) -> None:
        """Lanes write shared memory now."""
        for part, size in self._pieces(indices, nbytes):
            where, count = self._places(part, size)
            mine = self._record(self.tick(site), lanes, count)
            known = self._fetch(self.writer, where, count)
            self._conflicts(site, lanes, part, known, mine, "write", "written", forgive_atomic=atomic)
            self._conflicts(site, lanes, part, self._fetch(self.reader, where, count), mine, "write", "read")
            self._conflicts(
                site, lanes, part, self._fetch(self.other_reader, where, count), mine, "write", "read"
            )
            self._put(self.writer, where, mine | _ATOMIC_BIT if atomic else mine)

    def _record(self, tick: int, lanes: np.ndarray | None, count: int) -> np.ndarray:
        """The records ``(accesses, count)`` of an access by these lanes."""
        threads = self._threads[count] if lanes is None else self._threads[count][lanes]
        return threads | np.uint32(tick << _THREAD_BITS)

    @property
    def _oldest(self) -> np.uint32:
        """The smallest record that may be unordered."""
        return np.uint32(self.floor + 1 << _THREAD_BITS)

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
        ticks, warps = (old >> _THREAD_BITS).astype(np.int64), (old & _THREAD) >> 5
        ordered = ticks <= self.seen[self.machine.cta_of_lane[lane], self.warp[lane], warps]
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
        other = self.sites[old >> _THREAD_BITS]
        thread = self.machine.thread_index(old & int(_THREAD))
        where = "by an asynchronous copy" if other is None else f"by thread {thread} at {other}"
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
        return indices + ORIGIN - self.machine.shared_base[lanes]

    # ---- synchronisation -----------------------------------------------------------------------------------
    def barrier(self, ctas: np.ndarray, mask: np.ndarray | None) -> None:
        """A CTA barrier opened for the lanes in ``mask`` (None: every lane of the batch)."""
        machine, present = self.machine, self.now - 1
        if self.world is not None:
            self.world.barrier((np.arange(machine.ctas) if mask is None else ctas) + machine.first_cta)
        if mask is None:
            self.seen.fill(present)
            self.all_synced.fill(present)
            self.floor = present
            return
        for cta in ctas.tolist():
            lanes = mask[cta * machine.threads : (cta + 1) * machine.threads]
            warps = np.flatnonzero(lanes.reshape(-1, 32).any(axis=1))
            if not warps.size:  # all arrived without waiting: nobody was held, so nothing is ordered
                continue
            joined = self.seen[cta, warps].max(axis=0)
            joined[warps] = present
            self.seen[cta, warps] = joined
            if warps.size == machine.warps_per_cta:
                self.all_synced[cta] = present
        self.floor = int(self.all_synced.min())

    def warp_barrier(self, site: Site, mask: np.ndarray | None, members: np.ndarray) -> None:
        """Lanes of a warp meet: orders their accesses."""
        present = self.now - 1
        diagonal = np.arange(self.machine.warps_per_cta)
        if mask is None:
            self.seen[:, diagonal, diagonal] = present
            return
        self._check_members(site, mask, members)
        met = mask.reshape(self.machine.ctas, -1, 32).any(axis=2)
        ctas, warps = np.nonzero(met)
        self.seen[ctas, warps, warps] = present

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
        ctas = np.unique(self.machine.cta_of_lane[lanes]) + self.machine.first_cta
        self.world.fence(ctas)


class _Allocation:
    """The shadow of one allocation: per granule the last writing CTA + 1, and two CTAs + 1 that read.

    A granule is as large as the smallest access so far, at most 16 bytes.
    """

    def __init__(self, start: int, nbytes: int, granule: int):
        self.start, self.granule = start, granule
        size = (start + nbytes - 1) // granule - start // granule + 1
        self.writer, self.reader, self.other_reader = (np.zeros(size, np.uint32) for _ in range(3))
        self.written = False

    def refine(self, granule: int) -> None:
        """Go over to smaller granules."""
        factor = self.granule // granule
        skip = self.start // granule - self.start // self.granule * factor
        self.writer, self.reader, self.other_reader = (
            np.append(np.repeat(shadow, factor)[skip:], np.zeros(factor, np.uint32))
            for shadow in (self.writer, self.reader, self.other_reader)
        )
        self.granule = granule

    def positions(self, indices: np.ndarray, nbytes: int) -> np.ndarray:
        """Granules of accesses: ``(accesses,)``, or ``(accesses, n)`` for accesses of several granules."""
        size = min(nbytes, 16)
        if size < self.granule:
            self.refine(size)
        shift = self.granule.bit_length() - 1
        first = np.right_shift(indices, shift)
        first -= (self.start >> shift) - (ORIGIN >> shift)
        count = nbytes // self.granule
        return first if count <= 1 else first[:, None] + np.arange(count)


class GlobalShadow:
    """Which CTAs wrote and read global memory in one launch. Shared by the checkers of all its batches."""

    def __init__(self, ctas: int):
        self.shadows: dict[int, _Allocation] = {}
        self.fenced = np.zeros(ctas, bool)
        """CTAs that have written nothing since their last fence."""
        self.released: dict[int, np.ndarray] = {}
        self.acquired: dict[int, np.ndarray] = {}
        self.observed: dict[int, np.ndarray] = {}
        """CTA -> CTAs whose releases it has seen by relaxed operations: its next fence acquires them."""
        self.ctas = ctas

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
        mine = table.setdefault(cta, np.zeros(self.ctas, bool))
        np.logical_or(mine, others, out=mine)

    def access(
        self, machine: Machine, locator: Locator, lanes: np.ndarray | None, indices: np.ndarray
    ) -> None:
        """Note an access, report conflicts with other CTAs."""
        memory = machine.memory
        low, high = int(indices.min()) + ORIGIN, int(indices.max()) + ORIGIN
        if memory.contains(low, high + locator.nbytes):
            self._in_allocation(machine, locator, lanes, indices, low)
            return
        home = memory.home(indices + ORIGIN)
        lanes = np.arange(machine.lanes) if lanes is None else lanes
        for number in np.unique(home):
            chosen = home == number
            self._in_allocation(
                machine, locator, lanes[chosen], indices[chosen], int(indices[chosen][0]) + ORIGIN
            )

    def _in_allocation(
        self, machine: Machine, locator: Locator, lanes: np.ndarray | None, indices: np.ndarray, inside: int
    ) -> None:
        start, nbytes = machine.memory.allocation_at(inside)
        atomic = locator.kind == ATOMIC or locator.strong
        cta = machine.cta_of_lane if lanes is None else machine.cta_of_lane[lanes]
        if atomic:
            self._synchronise(start, locator, np.unique(cta) + machine.first_cta)
        shadow = self.shadows.get(start)
        if shadow is None:
            shadow = self.shadows[start] = _Allocation(start, nbytes, min(locator.nbytes, 16))
        where = shadow.positions(indices, locator.nbytes)
        me = (cta + (machine.first_cta + 1)).astype(np.uint32)
        if where.ndim == 2:
            me = np.broadcast_to(me[:, None], where.shape)
        access = (machine, locator, lanes, indices)
        if shadow.written:
            self._conflicts(access, shadow.writer.take(where), me, "written", atomic)
        if locator.kind == READ:
            if not atomic:
                self._note_read(shadow, where, me)
            return
        self._conflicts(access, shadow.reader.take(where), me, "read", False)
        self._conflicts(access, shadow.other_reader.take(where), me, "read", False)
        if not atomic and self.fenced.any():
            self.fenced[cta + machine.first_cta] = False
        shadow.written = True
        if atomic:
            self._note_atomic(shadow, where, me)
            return
        shadow.writer[where] = me
        if machine.ctas > 1:
            found = shadow.writer.take(where)
            self._report(access, found != me, found, "written")

    @staticmethod
    def _note_atomic(shadow: _Allocation, where: np.ndarray, me: np.ndarray) -> None:
        """Atomics of several CTAs are remembered as such, so that the last one's own read does not hide the
        others.
        """
        before = shadow.writer.take(where)
        shadow.writer[where] = me | _ATOMIC_BIT
        shared = (before & _ATOMIC_BIT != 0) & (before != me | _ATOMIC_BIT) | (
            shadow.writer.take(where) != me | _ATOMIC_BIT
        )
        shadow.writer[where[shared]] = _ATOMIC_BIT | _SEVERAL

    @staticmethod
    def _note_read(shadow: _Allocation, where: np.ndarray, me: np.ndarray) -> None:
        before = shadow.reader.take(where)
        fresh = before != me
        if not fresh.any():
            return
        shadow.reader[where] = me
        lost = shadow.reader.take(where) != me
        if lost.any():
            shadow.other_reader[where[lost]] = me[lost]
            fresh &= ~lost
        fresh &= before != 0
        if fresh.any():
            shadow.other_reader[where[fresh]] = before[fresh]

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

    def _conflicts(
        self, access: tuple, records: np.ndarray, me: np.ndarray, done: str, forgive_atomic: bool
    ) -> None:
        if not records.any():
            return
        foreign = (records != 0) & ((records & _RECORD) != me)
        if forgive_atomic:
            foreign &= (records & _ATOMIC_BIT) == 0
        self._report(access, foreign, records, done)

    def _report(self, access: tuple, foreign: np.ndarray, records: np.ndarray, done: str) -> None:
        if not foreign.any():
            return
        machine, locator, lanes, indices = access
        rows = np.nonzero(foreign)[0]
        lane = rows if lanes is None else lanes[rows]
        theirs = (records[foreign] & _RECORD).astype(np.int64) - 1
        if self.acquired:
            mine = machine.cta_of_lane[lane] + machine.first_cta
            racing = np.array(
                [not self._ordered(cta, other) for cta, other in zip(mine.tolist(), theirs.tolist())]
            )
            rows, lane, theirs = rows[racing], lane[racing], theirs[racing]
        if not rows.size:
            return
        doing = {READ: "read", WRITE: "write", ATOMIC: "atomic access"}[locator.kind]
        machine.report(
            "global-race",
            f"global {doing} of what is {done} by {self._name(machine, int(theirs[0]))}, "
            "with nothing that orders them",
            locator.site,
            lane,
            indices[rows] + ORIGIN,
        )

    def _ordered(self, cta: int, other: int) -> bool:
        """Whether ``cta`` has acquired what ``other`` (perhaps several CTAs) released."""
        known = self.acquired.get(cta)
        return known is not None and bool(known.any() if other == _SEVERAL - 1 else known[other])

    @staticmethod
    def _name(machine: Machine, cta: int) -> str:
        if cta == _SEVERAL - 1:
            return "several CTAs"
        width, height, _ = machine.grid
        return f"CTA {(cta % width, cta // width % height, cta // (width * height))}"
