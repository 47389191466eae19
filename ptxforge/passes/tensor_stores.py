"""Stores of boxes of a tensor go by TMA: through shared memory, asynchronously, without addresses of threads.

    store (%c + (64·%pid + i0)·%stride + i1), %tile, mask i0 < %M - 64·%pid        (before)

    store_box %c_map, %c, %tile, %row, %zero                                       (after)

``lower_descriptors`` asks for stores and reductions through tensor descriptors, the pass ``tensor_stores``
looks at those by pointers. ``stage_boxes`` gives the tiles their place in shared memory.

Rules
-----
TARGET      ``sm_90a``, and the function may have ``tensor_maps``.
TENSOR      A descriptor made of parameters of the kernel, and a first column that is a multiple of 16 bytes,
            whatever the scalars are; a store whose addresses and mask are a rectangle of a tensor
            (``analysis/rectangles.py``).
PAYS        Through descriptors: tiles of :data:`~ptxforge.support.machine.BULK_STORE_BYTES` and more. By
            pointers: accumulators of ``wgmma``, which pass through shared memory anyway, where threads could
            not be sure to write 16 bytes at a time. (Where they can, warps store their own rows without
            waiting for each other.)
ALONE       Copies by TMA are ordered neither with other accesses of this program to the same memory nor with
            what tells other programs that they are done. So the kernel accesses the tensor in no other way,
            and has no atomic operation, behind the store, that orders memory.
"""

from __future__ import annotations

import itertools
import math

from ptxforge.ir import types as T
from ptxforge.ir.builder import Builder
from ptxforge.ir.core import BlockArgument, Function, Operation, Value
from ptxforge.ir.ops.atomic import Atomic
from ptxforge.ir.ops.control import Loop
from ptxforge.ir.ops.convert_layout import unconverted
from ptxforge.ir.ops.descriptor import DescriptorReduce, DescriptorStore, MakeDescriptor
from ptxforge.ir.ops.inline_asm import InlineAsm
from ptxforge.ir.ops.memory import Store
from ptxforge.ir.ops.shape import Reshape
from ptxforge.ir.ops.tensor_store import StoreBox
from ptxforge.layouts import wgmma
from ptxforge.layouts.encodings import Mma
from ptxforge.passes.analysis.linear_forms import LinearForms, NotLinear
from ptxforge.passes.analysis.rectangles import Rectangle, Rectangles, check_first_column, entry_of
from ptxforge.passes.analysis.roots import root_of
from ptxforge.passes.tensor_loads import MOST_ROWS, Recorder, map_parameter
from ptxforge.support import dtypes, machine
from ptxforge.support.target import Target

_REDUCIBLE = {
    "add": {T.I32: "uint32", T.I64: "uint64"},
    "fadd": {T.F16: "float16", T.BF16: "bfloat16", T.F32: "float32"},
    "max": {T.I32: "int32", T.I64: "int64"},
    "umax": {T.I32: "uint32", T.I64: "uint64"},
    "and": {T.I32: "uint32", T.I64: "uint64"},
}
"""What TMA combines with what is there, and of which type the tensor map is then."""
_LIKE = {"min": "max", "umin": "umax", "or": "and", "xor": "and"}


def may_store_boxes(function: Function, target: Target) -> bool:
    """See TARGET."""
    return target.has_wgmma and bool(function.attributes.get("tensor_maps"))


def _explain(function: Function, op: Operation, why: NotLinear) -> None:
    function.remarks.add("not-by-tma", f"threads store this tile, not TMA: {why}", op.location)


# -- descriptors -----------------------------------------------------------------------------------------


def store_descriptors(function: Function) -> None:
    """Replace the stores and reductions through descriptors that TMA can do by ``store_box``. (Clusters cut
    pointers and masks: a box is the whole program's.)"""
    if function.attributes.get("num_ctas", 1) > 1:
        return
    forms, found = LinearForms(), {}
    for op in function.walk((DescriptorStore, DescriptorReduce)):
        try:
            found[op] = _tensor_of(op, forms, function)
        except NotLinear as why:
            _explain(function, op, why)
    for op in _alone(function, {op: op.descriptor.defining_op.base for op in found}):
        b, value = Builder.at(op), op.value
        shape, element = value.type.shape, value.type.element
        if len(shape) != 2:
            flat = T.TensorType((math.prod(shape[:-1]), shape[-1]), element)
            value = b.value(Reshape, value, type=flat)
        kind = op.attributes.get("kind", "")
        map = map_parameter(function, found[op])
        b.create(StoreBox, map, op.descriptor.defining_op.base, value, *op.offsets, kind=kind)
        op.erase()


def _tensor_of(op: Operation, forms: LinearForms, function: Function) -> dict:
    """What the tensor map says. Raises :class:`NotLinear`."""
    made: MakeDescriptor = op.descriptor.defining_op
    type = op.value.type
    if type.bytes < machine.BULK_STORE_BYTES:
        raise NotLinear("a small tile")
    if not _is_parameter(made.base, function):
        raise NotLinear("the pointer is no parameter of the kernel")
    numbers = [forms.scalar(v) for v in (*made.sizes, *made.strides)]
    if not all(_is_parameter(v, function) for p in numbers for monomial in p for v in monomial):
        raise NotLinear("sizes or strides are not made of parameters of the kernel")
    rank, size = type.rank, type.element.bytes
    check_first_column(forms.scalar(op.offsets[-1]), forms, size)
    width = box_width(math.prod(type.shape[:-1]), type.shape[-1], size)
    if max((*type.shape[:-1], width or type.shape[-1])) > MOST_ROWS:
        raise NotLinear(f"a box of more than {MOST_ROWS} elements along a dimension")
    return {
        "dtype": _dtype(op, type.element), "base": made.base.name,
        "shape": tuple(map(entry_of, numbers[:rank])), "strides": (*map(entry_of, numbers[rank:-1]), 1),
        "box": (*type.shape[:-1], width or type.shape[-1]), "swizzle": width * size,
    }  # fmt: skip


