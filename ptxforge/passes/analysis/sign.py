"""Which integers are certainly not negative, and between which numbers they lie."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

from ptxforge.ir import types as T
from ptxforge.ir.core import BlockArgument, Operation, Value
from ptxforge.ir.limits import Limits, fit
from ptxforge.ir.rewriter import constant_of
from ptxforge.passes.analysis.assumptions import promised_nonnegative

_MAX_DEPTH = 24

Given = Callable[[Value], bool]
"""What is taken not to be negative, whatever the program says of it."""


def _nothing(value: Value) -> bool:
    return False


def is_nonnegative(value: Value, depth: int = _MAX_DEPTH, given: Given = _nothing) -> bool:
    """Whether every element of ``value`` is known to be at least 0, given that index arithmetic does not wrap
    (see ``ir.ops.memory``), that divisors are positive, what the user assumes, and what is ``given``.
    ``False`` means "not known"."""
    if depth == 0:
        return False
    return _is_computed_nonnegative(value, depth, given) or promised_nonnegative(value) or given(value)


def _is_computed_nonnegative(value: Value, depth: int, given: Given) -> bool:
    op = value.defining_op
    if op is None:
        return _induction_is_nonnegative(value, depth, given)
    if any(sign < 0 for _, sign in op.addends) and _counts_from_the_end(value, depth, given):
        return True
    if op.addends and _has_grown_enough(value, depth, given):
        return True
    return op.is_nonnegative(lambda operand: is_nonnegative(operand, depth - 1, given))


def _has_grown_enough(value: Value, depth: int, given: Given) -> bool:
    """Whether ``value`` is a carried number that only grows plus something, and so is not below what it is
    of the first number: ``tile`` of ``tile = pid - n; for …: tile += n``."""
    carried = next((v for v in value.defining_op.operands if _is_carried(v)), None)
    if carried is None:
        return False
    terms, constant = _sum(value, depth)
    if terms.pop(carried, 0) != 1:
        return False
    loop = carried.block.parent_op
    initial, following = loop.carried_sources(loop.carried.index(carried))
    more, number = _sum(initial, depth)
    for term, times in more.items():
        terms[term] = terms.get(term, 0) + times
    return (
        constant + number >= 0
        and all(n == 0 or (n > 0 and is_nonnegative(term, depth - 1, given)) for term, n in terms.items())
        and _only_grows(following, carried, depth - 1, given)
    )


def _is_carried(value: Value) -> bool:
    loop = value.block.parent_op if isinstance(value, BlockArgument) else None
    return loop is not None and loop.is_counted and value is not loop.induction


def _counts_from_the_end(value: Value, depth: int, given: Given) -> bool:
    """Whether ``value`` is ``bound - 1 - x`` of an x below the bound (``num_programs - 1 - program_id``),
    plus what is not negative."""
    terms, constant = _sum(value, depth)
    taken = [term for term in terms if terms[term] < 0]
    if len(taken) != 1 or terms[taken[0]] != -1 or constant < -1 or taken[0].defining_op is None:
        return False
    rest = [term for term in terms if term is not taken[0]]
    bound = next((term for term in rest if taken[0].defining_op.is_below(term)), None)
    return bound is not None and all(term is bound or is_nonnegative(term, depth - 1, given) for term in rest)


def _sum(value: Value, depth: int) -> tuple[dict[Value, int], int]:
    """What ``value`` is the sum of, each with how often, and a constant."""
    terms: dict[Value, int] = {}
    constant = 0
    pending = [(value, 1)]
    while pending and depth:
        term, sign = pending.pop()
        addends, number = term.defining_op.addends if term.defining_op else (), constant_of(term)
        depth -= 1
        if addends:
            pending += [(addend, sign * times) for addend, times in addends]
        elif number is not None:
            constant += sign * number
        else:
            terms[term] = terms.get(term, 0) + sign
    terms.update((term, -1) for term, _ in pending)
    return terms, constant


def _induction_is_nonnegative(value: Value, depth: int, given: Given) -> bool:
    if not isinstance(value, BlockArgument):
        return False
    loop = value.block.parent_op
    if loop is None or not loop.is_counted:
        return False
    if value is loop.induction:
        return not _will_be_counted_anew(loop) and is_nonnegative(loop.lower, depth - 1, given)
    initial, following = loop.carried_sources(loop.carried.index(value))
    return is_nonnegative(initial, depth - 1, given) and _only_grows(following, value, depth - 1, given)


def _will_be_counted_anew(loop: Operation) -> bool:
    """Whether a producer will count its steps from another number on (``alternate_tiles``)."""
    return loop.parent_op is not None and loop.parent_op.attributes.get("consumer_groups", 1) > 1


def _only_grows(value: Value, start: Value, depth: int, given: Given) -> bool:
    """Whether ``value`` is ``start`` plus integers that are not negative."""
    while value is not start:
        op = value.defining_op
        if op is None or [sign for _, sign in op.addends] != [1, 1]:
            return False
        pairs = (op.operands, op.operands[::-1])
        grows = [other for other, by in pairs if is_nonnegative(by, depth - 1, given)]
        if not grows:
            return False
        value = start if start in grows else grows[0]
    return True


_SHORT = 8


def limits(value: Value, depth: int = _SHORT) -> Limits | None:
    """The limits of every element of ``value``; nothing is known of what could wrap. What follows from more
    operations than ``depth`` behind each other is not seen (:class:`KnownLimits` sees it)."""
    found = _of_constant(value)
    if found is None and depth:
        op = value.defining_op
        known = functools.partial(limits, depth=depth - 1)
        found = _of_induction(value, known) if op is None else op.limits(known)
    return found if found is not None and fit(found, T.element_type(value.type)) else None


class KnownLimits:
    """The limits of all values of a function, in the order of its text: each value is looked at once. With
    ``programs`` those for a grid of so many programs along each axis, or as many as there can be."""

    def __init__(self, programs: int = 0) -> None:
        self.found: dict[Value, Limits | None] = {}
        self.programs = programs

    def of(self, value: Value) -> Limits | None:
        """The limits of ``value``, whose operation has been :meth:`passed`."""
        if value not in self.found and isinstance(value, BlockArgument):
            self._note(value, _of_induction(value, self.of))
        return self.found.get(value)

    def passed(self, op: Operation) -> None:
        """Remember what is known of the results of ``op``."""
        if len(op.results) == 1:
            self._note(op.result, _of_constant(op.result) or self._in_grid(op) or op.limits(self.of))
            return
        for index, result in enumerate(op.results):
            self._note(result, op.limits_of(index, self.of))

    def _in_grid(self, op: Operation) -> Limits | None:
        return op.limits_in_grid(self.programs) if self.programs else None

    def _note(self, value: Value, found: Limits | None) -> None:
        fits = found is not None and fit(found, T.element_type(value.type))
        self.found[value] = found if fits else None


def _of_constant(value: Value) -> Limits | None:
    number = constant_of(value)
    is_number = type(number) is int or (type(number) is float and math.isfinite(number))
    return (number, number) if is_number else None


def _of_induction(value: Value, known: Callable[[Value], Limits | None]) -> Limits | None:
    loop = value.block.parent_op
    if loop is None or not loop.is_counted or value is not loop.induction or _will_be_counted_anew(loop):
        return None
    lower, upper = known(loop.lower), known(loop.upper)
    step = constant_of(loop.step)
    if lower is None or upper is None or step is None or step <= 0:
        return None
    last = upper[1] - 1
    if lower[0] == lower[1]:
        last = lower[0] + (last - lower[0]) // step * step
    return (lower[0], last) if lower[0] <= last else None
