"""Reductions and scans.

``axis`` counts from 0, negative ones from the end. They take blocks: a scalar is a compile-time error, as are
a pointer, and an ``axis`` that is out of range or a runtime value (``TypeMismatchError``, with the kernel's
line).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ptxforge.language.registry import builtin
from ptxforge.language.types import dtype, tensor


@builtin(member=True)
def reduce(input: Any, axis: int | None, combine_fn: Callable, keep_dims: bool = False) -> Any:
    """Combine all elements of ``input`` along ``axis`` by ``combine_fn``.

    ``input`` is a block, or a tuple of ``n`` blocks of one shape. ``combine_fn`` is a jitted function of
    scalars, ``(a, b) -> c``; for ``n`` blocks it takes ``2·n`` scalars (all of the left side, then all of the
    right) and returns ``n``. It must be associative and commutative, as elements meet in an order that the
    layout decides, and return the elements' types. The result has the shape of ``input`` without ``axis`` (a
    scalar when nothing is left) and its element type; ``axis=None`` combines all elements; ``keep_dims``
    leaves size 1.

    Errors: an ``axis`` out of range, blocks of different shapes, a ``combine_fn`` that is not jitted, returns
    another number of values or other types.

        @ptxforge.jit
        def product(a, b):
            return a * b

        total = tl.reduce(x, 0, product)
    """


@builtin(member=True)
def sum(
    input: tensor, axis: int | None = None, keep_dims: bool = False, dtype: dtype | None = None
) -> tensor:
    """Sum of ``input`` along ``axis``.

    ``input`` is a block of any number type. Integers narrower than 32 bits are summed in int32 (uint32) and
    the result has that type; other integers wrap around. Floats are summed in their own type, bfloat16 in
    float32, and the result has ``input``'s type. ``dtype`` instead is the type in which is summed, and the
    result's. The order of summation is the layout's: floats may differ in the last bits from a sum in order.

    ``axis=None`` sums all elements; ``keep_dims`` leaves size 1. A NaN, or infinities of both signs, give
    NaN.

        mean = tl.sum(x, axis=0) / n
    """


@builtin(member=True)
def max(
    input: tensor,
    axis: int | None = None,
    return_indices: bool = False,
    return_indices_tie_break_left: bool = True,
    keep_dims: bool = False,
) -> Any:
    """Maximum of ``input`` along ``axis``; with ``return_indices`` also where it is: ``(values, indices)``.

    ``input`` is a block of any number type; types narrower than 32 bits come as float32 or int32 (with
    indices bfloat16 alone does). Indices are int32, along ``axis``; with ``axis=None`` in row-major order. Of
    equal maxima the leftmost is taken; with ``return_indices_tie_break_left=False`` any one. ``keep_dims``
    leaves size 1.

    Without indices a number wins against a NaN, and all NaN gives NaN; with indices a NaN makes the result
    undefined.

        best, where = tl.max(scores, axis=1, return_indices=True)
    """


@builtin(member=True)
def min(
    input: tensor,
    axis: int | None = None,
    return_indices: bool = False,
    return_indices_tie_break_left: bool = True,
    keep_dims: bool = False,
) -> Any:
    """Minimum of ``input`` along ``axis``; with ``return_indices`` also where it is: ``(values, indices)``.

    ``input`` is a block of any number type; types narrower than 32 bits come as float32 or int32 (with
    indices bfloat16 alone does). Indices are int32, along ``axis``; with ``axis=None`` in row-major order. Of
    equal minima the leftmost is taken; with ``return_indices_tie_break_left=False`` any one. ``keep_dims``
    leaves size 1.

    Without indices a number wins against a NaN, and all NaN gives NaN; with indices a NaN makes the result
    undefined.
    """


@builtin(member=True)
def argmax(input: tensor, axis: int | None, tie_break_left: bool = True, keep_dims: bool = False) -> tensor:
    """Index of the maximum of ``input`` along ``axis``, int32; ``None`` counts all elements in row-major
    order.

    ``input`` is a block of any number type without NaNs. Of equal maxima the leftmost is taken; with
    ``tie_break_left=False`` any one. ``keep_dims`` leaves size 1.
    """


@builtin(member=True)
def argmin(input: tensor, axis: int | None, tie_break_left: bool = True, keep_dims: bool = False) -> tensor:
    """Index of the minimum of ``input`` along ``axis``, int32; ``None`` counts all elements in row-major
    order.

    ``input`` is a block of any number type without NaNs. Of equal minima the leftmost is taken; with
    ``tie_break_left=False`` any one. ``keep_dims`` leaves size 1.
    """


@builtin(member=True)
def xor_sum(input: tensor, axis: int | None = None, keep_dims: bool = False) -> tensor:
    """Bitwise exclusive or of ``input``, a block of integers, along ``axis`` (``None``: of all elements).

    The result has the element type of ``input``; ``keep_dims`` leaves size 1. Floats are a compile-time
    error.

        parity = tl.xor_sum(bits, axis=0) & 1
    """


@builtin(member=True)
def reduce_or(input: tensor, axis: int | None, keep_dims: bool = False) -> tensor:
    """Bitwise or of ``input``, a block of integers or int1, along ``axis`` (``None``: of all elements).

    The result has the element type of ``input``; ``keep_dims`` leaves size 1. Floats are a compile-time
    error.

        any_negative = tl.reduce_or(x < 0, axis=0)
    """


@builtin(member=True)
def associative_scan(input: Any, axis: int, combine_fn: Callable, reverse: bool = False) -> Any:
    """Running combination of ``input`` along ``axis`` by ``combine_fn``; with ``reverse`` from the end.

    Element ``i`` of the result combines the elements 0 … i (with ``reverse`` i … last) in their order:
    ``combine_fn``, a jitted function as for :func:`reduce`, must be associative but need not be commutative.
    ``input`` is a block or a tuple of blocks of one shape; results have their shapes and element types.

    Errors are those of :func:`reduce`.

        @ptxforge.jit
        def compose(a1, b1, a2, b2):
            return a1 * a2, b1 * a2 + b2

        decay, state = tl.associative_scan((a, x), 0, compose)
    """


@builtin(member=True)
def cumsum(input: tensor, axis: int = 0, reverse: bool = False, dtype: dtype | None = None) -> tensor:
    """Running sum of ``input`` along ``axis``; with ``reverse`` from the end.

    ``input`` is a block of any number type, and the result has its shape. Integers narrower than 32 bits give
    int32 (uint32), bfloat16 gives float32, other types themselves; ``dtype`` instead is the type in which is
    summed, and the result's. Integers wrap around; an out of range ``axis`` is a compile-time error.

        ends = tl.cumsum(lengths, axis=0)
    """


@builtin(member=True)
def cumprod(input: tensor, axis: int = 0, reverse: bool = False, dtype: dtype | None = None) -> tensor:
    """Running product of ``input`` along ``axis``; with ``reverse`` from the end.

    Types, ``dtype`` and errors are those of :func:`cumsum`, but small integers keep their type.
    """
