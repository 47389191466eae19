"""Tensor maps: what a TMA instruction is told of a tensor, 128 bytes that a device encodes.

A kernel takes them as parameters (``.param .align 64 .b8 name[128]``). Everything here is in the order of
tensors, the outermost dimension first, and in elements; the devices turn it round for CUDA
(CUDA driver API, *Tensor Map Object Management*).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import attrs

from ptxforge.support import dtypes
from ptxforge.support.dtypes import DType
from ptxforge.support.errors import DeviceError, OtherVariantError

BYTES, ALIGNMENT = 128, 64
TYPE = "tensormap"
"""The type of a kernel's parameter that is a tensor map, in an artifact's list of parameters."""

SWIZZLES = (0, 32, 64, 128)
"""Bytes over which the rows of a box are swizzled in shared memory."""

ELEMENT_TYPES = (
    "u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f32.ftz", "f64", "bf16", "tf32", "tf32.ftz",
)  # fmt: skip
"""As ``tensormap.replace`` counts them (PTX ISA, "tensormap.replace")."""

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


def has_nan(dtype: DType) -> bool:
    """Whether a tensor map of these elements can have NaN outside of the tensor; of bytes it has none.

    >>> has_nan(dtypes.float16), has_nan(dtypes.float8e5), has_nan(dtypes.int32)
    (True, False, False)
    """
    return dtype.is_float and dtype.bits > 8


def check_dimensions(shape: tuple[int, ...], strides: tuple[int, ...], box: tuple[int, ...]) -> None:
    """Raise :class:`DeviceError` unless a tensor map can have this shape, these strides and this box: what
    every device asks before it encodes one."""
    if not 1 <= len(shape) == len(strides) == len(box) <= 5 or strides[-1] != 1:
        raise DeviceError(
            f"no tensor map has the shape {shape}, the strides {strides} and the box {box}: it has 1 to 5 "
            "dimensions, and neighbours in the last one"
        )


class TensorMapError(OtherVariantError):
    """The arguments of a launch make no tensor map."""

    option = "tensor_maps", False


Entry = int | str
"""A number, or a sum of products of numbers and parameters as text: ``"n"``, ``"8*n*stride + 4"``."""


@functools.lru_cache(maxsize=1024)
def _terms(entry: str) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(factor.strip() for factor in term.split("*")) for term in entry.split("+"))


def names_in(entry: Entry) -> tuple[str, ...]:
    """The parameters that an entry is made of.

    >>> names_in("8*n*stride + 4")
    ('n', 'stride')
    """
    if isinstance(entry, int):
        return ()
    return tuple(factor for term in _terms(entry) for factor in term if not factor.lstrip("-").isdigit())


def evaluate(entry: Entry, value_of: Callable[[str], int]) -> int:
    """The number that an entry stands for.

    >>> evaluate("8*n*stride + 4", {"n": 2, "stride": 3}.__getitem__)
    52
    """
    if isinstance(entry, int):
        return entry
    return sum(
        math.prod(int(x) if x.lstrip("-").isdigit() else value_of(x) for x in term) for term in _terms(entry)
    )


@attrs.frozen(slots=True)
class TensorMapRecipe:
    """How to make the tensor map that a kernel's parameter ``name`` is, from other parameters of the kernel.

    ``dtype`` is an element type's name (``float16``). ``base`` names a pointer parameter; ``shape`` and
    ``strides`` (elements; the last one is 1) have an :data:`Entry` for each dimension.
    ``box`` is what one instruction moves, ``swizzle`` one of :data:`SWIZZLES`, ``padding`` of
    :data:`PADDINGS`. The parameters ``nonnegative`` say where boxes begin: with one below 0 that might be in
    front of the tensor, where a map has padding and pointers lead to memory.
    """

    name: str
    dtype: str
    base: str
    shape: tuple[Entry, ...] = attrs.field(converter=tuple)
    strides: tuple[Entry, ...] = attrs.field(converter=tuple)
    box: tuple[int, ...] = attrs.field(converter=tuple)
    swizzle: int = 0
    padding: str = "zero"
    nonnegative: tuple[str, ...] = attrs.field(default=(), converter=tuple)

    @property
    def parameters(self) -> tuple[str, ...]:
        """The parameters that the map depends on."""
        entries = (*self.shape, *self.strides)
        named = (name for entry in entries for name in names_in(entry))
        return tuple(dict.fromkeys((self.base, *named, *self.nonnegative)))

    def encode(self, device: Any, value_of: Callable[[str], int]) -> bytes:
        """The 128 bytes on ``device`` for the launch whose parameters have the values ``value_of(name)``.

        Raises :class:`TensorMapError` when the values make no tensor map.
        """
        try:
            return self._encode(device, value_of)
        except DeviceError as error:
            raise TensorMapError(str(error)) from None

    def _encode(self, device: Any, value_of: Callable[[str], int]) -> bytes:
        below = [name for name in self.nonnegative if value_of(name) < 0]
        if below:
            raise DeviceError(f"'{below[0]}' is negative: boxes of '{self.name}' may begin in front of it")
        return device.encode_tensor_map(
            dtypes.BY_NAME[self.dtype],
            value_of(self.base),
            tuple(evaluate(entry, value_of) for entry in self.shape),
            tuple(evaluate(entry, value_of) for entry in self.strides),
            self.box,
            swizzle=self.swizzle,
            padding=self.padding,
        )
