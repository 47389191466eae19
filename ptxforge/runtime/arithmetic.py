"""The two integer helpers that every launch needs; inside a kernel the frontend evaluates them too."""

from __future__ import annotations


def cdiv(x: int, y: int) -> int:
    """``x / y`` rounded up: how many tiles of ``y`` cover ``x``.

    >>> cdiv(1000, 256)
    4
    """
    return -(-x // y)


def next_power_of_2(n: int) -> int:
    """The smallest power of two that is not below ``n`` (1 for ``n`` ≤ 1).

    >>> [next_power_of_2(n) for n in (1, 2, 3, 781, 1024)]
    [1, 2, 4, 1024, 1024]
    """
    return 1 << max(0, n - 1).bit_length()
