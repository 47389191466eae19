"""Tensors in memory of which blocks are loaded and stored: tensor descriptors, and block pointers.

A descriptor's value of the frontend is the parts of one; the operation that makes it of them stands
at each use, so that loops carry, and branches choose between, scalars only.

Block pointers are values of the frontend alone. A load or store through one builds ordinary pointers and
masks.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

from ptxforge.frontend.context import Context
from ptxforge.frontend.convert import broadcast_to, cast
from ptxforge.frontend.semantics import arguments
from ptxforge.frontend.semantics.registry import ArgumentProblem, implements
from ptxforge.frontend.values import BlockPointer, Descriptor, TensorValue, describe, dtype_name, ir_type
from ptxforge.ir import boxes
from ptxforge.ir import types as T
from ptxforge.ir.core import Block, BlockArgument, Function, Operation, Value
from ptxforge.ir.ops import descriptor as D
from ptxforge.ir.ops.arith import AddI, MulI
from ptxforge.ir.ops.cast import ExtSI, ExtUI
from ptxforge.ir.rewriter import constant_of
from ptxforge.language import descriptor as language
from ptxforge.language import types as L
from ptxforge.support.descriptor import ALIGNMENT, MAX_RANK, PADDINGS
from ptxforge.support.errors import TypeMismatchError
from ptxforge.support.promises import Promise

_SELF = language.tensor_descriptor


@implements(language.make_tensor_descriptor)
def make_tensor_descriptor(ctx, base, shape, strides, block_shape, padding_option="zero"):
    if not isinstance(base, TensorValue) or not base.is_pointer or base.is_block:
        raise ArgumentProblem("base", f"must be a scalar pointer, is {describe(base)}")
    element = base.dtype.element_ty
    if isinstance(element, L.pointer_type):
        raise ArgumentProblem("base", "must point at numbers, points at pointers")
    box = arguments.tile_shape(block_shape, "block_shape")
    check_box(box, element)
    padding = arguments.choice(padding_option, "padding_option", PADDINGS, default="zero")
    if padding == "nan" and not element.is_floating():
        raise ArgumentProblem("padding_option", f"'nan' is for floats, not for {dtype_name(element)}")
    sizes = tuple(cast(ctx, size, L.int32) for size in integers(ctx, shape, "shape", len(box)))
    given = integers(ctx, strides, "strides", len(box))
    steps = tuple(cast(ctx, stride, L.int64) for stride in given)
    _check_strides(ctx, steps, element)
    _expect(ctx, base.value)
    for dimension, stride in enumerate(given[:-1]):
        _expect(ctx, stride.value, dimension, element.itemsize)
    for scalar in (*steps[:-1], *given[:-1]):  # as int64, and as it was given: it may be a size, too
        _promise(ctx, scalar.value, ALIGNMENT // element.itemsize)
    _promise(ctx, base.value, ALIGNMENT)
    kind = language.tensor_descriptor_type(L.block_type(element, box), padding)
    return Descriptor(base, sizes, steps, kind)


def check_box(box: tuple[int, ...], element: L.dtype) -> None:
    """Raise :class:`ArgumentProblem` for a box that no descriptor has."""
    if not 1 <= len(box) <= MAX_RANK:
        raise ArgumentProblem("block_shape", f"must have 1 to {MAX_RANK} dimensions, has {len(box)}")
    if box[-1] * element.itemsize < ALIGNMENT:
        raise ArgumentProblem(
            "block_shape",
            f"the last dimension must have at least {ALIGNMENT} bytes; {box[-1]} of {dtype_name(element)} "
            f"are {box[-1] * element.itemsize}",
        )


def _check_strides(ctx: Context, strides: tuple[TensorValue, ...], element: L.dtype) -> None:
    *outer, last = map(ctx.scalar_of, strides)
    if last != 1:
        found = "known at run time only" if last is None else last
        raise ArgumentProblem("strides", f"the last one must be the constant 1, is {found}")
    for dimension, stride in enumerate(outer):
        if stride is not None and stride * element.itemsize % ALIGNMENT:
            raise ArgumentProblem(
                "strides", f"must be multiples of {ALIGNMENT} bytes; that of dimension {dimension} is "
                f"{stride * element.itemsize}"
            )  # fmt: skip


def _promise(ctx: Context, value: Value, divisor: int) -> None:
    """Note what divides a scalar, where it is defined, if what is built here runs whenever that does."""
    if isinstance(value, BlockArgument):
        home: Block = value.block
        notes = value.attributes if isinstance(home.parent, Function) else None
        known = notes.get("divisibility", 1) if notes is not None else 1
    else:
        op = value.defining_op
        home, notes = op.parent, op.attributes if len(op.results) == 1 and not op.regions else None
        (known,) = notes.get("divisibility", (1,)) if notes is not None else (1,)
    if notes is None or home is not ctx.builder.block or divisor <= known:
        return
    notes["divisibility"] = divisor if isinstance(value, BlockArgument) else (divisor,)


_MOST_TERMS = 16
"""Of a stride that launches compute."""


def _expect(ctx: Context, value: Value, dimension: int = -1, unit: int = 1) -> None:
    """Have launches check what :func:`_promise` is about to say of a base or a stride, where that is made of
    nothing but parameters whenever the kernel runs, and these do not say it themselves."""
    function = ctx.builder.block.parent
    terms = _terms(value) if isinstance(function, Function) else None
    if terms is None:
        return
    known = math.gcd(*(math.prod(_divisor(factor) for factor in term) for term in terms))
    entry = " + ".join("*".join(str(getattr(f, "name", f)) for f in term if f != 1) or "1" for term in terms)
    promise = Promise(entry, dimension, unit)
    if known % promise.divisor:
        function.promises.append(promise)


def _terms(value: Value) -> list[tuple[BlockArgument | int, ...]] | None:
    """A scalar as a sum of products of parameters and numbers; ``None`` for any other. (Wrapping changes no
    remainder of a power of two.)"""
    if isinstance(value, BlockArgument):
        return [(value,)] if isinstance(value.block.parent, Function) else None
    number = constant_of(value)
    if number is not None:
        return [(int(number),)]
    op = value.defining_op
    combined = _COMBINED.get(type(op))
    parts = [_terms(x) for x in op.operands] if combined else [None]
    if None in parts:
        return None
    terms = combined(parts)
    return terms if len(terms) <= _MOST_TERMS else None


def _product(parts: list[list[tuple]]) -> list[tuple]:
    return [sum(factors, ()) for factors in itertools.product(*parts)]


_COMBINED: dict[type[Operation], Callable[[list[list[tuple]]], list[tuple]]] = {
    AddI: lambda parts: sum(parts, []), MulI: _product, ExtSI: _product, ExtUI: _product,
}  # fmt: skip
"""The terms of a result, of those of its operands."""


def _divisor(factor: BlockArgument | int) -> int:
    """A power of two that divides a parameter, as far as is known, or the number itself."""
    return factor if isinstance(factor, int) else factor.attributes.get("divisibility", 1)


def descriptor_argument(value: Any, name: str) -> Descriptor:
    """A tensor descriptor."""
    if not isinstance(value, Descriptor):
        raise ArgumentProblem(name, f"must be a tensor descriptor, is {describe(value)}")
    return value


def _made(ctx: Context, desc: Descriptor) -> Value:
    """The IR's descriptor."""
    block, padding = desc.kind.block_type, desc.kind.padding
    kind = T.DescriptorType(block.shape, ir_type(desc.base.dtype).pointee, padding)
    return ctx.builder.value(
        D.MakeDescriptor, desc.base.value, *values(desc.shape), *values(desc.strides), type=kind
    )


