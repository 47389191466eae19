"""Arithmetic, comparison, selection: the operators of Python and their function forms."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from ptxforge.frontend.context import Context, default_dtype, holds
from ptxforge.frontend.convert import (
    broadcast_to,
    cast,
    common_dtype,
    common_shape,
    converted,
    not_zero,
    operands,
)
from ptxforge.frontend.semantics.arguments import choice, static_bool, static_int, tensor
from ptxforge.frontend.semantics.registry import ArgumentProblem, implements
from ptxforge.frontend.values import TensorValue, describe, dtype_name, is_number
from ptxforge.ir.ops import arith as A
from ptxforge.ir.ops import math as M
from ptxforge.ir.ops.debug import Assert
from ptxforge.ir.ops.memory import AddPtr
from ptxforge.language import arith as language
from ptxforge.language import types as L
from ptxforge.language.types import PropagateNan
from ptxforge.support import settings
from ptxforge.support.errors import CompilationError, TypeMismatchError

# -- + - * -------------------------------------------------------------------------------------------------


def _is_pointer(x: Any) -> bool:
    return isinstance(x, TensorValue) and x.is_pointer


def add(ctx: Context, x: Any, y: Any) -> TensorValue:
    """``x + y``; one of them may be a pointer."""
    if _is_pointer(x) or _is_pointer(y):
        return _offset(ctx, x, y) if _is_pointer(x) else _offset(ctx, y, x)
    x, y = operands(ctx, x, y, "+")
    return ctx.op(A.AddF if x.dtype.is_floating() else A.AddI, x, y)


def sub(ctx: Context, x: Any, y: Any) -> TensorValue:
    """``x - y``; of a pointer and an integer, too."""
    if _is_pointer(x):
        return _offset(ctx, x, negate(ctx, y), "-")
    x, y = operands(ctx, x, y, "-")
    return ctx.op(A.SubF if x.dtype.is_floating() else A.SubI, x, y)


def mul(ctx: Context, x: Any, y: Any) -> TensorValue:
    """``x * y``."""
    x, y = operands(ctx, x, y, "*")
    return ctx.op(A.MulF if x.dtype.is_floating() else A.MulI, x, y)


def _checked(operation: Callable, name: str) -> Callable:
    """``operation`` as users write it: under ``debug`` its result must fit in its integer type."""

    def apply(ctx: Context, x: Any, y: Any) -> TensorValue:
        result = operation(ctx, x, y)
        dtype = result.dtype
        if ctx.checks_overflow and not result.is_pointer and dtype.is_int() and 1 < dtype.int_bitwidth < 64:
            _assert_it_fits(ctx, operation, name, x, y, dtype)
        return result

    apply.unchecked = operation
    return apply


def _assert_it_fits(ctx: Context, operation: Callable, name: str, x: Any, y: Any, dtype: L.dtype) -> None:
    """The same in 64 bits lies within the limits. (A product of two uint32 that does not is negative.)"""
    wide = operation(ctx, *(cast(ctx, side, L.int64) for side in operands(ctx, x, y, name)))
    low = compare(ctx, wide, dtype.get_int_min_value(), ">=")
    high = compare(ctx, wide, dtype.get_int_max_value(), "<=")
    message = f"int{dtype.int_bitwidth} overflow detected for operation {name}"
    ctx.builder.create(Assert, bitand(ctx, low, high).value, message=message)


checked_add = _checked(add, "add")
checked_sub = _checked(sub, "sub")
checked_mul = _checked(mul, "mul")


def _offset(ctx: Context, pointer: TensorValue, offset: Any, operator: str = "+") -> TensorValue:
    """A pointer moved by a number of elements, which the IR takes as signed i32 or i64."""
    if not (is_number(offset) or isinstance(offset, TensorValue)):
        raise TypeMismatchError(f"'{operator}' cannot combine {describe(pointer)} and {describe(offset)}")
    offset = ctx.to_tensor(offset)
    if offset.is_pointer or not offset.dtype.is_int():
        raise TypeMismatchError(
            f"'{operator}' cannot move a pointer by {describe(offset)}: an offset is an integer",
            hint="cast the offset with .to(tl.int64)" if not offset.is_pointer else "",
        )
    dtype = offset.dtype
    if dtype.int_bitwidth < 32:
        offset = cast(ctx, offset, L.int32)
    elif dtype is L.uint32:
        offset = cast(ctx, offset, L.int64)
    shape = common_shape(pointer.shape, offset.shape, operator)
    return ctx.op(AddPtr, broadcast_to(ctx, pointer, shape), broadcast_to(ctx, offset, shape))


# -- / // % ------------------------------------------------------------------------------------------------


def truediv(ctx: Context, x: Any, y: Any) -> TensorValue:
    """``x / y`` in floats; of integers, float32."""
    x, y = operands(ctx, x, y, "/", division=True)
    if x.dtype.is_int():
        x, y = cast(ctx, x, L.float32), cast(ctx, y, L.float32)
    return ctx.op(A.DivF, x, y)


def floordiv(ctx: Context, x: Any, y: Any) -> TensorValue:
    """``x // y`` of integers, towards zero as C divides."""
    divisor = y
    x, y = operands(ctx, x, y, "//", division=True)
    if not x.dtype.is_int():
        raise TypeMismatchError(
            f"'//' divides integers, not {dtype_name(x.dtype)}", hint="use / , or tl.floor(x / y) for floats"
        )
    _check_divisor(divisor, "//")
    return ctx.op(A.DivSI if x.dtype.is_int_signed() else A.DivUI, x, y)


