"""Where a loop is split in two (``split_loops``): a scalar in front of it.

Of a late crossing at ``j >= t`` (``analysis/crossings.py``) it is ``lower + ⌈(t - lower) / step⌉ · step``, of
an early one at ``j <= t`` it is that of ``t + 1``; never less than ``lower``.

KNOWN     The distance from ``lower`` is a polynomial of which the step divides all coefficients but the
          constant, and which is not negative. Then the point is a scalar of the program plus a constant. What
          limits say for any grid is preferred to what they say for one of few programs.
GUARDED   Else it is computed. In 64 bits nothing wraps: scalars have 32, and few are added up.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import attrs

from ptxforge.ir import types as T
from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Function, Value
from ptxforge.ir.limits import fit
from ptxforge.ir.ops.arith import AddI, AndI, CmpI, DivSI, MaxSI, MinSI, MulI, Select, SubI
from ptxforge.ir.ops.cast import ExtSI, TruncI
from ptxforge.ir.ops.control import For
from ptxforge.ir.rewriter import constant_of
from ptxforge.passes.analysis.axis_info import AxisInfoAnalysis
from ptxforge.passes.analysis.crossings import Crossing, Sum
from ptxforge.passes.analysis.kept import kept
from ptxforge.passes.analysis.linear_forms import LinearForms, NotLinear, Polynomial, add, constant
from ptxforge.passes.analysis.sign import KnownLimits, is_nonnegative
from ptxforge.passes.use_limits import PROGRAMS
from ptxforge.support.machine import MAX_GRID

Bounds = tuple[Value, Value, Value]
"""Where a first loop ends, where a second one begins, and where that ends."""
_LEAST, _MOST = -(1 << 31), (1 << 31) - 1


@attrs.frozen
class Point:
    """``build`` makes the bounds of two loops in front of one. A point that ``is_exact`` is surely reached by
    the first loop, and a constant in front of the end. One that ``is_outside`` leaves nothing to one of the
    loops. It is right for ``programs`` along the first axis of a grid; 0: for any number."""

    build: Callable[[Builder], Bounds] | None
    is_exact: bool = False
    programs: int = 0

    @property
    def is_outside(self) -> bool:
        return self.build is None

    def note(self, function: Function) -> None:
        """Tell the function for how many programs it is."""
        if self.programs:
            function.attributes["most_programs"] = self.programs


def point_of(function: Function, loop: For, crossings: list[Crossing]) -> Point:
    """Where all ``crossings``, which are of one direction, have been crossed."""
    stages = max(loop.num_stages, function.attributes.get("num_stages", 3))
    search = _Search(loop, crossings, stages)
    if search.is_outside():
        return Point(None)
    search.facts = kept(AxisInfoAnalysis, function)
    for programs in (0,) if function.attributes.get("any_grid", False) else (0, PROGRAMS):
        search.limits = KnownLimits(programs or MAX_GRID[0])
        for op in function.walk():
            search.limits.passed(op)
        found = search.known(programs)
        if found is not None:
            return found
    return Point(search.guarded)


class _Search:
    """For the point of a ``loop``, with what is known of values: ``facts`` and ``limits``."""

    facts: AxisInfoAnalysis
    limits: KnownLimits

    def __init__(self, loop: For, crossings: list[Crossing], stages: int):
        self.loop, self.crossings = loop, crossings
        self.forms = LinearForms()
        self.step = constant_of(loop.step)
        self.is_early = crossings[0].is_early
        self.ahead = (stages + 1) * self.step  # of the point: may not wrap either

    # -- KNOWN -------------------------------------------------------------------------------------------

    def is_outside(self) -> bool:
        """Whether it leaves nothing to one of the loops, if no index wraps."""
        try:
            distance = self._distance()
            if distance is None:
                return False
            lower, upper = map(self.forms.scalar, (self.loop.lower, self.loop.upper))
        except NotLinear:
            return False
        rest = add(upper, add(lower, distance), -1)
        return any(set(part) <= {()} and part.get((), 0) <= 0 for part in (distance, rest))

    def known(self, programs: int) -> Point | None:
        """The point, if it is KNOWN for so many programs."""
        values = [self.loop.lower, *(value for crossing in self.crossings for value in crossing.scalars)]
        if not all(map(self.limits.of, values)) or not all(map(self.fits, self._sides())):
            return None
        try:
            lower, upper = map(self.forms.scalar, (self.loop.lower, self.loop.upper))
            distance = self._distance()
            at = self._value_at(values, add(lower, distance or {}))
        except NotLinear:
            return None
        if distance is None or at is None:
            return None
        rest = add(upper, add(lower, distance), -1)
        is_exact = set(rest) <= {()} and self.limits.of(self.loop.upper) is not None
        value, more = at
        if is_exact and not self._has_room(value, more + rest[()]):
            return None
        if not self._is_behind_lower(distance, lower, value, more):
            return None
        end = rest[()] if is_exact else 0
        return Point(functools.partial(self._at, value, more, end), is_exact, programs)

    def _distance(self) -> Polynomial | None:
        """How far the point is from the lower bound, if that is a multiple of the step."""
        ends = [self._end(crossing) for crossing in self.crossings]
        shifts = [add(end, ends[0], -1) for end in ends]
        if any(set(shift) - {()} for shift in shifts):
            return None
        choose = min if self.is_early else max
        end = add(ends[0], constant(choose(shift.get((), 0) for shift in shifts)))
        distance = add(end, self.forms.scalar(self.loop.lower), -1)
        number = distance.pop((), 0)
        if any(c % self.step for c in (*distance.values(), number - int(number))):
            return None
        return add(distance, constant(-(-int(number) // self.step) * self.step))

    def _end(self, crossing: Crossing) -> Polynomial:
        """From where on the counter has crossed."""
        end = constant(crossing.constant + int(crossing.is_early))
        for value, times in crossing.scalars.items():
            end = add(end, self.forms.scalar(value), times)
        return end

    def _value_at(self, values: list[Value], place: Polynomial) -> tuple[Value, int] | None:
        """One of ``values``, and what has to be added to it for a number that is ``place``."""
        found = []
        for value in values:
            more = add(place, self.forms.scalar(value), -1)
            is_near = set(more) <= {()} and self._has_room(value, int(more.get((), 0)))
            found += [(value, int(more.get((), 0)))] if is_near else []
        return min(found, key=lambda pair: abs(pair[1]), default=None)

    def _has_room(self, value: Value, more: int) -> bool:
        """Whether ``value + more`` does not wrap, nor the counters of the iterations from there on whose
        copies run ahead."""
        low, high = self.limits.of(value)
        return fit((low + more, high + more + self.ahead), T.I32)

    def _is_behind_lower(self, distance: Polynomial, lower: Polynomial, value: Value, more: int) -> bool:
        """Whether the distance is surely not negative."""
        if all(c > 0 and all(map(is_nonnegative, monomial)) for monomial, c in distance.items()):
            return True
        ahead = self.limits.of(value)[0] + more >= self.limits.of(self.loop.lower)[1]
        return ahead or (not lower and more >= 0 and is_nonnegative(value))

    def _at(self, value: Value, more: int, rest: int, builder: Builder) -> Bounds:
        point = builder.value(AddI, value, builder.constant(more, T.I32)) if more else value
        if rest:
            return point, point, builder.value(AddI, point, builder.constant(rest, T.I32))
        return builder.value(MinSI, point, self.loop.upper), point, self.loop.upper

    # -- what fits ---------------------------------------------------------------------------------------

    def _sides(self) -> list[Sum]:
        return [side for crossing in self.crossings for side in crossing.sides]

    def fits(self, side: Sum) -> bool:
        """Whether a side of a comparison surely fits into 32 bits in all iterations."""
        terms = [*side.scalars.items(), *([(self.loop.induction, side.counter)] if side.counter else [])]
        if len(terms) == 1 and terms[0][1] == 1 and side.least >= 0:
            divisor = self.facts[terms[0][0]].divisibility[0]
            if side.most < divisor:  # no number that this divides is closer to the end
                return True
        ends = [side.least, side.most]
        for value, times in terms:
            found = self.limits.of(value)
            if found is None:
                return False
            ends = [end + part for end, part in zip(ends, sorted((times * found[0], times * found[1])))]
        return fit(tuple(ends), T.I32)

    # -- GUARDED -----------------------------------------------------------------------------------------

    def guarded(self, builder: Builder) -> Bounds:
        """The point, computed: a number of steps behind the lower bound, as all the loop's counters are, so
        that what divides these divides it, too. Where it is not known to be right no iteration goes without
        its mask."""
        ends = [self._computed_end(builder, crossing) for crossing in self.crossings]
        end = functools.reduce(functools.partial(builder.value, MinSI if self.is_early else MaxSI), ends)
        lower = _wide(builder, self.loop.lower)
        wanted = builder.value(SubI, end, lower)
        wanted = builder.value(AddI, wanted, builder.constant(self.step - 1, T.I64))
        zero = builder.constant(0, T.I64)
        wanted = self._whole_steps(builder, builder.value(MaxSI, wanted, zero))
        room = builder.value(SubI, builder.constant(_MOST - self.ahead, T.I64), lower)
        room = self._whole_steps(builder, builder.value(MaxSI, room, zero))
        distance = builder.value(MinSI, wanted, room)
        tests = [test for side in self._sides() if not self.fits(side) for test in self._tests(builder, side)]
        tests += [] if self.is_early else [builder.value(CmpI, wanted, room, predicate="sle")]
        is_right = functools.reduce(functools.partial(builder.value, AndI), tests) if tests else None
        if self.is_early and tests:
            distance = builder.value(Select, is_right, distance, zero)
        point = builder.value(TruncI, builder.value(AddI, lower, distance), type=T.I32)
        point = builder.value(MaxSI, point, self.loop.lower)  # which it is: so its sign is known
        middle = builder.value(MinSI, point, self.loop.upper)
        if self.is_early:
            return middle, point, self.loop.upper
        middle = builder.value(Select, is_right, middle, self.loop.upper)
        return middle, point, builder.value(Select, is_right, self.loop.upper, point)

    def _computed_end(self, builder: Builder, crossing: Crossing) -> Value:
        return _total(builder, crossing.scalars, crossing.constant + int(crossing.is_early))

    def _whole_steps(self, builder: Builder, distance: Value) -> Value:
        """The greatest multiple of the step within a ``distance``, which is not negative."""
        if self.step & (self.step - 1) == 0:
            return builder.value(AndI, distance, builder.constant(-self.step, T.I64))
        step = builder.constant(self.step, T.I64)
        return builder.value(MulI, builder.value(DivSI, distance, step), step)

    def _tests(self, builder: Builder, side: Sum) -> list[Value]:
        """Whether a side of a comparison fits into 32 bits in all iterations."""
        last = builder.value(SubI, _wide(builder, self.loop.upper), builder.constant(1, T.I64))
        counters = [_wide(builder, self.loop.lower), last][:: 1 if side.counter > 0 else -1]
        found = []
        for counter, number, bound, predicate in (
            (counters[0], side.least, _LEAST, "sge"), (counters[1], side.most, _MOST, "sle"),
        ):  # fmt: skip
            total = _total(builder, side.scalars, number)
            moved = builder.value(MulI, counter, builder.constant(side.counter, T.I64))
            total = builder.value(AddI, total, moved)
            found.append(builder.value(CmpI, total, builder.constant(bound, T.I64), predicate=predicate))
        return found


def _wide(builder: Builder, value: Value) -> Value:
    return builder.value(ExtSI, value, type=T.I64)


def _total(builder: Builder, scalars: dict[Value, int], number: int) -> Value:
    """A sum in 64 bits."""
    total = builder.constant(number, T.I64)
    for value, times in scalars.items():
        term = builder.value(MulI, _wide(builder, value), builder.constant(times, T.I64))
        total = builder.value(AddI, total, term)
    return total
