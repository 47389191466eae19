"""Reductions and scans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ptxforge.frontend.context import Context
from ptxforge.frontend.convert import broadcast_to, cast
from ptxforge.frontend.semantics import arguments, arith
from ptxforge.frontend.semantics.registry import ArgumentProblem, implements
from ptxforge.frontend.values import TensorValue, describe, dtype_name
from ptxforge.ir.core import Block, Region
from ptxforge.ir.ops.arith import AndI, OrI, Select, XorI
from ptxforge.ir.ops.control import Yield
from ptxforge.ir.ops.reduce import Combining, Reduce, Scan
from ptxforge.ir.ops.shape import ExpandDims, MakeRange, Reshape
from ptxforge.ir.types import I32, TensorType
from ptxforge.language import reduction as language
from ptxforge.language import types as L
from ptxforge.support import settings

Combine = Callable[[Sequence[TensorValue], Sequence[TensorValue]], Sequence[TensorValue]]
"""Combines the left elements with the right ones."""


def combine_with(
    ctx: Context,
    kind: type[Combining],
    inputs: Sequence[TensorValue],
    axis: int,
    combine: Combine,
    **attributes: Any,
) -> tuple[TensorValue, ...]:
    """A ``reduce`` or ``scan`` whose region ``combine`` fills."""
    elements = [x.value.type.element for x in inputs]
    block = Block(elements * 2)
    values = [TensorValue(argument, x.dtype) for argument, x in zip(block.arguments, [*inputs, *inputs])]
    with ctx.builder.inside(block):
        results = combine(values[: len(inputs)], values[len(inputs) :])
        ctx.builder.create(Yield, *[r.value for r in results])
    op = ctx.builder.create(
        kind, *[x.value for x in inputs], regions=[Region(block)], axis=axis, **attributes
    )
    return tuple(TensorValue(r, x.dtype) for r, x in zip(op.results, inputs))


def only_element(ctx: Context, x: TensorValue) -> TensorValue:
    """The element of a block of one, as a scalar: a reduction that never combines anything."""
    flat = x if len(x.shape) == 1 else ctx.typed(Reshape, x, dtype=x.dtype, shape=(1,))
    return combine_with(ctx, Reduce, [flat], 0, lambda left, right: left)[0]


def _blocks(input: Any) -> tuple[list[TensorValue], bool]:
    """The operands of a reduction, and whether they came as a tuple."""
    many = isinstance(input, tuple)
    blocks = [arguments.block(x, "input") for x in (input if many else (input,))]
    if not blocks:
        raise ArgumentProblem("input", "must have at least one block")
    if any(b.shape != blocks[0].shape for b in blocks):
        shapes = ", ".join(str(list(b.shape)) for b in blocks)
        raise ArgumentProblem("input", f"must be blocks of one shape, has {shapes}")
    return blocks, many


def _reduce(
    ctx: Context, inputs: list[TensorValue], axis: Any, keep_dims: Any, combine: Combine
) -> tuple[TensorValue, ...]:
    """Reduce along ``axis``, or all elements; ``keep_dims`` leaves sizes of 1."""
    rank = len(inputs[0].shape)
    keep = arguments.static_bool(keep_dims, "keep_dims")
    if arguments.static(axis, "axis") is None:
        flat = [_flattened(ctx, x) for x in inputs]
        results = combine_with(ctx, Reduce, flat, 0, combine)
        return tuple(broadcast_to(ctx, r, (1,) * rank) for r in results) if keep else results
    index = arguments.axis_of(axis, rank)
    results = combine_with(ctx, Reduce, inputs, index, combine)
    return tuple(expand(ctx, r, index) for r in results) if keep else results


def _flattened(ctx: Context, x: TensorValue) -> TensorValue:
    """All elements in one dimension. Their order does not matter to a reduction of values alone."""
    if len(x.shape) == 1:
        return x
    return ctx.typed(Reshape, x, dtype=x.dtype, shape=(x.value.type.numel,))


def expand(ctx: Context, x: TensorValue, axis: int) -> TensorValue:
    """A dimension of size 1 at ``axis``; a scalar becomes a block of one."""
    return ctx.op(ExpandDims, x, axis=axis) if x.is_block else broadcast_to(ctx, x, (1,))


# -- by a user's function ----------------------------------------------------------------------------------


def _user_combine(ctx: Context, function: Any, inputs: list[TensorValue]) -> Combine:
    if not getattr(function, "__ptxforge_jit__", False):
        raise ArgumentProblem("combine_fn", f"must be a @ptxforge.jit function, is {describe(function)}")

    def combine(left: Sequence[TensorValue], right: Sequence[TensorValue]) -> list[TensorValue]:
        outside, ctx.combines = ctx.combines, True
        found = ctx.call(function, (*left, *right))
        ctx.combines = outside
        found = found if isinstance(found, tuple) else (found,)
        if len(found) != len(inputs):
            raise ArgumentProblem("combine_fn", f"must return {len(inputs)} values, returns {len(found)}")
        return [_combined(ctx, value, x.dtype) for value, x in zip(found, inputs)]

    return combine


def _combined(ctx: Context, value: Any, dtype: L.dtype) -> TensorValue:
    value = arguments.tensor(ctx, value, "combine_fn")
    if value.is_block or value.dtype != dtype:
        raise ArgumentProblem(
            "combine_fn", f"must return the elements' type, {dtype_name(dtype)}, returns {describe(value)}"
        )
    return value


@implements(language.reduce)
def reduce(ctx, input, axis, combine_fn, keep_dims=False):
    inputs, many = _blocks(input)
    results = _reduce(ctx, inputs, axis, keep_dims, _user_combine(ctx, combine_fn, inputs))
    return results if many else results[0]


@implements(language.associative_scan)
def associative_scan(ctx, input, axis, combine_fn, reverse=False):
    inputs, many = _blocks(input)
    combine = _user_combine(ctx, combine_fn, inputs)
    results = _scan(ctx, inputs, axis, reverse, combine)
    return results if many else results[0]


def _scan(
    ctx: Context, inputs: list[TensorValue], axis: Any, reverse: Any, combine: Combine
) -> tuple[TensorValue, ...]:
    index = arguments.axis_of(axis, len(inputs[0].shape))
    backwards = arguments.static_bool(reverse, "reverse")
    return combine_with(ctx, Scan, inputs, index, combine, reverse=backwards)


# -- sums and products -------------------------------------------------------------------------------------


def _elementwise(ctx: Context, function: Callable) -> Combine:
    return lambda left, right: [function(ctx, left[0], right[0])]


def _number_block(input: Any) -> TensorValue:
    return arguments.number(arguments.block(input, "input"), "input")


def _accumulator(dtype: L.dtype, wanted: Any) -> L.dtype:
    """The type in which sums are formed: small integers take 32 bits."""
    wanted = arguments.static(wanted, "dtype")
    if wanted is not None:
        return arguments.element_type(wanted)
    if dtype.is_int() and dtype.int_bitwidth < 32:
        return L.int32 if dtype.is_int_signed() else L.uint32
    return dtype


@implements(language.sum)
def sum(ctx, input, axis=None, keep_dims=False, dtype=None):
    block = _number_block(input)
    result = _accumulator(block.dtype, dtype)
    # bfloat16 has 8 significant bits: it is added up in float32 and rounded once.
    inner = L.float32 if result is L.bfloat16 else result
    total = _reduce(ctx, [cast(ctx, block, inner)], axis, keep_dims, _elementwise(ctx, arith.add))[0]
    return cast(ctx, total, result)


def _integer_block(input: Any) -> TensorValue:
    return arguments.integer(arguments.block(input, "input"), "input")


def _bitwise(kind: type) -> Combine:
    def meaning(ctx: Context, x: TensorValue, y: TensorValue) -> TensorValue:
        return ctx.op(kind, x, y)

    return meaning


@implements(language.xor_sum)
def xor_sum(ctx, input, axis=None, keep_dims=False):
    return _reduce(ctx, [_integer_block(input)], axis, keep_dims, _elementwise(ctx, _bitwise(XorI)))[0]


@implements(language.reduce_or)
def reduce_or(ctx, input, axis, keep_dims=False):
    return _reduce(ctx, [_integer_block(input)], axis, keep_dims, _elementwise(ctx, _bitwise(OrI)))[0]


def _scanned(ctx: Context, input: Any, dtype: Any, widen: bool = True) -> TensorValue:
    """``input`` in the type of the result: before Triton 3.9 bfloat16 as float32, and small integers as they
    are unless ``widen`` or a ``dtype`` says otherwise."""
    block = _number_block(input)
    is_new = settings.follows(3, 9)
    if block.dtype is L.bfloat16 and not is_new:
        block = cast(ctx, block, L.float32)
    if widen or is_new or arguments.static(dtype, "dtype") is not None:
        return cast(ctx, block, _accumulator(block.dtype, dtype))
    return block


@implements(language.cumsum)
def cumsum(ctx, input, axis=0, reverse=False, dtype=None):
    return _scan(ctx, [_scanned(ctx, input, dtype)], axis, reverse, _elementwise(ctx, arith.add))[0]


@implements(language.cumprod)
def cumprod(ctx, input, axis=0, reverse=False, dtype=None):
    return _scan(ctx, [_scanned(ctx, input, dtype, False)], axis, reverse, _elementwise(ctx, arith.mul))[0]


# -- extrema -----------------------------------------------------------------------------------------------


def _widened(ctx: Context, input: Any) -> TensorValue:
    """Types narrower than 32 bits are compared as float32 or int32."""
    block = _number_block(input)
    if block.dtype.primitive_bitwidth >= 32:
        return block
    return cast(ctx, block, L.float32 if block.dtype.is_floating() else L.int32)


def _extremum(
    ctx: Context, input: Any, axis: Any, keep_dims: Any, operator: str, return_indices: Any, leftmost: Any
) -> TensorValue | tuple[TensorValue, ...]:
    """The extremum by ``operator`` (``<`` or ``>``); beside its index, which narrow types keep, it has their
    type: Triton's rule."""
    if arguments.static_bool(return_indices, "return_indices"):
        found, index = _with_indices(ctx, input, axis, keep_dims, operator, leftmost)
        is_wide = input.dtype is L.bfloat16 and not settings.follows(3, 9)
        return cast(ctx, found, L.float32 if is_wide else input.dtype), index
    which = "maximum" if operator == ">" else "minimum"

    def combine(left: Sequence[TensorValue], right: Sequence[TensorValue]) -> list[TensorValue]:
        return [arith.extremum(ctx, left[0], right[0], which)]

    return _reduce(ctx, [_widened(ctx, input)], axis, keep_dims, combine)[0]