def mod(ctx: Context, x: Any, y: Any) -> TensorValue:
    """``x % y`` with the sign of ``x``, as C's remainder."""
    divisor = y
    x, y = operands(ctx, x, y, "%", division=True)
    if x.dtype.is_floating():
        return ctx.op(A.RemF, x, y)
    _check_divisor(divisor, "%")
    return ctx.op(A.RemSI if x.dtype.is_int_signed() else A.RemUI, x, y)


def _check_divisor(divisor: Any, operator: str) -> None:
    """Integers have no quotient by zero: at run time it is undefined, at compile time an error."""
    if is_number(divisor) and divisor == 0:
        raise TypeMismatchError(f"'{operator}' by zero")


def power(ctx: Context, x: Any, y: Any) -> TensorValue:
    """``x ** y`` of runtime values is refused."""
    raise TypeMismatchError("'**' needs compile-time numbers", hint="use x * x, or tl.math.pow for floats")


def matmul(ctx: Context, x: Any, y: Any) -> TensorValue:
    """``x @ y`` is refused."""
    raise TypeMismatchError("'@' has no meaning in a kernel", hint="use tl.dot(x, y)")


# -- bits --------------------------------------------------------------------------------------------------


def _integer_operands(ctx: Context, x: Any, y: Any, operator: str) -> tuple[TensorValue, TensorValue]:
    for side in (x, y):
        is_int = isinstance(side, int) or (
            isinstance(side, TensorValue) and not side.is_pointer and side.dtype.is_int()
        )
        if not is_int:
            raise TypeMismatchError(f"'{operator}' combines integers, not {describe(x)} and {describe(y)}")
    return operands(ctx, x, y, operator)


def bitand(ctx: Context, x: Any, y: Any) -> TensorValue:
    """``x & y``."""
    return ctx.op(A.AndI, *_integer_operands(ctx, x, y, "&"))


def bitor(ctx: Context, x: Any, y: Any) -> TensorValue:
    """``x | y``."""
    return ctx.op(A.OrI, *_integer_operands(ctx, x, y, "|"))


def bitxor(ctx: Context, x: Any, y: Any) -> TensorValue:
    """``x ^ y``."""
    return ctx.op(A.XorI, *_integer_operands(ctx, x, y, "^"))


def lshift(ctx: Context, x: Any, y: Any) -> TensorValue:
    """``x << y``."""
    distance = y
    x, y = _integer_operands(ctx, x, y, "<<")
    _check_distance(distance, x.dtype, "<<")
    return ctx.op(A.ShlI, x, y)


