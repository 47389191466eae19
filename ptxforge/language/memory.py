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
    *,
    boundary_check: Any = (),
    padding_option: str = "",
    cache_modifier: str = "",
    eviction_policy: str = "",
    volatile: bool = False,
) -> tensor:
    """Read memory: a scalar through a pointer, a block through a block of pointers.

    Where ``mask`` is false nothing is read and the element is ``other`` (undefined when it is not given). ``mask``
    and ``other`` broadcast to the pointers' shape; ``other`` needs a mask. A pointer to int1 reads a byte and
    gives int1.

    ``cache_modifier`` is ``""``, ``".ca"``, ``".cg"``, ``".cs"`` or ``".cv"``; ``eviction_policy`` ``""``, ``"evict_first"`` or
    ``"evict_last"``; ``volatile`` forbids caching and removing. ``boundary_check`` and ``padding_option`` belonged to
    block pointers and must keep their defaults.

        x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    """


@builtin
def store(
    pointer: tensor,
    value: Any,
    mask: Any = None,
    *,
    boundary_check: Any = (),
    cache_modifier: str = "",
    eviction_policy: str = "",
) -> None:
    """Write ``value`` (cast to what the pointer points at, broadcast to its shape) where ``mask`` is true.

    ``cache_modifier`` is ``""``, ``".wb"``, ``".cg"``, ``".cs"`` or ``".wt"``; ``eviction_policy`` as for :func:`load`.

        tl.store(out_ptr + offsets, x + y, mask=offsets < n)
    """
