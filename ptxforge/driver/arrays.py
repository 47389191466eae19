"""Arrays of other libraries, recognised by what they can do and never by importing their packages.

=========================  ==========================================  ==============================
protocol                   libraries                                   what orders our work after theirs
=========================  ==========================================  ==============================
``data_ptr()``             torch; ptxforge's own DeviceArray           torch's current stream
``__cuda_array_interface__``  CuPy, Numba, JAX (GPU), RAPIDS           the ``stream`` entry (version 3)
``__dlpack__``             JAX and anything else                       the exporter, told our stream
numpy array                numpy, ml_dtypes                            nothing is queued
=========================  ==========================================  ==============================

:func:`view` gives an :class:`ArrayView` of any of them. It is the general road, a few microseconds long; the
launcher takes torch tensors and DeviceArrays by a shorter one.
"""

from __future__ import annotations

import ctypes
import functools
import math
import sys
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np

from ptxforge.support import dtypes
from ptxforge.support.dtypes import DType
from ptxforge.support.errors import ArgumentError, ElementTypeError

DEVICE_NAMES: dict[str, str] = {}  # of torch's devices, those that really are another one
TORCH_STREAM = "_cuda_getCurrentRawStream"  # in torch's extension module, where it is made for CUDA
LEGACY_STREAM = 0  # the driver's name for the default stream that waits for all others

_TORCH_NAMES = {  # torch spells these its own way; the rest are numpy's names
    "bool": dtypes.int1,
    "float8_e4m3fn": dtypes.float8e4nv,
    "float8_e5m2": dtypes.float8e5,
}


@attrs.frozen(slots=True)
class ArrayView:
    """Where an array lies: device ``address``, element type, ``device`` (``cuda:N`` or ``cpu``), whether it
    may be written, and the ``stream`` its owner works on (``None`` when the owner does not say)."""

    address: int
    dtype: DType
    device: str
    readonly: bool = False
    stream: int | None = None


def view(value: object) -> ArrayView | None:
    """The view of an array of any known kind; ``None`` when ``value`` is not an array.

    Raises :class:`ArgumentError` for an array that a kernel cannot use (masked, an unknown element type).
    """
    if isinstance(value, np.ndarray):
        return ArrayView(value.ctypes.data, from_host_dtype(value.dtype), "cpu", not value.flags.writeable)
    if callable(getattr(value, "data_ptr", None)):
        return _torch_view(value)
    interface = getattr(value, "__cuda_array_interface__", None)
    if interface is not None:
        return _interface_view(interface)
    if hasattr(value, "__dlpack__"):
        return _dlpack_view(value)
    return None


def from_host_dtype(dtype: np.dtype) -> DType:
    """The element type of a numpy dtype. Raises :class:`ArgumentError` when kernels have none like it."""
    try:
        return dtypes.from_numpy(dtype)
    except KeyError:
        raise ArgumentError(f"kernels have no element type for numpy's '{dtype}'") from None


@functools.cache
def from_torch_dtype(dtype: object) -> DType:
    """The element type of a torch dtype, or of one of the language's, by its printed name.

    Raises :class:`ElementTypeError` for a dtype that kernels do not have.
    """
    name = str(dtype).removeprefix("torch.")
    try:
        return _TORCH_NAMES.get(name) or dtypes.parse(name)
    except KeyError:
        raise ElementTypeError(f"kernels have no element type for '{dtype}'") from None


def torch_stream(device_index: int) -> int:
    """The stream that torch queues on now, for the device of that number."""
    return torch_stream_getter()(device_index)


def torch_stream_getter() -> Callable[[int], int]:
    """torch's own function for :func:`torch_stream`, for those who call it often. torch must be imported, and
    know of GPUs."""
    return getattr(torch_bindings(), TORCH_STREAM)


def torch_bindings() -> Any:
    """torch's extension module; ``None`` when torch is not imported."""
    return getattr(sys.modules.get("torch"), "_C", None)


def is_pinned(value: object) -> bool:
    """Whether a host array is torch's and page-locked, so that a GPU reads and writes it at its host address
    (CUDA Programming Guide, "Unified Virtual Address Space"). Without a GPU there is none."""
    ask = getattr(value, "is_pinned", None)
    return callable(ask) and bool(ask())


