"""The matrix product."""

from __future__ import annotations

import math
from typing import Any

from ptxforge.frontend.context import Context
from ptxforge.frontend.convert import cast
from ptxforge.frontend.semantics import arguments
from ptxforge.frontend.semantics.registry import ArgumentProblem, implements
from ptxforge.frontend.semantics.shape import reshaped
from ptxforge.frontend.values import TensorValue, describe, dtype_name
from ptxforge.ir.ops.dot import PRECISIONS, Dot
from ptxforge.language import dot_product as language
from ptxforge.language import types as L

_INTEGERS = (L.int8, L.uint8)
_LEAST_BITS = 256
"""Bits of the shortest row of ``input``: one step of the tensor cores along K, as Triton asks for."""
_FLOATS = (L.float16, L.bfloat16, L.float32, L.float64)


@implements(language.dot)
def dot(
    ctx,
    input,
    other,
    acc=None,
    input_precision=None,
    allow_tf32=None,
    max_num_imprecise_acc=None,
    out_dtype=L.float32,
):
    a, b = _matrix(input, "input"), _matrix(other, "other")
    if L.float8e4b15 in (a.dtype, b.dtype):
        a, b = cast(ctx, a, L.float16), cast(ctx, b, L.float16)
    _check_types(a, b)
    shape = _result_shape(a, b)
    dtype = _result_dtype(a.dtype, out_dtype)
    c = _accumulator(ctx, acc, dtype, shape)
    if len(shape) > 3:
        # The operation takes one batch dimension.
        flat = [reshaped(ctx, x, (math.prod(x.shape[:-2]), *x.shape[-2:])) for x in (a, b, c)]
        return reshaped(ctx, _dot(ctx, *flat, input_precision, allow_tf32, max_num_imprecise_acc), shape)
    return _dot(ctx, a, b, c, input_precision, allow_tf32, max_num_imprecise_acc)


def _dot(
    ctx: Context,
    a: TensorValue,
    b: TensorValue,
    c: TensorValue,
    precision: Any,
    allow_tf32: Any,
    imprecise: Any,
) -> TensorValue:
    attributes: dict[str, Any] = {"input_precision": _precision(precision, allow_tf32)}
    imprecise = arguments.static(imprecise, "max_num_imprecise_acc")
    if imprecise is not None:
        attributes["max_num_imprecise_acc"] = _imprecise(a, imprecise)
    if a.dtype is L.uint8:
        attributes["a_unsigned"] = True
    if b.dtype is L.uint8:
        attributes["b_unsigned"] = True
    return ctx.op(Dot, a, b, c, dtype=c.dtype, **attributes)


def _imprecise(a: TensorValue, imprecise: Any) -> int:
    """How many products of 8-bit floats may be added in less than float32: no more than there are."""
    count, columns = arguments.static_int(imprecise, "max_num_imprecise_acc"), a.shape[-1]
    if a.dtype.is_fp8() and count > columns:
        raise ArgumentProblem(
            "max_num_imprecise_acc", f"must be at most {columns}, the columns of 'input'; is {count}"
        )
    return count


def _matrix(value: Any, name: str) -> TensorValue:
    x = arguments.number(arguments.block(value, name), name)
    if len(x.shape) < 2:
        raise ArgumentProblem(name, f"must have at least two dimensions, is {describe(x)}")
    return x


def _check_types(a: TensorValue, b: TensorValue) -> None:
    both_fp8 = a.dtype.is_fp8() and b.dtype.is_fp8()
    both_small_integers = a.dtype in _INTEGERS and b.dtype in _INTEGERS
    if a.dtype is not b.dtype and not both_fp8 and not both_small_integers:
        raise ArgumentProblem(
            "other",
            f"must have the element type of 'input', {dtype_name(a.dtype)}; is {dtype_name(b.dtype)}",
            "cast one of them with .to()",
        )
    if not (both_fp8 or both_small_integers or a.dtype in _FLOATS):
        allowed = ", ".join(map(dtype_name, (*_FLOATS, *_INTEGERS)))
        raise ArgumentProblem(
            "input", f"must be one of {allowed} or an 8-bit float; is {dtype_name(a.dtype)}"
        )


def _result_shape(a: TensorValue, b: TensorValue) -> tuple[int, ...]:
    if len(a.shape) != len(b.shape) or a.shape[:-2] != b.shape[:-2]:
        raise ArgumentProblem(
            "other", f"must have the batch dimensions of 'input', {describe(a)}; is {describe(b)}"
        )
    if a.shape[-1] != b.shape[-2]:
        columns, shape = a.shape[-1], list(a.shape)
        raise ArgumentProblem(
            "other", f"must have {columns} rows, as many as 'input' {shape} has columns; is {list(b.shape)}"
        )
    least = _LEAST_BITS // a.dtype.primitive_bitwidth
    if a.shape[-1] < least:
        raise ArgumentProblem(
            "input",
            f"must have at least {least} columns of {dtype_name(a.dtype)}, is {describe(a)}",
            "multiply without tensor cores: tl.sum(a[:, :, None] * b[None, :, :], 1)",
        )
    return (*a.shape[:-1], b.shape[-1])


def _result_dtype(operand: L.dtype, wanted: Any) -> L.dtype:
    if operand in _INTEGERS:
        return L.int32
    if operand is L.float64:
        return L.float64
    dtype = arguments.element_type(wanted, "out_dtype")
    if dtype is L.bfloat16:
        raise ArgumentProblem(
            "out_dtype", "cannot be bfloat16", "accumulate in tl.float32 and cast the result"
        )
    if dtype not in (L.float32, L.float16):
        raise ArgumentProblem("out_dtype", f"must be tl.float32 or tl.float16, is {dtype_name(dtype)}")
    if dtype is L.float16 and operand not in (L.float16, L.float8e5, L.float8e4nv):
        raise ArgumentProblem("out_dtype", f"cannot be float16 for operands of {dtype_name(operand)}")
    return dtype


def _accumulator(ctx: Context, acc: Any, dtype: L.dtype, shape: tuple[int, ...]) -> TensorValue:
    if arguments.unwrap(acc) is None:
        return ctx.constant(0, dtype, shape)
    if not isinstance(acc, TensorValue) or acc.dtype != dtype or acc.shape != shape:
        raise ArgumentProblem("acc", f"must be {dtype_name(dtype)}{list(shape)}, is {describe(acc)}")
    return acc


def _precision(precision: Any, allow_tf32: Any) -> str:
    precision = arguments.static(precision, "input_precision")
    allow_tf32 = arguments.static(allow_tf32, "allow_tf32")
    if precision is not None and allow_tf32 is not None:
        raise ArgumentProblem(
            "allow_tf32", "says the same as 'input_precision'", "give only 'input_precision'"
        )
    if allow_tf32 is not None:
        return "tf32" if allow_tf32 else "ieee"
    if isinstance(precision, str):
        precision = precision.lower()
    return arguments.choice(precision, "input_precision", PRECISIONS, default="tf32")
