"""Tensor descriptors become pointers and masks.

    %d = make_descriptor %base, %rows, %columns, %stride, %one                       (before)
    %x = descriptor_load %d, %i, %j : tensor<64x32xf16>

    %p = addptr (addptr %base, %i * %stride), %j                                     (after)
    %q = addptr (addptr (splat %p), range(64)[:, None] * %stride), range(32)[None, :]
    %m = in_bounds(%i, %rows)[:, None] and in_bounds(%j, %columns)[None, :]
    %x = load %q, %m, 0.0

Stores and reductions that TMA can do become ``store_box`` instead (``tensor_stores.py``).
Elements outside of the tensor become the padding of the descriptor's type; stores and atomics leave them out.
A descriptor is made where it is used, from values that loops carry and branches choose: here each has
its ``make_descriptor`` as definition.
"""

from __future__ import annotations

from collections.abc import Callable

from ptxforge.ir import boxes
from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Function, Operation, Value
from ptxforge.ir.ops.arith import AndI
from ptxforge.ir.ops.atomic import AtomicRMW
from ptxforge.ir.ops.descriptor import (
    DescriptorGather,
    DescriptorLoad,
    DescriptorReduce,
    DescriptorScatter,
    DescriptorStore,
    MakeDescriptor,
)
from ptxforge.ir.ops.memory import Load, Store
from ptxforge.ir.ops.shape import Broadcast, Reshape
from ptxforge.passes.tensor_stores import may_store_boxes, store_descriptors
from ptxforge.support.target import Target


def lower_descriptors(function: Function, target: Target) -> bool:
    """Expand every access through a descriptor, and drop the descriptors."""
    if may_store_boxes(function, target):
        store_descriptors(function)
    accesses, made = function.walk(tuple(_ACCESSES)), function.walk(MakeDescriptor)
    for op in accesses:
        op.replace_with(_ACCESSES[type(op)](Builder.at(op), op))
    for op in made:
        op.erase()
    return bool(accesses or made)


def _box(builder: Builder, op: Operation) -> tuple[Value, Value]:
    """Pointers to the box of an access, and which of them are inside."""
    made = op.descriptor.defining_op
    offsets, shape = list(op.offsets), op.descriptor.type.shape
    start = boxes.moved(builder, made.base, offsets, made.strides)
    pointers = boxes.pointers(builder, start, made.strides, shape)
    return pointers, boxes.inside(builder, made.sizes, offsets, shape, range(len(shape)))


def _flat_box(builder: Builder, op: Operation, flat: tuple[int, ...]) -> tuple[Value, Value]:
    """:func:`_box` without its dimensions of size 1, along which a bound is one for all elements."""
    made, shape = op.descriptor.defining_op, op.descriptor.type.shape
    wide = [dimension for dimension, size in enumerate(shape) if size > 1]
    start = boxes.moved(builder, made.base, list(op.offsets), made.strides)
    pointers = boxes.pointers(builder, start, [made.strides[dimension] for dimension in wide], flat)
    sizes, offsets = ([values[d] for d in wide] for values in (made.sizes, op.offsets))
    mask = boxes.inside(builder, sizes, offsets, flat, range(len(flat)))
    for dimension in set(range(len(shape))) - set(wide):
        inside = boxes.inside(builder, [made.sizes[dimension]], [op.offsets[dimension]], (1,), [0])
        inside = builder.value(Broadcast, boxes.along(builder, inside, 0, len(flat)), type=mask.type)
        mask = builder.value(AndI, mask, inside)
    return pointers, mask


def _rows(builder: Builder, op: Operation) -> tuple[Value, Value]:
    """The same for an access to single rows."""
    made = op.descriptor.defining_op
    shape = (op.rows.type.shape[0], op.descriptor.type.shape[1])
    start = boxes.moved(builder, made.base, [op.column], made.strides[1:])
    pointers = boxes.row_pointers(builder, start, made.strides, op.rows, shape)
    return pointers, boxes.inside_rows(builder, made.sizes, op.rows, op.column, shape)


def _load(builder: Builder, op: Operation, places: tuple[Value, Value], **hints: str | bool) -> list[Value]:
    fill = builder.constant(op.descriptor.type.fill, op.result.type)
    return [builder.value(Load, *places, fill, **hints)]


def _lower_load(builder: Builder, op: DescriptorLoad) -> list[Value]:
    hints = {"cache": op.cache, "eviction": op.eviction, "boxed": True}
    flat = _flat_shape(op)
    if flat is None:
        return _load(builder, op, _box(builder, op), **hints)
    fill = builder.constant(op.descriptor.type.fill, op.result.type.with_shape(flat))
    loaded = builder.value(Load, *_flat_box(builder, op, flat), fill, **hints)
    for reshape in list(op.result.users):
        reshape.replace_with([loaded])
    return [builder.constant(op.descriptor.type.fill, op.result.type)]


def _flat_shape(op: DescriptorLoad) -> tuple[int, ...] | None:
    """The shape of what is loaded without dimensions of size 1, if nobody needs these."""
    shapes = {user.result.type.shape if isinstance(user, Reshape) else None for user in op.result.users}
    shape = op.result.type.shape
    flat = tuple(size for size in shape if size > 1)
    return flat if flat and shapes == {flat} and flat != shape else None


def _lower_gather(builder: Builder, op: DescriptorGather) -> list[Value]:
    return _load(builder, op, _rows(builder, op))


def _lower_store(builder: Builder, op: DescriptorStore) -> list[Value]:
    pointers, mask = _box(builder, op)
    builder.create(Store, pointers, op.value, mask, cache=op.cache, eviction=op.eviction)
    return []


def _lower_scatter(builder: Builder, op: DescriptorScatter) -> list[Value]:
    pointers, mask = _rows(builder, op)
    builder.create(Store, pointers, op.value, mask)
    return []


def _lower_reduce(builder: Builder, op: DescriptorReduce) -> list[Value]:
    pointers, mask = _box(builder, op)
    builder.create(AtomicRMW, pointers, op.value, mask, kind=op.kind, sem="relaxed")
    return []


_ACCESSES: dict[type[Operation], Callable[[Builder, Operation], list[Value]]] = {
    DescriptorLoad: _lower_load,
    DescriptorGather: _lower_gather,
    DescriptorStore: _lower_store,
    DescriptorScatter: _lower_scatter,
    DescriptorReduce: _lower_reduce,
}
