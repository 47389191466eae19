"""Loops in functions of scalars that run on blocks (``map_elementwise``), where each element runs a loop as
often as it wants: the block runs it until no element goes on, and who has stopped keeps its values.

    while n != 1:               going = the elements that come here
        n = step(n)             while any(going):
                                    if going:
                                        if n != 1:
                                            n = step(n)
                                        else:
                                            going = False

The inner ``if`` is one that elements decide: what it assigns is chosen by ``going``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ptxforge.frontend.context import Context
from ptxforge.frontend.convert import cast, not_zero, splat
from ptxforge.frontend.semantics import arith
from ptxforge.frontend.semantics.reduce import combine_with
from ptxforge.frontend.values import TensorValue
from ptxforge.frontend.visitor import Outcome, Visitor
from ptxforge.ir.ops.arith import OrI
from ptxforge.ir.ops.reduce import Reduce
from ptxforge.ir.ops.shape import Reshape
from ptxforge.language import types as L


class PerElement(Exception):
    """A loop's condition turns out to be one that elements decide."""


def by_elements(v: Visitor, build: Callable[[bool], Outcome], each: bool) -> Outcome:
    """``build(False)``, and where that meets a condition that elements decide, or ``each`` says so before,
    ``build(True)``."""
    if v.ctx.elementwise is None:
        return build(False)
    saved = dict(v.scope)
    try:
        return build(each)
    except PerElement:
        v.scope = saved
        return build(True)


def stretched(ctx: Context, value: TensorValue) -> TensorValue:
    """A scalar as a block with a value for each element."""
    is_alone = ctx.elementwise is not None and not value.is_block
    return splat(ctx, value, ctx.elementwise) if is_alone else value


def active(ctx: Context) -> TensorValue:
    """Which elements come here: those for which all conditions around are as they must be."""
    flags = [flag if wanted else arith.logical_not(ctx, flag) for flag, wanted in ctx.conditions]
    return functools.reduce(lambda x, y: arith.logical_and(ctx, x, y), flags, _all(ctx))


def _all(ctx: Context) -> TensorValue:
    return stretched(ctx, ctx.constant(True, L.int1))


def any_of(ctx: Context, flags: TensorValue) -> TensorValue:
    """Whether one of the elements is true."""
    counted = cast(ctx, flags, L.int32)
    if len(flags.shape) > 1:
        counted = ctx.typed(Reshape, counted, dtype=L.int32, shape=(counted.value.type.numel,))

    def either(left: Any, right: Any) -> list[TensorValue]:
        return [ctx.op(OrI, left[0], right[0])]

    return not_zero(ctx, combine_with(ctx, Reduce, [counted], 0, either)[0])
