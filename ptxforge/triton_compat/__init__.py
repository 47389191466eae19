"""Triton's module names for ptxforge, so that a file of Triton kernels runs unmodified.

    import ptxforge.triton_compat
    ptxforge.triton_compat.install()      # before anything imports triton

    import triton
    import triton.language as tl

``python -m ptxforge run script.py`` does the same for a script. Names that ptxforge does not cover are
absent: reading one raises an ``AttributeError`` that says so.
"""

from __future__ import annotations

import sys

from ptxforge.support.errors import PtxforgeError
from ptxforge.triton_compat.alias import Alias
from ptxforge.triton_compat.modules import MODULES

__all__ = ["install", "is_installed", "uninstall"]


def is_installed() -> bool:
    """Whether ``import triton`` gives ptxforge now."""
    return isinstance(sys.modules.get("triton"), Alias)


def install() -> None:
    """Register the modules. Raises :class:`PtxforgeError` when the real package is imported already."""
    if is_installed():
        return
    if "triton" in sys.modules:
        raise PtxforgeError(
            "the real triton package is imported already; call ptxforge.triton_compat.install() before "
            "anything that imports it"
        )
    for name, sources in MODULES.items():
        sys.modules[name] = Alias(name, sources)
    for name in MODULES:
        parent, _, leaf = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], leaf, sys.modules[name])


def uninstall() -> None:
    """Remove the modules again; what imported them keeps them."""
    if is_installed():
        for name in MODULES:
            sys.modules.pop(name, None)
