"""Element types, as the kernel author sees them and as numpy stores them.

The language is signed or unsigned by *type* (``int32``, ``uint32``); the IR is signless (both are
``i32``) and its operations carry the sign. A :class:`DType` knows both names.

Names, widths and short names (used in signatures such as ``*fp32:16``) are Triton's.
"""

from __future__ import annotations

import attrs
import ml_dtypes
import numpy as np


@attrs.frozen(slots=True, repr=False)
class DType:
    """An element type.

    ``name`` is the language's name (``float16``), ``short`` the signature's (``fp16``), ``ir`` the IR's
    (``f16``; empty when no value has the type), ``kind`` one of ``bool int uint float void``, ``bits`` the
    width, ``mantissa`` the number of explicit mantissa bits of a float, ``numpy`` the type that holds it on
    the host.
    """

    name: str
    short: str
    ir: str
    kind: str
    bits: int
    numpy: np.dtype = attrs.field(converter=np.dtype, eq=False)
    mantissa: int = 0

    def __repr__(self) -> str:
        return self.name

    @property
    def is_float(self) -> bool:
        """True of floats of any width."""
        return self.kind == "float"

    @property
    def is_int(self) -> bool:
        """True of every integer type, ``int1`` included."""
        return self.kind not in ("float", "void")

    @property
    def is_signed(self) -> bool:
        """True of signed integers."""
        return self.kind == "int"

    @property
    def is_unsigned(self) -> bool:
        """True of unsigned integers, ``int1`` included."""
        return self.kind in ("uint", "bool")

    @property
    def is_bool(self) -> bool:
        """True of ``int1``."""
        return self.kind == "bool"

    @property
    def is_fp8(self) -> bool:
        """True of the 8-bit floats."""
        return self.is_float and self.bits == 8

    @property
    def bytes(self) -> int:
        """Bytes that an element takes in memory (``int1`` takes one)."""
        return max(1, self.bits // 8)


int1 = DType("int1", "i1", "i1", "bool", 1, np.bool_)
int8 = DType("int8", "i8", "i8", "int", 8, np.int8)
int16 = DType("int16", "i16", "i16", "int", 16, np.int16)
int32 = DType("int32", "i32", "i32", "int", 32, np.int32)
int64 = DType("int64", "i64", "i64", "int", 64, np.int64)
uint8 = DType("uint8", "u8", "i8", "uint", 8, np.uint8)
uint16 = DType("uint16", "u16", "i16", "uint", 16, np.uint16)
uint32 = DType("uint32", "u32", "i32", "uint", 32, np.uint32)
uint64 = DType("uint64", "u64", "i64", "uint", 64, np.uint64)
float8e5 = DType("float8e5", "fp8e5", "f8e5m2", "float", 8, ml_dtypes.float8_e5m2, 2)
float8e4nv = DType("float8e4nv", "fp8e4nv", "f8e4m3", "float", 8, ml_dtypes.float8_e4m3fn, 3)
float16 = DType("float16", "fp16", "f16", "float", 16, np.float16, 10)
bfloat16 = DType("bfloat16", "bf16", "bf16", "float", 16, ml_dtypes.bfloat16, 7)
float32 = DType("float32", "fp32", "f32", "float", 32, np.float32, 23)
float64 = DType("float64", "fp64", "f64", "float", 64, np.float64, 52)

ALL = (
    int1, int8, int16, int32, int64, uint8, uint16, uint32, uint64,
    float8e5, float8e4nv, float16, bfloat16, float32, float64,
)  # fmt: skip

float8e4b15 = DType("float8e4b15", "fp8e4b15", "i8", "float", 8, np.uint8, 3)
"""A type of memory: values are bytes, and only conversions know what they mean."""

float8e4b8 = DType("float8e4b8", "fp8e4b8", "", "float", 8, ml_dtypes.float8_e4m3fnuz, 3)
float8e5b16 = DType("float8e5b16", "fp8e5b16", "", "float", 8, ml_dtypes.float8_e5m2fnuz, 2)
void = DType("void", "void", "", "void", 0, np.void)

NAMES_ONLY = (float8e4b8, float8e5b16, void)
"""Types that kernels may name, compare and hold in tables, and that no value here has."""

BY_NAME: dict[str, DType] = {d.name: d for d in (*ALL, float8e4b15)}
BY_SHORT: dict[str, DType] = {d.short: d for d in (*ALL, float8e4b15)} | {"u1": int1}
BY_IR: dict[str, DType] = {d.ir: d for d in reversed(ALL) if d.kind != "uint"}
_BY_NUMPY: dict[np.dtype, DType] = {d.numpy: d for d in ALL}


def from_numpy(dtype: np.dtype) -> DType:
    """The element type that a numpy (or ml_dtypes) dtype holds. Raises ``KeyError`` when there is none."""
    return _BY_NUMPY[np.dtype(dtype)]


def parse(text: str) -> DType:
    """A dtype by its language name, its short name or numpy's (``float16``, ``fp16``, ``int32``, ``i32``).

    Raises ``KeyError`` for another text.
    """
    found = BY_NAME.get(text) or BY_SHORT.get(text)
    if found is None:
        raise KeyError(text)
    return found
