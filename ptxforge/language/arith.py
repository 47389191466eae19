"""Arithmetic, selection and comparison as functions. The operators ``+ - * / // % << >> & | ^ ~`` do the
same.

Arguments are blocks, scalars and numbers. They broadcast to a common shape and take a common element type (a
number that of the tensor beside it); shapes that do not fit and types that have none are compile-time errors.
"""

from __future__ import annotations

from typing import Any

from ptxforge.language.registry import builtin
from ptxforge.language.types import PropagateNan, tensor


@builtin
def add(x: Any, y: Any, sanitize_overflow: bool = True) -> tensor:
    """``x + y``, as the operator. Integers wrap around; under ``debug=True`` those of fewer than 64 bits must
    not, or an assertion fails, unless ``sanitize_overflow`` is False."""


@builtin
def sub(x: Any, y: Any, sanitize_overflow: bool = True) -> tensor:
    """``x - y``, as the operator. Integers wrap around; under ``debug=True`` those of fewer than 64 bits must
    not, or an assertion fails, unless ``sanitize_overflow`` is False."""


@builtin
def mul(x: Any, y: Any, sanitize_overflow: bool = True) -> tensor:
    """``x * y``, as the operator. Integers wrap around; under ``debug=True`` those of fewer than 64 bits must
    not, or an assertion fails, unless ``sanitize_overflow`` is False."""


@builtin
def where(condition: Any, x: Any, y: Any) -> tensor:
    """``x`` where ``condition`` holds, else ``y``; all three broadcast, and ``x`` and ``y`` take their common
    type.

    Both are computed in any case: guard memory with a mask, not with ``where``.

        scores = tl.where(causal, scores, float("-inf"))
    """


@builtin
def where_rarely(condition: Any, x: Any, y: Any) -> tensor:
    """:func:`where` for the library: threads without an element for which ``condition`` holds skip what only
    ``x`` needs."""


@builtin
def minimum(x: Any, y: Any, propagate_nan: Any = PropagateNan.NONE) -> tensor:
    """The smaller one of ``x`` and ``y``, element by element, in their common type and shape.

    A number is a tensor of its own type here (int32, float32), and bfloat16 counts as float32: of a float16
    ``x`` and 0.0 the result is float32, as in Triton. ``propagate_nan`` is a compile-time
    ``tl.PropagateNan``: with ``ALL`` a NaN wins, with ``NONE`` (the
    default) a number does. -0.0 is smaller than 0.0.
    """


@builtin
def maximum(x: Any, y: Any, propagate_nan: Any = PropagateNan.NONE) -> tensor:
    """The larger one of ``x`` and ``y``, element by element, in their common type and shape.

    A number is a tensor of its own type here (int32, float32), and bfloat16 counts as float32: of a float16
    ``x`` and 0.0 the result is float32, as in Triton. ``propagate_nan`` is a compile-time
    ``tl.PropagateNan``: with ``ALL`` a NaN wins, with ``NONE`` (the
    default) a number does. 0.0 is larger than -0.0.

        relu = tl.maximum(x, 0.0)
    """


@builtin
def clamp(x: Any, min: Any, max: Any, propagate_nan: Any = PropagateNan.NONE) -> tensor:
    """``x`` limited to ``[min, max]``: floats, in their common type and shape, found as by :func:`maximum`.

    ``propagate_nan`` is a compile-time ``tl.PropagateNan``: with ``ALL`` a NaN in ``x`` stays one, with
    ``NONE`` (the default) it becomes ``min``. Where ``min > max`` the result is ``max``. Integers are a
    compile-time error.
    """


@builtin(member=True)
def cdiv(x: Any, div: Any) -> Any:
    """``x`` divided by ``div`` and rounded up, for non-negative integers: ``(x + div - 1) // div``.

    Of compile-time integers the result is one; then a ``div`` that is not positive is an error.

        for k in range(0, tl.cdiv(K, BLOCK_K)): ...
    """


@builtin
def next_power_of_2(n: int) -> int:
    """The smallest power of two not below the compile-time integer ``n``; 1 for ``n <= 1``.

    A runtime ``n`` is a compile-time error.
    """


@builtin(member=True)
def logical_and(x: Any, y: Any) -> tensor:
    """Whether both ``x`` and ``y`` are not zero: int1, element by element, at their common shape."""


@builtin(member=True)
def logical_or(x: Any, y: Any) -> tensor:
    """Whether ``x`` or ``y`` is not zero: int1, element by element, at their common shape."""
