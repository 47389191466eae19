"""Which integers are certainly not negative."""

from __future__ import annotations

from ptxforge.ir.core import BlockArgument, Value
from ptxforge.ir.ops.arith import (
    AddI,
    AndI,
    DivSI,
    DivUI,
    MaxSI,
    MinSI,
    MulI,
    OrI,
    RemSI,
    RemUI,
    Select,
    ShlI,
    ShrSI,
    ShrUI,
)
from ptxforge.ir.ops.cast import ExtSI, ExtUI
from ptxforge.ir.ops.control import For
from ptxforge.ir.ops.convert_layout import ConvertLayout
from ptxforge.ir.ops.memory import GetNumPrograms, GetProgramId
from ptxforge.ir.ops.shape import (
    Broadcast,
    Constant,
    ExpandDims,
    Join,
    MakeRange,
    Reshape,
    RotatedRange,
    Splat,
    Trans,
)
from ptxforge.passes.analysis.assumptions import promised_nonnegative

_IF_ALL_OPERANDS = (
    AddI, MulI, MinSI, OrI, ShlI, ShrSI, ExtSI, ConvertLayout, Broadcast, ExpandDims, Join, Reshape, Splat,
    Trans,
)  # fmt: skip
_IF_ANY_OPERAND = (AndI, MaxSI)
# Who divides an index divides it by something positive.
_IF_FIRST_OPERAND = (DivSI, RemSI, RemUI, ShrUI, DivUI)
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
    if isinstance(op, (GetProgramId, GetNumPrograms, ExtUI)):
        return True
    if isinstance(op, Constant):
        return op.value >= 0
    if isinstance(op, (MakeRange, RotatedRange)):
        return op.start >= 0
    if isinstance(op, _IF_FIRST_OPERAND):
        return is_nonnegative(op.operands[0], depth - 1)
    if isinstance(op, Select):
        return is_nonnegative(op.true_value, depth - 1) and is_nonnegative(op.false_value, depth - 1)
    if isinstance(op, _IF_ANY_OPERAND):
        return any(is_nonnegative(v, depth - 1) for v in op.operands)
    return isinstance(op, _IF_ALL_OPERANDS) and all(is_nonnegative(v, depth - 1) for v in op.operands)


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