def _torch_view(tensor: object) -> ArrayView:
    """A torch tensor, a DeviceArray, or a wrapper that forwards ``data_ptr`` and ``dtype``."""
    dtype = tensor.dtype if isinstance(tensor.dtype, DType) else from_torch_dtype(tensor.dtype)
    device = str(getattr(tensor, "device", "cpu"))
    device = DEVICE_NAMES.get(device, device)
    stream = None
    if device.startswith("cuda") and "torch" in sys.modules:
        stream = torch_stream(getattr(tensor.device, "index", None) or 0)
    return ArrayView(tensor.data_ptr(), dtype, device, stream=stream)


def _interface_view(interface: dict) -> ArrayView:
    """The CUDA array interface, version 2 or 3 (numba's documentation, "CUDA Array Interface")."""
    if interface.get("mask") is not None:
        raise ArgumentError("masked arrays cannot be passed to a kernel")
    address, readonly = interface["data"]
    dtype = from_host_dtype(np.dtype(interface["typestr"]))
    return ArrayView(address or 0, dtype, f"cuda:{_ordinal_of(address)}", readonly, interface.get("stream"))


def _ordinal_of(address: int) -> int:
    """The number of the CUDA device that owns an address: the interface does not tell it."""
    from ptxforge.driver.cuda_api import bindings, call, device_count  # only CUDA arrays come here

    if not address or device_count() <= 1:
        return 0
    return call(
        "cuPointerGetAttribute", bindings().CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address
    )


