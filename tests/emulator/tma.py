"""Tensor maps for tests: the emulator's encoder, or the driver's on a GPU."""

from __future__ import annotations

import numpy as np

from ptxforge.emulator import tensormap

_CUDA_TYPES = {name: code for code, name in enumerate(tensormap.ELEMENT_BYTES)}


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
    from cuda.bindings import driver  # needs a GPU's driver

    rank = len(sizes)
    wide = lambda values: [driver.cuuint64_t(int(v)) for v in values]  # noqa: E731
    narrow = lambda values: [driver.cuuint32_t(int(v)) for v in values]  # noqa: E731
    with device.current():
        error, tensor_map = driver.cuTensorMapEncodeTiled(
            driver.CUtensorMapDataType(_CUDA_TYPES[kind]), rank, address, wide(sizes), wide(strides),
                narrow(box),
            narrow(steps or (1,) * rank), driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            driver.CUtensorMapSwizzle({0: 0, 32: 1, 64: 2, 128: 3}[swizzle]),
            driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_NONE,
            driver.CUtensorMapFloatOOBfill(int(fill_nan)),
        )  # fmt: skip
    assert int(error) == 0, error
    return np.array([int(word) for word in tensor_map.opaque], np.uint64).tobytes()
