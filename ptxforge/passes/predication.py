"""What an operation of an iteration that does not exist does: nothing, as far as anyone can see.

    load %p                          (before)
    load %p, %exists                 (after; asynchronous copies store zeros)

Operations without effects are left as they are.
"""

from __future__ import annotations

from ptxforge.ir import types as T
from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Operation, Value
from ptxforge.ir.definition import TENSORS, MemoryAccess
from ptxforge.ir.ops.arith import AndI, CmpI, Select
from ptxforge.ir.ops.shape import Broadcast, Splat


def predicate_access(op: Operation, flag: Value, b: Builder) -> None:
    """Make a copy or load of an iteration that does not exist do nothing (a copy stores zeros)."""
    if op.effects.queue == TENSORS:
        rest = list(op.operands)
        if op.flag is not None:
            flag = b.value(AndI, rest.pop(), flag)
        op.set_operands([*rest, flag])
        if op.effects.fills:
            op.attributes["is_flagged"] = True
        return
    if not isinstance(op, MemoryAccess):
        return
    if op.mask is not None:
        op.set_operand(op.operands.index(op.mask), _gated(op.mask, flag, b))
        return
    pointer = op.operands[0].type
    if isinstance(pointer, T.TensorType):
        flag = b.value(Splat, flag, type=pointer.with_element(T.I1))
    op.set_operands([*op.operands, flag])


def _gated(mask: Value, flag: Value, b: Builder) -> Value:
    """``mask and flag``. A bound that all elements share, ``x < bound``, becomes
    ``x < (flag ? bound : smallest)``: the threads' comparisons stay, and one scalar operation replaces a
    logical one for each of them."""
    compare = mask.defining_op
    if isinstance(compare, Broadcast):
        return b.value(Broadcast, _gated(compare.x, flag, b), type=mask.type)
    if (
        isinstance(compare, CmpI)
        and compare.predicate == "slt"
        and isinstance(compare.rhs.defining_op, Splat)
    ):
        bound = compare.rhs.defining_op.value
        smallest = b.constant(-(1 << bound.type.bits - 1), bound.type)
        limit = b.value(Select, flag, bound, smallest)
        return b.value(CmpI, compare.lhs, b.value(Splat, limit, type=compare.rhs.type), predicate="slt")
    if isinstance(mask.type, T.TensorType):
        flag = b.value(Splat, flag, type=mask.type)
    return b.value(AndI, mask, flag)
