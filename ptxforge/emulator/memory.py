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
"""

from __future__ import annotations

from bisect import bisect_right

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
