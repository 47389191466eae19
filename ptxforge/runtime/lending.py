"""Host arrays lent to the emulator for the length of a launch, each bounded by what the argument covers.

The emulator knows an access as wrong when it lies outside everything that it was lent. So an argument is lent
as exactly the bytes between its first and its last element, not as the array or storage that it is a view of.
Arguments that overlap are lent as one piece. Where one piece ends so close to the next one (two halves of one
buffer) that an access past the end would hit the neighbour and pass for a good one, all but the largest of
the neighbours are copied to memory of their own with a gap around it, and copied back after the launch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np

from ptxforge.driver import arrays
from ptxforge.driver.protocol import Device
from ptxforge.runtime.tensor_descriptor import array_of

_GAP = 4096
"""Bytes that separate a copied piece from all other memory."""

_NEAR = 1024
"""Pieces with fewer bytes between them are neighbours: separate small arrays often are."""

_TOUCHING = 16
"""Pieces with fewer bytes between them are parts of one allocation (an allocator keeps its notes between)."""

_SMALL = 1 << 20
"""Larger arrays are copied only when they are parts of one allocation."""


@attrs.frozen(slots=True)
class Argument:
    """An array argument where the device sees it: ``address`` of its first element, the bytes from the first
    to the last element, its element type, shape and strides (in elements)."""

    name: str
    address: int
    nbytes: int
    element: str
    itemsize: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.element}[{', '.join(map(str, self.shape))}]"

    def distance(self, address: int) -> int:
        """Bytes between ``address`` and the array; 0 for an address inside."""
        return max(self.address - address, address - (self.address + self.nbytes - 1), 0)

    def element_at(self, address: int) -> str:
        """Words for the element at an address: ``x[3, 0]``, ``x[32], past the end of x``."""
        index = (address - self.address) // self.itemsize
        if index < 0:
            return f"{-index} element{'s' * (index < -1)} before the start of '{self.name}'"
        indices = self._indices(index)
        place = f"{self.name}{indices}" if indices else self.name
        if index and not indices:
            place = f"{index} element{'s' * (index > 1)} after the first of '{self.name}'"
        return place if address < self.address + self.nbytes else f"{place}, past the end of '{self.name}'"

    def _indices(self, index: int) -> list[int]:
        """Of the element that lies ``index`` elements after the first, the widest stride first; no index has
        a bound. Empty where strides lead to none, or run backwards."""
        found = [0] * len(self.shape)
        for axis in sorted(range(len(self.shape)), key=lambda axis: -self.strides[axis]):
            if self.strides[axis] < 0:
                return []
            if self.strides[axis]:
                found[axis], index = divmod(index, self.strides[axis])
        return [] if index else found


pointed_at: dict[int, tuple[int, Callable[[], bool]]] = {}
"""Host memory that tables of pointers may lead to, by address: its bytes, and whether it is still there. It
is lent with every launch."""


@attrs.define(slots=True)
class _Piece:
    """Host bytes ``[low, high)``; ``memory`` holds them, or a copy of them, for the device. ``is_fixed``:
    addresses in it are known to others, so that no copy will do."""

    low: int
    high: int
    writable: bool
    is_fixed: bool = False
    memory: np.ndarray | None = None

    @property
    def is_copied(self) -> bool:
        return self.memory.ctypes.data != self.low


class Loan:
    """The host arrays of one launch on a device. :attr:`addresses` are the device's, in their order."""

    def __init__(self, device: Device, values: Sequence[Any]):
        self.device = device
        spans = [arrays.span(value) for value in values]
        self._pieces = _pieces(spans)
        if pointed_at:
            _add_pointed_at(self._pieces)
        for piece, copied in zip(self._pieces, _crowded(self._pieces), strict=True):
            here = arrays.bytes_at(piece.low, piece.high - piece.low)
            piece.memory = _apart(here) if copied else here
        self._given = [device.register_host_array(piece.memory) for piece in self._pieces]
        self.addresses = [self._seen(span.first) for span in spans]

    def _seen(self, first: int) -> int:
        """Where the device sees a host address. An array without elements lies nowhere."""
        for piece, given in zip(self._pieces, self._given, strict=True):
            if piece.low <= first < piece.high:
                return given + first - piece.low
        return first

    def end(self) -> None:
        """The device forgets the arrays; what it wrote to copies is written back."""
        for piece, given in zip(self._pieces, self._given, strict=True):
            self.device.unregister_host_array(given)
            if piece.is_copied and piece.writable:
                arrays.bytes_at(piece.low, piece.high - piece.low)[:] = piece.memory


def _pieces(spans: list[arrays.Span]) -> list[_Piece]:
    """The bytes that the spans cover, in order; spans that overlap become one piece."""
    pieces: list[_Piece] = []
    for span in sorted((span for span in spans if span.nbytes), key=lambda span: span.low):
        if pieces and span.low < pieces[-1].high:
            last = pieces[-1]
            last.high = max(last.high, span.low + span.nbytes)
            last.writable |= span.writable
        else:
            pieces.append(_Piece(span.low, span.low + span.nbytes, span.writable))
    return pieces


def _add_pointed_at(pieces: list[_Piece]) -> None:
    """Add what :data:`pointed_at` knows and is still there, in order."""
    for address, (nbytes, is_there) in list(pointed_at.items()):
        if not is_there():
            del pointed_at[address]
            continue
        low, high, writable = address, address + nbytes, True
        for piece in [piece for piece in pieces if piece.low < high and low < piece.high]:
            low, high, writable = min(low, piece.low), max(high, piece.high), writable and piece.writable
            pieces.remove(piece)
        if low < high:
            pieces.append(_Piece(low, high, writable, is_fixed=True))
    pieces.sort(key=lambda piece: piece.low)


def gap_before(address: int) -> float:
    """Bytes between an address and the end of what :data:`pointed_at` has below it; infinity without any."""
    ends = [low + nbytes for low, (nbytes, _) in pointed_at.items() if low <= address]
    return max(0, address - max(ends) + 1) if ends else float("inf")


def _crowded(pieces: list[_Piece]) -> list[bool]:
    """For each piece whether it has to be copied: of each group of neighbours all but the largest, and but
    those that are fixed."""
    copied = [False] * len(pieces)
    first = 0
    for index in range(1, len(pieces) + 1):
        if index < len(pieces) and _neighbours(pieces[index - 1], pieces[index]):
            continue
        largest = max(range(first, index), key=lambda i: pieces[i].high - pieces[i].low)
        for member in range(first, index):
            copied[member] = member != largest and not pieces[member].is_fixed
        first = index
    return copied


def _neighbours(one: _Piece, other: _Piece) -> bool:
    between = other.low - one.high
    small = min(one.high - one.low, other.high - other.low) <= _SMALL
    return between < _TOUCHING or between < _NEAR and small


def _apart(here: np.ndarray) -> np.ndarray:
    """A copy with a gap around it, at an address with the same low bits (so aligned as the original)."""
    room = np.empty(here.size + 3 * _GAP, np.uint8)
    start = _GAP + (here.ctypes.data - room.ctypes.data) % _GAP
    copy = room[start : start + here.size]
    copy[:] = here
    return copy


def describe_arguments(names: Sequence[str], values: Sequence[Any], bound: Sequence[Any]) -> list[Argument]:
    """The array arguments of a launch. ``values`` are what was packed: for an array its address."""
    found = []
    for name, address, value in zip(names, values, bound, strict=True):
        described = arrays.describe(array_of(value))
        if described is not None:
            found.append(Argument(name, address[0] if isinstance(address, tuple) else address, *described))
    return found
