"""Local rewriting to a fixed point.

A pattern is a function ``pattern(op, rewriter) -> bool``: it looks at one operation and either changes the IR
through the rewriter and returns True, or returns False and has changed nothing.

    RULES = PatternSet()

    @RULES.on(AddI)
    def add_zero(op, rewriter):
        '''x + 0 → x'''
        if constant_of(op.rhs) != 0:
            return False
        return rewriter.replace(op, op.lhs)

    rewrite(function, RULES)

The driver keeps a worklist. At first it holds every operation in textual order; whenever something changes,
the operations that might now match come back: users of a replaced value, operands that lost a use. Along the
way it erases operations without uses or effects, and folds those whose operands are constants (uniform
tensors included) by their own ``evaluate``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ptxforge.ir import types as T
from ptxforge.ir.builder import Builder, MakesValues
from ptxforge.ir.core import Block, Function, Operation, Value
from ptxforge.ir.definition import ELEMENTWISE, HINTS, REARRANGING, UNIFORM
from ptxforge.ir.ops.shape import Constant
from ptxforge.ir.printer import print_function
from ptxforge.support.errors import InternalCompilerError

Pattern = Callable[[Operation, "Rewriter"], bool]


class PatternSet:
    """Patterns by the class of the operation that they look at."""

    def __init__(self) -> None:
        self.by_kind: dict[type[Operation], list[Pattern]] = {}

    def on(self, *kinds: type[Operation]) -> Callable[[Pattern], Pattern]:
        """Decorator: try the pattern on operations of these classes (exactly these, no subclasses)."""

        def register(pattern: Pattern) -> Pattern:
            for kind in kinds:
                self.by_kind.setdefault(kind, []).append(pattern)
            return pattern

        return register

    @classmethod
    def union(cls, *sets: PatternSet) -> PatternSet:
        """All patterns of ``sets``, those of earlier sets tried first."""
        result = cls()
        for each in sets:
            for kind, patterns in each.by_kind.items():
                result.by_kind.setdefault(kind, []).extend(patterns)
        return result


def rewrite(function: Function, patterns: PatternSet, fold: bool = True) -> bool:
    """Apply ``patterns`` until none matches; whether anything changed (erasing dead operations counts)."""
    return Rewriter(function, patterns, fold).run()


def constant_of(value: Value) -> int | float | bool | None:
    """The constant that a scalar is, or that a tensor has everywhere; ``None`` when it is not known."""
    op = value.defining_op
    return op.attributes["value"] if type(op) is Constant else None


def constant_everywhere(value: Value) -> int | float | bool | None:
    """:func:`constant_of`, also before canonicalization has folded uniform tensors."""
    op = value.defining_op
    is_splat = op is not None and UNIFORM in op.traits and op.operands
    return constant_of(op.operands[0] if is_splat else value)


def is_dead(op: Operation) -> bool:
    """Whether the operation may go: no result is used and nothing in it acts on the world."""
    return not op.is_used and not op.is_terminator and _is_removable(op)


def erase_dead(function: Function) -> None:
    """Erase what may go, users before what they use."""
    for op in reversed(function.walk()):
        if is_dead(op):
            op.discard()


def _is_removable(op: Operation) -> bool:
    if not op.get_effects().is_removable:
        return False
    if not op.regions:
        return True
    return all(_is_removable(inner) for region in op.regions for inner in region.block.operations)


def fold(op: Operation) -> int | float | bool | None:
    """The constant that the operation computes, from constant operands; ``None`` when there is none."""
    if len(op.results) != 1 or not op.operands:
        return None
    values = []
    for operand in op.operands:
        value = constant_of(operand)
        if value is None:
            return None
        values.append(value)
    return evaluate_constants(op, values)


def evaluate_constants(op: Operation, values: Sequence[int | float | bool]) -> int | float | bool | None:
    """The only result of the operation when its operands are ``values`` everywhere; ``None`` when that is not
    one number."""
    if not isinstance(T.element_type(op.result.type), T.ScalarType):
        return None
    if REARRANGING in op.traits:
        return values[0]
    if ELEMENTWISE not in op.traits or not hasattr(op, "evaluate") or not op.says_all(values):
        return None
    arrays = [np.full(1, value, T.element_type(v.type).numpy) for value, v in zip(values, op.operands)]
    return python_value(op.evaluate(*arrays)[0], T.element_type(op.result.type))


def keep_hints(op: Operation, value: Value) -> None:
    """What the user promised of the result of ``op`` is true of ``value``, which will stand for it. (Not
    beyond the block: a promise made in a branch holds there only.)"""
    definer = value.defining_op
    if definer is None or definer.parent is not op.parent or type(definer) is Constant:
        return
    for key in HINTS & op.attributes.keys():
        definer.attributes.setdefault(key, op.attributes[key])


def python_value(value: Any, element: T.ScalarType) -> int | float | bool:
    """A numpy scalar as the Python value that a ``constant`` of ``element`` holds."""
    if element is T.I1:
        return bool(value)
    return float(value) if element.is_float else int(value)


class Rewriter(MakesValues):
    """What a pattern may change, and the worklist behind it."""

    def __init__(self, function: Function, patterns: PatternSet, fold: bool):
        self.function = function
        self.patterns = patterns.by_kind
        self.fold = fold
        self.changed = False
        self.at: Operation | None = None
        self.worklist: list[Operation] = [*reversed(function.walk())]
        self.pending: set[Operation] = set(self.worklist)

    # -- for patterns ----------------------------------------------------------------------------------

    def create(
        self, kind: type[Operation], /, *operands: Value, before: Operation | None = None, **more: Any
    ) -> Operation:
        """A new operation in front of ``before`` (default: the matched one); arguments as
        ``Builder.create``."""
        op = Builder.at(before if before is not None else self.at).create(kind, *operands, **more)
        self.push(op)
        return op

    def replace(self, op: Operation, *values: Value) -> bool:
        """Let ``values`` stand for the results of ``op``, and erase it."""
        for old, new in zip(op.results, values, strict=True):
            self.replace_value(old, new)
            keep_hints(op, new)
        return self.erase(op)

    def replace_value(self, old: Value, new: Value) -> bool:
        """Make all uses of ``old`` uses of ``new``."""
        if not new.hint:
            new.hint = old.hint
        for user in old.users:
            self.push(user)
        old.replace_all_uses_with(new)
        return True

    def erase(self, op: Operation) -> bool:
        for region in op.regions:
            self._push_definers(region.block)
        for value in op.operands:
            self._push_definer(value)
        op.erase()
        return True

    def set_operands(self, op: Operation, values: Sequence[Value]) -> bool:
        for value in op.operands:
            self._push_definer(value)
        op.set_operands(values)
        return self.update(op)

    def update(self, op: Operation) -> bool:
        """``op`` was changed in place: look at it and its users again."""
        self.push(op)
        for result in op.results:
            for user in result.users:
                self.push(user)
        return True

    def inline_before(self, block: Block, place: Operation) -> Sequence[Value]:
        """Move the operations of ``block`` in front of ``place``; gives the values that its terminator
        yields."""
        *body, last = list(block.operations)
        for op in body:
            op.move_before(place)
            self.update(op)
        values = last.operands
        last.erase()
        return values

    def push(self, op: Operation) -> None:
        if op not in self.pending:
            self.pending.add(op)
            self.worklist.append(op)

    # -- the driver ------------------------------------------------------------------------------------

    def run(self) -> bool:
        budget = 200 * (len(self.worklist) + 10)
        worklist, pending, patterns = self.worklist, self.pending, self.patterns
        while worklist:
            op = worklist.pop()
            pending.discard(op)
            if op.parent is None:
                continue  # erased meanwhile
            may_fold = self.fold and op.operands and op.operands[0].defining_op.__class__ is Constant
            if not may_fold and op.__class__ not in patterns and op.is_used:
                continue
            if self._step(op, may_fold):
                self.changed = True
                if op.parent is not None:
                    self.push(op)  # changed in place: other patterns may match now
                budget -= 1
                if budget < 0:
                    text = print_function(
                        self.function, notes={op: "here"} if op.parent is not None else None
                    )
                    raise InternalCompilerError(f"rewriting does not come to an end at '{op.name}'\n{text}")
        return self.changed

    def _step(self, op: Operation, may_fold: bool) -> bool:
        if not op.is_used and is_dead(op):
            return self.erase(op)
        self.at = op
        if may_fold:
            value = fold(op)
            if value is not None:
                return self.replace(op, self.constant(value, op.result.type))
        for pattern in self.patterns.get(type(op), ()):
            if pattern(op, self):
                return True
        return False

    def _push_definer(self, value: Value) -> None:
        if value.defining_op is not None:
            self.push(value.defining_op)

    def _push_definers(self, block: Block) -> None:
        """What nested operations used may be without uses when they go."""
        for op in block.walk():
            for value in op.operands:
                self._push_definer(value)
