"""Atomic read-modify-write of global memory.

All return the old value. ``pointer`` and ``val`` are scalars or blocks; elements of a block are separate atomics in
no particular order. ``sem`` is ``"relaxed"``, ``"acquire"``, ``"release"`` or ``"acq_rel"`` (the default), ``scope`` is
``"cta"``, ``"gpu"`` (the default) or ``"sys"``.
"""

from __future__ import annotations

from typing import Any

from ptxforge.language.registry import builtin
from ptxforge.language.types import tensor


@builtin
def atomic_add(
    pointer: tensor, val: Any, mask: Any = None, sem: str | None = None, scope: str | None = None
) -> tensor:
    """Add ``val``: 32- and 64-bit integers, float16, bfloat16, float32, float64.

    tl.atomic_add(counts + bins, 1, mask=inside, sem="relaxed")
    """


@builtin
def atomic_max(
    pointer: tensor, val: Any, mask: Any = None, sem: str | None = None, scope: str | None = None
) -> tensor:
    """Replace by the maximum: 32- and 64-bit integers, float32, float64 (a float's bits order like an integer's)."""


@builtin
def atomic_min(
    pointer: tensor, val: Any, mask: Any = None, sem: str | None = None, scope: str | None = None
) -> tensor:
    """Replace by the minimum: 32- and 64-bit integers, float32, float64."""


@builtin
def atomic_and(
    pointer: tensor, val: Any, mask: Any = None, sem: str | None = None, scope: str | None = None
) -> tensor:
    """Bitwise and: 32- and 64-bit integers."""


@builtin
def atomic_or(
    pointer: tensor, val: Any, mask: Any = None, sem: str | None = None, scope: str | None = None
) -> tensor:
    """Bitwise or: 32- and 64-bit integers."""


@builtin
def atomic_xor(
    pointer: tensor, val: Any, mask: Any = None, sem: str | None = None, scope: str | None = None
) -> tensor:
    """Bitwise exclusive or: 32- and 64-bit integers."""


@builtin
def atomic_xchg(
    pointer: tensor, val: Any, mask: Any = None, sem: str | None = None, scope: str | None = None
) -> tensor:
    """Exchange: any 32- or 64-bit type.

    tl.atomic_xchg(lock, 0, sem="release")
    """


@builtin
def atomic_cas(
    pointer: tensor, cmp: Any, val: Any, sem: str | None = None, scope: str | None = None
) -> tensor:
    """Store ``val`` where the old value equals ``cmp`` bit by bit: any 16-, 32- or 64-bit type.

    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    """
