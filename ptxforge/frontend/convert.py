"""Conversions: of one value to a type, of several to a common type and shape.

The rules are Triton's. Numbers of Python do not widen a tensor of their own kind or a higher one
(``x_fp16 * 2.0`` is fp16); two tensors follow this lattice, in order:

    fp64 with anything          fp64
    a float, divided            fp32
    fp32 with anything          fp32
    fp16 with anything          fp16
    bf16 with bf16              bf16; with anything else fp32
    fp8 with the same fp8       itself; with another one fp16
    integers                    C's usual conversions; divided, both must have one sign
"""

from __future__ import annotations

from functools import cache
from typing import Any

from ptxforge.frontend.context import Context, default_dtype
from ptxforge.frontend.values import TensorValue, describe, dtype_name, ir_type, is_number
from ptxforge.ir import types as T
from ptxforge.ir.ops import arith as A
from ptxforge.ir.ops import cast as C
from ptxforge.ir.ops.inline_asm import InlineAsm
from ptxforge.ir.ops.shape import Broadcast, ExpandDims, Splat
from ptxforge.language import types as L
from ptxforge.support.errors import TypeMismatchError


@cache
def common_dtype(
    a: L.dtype, a_is_number: bool, b: L.dtype, b_is_number: bool, division: bool = False
) -> L.dtype:
    """The type in which two operands are combined. Raises :class:`TypeMismatchError` when there is none."""
    if a_is_number != b_is_number:
        number, tensor = (a, b) if a_is_number else (b, a)
        if number.kind() <= tensor.kind():
            a = b = tensor
    if L.float64 in (a, b):
        return L.float64
    if division and (a.is_floating() or b.is_floating()):
        return L.float32
    for dtype in (L.float32, L.float16):
        if dtype in (a, b):
            return dtype
    if L.bfloat16 in (a, b):
        return L.bfloat16 if a is b else L.float32
    if a.is_fp8() and b.is_fp8():
        return a if a is b else L.float16
    if a.is_fp8() or b.is_fp8():
        raise TypeMismatchError(
            f"{dtype_name(a)} and {dtype_name(b)} have no common type",
            hint="cast the 8-bit float to a wider one",
        )
    if division and a.is_int_signed() != b.is_int_signed():
        raise TypeMismatchError(
            f"{dtype_name(a)} and {dtype_name(b)} have different signedness, so their quotient has no good"
            " type",
            hint="cast them to the same signedness",
        )
    return common_integer(a, b)


def common_integer(a: L.dtype, b: L.dtype) -> L.dtype:
    """C's usual arithmetic conversions: the wider one; of one width, the unsigned one."""
    if a.is_int_signed() == b.is_int_signed():
        return a if a.int_bitwidth > b.int_bitwidth else b
    unsigned, signed = (b, a) if a.is_int_signed() else (a, b)
    return unsigned if unsigned.int_bitwidth >= signed.int_bitwidth else signed


def operands(
    ctx: Context, x: Any, y: Any, operator: str, division: bool = False
) -> tuple[TensorValue, TensorValue]:
    """Two numbers or tensors in their common type and shape. ``operator`` is named in messages."""
    if isinstance(x, TensorValue) and isinstance(y, TensorValue):
        if x.value.type is y.value.type and x.dtype is y.dtype and not division:
            return x, y
        dtype = _common(x.dtype, False, y.dtype, False, operator, division)
        return broadcast(ctx, cast(ctx, x, dtype), cast(ctx, y, dtype), operator)
    if isinstance(x, TensorValue) and is_number(y):
        dtype = _common(x.dtype, False, default_dtype(y), True, operator, division)
        return cast(ctx, x, dtype), _number(ctx, y, dtype, x.shape)
    if isinstance(y, TensorValue) and is_number(x):
        dtype = _common(default_dtype(x), True, y.dtype, False, operator, division)
        return _number(ctx, x, dtype, y.shape), cast(ctx, y, dtype)
    if is_number(x) and is_number(y):
        dtype = _common(default_dtype(x), True, default_dtype(y), True, operator, division)
        return _number(ctx, x, dtype, ()), _number(ctx, y, dtype, ())
    raise TypeMismatchError(f"'{operator}' cannot combine {describe(x)} and {describe(y)}")


