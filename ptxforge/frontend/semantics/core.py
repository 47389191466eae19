"""Programs, creation, casts, promises, printing and assertions, and objects of aggregate classes."""

from __future__ import annotations

from typing import Any

from ptxforge.frontend import convert
from ptxforge.frontend.context import Context
from ptxforge.frontend.convert import broadcast, not_zero, splat
from ptxforge.frontend.semantics import arguments
from ptxforge.frontend.semantics.arith import bitor, logical_not, where
from ptxforge.frontend.semantics.reduce import only_element
from ptxforge.frontend.semantics.registry import ArgumentProblem, implements
from ptxforge.frontend.values import TensorValue, describe, dtype_name, is_number, map_leaves, replaced
from ptxforge.ir import types as T
from ptxforge.ir.core import BlockArgument, Function
from ptxforge.ir.ops import debug, memory, shape
from ptxforge.language import core as language
from ptxforge.language import types as L
from ptxforge.support.errors import CompileTimeAssertionError


def _grid_axis(axis: Any) -> int:
    number = arguments.static_int(axis, "axis")
    if number not in (0, 1, 2):
        raise ArgumentProblem("axis", f"must be 0, 1 or 2, is {number}")
    return number


@implements(language.program_id)
def program_id(ctx, axis):
    return TensorValue(ctx.builder.value(memory.GetProgramId, axis=_grid_axis(axis)), L.int32)


@implements(language.num_programs)
def num_programs(ctx, axis):
    return TensorValue(ctx.builder.value(memory.GetNumPrograms, axis=_grid_axis(axis)), L.int32)


@implements(language.arange)
def arange(ctx, start, end):
    first, last = arguments.static_int(start, "start"), arguments.static_int(end, "end")
    if last <= first:
        raise ArgumentProblem("end", f"must be greater than start: the range {first} … {last} is empty")
    if (last - first) & (last - first - 1):
        raise ArgumentProblem(
            "end",
            f"the number of elements must be a power of two, is {last - first}",
            "use ptxforge.next_power_of_2 and mask the elements beyond",
        )
    if not -(1 << 31) <= first < last <= 1 << 31:
        raise ArgumentProblem("end", "the range must fit in int32")
    if last - first > arguments.MAX_ELEMENTS:
        raise ArgumentProblem(
            "end", f"a block has at most {arguments.MAX_ELEMENTS} elements, this one {last - first}"
        )
    type = T.TensorType((last - first,), T.I32)
    return TensorValue(ctx.builder.value(shape.MakeRange, type=type, start=first, end=last), L.int32)


@implements(language.full)
def full(ctx, shape, value, dtype):
    sizes, element = arguments.tile_shape(shape), arguments.element_type(dtype)
    if is_number(value):
        return ctx.constant(value, element, sizes)
    scalar = arguments.tensor(ctx, value, "value")
    if scalar.is_block:
        raise ArgumentProblem("value", f"must be a number or a scalar, is {describe(scalar)}")
    return splat(ctx, convert.cast(ctx, scalar, element), sizes)


@implements(language.zeros)
def zeros(ctx, shape, dtype):
    return ctx.constant(0, arguments.element_type(dtype), arguments.tile_shape(shape))


@implements(language.zeros_like)
def zeros_like(ctx, input):
    like = arguments.number(arguments.tensor(ctx, input, "input"), "input")
    return ctx.constant(0, like.dtype, like.shape)


@implements(language.to_tensor)
def to_tensor(ctx, x):
    return arguments.tensor(ctx, x, "x")


@implements(language.cast)
def cast(ctx, input, dtype, fp_downcast_rounding=None, bitcast=False):
    target = arguments.element_type(dtype)
    rounding = arguments.choice(fp_downcast_rounding, "fp_downcast_rounding", ("rtne", "rtz"))
    if is_number(input) and not arguments.static_bool(bitcast, "bitcast") and isinstance(target, L.dtype):
        return ctx.constant(input, target)
    source = arguments.tensor(ctx, input, "input")
    if arguments.static_bool(bitcast, "bitcast"):
        return convert.bitcast(ctx, source, target)
    if rounding and source.dtype != target:
        _check_narrows(source, target)
    return convert.cast(ctx, source, target, rounding)


def _check_narrows(source: TensorValue, target: L.dtype | L.pointer_type) -> None:
    both_float = source.dtype.is_floating() and target.is_floating()
    if not both_float or target.primitive_bitwidth >= source.dtype.primitive_bitwidth:
        change = f"{dtype_name(source.dtype)} to {dtype_name(target)}"
        raise ArgumentProblem(
            "fp_downcast_rounding", f"is only for floats that get narrower, not for {change}"
        )


@implements(language.to)
def to(ctx, input, dtype, fp_downcast_rounding=None, bitcast=False):
    return cast(ctx, input, dtype, fp_downcast_rounding, bitcast)


