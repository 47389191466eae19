"""Device memory: host memory addressed directly, with every allocation's bounds known.

A device address *is* a host address. numpy arrays that cover the whole user address space (one per access
width, starting at ``ORIGIN``) turn a gather of addresses into one ``take``; nothing is copied when a user's
array is used in place. Every access is checked against the table of allocations first, so an address outside
them is a finding and never touches memory. Memory of the device is allocated array by array, so a stray
access meets a gap.

Generic addresses: global memory has its own addresses; the shared and the local window lie above all host
addresses, so that an address tells its space.

A shared address is an offset in the CTA's own shared memory, or, as ``mapa`` makes it, an offset with the
rank of a CTA of the cluster above it (:data:`RANK_SHIFT`; rank + 1, so that 0 is the own CTA). In CTAs of a
cluster but the first, addresses of variables have it, too, as on a GPU.

*Records.* Who wrote and read an allocation of global memory in one launch stands here; :mod:`checks`
compares. A store to what others have written is a race only if it changes it:

Threads that all write one value may do so in any order, and programs that set a flag do. So the conflict of a
store with an earlier one waits until the store is done, and is a finding where memory is another afterwards.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np

from ptxforge.support.errors import DeviceError

ORIGIN = 4096
"""Address of element 0 of the tables (numpy takes a null data pointer for "no memory yet")."""

SHARED_WINDOW = 1 << 56
LOCAL_WINDOW = 2 << 56
WINDOW_MASK = SHARED_WINDOW - 1
RANK_SHIFT = 24
SHARED_OFFSET = (1 << RANK_SHIFT) - 1
"""The part of a shared address below the rank."""


PARAM_BASE = 1024
"""Address of the first kernel parameter in the parameter space: small, as code keeps such addresses in 32
bits.
"""

PARAM_END = PARAM_BASE + (1 << 16)
POISON = np.uint32(0xFFF5FDEF)
"""A NaN in f32, f64, f16 and bf16 (each half), and an unlikely integer."""

_SPAN = 1 << 52
_ALIGNMENT = 512
_GUARD = 512

CODES = {1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}
"""Width of an access in bytes -> dtype of the table that serves it (c16 moves 16 bytes untouched)."""


class _Interface:
    def __init__(self, code: str, size: int):
        self.__array_interface__ = {
            "data": (ORIGIN, False),
            "shape": ((_SPAN - ORIGIN) // size,),
            "typestr": f"<{code}" if size > 1 else "|u1",
            "version": 3,
        }


TABLES = {size: np.asarray(_Interface(code, size)) for size, code in CODES.items()}
"""Width -> view of the whole address space; index with ``(address - ORIGIN) // width``, after a bounds check.
"""


def address_of(array: np.ndarray) -> int:
    """Host address of an array's first byte."""
    return array.__array_interface__["data"][0]


def aligned_zeros(nbytes: int, alignment: int = 1024, guard: int = 0) -> np.ndarray:
    """A zeroed u1 array whose address is a multiple of ``alignment``, with ``guard`` unused bytes at each
    side.
    """
    raw = np.zeros(nbytes + alignment + 2 * guard, np.uint8)
    start = -(address_of(raw) + guard) % alignment + guard
    return raw[start : start + nbytes]


