"""Which handler executes which operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ptxforge.ir.core import Operation

HANDLERS: dict[type[Operation], Callable[..., Any]] = {}
"""``handler(program, op, *operands)`` gives the results: one value, or a tuple of several, or nothing."""


def interprets(*kinds: type[Operation]) -> Callable:
    """Decorator: the handler of these operations."""

    def register(handler: Callable) -> Callable:
        for kind in kinds:
            HANDLERS[kind] = handler
        return handler

    return register