class _DLDataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _DLTensor(ctypes.Structure):
    """``DLTensor`` of dlpack.h, the start of a ``DLManagedTensor``."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("dtype", _DLDataType),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    ]


class _DLVersion(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32)]


class _DLVersioned(ctypes.Structure):
    """``DLManagedTensorVersioned`` of dlpack.h, from version 1.0."""

    _fields_ = [
        ("version", _DLVersion),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _DLTensor),
    ]


_DL_READ_ONLY = 1  # DLPACK_FLAG_BITMASK_READ_ONLY
_IMMUTABLE = ("jax", "jaxlib")  # packages whose arrays never change, though old exports do not say so
_DL_CPU, _DL_CUDA, _DL_CUDA_HOST, _DL_CUDA_MANAGED = 1, 2, 3, 13
_DL_TYPES = {  # (DLDataTypeCode, bits)
    (0, 8): dtypes.int8,
    (0, 16): dtypes.int16,
    (0, 32): dtypes.int32,
    (0, 64): dtypes.int64,
    (1, 8): dtypes.uint8,
    (1, 16): dtypes.uint16,
    (1, 32): dtypes.uint32,
    (1, 64): dtypes.uint64,
    (2, 16): dtypes.float16,
    (2, 32): dtypes.float32,
    (2, 64): dtypes.float64,
    (4, 16): dtypes.bfloat16,
    (6, 8): dtypes.int1,
    (10, 8): dtypes.float8e4nv,
    (12, 8): dtypes.float8e5,
}


def _dlpack_view(array: object) -> ArrayView:
    """A DLPack exporter. The capsule is dropped unconsumed: the array itself keeps its memory alive."""
    kind, ordinal = array.__dlpack_device__()
    if kind not in (_DL_CPU, _DL_CUDA, _DL_CUDA_HOST, _DL_CUDA_MANAGED):
        raise ArgumentError(f"DLPack device type {kind} is not a GPU that runs PTX")
    capsule = _exported(array, {} if kind == _DL_CPU else {"stream": 1})
    tensor, readonly = _tensor_of(capsule)
    readonly |= type(array).__module__.partition(".")[0] in _IMMUTABLE
    dtype = _DL_TYPES.get((tensor.dtype.code, tensor.dtype.bits))
    if dtype is None or tensor.dtype.lanes != 1:
        raise ArgumentError(
            f"kernels have no element type for DLPack's code {tensor.dtype.code}, {tensor.dtype.bits} bits"
        )
    address = (tensor.data or 0) + tensor.byte_offset
    device = "cpu" if kind == _DL_CPU else f"cuda:{ordinal}"
    return ArrayView(address, dtype, device, readonly, LEGACY_STREAM)


def _exported(array: object, options: dict) -> object:
    """The capsule of an exporter, versioned where it can: only that one tells whether it is read-only.

    With ``stream`` 1, the exporter's work is ordered before the default stream.
    """
    try:
        return array.__dlpack__(**options, max_version=(1, 0))
    except TypeError:  # an exporter of before version 1.0
        return array.__dlpack__(**options)


def _tensor_of(capsule: object) -> tuple[_DLTensor, bool]:
    """The tensor in a capsule, and whether it is marked read-only."""
    api = ctypes.pythonapi
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = api.PyCapsule_IsValid.argtypes = [ctypes.py_object, ctypes.c_char_p]
    name = b"dltensor_versioned"
    if not api.PyCapsule_IsValid(capsule, name):
        return _DLTensor.from_address(api.PyCapsule_GetPointer(capsule, b"dltensor")), False
    managed = _DLVersioned.from_address(api.PyCapsule_GetPointer(capsule, name))
    return managed.tensor, bool(managed.flags & _DL_READ_ONLY)


@attrs.frozen(slots=True)
class Span:
    """The host bytes of an array from its first to its last element: ``[low, low + nbytes)``, and where the
    element of index 0 lies (``first``)."""

    low: int
    nbytes: int
    first: int
    writable: bool


def span(value: object) -> Span:
    """The bytes that a CPU array covers: those of the view that it is, not of the memory that it views. Of a
    tensor that repeats its elements (a stride of 0) all of its memory: what steps over it has other strides,
    as ``torch.gather`` written with ``as_strided`` does."""
    if callable(getattr(value, "data_ptr", None)):  # torch, or a package's wrapper around it
        itemsize = value.element_size() if hasattr(value, "element_size") else _torch_view(value).dtype.bytes
        strides = _strides(value)
        repeats = any(size > 1 and not stride for size, stride in zip(value.shape, strides, strict=True))
        if repeats and math.prod(value.shape) and hasattr(value, "untyped_storage"):
            memory = value.untyped_storage()
            return Span(memory.data_ptr(), memory.nbytes(), value.data_ptr(), True)
        steps = [(size - 1) * stride for size, stride in zip(value.shape, strides, strict=True)]
        low, high = sum(step for step in steps if step < 0), sum(step for step in steps if step > 0)
        nbytes = (high - low + 1) * itemsize if math.prod(value.shape) else 0
        return Span(value.data_ptr() + low * itemsize, nbytes, value.data_ptr(), True)
    if isinstance(value, np.ndarray):
        array, writable = value, value.flags.writeable
    else:
        array, writable = np.from_dlpack(value), not _dlpack_view(value).readonly
    low, high = np.lib.array_utils.byte_bounds(array) if array.size else (array.ctypes.data,) * 2
    return Span(low, high - low, array.ctypes.data, writable)


def describe(value: object) -> tuple[int, str, int, tuple[int, ...], tuple[int, ...]] | None:
    """Of an array on the emulator or the host: bytes from its first to its last element, the element type's
    name, bytes per element, shape, strides in elements. ``None`` for anything else."""
    if isinstance(value, np.ndarray):
        kind, strides = value.dtype.name, tuple(step // max(value.itemsize, 1) for step in value.strides)
        itemsize = value.itemsize
    elif callable(getattr(value, "data_ptr", None)) and hasattr(value, "shape"):
        kind, strides = str(value.dtype).removeprefix("torch."), _strides(value)
        itemsize = value.element_size() if hasattr(value, "element_size") else value.dtype.bytes
    elif hasattr(value, "__dlpack__"):
        return describe(np.from_dlpack(value))
    else:
        return None
    shape = tuple(int(extent) for extent in value.shape)
    reach = sum((extent - 1) * step for extent, step in zip(shape, strides, strict=True) if step > 0)
    nbytes = (reach + 1) * itemsize if math.prod(shape) else 0
    return nbytes, kind, itemsize, shape, _row_major(shape) if _is_row_major(shape, strides) else strides


def _strides(array: object) -> tuple[int, ...]:
    return tuple(array.strides if isinstance(getattr(array, "strides", None), tuple) else array.stride())


def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of an array in C order, also of dimensions of one element, where any stride would do."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def _is_row_major(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    step = 1
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and stride != step:
            return False
        step *= extent
    return True


def bytes_at(address: int, nbytes: int) -> np.ndarray:
    """Host memory as a u1 array, in place."""
    if nbytes == 0:
        return np.empty(0, np.uint8)
    return np.frombuffer((ctypes.c_uint8 * nbytes).from_address(address), np.uint8)
