"""Imports every module that registers instruction families: after this, the table in :mod:`registry` is complete."""

from __future__ import annotations

from ptxforge.emulator import arithmetic, atomics, barriers, control, memory_ops, warp

__all__ = ["arithmetic", "atomics", "barriers", "control", "memory_ops", "warp"]
