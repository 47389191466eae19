"""Products of f32 that are made of several products of parts: how exact they are, and what is not finite."""

from __future__ import annotations

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl

PRECISIONS = {"tf32x3": 2.0**-19, "bf16x3": 2.0**-15, "bf16x6": 2.0**-19}
"""The largest relative error of a sum of products that are not negative."""


@ptxforge.jit
def product(
    a, b, c, K, PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    IN_PLACE: tl.constexpr,
):  # fmt: skip
    i, j, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        x = tl.load(a + i[:, None] * K + (start + k)[None, :])
        y = tl.load(b + (start + k)[:, None] * BN + j[None, :])
        if IN_PLACE:
            acc = tl.dot(x, y, acc, input_precision=PRECISION)
        else:
            acc += tl.dot(x, y, input_precision=PRECISION)
    tl.store(c + i[:, None] * BN + j[None, :], acc)


TILES = {"mma.sync": (16, 16, 32, 1), "wgmma": (64, 64, 32, 4)}


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_long_sums(execute, precision, tile, in_place):
    """Tensor cores cut off what they add; so sums over all k are made outside of them."""
    (m, n, step, warps), k = TILES[tile], 4096
    rng = np.random.default_rng(3)
    a, b = rng.random((m, k), np.float32), rng.random((k, n), np.float32)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    constants = {"PRECISION": precision, "BM": m, "BN": n, "BK": step, "IN_PLACE": in_place}
    arguments = [a, b, np.zeros((m, n), np.float32), k]
    for (out,) in execute(product, (1,), arguments, constants, outputs=[2], num_warps=warps):
        assert (abs(out - expected) <= PRECISIONS[precision] * expected).all()


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_what_is_not_finite(execute, precision, tile):
    """Infinity has no rest that could be multiplied, and makes no NaN of its row."""
    (m, n, step, warps), k = TILES[tile], 64
    rng = np.random.default_rng(4)
    a, b = (rng.integers(1, 9, shape).astype(np.float32) for shape in ((m, k), (k, n)))
    a[3, 5], a[4, 40], b[7, 2], a[9, 9] = np.inf, -np.inf, np.inf, np.nan
    with np.errstate(invalid="ignore"):
        expected = a @ b
    constants = {"PRECISION": precision, "BM": m, "BN": n, "BK": step, "IN_PLACE": True}
    arguments = [a, b, np.zeros((m, n), np.float32), k]
    for (out,) in execute(product, (1,), arguments, constants, outputs=[2], num_warps=warps):
        np.testing.assert_array_equal(out, expected)
