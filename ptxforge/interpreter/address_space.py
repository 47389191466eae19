"""The addresses that pointers hold: an address space of its own, over the caller's arrays.

Each block of host memory gets a base of its own, aligned to 256 bytes and far from the next one, so that a
wild offset hits nothing. Arrays that share memory (views of one buffer) share it here too. Only bytes that
belong to a registered array may be touched; everything else is an error that names the address.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import attrs
import numpy as np

from ptxforge.support.errors import InterpreterError

_FIRST_BASE = 0x7000_0000_0000
_ALIGNMENT = 256
_GAP = 1 << 24


@attrs.frozen(slots=True, eq=False)
class _Segment:
    """Host bytes ``[host, host + size)`` seen at ``[start, start + size)``."""

    start: int
    host: int
    data: np.ndarray
    owner: np.ndarray

    @property
    def end(self) -> int:
        return self.start + self.data.size


class AddressSpace:
    """Registered arrays, and reads and writes of many addresses at once."""

    def __init__(self) -> None:
        self.segments: list[_Segment] = []
        self.names: dict[int, tuple[str, int]] = {}
        """What the array at an address is called, and the size of its elements, for messages."""
        self._next = _FIRST_BASE

    def register(self, array: np.ndarray) -> int:
        """The address of the array's first element; the array is used in place."""
        low, high = np.lib.array_utils.byte_bounds(array) if array.size else (array.ctypes.data,) * 2
        for segment in self.segments:
            if (
                segment.host <= low
                and high <= segment.host + segment.data.size
                and _writes_alike(segment, array)
            ):
                return segment.start + array.ctypes.data - segment.host
        start = self._place(low, high)
        flat = np.ctypeslib.as_array((ctypes.c_uint8 * (high - low)).from_address(low))
        flat.flags.writeable = array.flags.writeable
        self.segments.append(_Segment(start, low, flat, array))
        return start + array.ctypes.data - low

    def _place(self, low: int, high: int) -> int:
        """Where host bytes from ``low`` on are to be seen: beside what they overlap, else at a new base."""
        for segment in self.segments:
            if low < segment.host + segment.data.size and segment.host < high:
                return segment.start + low - segment.host
        start = self._next
        self._next = -(-(start + high - low + _GAP) // _ALIGNMENT) * _ALIGNMENT
        return start

    def read(self, addresses: np.ndarray, dtype: np.dtype) -> np.ndarray:
        """Elements of ``dtype`` at ``addresses`` (any shape)."""
        result = np.empty(addresses.shape, dtype)
        for chosen, data, index in self._places(addresses, dtype, "read"):
            result[chosen] = data[index]
        return result

    def write(self, addresses: np.ndarray, values: np.ndarray) -> None:
        """Store ``values`` (shaped like ``addresses``); of equal addresses the last one stays."""
        for chosen, data, index in self._places(addresses, values.dtype, "write"):
            if not data.flags.writeable:
                raise InterpreterError("write to a read-only array")
            data[index] = values[chosen]

    def array_at(self, address: int) -> tuple[str, int, int] | None:
        """The array that an address lies in or behind: its name, its address, and the size of an element."""
        starts = [start for start in self.names if start <= address]
        segments = [s for s in self.segments if s.start <= address]
        if not starts or not segments:
            return None
        start, segment = max(starts), max(segments, key=lambda s: s.start)
        name, size = self.names[start]
        return (name, start, size) if segment.start <= start else None

    def to_host(self, addresses: np.ndarray) -> np.ndarray:
        """Where in the host's memory ``addresses`` are; those of no array stay as they are."""
        return self._moved(addresses, lambda s: (s.start, s.end, s.host - s.start))

    def from_host(self, addresses: np.ndarray) -> np.ndarray:
        """The inverse of :meth:`to_host`."""
        return self._moved(addresses, lambda s: (s.host, s.host + s.data.size, s.start - s.host))

    def _moved(self, addresses: np.ndarray, rule: Callable) -> np.ndarray:
        result = addresses.copy()
        for low, high, distance in map(rule, self.segments):
            # An end counts: pointers stand behind their array, too.
            inside = (addresses >= low) & (addresses <= high)
            result[inside] = addresses[inside] + distance
        return result

    def _places(self, addresses: np.ndarray, dtype: np.dtype, action: str):
        """For each segment that is hit: which addresses hit it, its elements, and their indices."""
        if addresses.size == 0:
            return
        size = dtype.itemsize
        low, high = int(addresses.min()), int(addresses.max()) + size
        for segment in self.segments:
            if segment.start <= low and high <= segment.end:
                yield (..., *_elements(segment, addresses, dtype))
                return
        left = np.ones(addresses.shape, bool)
        for segment in self.segments:
            chosen = left & (addresses >= segment.start) & (addresses <= segment.end - size)
            if chosen.any():
                left &= ~chosen
                yield (chosen, *_elements(segment, addresses[chosen], dtype))
        if left.any():
            self._out_of_bounds(int(addresses[left].flat[0]), size, int(left.sum()), action)

    def _out_of_bounds(self, address: int, size: int, count: int, action: str) -> None:
        nearest = min(
            self.segments, key=lambda s: min(abs(address - s.start), abs(address - s.end)), default=None
        )
        where = "no array is registered"
        if nearest is not None:
            shape, dtype = list(nearest.owner.shape), nearest.owner.dtype
            where = f"the nearest array ({dtype} {shape}) has bytes 0 to {nearest.data.size}"
            where += f", this is byte {address - nearest.start}"
        named = self.array_at(address)
        if named is not None:
            name, start, itemsize = named
            where += f"; that is element {(address - start) // itemsize} from the start of '{name}'"
        more = f" (and {count - 1} more)" if count > 1 else ""
        raise InterpreterError(f"out-of-bounds {action} of {size} bytes at {address:#x}{more}: {where}")


class HostMemory(AddressSpace):
    """Arrays at the addresses that they have on the host; they can be taken back."""

    def register(self, array: np.ndarray) -> int:
        """The address of the first element of an array without gaps."""
        address = array.ctypes.data
        flat = np.ctypeslib.as_array((ctypes.c_uint8 * array.nbytes).from_address(address))
        flat.flags.writeable = array.flags.writeable
        self.segments.append(_Segment(address, address, flat, array))
        return address

    def bytes_at(self, address: int, nbytes: int) -> np.ndarray:
        """Bytes of an array, in place. Raises :class:`InterpreterError` where no array is."""
        for segment in self.segments:
            if segment.start <= address and address + nbytes <= segment.end:
                return segment.data[address - segment.start :][:nbytes]
        raise InterpreterError(f"there are no {nbytes} bytes at {address:#x}")

    def unregister(self, address: int) -> None:
        """Forget the array that was registered last at an address."""
        for index in reversed(range(len(self.segments))):
            if self.segments[index].start == address:
                del self.segments[index]
                return


def _writes_alike(segment: _Segment, array: np.ndarray) -> bool:
    """A writable view of a segment that was registered as read-only needs a segment of its own."""
    return segment.data.flags.writeable or not array.flags.writeable


def _elements(segment: _Segment, addresses: np.ndarray, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """The segment as elements of ``dtype`` and the indices of ``addresses``, which are all in it and must be
    aligned."""
    size = dtype.itemsize
    offset = addresses - segment.start
    skew = int(offset.flat[0]) % size
    misaligned = addresses % size != 0
    if misaligned.any():
        raise InterpreterError(
            f"misaligned access of {size} bytes at {int(addresses[misaligned].flat[0]):#x}"
        )
    count = (segment.data.size - skew) // size
    return segment.data[skew : skew + count * size].view(dtype), (offset - skew) // size
