"""What the meaning of a language function needs: where to build, what is being built, how to call back."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np

from ptxforge.frontend.values import TensorValue, dtype_name, ir_type
from ptxforge.ir import types as T
from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Operation
from ptxforge.ir.rewriter import constant_of
from ptxforge.language import types as L
from ptxforge.support.errors import CompilationError

_FLOAT32_MIN_NORMAL, _FLOAT32_MAX = 2.0**-126, (2 - 2.0**-23) * 2.0**127


@attrs.define(slots=True, eq=False)
class Context:
    """The state of one kernel's construction.

    ``builder`` inserts operations; ``debug`` keeps device assertions, ``checks_overflow`` adds those against
    overflow, ``keeps_denormals`` lets powers of two be denormal; ``num_warps`` run each program; ``steps``
    marks where statements begin. ``elementwise`` is the shape of the block for whose elements a function
    decides by itself (``map_elementwise``), else ``None``; ``conditions`` are those that elements decide
    around this place, each with what it must be;
    ``combines`` says that a function of a reduction or scan is being built. ``call(function, arguments)``
    inlines a jitted function (set by the visitor).
    """

    builder: Builder
    target: str
    debug: bool = False
    checks_overflow: bool = False
    keeps_denormals: bool = False
    elementwise: tuple[int, ...] | None = None
    conditions: tuple[tuple[TensorValue, bool], ...] = ()
    call: Callable[[Any, Sequence[Any]], Any] | None = None
    num_warps: int = 4
    steps: bool = False
    combines: bool = False

    def op(
        self,
        kind: type[Operation],
        /,
        *operands: TensorValue,
        dtype: L.dtype | L.pointer_type | None = None,
        **attributes: Any,
    ) -> TensorValue:
        """Create an operation whose result type follows from its operands; ``dtype`` is the result's (the
        first operand's unless given)."""
        if operands[0].dtype is L.float8e4b15:
            _refuse_arithmetic(kind)
        result = self.builder.value(kind, *[o.value for o in operands], **attributes)
        return TensorValue(result, operands[0].dtype if dtype is None else dtype)

    def typed(
        self,
        kind: type[Operation],
        /,
        *operands: TensorValue,
        dtype: L.dtype | L.pointer_type,
        shape: tuple[int, ...],
        **attributes: Any,
    ) -> TensorValue:
        """Create an operation with a given result type."""
        result = self.builder.value(
            kind, *[o.value for o in operands], type=_type(dtype, shape), **attributes
        )
        return TensorValue(result, dtype)

    def constant(self, value: bool | int | float, dtype: L.dtype, shape: tuple[int, ...] = ()) -> TensorValue:
        """A constant of ``dtype``; a block of it with a ``shape``. The number is converted as Python or numpy
        does.

        Raises :class:`CompilationError` for an integer that does not fit.
        """
        held = _constant_value(value, dtype)
        if dtype is L.float8e4b15:
            held = _e4b15_bits(held)
        return TensorValue(self.builder.constant(held, _type(dtype, shape)), dtype)

    def to_tensor(self, value: Any) -> TensorValue:
        """A runtime value of a runtime value or number; a number takes its default type."""
        if isinstance(value, TensorValue):
            return value
        if not isinstance(value, (int, float)):
            raise CompilationError(f"a number or tensor is needed here, not {_what(value)}")
        return self.constant(value, default_dtype(value))

    def scalar_of(self, value: TensorValue) -> bool | int | float | None:
        """The number, when ``value`` is a scalar constant; else ``None``."""
        return None if value.is_block else constant_of(value.value)


def _type(dtype: L.dtype | L.pointer_type, shape: tuple[int, ...]) -> T.Type:
    element = ir_type(dtype)
    return T.TensorType(shape, element) if shape else element


def _what(value: Any) -> str:
    return "None" if value is None else f"a '{type(value).__name__}'"


def _refuse_arithmetic(kind: type[Operation]) -> None:
    """Values of float8e4b15 are bytes: they are moved and selected, not computed with."""
    family = kind.__module__.rpartition(".")[2]
    if family in ("arith", "math", "reduce") and kind.name != "select":
        raise CompilationError(
            "float8e4b15 is a type of memory, which nothing computes with", hint="cast to tl.float16 first"
        )


def default_dtype(value: bool | int | float) -> L.dtype:
    """The type of a number on its own: int1, int32, uint32, int64, uint64, float32 or float64."""
    if isinstance(value, bool):
        return L.int1
    if isinstance(value, int):
        for dtype in (L.int32, L.uint32, L.int64, L.uint64):
            if dtype.get_int_min_value() <= value <= dtype.get_int_max_value():
                return dtype
        raise CompilationError(f"the integer {value} does not fit in 64 bits")
    size = abs(value)
    is_float32 = size in (0.0, float("inf")) or size != size or _FLOAT32_MIN_NORMAL <= size <= _FLOAT32_MAX
    return L.float32 if is_float32 else L.float64


def holds(dtype: L.dtype, value: bool | int | float) -> bool:
    """Whether a number is one of ``dtype``'s."""
    if dtype.is_int():
        return dtype.get_int_min_value() <= value <= dtype.get_int_max_value()
    return value != value or _constant_value(value, dtype) == value


def _constant_value(value: bool | int | float, dtype: L.dtype) -> bool | int | float:
    """The number as the IR's constant holds it: rounded to a float type, wrapped into a signed integer,
    which can be written as the bits of an unsigned one."""
    if isinstance(dtype, L.pointer_type):
        raise CompilationError(f"a number cannot become a {dtype_name(dtype)}", hint="cast an integer tensor")
    if dtype.is_floating():
        return _rounded(float(value), dtype)
    if dtype.is_bool():
        return bool(value)
    if isinstance(value, float):
        if value != value or value in (float("inf"), -float("inf")):
            raise CompilationError(f"{value!r} cannot become {dtype_name(dtype)}")
        value = int(value)
    bits = dtype.int_bitwidth
    if not dtype.get_int_min_value() <= value < 1 << bits:  # 0xffffffff is an int32's bits
        raise CompilationError(f"the integer {int(value)} does not fit in {dtype_name(dtype)}")
    return int(value) - (1 << bits) if value >= 1 << (bits - 1) else int(value)


def _e4b15_bits(value: float) -> int:
    """The byte of a number in float8e4b15, as conversions round it (``convert.py``)."""
    half = np.float32(value).astype(np.float16)
    if abs(float(half)) > abs(value):
        half = np.nextafter(half, np.float16(0))
    bits = int(half.view(np.uint16))
    byte = min(bits & 0x7FFF, 0x3F00) * 2 + 0x80 >> 8 | bits >> 8 & 0x80
    return byte - 256 if byte >= 128 else byte


def _rounded(value: float, dtype: L.dtype) -> float:
    if dtype in (L.float64, L.float8e4b15):
        return value
    if dtype is L.float32:
        try:
            return struct.unpack("<f", struct.pack("<f", value))[0]
        except OverflowError:
            return math.copysign(math.inf, value)
    with np.errstate(all="ignore"):
        return float(np.float64(value).astype(dtype.base.numpy))
