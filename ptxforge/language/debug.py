"""Printing and assertions, while compiling and while running."""

from __future__ import annotations

from typing import Any

from ptxforge.language.registry import builtin


@builtin
def static_print(
    *values: Any, sep: str = " ", end: str = "\n", file: Any = None, flush: bool = False
) -> None:
    """Print ``values`` when the kernel is compiled: compile-time values, and of runtime ones their types.

    ``sep``, ``end``, ``file`` and ``flush`` are those of ``print``.

        tl.static_print("x:", x)            # x: fp32[constexpr[128]]
    """


@builtin
def static_assert(cond: bool, msg: str = "") -> None:
    """Refuse to compile unless the compile-time ``cond`` holds.

    The error is a ``CompileTimeAssertionError`` with ``msg`` and the kernel's line; a runtime ``cond`` is an
    error, too.

        tl.static_assert(BLOCK % 16 == 0, "BLOCK must be a multiple of 16")
    """


@builtin
def device_print(prefix: str, *args: Any, hex: bool = False) -> None:
    """Print each element of ``args`` while running, with ``prefix``, its program and its index.

    ``prefix`` is a compile-time string, and ends in a colon before values (one is added); ``args`` are
    blocks, scalars and numbers; ``hex`` prints their bits. Of several ``args`` each line says which one
    (``(operand 1)``). Every thread prints a scalar, and a ``prefix`` without ``args``.
    Lines of different threads come in any order. ``print`` in a kernel is this.

        tl.device_print("offset", offsets)  # pid (0, 0, 0) idx ( 17) offset: 17
    """


@builtin
def device_assert(cond: Any, msg: str = "", mask: Any = None) -> None:
    """Stop the kernel unless ``cond`` holds (for a block: everywhere) where ``mask`` does.

    ``msg`` is a compile-time string; it is reported with the kernel's line, and the launch fails with an
    error of the device. Compiled in only with ``debug=True``. ``assert`` in a kernel is this.

        tl.device_assert(index < n, "index out of range", mask=inside)
    """
