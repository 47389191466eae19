"""Keep a reduction that a loop accumulates inside each thread until the loop is over.

    %r = for … iter_args(%acc = %init) : tensor<128xf32, #s> {                       (before)
      %x = … : tensor<32x128xf32, #l>
      %s = reduce %x {axis = 0} {addf} : … -> tensor<128xf32, #s>       lanes and warps exchange, every time
      %n = addf %acc, %s : tensor<128xf32, #s>
      yield %n
    }

    %p = for … iter_args(%part = %neutral) : tensor<8x128xf32, #t> {                 (after)
      %x = … : tensor<32x128xf32, #l>
      %y = reshape %x : … -> tensor<4x8x128xf32, #m>                    8 threads along it, 4 elements each
      %s = reduce %y {axis = 0} {addf} : … -> tensor<8x128xf32, #t>     registers of one thread only
      %n = addf %part, %s : tensor<8x128xf32, #t>
      yield %n
    }
    %a = reduce %p {axis = 0} {addf} : …                                once
    %r = addf %init, %a

The accumulated value may be multiplied by something on its way (``acc·alpha + sum(x)``, as in attention): a
sum can be scaled part by part. Legal since a reduction may take its elements in any order; the loop's own
order changes with it. Done when the axis lies across lanes or warps, and the accumulator has no other use in
the loop.
"""

from __future__ import annotations

import attrs

from ptxforge.ir import types as T
from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Function, Operation, Region, Value
from ptxforge.ir.ops.arith import AddF, MulF
from ptxforge.ir.ops.control import For
from ptxforge.ir.ops.reduce import Reduce
from ptxforge.ir.ops.shape import Broadcast, ExpandDims, Reshape, Splat
from ptxforge.ir.rewriter import constant_of
from ptxforge.layouts.encodings import Slice, infer_reshape
from ptxforge.layouts.linear import REGISTER, LayoutError
from ptxforge.layouts.scratch import axis_levels
from ptxforge.passes.conversions import converted
from ptxforge.passes.dce import dce
from ptxforge.support.target import Target


def optimize_thread_locality(function: Function, target: Target) -> bool:
    """Apply the rewriting above to every loop-carried accumulation."""
    loops = function.walk(For)
    changed = False
    for loop in loops:
        for index in range(len(loop.results)):
            found = _match(loop, index)
            if found is not None:
                _rewrite(loop, index, found)
                changed = True
    if changed:
        dce(function, target)
    return changed


@attrs.frozen(slots=True)
class _Accumulation:
    """``update`` combines the carried value (multiplied by ``scale``, if any) with the result of
    ``reduce``."""

    reduce: Reduce
    update: Operation
    scale: Value | None
    split: tuple[int, int, int]


def _match(loop: For, index: int) -> _Accumulation | None:
    carried, last = loop.carried[index], loop.body.terminator
    update = last.operands[index].defining_op
    if update is None or not update.results[0].has_one_use or len(update.operands) != 2:
        return None
    for place in (0, 1):
        reduce = update.operands[1 - place].defining_op
        if not isinstance(reduce, Reduce) or not _is_alone(reduce, update, loop):
            continue
        scale = _scale(update, update.operands[place], carried)
        if scale is False or update.neutral is None or T.element_type(carried.type) is T.I1:
            continue
        split = _thread_split(reduce)
        if split is not None:
            return _Accumulation(reduce, update, scale, split)
    return None


def _is_alone(reduce: Reduce, update: Operation, loop: For) -> bool:
    """Whether the reduction's only purpose is this update, by the same operation."""
    same = reduce.combine_name == update.name and reduce.parent is loop.body
    return same and reduce.results[0].has_one_use


def _scale(update: Operation, value: Value, carried: Value):
    """``None`` when ``value`` is the carried value itself, the factor when it is a product with it,
    else ``False``."""
    if not carried.has_one_use:
        return False
    if value is carried:
        return None
    product = value.defining_op
    if not isinstance(product, MulF) or not isinstance(update, AddF) or not value.has_one_use:
        return False
    if carried not in product.operands or product.lhs is product.rhs:
        return False
    return product.rhs if product.lhs is carried else product.lhs


