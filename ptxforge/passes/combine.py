"""Operations merged into the one they feed.

    %d = dot %a, %b, %zero : (…) -> tensor<16x16xf32>                     (before)
    %e = addf %d, %c : tensor<16x16xf32>
    %v = load %p, %mask : (…) -> tensor<64xf32>
    %w = select %mask, %v, %other : tensor<64xf32>

    %e = dot %a, %b, %c : (…) -> tensor<16x16xf32>                        (after)
    %w = load %p, %mask, %other : (…) -> tensor<64xf32>

Two ``addptr`` in a row become one where the sum of their offsets is sure to be the offset of the sum: ``i64``
offsets, or constants whose sum fits.
"""

from __future__ import annotations

from ptxforge.ir import types as T
from ptxforge.ir.core import Function, Operation, Value
from ptxforge.ir.ops.arith import AddF, AddI, Select
from ptxforge.ir.ops.dot import Dot
from ptxforge.ir.ops.memory import AddPtr, Load
from ptxforge.ir.ops.shape import Constant
from ptxforge.ir.rewriter import PatternSet, Rewriter, constant_of, rewrite
from ptxforge.support.target import Target

RULES = PatternSet()


def combine(function: Function, target: Target) -> bool:
    """Apply the rules below until none matches."""
    return rewrite(function, RULES)


@RULES.on(AddF, AddI)
def add_to_dot(op: Operation, rewriter: Rewriter) -> bool:
    """dot(a, b, 0) + c → dot(a, b, c)"""
    for value, addend in (op.operands, op.operands[::-1]):
        dot = value.defining_op
        if type(dot) is Dot and value.has_one_use and _is_zero(dot.c):
            combined = rewriter.create(
                Dot,
                dot.a,
                dot.b,
                addend,
                result_types=[op.result.type],
                location=dot.location,
                **dot.attributes,
            )
            return rewriter.replace(op, combined.result)
    return False


def _is_zero(value: Value) -> bool:
    # As an addend -0.0 is as good as 0.0: the sum differs at most where all products are -0.0.
    return constant_of(value) == 0


@RULES.on(Select)
def select_of_masked_load(op: Select, rewriter: Rewriter) -> bool:
    """select(mask, load(p, mask), other) → load(p, mask, other), when the load is for this select alone"""
    load = op.true_value.defining_op
    if type(load) is not Load or load.mask is not op.condition or load.volatile:
        return False
    if not load.result.has_one_use or load.parent is None:
        return False
    other = op.false_value
    if type(other.defining_op) is Constant:
        other = rewriter.create(
            Constant, before=load, result_types=[other.type], value=constant_of(other)
        ).result
    elif not _is_visible_at(other, load):
        return False
    rewriter.set_operands(load, (load.pointer, load.mask, other))
    return rewriter.replace(op, load.result)


def _is_visible_at(value: Value, op: Operation) -> bool:
    """Whether ``value`` is defined before ``op``, in its block or in an enclosing one."""
    definer = value.defining_op
    block = definer.parent if definer is not None else value.owner_block
    here = block.ancestor_of(op)
    if here is None:
        return False
    return definer is None or (definer is not here and definer.is_before_in_block(here))


@RULES.on(AddPtr)
def offset_twice(op: AddPtr, rewriter: Rewriter) -> bool:
    """addptr(addptr(p, a), b) → addptr(p, a + b), when a + b cannot overflow"""
    inner = op.pointer.defining_op
    if (
        type(inner) is not AddPtr
        or inner.offset.type is not op.offset.type
        or not _sum_is_exact(inner.offset, op.offset)
    ):
        return False
    return rewriter.replace(
        op, rewriter.value(AddPtr, inner.pointer, rewriter.value(AddI, inner.offset, op.offset))
    )


def _sum_is_exact(a: Value, b: Value) -> bool:
    element = T.element_type(a.type)
    if element is T.I64:
        return True
    x, y = constant_of(a), constant_of(b)
    if x is None or y is None:
        return False
    return -(1 << (element.bits - 1)) <= x + y < 1 << (element.bits - 1)