class GlobalMemory:
    """The allocations of one device: where they are, which bytes are valid.

    Registered arrays may overlap (views of one buffer): such arrays count as one allocation.
    """

    def __init__(self) -> None:
        self._owned: dict[int, np.ndarray] = {}
        self._registered: dict[int, list[np.ndarray]] = {}
        self.poisoned: set[int] = set()
        """Allocations that hold :data:`POISON` where nothing has been written yet."""
        self.poisons_all = False
        """Whether :data:`POISON` in an array of the host, too, means that nothing has been written there."""
        self.starts: list[int] = []
        self.ends: list[int] = []
        self._start_array = np.zeros(0, np.int64)
        self._end_array = np.zeros(0, np.int64)
        self._low, self._high = 1, 0

    def allocate(self, nbytes: int) -> int:
        """Zeroed memory of ``nbytes`` bytes, aligned to 512; returns its address."""
        array = aligned_zeros(max(nbytes, 1), _ALIGNMENT, _GUARD)
        address = address_of(array)
        self._owned[address] = array
        self._rebuild()
        return address

    def free(self, address: int) -> None:
        if address not in self._owned:
            raise DeviceError(f"address 0x{address:x} was not allocated on this device, or is free already")
        del self._owned[address]
        self.poisoned.discard(address)
        self._rebuild()

    def poison(self, address: int) -> None:
        """Fill an allocation with :data:`POISON`, so that reads of what nobody wrote can be found."""
        array = self._owned[address]
        array[: array.size // 4 * 4].view(np.uint32)[:] = POISON
        self.poisoned.add(address)

    def may_be_unwritten(self, start: int) -> bool:
        """Whether an allocation holds :data:`POISON` where nothing has been written."""
        return start in self.poisoned or self.poisons_all and start not in self._owned

    def unwritten(self, start: int, nbytes: int) -> np.ndarray:
        """Of a poisoned allocation, per byte: whether it belongs to a word that still is poison."""
        words = self.array_at(start, nbytes)[: nbytes // 4 * 4].view(np.uint32)
        found = np.zeros(nbytes, bool)
        found[: 4 * words.size] = np.repeat(words == POISON, 4)
        return found

    def register(self, array: np.ndarray) -> int:
        """Make ``array`` addressable in place; returns its address.

        The device keeps a reference until :meth:`unregister` was called as often as this for the address.
        """
        if not array.flags.c_contiguous:
            raise DeviceError("only C-contiguous arrays can be used in place")
        address = address_of(array)
        if array.nbytes == 0:
            return address
        known = self._registered.setdefault(address, [])
        known.append(array)
        if len(known) == 1 or array.nbytes > max(other.nbytes for other in known[:-1]):
            self._rebuild()
        return address

    def unregister(self, address: int) -> None:
        """Forget the array that was registered last at this address."""
        known = self._registered.get(address)
        if not known:
            return
        known.pop()
        if not known:
            del self._registered[address]
        self._rebuild()

    def array_at(self, address: int, nbytes: int) -> np.ndarray:
        """The bytes ``[address, address + nbytes)`` as a u1 array in place; raises when they are not
        allocated.
        """
        if nbytes and not self.contains(address, address + nbytes):
            raise DeviceError(f"[0x{address:x}, 0x{address + nbytes:x}) is not allocated on this device")
        return TABLES[1][address - ORIGIN : address - ORIGIN + nbytes]

    def contains(self, low: int, high: int) -> bool:
        """Whether ``[low, high)`` lies in one allocation. Remembers the last allocation hit."""
        if self._low <= low and high <= self._high:
            return True
        index = bisect_right(self.starts, low) - 1
        if index < 0 or high > self.ends[index]:
            return False
        self._low, self._high = self.starts[index], self.ends[index]
        return True

    def allocations(self) -> list[tuple[int, int]]:
        """(address, size) of everything that kernels can write."""
        return [(start, end - start) for start, end in zip(self.starts, self.ends)]

    def allocation_at(self, address: int) -> tuple[int, int]:
        """Start and size of the allocation that holds ``address``."""
        index = bisect_right(self.starts, address) - 1
        return self.starts[index], self.ends[index] - self.starts[index]

    def home(self, addresses: np.ndarray) -> np.ndarray:
        """A number per address that tells allocations apart."""
        return np.searchsorted(self._start_array, addresses, side="right")

    def valid(self, addresses: np.ndarray, nbytes: int) -> np.ndarray:
        """Per address (i8): whether ``nbytes`` bytes there are inside one allocation."""
        if not self.starts:
            return np.zeros(addresses.shape, bool)
        index = np.searchsorted(self._start_array, addresses, side="right") - 1
        return (index >= 0) & (addresses <= self._end_array[index] - nbytes) & (addresses >= ORIGIN)

    def describe(self, address: int) -> str:
        """Words for an address that is outside every allocation: which one is nearest."""
        index = bisect_right(self.starts, address) - 1
        near = []
        if index >= 0:
            start, end = self.starts[index], self.ends[index]
            where = f"{address - end} bytes past" if address > end else "just past"
            near.append((address - end, f"{where} the end of the {end - start}-byte allocation"))
        if index + 1 < len(self.starts):
            start, end = self.starts[index + 1], self.ends[index + 1]
            near.append(
                (start - address, f"{start - address} bytes before the {end - start}-byte allocation")
            )
        near = [(distance, text) for distance, text in near if 0 <= distance < 1 << 20]
        return min(near)[1] if near else "no allocation is near"

    def _rebuild(self) -> None:
        """Make the sorted table of allocations; overlapping ranges become one."""
        ranges = [(address, address + array.nbytes) for address, array in self._owned.items()]
        for address, arrays in self._registered.items():
            ranges.append((address, address + max(array.nbytes for array in arrays)))
        self.starts, self.ends = [], []
        for start, end in sorted(ranges):
            if self.ends and start < self.ends[-1]:
                self.ends[-1] = max(self.ends[-1], end)
            else:
                self.starts.append(start)
                self.ends.append(end)
        self._start_array = np.array(self.starts, np.int64)
        self._end_array = np.array(self.ends, np.int64)
        self._low, self._high = 1, 0


THREAD_BITS = 13
"""Of a thread's number within its cluster: 8 CTAs of 1024 threads."""

CTA_SHIFT = np.uint64(32)
GLOBAL_ATOMIC = np.uint64(1 << 63)
TICK = np.uint64((1 << 32) - (1 << THREAD_BITS))
WHO = ~(TICK | GLOBAL_ATOMIC)
"""Of a record of global memory: the bits that say who it was, CTA and thread."""

_THREAD_OF_RECORD = np.uint64((1 << THREAD_BITS) - 1)
SEVERAL = np.uint64((1 << 31) - 1)
"""In place of a CTA's number + 1: several CTAs did it."""

_MOST_DEFERRED = 1 << 21
"""Accesses per allocation that are kept for later."""


class Allocation:
    """The shadow of one allocation: per granule the last writer and two readers, as records.

    A record is one u8: bit 63 for an atomic access, the CTA + 1 above bit 32, below it the record of
    :class:`Checker` (tick and thread). A granule is as large as the smallest access so far, at most 16 bytes.
    """

    def __init__(self, start: int, nbytes: int, granule: int):
        self.start, self.nbytes, self.granule = start, nbytes, granule
        self.writer = self.reader = self.other_reader = np.zeros(0, np.uint64)  # made by `settle`
        self.first_reader = np.zeros(0, np.uint64)
        """Where several threads read in one instruction, the lowest of them."""
        self.written = self.was_read = False
        self.reads: list[Accesses] = []
        """Reads not entered yet: nobody has written, so that they conflict with nothing so far."""
        self.rows: list[Accesses] = []
        """Writes not entered yet: rows that nobody else has touched."""
        self._taken: np.ndarray | None = None
        self._shape = (0, 0, 0)
        self._deferred_count = 0

    def refine(self, granule: int) -> None:
        """Go over to smaller granules."""
        factor = self.granule // granule
        skip = self.start // granule - self.start // self.granule * factor
        self.writer, self.reader, self.other_reader, self.first_reader = (
            np.append(np.repeat(shadow, factor)[skip:], np.zeros(factor, np.uint64))
            for shadow in (self.writer, self.reader, self.other_reader, self.first_reader)
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

    def defer_read(self, reads: Accesses) -> None:
        """Remember reads of memory that nobody has written: most allocations are only read, and then cost
        nothing.
        """
        self.reads.append(reads)
        self._deferred_count += reads.offsets.size
        if self._deferred_count > _MOST_DEFERRED:
            self.settle()

    def defer_row(self, writes: Accesses) -> bool:
        """Remember a store to memory that nobody has touched. False when that is not easily seen.

        It is when each CTA's threads write elements that lie ``step`` bytes apart, in rows of ``threads *
        step`` bytes, and when all stores have the same shape: then a flag per row and position of the element
        within its step tells them apart.
        """
        step = int(writes.offsets[1] - writes.offsets[0]) if writes.offsets.size > 1 else writes.nbytes
        shape = (writes.offsets.size * step, step, writes.nbytes)
        if step < writes.nbytes or step % writes.nbytes or (np.diff(writes.offsets) != step).any():
            return False
        if self._taken is None:
            self._shape = shape
            self._taken = np.zeros((self.nbytes // shape[0] + 1, step // writes.nbytes), bool)
        row, within = np.divmod(writes.bases + (ORIGIN - self.start), shape[0])
        position = within // writes.nbytes
        if (
            self.was_read
            or self.reads
            or self.written and not self.rows
            or shape != self._shape
            or (within >= step).any()
            or (within % writes.nbytes).any()
            or (np.diff(row) <= 0).any()
            or self._taken[row, position].any()
        ):
            return False
        self._taken[row, position] = True
        self.rows.append(writes)
        self.written = True
        return True

    def settle(self) -> None:
        """Enter what was deferred: from now on there are records."""
        if not self.writer.size:
            size = (self.start + self.nbytes - 1) // self.granule - self.start // self.granule + 1
            self.writer, self.reader, self.other_reader, self.first_reader = (
                np.zeros(size, np.uint64) for _ in range(4)
            )
        for reads in self.reads:
            where = self.positions(reads.indices, reads.nbytes)
            self.note_read(where, per_granule(reads.records, where))
        for writes in self.rows:
            where = self.positions(writes.indices, writes.nbytes)
            self.writer[where] = per_granule(writes.records, where)
        self.reads.clear()
        self.rows.clear()
        self._deferred_count = 0

    def note_read(self, where: np.ndarray, me: np.ndarray) -> None:
        """Make ``me`` the last readers. The other reader is one that they displace: of another CTA if there
        is any.
        """
        self.was_read = True
        before = self.reader.take(where)
        self.reader[where] = me
        lost = self.reader.take(where) != me
        if lost.any():
            self.first_reader[where[lost][::-1]] = me[lost][::-1]
            self._keep(where[lost], me[lost], self.reader.take(where[lost]))
        displaced = (before != 0) & (((before ^ me) & WHO) != 0)
        if displaced.any():
            self._keep(where[displaced], before[displaced], me[displaced])

    def forget_copies(self, where: np.ndarray, me: np.ndarray) -> None:
        """Drop the readers of granules that a thread overwrites which was the first of several to read them
        in one instruction: the others repeated its work.
        """
        first = self.first_reader.take(where)
        own = ((first ^ me) & WHO) == 0
        for readers in (self.reader, self.other_reader):
            copies = own & ((readers.take(where) ^ first) & ~(_THREAD_OF_RECORD | GLOBAL_ATOMIC) == 0)
            readers[where[copies]] = 0

    def _keep(self, where: np.ndarray, records: np.ndarray, others: np.ndarray) -> None:
        """Make ``records`` other readers, unless that drops a CTA which is not the last reader's."""
        foreign = (records ^ others) >> CTA_SHIFT != 0
        known = self.other_reader.take(where)
        useful = foreign | (known == 0) | ((known ^ others) >> CTA_SHIFT == 0)
        self.other_reader[where[useful]] = records[useful]


@dataclass(frozen=True)
class Accesses:
    """One instruction's accesses: at ``bases + offsets`` (host addresses - ORIGIN), by the records
    ``who + stamp``.
    """

    bases: np.ndarray
    """One per CTA; of size 1 where the CTAs are not alike."""
    offsets: np.ndarray
    nbytes: int
    who: np.ndarray
    stamp: np.uint64

    @property
    def indices(self) -> np.ndarray:
        return (self.bases[:, None] + self.offsets).reshape(-1)

    @property
    def records(self) -> np.ndarray:
        return self.who + self.stamp


def per_granule(records: np.ndarray, where: np.ndarray) -> np.ndarray:
    """Records ``(accesses,)`` in the shape of their granules."""
    return records if where.ndim == 1 else np.broadcast_to(records[:, None], where.shape)


class Overwrites:
    """Conflicts of the store that is under way."""

    def __init__(self) -> None:
        self._waiting: list[tuple[np.ndarray, np.ndarray, tuple]] = []
        """Where, what is there before the store, and the finding."""

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, indices: np.ndarray, nbytes: int, finding: tuple) -> None:
        """A conflict at places ``indices``. ``finding`` has what :meth:`Findings.add` takes, but for the
        addresses; with a lane for each place."""
        self._waiting.append((indices, _bytes_at(indices, nbytes), finding))

    def tell(self, after_store: bool = False) -> None:
        """Report what waits; ``after_store`` only where memory has changed."""
        for indices, before, (machine, kind, message, site, lanes, other) in self._waiting:
            changed = np.ones(len(lanes), bool)
            if after_store:
                changed = (_bytes_at(indices, before.shape[1]) != before).any(axis=1)
            machine.findings.add(
                machine, kind, message, site, lanes[changed], indices[changed] + ORIGIN, other
            )
        self._waiting.clear()


def _bytes_at(indices: np.ndarray, nbytes: int) -> np.ndarray:
    """The bytes ``(accesses, nbytes)`` in host memory."""
    return TABLES[1][indices[:, None] + np.arange(nbytes)]