def _with_indices(
    ctx: Context, input: Any, axis: Any, keep_dims: Any, operator: str, leftmost: Any
) -> tuple[TensorValue, ...]:
    """The extremum by ``operator`` (``<`` or ``>``) and its index along ``axis`` (of all elements when that
    is None)."""
    values = _widened(ctx, input)
    rank = len(values.shape)
    if arguments.static(axis, "axis") is None:
        flat = _flattened(ctx, values)
        found = _with_indices(ctx, flat, 0, False, operator, leftmost)
        keep = arguments.static_bool(keep_dims, "keep_dims")
        return tuple(broadcast_to(ctx, r, (1,) * rank) for r in found) if keep else found
    index = arguments.axis_of(axis, rank)
    combine = _pick(ctx, operator, arguments.static_bool(leftmost, "tie_break_left"))
    return _reduce(ctx, [values, positions(ctx, values.shape, index)], index, keep_dims, combine)


def positions(ctx: Context, shape: tuple[int, ...], axis: int) -> TensorValue:
    """Each element's index along ``axis``, int32."""
    size = shape[axis]
    made = ctx.builder.value(MakeRange, type=TensorType((size,), I32), start=0, end=size)
    line = TensorValue(made, L.int32)
    for dimension in range(len(shape)):
        if dimension != axis:
            line = ctx.op(ExpandDims, line, axis=dimension)
    return broadcast_to(ctx, line, shape)