def _common(a: Any, a_is_number: bool, b: Any, b_is_number: bool, operator: str, division: bool) -> L.dtype:
    if isinstance(a, L.pointer_type) or isinstance(b, L.pointer_type):
        raise TypeMismatchError(f"'{operator}' cannot combine {dtype_name(a)} and {dtype_name(b)}")
    return common_dtype(a, a_is_number, b, b_is_number, division)


def _number(ctx: Context, value: bool | int | float, dtype: L.dtype, shape: tuple[int, ...]) -> TensorValue:
    """A number beside a tensor of ``dtype``. Raises :class:`TypeMismatchError` when it does not fit in an
    integer."""
    if dtype.is_int() and not dtype.is_bool():
        if value < 0 and dtype.is_int_unsigned():
            raise TypeMismatchError(
                f"the negative number {value} meets a tensor of {dtype_name(dtype)}",
                hint="cast one of them explicitly",
            )
        if not dtype.get_int_min_value() <= value <= dtype.get_int_max_value():
            raise TypeMismatchError(f"the number {value} is out of range for {dtype_name(dtype)}")
    return ctx.constant(value, dtype, shape)


def broadcast(
    ctx: Context, x: TensorValue, y: TensorValue, operator: str = "broadcast"
) -> tuple[TensorValue, TensorValue]:
    """Both at their common shape."""
    if x.shape == y.shape:
        return x, y
    shape = common_shape(x.shape, y.shape, operator)
    return broadcast_to(ctx, x, shape), broadcast_to(ctx, y, shape)


def common_shape(x: tuple[int, ...], y: tuple[int, ...], operator: str) -> tuple[int, ...]:
    """The shape to which two shapes broadcast, aligned at their last dimensions."""
    if x == y or not y:
        return x
    if not x:
        return y
    rank = max(len(x), len(y))
    wide_x, wide_y = (1,) * (rank - len(x)) + x, (1,) * (rank - len(y)) + y
    for dimension, (a, b) in enumerate(zip(wide_x, wide_y)):
        if a != b and 1 not in (a, b):
            shapes = f"{list(x)} and {list(y)}"
            raise TypeMismatchError(
                f"'{operator}' cannot broadcast shapes {shapes}: dimension {dimension} is {a} and {b}"
            )
    return tuple(max(a, b) for a, b in zip(wide_x, wide_y))


def broadcast_to(ctx: Context, x: TensorValue, shape: tuple[int, ...]) -> TensorValue:
    """``x`` at ``shape``: a scalar fills it, dimensions of size 1 stretch, missing ones are put in front."""
    if x.shape == shape:
        return x
    if not x.is_block:
        return splat(ctx, x, shape)
    rank = len(shape)
    fits = len(x.shape) <= rank and all(a in (1, b) for a, b in zip(x.shape[::-1], shape[::-1]))
    if not fits:
        raise TypeMismatchError(f"shape {list(x.shape)} cannot be broadcast to {list(shape)}")
    while len(x.shape) < rank:
        x = ctx.op(ExpandDims, x, axis=0)
    return x if x.shape == shape else ctx.typed(Broadcast, x, dtype=x.dtype, shape=shape)


def splat(ctx: Context, x: TensorValue, shape: tuple[int, ...]) -> TensorValue:
    """A block with a scalar everywhere; of a constant, a constant block."""
    if not shape:
        return x
    number = ctx.scalar_of(x)
    if number is not None:
        held = ctx.builder.constant(number, T.TensorType(shape, x.value.type))
        return TensorValue(held, x.dtype)
    return ctx.typed(Splat, x, dtype=x.dtype, shape=shape)


