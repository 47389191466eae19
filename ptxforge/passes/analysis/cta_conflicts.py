"""Where the CTAs of a program have to meet so that what they do to global memory stays in order.

Two accesses conflict when they may be to the same memory, one of them writes, and the element that one CTA
accesses by the first may be another CTA's by the second. The later one waits until all CTAs have done the
earlier one. Where CTAs meet anyway, nothing is pending any more.

A write conflicts with itself where tiles of different iterations of a loop may lie over each other:

    for %k = 0 to %n { store (%y + 64 · %k + range(64)), … }           they are side by side
    for %k = 0 to %n { store (%y + %s · %k + range(64)), … }           they may lie over each other

They do not where the loop begins at a number of the program, or an atomic tells which tile comes next: else
programs would write over each other, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from itertools import combinations

from ptxforge.ir import types as T
from ptxforge.ir.core import Block, Function, Operation, Value
from ptxforge.ir.definition import MemoryAccess
from ptxforge.ir.ops.control import Loop, loops_around
from ptxforge.ir.ops.memory import GetProgramId
from ptxforge.ir.rewriter import constant_of
from ptxforge.passes.analysis.cta_dimensions import Dimension, Dimensions, may_meet, writes
from ptxforge.passes.analysis.linear_forms import (
    LinearForms,
    Monomial,
    NotLinear,
    Polynomial,
    add,
    constant,
    multiply,
)


def conflicts(
    places: dict[MemoryAccess, Value], dimensions: Dimensions, cuts: dict[Dimension, int]
) -> Iterator[tuple[MemoryAccess, MemoryAccess]]:
    """Pairs of accesses that conflict with these cuts. ``places`` has the pointers of all accesses, as the
    program computes them. Atomics are in no order with each other."""
    forms, again = LinearForms(), set()
    programs = frozenset(dimensions.function.walk(GetProgramId))
    for op in places:
        is_atomic = op.get_effects().is_atomic
        if not writes(op) or is_atomic or not dimensions.cuts_of(op.pointer, cuts):
            continue
        loops = [loop for loop in loops_around(op) if not _is_dealt_out(loop, op.pointer, programs)]
        if any(_returns_in(loop, op.pointer, forms) for loop in loops):
            again.add(op)
            yield op, op
    for one, other in combinations(places, 2):
        are_writes = writes(one), writes(other)
        if not any(are_writes) or (one.get_effects().is_atomic and other.get_effects().is_atomic):
            continue
        if not may_meet(one, other):
            continue
        if dimensions.cuts_of(one.pointer, cuts) != dimensions.cuts_of(other.pointer, cuts):
            yield one, other
        elif not again.isdisjoint((one, other)):
            yield one, other
        elif all(are_writes):
            if dimensions.cuts_of(one.pointer, cuts) and _may_overlap(one, other, forms):
                yield one, other
        elif places[one] is not places[other] or dimensions.missing(one.pointer, cuts):
            yield one, other


# ---- tiles side by side ----------------------------------------------------------------------------------
def _returns_in(loop: Loop, pointer: Value, forms: LinearForms) -> bool:
    """Whether tiles of different iterations of a loop may lie over each other, but not at one place."""
    inside = set(loop.walk())
    if not _varies_in(inside, pointer):
        return False
    try:
        form = forms.of(pointer)
        step = forms.scalar(loop.step) if loop.is_counted else constant(1)
    except NotLinear:
        return True
    counter = loop.induction if loop.is_counted else None
    moved: Polynomial = {}
    for monomial, factor in form.start.items():
        if counter in monomial:
            rest = list(monomial)
            rest.remove(counter)
            moved = add(moved, multiply({tuple(rest): factor}, step))
        elif any(_varies_in(inside, value) for value in monomial):
            moved = add(moved, {monomial: factor})
    varying = [v for step in form.steps for monomial in step for v in monomial]
    varying += [form.base] if form.base is not None else []
    if form.wraps or any(_varies_in(inside, value) for value in varying):
        return True
    return not _is_beside(moved, form.steps, T.shape_of(pointer.type), _trips(loop))


def _trips(loop: Loop) -> int | None:
    """How many iterations a loop has; ``None`` when that is not known."""
    if not loop.is_counted:
        return None
    lower, upper, step = map(constant_of, (loop.lower, loop.upper, loop.step))
    return None if None in (lower, upper, step) or step < 1 else max(0, -(-(upper - lower) // step))


def _varies_in(inside: set[Operation], value: Value) -> bool:
    """Whether a value is computed by the operations of a loop, or is what the loop passes on."""
    op = value.defining_op
    return (value.block.parent_op if op is None else op) in inside


def _is_dealt_out(loop: Loop, pointer: Value, programs: frozenset[Operation]) -> bool:
    """Whether which tiles a loop takes depends on which program it is, which ``programs`` say, or on what an
    atomic says."""
    if loop.is_counted and not programs.isdisjoint(_sources(loop.lower)):
        return True
    return any(op.get_effects().is_atomic for op in _sources(pointer))


def _sources(value: Value) -> set[Operation]:
    """The operations that a value is computed from."""
    found: set[Operation] = set()
    left = [value]
    while left:
        op = left.pop().defining_op
        if op is not None and op not in found:
            found.add(op)
            left.extend(op.operands)
    return found


def _may_overlap(one: MemoryAccess, other: MemoryAccess, forms: LinearForms) -> bool:
    """Whether two tiles may lie over each other, but not at one place."""
    if one.pointer is other.pointer:
        return False
    try:
        first, second = forms.of(one.pointer), forms.of(other.pointer)
    except NotLinear:
        return True
    shape = T.shape_of(one.pointer.type)
    if first.wraps or second.wraps or shape != T.shape_of(other.pointer.type):
        return True
    if first.base is not second.base or first.steps != second.steps:
        return True
    return not _is_beside(add(first.start, second.start, -1), first.steps, shape, 2)


def _is_beside(
    moved: Polynomial, steps: tuple[Polynomial, ...], shape: tuple[int, ...], trips: int | None
) -> bool:
    """Whether a tile that moves by ``moved``, until it has been at ``trips`` places, moves by multiples of
    its size along a dimension: it lies beside where it was, or there. Across the rows of a tile it moves no
    further than to their end: a row whose length is known only when the program runs is taken to be long
    enough for the walk."""
    if any(len(step) != 1 for step, extent in zip(steps, shape) if extent > 1):
        return not moved
    terms = [(*next(iter(step.items())), extent) for step, extent in zip(steps, shape) if extent > 1]
    return not moved or any(
        _is_multiple(moved, values, factor * extent)
        and all(
            _is_clear(moved, outer, (values, factor * extent), trips)
            for outer in terms
            if abs(outer[1]) > abs(factor) or len(outer[0]) > len(values)
        )
        for values, factor, extent in terms
    )


def _is_multiple(moved: Polynomial, values: Monomial, factor: int) -> bool:
    """Whether all of it are multiples of ``factor`` times the product of ``values``."""
    return all(count % factor == 0 and _has(monomial, values) for monomial, count in moved.items())


def _has(monomial: Monomial, values: Monomial) -> bool:
    return not Counter(values) - Counter(monomial)


def _is_clear(
    moved: Polynomial, outer: tuple[Monomial, int, int], inner: tuple[Monomial, int], trips: int | None
) -> bool:
    """Whether what moves along a dimension does not come to lie on other rows of the dimension ``outer``: the
    values and the factor of its step, its extent. ``inner``: the same of the size along the former."""
    values, factor, extent = outer
    if values and not any(_has(monomial, values) for monomial in moved):
        return True
    if _is_multiple(moved, values, factor * extent):
        return True
    if trips is None or values or inner[0] or moved.keys() != {()}:
        return False
    return abs(moved[()]) * max(trips - 1, 0) + abs(inner[1]) <= abs(factor)


class Meetings:
    """Where CTAs meet: in front of the operations in ``before`` and behind those in ``after`` anyway; and in
    front of :attr:`added`, for the sake of ``pairs`` of accesses: in front of loops where that is enough."""

    def __init__(
        self,
        function: Function,
        pairs: Iterable[tuple[Operation, Operation]],
        before: Collection[Operation],
        after: Collection[Operation],
    ):
        self.before, self.after = before, after
        self.added: dict[Operation, None] = {}
        self._others: dict[Operation, set[Operation]] = {}
        for one, other in pairs:
            self._others.setdefault(one, set()).add(other)
            self._others.setdefault(other, set()).add(one)
        self._is_late = bool(self._others)
        while self._is_late:
            self._is_late = False
            self._block(function.body, frozenset())

    def _block(self, block: Block, pending: frozenset[Operation]) -> frozenset[Operation]:
        """The accesses that are pending behind a block."""
        for op in block.operations:
            pending = self._operation(op, frozenset() if op in self.added else pending)
        return pending

    def _operation(self, op: Operation, pending: frozenset[Operation]) -> frozenset[Operation]:
        if isinstance(op, Loop):
            return self._loop(op, pending)
        if op.regions:
            pending = frozenset().union(*(self._block(region.block, pending) for region in op.regions))
        others = self._others.get(op, set())
        if op in self.before:
            pending = frozenset()
        if not others.isdisjoint(pending) and not self._is_late:
            self.added[place := self._place(op)] = None
            pending = frozenset()
            self._is_late = place is not op  # what follows that place is to be looked at again
        if op in self.after:
            return frozenset()
        return pending | {op} if others else pending

    def _place(self, op: Operation) -> Operation:
        """Where to meet before ``op``: outside of loops that hold none of what it conflicts with."""
        place, others = op, self._others[op]
        for loop in loops_around(op):
            if not others.isdisjoint(loop.walk()):
                break
            place = loop
        return place

    def _loop(self, op: Loop, pending: frozenset[Operation]) -> frozenset[Operation]:
        """The body may run never, and after itself."""
        while True:
            here = reached = pending
            for region in op.regions:
                here = self._block(region.block, here)
                reached |= here
            if reached == pending:
                return pending
            pending = reached
