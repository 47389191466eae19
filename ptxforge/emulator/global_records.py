"""Who wrote and read an allocation of global memory in one launch; :mod:`checks` compares what is here.

Stores to what others have written: a race only if they change it.

Threads that all write one value may do so in any order, and programs that set a flag do. So the conflict of a
store with an earlier one waits until the store is done, and is a finding where memory is another afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ptxforge.emulator.memory import ORIGIN, TABLES

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
