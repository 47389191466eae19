"""torch, where a program has it."""

from __future__ import annotations

import importlib
from types import ModuleType

from ptxforge.support.errors import PtxforgeError


def torch() -> ModuleType:
    """The module. Raises :class:`PtxforgeError` where torch is not installed."""
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise PtxforgeError(f"this needs torch, which cannot be imported: {error}") from error
