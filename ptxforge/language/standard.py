"""Functions written in the language itself. The frontend inlines them as it inlines users' functions."""

from __future__ import annotations

from ptxforge.language import arith, atomic, core, instructions, math, reduction, shape, types
from ptxforge.language.constexpr import constexpr
from ptxforge.language.core import static_assert
from ptxforge.language.registry import constexpr_function, library


@library(member=True)
def sigmoid(x):
    """``1 / (1 + exp(-x))``, element by element, of float32 and float64.

    Accuracy is that of :func:`exp`: within ``5 + 1.2 * abs(x)`` ulp for float32. Other element types are a
    compile-time error.

        gate = tl.sigmoid(x)
    """
    return 1.0 / (1.0 + math.exp(-x))


@library(member=True)
def softmax(x, dim=None, keep_dims=None, ieee_rounding: constexpr = False):
    """``exp(x) / sum(exp(x))`` along ``dim`` (``None``: the first), computed from ``x - max(x)``.

    ``x`` is a block of float32 or float64, and so is the result. ``ieee_rounding`` rounds the quotient to
    nearest even (see :func:`fdiv`). ``keep_dims`` has no effect. A row of -inf alone gives NaN.

        p = tl.softmax(scores, dim=1)
    """
    axis: constexpr = 0 if dim is None else dim
    powers = math.exp(x - reduction.max(x, axis, keep_dims=True))
    return math.fdiv(powers, reduction.sum(powers, axis, keep_dims=True), ieee_rounding)


@library
def swizzle2d(i, j, size_i, size_j, size_g):
    """The indices ``(i, j)`` of a ``size_i × size_j`` grid in row-major order, mapped to an order that runs
    down columns within groups of ``size_g`` rows: neighbours in time share operands in the L2 cache. All are
    integers.

        pid_m, pid_n = tl.swizzle2d(pid // tiles_n, pid % tiles_n, tiles_m, tiles_n, GROUP_M)
    """
    position = i * size_j + j
    group_size = size_g * size_j
    first = position // group_size * size_g
    rows = arith.minimum(size_i - first, size_g)
    inside = position % group_size
    return first + inside % rows, inside // rows


@library(member=True)
def atomic_poll(
    pointer, expected_value, sem: constexpr = None, scope: constexpr = None, timeout_ns=None
):
    """Read what each element of ``pointer`` points at until that is ``expected_value``, which broadcasts.

    Returns whether it was, as int1 of the pointers' shape. With ``timeout_ns`` (nanoseconds) it gives up
    then, after one look at least; without one it returns only once each value was there. Types, ``sem`` and
    ``scope`` are those of :func:`atomic_load`.

        tl.atomic_poll(flags + peer, epoch, scope="sys")
    """
    start = 0 if timeout_ns is None else _nanoseconds()
    found = atomic.atomic_load(pointer, None, sem, scope) == expected_value
    while _any(~found):
        if timeout_ns is not None:
            if _nanoseconds() - start >= timeout_ns:
                break
        found = found | (atomic.atomic_load(pointer, ~found, sem, scope) == expected_value)
    return found


@library
def _any(x):
    """Whether any element holds."""
    return reduction.reduce_or(x, None) if x.type.is_block() else x


@library
def _nanoseconds():
    return instructions.inline_asm_elementwise(
        "mov.u64 $0, %globaltimer;", "=l", [], types.int64, is_pure=False, pack=1
    )


# -- sorting: the bitonic network (K. E. Batcher, Sorting networks and their applications, 1968) -----------


@constexpr_function
def _log2(n):
    """The exponent of a power of two."""
    return n.bit_length() - 1


@constexpr_function
def _outer_size(sizes):
    """How many rows there are along the last dimension."""
    count = 1
    for size in sizes[:-1]:
        count *= size
    return count


@library
def _ordered(x, axis: constexpr, is_second, descending: constexpr):
    """Of each pair of mirror images along ``axis``, the smaller one (the larger one) where ``is_second`` is
    false, the other one elsewhere."""
    other = shape.flip(x, axis)
    if descending:
        low, high = other, x
    else:
        low, high = x, other
    if x.dtype.is_floating():  # both of a pair must decide alike about zeros of either sign
        is_wrong = ((low > high) & ~is_second) | ((low < high) & is_second)
    else:
        is_wrong = (low > high) ^ is_second
    return arith.where(is_wrong, other, x)


