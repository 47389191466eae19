"""Triton's module names for ptxforge, so that a file of Triton kernels runs unmodified.

    import ptxforge.triton_compat
    ptxforge.triton_compat.install()      # before anything imports triton

    import triton
    import triton.language as tl

``python -m ptxforge run script.py`` does the same for a script, and ``PYTHONPATH=$(python -m ptxforge
triton-path)`` where the code cannot be touched. Child processes get the alias too: see :func:`install`. Names
that ptxforge does not cover are absent: reading one raises an ``AttributeError`` that says so.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from ptxforge.compiler import Assembly
from ptxforge.language.types import dtype
from ptxforge.support import tracebacks
from ptxforge.support.errors import PtxforgeError
from ptxforge.triton_compat import words
from ptxforge.triton_compat.knobs import runtime
from ptxforge.triton_compat.modules import MODULES, OBJECTS, Alias, Refusals, Reloads

__all__ = ["SHADOW", "install", "is_installed", "uninstall"]

SHADOW = str(Path(__file__).absolute().parent / "shadow")
"""A folder whose package ``triton`` installs the alias: what stands first on the path of other processes."""

_FINDERS = (Reloads, Refusals)
_set_here: list[str] = []
"""Environment variables that only the alias has set."""


def is_installed() -> bool:
    """Whether ``import triton`` gives ptxforge now."""
    return isinstance(sys.modules.get("triton"), Alias)


def install() -> None:
    """Make ``import triton`` give ptxforge, here and in the processes that this one starts.

    Those find the folder :data:`SHADOW` first: multiprocessing hands ``sys.path`` on, and any other Python
    reads ``PYTHONPATH``. Both are changed, here only. With ``TRITON_INTERPRET=1`` the interpreter runs
    kernels, unless ``PTXFORGE_DEVICE`` says something else. Raises :class:`PtxforgeError` when the real
    package is imported already.
    """
    if is_installed():
        return
    if "triton" in sys.modules:
        raise PtxforgeError(
            "the real triton package is imported already; call ptxforge.triton_compat.install() before "
            "anything that imports it"
        )
    for name, sources in MODULES.items():
        sys.modules[name] = Alias(name, sources, getattr(OBJECTS.get(name), "reload", None))
    for name in MODULES:
        parent, _, leaf = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], leaf, OBJECTS.get(name, sys.modules[name]))
    if runtime.interpret and "PTXFORGE_DEVICE" not in os.environ:
        os.environ["PTXFORGE_DEVICE"] = "interpreter"
        _set_here.append("PTXFORGE_DEVICE")
    dtype.namespace = "triton.language"
    Assembly.listed_as = {"tile": "ttir", "gpu": "ttgir", "sass": ""}  # Triton makes it, and does not list it
    PtxforgeError.also, tracebacks.cause_of = words.also, words.cause
    sys.meta_path += _FINDERS
    sys.path[:] = [SHADOW, *_others(sys.path)]
    _set_python_path([SHADOW, *_others(_python_path())])


def uninstall() -> None:
    """Remove the modules again; what imported them keeps them. Processes started from now on find what they
    would have found."""
    if not is_installed():
        return
    for name in MODULES:
        sys.modules.pop(name, None)
    while _set_here:
        os.environ.pop(_set_here.pop(), None)
    dtype.namespace = "tl"
    Assembly.listed_as = {}
    PtxforgeError.also = tracebacks.cause_of = None
    sys.meta_path[:] = [finder for finder in sys.meta_path if finder not in _FINDERS]
    sys.path[:] = _others(sys.path)
    _set_python_path(_others(_python_path()))


def _others(folders: list[str]) -> list[str]:
    return [folder for folder in folders if folder != SHADOW]


def _python_path() -> list[str]:
    text = os.environ.get("PYTHONPATH")
    return text.split(os.pathsep) if text else []


def _set_python_path(folders: list[str]) -> None:
    if folders:
        os.environ["PYTHONPATH"] = os.pathsep.join(folders)
    else:
        os.environ.pop("PYTHONPATH", None)