def _thread_split(reduce: Reduce) -> tuple[int, int, int] | None:
    """(registers, threads, registers) along the axis, slowest first; ``None`` when the axis lies in one
    thread or is not split that simply."""
    type = reduce.inputs[0].type
    try:
        levels = [name == REGISTER for name, _ in axis_levels(type.layout.linear(type.shape), reduce.axis)]
    except LayoutError:
        return None
    low = levels.index(False) if False in levels else len(levels)
    high = levels[::-1].index(False) if False in levels else 0
    middle = levels[low : len(levels) - high]
    if not middle or any(middle):
        return None
    return 1 << high, 1 << len(middle), 1 << low


def _rewrite(loop: For, index: int, found: _Accumulation) -> None:
    reduce, axis, update = found.reduce, found.reduce.axis, found.update
    before, inside = Builder.at(loop), Builder.at(update)
    partial = _partial_sums(Builder.at(reduce), reduce, found.split)
    neutral = before.constant(update.neutral, partial.type)
    part, result = loop.add_carried(neutral, loop.carried[index].hint)
    kept: Value = part
    if found.scale is not None:
        kept = inside.value(MulF, part, _spread(inside, found.scale, partial.type, axis))
    following = inside.value(type(update), kept, partial)
    last = loop.body.terminator
    last.set_operands((*last.operands[:-1], following))
    _finish(loop, index, found, result)


def _finish(loop: For, index: int, found: _Accumulation, result: Value) -> None:
    """After the loop: combine the parts, and what the loop began with."""
    after, old = Builder.after(loop), loop.results[index]
    total = _reduce(after, result, found.reduce.axis, found.reduce)
    if isinstance(total.type, T.TensorType):
        total = converted(after, total, old.type.layout)
    initial = loop.initial[index]
    if found.scale is None or constant_of(initial) == 0:
        final = after.value(type(found.update), initial, total)
        old.replace_all_uses_with(final)
        return
    # The initial value is scaled in every step, too (unless it is 0): it goes on being carried, alone.
    carried = loop.carried[index]
    product = next(user for user in carried.users)
    loop.body.terminator.set_operand(index, product.results[0])
    final = after.value(type(found.update), old, total)
    old.replace_all_uses_with(final, unless=lambda user: user is final.defining_op)


def _partial_sums(builder: Builder, reduce: Reduce, split: tuple[int, int, int]) -> Value:
    """The reduction of what each thread holds along the axis."""
    x, axis = reduce.inputs[0], reduce.axis
    high, threads, low = split
    shape = x.type.shape
    pieces = [size for size in (high, threads, low) if size > 1 or size == threads]
    cut = (*shape[:axis], *pieces, *shape[axis + 1 :])
    if cut != shape:
        type = T.TensorType(cut, x.type.element, infer_reshape(x.type.layout, shape, cut))
        x = builder.value(Reshape, x, type=type)
    if low > 1:
        x = _reduce(builder, x, axis + len(pieces) - 1, reduce)
    if high > 1:
        x = _reduce(builder, x, axis, reduce)
    return x


def _reduce(builder: Builder, x: Value, axis: int, like: Reduce) -> Value:
    """``like``'s reduction of ``x`` along ``axis``."""
    types = Reduce.infer([x.type], {"axis": axis})
    region = Region(like.regions[0].block.clone({}))
    return builder.create(Reduce, x, result_types=types, regions=[region], axis=axis).results[0]


def _spread(builder: Builder, scale: Value, wanted: T.TensorType, axis: int) -> Value:
    """``scale`` (which lacks the axis) as a tensor of type ``wanted``."""
    if not isinstance(scale.type, T.TensorType):
        return builder.value(Splat, scale, type=wanted)
    narrow = converted(builder, scale, Slice(axis, wanted.layout))
    column = builder.value(ExpandDims, narrow, axis=axis)
    return builder.value(Broadcast, column, type=wanted)
