"""``max_num_imprecise_acc``: tensor cores add 8-bit floats in less than float32, so their sums are taken
out of them after so many products."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl

FLOAT8 = ml_dtypes.float8_e4m3fn


@ptxforge.jit
def product(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, MOST: tl.constexpr,
            ALONE: tl.constexpr):  # fmt: skip
    """a @ bᵀ; ALONE: with a sum of its own for each step."""
    i, j, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        x = tl.load(a + i[:, None] * K + (start + k)[None, :])
        y = tl.load(b + j[:, None] * K + (start + k)[None, :]).T
        if ALONE:
            total += tl.dot(x, y, max_num_imprecise_acc=MOST)
        else:
            total = tl.dot(x, y, total, max_num_imprecise_acc=MOST)
    tl.store(c + i[:, None] * BN + j[None, :], total)


@pytest.mark.parametrize(("most", "alone", "sums"), [
    (None, False, 0), (0, False, 0), (128, False, 1), (64, False, 2), (100, False, 2), (32, False, 4),
    (8, False, 4), (128, True, 1), (64, True, 2),
])  # fmt: skip
def test_how_often_sums_are_added_in_float32(execute, most, alone, sums):
    """``sums`` of each element in a step."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, (64, 384)).astype(FLOAT8) for _ in range(2))
    expected = a.astype(np.float32) @ b.astype(np.float32).T
    constants = {"BM": 64, "BN": 64, "BK": 128, "MOST": most, "ALONE": alone}
    arguments = [a, b, np.zeros((64, 64), np.float32), 384]
    for (found,) in execute(product, (1,), arguments, constants, outputs=[2], num_warps=4):
        np.testing.assert_array_equal(found, expected)
    ptx = product.variants[-1].artifact.ptx
    assert len(re.findall(r"wgmma\.mma_async", ptx)) == 4
    assert len(re.findall(r"\badd\S*\.f32", ptx)) == sums * 64 * 64 // 128