def rshift(ctx: Context, x: Any, y: Any) -> TensorValue:
    """``x >> y``: arithmetic when ``x`` is signed, whatever the type that both are promoted to."""
    distance, shifted = y, x
    x, y = _integer_operands(ctx, x, y, ">>")
    _check_distance(distance, x.dtype, ">>")
    sign = shifted.dtype if isinstance(shifted, TensorValue) else x.dtype
    return ctx.op(A.ShrSI if sign.is_int_signed() else A.ShrUI, x, y)


def _check_distance(distance: Any, dtype: L.dtype, operator: str) -> None:
    """A shift by all the bits of a type, or by a negative number, is undefined at run time."""
    most = dtype.int_bitwidth - 1
    if is_number(distance) and not 0 <= distance <= most:
        raise TypeMismatchError(
            f"'{operator}' by {distance} is out of range for {dtype_name(dtype)}: 0 to {most}",
            hint="cast to a wider type first" if distance > 0 else "",
        )


# -- one operand -------------------------------------------------------------------------------------------


def negate(ctx: Context, x: Any) -> TensorValue:
    """``-x``. Of a float, ``-0.0 - x``, which also turns the sign of zero."""
    if is_number(x):
        return ctx.to_tensor(-x)
    if not isinstance(x, TensorValue) or x.is_pointer:
        raise TypeMismatchError(f"'-' cannot negate {describe(x)}")
    if x.dtype.is_floating():
        return ctx.op(A.SubF, ctx.constant(-0.0, x.dtype, x.shape), x)
    return ctx.op(A.SubI, ctx.constant(0, x.dtype, x.shape), x)


def plus(ctx: Context, x: TensorValue) -> TensorValue:
    """``+x``."""
    return x


def invert(ctx: Context, x: TensorValue) -> TensorValue:
    """``~x`` of integers."""
    if x.is_pointer or not x.dtype.is_int():
        raise TypeMismatchError(f"'~' inverts integers, not {describe(x)}")
    ones = ctx.builder.constant(True if x.dtype.is_bool() else -1, x.value.type)
    return ctx.op(A.XorI, x, TensorValue(ones, x.dtype))


def logical_not(ctx: Context, x: TensorValue) -> TensorValue:
    """``not x``: ``x == 0``."""
    return invert(ctx, not_zero(ctx, x))


# -- comparison --------------------------------------------------------------------------------------------

_FLOAT_PREDICATE = {"==": "oeq", "!=": "une", "<": "olt", "<=": "ole", ">": "ogt", ">=": "oge"}
_INTEGER_PREDICATE = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}


def compare(ctx: Context, x: Any, y: Any, operator: str) -> TensorValue:
    """``x operator y`` as int1: ordered for floats (but ``!=`` is true with a NaN), by sign for integers."""
    if _is_pointer(x) and _is_pointer(y):
        x, y = cast(ctx, x, L.int64), cast(ctx, y, L.int64)
    x, y = operands(ctx, _compared(ctx, x, y), _compared(ctx, y, x), operator)
    if x.dtype.is_floating():
        return ctx.op(A.CmpF, x, y, dtype=L.int1, predicate=_FLOAT_PREDICATE[operator])
    predicate = _INTEGER_PREDICATE[operator]
    if operator not in ("==", "!="):
        predicate = ("s" if x.dtype.is_int_signed() else "u") + predicate
    return ctx.op(A.CmpI, x, y, dtype=L.int1, predicate=predicate)


def _compared(ctx: Context, value: Any, other: Any) -> Any:
    """Before Triton 3.9 a number that the type beside it does not hold has its own: ``x > 0.1`` of float16
    compares in float32. Since then it is rounded, or refused."""
    if not is_number(value) or not isinstance(other, TensorValue) or other.is_pointer:
        return value
    own, dtype = default_dtype(value), other.dtype
    if own.kind() != dtype.kind() or holds(dtype, value) or settings.follows(3, 9):
        return value
    wide = common_dtype(own, False, dtype, False)
    is_exact = wide.is_floating() or wide.is_int_signed()
    return ctx.constant(value, wide) if is_exact and wide is not dtype else value