def _offsets(ctx: Context, desc: Descriptor, offsets: Any) -> list[Value]:
    given = integers(ctx, offsets, "offsets", len(desc.box))
    return values(cast(ctx, offset, L.int32) for offset in given)


def _stored(ctx: Context, desc: Descriptor, value: Any, shape: tuple[int, ...]) -> Value:
    """A value to be stored, as memory holds it."""
    held = L.int8 if desc.dtype is L.int1 else desc.dtype
    if isinstance(value, (int, float)):
        return ctx.constant(value, desc.dtype if desc.dtype is not L.int1 else held, shape).value
    given = arguments.number(arguments.tensor(ctx, value, "value"), "value")
    try:
        block = broadcast_to(ctx, cast(ctx, given, desc.dtype), shape)
    except TypeMismatchError:
        raise ArgumentProblem(
            "value", f"of shape {list(given.shape)} cannot be broadcast to the box {list(shape)}"
        ) from None
    return cast(ctx, block, held).value


def _loaded(ctx: Context, desc: Descriptor, value: Value) -> TensorValue:
    if desc.dtype is L.int1:
        return cast(ctx, TensorValue(value, L.int8), L.int1)
    return TensorValue(value, desc.dtype)


def _load(ctx: Context, desc: Descriptor, offsets: Any) -> TensorValue:
    at = _offsets(ctx, desc, offsets)
    return _loaded(ctx, desc, ctx.builder.value(D.DescriptorLoad, _made(ctx, desc), *at))


