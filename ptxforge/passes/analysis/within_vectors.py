"""Facts that hold inside a vector which turns out, when the kernel runs, to be contiguous in memory.

An access with ``guarded`` (see ``vectorize_memory``) tests that for each of its vectors. Under that condition
a ``rotated_range`` is as good as a range, and a mask ``i < n`` is a prefix of the vector: whether all of it
may be accessed is said by its last element.
"""

from __future__ import annotations

from collections.abc import Callable

from ptxforge.ir import types as T
from ptxforge.ir.core import Operation, Value
from ptxforge.ir.definition import REARRANGING
from ptxforge.ir.facts import AxisInfo
from ptxforge.ir.ops.arith import AndI, CmpI
from ptxforge.passes.analysis.axis_info import AxisInfoAnalysis
from ptxforge.passes.analysis.sign import is_nonnegative

_FALLING = ("slt", "sle")
_RISING = ("sgt", "sge")


class FactsWithinVectors(AxisInfoAnalysis):
    """As :class:`AxisInfoAnalysis`, for the vectors in which the values of each range do not jump."""

    def _follows(self, op: Operation, operands: list[AxisInfo]) -> AxisInfo:
        return op.axis_info_within_vectors(operands, is_nonnegative)


def is_prefix(mask: Value, dim: int, length: int, facts: FactsWithinVectors) -> bool:
    """Whether in each aligned run of ``length`` elements along ``dim`` that are contiguous in memory the mask
    holds for the first few elements, none, or all.

    (As index arithmetic is taken not to wrap: ``i + k < n`` could hold again behind the largest integer.)"""
    if facts[mask].constancy[dim] >= length:
        return True
    op = mask.defining_op
    if op is not None and REARRANGING in op.traits:
        source = op.operands[0]
        dims = [d for d in range(len(T.shape_of(source.type))) if op.result_dim(0, d) == dim]
        return bool(dims) and is_prefix(source, dims[0], length, facts)
    rule = _PREFIXES.get(type(op))
    return rule is not None and rule(op, dim, length, facts)


def _and(op: AndI, dim: int, length: int, facts: FactsWithinVectors) -> bool:
    return all(is_prefix(v, dim, length, facts) for v in op.operands)


def _compare(op: CmpI, dim: int, length: int, facts: FactsWithinVectors) -> bool:
    if op.predicate not in _FALLING + _RISING:
        return False
    run, bound = op.operands if op.predicate in _FALLING else op.operands[::-1]
    return facts[run].contiguity[dim] >= length and facts[bound].constancy[dim] >= length


_PREFIXES: dict[type[Operation], Callable[..., bool]] = {AndI: _and, CmpI: _compare}
