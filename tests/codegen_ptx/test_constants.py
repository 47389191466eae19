"""Immediate operands."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ptxforge.codegen_ptx.ptx.constants import f32

VALUES = [
    0.0, -0.0, 1, -1.5, 0.1, 1e-45, 7e-46, 5e-324, 2**24 + 1, 3.4028235e38, 3.4028235677973366e38,
    1e39, -1e39, math.inf, -math.inf, math.nan, -math.nan,
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES)
def test_f32_is_rounded_as_numpy_does(value):
    with np.errstate(all="ignore"):
        assert f32(value) == "0f%08X" % np.float32(value).view(np.uint32)
