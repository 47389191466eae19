"""Functions of scalars on blocks.

The function is inlined once, with blocks in place of its scalars; where it branches on one, both sides are
computed and each element chooses (``control``). With ``pack`` the blocks are split first: element ``p`` of
each ``pack`` neighbours is in block ``p``.
"""

from __future__ import annotations

from typing import Any

from ptxforge.frontend.context import Context
from ptxforge.frontend.convert import broadcast_to, common_shape
from ptxforge.frontend.semantics import arguments
from ptxforge.frontend.semantics.registry import ArgumentProblem, implements
from ptxforge.frontend.semantics.shape import picked, reshaped
from ptxforge.frontend.values import TensorValue, describe
from ptxforge.ir.ops.shape import Join
from ptxforge.language import shape as language


@implements(language.map_elementwise)
def map_elementwise(ctx, scalar_fn, *args, pack=1):
    if not getattr(scalar_fn, "__ptxforge_jit__", False):
        raise ArgumentProblem("scalar_fn", f"must be a @ptxforge.jit function, is {describe(scalar_fn)}")
    if not args:
        raise ArgumentProblem("args", "must be one block at least")
    inputs = [arguments.tensor(ctx, value, "args") for value in args]
    shape: tuple[int, ...] = ()
    for value in inputs:
        shape = common_shape(shape, value.shape, "map_elementwise")
    count = arguments.static_int(pack, "pack")
    size = shape[-1] if shape else 1
    if count < 1 or count & (count - 1) or count > size:
        raise ArgumentProblem("pack", f"must be a power of two of at most {size}, is {count}")
    blocks = [part for value in inputs for part in _apart(ctx, broadcast_to(ctx, value, shape), count)]
    found = _called(ctx, scalar_fn, blocks)
    if len(found) % count:
        text = f"must return {count} values for each result, returns {len(found)}"
        raise ArgumentProblem("scalar_fn", text)
    results = tuple(_together(ctx, found[i : i + count]) for i in range(0, len(found), count))
    return results[0] if len(results) == 1 else results


def _called(ctx: Context, function: Any, blocks: list[TensorValue]) -> list[TensorValue]:
    """What the function returns, as blocks."""
    shape, saved = blocks[0].shape, ctx.elementwise
    ctx.elementwise = shape or None
    try:
        found = ctx.call(function, blocks)
    finally:
        ctx.elementwise = saved
    values = found if isinstance(found, tuple) else (found,)
    return [broadcast_to(ctx, arguments.tensor(ctx, value, "scalar_fn"), shape) for value in values]


def _apart(ctx: Context, x: TensorValue, count: int) -> list[TensorValue]:
    if count == 1:
        return [x]
    groups = reshaped(ctx, x, (*x.shape[:-1], x.shape[-1] // count, count))
    return [picked(ctx, groups, len(x.shape), index) for index in range(count)]


def _together(ctx: Context, parts: list[TensorValue]) -> TensorValue:
    """The inverse of :func:`_apart`."""
    if len(parts) == 1:
        return parts[0]
    even, odd = _together(ctx, parts[0::2]), _together(ctx, parts[1::2])
    pairs = ctx.op(Join, even, odd)
    return reshaped(ctx, pairs, (*pairs.shape[:-2], 2 * pairs.shape[-2]))