# -- functions ---------------------------------------------------------------------------------------------


@implements(language.add)
def add_function(ctx, x, y, sanitize_overflow=True):
    return (checked_add if static_bool(sanitize_overflow, "sanitize_overflow") else add)(ctx, x, y)


@implements(language.sub)
def sub_function(ctx, x, y, sanitize_overflow=True):
    return (checked_sub if static_bool(sanitize_overflow, "sanitize_overflow") else sub)(ctx, x, y)


@implements(language.mul)
def mul_function(ctx, x, y, sanitize_overflow=True):
    return (checked_mul if static_bool(sanitize_overflow, "sanitize_overflow") else mul)(ctx, x, y)


@implements(language.logical_and)
def logical_and(ctx, x, y):
    return bitand(ctx, not_zero(ctx, ctx.to_tensor(x)), not_zero(ctx, ctx.to_tensor(y)))


@implements(language.logical_or)
def logical_or(ctx, x, y):
    return bitor(ctx, not_zero(ctx, ctx.to_tensor(x)), not_zero(ctx, ctx.to_tensor(y)))


@implements(language.where_rarely)
def where_rarely(ctx, condition, x, y):
    return _selected(ctx, A.SelectRarely, condition, x, y)


@implements(language.where)
def where(ctx, condition, x, y):
    return _selected(ctx, A.Select, condition, x, y)


def _selected(ctx, select, condition, x, y):
    condition = tensor(ctx, condition, "condition")
    if condition.dtype != L.int1:
        text = f"the condition of tl.where is {describe(condition)}; write != 0 for what that means"
        warnings.warn(text, stacklevel=2)
    condition = not_zero(ctx, condition)
    if _is_pointer(x) or _is_pointer(y):
        x, y = tensor(ctx, x, "x"), tensor(ctx, y, "y")
        if x.dtype != y.dtype:
            raise TypeMismatchError(f"where() cannot choose between {describe(x)} and {describe(y)}")
    else:
        x, y = operands(ctx, x, y, "where")
    shape = common_shape(condition.shape, common_shape(x.shape, y.shape, "where"), "where")
    condition, x, y = (broadcast_to(ctx, value, shape) for value in (condition, x, y))
    return TensorValue(ctx.builder.value(select, condition.value, x.value, y.value), x.dtype)


_EXTREMA = {  # (which, propagates NaN) -> float operation
    ("minimum", False): A.MinNumF, ("minimum", True): A.MinimumF,
    ("maximum", False): A.MaxNumF, ("maximum", True): A.MaximumF,
}  # fmt: skip
_INTEGER_EXTREMA = {
    ("minimum", True): A.MinSI, ("minimum", False): A.MinUI,
    ("maximum", True): A.MaxSI, ("maximum", False): A.MaxUI,
}  # fmt: skip


def extremum(ctx: Context, x: Any, y: Any, which: str, nan_wins: bool = False) -> TensorValue:
    """``minimum`` or ``maximum`` of two values of any number type."""
    x, y = operands(ctx, x, y, which)
    if x.dtype.is_floating():
        return ctx.op(_EXTREMA[which, nan_wins], x, y)
    return ctx.op(_INTEGER_EXTREMA[which, x.dtype.is_int_signed()], x, y)


def chosen(ctx: Context, x: Any, y: Any, which: str, nan_wins: bool = False) -> TensorValue:
    """:func:`extremum` of what a kernel writes: see :func:`own_types`."""
    given = own_types(ctx, True, x=x, y=y)
    return extremum(ctx, given["x"], given["y"], which, nan_wins)