def _pick(ctx: Context, operator: str, leftmost: bool) -> Combine:
    def combine(left: Sequence[TensorValue], right: Sequence[TensorValue]) -> list[TensorValue]:
        (x, i), (y, j) = left, right
        better = arith.compare(ctx, x, y, operator)
        if leftmost:
            tie = arith.compare(ctx, x, y, "==")
            earlier = ctx.op(AndI, tie, arith.compare(ctx, i, j, "<"))
            better = ctx.op(OrI, better, earlier)
        return [ctx.op(Select, better, x, y, dtype=x.dtype), ctx.op(Select, better, i, j, dtype=i.dtype)]

    return combine


@implements(language.max)
def max(ctx, input, axis=None, return_indices=False, return_indices_tie_break_left=True, keep_dims=False):
    return _extremum(ctx, input, axis, keep_dims, ">", return_indices, return_indices_tie_break_left)


@implements(language.min)
def min(ctx, input, axis=None, return_indices=False, return_indices_tie_break_left=True, keep_dims=False):
    return _extremum(ctx, input, axis, keep_dims, "<", return_indices, return_indices_tie_break_left)


@implements(language.argmax)
def argmax(ctx, input, axis, tie_break_left=True, keep_dims=False):
    return _with_indices(ctx, input, axis, keep_dims, ">", tie_break_left)[1]


@implements(language.argmin)
def argmin(ctx, input, axis, tie_break_left=True, keep_dims=False):
    return _with_indices(ctx, input, axis, keep_dims, "<", tie_break_left)[1]
