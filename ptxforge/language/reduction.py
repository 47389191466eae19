"""Reductions and scans.

``axis`` counts from 0, negative ones from the end; ``None`` means all elements. ``keep_dims`` leaves dimensions of
size 1. Small integers are summed in 32 bits; maxima and minima of types narrower than 32 bits come as float32 or
int32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ptxforge.language.registry import builtin
from ptxforge.language.types import dtype, tensor


@builtin(member=True)
def reduce(input: Any, axis: int | None, combine_fn: Callable, keep_dims: bool = False) -> Any:
    """Combine all elements along ``axis`` by ``combine_fn``, a jitted function ``(a, b) -> c`` of scalars.

    For a tuple of ``n`` blocks, ``combine_fn`` takes ``2·n`` scalars and returns ``n``. It must be associative and
    commutative.

        @ptxforge.jit
        def product(a, b):
            return a * b

        total = tl.reduce(x, 0, product)
    """


@builtin(member=True)
def sum(
    input: tensor, axis: int | None = None, keep_dims: bool = False, dtype: dtype | None = None
) -> tensor:
    """Sum. ``dtype`` is what is added up in, and the result's type.

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
    """Maximum; with ``return_indices`` also where it is (the leftmost, unless ties may break anyhow)."""


@builtin(member=True)
def min(
    input: tensor,
    axis: int | None = None,
    return_indices: bool = False,
    return_indices_tie_break_left: bool = True,
    keep_dims: bool = False,
) -> Any:
    """Minimum; with ``return_indices`` also where it is (the leftmost, unless ties may break anyhow)."""


@builtin(member=True)
def argmax(input: tensor, axis: int | None, tie_break_left: bool = True, keep_dims: bool = False) -> tensor:
    """Index of the maximum, int32."""


@builtin(member=True)
def argmin(input: tensor, axis: int | None, tie_break_left: bool = True, keep_dims: bool = False) -> tensor:
    """Index of the minimum, int32."""


@builtin(member=True)
def xor_sum(input: tensor, axis: int | None = None, keep_dims: bool = False) -> tensor:
    """Bitwise exclusive or of all, of integers."""


@builtin(member=True)
def reduce_or(input: tensor, axis: int | None, keep_dims: bool = False) -> tensor:
    """Bitwise or of all, of integers."""


@builtin(member=True)
def associative_scan(input: Any, axis: int, combine_fn: Callable, reverse: bool = False) -> Any:
    """Running combination along ``axis`` by a jitted function, as for :func:`reduce` (order is kept); with ``reverse``
    from the end."""


@builtin(member=True)
def cumsum(input: tensor, axis: int = 0, reverse: bool = False, dtype: dtype | None = None) -> tensor:
    """Running sum along ``axis``; bfloat16 gives float32.

    ends = tl.cumsum(lengths, axis=0)
    """


@builtin(member=True)
def cumprod(input: tensor, axis: int = 0, reverse: bool = False) -> tensor:
    """Running product along ``axis``; bfloat16 gives float32."""
