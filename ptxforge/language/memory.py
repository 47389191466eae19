"""Loads and stores."""

from __future__ import annotations

from typing import Any

from ptxforge.language.registry import builtin
from ptxforge.language.types import tensor


@builtin
def load(
    pointer: tensor,
    mask: Any = None,
    other: Any = None,
    boundary_check: Any = (),
    padding_option: str = "",
    cache_modifier: str = "",
    eviction_policy: str = "",
    volatile: bool = False,
) -> tensor:
    """Read memory: a scalar through a pointer, a block through a block of pointers.

    The result has the type that ``pointer`` points at; a pointer to int1 reads a byte and gives int1. Where
    ``mask`` (boolean) is false nothing is read and the element is ``other``, or undefined when that is not
    given. A block of pointers, ``mask`` and ``other`` broadcast to one shape, the result's; a scalar pointer
    takes scalars. Addresses must be multiples of the element's size.

    ``cache_modifier`` is ``""``, ``".ca"``, ``".cg"``, ``".cs"`` or ``".cv"``; ``eviction_policy`` is ``""``,
    ``"evict_first"`` or ``"evict_last"`` (PTX ISA, *Cache Operators* and *Cache Eviction Priority Hints*);
    ``volatile`` forbids caching, and that the read is removed or repeated.

    ``pointer`` may be a block pointer (``tl.make_block_ptr``). Then ``boundary_check`` lists the dimensions
    along which the block may reach beyond the tensor; nothing is read there, and the elements are zero, or
    NaN with ``padding_option="nan"`` (``""`` and ``"zero"`` mean the same). There is no ``mask``.

    Errors: a ``pointer`` that is none, ``other`` without ``mask``, a mask of floats, shapes that do not
    broadcast; NaN for integers.

        x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    """


@builtin(member=True)
def store(
    pointer: tensor,
    value: Any,
    mask: Any = None,
    boundary_check: Any = (),
    cache_modifier: str = "",
    eviction_policy: str = "",
) -> None:
    """Write ``value`` through ``pointer`` where ``mask`` is true (everywhere when it is not given).

    ``pointer`` is a pointer or a block of pointers; ``value`` is cast to what it points at, and ``value`` and
    ``mask`` broadcast to its shape. int1 is written as a byte, 0 or 1. Of elements with equal addresses any
    one wins.

    ``cache_modifier`` is ``""``, ``".wb"``, ``".cg"``, ``".cs"`` or ``".wt"``; ``eviction_policy`` as for
    :func:`load`. ``pointer`` may be a block pointer, with ``boundary_check`` as for :func:`load`.

    Errors: a ``pointer`` that is none, or is a ``tl.const`` one; shapes that do not broadcast; a number that
    does not fit in the type.

        tl.store(out_ptr + offsets, x + y, mask=offsets < n)
    """
