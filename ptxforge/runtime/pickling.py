"""Kernels travel between processes by name, as functions do.

A kernel is what compiled code and loaded modules hang on, so a copy of it would be another kernel with
nothing compiled: ``copy`` and ``deepcopy`` give the kernel itself, and ``pickle`` writes the module and the
qualified name under which the other process finds it. What stands under that name may be the kernel, an
autotuner or heuristics around it, or the plain function that it was made of.

A kernel of a script is in the module ``__main__``. ``multiprocessing`` runs the script again in each process
that it spawns, under the same name; in the worker of any other pool the script's file is run here, once, as
``__mp_main__`` (so that ``if __name__ == "__main__"`` keeps its main part out).
"""

from __future__ import annotations

import functools
import importlib
import runpy
import sys
import types
from collections.abc import Callable
from typing import Any

from ptxforge.support.errors import LaunchError


class TravelsByName:
    """A kernel: copies are the kernel itself, and a pickle names it."""

    def __copy__(self) -> TravelsByName:
        return self

    def __deepcopy__(self, memo: dict) -> TravelsByName:
        return self

    def __reduce__(self) -> tuple:
        return reduced(self)


def reduced(kernel: Any, remake: Callable | None = None, options: dict[str, Any] | None = None) -> tuple:
    """What ``__reduce__`` returns for ``kernel``.

    ``remake(function, **options)`` makes a kernel of the plain function that may stand under its name.
    Raises :class:`LaunchError` with the kernel's name when it cannot be found by that.
    """
    module, name = kernel.__module__, kernel.__qualname__
    script = getattr(sys.modules.get("__main__"), "__file__", None) if module == "__main__" else None
    found = _lookup(sys.modules.get(module), name)
    depth = 0
    while found is not None and found is not kernel:
        if remake is not None and found is _innermost(kernel):
            return _remade, (module, name, script, remake, options or {})
        found, depth = getattr(found, "fn", None), depth + 1
    if found is None:
        raise LaunchError(
            f"the kernel '{module}.{name}' cannot be pickled: another process would not find it under that "
            "name; define it at the top of a module, under the name of its function"
        )
    return _found, (module, name, script, depth)


def _innermost(kernel: Any) -> Any:
    while not isinstance(kernel, types.FunctionType) and hasattr(kernel, "fn"):
        kernel = kernel.fn
    return kernel


def _lookup(module: Any, qualified_name: str) -> Any:
    found = module
    for name in qualified_name.split("."):
        found = getattr(found, name, None)
    return found


def _found(module: str, name: str, script: str | None, depth: int) -> Any:
    """The kernel below ``depth`` wrappers of what has that name in this process."""
    found = _object(module, name, script)
    for _ in range(depth):
        found = getattr(found, "fn", None)
    if found is None:
        raise LaunchError(
            f"the kernel '{module}.{name}' is another thing in this process: unwrapping it fails"
        )
    return found


def _remade(module: str, name: str, script: str | None, remake: Callable, options: dict[str, Any]) -> Any:
    key = (module, name, repr(options))
    if key not in _remade_kernels:
        _remade_kernels[key] = remake(_object(module, name, script), **options)
    return _remade_kernels[key]


_remade_kernels: dict[tuple, Any] = {}
"""One kernel for all that arrive under a name, so that it is compiled once."""


def _object(module: str, name: str, script: str | None) -> Any:
    found = _lookup(importlib.import_module(module), name)
    if found is None and script is not None:
        found = _lookup(_script(script), name)
    if found is None:
        raise LaunchError(f"the kernel '{module}.{name}' does not exist in this process")
    return found


@functools.cache
def _script(path: str) -> types.SimpleNamespace:
    """The names that a script defines, its main part left out."""
    return types.SimpleNamespace(**runpy.run_path(path, run_name="__mp_main__"))
