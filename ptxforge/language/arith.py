"""Arithmetic, selection and comparison as functions. The operators ``+ - * / // % << >> & | ^ ~`` do the same."""

from __future__ import annotations

from typing import Any

from ptxforge.language.registry import builtin
from ptxforge.language.types import PropagateNan, tensor


@builtin
def add(x: Any, y: Any, sanitize_overflow: bool = True) -> tensor:
    """``x + y``. ``sanitize_overflow`` has no effect."""


@builtin
def sub(x: Any, y: Any, sanitize_overflow: bool = True) -> tensor:
    """``x - y``. ``sanitize_overflow`` has no effect."""


@builtin
def mul(x: Any, y: Any, sanitize_overflow: bool = True) -> tensor:
    """``x * y``. ``sanitize_overflow`` has no effect."""


@builtin
def where(condition: Any, x: Any, y: Any) -> tensor:
    """``x`` where ``condition`` holds, else ``y``; all three broadcast, and ``x`` and ``y`` take their common type.

    Both are computed in any case: guard memory with a mask, not with ``where``.

        scores = tl.where(causal, scores, float("-inf"))
    """


@builtin
def minimum(x: Any, y: Any, propagate_nan: Any = PropagateNan.NONE) -> tensor:
    """The smaller one, element by element; ``tl.PropagateNan.ALL`` lets a NaN win, else the number wins."""


@builtin
def maximum(x: Any, y: Any, propagate_nan: Any = PropagateNan.NONE) -> tensor:
    """The larger one, element by element; ``tl.PropagateNan.ALL`` lets a NaN win, else the number wins."""


@builtin
def clamp(x: Any, min: Any, max: Any, propagate_nan: Any = PropagateNan.NONE) -> tensor:
    """``x`` limited to ``[min, max]`` (floats). A NaN stays one with ``tl.PropagateNan.ALL``; else it becomes ``min``."""


@builtin
def cdiv(x: Any, div: Any) -> Any:
    """``x / div`` rounded up, for non-negative integers: ``(x + div - 1) // div``.

    for k in range(0, tl.cdiv(K, BLOCK_K)): ...
    """


@builtin
def next_power_of_2(n: int) -> int:
    """The smallest power of two not below the compile-time integer ``n``."""


@builtin(member=True)
def logical_and(x: Any, y: Any) -> tensor:
    """``x != 0 and y != 0``, element by element."""


@builtin(member=True)
def logical_or(x: Any, y: Any) -> tensor:
    """``x != 0 or y != 0``, element by element."""
