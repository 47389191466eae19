"""``cuTensorMapEncodeTiled``: the driver's encoder of tensor maps.

It is called through ctypes. The driver wants the address of the result to be a multiple of 64 (the header of
CUDA 13 asks for 128), and cuda-python's own object lies at any multiple of 16.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

from ptxforge.driver.cuda_api import bindings, call, describe
from ptxforge.support.dtypes import DType
from ptxforge.support.errors import DeviceError
from ptxforge.support.tensor_map import BYTES, PADDINGS, check_dimensions, kind_of

# Values of CUtensorMapDataType, CUtensorMapSwizzle, CUtensorMapInterleave and CUtensorMapL2promotion.
_TYPES = {"u8": 0, "u16": 1, "u32": 2, "s32": 3, "u64": 4, "s64": 5, "f16": 6, "f32": 7, "f64": 8, "bf16": 9}
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
_NO_INTERLEAVE, _PROMOTE_128_BYTES = 0, 2
_ALIGNMENT = 128
_SINCE = 12000  # the first CUDA version that has the function
_KEPT = 4096


@functools.lru_cache(maxsize=_KEPT)
def encode(
    dtype: DType,
    address: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    box: tuple[int, ...],
    swizzle: int,
    padding: str,
) -> bytes:
    """The 128 bytes; see :meth:`ptxforge.driver.protocol.Device.encode_tensor_map`. Kept by the values of
    the arguments. Raises :class:`DeviceError` when the driver refuses them."""
    check_dimensions(shape, strides, box)
    rank, memory = len(shape), ctypes.create_string_buffer(BYTES + _ALIGNMENT)
    room = ctypes.addressof(memory) + -ctypes.addressof(memory) % _ALIGNMENT
    between = [stride * dtype.bytes for stride in reversed(strides[:-1])]
    code = _encoder()(
        room, _TYPES[kind_of(dtype)], rank, address,
        (ctypes.c_uint64 * rank)(*reversed(shape)), (ctypes.c_uint64 * rank)(*between),
        (ctypes.c_uint32 * rank)(*reversed(box)), (ctypes.c_uint32 * rank)(*[1] * rank),
        _NO_INTERLEAVE, _SWIZZLES[swizzle], _PROMOTE_128_BYTES, PADDINGS.index(padding),
    )  # fmt: skip
    if code:
        reason = describe(bindings(), bindings().CUresult(code))
        raise DeviceError(
            f"cuTensorMapEncodeTiled failed: {reason}\n{dtype} {shape} at {address:#x}, strides {strides}, "
            f"box {box}, swizzle {swizzle}, padding {padding}"
        )
    return ctypes.string_at(room, BYTES)


@functools.cache
def _encoder() -> Callable[..., int]:
    """The driver's function."""
    pointer, number = ctypes.c_void_p, ctypes.c_int
    signature = ctypes.CFUNCTYPE(
        number, pointer, number, ctypes.c_uint32, pointer, pointer, pointer, pointer, pointer,
        number, number, number, number,
    )  # fmt: skip
    found = call("cuGetProcAddress", b"cuTensorMapEncodeTiled", _SINCE, 0)
    return signature(int(found[0] if isinstance(found, tuple) else found))
