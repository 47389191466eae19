"""Bounds of boxes become comparisons.

    %m = in_bounds %offset, %size : tensor<64xi1>                                    (before)

    %i = make_range {start = 0, end = 64}                                            (after)
    %last = subi %size, %offset
    %first = subi 0, %offset
    %m = andi (cmpi slt %i, (splat %last)), (cmpi sge %i, (splat %first))

NOT BELOW   Where the offset is not negative there is no first element to look for. (An offset is an index:
            its arithmetic is taken not to wrap.)
WIDE        Where size or offset need 64 bits, ``%last`` and ``%first`` are cut to the box (to numbers from 0
            to 64) before they become 32 bits wide.
CERTAIN     Where both are constants and the whole box is inside, it is the constant ``true``.
"""

from __future__ import annotations

from collections.abc import Callable

from ptxforge.ir import types as T
from ptxforge.ir.boxes import constant, widened
from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Function, Value
from ptxforge.ir.ops.arith import AndI, CmpI, MaxSI, MinSI, SubI
from ptxforge.ir.ops.cast import ExtSI, TruncI
from ptxforge.ir.ops.memory import InBounds
from ptxforge.ir.ops.shape import MakeRange, Splat
from ptxforge.passes.analysis.sign import is_nonnegative
from ptxforge.support.target import Target


def lower_bounds(function: Function, target: Target) -> bool:
    """Expand every ``in_bounds``."""
    found = function.walk(InBounds)
    for op in found:
        op.replace_with([_mask(Builder.at(op), op)])
    return bool(found)


def _mask(builder: Builder, op: InBounds) -> Value:
    (count,) = op.result.type.shape
    offset, size = constant(op.offset), constant(op.size)
    if offset is not None and size is not None and 0 <= offset and offset + count <= size:
        return builder.constant(True, op.result.type)
    index = builder.value(MakeRange, type=T.TensorType((count,), T.I32), start=0, end=count)
    bound = _bounds(builder, op, count)
    mask = _compare(builder, index, "slt", bound(op.size))
    if is_nonnegative(op.offset):
        return mask
    zero = builder.constant(0, T.I32)
    return builder.value(AndI, mask, _compare(builder, index, "sge", bound(zero)))


def _bounds(builder: Builder, op: InBounds, count: int) -> Callable[[Value], Value]:
    """What makes a bound of the box's own indices of one of the tensor's."""
    offset = _narrow(builder, op.offset)
    if offset is not None and _narrow(builder, op.size) is not None:
        return lambda end: builder.value(SubI, _narrow(builder, end), offset)
    wide = widened(builder, op.offset)
    return lambda end: _cut(builder, builder.value(SubI, widened(builder, end), wide), count)


def _narrow(builder: Builder, value: Value) -> Value | None:
    """The same number as ``i32``, where that is known to be possible."""
    if value.type is T.I32:
        return value
    number, op = constant(value), value.defining_op
    if number is not None and -(1 << 31) <= number < 1 << 31:
        return builder.constant(number, T.I32)
    if not isinstance(op, ExtSI) or op.x.type.bits > 32:
        return None
    return op.x if op.x.type is T.I32 else builder.value(ExtSI, op.x, type=T.I32)


def _cut(builder: Builder, bound: Value, count: int) -> Value:
    """A bound of the box's own indices as ``i32``, not below 0 nor above ``count``."""
    low = builder.value(MaxSI, bound, builder.constant(0, T.I64))
    both = builder.value(MinSI, low, builder.constant(count, T.I64))
    return builder.value(TruncI, both, type=T.I32)


def _compare(builder: Builder, index: Value, predicate: str, bound: Value) -> Value:
    return builder.value(CmpI, index, builder.value(Splat, bound, type=index.type), predicate=predicate)
