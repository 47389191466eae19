"""The two integer helpers that every launch needs, and that kernels use too."""

from __future__ import annotations

import operator
from typing import Any

from ptxforge.language.registry import LibraryFunction, constexpr_function


class HostFunction(LibraryFunction):
    """A function of the language that means the same on the host: inlined in a kernel, called outside."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fn(*args, **kwargs)


@HostFunction
def cdiv(x: int, y: int) -> int:
    """``x / y`` rounded up, for ``x`` ≥ 0 and ``y`` > 0: how many tiles of ``y`` cover ``x``.

    >>> cdiv(1000, 256)
    4
    """
    return (x + y - 1) // y


@constexpr_function
def next_power_of_2(n: int) -> int:
    """The smallest power of two that is not below ``n`` (1 for ``n`` ≤ 1).

    >>> [next_power_of_2(n) for n in (1, 2, 3, 781, 1024)]
    [1, 2, 4, 1024, 1024]
    """
    return 1 << max(0, operator.index(n) - 1).bit_length()