def own_types(ctx: Context, widen: bool, **values: Any) -> dict[str, Any]:
    """Numbers as scalars of the common type, in which they count with types of their own (int32, float32),
    and with ``widen`` bfloat16 as float32. Triton promotes like this in some functions before release 3.9:
    there ``tl.maximum(x, 0.0)`` of float16 is float32. The numbers themselves are not rounded to float32."""
    if settings.follows(3, 9):
        return values
    given = {name: tensor(ctx, value, name) for name, value in values.items()}
    for name, value in given.items():
        if value.is_pointer:
            return given  # what follows says what is wrong
        if widen and value.dtype is L.bfloat16:
            given[name] = cast(ctx, value, L.float32)
    dtype = next(iter(given.values())).dtype
    for value in given.values():
        dtype = common_dtype(dtype, False, value.dtype, False)
    return {
        name: ctx.constant(value, dtype) if is_number(value) else given[name]
        for name, value in values.items()
    }


def _nan_wins(value: Any) -> bool:
    return choice(value, "propagate_nan", (PropagateNan.NONE, PropagateNan.ALL)) == PropagateNan.ALL


@implements(language.minimum)
def minimum(ctx, x, y, propagate_nan=PropagateNan.NONE):
    return chosen(ctx, x, y, "minimum", _nan_wins(propagate_nan))


@implements(language.maximum)
def maximum(ctx, x, y, propagate_nan=PropagateNan.NONE):
    return chosen(ctx, x, y, "maximum", _nan_wins(propagate_nan))


@implements(language.clamp)
def clamp(ctx, x, min, max, propagate_nan=PropagateNan.NONE):
    x, low, high = _common_numbers(ctx, "clamp", own_types(ctx, True, x=x, min=min, max=max))
    nan_wins = _nan_wins(propagate_nan)
    if x.dtype.is_int():
        return extremum(ctx, extremum(ctx, x, low, "maximum"), high, "minimum")
    return ctx.op(M.ClampF, x, low, high, propagate_nan=nan_wins)


def common_floats(ctx: Context, function: str, **values: Any) -> list[TensorValue]:
    """Float operands (numbers among them follow the tensors) in one type and shape."""
    found = _common_numbers(ctx, function, values)
    if not found[0].dtype.is_floating():
        raise ArgumentProblem(next(iter(values)), f"must be a float, is {dtype_name(found[0].dtype)}")
    return found


def _common_numbers(ctx: Context, function: str, values: dict[str, Any]) -> list[TensorValue]:
    dtype, shape, is_number_dtype = None, (), True
    for name, value in values.items():
        given = tensor(ctx, value, name)
        if given.is_pointer:
            raise ArgumentProblem(name, f"must be a number, is a {dtype_name(given.dtype)}")
        mine = is_number(value)
        dtype = given.dtype if dtype is None else common_dtype(dtype, is_number_dtype, given.dtype, mine)
        is_number_dtype = is_number_dtype and mine
        shape = common_shape(shape, given.shape, function)
    return [broadcast_to(ctx, converted(ctx, value, dtype), shape) for value in values.values()]


@implements(language.cdiv)
def cdiv(ctx, x, div):
    if is_number(x) and is_number(div):
        return -(-static_int(x, "x") // _positive(div, "div"))
    if is_number(div):  # of the least integer of a type, what is one less fits in none
        return floordiv(ctx, add(ctx, x, div - 1) if div > 0 else sub(ctx, add(ctx, x, div), 1), div)
    step = div
    if isinstance(x, TensorValue) and x.dtype.is_int() and div.dtype.is_int():
        step = cast(ctx, div, common_dtype(x.dtype, False, div.dtype, False))
    return floordiv(ctx, add(ctx, x, sub(ctx, step, 1)), div)


def _positive(value: Any, name: str) -> int:
    number = static_int(value, name)
    if number <= 0:
        raise ArgumentProblem(name, f"must be positive, is {number}")
    return number


@implements(language.next_power_of_2)
def next_power_of_2(ctx, n):
    return 1 << max(0, static_int(n, "n") - 1).bit_length()


def same_integers(ctx: Context, x: Any, y: Any, function: str) -> tuple[TensorValue, TensorValue]:
    """Two integers in their common type and shape."""
    x, y = operands(ctx, x, y, function)
    if not x.dtype.is_int():
        raise CompilationError(f"{function}() takes integers, not {dtype_name(x.dtype)}")
    return x, y
