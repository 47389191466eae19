"""The matrix product.

That of matrices in microscaling formats has no operation: no target before sm_100 has an instruction, so it
is written out here, as values of bfloat16 (or float16) times their scales, before an ordinary ``dot``.

    lhs ─ widen ─────────────────── mul ─┐
    lhs_scale ─ decode ─ spread ────┘    dot
    rhs ─ widen ─────────────────── mul ─┘
    rhs_scale ─ decode ─ spread, trans ─┘
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import attrs

from ptxforge.frontend import convert
from ptxforge.frontend.context import Context
from ptxforge.frontend.convert import cast
from ptxforge.frontend.semantics import arguments, arith
from ptxforge.frontend.semantics.reduce import expand
from ptxforge.frontend.semantics.registry import ArgumentProblem, implements
from ptxforge.frontend.semantics.shape import permuted, reshaped
from ptxforge.frontend.values import TensorValue, describe, dtype_name
from ptxforge.ir.ops.dot import PRECISIONS, Dot
from ptxforge.ir.ops.shape import Join
from ptxforge.language import dot_product as language
from ptxforge.language import types as L
from ptxforge.support.target import parse_target

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
    out_dtype=None,
):
    a, b = _matrix(input, "input"), _matrix(other, "other")
    if L.float8e4b15 in (a.dtype, b.dtype):
        if parse_target(ctx.target).sm >= 90:
            instead = "which compute with float8e4nv"
            text = f"the use of fp8e4b15 is deprecated on Hopper and later architectures, {instead}"
            warnings.warn(text, stacklevel=2)
        a, b = cast(ctx, a, L.float16), cast(ctx, b, L.float16)
    _check_types(a, b)
    shape = _result_shape(a, b)
    if arguments.static(out_dtype, "out_dtype") is None:
        out_dtype = L.float16 if isinstance(acc, TensorValue) and acc.dtype is L.float16 else L.float32
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


_HELD_AS = {
    "e2m1": (L.uint8,),
    "e4m3": (L.float8e4nv, L.uint8),
    "e5m2": (L.float8e5, L.uint8),
    "bf16": (L.bfloat16, L.uint16),
    "fp16": (L.float16, L.uint16),
}
"""Format → the element types that a block of it may have; the first is its own."""

_SCALES = (L.uint8, L.int8, L.float8e4nv)


def _group(scale: TensorValue) -> int:
    """How many elements along K share a scale: 32 with e8m0 (mxfp4, mxfp8), 16 with e4m3 (nvfp4)."""
    return 16 if scale.dtype is L.float8e4nv else 32


@attrs.frozen
class _Operand:
    """One side of the product. ``values`` are as given, perhaps packed; ``scale`` has one row for each
    ``line``: a row of ``lhs``, a column of ``rhs``. ``k`` and ``line`` are dimensions of ``values``, -1 and
    -2 in one order or the other."""

    name: str
    format: str
    values: TensorValue
    scale: TensorValue | None
    k: int
    line: int
    packed: int | None

    @property
    def sizes(self) -> tuple[int, int]:
        """The number of lines and of elements along K, unpacked."""
        return tuple(self.values.shape[d] * (2 if d == self.packed else 1) for d in (self.line, self.k))


@implements(language.dot_scaled)
def dot_scaled(
    ctx,
    lhs,
    lhs_scale,
    lhs_format,
    rhs,
    rhs_scale,
    rhs_format,
    acc=None,
    fast_math=False,
    lhs_k_pack=True,
    rhs_k_pack=True,
    out_dtype=L.float32,
):
    left = _operand("lhs", lhs, lhs_scale, lhs_format, lhs_k_pack, k=-1, line=-2)
    right = _operand("rhs", rhs, rhs_scale, rhs_format, rhs_k_pack, k=-2, line=-1)
    _check_fit(left, right)
    if arguments.element_type(out_dtype, "out_dtype") is not L.float32:
        raise ArgumentProblem("out_dtype", "must be tl.float32", "cast the result with .to()")
    dtype = L.float16 if "fp16" in (left.format, right.format) else L.bfloat16
    has_nan = not arguments.static_bool(fast_math, "fast_math")
    return dot(ctx, _scaled(ctx, left, dtype, has_nan), _scaled(ctx, right, dtype, has_nan), acc)


# -- what may be given -------------------------------------------------------------------------------------


def _operand(name: str, values: Any, scale: Any, format: Any, k_pack: Any, k: int, line: int) -> _Operand:
    format = arguments.static(format, f"{name}_format")
    if format not in _HELD_AS:
        formats = ", ".join(map(repr, _HELD_AS))
        raise ArgumentProblem(f"{name}_format", f"must be one of {formats}; is {format!r}")
    values = arguments.block(values, name)
    if len(values.shape) < 2:
        raise ArgumentProblem(name, f"must have at least two dimensions, is {describe(values)}")
    if values.dtype not in _HELD_AS[format]:
        allowed = " or ".join(map(dtype_name, _HELD_AS[format]))
        raise ArgumentProblem(name, f"must be {allowed} for the format '{format}', is {describe(values)}")
    along_k = arguments.static_bool(k_pack, f"{name}_k_pack")
    if not along_k and format != "e2m1":
        raise ArgumentProblem(f"{name}_k_pack", f"can be False for 'e2m1' only, not for '{format}'")
    packed = (k if along_k else line) if format == "e2m1" else None
    operand = _Operand(name, format, values, None, k, line, packed)
    return attrs.evolve(operand, scale=_scale(operand, scale))


def _scale(operand: _Operand, scale: Any) -> TensorValue | None:
    """The scale of an operand after its type and shape were looked at."""
    if arguments.unwrap(scale) is None:
        return None
    name = f"{operand.name}_scale"
    scale = arguments.block(scale, name)
    if scale.dtype not in _SCALES:
        raise ArgumentProblem(
            name,
            f"must be uint8 (e8m0) or float8e4nv, is {describe(scale)}",
            "e8m0 holds the exponent of a power of two, plus 127",
        )
    lines, k = operand.sizes
    batch = list(operand.values.shape[:-2])
    group = _group(scale)
    if k % group:
        raise ArgumentProblem(operand.name, f"has {k} elements along K; a scale is for {group}")
    wanted = [*batch, lines, k // group]
    if list(scale.shape) != wanted:
        line = "row" if operand.line == -2 else "column"
        raise ArgumentProblem(
            name,
            f"must have shape {wanted}, is {describe(scale)}",
            f"one scale for {group} elements along K, in a row for each {line} of '{operand.name}'",
        )
    return scale


def _check_fit(left: _Operand, right: _Operand) -> None:
    if left.values.shape[:-2] != right.values.shape[:-2]:
        wanted, given = describe(left.values), describe(right.values)
        raise ArgumentProblem("rhs", f"must have the batch dimensions of 'lhs', {wanted}; is {given}")
    _, left_k = left.sizes
    _, right_k = right.sizes
    if left_k != right_k:
        raise ArgumentProblem(
            "rhs",
            f"must have {left_k} elements along K, as 'lhs' {list(left.values.shape)} in '{left.format}'; "
            f"{list(right.values.shape)} in '{right.format}' has {right_k}",
        )


# -- what it means -----------------------------------------------------------------------------------------


def _scaled(ctx: Context, operand: _Operand, dtype: L.dtype, has_nan: bool) -> TensorValue:
    """An operand's values times their scales, ``[…, M, K]`` or ``[…, K, N]`` of ``dtype``."""
    values = _widened(ctx, operand, dtype)
    if operand.scale is None:
        return values
    scale = _spread(ctx, _decoded(ctx, operand.scale, dtype, has_nan), operand.sizes[1])
    if operand.line == -1:
        scale = _swapped(ctx, scale)
    return arith.mul(ctx, values, scale)


