"""An array in device memory, for users who have numpy and nothing else."""

from __future__ import annotations

import math
import operator
import weakref

import numpy as np

from ptxforge.driver.protocol import Device
from ptxforge.support import dtypes
from ptxforge.support.dtypes import DType
from ptxforge.support.errors import DeviceError
from ptxforge.support.markup import code, table

_SHOWN = 64
"""Elements up to which a notebook shows all of an array."""


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
        """The address of the first element. Raises :class:`DeviceError` for an array that was freed."""
        if not self._free.alive:
            raise DeviceError(f"this array of shape {self.shape} was freed")
        return self._address

    def numpy(self) -> np.ndarray:
        """A copy on the host, after the work queued on the default stream."""
        result = np.empty(self.shape, self.dtype.numpy)
        self.owner.copy_to_host(result, self.data_ptr())
        return result

    def copy_from(self, source: np.ndarray) -> DeviceArray:
        """Overwrite with a host array. Raises :class:`DeviceError` for another shape or element type."""
        source = np.asarray(source, order="C")
        if source.shape != self.shape or dtypes.from_numpy(source.dtype) != self.dtype:
            raise DeviceError(f"cannot copy {source.dtype}{source.shape} to {self.dtype}{self.shape}")
        self.owner.copy_to_device(self.data_ptr(), source)
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
        self._address = 0  # code that goes on to use it must not find another array there

    def __getitem__(self, key: object) -> np.ndarray:
        """Elements on the host, for looking at: a copy, indexed as numpy does. With an integer in front only
        what it selects is copied.

        Raises ``IndexError`` as numpy does.
        """
        first = key[0] if isinstance(key, tuple) and key else key
        if not isinstance(first, (int, np.integer)) or isinstance(first, (bool, np.bool_)) or not self.shape:
            return self.numpy()[key]
        row = operator.index(first)
        if not -self.shape[0] <= row < self.shape[0]:
            raise IndexError(f"index {row} is out of bounds for axis 0 with size {self.shape[0]}")
        part = np.empty(self.shape[1:], self.dtype.numpy)
        self.owner.copy_to_host(part, self.data_ptr() + row % self.shape[0] * part.nbytes)
        return part[key[1:] if isinstance(key, tuple) else ()]

    def __setitem__(self, key: object, value: object) -> None:
        raise TypeError("an array on a device is written as a whole: array.copy_from(values)")

    def __dlpack_device__(self) -> tuple[int, int]:
        """(type, number) as DLPack counts devices: 1 is host memory, where the emulator keeps its arrays, 2
        is CUDA."""
        kind, _, number = self.device.partition(":")
        return (2, int(number or 0)) if kind == "cuda" else (1, 0)

    def __dlpack__(self, **options: object) -> object:
        """The array without a copy, for ``numpy.from_dlpack`` and others, where it is in host memory; it
        stays alive as long as they use it. Raises ``BufferError`` for one in CUDA memory, which others take
        by ``__cuda_array_interface__``, and for element types that numpy does not hand over.
        """
        if self.__dlpack_device__()[0] != 1:
            raise BufferError("an array in CUDA memory is taken by its __cuda_array_interface__")
        return np.asarray(_HostView(self)).__dlpack__(**options)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array of no dimensions has no length")
        return self.shape[0]

    def _repr_html_(self) -> str:
        """For notebooks: shape, type, device and the first elements."""
        corner = self.numpy() if self.size <= _SHOWN else self[(0,) * (self.ndim - 1)][:8]
        what = [("shape", self.shape), ("type", self.dtype), ("device", self.device), ("bytes", self.nbytes)]
        return table(what) + code(str(corner))

    def __repr__(self) -> str:
        return f"DeviceArray(shape={self.shape}, dtype={self.dtype!r}, device='{self.device}')"

    @property
    def __cuda_array_interface__(self) -> dict:
        if not self.device.startswith("cuda"):
            raise AttributeError(f"an array on '{self.device}' is not in CUDA memory")
        return {
            "shape": self.shape,
            "typestr": self.dtype.numpy.str,
            "data": (self.data_ptr(), False),
            "strides": None,
            "version": 3,
            "stream": 1,  # the default stream, where ptxforge queues work on its own arrays
        }


class _HostView:
    """An array in host memory as numpy sees one; keeps it alive."""

    def __init__(self, array: DeviceArray):
        self.array = array
        self.__array_interface__ = {
            "shape": array.shape,
            "typestr": array.dtype.numpy.str,
            "data": (array.data_ptr(), False),
            "version": 3,
        }


def _release(device: Device, address: int) -> None:
    """Free memory; quiet when the driver is going down with the process."""
    try:
        device.free(address)
    except Exception:
        return
