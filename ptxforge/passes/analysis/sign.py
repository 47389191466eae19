"""Which integers are certainly not negative."""

from __future__ import annotations

from ptxforge.ir.core import BlockArgument, Value
from ptxforge.ir.ops.arith import AddI
from ptxforge.ir.ops.control import For
from ptxforge.passes.analysis.assumptions import promised_nonnegative

_MAX_DEPTH = 24


def is_nonnegative(value: Value, depth: int = _MAX_DEPTH) -> bool:
    """Whether every element of ``value`` is known to be at least 0, given that index arithmetic does not wrap
    (see ``ir.ops.memory``), that divisors are positive, and what the user assumes. ``False`` means "not
    known"."""
    if depth == 0:
        return False
    return _is_computed_nonnegative(value, depth) or promised_nonnegative(value)


def _is_computed_nonnegative(value: Value, depth: int) -> bool:
    op = value.defining_op
    if op is None:
        return _induction_is_nonnegative(value, depth)
    return op.is_nonnegative(lambda operand: is_nonnegative(operand, depth - 1))


def _induction_is_nonnegative(value: Value, depth: int) -> bool:
    if not isinstance(value, BlockArgument):
        return False
    loop = value.block.parent_op
    if not isinstance(loop, For):
        return False
    if value is loop.induction:
        return is_nonnegative(loop.lower, depth - 1)
    initial, following = loop.carried_sources(loop.carried.index(value))
    return is_nonnegative(initial, depth - 1) and _only_grows(following, value, depth - 1)


def _only_grows(value: Value, start: Value, depth: int) -> bool:
    """Whether ``value`` is ``start`` plus integers that are not negative."""
    while value is not start:
        op = value.defining_op
        if not isinstance(op, AddI):
            return False
        grows = [other for other, by in (op.operands, op.operands[::-1]) if is_nonnegative(by, depth - 1)]
        if not grows:
            return False
        value = start if start in grows else grows[0]
    return True
