"""Conformance of the language: what a kernel computes, on every executor."""

from __future__ import annotations

from tests.kernels.conftest import execute

__all__ = ["execute"]