def cast(ctx: Context, x: TensorValue, dtype: L.dtype | L.pointer_type, rounding: str = "") -> TensorValue:
    """``x`` converted to ``dtype``. ``rounding`` (``rtne`` or ``rtz``) is for floats that narrow.

    Raises :class:`TypeMismatchError` when there is no such conversion.
    """
    if x.dtype == dtype:
        return x
    if isinstance(dtype, L.pointer_type) or x.is_pointer:
        return _cast_pointer(ctx, x, dtype)
    if x.dtype is L.float8e4b15:
        return cast(ctx, _e4b15_to_half(ctx, x), dtype, rounding)
    if dtype is L.float8e4b15:
        return _half_to_e4b15(ctx, x if x.dtype is L.float16 else cast(ctx, _float(ctx, x), L.float16, "rtz"))
    if dtype.is_bool():
        return not_zero(ctx, x)
    if x.dtype.is_floating():
        if dtype.is_floating():
            return _float_to_float(ctx, x, dtype, rounding)
        kind = C.FPToSI if dtype.is_int_signed() else C.FPToUI
        return _convert(ctx, kind, x, dtype)
    if dtype.is_floating():
        kind = C.SIToFP if x.dtype.is_int_signed() else C.UIToFP
        return _convert(ctx, kind, x, dtype)
    return _int_to_int(ctx, x, dtype)


def converted(ctx: Context, value: Any, dtype: L.dtype) -> TensorValue:
    """A block, or a number of Python's, as ``dtype``."""
    return cast(ctx, value, dtype) if isinstance(value, TensorValue) else ctx.constant(value, dtype)


def _convert(ctx: Context, kind: type, x: TensorValue, dtype: L.dtype, **attributes: str) -> TensorValue:
    return ctx.typed(kind, x, dtype=dtype, shape=x.shape, **attributes)


def _int_to_int(ctx: Context, x: TensorValue, dtype: L.dtype) -> TensorValue:
    source, target = x.dtype.int_bitwidth, dtype.int_bitwidth
    number = ctx.scalar_of(x)
    if number is not None and dtype.get_int_min_value() <= number <= dtype.get_int_max_value():
        if x.dtype.is_int_signed() or number >= 0:
            return ctx.constant(int(number), dtype)
    if source == target:
        return TensorValue(x.value, dtype)
    if source > target:
        return _convert(ctx, C.TruncI, x, dtype)
    return _convert(ctx, C.ExtSI if x.dtype.is_int_signed() else C.ExtUI, x, dtype)


def _float_to_float(ctx: Context, x: TensorValue, dtype: L.dtype, rounding: str) -> TensorValue:
    if dtype.primitive_bitwidth > x.dtype.primitive_bitwidth:
        return _convert(ctx, C.ExtF, x, dtype)
    return _convert(ctx, C.TruncF, x, dtype, rounding=rounding or "rtne")


# -- float8e4b15 -------------------------------------------------------------------------------------------
# One bit of sign, four of exponent, three of mantissa. The exponent's bias is float16's, so that a shift
# converts. There are no infinities and no NaN: all 256 values are finite, up to 1.875; conversions make
# nothing larger than 1.75, to which numbers beyond and NaN come. Of a float32 the bits beyond float16 are cut
# off; a float16 is rounded to nearest, halves away from zero (as Triton does).

_E4B15_TO_HALF = """
prmt.b32 $0, $2, 0, 0x1404;
prmt.b32 $1, $2, 0, 0x3424;
{
    .reg .b32 low, high;
    and.b32 low, $0, 0x7F007F00;
    and.b32 high, $1, 0x7F007F00;
    shr.u32 low, low, 1;
    shr.u32 high, high, 1;
    lop3.b32 $0, low, 0x80008000, $0, 0xF8;
    lop3.b32 $1, high, 0x80008000, $1, 0xF8;
}"""
_HALF_TO_E4B15 = """
{
    .reg .b32 low, high, most;
    mov.b32 most, 0x3F003F00;
    and.b32 low, $1, 0x7FFF7FFF;
    and.b32 high, $2, 0x7FFF7FFF;
    min.f16x2 low, low, most;
    min.f16x2 high, high, most;
    mad.lo.u32 low, low, 2, 0x00800080;
    mad.lo.u32 high, high, 2, 0x00800080;
    lop3.b32 low, $1, 0x80008000, low, 0xEA;
    lop3.b32 high, $2, 0x80008000, high, 0xEA;
    prmt.b32 $0, low, high, 0x7531;
}"""


