"""Facts that hold inside a vector which turns out, when the kernel runs, to be contiguous in memory.

An access with ``guarded`` (see ``vectorize_memory``) tests that for each of its vectors. Under that condition
a ``rotated_range`` is as good as a range, and a mask ``i < n`` is a prefix of the vector: whether all of it
may be accessed is said by its last element.
"""

from __future__ import annotations

from ptxforge.ir.core import Operation, Value
from ptxforge.ir.ops.arith import AndI, CmpI
from ptxforge.ir.ops.convert_layout import ConvertLayout
from ptxforge.ir.ops.shape import Broadcast, ExpandDims, RotatedRange
from ptxforge.passes.analysis.axis_info import AxisInfo, AxisInfoAnalysis

_FALLING = ("slt", "sle")
_RISING = ("sgt", "sge")


class FactsWithinVectors(AxisInfoAnalysis):
    """As :class:`AxisInfoAnalysis`, for the vectors of a ``rotated_range`` in which its values do not
    jump."""

    def _op(self, op: Operation) -> None:
        if isinstance(op, RotatedRange):
            self._info[op.result] = AxisInfo((op.granule,), (1,), (1,))
        else:
            super()._op(op)


def is_prefix(mask: Value, dim: int, length: int, facts: FactsWithinVectors) -> bool:
    """Whether in each aligned run of ``length`` elements along ``dim`` that are contiguous in memory the mask
    holds for the first few elements, none, or all.

    (As index arithmetic is taken not to wrap: ``i + k < n`` could hold again behind the largest integer.)"""
    if facts[mask].constancy[dim] >= length:
        return True
    op = mask.defining_op
    if isinstance(op, AndI):
        return all(is_prefix(v, dim, length, facts) for v in op.operands)
    if isinstance(op, ConvertLayout):
        return is_prefix(op.operands[0], dim, length, facts)
    if isinstance(op, Broadcast):
        return is_prefix(op.x, dim, length, facts)
    if isinstance(op, ExpandDims):
        return dim != op.axis and is_prefix(op.x, dim - (dim > op.axis), length, facts)
    if not isinstance(op, CmpI) or op.predicate not in _FALLING + _RISING:
        return False
    run, bound = op.operands if op.predicate in _FALLING else op.operands[::-1]
    return facts[run].contiguity[dim] >= length and facts[bound].constancy[dim] >= length
