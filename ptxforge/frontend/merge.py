"""Joining what two branches leave behind: the results of an ``if`` operation.

A name (or returned value) that differs between the branches becomes a result. Tuples join part by part.
Numbers beside a runtime value take its type, where their kind allows.
"""

from __future__ import annotations

from typing import Any

import attrs

from ptxforge.frontend.context import Context, default_dtype
from ptxforge.frontend.promote import splat
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
from ptxforge.frontend.visitor import MayReturn, Outcome, Returned
from ptxforge.ir.core import Block, Region
from ptxforge.ir.ops.cast import IntToPtr
from ptxforge.ir.ops.control import If, Yield
from ptxforge.language import types as L
from ptxforge.language.aggregates import Aggregate


@attrs.define(slots=True, eq=False)
class Branch:
    """One side of an ``if``: its block, the names at its end and its outcome."""

    block: Block
    scope: dict[str, Any]
    outcome: Outcome = None


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
            return Exit(map(self._join_kept, a, b))
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

    def _join_kept(self, a: Any, b: Any) -> Any:
        for side in (a, b):
            if isinstance(side, Undefined) and side is not NOTHING:
                return side
        try:
            return self.join(a, b)
        except Mismatch as mismatch:
            return Undefined(
                f"this has different types on different ways out of a loop: {mismatch.message}",
                hint="cast it to one type, or use different names",
            )

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
