"""``if`` and conditional expressions.

An ``if`` on a static condition compiles only the branch that is taken. On a runtime scalar both become
regions of an ``if`` operation, and what they leave behind is joined (see ``merge``). A ``return`` under a
runtime ``if``:

    if done:               if done: yield
        return      →      else:    rest; yield
    rest

When one branch returns and the other goes on, the rest of the function moves into the other one. When a
branch returns on some of its paths only, a flag says whether it has, and the rest stands under ``if not
flag``.

A name (or returned value) that differs between the branches becomes a result. Tuples join part by part.
Numbers beside a runtime value take its type, where their kind allows.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs

from ptxforge.frontend import source
from ptxforge.frontend.context import Context, default_dtype
from ptxforge.frontend.convert import not_zero, splat
from ptxforge.frontend.semantics.reduce import only_element
from ptxforge.frontend.values import (
    COMPOSITES,
    Exit,
    TensorValue,
    Undefined,
    alike,
    describe,
    is_number,
    make_tuple,
    map_leaves,
)
from ptxforge.frontend.visitor import MayReturn, Outcome, Returned, Visitor, handles
from ptxforge.ir.core import Block, Operation, Region
from ptxforge.ir.ops.arith import Select
from ptxforge.ir.ops.cast import IntToPtr
from ptxforge.ir.ops.control import If, Structured, Yield
from ptxforge.language import types as L
from ptxforge.language.core import Aggregate
from ptxforge.support.errors import CompilationError, TypeMismatchError, UnsupportedSyntaxError


@attrs.define(slots=True, eq=False)
class Branch:
    """One side of an ``if``: its block, the names at its end and its outcome."""

    block: Block
    scope: dict[str, Any]
    outcome: Outcome = None
    condition: tuple[TensorValue, bool] | None = None
    """The flag that must be so for its side to be taken, where elements decide."""


@attrs.frozen(slots=True)
class _Result:
    """Stands for result ``index`` of the ``if`` that is not made yet."""

    index: int
    dtype: L.dtype | L.pointer_type


class Mismatch(Exception):
    """Two values cannot be joined. ``message`` says how they differ."""

    def __init__(self, message: str):
        super().__init__(message)
        self.message = message


NOTHING = Undefined("a value of a branch that has returned")


class Merge:
    """Collects pairs of values to yield from the two branches, then makes the ``if`` operation."""

    def __init__(self, ctx: Context, then: Branch, other: Branch):
        self.ctx, self.then, self.other = ctx, then, other
        self.pairs: list[tuple[TensorValue, TensorValue]] = []

    def join(self, a: Any, b: Any) -> Any:
        """What holds after the ``if`` when the branches end with ``a`` and ``b``. :data:`NOTHING` on one side
        means that its value is never looked at. Raises :class:`Mismatch`."""
        if a is b:
            return a
        if a is NOTHING or b is NOTHING:
            return self._join_with_nothing(a, b)
        if isinstance(a, COMPOSITES) and describe(a) != describe(b):
            raise Mismatch(f"{describe(a)} and {describe(b)}")
        if isinstance(a, Exit):
            what = "this has different types on different ways out of a loop"
            return Exit(self.join_kept(x, y, what) for x, y in zip(a, b))
        if isinstance(a, tuple) and isinstance(b, tuple) and alike(a, b):
            return make_tuple(a, [self.join(x, y) for x, y in zip(a, b)])
        if not isinstance(a, TensorValue) and not isinstance(b, TensorValue) and _same_static(a, b):
            return a
        if not (_can_run(a) and _can_run(b)):
            raise Mismatch(f"{describe(a)} and {describe(b)}")
        a, b = self._runtime(a, b, self.then), self._runtime(b, a, self.other)
        if self.ctx.elementwise is not None:
            a, b = self._stretched(a, self.then), self._stretched(b, self.other)
        if a.dtype != b.dtype or a.shape != b.shape:
            raise Mismatch(f"{describe(a)} and {describe(b)}")
        return self._pair(a, b)

    def join_kept(self, a: Any, b: Any, complaint: str) -> Any:
        """As :meth:`join`, but what cannot be joined is undefined from here on, with ``complaint`` for who
        uses it."""
        for side in (a, b):
            if isinstance(side, Undefined) and side is not NOTHING:
                return Undefined(side.reason, side.hint)
        try:
            return self.join(a, b)
        except Mismatch as mismatch:
            hint = "cast it to one type, or use different names"
            return Undefined(f"{complaint}: {mismatch.message}", hint=hint)

    def _pair(self, a: TensorValue, b: TensorValue) -> TensorValue | _Result:
        if a.value is b.value:
            return a
        self.pairs.append((a, b))
        return _Result(len(self.pairs) - 1, a.dtype)

    def _stretched(self, value: TensorValue, branch: Branch) -> TensorValue:
        """A scalar as a block: each element chooses for itself."""
        with self.ctx.builder.inside(branch.block):
            return value if value.is_block else splat(self.ctx, value, self.ctx.elementwise)

    def _join_with_nothing(self, a: Any, b: Any) -> Any:
        present, absent_in = (b, self.then) if a is NOTHING else (a, self.other)
        present_in = self.other if a is NOTHING else self.then

        # What a loop carries, and a field of an object, may be known while compiling.
        keeps_numbers = isinstance(present, (Exit, Aggregate))

        def leaf(value: Any) -> Any:
            if is_number(value) and not keeps_numbers:
                with self.ctx.builder.inside(present_in.block):
                    value = self.ctx.to_tensor(value)
            if not isinstance(value, TensorValue):
                return value
            if self.ctx.elementwise is not None:
                value = self._stretched(value, present_in)
            with self.ctx.builder.inside(absent_in.block):
                placeholder = zero_like(self.ctx, value)
            return self._pair(placeholder, value) if a is NOTHING else self._pair(value, placeholder)

        return map_leaves(leaf, present)

    def _runtime(self, value: Any, partner: Any, branch: Branch) -> TensorValue:
        """A number as a scalar made in its branch: in its partner's type where its kind allows, else in its
        own."""
        if isinstance(value, TensorValue):
            return value
        dtype = default_dtype(value)
        if isinstance(partner, TensorValue) and not partner.is_pointer:
            dtype = partner.dtype if dtype.kind() <= partner.dtype.kind() else dtype
        with self.ctx.builder.inside(branch.block):
            return self.ctx.constant(value, dtype)

    def finish(self, condition: TensorValue) -> list[TensorValue]:
        """Make the ``if`` (its branches become regions) and give its results."""
        for branch, side in ((self.then, 0), (self.other, 1)):
            with self.ctx.builder.inside(branch.block):
                self.ctx.builder.create(Yield, *[pair[side].value for pair in self.pairs])
        op = self.ctx.builder.create(
            If,
            condition.value,
            result_types=[a.value.type for a, _ in self.pairs],
            regions=[Region(self.then.block), Region(self.other.block)],
        )
        results = []
        for result, (a, b) in zip(op.results, self.pairs):
            result.hint = a.value.hint or b.value.hint
            results.append(TensorValue(result, a.dtype))
        return results


def resolve(value: Any, results: list[TensorValue]) -> Any:
    """A joined value, once the ``if`` exists."""
    return map_leaves(lambda leaf: results[leaf.index] if isinstance(leaf, _Result) else leaf, value)


def _can_run(value: Any) -> bool:
    return isinstance(value, TensorValue) or is_number(value)


def _same_static(a: Any, b: Any) -> bool:
    return type(a) is type(b) and not isinstance(a, Undefined) and bool(a == b)


def zero_like(ctx: Context, value: TensorValue) -> TensorValue:
    """Some value of that type: what a branch yields for a name that nobody will read."""
    if not value.is_pointer:
        return ctx.constant(0, value.dtype, value.shape)
    null = ctx.typed(IntToPtr, ctx.constant(0, L.int64), dtype=value.dtype, shape=())
    return splat(ctx, null, value.shape)


def returned_value(outcome: Outcome) -> Any:
    """The value that a branch has (perhaps) returned; :data:`NOTHING` when it has not."""
    return NOTHING if outcome is None else outcome.value


def flag_of(ctx: Context, branch: Branch) -> TensorValue:
    """Whether a branch has returned, as int1 made in that branch."""
    if isinstance(branch.outcome, MayReturn):
        return branch.outcome.flag
    with ctx.builder.inside(branch.block):
        return ctx.constant(isinstance(branch.outcome, Returned), L.int1)


def scalar_condition(v: Visitor, node: ast.expr, value: TensorValue) -> TensorValue:
    """A runtime condition as int1; of a block, its only element. Raises for a block of several."""
    v.at(node)
    if value.is_block and value.value.type.numel == 1:
        value = only_element(v.ctx, value)
    if value.is_block and value.shape != v.ctx.elementwise:
        raise TypeMismatchError(
            f"a condition must be a scalar, is {describe(value)}",
            hint="use tl.where to choose element by element",
        ).at(v.locate(node))
    return not_zero(v.ctx, value)


@handles(ast.If)
def if_(v: Visitor, node: ast.If, rest: Sequence[ast.stmt]) -> tuple[Outcome, bool]:
    """The outcome, and whether the statements after the ``if`` have been run, too."""
    try:
        test = v.visit(node.test)
        if not isinstance(test, TensorValue):
            return v.execute(node.body if test else node.orelse), False
        condition = scalar_condition(v, node.test, test)
        return _runtime_if(v, node, condition, rest)
    except CompilationError as error:
        error.at(v.locate(node))
        raise


def _run(v: Visitor, branch: Branch, work: Callable[[], Outcome]) -> None:
    """Go on with a branch."""
    with v.branch(branch.block, branch.scope), _under(v, branch.condition):
        branch.outcome = work()
        branch.scope = v.scope


@contextlib.contextmanager
def _under(v: Visitor, condition: tuple[TensorValue, bool] | None) -> Iterator[None]:
    """Within the ``with``, only those elements go on for which the condition is so."""
    saved = v.ctx.conditions
    if condition is not None:
        v.ctx.conditions = (*saved, condition)
    try:
        yield
    finally:
        v.ctx.conditions = saved


def _sides(v: Visitor, flag: TensorValue) -> tuple[Branch, Branch]:
    """Both sides of a condition, not built yet."""
    then, other = Branch(Block(), dict(v.scope)), Branch(Block(), dict(v.scope))
    if flag.is_block:
        then.condition, other.condition = (flag, True), (flag, False)
    return then, other


def _runtime_if(
    v: Visitor, node: ast.If, condition: TensorValue, rest: Sequence[ast.stmt]
) -> tuple[Outcome, bool]:
    then, other = _sides(v, condition)
    _run(v, then, lambda: v.execute(node.body))
    _run(v, other, lambda: v.execute(node.orelse))
    took_rest = False
    if rest and isinstance(then.outcome, Returned) != isinstance(other.outcome, Returned):
        going_on = other if isinstance(then.outcome, Returned) else then
        if going_on.outcome is None:
            _run(v, going_on, lambda: v.execute(rest))
            took_rest = True
    v.at(node)
    return _join(v, node, condition, then, other), took_rest


def _join(v: Visitor, node: ast.AST, condition: TensorValue, then: Branch, other: Branch) -> Outcome:
    """Make the ``if`` operation; afterwards the scope holds what both branches agree on."""
    merge = Merge(v.ctx, then, other)
    outcomes = (then.outcome, other.outcome)
    value = flag = None
    if outcomes != (None, None):
        value = _join_returned(v, node, merge, then, other)
    both_returned = all(isinstance(outcome, Returned) for outcome in outcomes)
    if outcomes != (None, None) and not both_returned:
        flag = merge.join(flag_of(v.ctx, then), flag_of(v.ctx, other))
    scope = v.scope if both_returned else _join_scopes(v, node, merge, then, other)
    results = _choose(v, condition, merge) if condition.is_block else merge.finish(condition)
    v.scope = (
        {name: resolve(joined, results) for name, joined in scope.items()} if scope is not v.scope else scope
    )
    if outcomes == (None, None):
        return None
    if both_returned:
        return Returned(resolve(value, results))
    return MayReturn(resolve(flag, results), resolve(value, results))


def _join_returned(v: Visitor, node: ast.AST, merge: Merge, then: Branch, other: Branch) -> Any:
    try:
        return merge.join(returned_value(then.outcome), returned_value(other.outcome))
    except Mismatch as mismatch:
        others = (part for statement in getattr(node, "orelse", ()) for part in ast.walk(statement))
        place = next((part for part in others if isinstance(part, ast.Return)), node)
        raise TypeMismatchError(
            f"'{v.source.name}' returns different types on different paths: {mismatch.message}"
        ).at(v.locate(place)) from None


_ABSENT = Undefined("absent")


def _join_scopes(v: Visitor, node: ast.AST, merge: Merge, then: Branch, other: Branch) -> dict[str, Any]:
    joined = {}
    for name in [*then.scope, *(name for name in other.scope if name not in then.scope)]:
        a, b = then.scope.get(name, _ABSENT), other.scope.get(name, _ABSENT)
        # Who has returned does not come here: what it calls by that name is never looked at.
        before = v.scope.get(name, _ABSENT)
        if isinstance(then.outcome, Returned):
            a = before if b is before else NOTHING
        if isinstance(other.outcome, Returned):
            b = before if a is before else NOTHING
        if name in v.scope or source.is_read_outside(name, node, v.source.tree):
            joined[name] = _join_name(v, node, merge, name, a, b)
        else:
            joined[name] = _only_in_branch(v, node, name)
    return joined


def _join_name(v: Visitor, node: ast.AST, merge: Merge, name: str, a: Any, b: Any) -> Any:
    if a is b:
        return a
    if _ABSENT in (a, b):
        return _only_in_branch(v, node, name)
    place = f"the 'if' at line {_line(v, node)}"
    return merge.join_kept(a, b, f"'{name}' has different types after the branches of {place}")


def _only_in_branch(v: Visitor, node: ast.AST, name: str) -> Undefined:
    return Undefined(
        f"'{name}' has a value in only one branch of the 'if' at line {_line(v, node)}",
        hint="give it a value before the 'if'",
    )


def _line(v: Visitor, node: ast.AST) -> int:
    return node.lineno + v.source.offset


def unless_returned(v: Visitor, perhaps: MayReturn, rest: Callable[[], Outcome], node: ast.AST) -> Outcome:
    """Go on after something that has perhaps returned: run ``rest`` under ``if not flag``."""
    then, other = _sides(v, perhaps.flag)
    then.outcome = Returned(perhaps.value)
    _run(v, other, rest)
    v.at(node)
    return _join(v, node, perhaps.flag, then, other)


handles(MayReturn)(unless_returned)


@handles(ast.IfExp)
def conditional(v: Visitor, node: ast.IfExp) -> Any:
    """``a if condition else b``: only one of them is evaluated."""
    test = v.visit(node.test)
    if not isinstance(test, TensorValue):
        return v.visit(node.body if test else node.orelse)
    condition = scalar_condition(v, node.test, test)
    then, other = _sides(v, condition)
    sides = []
    for branch, side in ((then, node.body), (other, node.orelse)):
        with v.branch(branch.block, branch.scope), _under(v, branch.condition):
            sides.append(v.visit(side))
    v.at(node)
    merge = Merge(v.ctx, then, other)
    try:
        joined = merge.join(*sides)
    except Mismatch as mismatch:
        raise TypeMismatchError(
            f"the two values of this expression have different types: {mismatch.message}"
        ) from None
    if condition.is_block:
        return resolve(joined, _choose(v, condition, merge))
    if _is_cheap(then.block) and _is_cheap(other.block):
        return resolve(joined, _select(v, condition, merge))
    return resolve(joined, merge.finish(condition))


def _is_cheap(block: Block) -> bool:
    """Whether both sides may as well be computed: nothing but arithmetic."""
    return all(op.is_speculatable and not op.regions for op in block.operations)


def _choose(v: Visitor, condition: TensorValue, merge: Merge) -> list[TensorValue]:
    """Where elements decide for themselves: both branches for all of them, and a choice."""
    for branch in (merge.then, merge.other):
        for op in branch.block.operations:
            if not _can_be_for_all(op):
                raise UnsupportedSyntaxError(
                    f"'{op.name}' cannot stand under a condition that elements decide for themselves",
                    hint="only arithmetic can: load before, and store after",
                ).at(op.location)
    return _select(v, condition, merge)


def _can_be_for_all(op: Operation) -> bool:
    """Arithmetic, and loops and branches of it: a loop that would not end for elements that do not take part
    has ended for these before (``element_loops``)."""
    if not op.regions:
        return op.is_speculatable
    return isinstance(op, Structured) and op.is_pure and all(
        isinstance(inner, Structured) or "partial" not in inner.traits for inner in op.walk()
    )  # fmt: skip


def _select(v: Visitor, condition: TensorValue, merge: Merge) -> list[TensorValue]:
    """Compute both branches here, and choose."""
    builder = v.ctx.builder
    for branch in (merge.then, merge.other):
        for op in branch.block.operations:
            builder.insert(op.remove())
    results = []
    for a, b in merge.pairs:
        mask = condition if condition.is_block else splat(v.ctx, condition, a.shape)
        results.append(TensorValue(builder.value(Select, mask.value, a.value, b.value), a.dtype))
    return results