def _e4b15_to_half(ctx: Context, x: TensorValue) -> TensorValue:
    """Exact. Four at a time, in two words."""
    return _assembled(ctx, x, L.float16, _E4B15_TO_HALF, "=r,=r,r")


def _half_to_e4b15(ctx: Context, x: TensorValue) -> TensorValue:
    return _assembled(ctx, x, L.float8e4b15, _HALF_TO_E4B15, "=r,r,r")


def _assembled(ctx: Context, x: TensorValue, dtype: L.dtype, text: str, constraints: str) -> TensorValue:
    elements = (str(ir_type(dtype)),)
    op = ctx.builder.create(
        InlineAsm, x.value, text=text, constraints=constraints, elements=elements, pack=4, ptx_version=(7, 0)
    )
    return TensorValue(op.result, dtype)


def _float(ctx: Context, x: TensorValue) -> TensorValue:
    """``x``, an integer as float32."""
    return x if x.dtype.is_floating() else cast(ctx, x, L.float32)


def _cast_pointer(ctx: Context, x: TensorValue, dtype: L.dtype | L.pointer_type) -> TensorValue:
    if x.is_pointer and isinstance(dtype, L.pointer_type):
        return _same_bits(ctx, x, dtype)
    if isinstance(dtype, L.pointer_type):
        if not x.dtype.is_int():
            raise TypeMismatchError(f"{dtype_name(x.dtype)} cannot become a {dtype_name(dtype)}")
        return ctx.typed(C.IntToPtr, cast(ctx, x, L.int64), dtype=dtype, shape=x.shape)
    if dtype.is_bool() or (dtype.is_int() and dtype.int_bitwidth == 64):
        address = ctx.typed(C.PtrToInt, x, dtype=L.int64, shape=x.shape)
        return cast(ctx, address, dtype)
    raise TypeMismatchError(
        f"a {dtype_name(x.dtype)} cannot become {dtype_name(dtype)}", hint="cast it to int64 first"
    )


def _same_bits(ctx: Context, x: TensorValue, dtype: L.dtype | L.pointer_type) -> TensorValue:
    if ir_type(x.dtype) is ir_type(dtype):
        return TensorValue(x.value, dtype)
    return ctx.typed(C.Bitcast, x, dtype=dtype, shape=x.shape)


def bitcast(ctx: Context, x: TensorValue, dtype: L.dtype | L.pointer_type) -> TensorValue:
    """The bits of ``x`` as ``dtype``, of the same width."""
    if x.dtype == dtype:
        return x
    if x.is_pointer or isinstance(dtype, L.pointer_type):
        return _cast_pointer(ctx, x, dtype)
    source, target = x.dtype.primitive_bitwidth, dtype.primitive_bitwidth
    if source != target:
        raise TypeMismatchError(
            f"cannot bitcast {dtype_name(x.dtype)} ({source} bits) to {dtype_name(dtype)} ({target} bits)"
        )
    return _same_bits(ctx, x, dtype)


def not_zero(ctx: Context, x: TensorValue) -> TensorValue:
    """``x != 0``, as int1; of a pointer, whether it is not null."""
    if x.is_pointer:
        x = cast(ctx, x, L.int64)
    if x.dtype.is_bool():
        return x
    zero = ctx.constant(0, x.dtype, x.shape)
    if x.dtype.is_floating():
        return ctx.op(A.CmpF, x, zero, dtype=L.int1, predicate="une")
    return ctx.op(A.CmpI, x, zero, dtype=L.int1, predicate="ne")