def _widened(ctx: Context, operand: _Operand, dtype: L.dtype) -> TensorValue:
    if operand.packed is not None:
        return _unpacked(ctx, operand.values, operand.packed, dtype)
    own, *_ = _HELD_AS[operand.format]
    return convert.cast(ctx, convert.bitcast(ctx, operand.values, own), dtype)


def _unpacked(ctx: Context, bytes: TensorValue, axis: int, dtype: L.dtype) -> TensorValue:
    """The 4-bit floats of ``bytes`` as ``dtype``, those of a byte one after the other along ``axis`` (-1 or
    -2)."""
    pairs = ctx.op(Join, *[_decoded_e2m1(ctx, bytes, low, dtype) for low in (0, 4)])
    rank = len(bytes.shape)
    if axis == -2:
        pairs = permuted(ctx, pairs, (*range(rank - 1), rank, rank - 1))
    shape = list(bytes.shape)
    shape[axis] *= 2
    return reshaped(ctx, pairs, tuple(shape))


def _decoded_e2m1(ctx: Context, bytes: TensorValue, low: int, dtype: L.dtype) -> TensorValue:
    """The 4-bit floats at bit ``low`` of ``bytes``.

    Sign, exponent and mantissa move to where the 16-bit type has them: a number too small by the difference
    of the exponents' biases, which a product repairs. That is exact, also for 0.5, which both hold as a
    subnormal number.
    """
    mantissa = dtype.fp_mantissa_width
    wide = convert.cast(ctx, bytes, L.uint16)
    sign = arith.bitand(ctx, arith.lshift(ctx, wide, 12 - low), 0x8000)
    size = arith.bitand(ctx, arith.lshift(ctx, wide, mantissa - 1 - low), 7 << (mantissa - 1))
    small = convert.bitcast(ctx, arith.bitor(ctx, sign, size), dtype)
    bias = (1 << (14 - mantissa)) - 1
    return arith.mul(ctx, small, 2.0 ** (bias - 1))


def _decoded(ctx: Context, scale: TensorValue, dtype: L.dtype, has_nan: bool) -> TensorValue:
    """Scales as ``dtype``. An e8m0 is the exponent of a float32, except that 0 is 2**-127, a subnormal, and
    255 is NaN."""
    if scale.dtype is L.float8e4nv:
        return convert.cast(ctx, scale, dtype)
    exponent = convert.cast(ctx, TensorValue(scale.value, L.uint8), L.uint32)
    bits = arith.extremum(ctx, arith.lshift(ctx, exponent, 23), 1 << 22, "maximum")
    power = convert.bitcast(ctx, bits, L.float32)
    if has_nan:
        power = arith.where(ctx, arith.compare(ctx, exponent, 255, "=="), float("nan"), power)
    return convert.cast(ctx, power, dtype)


def _spread(ctx: Context, scale: TensorValue, k: int) -> TensorValue:
    """Each scale ``k / number of scales`` times along the last dimension: ``[…, K/32]`` becomes ``[…,
    K]``."""
    *lines, groups = scale.shape
    column = expand(ctx, scale, len(scale.shape))
    return reshaped(ctx, convert.broadcast_to(ctx, column, (*lines, groups, k // groups)), (*lines, k))


def _swapped(ctx: Context, x: TensorValue) -> TensorValue:
    """With the last two dimensions exchanged."""
    rank = len(x.shape)
    return permuted(ctx, x, (*range(rank - 2), rank - 1, rank - 2))
