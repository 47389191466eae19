"""Tensor maps: what a TMA instruction is told of a tensor, 128 bytes that a device encodes.

A kernel takes them as parameters (``.param .align 64 .b8 name[128]``). Everything here is in the order of
tensors, the outermost dimension first, and in elements; the devices turn it round for CUDA
(CUDA driver API, *Tensor Map Object Management*).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from ptxforge.support import dtypes
from ptxforge.support.dtypes import DType

BYTES, ALIGNMENT = 128, 64
TYPE = "tensormap"
"""The type of a kernel's parameter that is a tensor map, in an artifact's list of parameters."""

SWIZZLES = (0, 32, 64, 128)
"""Bytes over which the rows of a box are swizzled in shared memory."""

PADDINGS = ("zero", "nan")
"""What elements outside of the tensor become."""


def kind_of(dtype: DType) -> str:
    """CUDA's name for an element type in a tensor map: ``f16``, ``u8``. It has neither 8-bit floats nor
    signed integers of 8 and 16 bits; for those it has the bytes.

    >>> kind_of(dtypes.float16), kind_of(dtypes.float8e5), kind_of(dtypes.int64)
    ('f16', 'u8', 's64')
    """
    if dtype.bits <= 8:
        return "u8"
    if dtype.is_float:
        return dtype.ir
    return f"u{dtype.bits}" if dtype.is_unsigned or dtype.bits == 16 else f"s{dtype.bits}"


@attrs.frozen(slots=True)
class TensorMapRecipe:
    """How to make the tensor map that a kernel's parameter ``name`` is, from other parameters of the kernel.

    ``dtype`` is an element type's name (``float16``). ``base`` names a pointer parameter; entries of
    ``shape`` and ``strides`` (elements; the last one is 1) are integers or the names of integer parameters.
    ``box`` is what one instruction moves, ``swizzle`` one of :data:`SWIZZLES`, ``padding`` of
    :data:`PADDINGS`.
    """

    name: str
    dtype: str
    base: str
    shape: tuple[int | str, ...] = attrs.field(converter=tuple)
    strides: tuple[int | str, ...] = attrs.field(converter=tuple)
    box: tuple[int, ...] = attrs.field(converter=tuple)
    swizzle: int = 0
    padding: str = "zero"

    def encode(self, device: Any, value_of: Callable[[str], int]) -> bytes:
        """The 128 bytes on ``device`` for the launch whose parameters have the values ``value_of(name)``.

        Raises ``DeviceError`` when the values make no tensor map.
        """

        def number(entry: int | str) -> int:
            return value_of(entry) if isinstance(entry, str) else entry

        return device.encode_tensor_map(
            dtypes.BY_NAME[self.dtype],
            value_of(self.base),
            tuple(map(number, self.shape)),
            tuple(map(number, self.strides)),
            self.box,
            swizzle=self.swizzle,
            padding=self.padding,
        )
