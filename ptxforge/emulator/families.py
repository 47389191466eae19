"""Imports every module that registers instruction families: after this, the table in :mod:`registry` is
complete.
"""

from __future__ import annotations

from ptxforge.emulator import (  # noqa: F401
    arithmetic,
    async_copy,
    barriers,
    cluster,
    control,
    mbarrier,
    memory_ops,
    mma,
    tensormap,
    warp,
    wgmma,
)