@implements(language.item)
def item(ctx, input):
    block = arguments.tensor(ctx, input, "input")
    if not block.is_block:
        return block
    if block.value.type.numel != 1:
        raise ArgumentProblem("input", f"must have one element, is {describe(block)}")
    return only_element(ctx, block)


# -- promises ----------------------------------------------------------------------------------------------


def _promise(ctx: Context, input: Any, values: Any, attribute: str) -> TensorValue:
    """Note a fact about each dimension on the operation, the parameter or the value carried by a loop that
    ``input`` is. What a loop or ``if`` gives has no place for it: such a promise is dropped."""
    x = arguments.tensor(ctx, input, "input")
    if isinstance(values, tuple):
        numbers = tuple(arguments.static_int(v, "values") for v in values)
    else:
        numbers = (arguments.static_int(values, "values"),)
    if len(numbers) != max(1, len(x.shape)):
        raise ArgumentProblem(
            "values", f"must have {max(1, len(x.shape))} numbers, one per dimension, has {len(numbers)}"
        )
    if any(n < 1 for n in numbers):
        raise ArgumentProblem("values", f"must be positive, is {list(numbers)}")
    if isinstance(x.value, BlockArgument):
        is_parameter = isinstance(x.value.block.parent, Function)
        x.value.attributes[attribute] = numbers[0] if is_parameter else numbers
    elif len(x.value.op.results) == 1 and not x.value.op.regions:
        x.value.op.attributes[attribute] = numbers
    return x


@implements(language.multiple_of)
def multiple_of(ctx, input, values):
    return _promise(ctx, input, values, "divisibility")


@implements(language.max_contiguous)
def max_contiguous(ctx, input, values):
    return _promise(ctx, input, values, "contiguity")


@implements(language.max_constancy)
def max_constancy(ctx, input, values):
    return _promise(ctx, input, values, "constancy")


@implements(language.assume)
def assume(ctx, cond):
    if isinstance(cond, TensorValue):
        ctx.builder.create(debug.Assume, convert.not_zero(ctx, cond).value)
    elif not cond:
        raise ArgumentProblem("cond", "is false at compile time")


@implements(language.debug_barrier)
def debug_barrier(ctx):
    ctx.builder.create(memory.Barrier)


@implements(language.expect_zero)
def expect_zero(ctx, x, mask):
    value = arguments.tensor(ctx, x, "x")
    return where(ctx, mask, value, ctx.constant(0, value.dtype))


@implements(language.aggregate_replace)
def aggregate_replace(ctx, instance, **changes):
    if not isinstance(instance, language.Aggregate):
        raise ArgumentProblem("instance", f"must be an object of an aggregate class, is {describe(instance)}")
    return replaced(ctx, instance, changes)


def _shown(value: Any) -> Any:
    return map_leaves(lambda leaf: _type_text(leaf) if isinstance(leaf, TensorValue) else leaf, value)


def _type_text(value: TensorValue) -> str:
    """The text that Triton gives to a tensor: ``fp32[constexpr[128]]``, ``int32[]``."""
    return f"{value.dtype}[{', '.join(f'constexpr[{size}]' for size in value.shape)}]"


def _prefix(text: str, has_values: bool) -> str:
    """As it stands in the line: behind a space, and before values with a colon."""
    if has_values:
        text = f"{text.removesuffix(' ').removesuffix(':')}: "
    return f" {text}" if len(text) > 2 and not text.startswith(" ") else text


@implements(language.static_print)
def static_print(ctx, *values, sep=" ", end="\n", file=None, flush=False):
    print(*map(_shown, values), sep=sep, end=end, file=file, flush=flush)


@implements(language.static_assert)
def static_assert(ctx, cond, msg=""):
    if not arguments.static(cond, "cond"):
        text = arguments.static(msg, "msg")
        raise CompileTimeAssertionError(f"static assertion failed{f': {text}' if text else ''}")


@implements(language.device_print)
def device_print(ctx, prefix, *args, hex=False):
    text = arguments.static(prefix, "prefix")
    if not isinstance(text, str):
        raise ArgumentProblem("prefix", f"must be a string, is {describe(text)}")
    values = [arguments.tensor(ctx, value, "args") for value in args]
    ctx.builder.create(
        debug.Print,
        *[v.value for v in values],
        prefix=_prefix(text, bool(values)),
        hex=arguments.static_bool(hex, "hex"),
        signed=tuple(bool(v.dtype.is_int_signed()) for v in values),
    )


@implements(language.device_assert)
def device_assert(ctx, cond, msg="", mask=None):
    text = arguments.static(msg, "msg")
    if not isinstance(text, str):
        raise ArgumentProblem("msg", f"must be a string, is {describe(text)}")
    if not ctx.debug:
        return
    holds = not_zero(ctx, arguments.tensor(ctx, cond, "cond"))
    if mask is not None:
        outside = logical_not(ctx, arguments.tensor(ctx, mask, "mask"))
        holds = bitor(ctx, *broadcast(ctx, holds, outside))
    ctx.builder.create(debug.Assert, holds.value, message=text)
