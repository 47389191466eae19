"""Atomic accesses of global memory: read-modify-write, and ordered loads and stores.

``pointer`` and ``val`` are scalars or blocks, which broadcast; ``val`` is cast to what the pointer points at.
Elements of a block are separate atomics in no particular order. All functions return the old value, of the
pointee's type and the common shape. Where ``mask`` (int1, broadcast too) does not hold nothing happens and
the result is 0.

``sem`` is the order of other accesses around it: ``"relaxed"``, ``"acquire"``, ``"release"`` or ``"acq_rel"``
(the default). ``scope`` says who sees the order: ``"cta"``, ``"gpu"`` (the default) or ``"sys"``. See the PTX
ISA, *Memory Consistency Model*. A pointee of another type, a ``tl.const`` pointer and other words for ``sem``
and ``scope`` are compile-time errors.
"""

from __future__ import annotations

from typing import Any

from ptxforge.language.registry import builtin
from ptxforge.language.types import tensor


@builtin(member=True)
def atomic_add(
    pointer: tensor, val: Any, mask: Any = None, sem: str | None = None, scope: str | None = None
) -> tensor:
    """Add ``val``: 32- and 64-bit integers (which wrap around), float16, bfloat16, float32, float64.

    The order in which floats are added is not fixed. Two neighbouring float16 or bfloat16 of a thread are
    added by one instruction where the target has it. ``pointer``, ``mask``, ``sem``, ``scope``: see this
    module.

        tl.atomic_add(counts + bins, 1, mask=inside, sem="relaxed")
    """


@builtin(member=True)
def atomic_max(
    pointer: tensor, val: Any, mask: Any = None, sem: str | None = None, scope: str | None = None
) -> tensor:
    """Replace by the maximum with ``val``: 32- and 64-bit integers, float32, float64.

    Floats are compared by their bits, as integers whose order is that of the numbers: -0.0 is below 0.0, and
    a positive NaN above all. ``pointer``, ``mask``, ``sem``, ``scope``: see this module.
    """


@builtin(member=True)
def atomic_min(
    pointer: tensor, val: Any, mask: Any = None, sem: str | None = None, scope: str | None = None
) -> tensor:
    """Replace by the minimum with ``val``: 32- and 64-bit integers, float32, float64.

    Floats as for :func:`atomic_max`. ``pointer``, ``mask``, ``sem``, ``scope``: see this module.
    """


@builtin(member=True)
def atomic_and(
    pointer: tensor, val: Any, mask: Any = None, sem: str | None = None, scope: str | None = None
) -> tensor:
    """Replace by the bitwise and with ``val``: 32- and 64-bit integers.

    ``pointer``, ``mask``, ``sem``, ``scope``: see this module.
    """


@builtin(member=True)
def atomic_or(
    pointer: tensor, val: Any, mask: Any = None, sem: str | None = None, scope: str | None = None
) -> tensor:
    """Replace by the bitwise or with ``val``: 32- and 64-bit integers.

    ``pointer``, ``mask``, ``sem``, ``scope``: see this module.
    """


@builtin(member=True)
def atomic_xor(
    pointer: tensor, val: Any, mask: Any = None, sem: str | None = None, scope: str | None = None
) -> tensor:
    """Replace by the bitwise exclusive or with ``val``: 32- and 64-bit integers.

    ``pointer``, ``mask``, ``sem``, ``scope``: see this module.
    """


@builtin(member=True)
def atomic_xchg(
    pointer: tensor, val: Any, mask: Any = None, sem: str | None = None, scope: str | None = None
) -> tensor:
    """Replace by ``val``: any 32- or 64-bit type.

    ``pointer``, ``mask``, ``sem``, ``scope``: see this module.

        tl.atomic_xchg(lock, 0, sem="release")
    """


@builtin(member=True)
def atomic_cas(
    pointer: tensor, cmp: Any, val: Any, sem: str | None = None, scope: str | None = None
) -> tensor:
    """Replace by ``val`` where the old value equals ``cmp`` bit by bit: any 16-, 32- or 64-bit type.

    It has no mask. ``pointer``, ``sem``, ``scope``: see this module.

        while tl.atomic_cas(lock, 0, 1) == 1:
            pass
    """


@builtin(member=True)
def atomic_load(
    pointer: tensor, mask: Any = None, sem: str | None = None, scope: str | None = None
) -> tensor:
    """What ``pointer`` points at, read as a whole and from memory itself: any type but int1.

    ``sem`` is ``"acquire"`` (the default) or ``"relaxed"``. Where ``mask`` does not hold the result is 0.
    ``scope``: see this module.

        ready = tl.atomic_load(flag)
    """


@builtin(member=True)
def atomic_store(
    pointer: tensor, val: Any, mask: Any = None, sem: str | None = None, scope: str | None = None
) -> None:
    """Write ``val`` as a whole: any type but int1. Returns nothing.

    ``sem`` is ``"release"`` (the default) or ``"relaxed"``. ``pointer``, ``mask``, ``scope``: see this
    module.

        tl.atomic_store(flag, 1)
    """
