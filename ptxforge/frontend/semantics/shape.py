"""Shapes: reshaping, broadcasting, joining and moving elements."""

from __future__ import annotations

import math
from typing import Any

from ptxforge.frontend import convert
from ptxforge.frontend.context import Context
from ptxforge.frontend.convert import broadcast_to as stretch
from ptxforge.frontend.convert import common_shape
from ptxforge.frontend.semantics import arguments, arith
from ptxforge.frontend.semantics.memory import mask_argument
from ptxforge.frontend.semantics.reduce import expand, only_element, positions
from ptxforge.frontend.semantics.registry import ArgumentProblem, implements
from ptxforge.frontend.values import TensorValue, describe
from ptxforge.ir.ops import shape as S
from ptxforge.ir.ops.shape import Join
from ptxforge.language import shape as language
from ptxforge.language import types as L
from ptxforge.support.errors import TypeMismatchError


@implements(language.broadcast)
def broadcast(ctx, input, other):
    return convert.broadcast(
        ctx, arguments.tensor(ctx, input, "input"), arguments.tensor(ctx, other, "other")
    )


@implements(language.broadcast_to)
def broadcast_to(ctx, input, *shape):
    sizes = arguments.tile_shape(arguments.variadic_shape(shape))
    try:
        return stretch(ctx, arguments.tensor(ctx, input, "input"), sizes)
    except TypeMismatchError as error:
        raise ArgumentProblem("shape", error.message) from None


@implements(language.expand_dims)
def expand_dims(ctx, input, axis):
    x = arguments.tensor(ctx, input, "input")
    wanted = axis if isinstance(axis, tuple) else (axis,)
    axes = sorted(arguments.axis_of(a, len(x.shape), extra=len(wanted)) for a in wanted)
    if len(set(axes)) != len(axes):
        raise ArgumentProblem("axis", f"names a dimension twice: {axes}")
    for index in axes:
        x = expand(ctx, x, index)
    return x


def reshaped(ctx: Context, x: TensorValue, sizes: tuple[int, ...], can_reorder: bool = False) -> TensorValue:
    """The elements of ``x`` in row-major order at another shape."""
    if x.shape == sizes:
        return x
    wanted, held = math.prod(sizes), math.prod(x.shape)
    if wanted != held:
        raise ArgumentProblem(
            "shape", f"{list(sizes)} has {wanted} elements, the input {list(x.shape)} has {held}"
        )
    if not x.is_block:
        return stretch(ctx, x, sizes)
    return ctx.typed(
        S.Reshape, x, dtype=x.dtype, shape=sizes, **({"allow_reorder": True} if can_reorder else {})
    )


@implements(language.reshape)
def reshape(ctx, input, *shape, can_reorder=False):
    sizes = arguments.tile_shape(arguments.variadic_shape(shape))
    reorder = arguments.static_bool(can_reorder, "can_reorder")
    return reshaped(ctx, arguments.tensor(ctx, input, "input"), sizes, reorder)


@implements(language.view)
def view(ctx, input, *shape):
    sizes = arguments.tile_shape(arguments.variadic_shape(shape))
    return reshaped(ctx, arguments.tensor(ctx, input, "input"), sizes, can_reorder=True)


@implements(language.ravel)
def ravel(ctx, x, can_reorder=False):
    x = arguments.tensor(ctx, x, "x")
    return reshaped(ctx, x, (math.prod(x.shape),), arguments.static_bool(can_reorder, "can_reorder"))


def permuted(ctx: Context, x: TensorValue, order: tuple[int, ...]) -> TensorValue:
    """Dimension ``i`` of the result is dimension ``order[i]`` of ``x``."""
    return x if order == tuple(range(len(order))) else ctx.op(S.Trans, x, order=order)


def _order(dims: tuple, rank: int) -> tuple[int, ...]:
    wanted = arguments.variadic_shape(dims)
    order = tuple(arguments.axis_of(d, rank, "dims") for d in wanted)
    if sorted(order) != list(range(rank)):
        raise ArgumentProblem("dims", f"must name each of the {rank} dimensions once, is {list(order)}")
    return order


@implements(language.trans)
def trans(ctx, input, *dims):
    x = arguments.block(input, "input")
    rank = len(x.shape)
    if dims:
        return permuted(ctx, x, _order(dims, rank))
    if rank < 2:
        raise ArgumentProblem("input", f"must have at least two dimensions, is {describe(x)}")
    return permuted(ctx, x, (*range(rank - 2), rank - 1, rank - 2))


