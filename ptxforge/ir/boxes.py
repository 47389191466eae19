"""Boxes: rectangular tiles of a tensor in memory, as ordinary pointers and masks.

A tensor has, for each dimension, a size and a stride (elements, ``i64``); a box has a static shape and begins
at some index of the tensor. Block pointers and tensor descriptors are both made of these. What is built is
what a kernel's author would write by hand,

    base + range(0, M)[:, None] * stride_0 + range(0, N)[None, :] * stride_1
    in_bounds(offset_0, size_0)[:, None] and …

so that every analysis of pointers and masks sees nothing new. Addresses are exact: offsets and strides are
64 bits wide, also where the tensor has more than 2**31 elements.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ptxforge.ir import types as T
from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Value
from ptxforge.ir.ops.arith import AddI, AndI, CmpI, MulI
from ptxforge.ir.ops.cast import ExtSI
from ptxforge.ir.ops.memory import AddPtr, InBounds
from ptxforge.ir.ops.shape import Broadcast, ExpandDims, MakeRange, Splat
from ptxforge.ir.rewriter import constant_of

_LARGEST = (1 << 31) - 1


def moved(builder: Builder, base: Value, offsets: Sequence[Value], strides: Sequence[Value]) -> Value:
    """The scalar pointer ``base`` moved by ``offsets`` (scalars, ``i32`` or ``i64``) along each dimension."""
    for offset, stride in zip(offsets, strides, strict=True):
        if constant(offset) == 0:
            continue
        base = builder.value(AddPtr, base, _times(builder, widened(builder, offset), stride))
    return base


def pointers(builder: Builder, base: Value, strides: Sequence[Value], box: Sequence[int]) -> Value:
    """A tensor of pointers of shape ``box`` to the elements of the box that begins at ``base``."""
    type = T.TensorType(tuple(box), base.type)
    pointer = builder.value(Splat, base, type=type)
    for dimension, stride in enumerate(strides):
        if box[dimension] > 1:
            offset = _offsets(builder, dimension, stride, box)
            pointer = builder.value(AddPtr, pointer, _spread(builder, offset, box))
    return pointer


def inside(
    builder: Builder,
    sizes: Sequence[Value],
    offsets: Sequence[Value],
    box: Sequence[int],
    dimensions: Iterable[int],
) -> Value | None:
    """Which elements of the box that begins at ``offsets`` lie inside of the tensor along ``dimensions``, as
    a mask of shape ``box``; ``None`` for no dimensions."""
    mask = None
    for dimension in dimensions:
        type = T.TensorType((box[dimension],), T.I1)
        test = builder.value(InBounds, offsets[dimension], sizes[dimension], type=type)
        test = _spread(builder, along(builder, test, dimension, len(box)), box)
        mask = test if mask is None else builder.value(AndI, mask, test)
    return mask


def inside_rows(
    builder: Builder, sizes: Sequence[Value], rows: Value, column: Value, box: Sequence[int]
) -> Value:
    """Which elements of single rows, of box[1] elements from ``column`` on, lie inside of a matrix; ``rows``
    is a tensor of box[0] row numbers."""
    row = along(builder, rows, 0, 2)
    zero = builder.constant(0, row.type)
    last = builder.value(Splat, sizes[0], type=row.type)
    mask = inside(builder, sizes, [sizes[0], column], box, [1])
    for bound, predicate in ((last, "slt"), (zero, "sge")):
        test = _spread(builder, builder.value(CmpI, row, bound, predicate=predicate), box)
        mask = builder.value(AndI, mask, test)
    return mask


def row_pointers(
    builder: Builder, base: Value, strides: Sequence[Value], rows: Value, box: Sequence[int]
) -> Value:
    """Pointers to box[1] elements of each of the rows whose numbers are ``rows``, from ``base`` on."""
    type = T.TensorType(tuple(box), base.type)
    row = along(builder, rows, 0, 2)
    wide = builder.value(ExtSI, row, type=row.type.with_element(T.I64))
    offset = builder.value(MulI, wide, builder.value(Splat, strides[0], type=wide.type))
    pointer = builder.value(AddPtr, builder.value(Splat, base, type=type), _spread(builder, offset, box))
    return builder.value(AddPtr, pointer, _spread(builder, _offsets(builder, 1, strides[1], box), box))


def along(builder: Builder, x: Value, dimension: int, rank: int) -> Value:
    """A 1-D tensor as one of ``rank`` dimensions: it lies along ``dimension``, the others are of size 1."""
    for other in range(rank):
        if other != dimension:
            x = builder.value(ExpandDims, x, axis=other)
    return x


def widened(builder: Builder, value: Value) -> Value:
    """An integer scalar as ``i64``."""
    if value.type is T.I64:
        return value
    number = constant(value)
    if number is not None:
        return builder.constant(number, T.I64)
    return builder.value(ExtSI, value, type=T.I64)


def constant(value: Value) -> int | None:
    """The number that a scalar is known to be."""
    number = constant_of(value)
    return None if number is None else int(number)


def _times(builder: Builder, x: Value, stride: Value) -> Value:
    return x if constant(stride) == 1 else builder.value(MulI, x, stride)


def _offsets(builder: Builder, dimension: int, stride: Value, box: Sequence[int]) -> Value:
    """Offsets of the box's indices along a dimension: 32 bits wide where a constant stride allows."""
    type = T.TensorType((box[dimension],), T.I32)
    index = builder.value(MakeRange, type=type, start=0, end=box[dimension])
    index, number = along(builder, index, dimension, len(box)), constant(stride)
    if number == 1:
        return index
    if number is not None and abs(number) * box[dimension] <= _LARGEST:
        return builder.value(MulI, index, builder.constant(number, index.type))
    wide = builder.value(ExtSI, index, type=index.type.with_element(T.I64))
    return builder.value(MulI, wide, builder.value(Splat, stride, type=wide.type))


def _spread(builder: Builder, x: Value, box: Sequence[int]) -> Value:
    type = T.TensorType(tuple(box), x.type.element)
    return x if x.type is type else builder.value(Broadcast, x, type=type)


def advanced(builder: Builder, offset: Value, by: Value) -> Value:
    """``offset + by``, two scalars, in the wider of their types."""
    if constant(by) == 0:
        return offset
    if offset.type is not by.type:
        offset, by = widened(builder, offset), widened(builder, by)
    return builder.value(AddI, offset, by)