@library
def _merge(x, stage: constexpr, descending: constexpr):
    """Sort each bitonic block of ``2**stage`` elements of the rows of ``x``: pairs get ever closer."""
    is_second = core.arange(0, 2)[None, None, :, None] != 0
    for i in core.static_range(1, stage + 1):
        pairs = shape.reshape(x, [x.shape[0], x.shape[1] >> (stage - i + 1), 2, 1 << (stage - i)])
        x = shape.reshape(_ordered(pairs, 2, is_second, descending), x.shape)
    return x


@library
def _sort_blocks(x, stages: constexpr, descending: constexpr):
    """Sort each block of ``2**stages`` elements of the rows of ``x``. Two sorted halves are compared with the
    second one turned around, which leaves two bitonic halves, so that all go in one direction."""
    for stage in core.static_range(stages):
        blocks = shape.reshape(x, [x.shape[0], x.shape[1] >> (stage + 1), 2 << stage])
        is_second = (core.arange(0, 2 << stage) >> stage)[None, None, :] != 0
        x = shape.reshape(_ordered(blocks, 2, is_second, descending), x.shape)
        x = _merge(x, stage, descending)
    return x


@library(member=True)
def sort(x, dim: constexpr = None, descending: constexpr = False):
    """``x`` sorted along its last dimension; with ``descending`` from the largest.

    ``dim`` may only name the last dimension; another one is a compile-time error. ``x`` is a block of numbers
    without NaNs. The sort is not stable.

        ordered = tl.sort(x)
    """
    rank: constexpr = len(x.shape)
    static_assert(dim is None or dim == -1 or dim == rank - 1, "sort() sorts along the last dimension only")
    size: constexpr = x.shape[rank - 1]
    rows = shape.reshape(x, [_outer_size(x.shape), size])
    return shape.reshape(_sort_blocks(rows, _log2(size), descending), x.shape)


@library(member=True)
def topk(x, k: constexpr, dim: constexpr = None, descending: constexpr = True):
    """The ``k`` largest elements of ``x`` (smallest with ``descending=False``) along the last dimension, in
    order.

    ``k`` is a power of two not above the dimension's size; ``dim`` may only name the last dimension. The
    result has ``k`` as its last dimension and, if that is less than all of it, the element type of ``max``:
    integers and floats of fewer than 32 bits become int32 and float32.

        best = tl.topk(scores, 8)
    """
    rank: constexpr = len(x.shape)
    size: constexpr = x.shape[rank - 1]
    static_assert(dim is None or dim == -1 or dim == rank - 1, "topk() looks along the last dimension only")
    static_assert(0 < k <= size and k & (k - 1) == 0, f"topk() finds 1, 2, 4, … {size} elements, not {k}")
    rows: constexpr = _outer_size(x.shape)
    best = _sort_blocks(shape.reshape(x, [rows, size]), _log2(k), descending)
    is_second = core.arange(0, 2)[None, None, :, None] != 0
    for _ in core.static_range(_log2(size // k)):
        pairs = shape.reshape(best, [rows, best.shape[1] // (2 * k), 2, k])
        pairs = arith.where(is_second, shape.flip(pairs, 3), pairs)
        pairs = reduction.max(pairs, 2) if descending else reduction.min(pairs, 2)
        best = _merge(shape.reshape(pairs, [rows, best.shape[1] // 2]), _log2(k), descending)
    return shape.reshape(best, x.shape[: rank - 1] + (k,))


@library
def sort_impl(x, k: constexpr = None, dim: constexpr = None, descending: constexpr = False):
    """:func:`sort`, or :func:`topk` where ``k`` is given, as some kernels written for Triton call them."""
    if k is None:
        return sort(x, dim, descending)
    return topk(x, k, dim, descending)


@library(member=True)
def bitonic_merge(x, dim: constexpr = None, descending: constexpr = False):
    """``x`` sorted along its last dimension, where it is bitonic: first rising, then falling, or turned
    around.

    Half of :func:`sort`'s last round. ``dim`` may only name the last dimension; with ``descending`` the
    largest comes first.
    """
    rank: constexpr = len(x.shape)
    static_assert(
        dim is None or dim == -1 or dim == rank - 1, "bitonic_merge() merges the last dimension only"
    )
    size: constexpr = x.shape[rank - 1]
    rows = shape.reshape(x, [_outer_size(x.shape), size])
    return shape.reshape(_merge(rows, _log2(size), descending), x.shape)
