"""No benchmark configuration of matrix products and attention spills registers to local memory."""

from __future__ import annotations

import pytest

from benchmarks.configurations import products
from benchmarks.dialects import load
from ptxforge.compiler import compile_function
from tests.kernels.assembly import spilled_bytes

kernels = load("ptxforge")
TARGET = "sm_90a"


@pytest.mark.parametrize("one", products(), ids=lambda one: one.name)
def test_nothing_spills(one, tmp_path):
    kernel = getattr(kernels, one.kernel)
    artifact = compile_function(kernel, one.signature, one.constants, TARGET, **one.options)
    assert spilled_bytes(artifact.ptx, tmp_path, TARGET) == 0
