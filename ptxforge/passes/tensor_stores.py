"""Stores through tensor descriptors go by TMA: through shared memory, without addresses of threads.

    %d = make_descriptor %c, %M, %N, %stride, %one                                 (before)
    descriptor_store %d, %tile, %row, %column

    store_box %c_map, %c, %tile, %row, %column                                     (after)

``lower_descriptors`` asks for them; ``stage_boxes`` gives the tiles their place in shared memory. (Stores by
pointers stay with the threads: where rows are whole multiples of 16 bytes, warps store their own without
waiting for each other, and where they are not, TMA cannot.)

Rules
-----
TARGET      ``sm_90a``, and the function may have ``tensor_maps``.
TENSOR      A descriptor made of parameters of the kernel.
CHUNKS      TMA begins at multiples of 16 bytes in a row, and writes whole chunks of them: beyond a row that
            ends elsewhere it would write what lies there. So the first column and the length of rows are such
            multiples, whatever the scalars are.
BEGINNING   No coordinate of the tile is negative: a GPU takes such a store for an illegal instruction. (Loads
            may begin in front of a tensor.)
PAYS        Tiles of :data:`~ptxforge.support.machine.BULK_STORE_BYTES` and more.
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
from ptxforge.ir.ops.control import loops_around
from ptxforge.ir.ops.descriptor import DescriptorReduce, DescriptorStore, MakeDescriptor
from ptxforge.ir.ops.inline_asm import InlineAsm
from ptxforge.ir.ops.shape import Reshape
from ptxforge.ir.ops.tensor_store import StoreBox
from ptxforge.layouts.panels import ATOM_ROWS, SWIZZLES
from ptxforge.passes.analysis.linear_forms import LinearForms, NotLinear
from ptxforge.passes.analysis.rectangles import check_first_column, entry_of, is_aligned
from ptxforge.passes.analysis.roots import root_of
from ptxforge.passes.analysis.sign import is_nonnegative
from ptxforge.passes.tensor_loads import MOST_ROWS, map_parameter
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
    if not is_aligned(numbers[rank - 1], forms, size):
        raise NotLinear("the rows of the tensor may end at any address")
    if not all(_is_nonnegative(offset, forms) for offset in op.offsets):
        raise NotLinear("the tile may begin in front of the tensor")
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
    found = _REDUCIBLE.get(_LIKE.get(op.kind, op.kind), {}).get(element)
    if found is None:
        raise NotLinear(f"TMA has no '{op.kind}' of {element}")
    return found


def _is_nonnegative(offset: Value, forms: LinearForms) -> bool:
    terms = forms.scalar(offset).items()
    return is_nonnegative(offset) or all(c > 0 and all(map(is_nonnegative, m)) for m, c in terms)


def _is_parameter(value: Value, function: Function) -> bool:
    return isinstance(value, BlockArgument) and value.block is function.body


def box_width(rows: int, columns: int, size: int) -> int:
    """Elements of ``size`` bytes in a row of the panels that a tile lies in; 0 where it is not swizzled: of
    rows that are too few or too short."""
    width = min(columns * size, SWIZZLES[0])
    return width // size if rows >= ATOM_ROWS and width >= SWIZZLES[-1] else 0


# -- order -----------------------------------------------------------------------------------------------


def _alone(function: Function, bases: dict[Operation, Value]) -> list[Operation]:
    """Those of the stores, with the parameters that they write through, of which ALONE holds."""
    number = {op: i for i, op in enumerate(function.walk())}
    others = [op for op in function.acting() if op not in bases and _matters(op)]
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
    return effects.touches("global") or effects.may_wait


def _place(op: Operation) -> Value:
    """The pointer through which an operation accesses global memory."""
    return op.pointer if hasattr(op, "pointer") else op.descriptor.defining_op.base


def _orders(op: Operation) -> bool:
    return isinstance(op, Atomic) and op.sem != "relaxed"


def _may_follow(other: Operation, op: Operation, number: dict[Operation, int]) -> bool:
    return number[other] > number[op] or any(other in loop.walk() for loop in loops_around(op))
