"""Block pointers: values of the frontend alone. A load or store through one builds ordinary pointers and
masks."""

from __future__ import annotations

from typing import Any

from ptxforge.frontend.context import Context
from ptxforge.frontend.convert import cast
from ptxforge.frontend.semantics import arguments
from ptxforge.frontend.semantics.registry import ArgumentProblem, implements
from ptxforge.frontend.values import BlockPointer, TensorValue, describe, dtype_name
from ptxforge.ir import boxes
from ptxforge.language import block_pointer as language
from ptxforge.language import types as L

PADDINGS = ("", "zero", "nan")


@implements(language.make_block_ptr)
def make_block_ptr(ctx, base, shape, strides, offsets, block_shape, order):
    if not isinstance(base, TensorValue) or not base.is_pointer or base.is_block:
        raise ArgumentProblem("base", f"must be a scalar pointer, is {describe(base)}")
    box = arguments.tile_shape(block_shape, "block_shape")
    rank = len(box)
    if not rank:
        raise ArgumentProblem("block_shape", "must have at least one dimension")
    sizes = tuple(cast(ctx, size, L.int64) for size in integers(ctx, shape, "shape", rank))
    steps = tuple(cast(ctx, step, L.int64) for step in integers(ctx, strides, "strides", rank))
    start = tuple(as_index(ctx, offset) for offset in integers(ctx, offsets, "offsets", rank))
    _check_order(order, rank)
    pointer = boxes.moved(ctx.builder, base.value, values(start), values(steps))
    block = L.block_type(base.dtype.element_ty, box)
    return BlockPointer(TensorValue(pointer, base.dtype), sizes, steps, start, block)


def _check_order(order: Any, rank: int) -> None:
    order = (order,) if isinstance(order, int) else order
    if not isinstance(order, tuple):
        raise ArgumentProblem("order", f"must be a list of dimensions, is {describe(order)}")
    numbers = [arguments.static_int(dimension, "order") for dimension in order]
    if sorted(numbers) != list(range(rank)):
        raise ArgumentProblem("order", f"must be a permutation of {list(range(rank))}, is {numbers}")


@implements(language.advance)
def advance(ctx, base, offsets):
    if not isinstance(base, BlockPointer):
        raise ArgumentProblem("base", f"must be a block pointer, is {describe(base)}")
    by = [as_index(ctx, step) for step in integers(ctx, offsets, "offsets", len(base.box))]
    pointer = boxes.moved(ctx.builder, base.pointer.value, values(by), values(base.strides))
    moved = tuple(_advanced(ctx, offset, step) for offset, step in zip(base.offsets, by))
    return base._replace(pointer=TensorValue(pointer, base.pointer.dtype), offsets=moved)


def values(scalars: Any) -> list:
    """The IR values of runtime values."""
    return [scalar.value for scalar in scalars]


def integers(ctx: Context, given: Any, name: str, rank: int) -> list[TensorValue]:
    """A list of ``rank`` integer scalars."""
    items = given if isinstance(given, tuple) else (given,)
    if len(items) != rank:
        plural = "s" * (rank != 1)
        raise ArgumentProblem(name, f"must have {rank} number{plural}, one per dimension, has {len(items)}")
    found = []
    for item in items:
        scalar = arguments.integer(arguments.tensor(ctx, item, name), name)
        if scalar.is_block:
            raise ArgumentProblem(name, f"must be scalars, one of them is {describe(scalar)}")
        found.append(scalar)
    return found


def as_index(ctx: Context, scalar: TensorValue) -> TensorValue:
    """An integer as int32, or as int64 when it may not fit there."""
    fits = scalar.dtype.int_bitwidth < 32 or scalar.dtype is L.int32
    return cast(ctx, scalar, L.int32 if fits else L.int64)


def _advanced(ctx: Context, offset: TensorValue, by: TensorValue) -> TensorValue:
    value = boxes.advanced(ctx.builder, offset.value, by.value)
    return TensorValue(value, L.int32 if value.type.bits == 32 else L.int64)


# -- memory accesses ---------------------------------------------------------------------------------------


def pointers_and_mask(
    ctx: Context, block: BlockPointer, boundary_check: Any
) -> tuple[TensorValue, TensorValue | None]:
    """The block of pointers that a block pointer stands for, and which of them ``boundary_check`` (dimension
    numbers) allows; ``None`` when nothing is checked."""
    checked = _checked_dimensions(boundary_check, len(block.box))
    pointer = boxes.pointers(ctx.builder, block.pointer.value, values(block.strides), block.box)
    mask = boxes.inside(ctx.builder, values(block.shape), values(block.offsets), block.box, checked)
    return TensorValue(pointer, block.pointer.dtype), None if mask is None else TensorValue(mask, L.int1)


def _checked_dimensions(boundary_check: Any, rank: int) -> list[int]:
    given = arguments.static(boundary_check, "boundary_check")
    given = given if isinstance(given, tuple) else () if given is None else (given,)
    found = [arguments.axis_of(axis, rank, "boundary_check") for axis in given]
    if len(set(found)) != len(found):
        raise ArgumentProblem("boundary_check", f"names a dimension twice: {list(given)}")
    return sorted(found)


def padding(
    ctx: Context, option: Any, dtype: L.dtype | L.pointer_type, shape: tuple[int, ...]
) -> TensorValue | None:
    """What elements outside become: zeros unless ``option`` is ``"nan"``; of pointers, anything."""
    is_nan = arguments.choice(option, "padding_option", PADDINGS) == "nan"
    if is_nan and not dtype.is_floating():
        raise ArgumentProblem("padding_option", f"'nan' is for floats, not for {dtype_name(dtype)}")
    if isinstance(dtype, L.pointer_type):
        return None
    return ctx.constant(float("nan") if is_nan else 0, dtype, shape)
