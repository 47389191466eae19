"""Whether a box may begin in front of its tensor.

TMA gives zeros there, where a pointer may well lead to memory of a larger tensor. A coordinate is a
polynomial of scalars; it is not negative by what these are computed from, by what the author assumes, or if
launches find that parameters of the kernel are no negative numbers:

    64·pid + k        of ``for k in range(first, …)``: not negative if ``first`` is not
    row               loaded from memory: may be negative
"""

from __future__ import annotations

from collections.abc import Callable

from ptxforge.ir.core import Value
from ptxforge.passes.analysis.linear_forms import Polynomial, add, multiply
from ptxforge.passes.analysis.sign import is_nonnegative


def parameters_to_ask(coordinate: Polynomial, is_parameter: Callable[[Value], bool]) -> list[Value] | None:
    """The parameters that must not be negative, so that ``coordinate`` is not; ``None`` if it may be whatever
    they are."""
    least = _least(coordinate)
    if any(coefficient < 0 for coefficient in least.values()):
        return None
    values = [value for monomial in least for value in monomial]
    if all(map(is_nonnegative, values)):
        return []
    asked: dict[Value, None] = {}

    def ask(value: Value) -> bool:
        return is_parameter(value) and asked.setdefault(value) is None

    return list(asked) if all(is_nonnegative(value, given=ask) for value in values) else None


def _least(coordinate: Polynomial) -> Polynomial:
    """``coordinate``, or less: what is above an index (the number of programs) is that and one at least."""
    values = {value for monomial in coordinate for value in monomial if value.defining_op is not None}
    total: Polynomial = {}
    for monomial, coefficient in coordinate.items():
        pairs = [(x, i) for x in monomial for i in values if coefficient > 0 and i.defining_op.is_below(x)]
        for bound, index in pairs[:1]:
            rest = [*monomial]
            rest.remove(bound)
            total = add(total, multiply({tuple(rest): coefficient}, {(index,): 1, (): 1}))
        if not pairs:
            total = add(total, {monomial: coefficient})
    return total