@implements(language.permute)
def permute(ctx, input, *dims):
    x = arguments.block(input, "input")
    return permuted(ctx, x, _order(dims, len(x.shape)))


@implements(language.cat)
def cat(ctx, input, other, can_reorder=False, dim=0):
    a, b = arguments.block(input, "input"), arguments.block(other, "other")
    if a.shape != b.shape or a.dtype != b.dtype:
        raise ArgumentProblem("other", f"must be like the input, {describe(a)}, is {describe(b)}")
    rank = len(a.shape)
    axis = arguments.axis_of(dim, rank, "dim")
    if arguments.static_bool(can_reorder, "can_reorder") and rank == 1:
        return ctx.op(S.Cat, a, b)
    pairs = ctx.op(S.Join, a, b)
    stacked = permuted(ctx, pairs, (*range(axis), rank, *range(axis, rank)))
    return reshaped(ctx, stacked, (*a.shape[:axis], 2 * a.shape[axis], *a.shape[axis + 1 :]))


def _joined(ctx: Context, a: Any, b: Any) -> TensorValue:
    x, y = arguments.tensor(ctx, a, "a"), arguments.tensor(ctx, b, "b")
    x, y = convert.broadcast(ctx, x, y, "join")
    if x.dtype != y.dtype:
        raise ArgumentProblem("b", f"must have the element type of 'a': {describe(x)} and {describe(y)}")
    if x.is_block:
        return ctx.op(S.Join, x, y)
    pair = ctx.op(S.Join, stretch(ctx, x, (1,)), stretch(ctx, y, (1,)))
    return reshaped(ctx, pair, (2,))


@implements(language.join)
def join(ctx, a, b):
    return _joined(ctx, a, b)


@implements(language.split)
def split(ctx, a):
    x = arguments.block(a, "a")
    if x.shape[-1] != 2:
        raise ArgumentProblem("a", f"must have a last dimension of size 2, is {describe(x)}")
    is_pair = len(x.shape) == 1
    if is_pair:
        x = reshaped(ctx, x, (1, 2))
    halves = tuple(TensorValue(r, x.dtype) for r in ctx.builder.create(S.Split, x.value).results)
    return tuple(only_element(ctx, half) for half in halves) if is_pair else halves