def _store(ctx: Context, desc: Descriptor, offsets: Any, value: Any) -> None:
    at, held = _offsets(ctx, desc, offsets), _stored(ctx, desc, value, desc.box)
    ctx.builder.create(D.DescriptorStore, _made(ctx, desc), held, *at)


@implements(_SELF.load)
def load(ctx, self, offsets):
    return _load(ctx, descriptor_argument(self, "self"), offsets)


@implements(_SELF.store)
def store(ctx, self, offsets, value):
    _store(ctx, descriptor_argument(self, "self"), offsets, value)


@implements(language.load_tensor_descriptor)
def load_tensor_descriptor(ctx, desc, offsets):
    return _load(ctx, descriptor_argument(desc, "desc"), offsets)


@implements(language.store_tensor_descriptor)
def store_tensor_descriptor(ctx, desc, offsets, value):
    _store(ctx, descriptor_argument(desc, "desc"), offsets, value)


# -- single rows -------------------------------------------------------------------------------------------

FEWEST_ROWS, NARROWEST_ROW = 8, 32


def _rows(ctx: Context, self: Any, x_offsets: Any, y_offset: Any) -> tuple[Descriptor, Value, Value]:
    desc = descriptor_argument(self, "self")
    if len(desc.box) != 2 or desc.box[0] != 1:
        raise ArgumentProblem("self", f"must have boxes of one row, has boxes of {list(desc.box)}")
    if desc.box[1] * desc.dtype.itemsize < NARROWEST_ROW:
        raise ArgumentProblem("self", f"must have rows of at least {NARROWEST_ROW} bytes, has {desc.box[1]} "
                              f"{dtype_name(desc.dtype)}")  # fmt: skip
    rows = arguments.integer(arguments.block(x_offsets, "x_offsets"), "x_offsets")
    if len(rows.shape) != 1 or rows.shape[0] < FEWEST_ROWS:
        raise ArgumentProblem(
            "x_offsets", f"must be one-dimensional, of at least {FEWEST_ROWS} rows; is {describe(rows)}"
        )
    (column,) = integers(ctx, y_offset, "y_offset", 1)
    return desc, cast(ctx, rows, L.int32).value, cast(ctx, column, L.int32).value


@implements(_SELF.gather)
def gather(ctx, self, x_offsets, y_offset):
    desc, rows, column = _rows(ctx, self, x_offsets, y_offset)
    return _loaded(ctx, desc, ctx.builder.value(D.DescriptorGather, _made(ctx, desc), rows, column))


@implements(_SELF.scatter)
def scatter(ctx, self, value, x_offsets, y_offset):
    desc, rows, column = _rows(ctx, self, x_offsets, y_offset)
    held = _stored(ctx, desc, value, (rows.type.shape[0], desc.box[1]))
    ctx.builder.create(D.DescriptorScatter, _made(ctx, desc), held, rows, column)


# -- atomics -----------------------------------------------------------------------------------------------

_ADDABLE_FLOATS = (L.float16, L.bfloat16, L.float32, L.float64)


def _reduction(which: str) -> Callable:
    """The meaning of ``atomic_add``, …"""

    def meaning(ctx, self, offsets, value):
        desc = descriptor_argument(self, "self")
        floats = _ADDABLE_FLOATS[: {"add": 4, "max": 2, "min": 2}.get(which, 0)]
        is_float = desc.dtype in floats
        if not is_float and not (desc.dtype.is_int() and desc.dtype.int_bitwidth >= 32):
            more = "".join(f", {dtype_name(dtype)}" for dtype in floats)
            raise ArgumentProblem(
                "self", f"must be of 32- or 64-bit integers{more}, is of {dtype_name(desc.dtype)}"
            )
        of_sign = which in ("max", "min") and desc.dtype.is_int_unsigned()
        kind = f"f{which}" if is_float else f"u{which}" if of_sign else which
        at, held = _offsets(ctx, desc, offsets), _stored(ctx, desc, value, desc.box)
        ctx.builder.create(D.DescriptorReduce, _made(ctx, desc), held, *at, kind=kind)

    return meaning


for _name in ("add", "max", "min", "and", "or", "xor"):
    implements(getattr(_SELF, f"atomic_{_name}"))(_reduction(_name))


_CHECKS = ("", "zero", "nan")


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
    is_nan = arguments.choice(option, "padding_option", _CHECKS) == "nan"
    if is_nan and not dtype.is_floating():
        raise ArgumentProblem("padding_option", f"'nan' is for floats, not for {dtype_name(dtype)}")
    if isinstance(dtype, L.pointer_type):
        return None
    return ctx.constant(float("nan") if is_nan else 0, dtype, shape)
