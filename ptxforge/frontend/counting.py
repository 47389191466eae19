"""How the index of a ``for`` over a ``range`` is counted, and what its variable holds after the loop."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from ptxforge.frontend import source
from ptxforge.frontend.context import Context, default_dtype
from ptxforge.frontend.convert import cast, common_integer
from ptxforge.frontend.semantics import arith
from ptxforge.frontend.values import Readable, TensorValue, Undefined, describe, dtype_name
from ptxforge.frontend.visitor import Visitor
from ptxforge.ir.ops.arith import AddI
from ptxforge.language import types as L
from ptxforge.support.errors import TypeMismatchError


def index_dtype(v: Visitor, node: ast.AST, *bounds: Any) -> L.dtype:
    """The common integer type of the bounds and the step, at least 32 bits wide."""
    dtype = None
    for bound in bounds:
        is_block = isinstance(bound, TensorValue) and bound.is_block and bound.shape != v.ctx.elementwise
        if not isinstance(bound, (TensorValue, int)) or is_block:
            raise TypeMismatchError(f"bounds of range() are integers, not {describe(bound)}").at(
                v.locate(node)
            )
        value = bound.dtype if isinstance(bound, TensorValue) else default_dtype(bound)
        if isinstance(value, L.pointer_type) or not value.is_int():
            hint = "use // for whole numbers" if value.is_floating() else ""
            raise TypeMismatchError(f"bounds of range() are integers, not {dtype_name(value)}", hint=hint).at(
                v.locate(node)
            )
        dtype = value if dtype is None else common_integer(dtype, value)
    return dtype if dtype.int_bitwidth >= 32 else L.int32


def as_index(v: Visitor, bound: Any, dtype: L.dtype) -> TensorValue:
    """A bound in the type that is counted in."""
    return cast(v.ctx, bound, dtype) if isinstance(bound, TensorValue) else v.ctx.constant(bound, dtype)


def descending_span(v: Visitor, first: TensorValue, last: TensorValue) -> TensorValue:
    """With bounds exchanged, ``range(a, b, -s)`` takes the values ``a - (i - b)`` for ``i`` in ``range(b, a,
    s)``."""
    from_number, to_number = v.ctx.scalar_of(first), v.ctx.scalar_of(last)
    if from_number is not None and to_number is not None:
        return v.ctx.constant(from_number + to_number, first.dtype)
    return v.ctx.op(AddI, first, last)


def trip_count(v: Visitor, first: TensorValue, last: TensorValue, stride: TensorValue) -> TensorValue:
    """How often ``range(first, last, stride)`` runs, as its bounds' type holds it: bits of an unsigned
    number."""
    ctx = v.ctx
    runs = arith.compare(ctx, first, last, "<")
    distance = arith.sub(ctx, last, first)
    if ctx.scalar_of(stride) != 1:
        unsigned = L.uint64 if first.dtype is L.int64 else L.uint32
        whole = cast(ctx, arith.sub(ctx, distance, 1), unsigned)
        quotient = arith.floordiv(ctx, whole, cast(ctx, stride, unsigned))
        distance = cast(ctx, arith.add(ctx, quotient, 1), first.dtype)
    return arith.where(ctx, runs, distance, 0)


def value_before(v: Visitor, node: ast.For, dtype: L.dtype) -> Any:
    """What the loop's variable has before the loop: an integer of its type, ``None`` where it has no value.
    Else :class:`Undefined`, for it has no value after the loop either."""
    name = node.target.id if isinstance(node.target, ast.Name) else ""
    value = v.scope.get(name)
    if not name or name in source.assigned_in(node.body) or (value is None and name in v.scope):
        return Undefined("")
    if isinstance(value, Undefined):
        return value if isinstance(value, Readable) else None
    is_alike = isinstance(value, TensorValue) and not value.is_block and value.dtype == dtype
    return value if value is None or is_alike or type(value) is int else Undefined("")


def keep_last_value(
    v: Visitor, node: ast.For, bounds: tuple[TensorValue, ...], before: Any,
    seen: Callable[[TensorValue], TensorValue], end: TensorValue | None = None,
) -> None:  # fmt: skip
    """The loop's variable keeps its last value, if somebody reads it; where the loop does not run, the one
    that it had before, else one step less than the first. ``end`` is one step more than the last, if a
    ``break`` decides it."""
    if isinstance(before, Undefined) and not isinstance(before, Readable):
        return
    first, last, stride = bounds

    def compute(ctx: Context) -> TensorValue:
        steps = arith.sub(ctx, trip_count(v, first, last, stride), 1) if end is None else -1
        value = seen(arith.add(ctx, first if end is None else end, arith.mul(ctx, stride, steps)))
        known = before.read(ctx) if isinstance(before, Readable) else before
        if known is None:
            return value
        return arith.where(ctx, arith.compare(ctx, first, last, "<"), value, known)

    lost = v.scope.get(node.target.id)
    if isinstance(lost, Undefined):
        v.scope[node.target.id] = Readable(compute, lost.reason, lost.hint)
