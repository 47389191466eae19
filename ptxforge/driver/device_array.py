"""An array in device memory, for users who have numpy and nothing else."""

from __future__ import annotations

import math
import weakref

import numpy as np

from ptxforge.driver.protocol import Device
from ptxforge.support import dtypes
from ptxforge.support.dtypes import DType
from ptxforge.support.errors import DeviceError


def element_type(dtype: object) -> DType:
    """The element type named by one of the language's types, a numpy or ml_dtypes dtype, or a name such as
    ``"bf16"``.

    Raises :class:`DeviceError` for anything else.
    """
    for known in (dtype, getattr(dtype, "base", None)):  # tl.float32 has a DType as its base
        if isinstance(known, DType):
            return known
    try:
        if dtype is None:  # to numpy it is float64
            raise TypeError
        return dtypes.parse(dtype) if isinstance(dtype, str) else dtypes.from_numpy(dtype)
    except (KeyError, TypeError):
        raise DeviceError(
            f"'{dtype}' is not an element type; try 'float16', np.float32 or ml_dtypes.bfloat16"
        ) from None


class DeviceArray:
    """A C-contiguous array on a device; it owns its memory.

    Pass it to a kernel as a pointer argument. Other libraries take it through
    ``__cuda_array_interface__`` (``torch.as_tensor(array)``, ``cupy.asarray(array)``) without a copy.

    >>> from ptxforge.emulator import EmulatorDevice
    >>> x = DeviceArray.from_numpy(EmulatorDevice(), np.arange(6).reshape(2, 3))
    >>> x
    DeviceArray(shape=(2, 3), dtype=int64, device='emulator')
    >>> x.numpy().sum()
    np.int64(15)
    """

    def __init__(self, device: Device, shape: int | tuple[int, ...], dtype: object):
        self.owner = device
        self.shape = (shape,) if isinstance(shape, int) else tuple(int(extent) for extent in shape)
        self.dtype = element_type(dtype)
        if any(extent < 0 for extent in self.shape):
            raise DeviceError(f"an array cannot have the shape {self.shape}")
        self._address = device.allocate(self.nbytes)
        self._free = weakref.finalize(self, _release, device, self._address)

    @classmethod
    def from_numpy(cls, device: Device, source: np.ndarray) -> DeviceArray:
        """A copy of a host array, in C order."""
        source = np.asarray(source, order="C")
        return cls(device, source.shape, source.dtype).copy_from(source)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.dtype.bytes

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def strides(self) -> tuple[int, ...]:
        """The step of each axis, in *elements* as a kernel counts (numpy counts bytes)."""
        steps = [1]
        for extent in reversed(self.shape[1:]):
            steps.append(steps[-1] * extent)
        return tuple(reversed(steps))[-self.ndim :] if self.shape else ()

    @property
    def device(self) -> str:
        """The device's name, such as ``cuda:0``."""
        return self.owner.name

    def stride(self, axis: int) -> int:
        """The step of one axis in elements."""
        return self.strides[axis]

    def data_ptr(self) -> int:
        """The address of the first element."""
        return self._address

    def numpy(self) -> np.ndarray:
        """A copy on the host, after the work queued on the default stream."""
        result = np.empty(self.shape, self.dtype.numpy)
        self.owner.copy_to_host(result, self._address)
        return result

    def copy_from(self, source: np.ndarray) -> DeviceArray:
        """Overwrite with a host array. Raises :class:`DeviceError` for another shape or element type."""
        source = np.asarray(source, order="C")
        if source.shape != self.shape or dtypes.from_numpy(source.dtype) != self.dtype:
            raise DeviceError(f"cannot copy {source.dtype}{source.shape} to {self.dtype}{self.shape}")
        self.owner.copy_to_device(self._address, source)
        return self

    def __array__(self, dtype: object = None, copy: bool | None = None) -> np.ndarray:
        """A copy on the host, for ``np.asarray(array)``. Raises ``ValueError`` for ``copy=False``."""
        if copy is False:
            raise ValueError(f"an array on '{self.device}' cannot be seen by numpy without a copy")
        found = self.numpy()
        return found if dtype is None else found.astype(dtype, copy=False)

    def free(self) -> None:
        """Release the memory now instead of when the last reference goes."""
        self._free()

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"DeviceArray(shape={self.shape}, dtype={self.dtype!r}, device='{self.device}')"

    @property
    def __cuda_array_interface__(self) -> dict:
        if not self.device.startswith("cuda"):
            raise AttributeError(f"an array on '{self.device}' is not in CUDA memory")
        return {
            "shape": self.shape,
            "typestr": self.dtype.numpy.str,
            "data": (self._address, False),
            "strides": None,
            "version": 3,
            "stream": 1,  # the default stream, where ptxforge queues work on its own arrays
        }


def _release(device: Device, address: int) -> None:
    """Free memory; quiet when the driver is going down with the process."""
    try:
        device.free(address)
    except Exception:
        return
