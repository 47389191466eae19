"""Conditions of ``tl.where`` that are no booleans."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl


@ptxforge.jit
def choose(x, out, AS_BOOL: tl.constexpr):
    at = tl.arange(0, 4)
    condition = tl.load(x + at)
    tl.store(out + at, tl.where(condition != 0 if AS_BOOL else condition, 1, 2))


def test_numbers_as_conditions_are_compared_with_zero_and_warned_of():
    x, out = np.array([0, 1, -3, 0], np.int32), np.zeros(4, np.int32)
    with pytest.warns(UserWarning, match=r"the condition of tl.where is int32\[4\]; write != 0"):
        choose[(1,)](x, out, False)
    assert out.tolist() == [2, 1, 1, 2]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        choose[(1,)](x, out, True)
