"""Pointers and accesses whose mask or offset is known."""

from __future__ import annotations

from ptxforge.ir.core import Operation
from ptxforge.ir.ops.atomic import AtomicRMW
from ptxforge.ir.ops.convert_layout import ConvertLayout
from ptxforge.ir.ops.memory import AddPtr, Load, Store
from ptxforge.ir.ops.shared import LocalAlloc
from ptxforge.ir.rewriter import PatternSet, Rewriter, constant_of
from ptxforge.layouts.encodings import Mma
from ptxforge.layouts.panels import Panels
from ptxforge.passes.rules.arith import is_int

RULES = PatternSet()


@RULES.on(AddPtr)
def no_offset(op: AddPtr, rewriter: Rewriter) -> bool:
    """addptr p, 0 → p"""
    return is_int(op.offset, 0) and rewriter.replace(op, op.pointer)


@RULES.on(Load)
def masked_load(op: Load, rewriter: Rewriter) -> bool:
    """load p, true, other → load p; load p, false, other → other"""
    mask = None if op.mask is None else constant_of(op.mask)
    if mask is None or op.volatile:
        return False
    if mask:
        return rewriter.set_operands(op, (op.pointer,))
    return op.other is not None and rewriter.replace(op, op.other)


@RULES.on(Store, AtomicRMW)
def masked_write(op: Operation, rewriter: Rewriter) -> bool:
    """store p, x, true → store p, x; store p, x, false → nothing"""
    mask = None if op.mask is None else constant_of(op.mask)
    if mask is None:
        return False
    if mask:
        return rewriter.set_operands(op, (op.pointer, op.value))
    return type(op) is Store and rewriter.erase(op)


@RULES.on(LocalAlloc)
def stored_accumulators(op: LocalAlloc, rewriter: Rewriter) -> bool:
    """local_alloc (convert_layout x) → local_alloc x, of accumulators of ``wgmma`` that it reads again:
    ``stmatrix`` writes them as they are."""
    inner = None if op.value is None else op.value.defining_op
    if not isinstance(inner, ConvertLayout) or not isinstance(op.result.type.layout, Panels):
        return False
    layout = inner.x.type.layout
    is_written = isinstance(layout, Mma) and layout.version[0] == 3 and inner.x.type.element.bits == 16
    return is_written and rewriter.set_operands(op, (inner.x,))
