"""Pointers that walk through a loop.

    for … iter_args(%p = %a) {                                             (the loop)
      … (addptr (addptr (splat %p), %rows), %columns) …
      yield (addptr %p, %step) }

A thread's addresses are ``p + row · stride + column``, the column being the same in all of its accesses.
Added in every iteration it costs two instructions (64 bits); so what is carried is ``p + column``, and ``p``
itself, should anyone ask, is that minus ``column``: the two terms cancel where the loop adds it again.
"""

from __future__ import annotations

from collections import Counter

from ptxforge.codegen_ptx.lower_memory import vector_width
from ptxforge.codegen_ptx.lowering import LOWERINGS, Lowering
from ptxforge.codegen_ptx.pointers import Pointer, Term, address, as_pointer, moved_by
from ptxforge.ir import types as T
from ptxforge.ir.core import BlockArgument, Operation
from ptxforge.ir.ops.control import Yield
from ptxforge.ir.ops.memory import AddPtr, Load, Store
from ptxforge.ir.ops.shape import Broadcast, ExpandDims, Splat
from ptxforge.ir.ops.shared import AsyncCopyGlobalToLocal

_ACCESSES = (AsyncCopyGlobalToLocal, Load, Store)
_REARRANGE = (Splat, Broadcast, ExpandDims)


def walking(ctx: Lowering, argument: BlockArgument, entry) -> Pointer:
    """The entry with which a carried scalar pointer starts: what all accesses share is part of its base."""
    p = as_pointer(entry)
    terms = _common_terms(ctx, argument)
    if not terms:
        return p
    base, offset = address(ctx.b, Pointer(p.base, terms))
    without = tuple(sorted((*p.terms, *((root, -size) for root, size in terms))))
    return Pointer(base, without, p.offset + offset)


def _common_terms(ctx: Lowering, argument: BlockArgument) -> tuple[Term, ...]:
    """The terms that all accesses through a carried scalar pointer have in common and that are known before
    the loop."""
    seen = {argument: [Pointer("%probe")]}
    common: Counter[Term] | None = None
    for op in argument.block.operations:
        pointer = op.operands[0] if op.operands else None
        if pointer not in seen:
            if any(v in seen for nested in op.walk() for v in nested.operands) and not isinstance(op, Yield):
                return ()
            continue
        if isinstance(op, _ACCESSES):
            element = T.element_type(pointer.type).pointee
            for entry in seen[pointer][:: vector_width(op, pointer.type, element.bits)]:
                terms = Counter(as_pointer(entry).terms)
                common = terms if common is None else common & terms
        elif not _follow(ctx, op, seen):
            return ()
    return tuple(sorted(common.elements())) if common else ()


def _follow(ctx: Lowering, op: Operation, seen: dict) -> bool:
    """Add what ``op`` makes of a pointer to ``seen``; False when that is not known before the loop."""
    pointer = op.operands[0]
    if isinstance(op, _REARRANGE):
        # These only rearrange entries: no instruction comes of it.
        ctx.values[pointer] = seen[pointer]
        LOWERINGS[type(op)](ctx, op)
        seen[op.result] = ctx.values.pop(op.result)
        del ctx.values[pointer]
        return True
    if not isinstance(op, AddPtr):
        return False
    if all(isinstance(user, Yield) for user in op.result.users):
        return True
    if op.offset not in ctx.values:
        return False
    size = T.element_type(pointer.type).pointee.bytes
    offsets = ctx.values[op.offset]
    seen[op.result] = [
        moved_by(ctx.b, as_pointer(p), x, size) for p, x in zip(seen[pointer], offsets, strict=True)
    ]
    return True