def _dtype(op: Operation, element: T.Type) -> str:
    if "kind" not in op.attributes:
        return dtypes.BY_IR[element.name].name
    found = _REDUCIBLE[_LIKE.get(op.kind, op.kind)].get(element)
    if found is None:
        raise NotLinear(f"TMA has no '{op.kind}' of {element}")
    return found


def _is_parameter(value: Value, function: Function) -> bool:
    return isinstance(value, BlockArgument) and value.block is function.body


def box_width(rows: int, columns: int, size: int) -> int:
    """Elements of ``size`` bytes in a row of the panels that a tile lies in; 0 where it is not swizzled: of
    rows that are too few or too short."""
    width = min(columns * size, wgmma.SWIZZLES[0])
    return width // size if rows >= wgmma.ATOM_ROWS and width >= wgmma.SWIZZLES[-1] else 0


# -- pointers --------------------------------------------------------------------------------------------


def tensor_stores(function: Function, target: Target) -> bool:
    """Replace the stores of accumulators that TMA can do by ``store_box``."""
    if not may_store_boxes(function, target):
        return False
    rectangles, found = Rectangles(function), {}
    for op in function.walk(Store):
        if _pays(op):
            try:
                found[op] = _rectangle(op, rectangles)
            except NotLinear as why:
                _explain(function, op, why)
    stores = _alone(function, {op: rectangle.base for op, rectangle in found.items()})
    for op in stores:
        _store_rectangle(function, op, found[op])
    return bool(stores)


def _pays(op: Store) -> bool:
    """See PAYS."""
    value = op.value
    if max(1, op.vector) * T.element_type(value.type).bytes >= machine.VECTOR_BYTES:
        return False
    layout = T.layout_of(unconverted(value).type)
    return isinstance(layout, Mma) and layout.version[0] == 3 and not op.cache and not op.eviction


def _rectangle(op: Store, rectangles: Rectangles) -> Rectangle:
    found, type = rectangles.of_store(op), op.value.type
    columns = found.dimensions[-1].tile_dim
    rows = type.shape[1 - columns]
    if rows > MOST_ROWS:
        raise NotLinear(f"a tile of more than {MOST_ROWS} rows")
    if not box_width(rows, type.shape[columns], T.element_type(type).bytes):
        raise NotLinear("a tile with short rows")
    return found


def _store_rectangle(function: Function, op: Store, found: Rectangle) -> None:
    type, dimensions = op.value.type, found.dimensions
    columns, size = dimensions[-1].tile_dim, T.element_type(type).bytes
    width = box_width(type.shape[1 - columns], type.shape[columns], size)
    box = [1 if d.tile_dim is None else type.shape[d.tile_dim] for d in dimensions]
    map = map_parameter(function, {
        "dtype": dtypes.BY_IR[type.element.name].name, "base": found.base.name,
        "shape": tuple(entry_of(d.size) for d in dimensions),
        "strides": tuple(entry_of(d.stride) for d in dimensions),
        "box": (*box[:-1], width), "swizzle": width * size,
    })  # fmt: skip
    b = Recorder(Builder.at(op))
    corner = [b.polynomial(d.coordinate) for d in dimensions]
    b.create(StoreBox, map, found.base, op.value, *corner, is_transposed=columns == 0)
    op.erase()


# -- order -----------------------------------------------------------------------------------------------


def _alone(function: Function, bases: dict[Operation, Value]) -> list[Operation]:
    """Those of the stores, with the parameters that they write through, of which ALONE holds."""
    number = {op: i for i, op in enumerate(function.walk())}
    others = [op for op in number if op not in bases and _matters(op)]
    kept = dict(bases)
    for op, other in itertools.product(bases, others):
        touched = None if isinstance(other, InlineAsm) else root_of(_place(other))
        if touched in (None, bases[op]) or (_orders(other) and _may_follow(other, op, number)):
            kept.pop(op, None)
    # What stays by pointers accesses the tensor in another way.
    left = {base for op, base in bases.items() if op not in kept}
    return [op for op in kept if bases[op] not in left]


def _matters(op: Operation) -> bool:
    effects = op.get_effects()
    return "global" in effects.reads | effects.writes or (isinstance(op, InlineAsm) and effects.other)


def _place(op: Operation) -> Value:
    """The pointer through which an operation accesses global memory."""
    return op.pointer if hasattr(op, "pointer") else op.descriptor.defining_op.base


def _orders(op: Operation) -> bool:
    return isinstance(op, Atomic) and op.sem != "relaxed"


def _may_follow(other: Operation, op: Operation, number: dict[Operation, int]) -> bool:
    if number[other] > number[op]:
        return True
    loop = op.parent_op
    while loop is not None:
        if isinstance(loop, Loop) and other in set(loop.walk()):
            return True
        loop = loop.parent_op
    return False
