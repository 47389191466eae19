"""Printing and assertions, while compiling and while running."""

from __future__ import annotations

from typing import Any

from ptxforge.language.registry import builtin


@builtin
def static_print(
    *values: Any, sep: str = " ", end: str = "\n", file: Any = None, flush: bool = False
) -> None:
    """Print compile-time values, and the types of runtime ones, when the kernel is compiled."""


@builtin
def static_assert(cond: bool, msg: str = "") -> None:
    """Refuse to compile (:class:`CompileTimeAssertionError`) unless the compile-time ``cond`` holds.

    tl.static_assert(BLOCK % 16 == 0, "BLOCK must be a multiple of 16")
    """


@builtin
def device_print(prefix: str, *args: Any, hex: bool = False) -> None:
    """Print each element of ``args`` with its program and index while running. ``print`` in a kernel is this."""


@builtin
def device_assert(cond: Any, msg: str = "", mask: Any = None) -> None:
    """Stop the kernel unless ``cond`` holds (where ``mask`` does). Compiled in only with ``debug=True``.
    ``assert`` in a kernel is this."""
