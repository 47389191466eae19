"""Shapes and layouts: operations that only move elements, applied to each other or to uniform tensors."""

from __future__ import annotations

from ptxforge.ir.core import Operation
from ptxforge.ir.ops.convert_layout import ConvertLayout
from ptxforge.ir.ops.reduce import Reduce
from ptxforge.ir.ops.shape import Broadcast, ExpandDims, Join, MakeRange, Reshape, Splat, Split, Trans
from ptxforge.ir.rewriter import PatternSet, Rewriter

RULES = PatternSet()


@RULES.on(Broadcast, ExpandDims, Reshape, Trans, ConvertLayout)
def of_splat(op: Operation, rewriter: Rewriter) -> bool:
    """expand_dims (splat x), broadcast (splat x), reshape, trans, convert_layout … → splat x"""
    inner = op.x.defining_op
    if type(inner) is not Splat:
        return False
    return rewriter.replace(op, rewriter.value(Splat, inner.value, type=op.result.type))


@RULES.on(Broadcast, Reshape, ConvertLayout)
def to_the_same_type(op: Operation, rewriter: Rewriter) -> bool:
    """broadcast x : T → T, reshape x : T → T, convert_layout x : T → T → x"""
    return op.x.type is op.result.type and rewriter.replace(op, op.x)


@RULES.on(Broadcast, ConvertLayout)
def twice(op: Operation, rewriter: Rewriter) -> bool:
    """broadcast (broadcast x) → broadcast x, convert_layout (convert_layout x) → convert_layout x"""
    inner = op.x.defining_op
    if type(inner) is not type(op):
        return False
    return rewriter.replace(op, rewriter.value(type(op), inner.x, type=op.result.type))


@RULES.on(Reshape)
def reshape_twice(op: Reshape, rewriter: Rewriter) -> bool:
    """reshape (reshape x) → reshape x, in the tile stage (a layout in between would have to be given up)"""
    inner = op.x.defining_op
    if type(inner) is not Reshape or op.result.type.layout is not None:
        return False
    free = {"allow_reorder": True} if op.allow_reorder or inner.allow_reorder else {}
    return rewriter.replace(op, rewriter.value(Reshape, inner.x, type=op.result.type, **free))


@RULES.on(Reshape)
def reshape_of_one_more(op: Reshape, rewriter: Rewriter) -> bool:
    """reshape (expand_dims x) → reshape x, in the tile stage"""
    inner = op.x.defining_op
    if type(inner) is not ExpandDims or op.result.type.layout is not None:
        return False
    free = {"allow_reorder": True} if op.allow_reorder else {}
    return rewriter.replace(op, rewriter.value(Reshape, inner.x, type=op.result.type, **free))


@RULES.on(Reshape)
def reshape_of_trans(op: Reshape, rewriter: Rewriter) -> bool:
    """reshape (trans x) → trans (reshape x), where only dimensions of size 1 go, in the tile stage"""
    inner = op.x.defining_op
    if type(inner) is not Trans or op.result.type.layout is not None or op.allow_reorder:
        return False
    shape = inner.x.type.shape
    kept = [d for d, size in enumerate(shape) if size > 1]
    order = [d for d in inner.order if d in kept]
    if len(kept) == len(shape) or op.result.type.shape != tuple(shape[d] for d in order):
        return False
    flat = rewriter.value(Reshape, inner.x, type=op.result.type.with_shape(tuple(shape[d] for d in kept)))
    turned = tuple(map(kept.index, order))
    return rewriter.replace(op, rewriter.value(Trans, flat, type=op.result.type, order=turned))


@RULES.on(Reduce)
def reduce_of_one(op: Reduce, rewriter: Rewriter) -> bool:
    """reduce x, along a dimension of size 1 → reshape x, in the tile stage"""
    types = [value.type for value in op.inputs]
    if types[0].rank == 1 or types[0].shape[op.axis] > 1 or types[0].layout is not None:
        return False
    made = [rewriter.value(Reshape, x, type=result.type) for x, result in zip(op.inputs, op.results)]
    return rewriter.replace(op, *made)


@RULES.on(Trans)
def trans_identity(op: Trans, rewriter: Rewriter) -> bool:
    """trans x {order = [0, 1, …]} → x"""
    is_identity = op.order == tuple(range(len(op.order))) and op.x.type is op.result.type
    return is_identity and rewriter.replace(op, op.x)


@RULES.on(Trans)
def trans_twice(op: Trans, rewriter: Rewriter) -> bool:
    """trans (trans x) → trans x"""
    inner = op.x.defining_op
    if type(inner) is not Trans:
        return False
    order = tuple(inner.order[d] for d in op.order)
    return rewriter.replace(op, rewriter.value(Trans, inner.x, type=op.result.type, order=order))


@RULES.on(ConvertLayout)
def convert_range(op: ConvertLayout, rewriter: Rewriter) -> bool:
    """convert_layout (make_range) → make_range in that layout"""
    inner = op.x.defining_op
    if type(inner) is not MakeRange:
        return False
    return rewriter.replace(
        op, rewriter.value(MakeRange, type=op.result.type, start=inner.start, end=inner.end)
    )


@RULES.on(Split)
def split_joined(op: Split, rewriter: Rewriter) -> bool:
    """split (join x, y) → x, y"""
    inner = op.x.defining_op
    if type(inner) is not Join or inner.lhs.type is not op.results[0].type:
        return False
    return rewriter.replace(op, *inner.operands)


@RULES.on(Join)
def join_split(op: Join, rewriter: Rewriter) -> bool:
    """join (split x) → x"""
    inner = op.lhs.defining_op
    is_back = type(inner) is Split and op.operands == inner.results and inner.x.type is op.result.type
    return is_back and rewriter.replace(op, inner.x)
