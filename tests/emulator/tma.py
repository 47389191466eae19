"""Tensor maps for tests: the emulator's encoder, or the driver's on a GPU; and what a copy of a box gives."""

from __future__ import annotations

import ctypes
import itertools

import numpy as np

from ptxforge.emulator import tensormap

_CUDA_TYPES = {name: code for code, name in enumerate(tensormap.ELEMENT_BYTES)}
_CUDA_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}  # CUtensorMapSwizzle
_NO_INTERLEAVE = _NO_PROMOTION = 0  # CUtensorMapInterleave, CUtensorMapL2promotion
_ALIGNMENT = 128


def encode(
    device,
    kind: str,
    address: int,
    sizes,
    strides,
    box,
    steps=None,
    *,
    swizzle: int = 0,
    fill_nan: bool = False,
) -> bytes:
    """128 bytes for a `__grid_constant__` parameter."""
    if device.name == "emulator":
        return tensormap.encode_tiled(
            kind, address, sizes, strides, box, steps, swizzle=swizzle, fill_nan=fill_nan
        ).tobytes()
    library = ctypes.CDLL("libcuda.so.1")
    # The driver wants the result's address to be a multiple of 64, CUDA 13's header of 128; cuda-python's own
    # object is at a multiple of 16.
    memory = ctypes.create_string_buffer(tensormap.BYTES + _ALIGNMENT)
    room = ctypes.addressof(memory) + -ctypes.addressof(memory) % _ALIGNMENT
    rank = len(sizes)
    with device.current():
        error = library.cuTensorMapEncodeTiled(
            ctypes.c_void_p(room), _CUDA_TYPES[kind], rank, ctypes.c_void_p(address),
            (ctypes.c_uint64 * rank)(*sizes), (ctypes.c_uint64 * rank)(*strides),
            (ctypes.c_uint32 * rank)(*box), (ctypes.c_uint32 * rank)(*(steps or (1,) * rank)),
            _NO_INTERLEAVE, _CUDA_SWIZZLES[swizzle], _NO_PROMOTION, int(fill_nan),
        )  # fmt: skip
    assert error == 0, f"cuTensorMapEncodeTiled: CUresult {error}"
    return ctypes.string_at(room, tensormap.BYTES)


def box_of(
    x: np.ndarray, corner: list[int], box: tuple[int, ...], steps: tuple[int, ...], fill: float = 0
) -> np.ndarray:
    """The reference: elements of a box, by index arithmetic. Axes innermost first; x has them outermost
    first.
    """
    shape = tuple(-(-b // s) for b, s in zip(box, steps))
    out = np.full(shape[::-1], fill, x.dtype)
    for index in itertools.product(*[range(n) for n in shape]):
        place = [c + i * s for c, i, s in zip(corner, index, steps)]
        if all(0 <= p < n for p, n in zip(place, x.shape[::-1])):
            out[index[::-1]] = x[tuple(place[::-1])]
    return out


def unswizzled(raw: np.ndarray, span: int) -> np.ndarray:
    """Undo the swizzle of bytes that lay at an address divisible by 1024."""
    if not span:
        return raw
    at = np.arange(raw.size)
    return raw[at ^ (((at >> 7) & (span // 16 - 1)) << 4)]
