"""The front door of elementwise operations: common types and shapes.

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

from typing import Any

from ptxforge.frontend.context import Context, default_dtype
from ptxforge.frontend.convert import cast
from ptxforge.frontend.values import TensorValue, describe, dtype_name, is_number
from ptxforge.ir import types as T
from ptxforge.ir.ops.shape import Broadcast, ExpandDims, Splat
from ptxforge.language import types as L
from ptxforge.support.errors import TypeMismatchError


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
