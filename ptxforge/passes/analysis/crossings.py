"""From which value of a loop's counter on, or up to which, a comparison is the same for a whole tile.

    %c = cmpi sge, (rows: %start + 0 … 127), (columns: %j + 0 … 63)      of a loop over %j

holds everywhere while ``%start + 0 >= %j + 63``, that is for ``%j <= %start - 63``: an *early* crossing. Of
``sle`` it would be ``%start + 127 <= %j + 0``, so ``%j >= %start + 127``: a *late* one.

The sides of the comparison are sums of scalars that the loop does not change, its counter, and indices along
a tile. A scalar is whatever number the program has there, however it came about. What wraps in 32 bits is no
such sum: a side is meant where it fits (:attr:`Crossing.sides`).
"""

from __future__ import annotations

import attrs

from ptxforge.ir import types as T
from ptxforge.ir.core import Value
from ptxforge.ir.definition import REARRANGING
from ptxforge.ir.ops.arith import CmpI, MulI
from ptxforge.ir.ops.control import For
from ptxforge.ir.ops.shape import MakeRange
from ptxforge.ir.rewriter import constant_of
from ptxforge.passes.analysis.linear_forms import is_inside

_FEW = 1 << 10
"""How often a scalar may be in a sum at most: sums of 64 bits then are exact."""
_MAX_DEPTH = 16


@attrs.frozen
class Sum:
    """Each of ``scalars`` so many times, ``counter`` times the loop's counter, and something from ``least``
    to ``most``."""

    scalars: dict[Value, int]
    counter: int
    least: int
    most: int

    def plus(self, other: Sum, times: int = 1) -> Sum:
        """With so many times ``other``."""
        scalars = dict(self.scalars)
        for value, count in other.scalars.items():
            scalars[value] = scalars.get(value, 0) + times * count
        ends = sorted((times * other.least, times * other.most))
        kept = {value: count for value, count in scalars.items() if count}
        return Sum(kept, self.counter + times * other.counter, self.least + ends[0], self.most + ends[1])


_ZERO = Sum({}, 0, 0, 0)


@attrs.frozen
class Crossing:
    """``compare`` is ``holds`` for every element while the counter is at most (``is_early``), or from where
    on it is at least, each of ``scalars`` so many times plus ``constant``: where all of its ``sides`` fit."""

    compare: CmpI
    holds: bool
    is_early: bool
    scalars: dict[Value, int]
    constant: int
    sides: tuple[Sum, Sum]


def crossing_of(compare: CmpI, holds: bool, loop: For) -> Crossing | None:
    """Where in ``loop`` all elements of ``compare`` begin, or cease, to be ``holds``; None where that is not
    known, or does not depend on the counter."""
    predicate = compare.predicate
    if predicate not in ("slt", "sle", "sgt", "sge") or T.element_type(compare.lhs.type) is not T.I32:
        return None
    sides = tuple(_sum(side, loop, _MAX_DEPTH) for side in compare.operands)
    if None in sides:
        return None
    greater, less = sides if predicate in ("sgt", "sge") else sides[::-1]
    excess = greater.plus(less, -1).plus(Sum({}, 0, 1, 1), -int(predicate in ("slt", "sgt")))
    if not holds:  # not (excess >= 0) is (-1 - excess >= 0)
        excess = Sum({}, 0, -1, -1).plus(excess, -1)
    if abs(excess.counter) != 1 or any(abs(count) > _FEW for count in excess.scalars.values()):
        return None
    sign = -excess.counter
    scalars = {value: sign * count for value, count in excess.scalars.items()}
    return Crossing(compare, holds, sign > 0, scalars, sign * excess.least, sides)


def _sum(value: Value, loop: For, depth: int) -> Sum | None:
    """``value`` as a sum; None where it is none, or one of 64 bits."""
    number, op = constant_of(value), value.defining_op
    if number is not None:
        return Sum({}, 0, int(number), int(number))
    if value is loop.induction:
        return Sum({}, 1, 0, 0)
    if isinstance(value.type, T.ScalarType) and not is_inside(value, loop):
        return Sum({value: 1}, 0, 0, 0)
    if op is None or depth == 0 or T.element_type(value.type) is not T.I32:
        return None
    if isinstance(op, MakeRange):
        return Sum({}, 0, op.start, op.end - 1)
    if REARRANGING in op.traits:
        return _sum(op.operands[0], loop, depth - 1)
    if isinstance(op, MulI):
        return _multiple(op, loop, depth - 1)
    total = _ZERO if op.addends else None
    for addend, sign in op.addends:
        part = _sum(addend, loop, depth - 1)
        total = None if None in (total, part) else total.plus(part, sign)
    return total


def _multiple(op: MulI, loop: For, depth: int) -> Sum | None:
    for value, by in (op.operands, op.operands[::-1]):
        times = constant_of(by)
        if times is not None:
            part = _sum(value, loop, depth)
            return None if part is None else _ZERO.plus(part, int(times))
    return None
