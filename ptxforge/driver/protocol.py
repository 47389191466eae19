"""What a device must do to run kernels: the one interface between the runtime and what executes PTX.

CUDA (:mod:`ptxforge.driver.cuda`) and the emulator (:mod:`ptxforge.emulator`) both keep it, and know nothing
of each other. Addresses are plain integers in the device's own address space; sizes are bytes; a stream is
the integer value of its handle, 0 for the default stream.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import attrs
import numpy as np

from ptxforge.support.dtypes import DType
from ptxforge.support.target import FunctionAttributes
from ptxforge.support.tensor_map import ALIGNMENT, BYTES


def natural_places(sizes: Iterable[int]) -> list[tuple[int, int]]:
    """(offset, bytes) of a kernel's parameters in a buffer: each at a multiple of its own size (PTX ISA,
    "Kernel Function Parameters"), tensor maps at one of 64.

    >>> natural_places([4, 8, 1, 128])
    [(0, 4), (8, 8), (16, 1), (64, 128)]
    """
    places, end = [], 0
    for size in sizes:
        end += -end % (ALIGNMENT if size == BYTES else min(size & -size, 8))
        places.append((end, size))
        end += size
    return places


def parameter_format(codes: list[str], places: list[tuple[int, int]]) -> tuple[str, int]:
    """The format for ``struct`` of parameters that lie at ``places`` (offset, bytes), and where they end.

    >>> parameter_format(["Q", "i"], [(0, 8), (8, 4)])
    ('Qi', 12)
    >>> parameter_format(["i", "128s", "Q"], [(0, 4), (48, 128), (176, 8)])
    ('i44x128sQ', 184)
    """
    text, end = "", 0
    for code, (offset, _) in zip(codes, places, strict=True):
        text += (f"{offset - end}x" if offset > end else "") + code
        end = offset + struct.calcsize(f"<{code}")
    return text, end


@attrs.frozen(slots=True)
class Checked:
    """Takes the value at ``place`` out of those of a launch. Raises ``broken(value)`` where bits of ``mask``
    are set in it."""

    place: int
    mask: int
    broken: Callable[[int], Exception]

    def __call__(self, values: Sequence[Any]) -> int:
        value = values[self.place]
        if value & self.mask:
            raise self.broken(value)
        return value

    def text(self, source: str) -> str:
        """The expression of the value among ``v``, which calls ``source`` for an error only."""
        return f"v[{self.place}] if not v[{self.place}] & {self.mask} else {source}(v)"


class Function(Protocol):
    """A kernel that is loaded and ready to run."""

    name: str
    attributes: FunctionAttributes

    def launch(
        self,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared_bytes: int,
        stream: int,
        params: bytes,
    ) -> None:
        """Start the kernel; does not wait.

        ``params`` is the parameter buffer of PTX's ABI: each parameter at its natural alignment, in order of
        declaration. ``shared_bytes`` is dynamic shared memory, above 48 KiB too.
        """


class Module(Protocol):
    """A loaded PTX module."""

    def function(self, name: str) -> Function:
        """The kernel of that name. Raises ``DeviceError`` when there is none."""

    def unload(self) -> None:
        """Give the module's memory back. Its functions must not be launched afterwards."""


class Device(Protocol):
    """Something that executes PTX. ``target`` is what PTX should be made for; ``max_shared_bytes`` is the
    shared memory that one block can have after opting in."""

    name: str
    target: str
    multiprocessors: int
    max_threads_per_block: int
    max_shared_bytes: int
    warp_size: int

    def allocate(self, nbytes: int) -> int:
        """The address of ``nbytes`` fresh bytes, at least 256-byte aligned."""

    def free(self, address: int) -> None:
        """Release what :meth:`allocate` gave."""

    def copy_to_device(self, address: int, source: np.ndarray, stream: int = 0) -> None:
        """Copy a C-contiguous host array to ``address``; the host array may be changed once this returns."""

    def copy_to_host(self, destination: np.ndarray, address: int, stream: int = 0) -> None:
        """Fill a C-contiguous host array from ``address``, after the work queued on ``stream``."""

    def register_host_array(self, array: np.ndarray) -> int:
        """The device address under which kernels use a host array in place (the emulator only)."""

    def unregister_host_array(self, address: int) -> None:
        """Forget a host array again (the emulator only)."""

    def encode_tensor_map(
        self,
        dtype: DType,
        address: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        box: tuple[int, ...],
        *,
        swizzle: int = 0,
        padding: str = "zero",
    ) -> bytes:
        """The tensor map (128 bytes, for a kernel's parameter) of a tensor at ``address``, of which
        TMA instructions move boxes of shape ``box``; kept by the values of the arguments.

        ``shape``, ``strides`` (in elements; the last one is 1) and ``box`` have 1 to 5 entries, the outermost
        dimension first. ``swizzle`` (bytes) and ``padding`` are of :mod:`ptxforge.support.tensor_map`.
        Raises ``DeviceError`` for what cannot be: CUDA driver API, ``cuTensorMapEncodeTiled``.
        """

    def load_module(self, ptx: str) -> Module:
        """Load PTX text. Raises ``DeviceError`` with the assembler's log when it is refused."""

    def synchronize(self, stream: int = 0) -> None:
        """Wait for the work queued on ``stream``; raises ``DeviceError`` when it failed."""
