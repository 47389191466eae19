"""Between which numbers integers lie."""

from __future__ import annotations

from ptxforge.ir import types as T
from ptxforge.ir.core import Operation, Value
from ptxforge.ir.definition import REARRANGING
from ptxforge.ir.ops.arith import MulI
from ptxforge.ir.ops.shape import MakeRange
from ptxforge.ir.rewriter import constant_of

Limits = tuple[int, int]
"""The least and the greatest that a value can be."""

_MAX_DEPTH = 8


def limits(value: Value, depth: int = _MAX_DEPTH) -> Limits | None:
    """The limits of every element of ``value`` as a signed integer, ``None`` where they are not known.

    They hold for what the hardware computes: where a sum or a product could wrap, nothing is known.
    """
    number, op = constant_of(value), value.defining_op
    if number is not None:
        found = (number, number) if type(number) is int else None
    elif depth == 0:
        found = None
    elif op is None:
        found = _of_induction(value, depth)
    elif type(op) is MakeRange:
        found = op.start, op.end - 1
    elif REARRANGING in op.traits:
        found = limits(op.operands[0], depth - 1)
    else:
        found = _computed(op, depth)
    return found if found is not None and _fit(found, T.element_type(value.type)) else None


def _fit(found: Limits, element: T.Type) -> bool:
    half = 1 << (element.bits - 1)
    return -half <= found[0] and found[1] < half


def _computed(op: Operation, depth: int) -> Limits | None:
    """Of a sum, a difference or a product."""
    if not op.addends and type(op) is not MulI:
        return None
    left = limits(op.operands[0], depth - 1)
    right = limits(op.operands[1], depth - 1) if left is not None else None
    if left is None or right is None:
        return None
    if not op.addends:
        products = [x * y for x in left for y in right]
        return min(products), max(products)
    if op.addends[1][1] < 0:
        right = -right[1], -right[0]
    return left[0] + right[0], left[1] + right[1]


def _of_induction(value: Value, depth: int) -> Limits | None:
    """Of a counted loop's variable: from its lower bound to the last step below the upper one."""
    loop = value.block.parent_op
    if loop is None or not loop.is_counted or value is not loop.induction:
        return None
    lower, upper = limits(loop.lower, depth - 1), limits(loop.upper, depth - 1)
    step = constant_of(loop.step)
    if lower is None or upper is None or step is None or step <= 0:
        return None
    last = upper[1] - 1
    if lower[0] == lower[1]:
        last = lower[0] + (last - lower[0]) // step * step
    return (lower[0], last) if lower[0] <= last else None
