"""Processes that run parts of a grid leave the cores to each other."""

from __future__ import annotations

import ctypes

import pytest

from ptxforge.emulator import parallel


def blas_threads() -> int:
    """How many threads OpenBLAS uses. Skips where numpy is built on something else."""
    with open("/proc/self/maps", encoding="utf-8") as lines:
        libraries = {line.split(None, 5)[5].strip() for line in lines if "openblas" in line}
    for path in libraries:
        library = ctypes.CDLL(path)
        for name in parallel._BLAS_SETTERS:
            ask = name.replace("_set_", "_get_")
            if hasattr(library, ask):
                return getattr(library, ask)()
    pytest.skip("numpy is not built on OpenBLAS")


def test_a_process_uses_one_blas_thread_and_its_parent_as_many_as_before():
    before = blas_threads()
    try:
        parallel.use_blas_threads(2)
        wanted = blas_threads()
        child = parallel._Child(lambda first, last: (blas_threads(), first + last), 3, 4)
        assert child.result() == (1, 7)
        assert blas_threads() == wanted
    finally:
        parallel.use_blas_threads(before)
