"""Conversions between element types."""

from __future__ import annotations

from ptxforge.frontend.context import Context
from ptxforge.frontend.values import TensorValue, dtype_name, ir_type
from ptxforge.ir.ops import arith as A
from ptxforge.ir.ops import cast as C
from ptxforge.ir.ops.inline_asm import InlineAsm
from ptxforge.language import types as L
from ptxforge.support.errors import TypeMismatchError


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