def sliced(ctx: Context, x: TensorValue, axis: int, key: slice) -> TensorValue:
    """The elements ``key``, whose bounds are static, along ``axis``.

    A part that begins at a multiple of its length, with a power of two as its step, is a matter of which
    registers and threads hold it: it is split off. Any other is gathered. Raises :class:`TypeMismatchError`
    for a part whose length is no power of two.
    """
    size = x.shape[axis]
    if any(bound is not None and not isinstance(bound, int) for bound in (key.start, key.stop, key.step)):
        raise TypeMismatchError("the bounds of a slice are integers")
    if key.step == 0:
        raise TypeMismatchError("the step of a slice must not be zero")
    chosen = range(*key.indices(size))
    count, step = len(chosen), chosen.step
    if chosen == range(size):
        return x
    if count == 0 or count & (count - 1):
        raise TypeMismatchError(
            f"this slice has {count} elements; the size of a block is a power of two",
            hint="take a larger part, and mask what lies beyond",
        )
    if step > 0 and step & (step - 1) == 0 and (chosen.start // step) % count == 0:
        parts = (*x.shape[:axis], size // (count * step), count, step, *x.shape[axis + 1 :])
        x = picked(ctx, reshaped(ctx, x, parts), axis, chosen.start // (count * step))
        return picked(ctx, x, axis + 1, chosen.start % step)
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    places = arith.add(ctx, arith.mul(ctx, positions(ctx, shape, axis), step), chosen.start)
    return ctx.op(S.Gather, x, places, axis=axis)


def picked(ctx: Context, x: TensorValue, axis: int, index: int) -> TensorValue:
    """``x`` where dimension ``axis``, which goes, has ``index``; each half is split off from the other."""
    while x.shape[axis] > 1:
        half = x.shape[axis] // 2
        pairs = reshaped(ctx, x, (*x.shape[:axis], 2, half, *x.shape[axis + 1 :]))
        rank = len(pairs.shape)
        last = permuted(ctx, pairs, (*(d for d in range(rank) if d != axis), axis))
        low, high = ctx.builder.create(S.Split, last.value).results
        x = TensorValue(high if index >= half else low, x.dtype)
        index %= half
    return reshaped(ctx, x, (*x.shape[:axis], *x.shape[axis + 1 :]))


@implements(language.interleave)
def interleave(ctx, a, b):
    pairs = _joined(ctx, a, b)
    if len(pairs.shape) == 1:
        return pairs
    return reshaped(ctx, pairs, (*pairs.shape[:-2], 2 * pairs.shape[-2]))


@implements(language.flip)
def flip(ctx, x, dim=None):
    x = arguments.block(x, "x")
    axis = arguments.axis_of(-1 if arguments.static(dim, "dim") is None else dim, len(x.shape), "dim")
    return ctx.op(S.Flip, x, axis=axis) if x.shape[axis] > 1 else x


@implements(language.squeeze)
def squeeze(ctx, x, dim):
    x = arguments.block(x, "x")
    axis = arguments.axis_of(dim, len(x.shape), "dim")
    if x.shape[axis] != 1:
        raise ArgumentProblem(
            "dim", f"must be a dimension of size 1; dimension {axis} of {list(x.shape)} is not"
        )
    if len(x.shape) == 1:
        return only_element(ctx, x)
    return reshaped(ctx, x, x.shape[:axis] + x.shape[axis + 1 :])


@implements(language.unsqueeze)
def unsqueeze(ctx, x, dim):
    x = arguments.tensor(ctx, x, "x")
    return expand(ctx, x, arguments.axis_of(dim, len(x.shape), "dim", extra=1))


@implements(language.gather)
def gather(ctx, src, index, axis):
    x, which = arguments.block(src, "src"), arguments.integer(arguments.block(index, "index"), "index")
    if len(x.shape) != len(which.shape):
        raise ArgumentProblem("index", f"must have the rank of 'src', {describe(x)}; is {describe(which)}")
    along = arguments.axis_of(axis, len(x.shape))
    for dimension, (a, b) in enumerate(zip(x.shape, which.shape)):
        if dimension != along and a != b:
            raise ArgumentProblem("index", f"differs from 'src' in dimension {dimension}: {b} and {a}")
    return ctx.op(S.Gather, x, _extended(ctx, which), axis=along)


def _extended(ctx: Context, x: TensorValue) -> TensorValue:
    """Integers of 32 bits or more, for what does not know the sign of narrow ones."""
    return convert.cast(ctx, x, L.int32) if x.dtype.primitive_bitwidth < 32 else x


@implements(language.histogram)
def histogram(ctx, input, num_bins, mask=None):
    x = arguments.integer(arguments.block(input, "input"), "input")
    if len(x.shape) != 1:
        raise ArgumentProblem("input", f"must have one dimension, is {describe(x)}")
    bins = arguments.tile_shape((arguments.static_int(num_bins, "num_bins"),), "num_bins")
    held = mask_argument(ctx, mask, x.shape)
    x = _extended(ctx, x)
    operands = [x] if held is None else [x, held]
    return ctx.typed(S.Histogram, *operands, dtype=L.int32, shape=bins)


@implements(language.map_elementwise)
def map_elementwise(ctx, scalar_fn, *args, pack=1):
    """The function is inlined once, with blocks in place of its scalars; where it branches on one, both sides
    are computed and each element chooses (``control``). With ``pack`` the blocks are split first: element
    ``p`` of each ``pack`` neighbours is in block ``p``."""
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
    blocks = [part for value in inputs for part in _apart(ctx, stretch(ctx, value, shape), count)]
    found = _called(ctx, scalar_fn, blocks)
    if len(found) % count:
        text = f"must return {count} values for each result, returns {len(found)}"
        raise ArgumentProblem("scalar_fn", text)
    results = tuple(_together(ctx, found[i : i + count]) for i in range(0, len(found), count))
    return results[0] if len(results) == 1 else results


def _called(ctx: Context, function: Any, blocks: list[TensorValue]) -> list[TensorValue]:
    """What the function returns, as blocks."""
    shape, saved = blocks[0].shape, (ctx.elementwise, ctx.conditions)
    ctx.elementwise, ctx.conditions = shape or None, ()
    try:
        found = ctx.call(function, blocks)
    finally:
        ctx.elementwise, ctx.conditions = saved
    values = found if isinstance(found, tuple) else (found,)
    return [stretch(ctx, arguments.tensor(ctx, value, "scalar_fn"), shape) for value in values]


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
