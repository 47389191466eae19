"""Mean and variance by Welford's method: a reduction whose combination is many instructions."""

from __future__ import annotations

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl


@ptxforge.jit
def merged(mean_a, m2_a, weight_a, mean_b, m2_b, weight_b):
    """B. P. Welford, 1962; T. F. Chan et al., 1979, for two parts of a sample."""
    weight = weight_a + weight_b
    share = tl.where(weight == 0.0, 0.0, weight_b / weight)
    delta = mean_b - mean_a
    return mean_a + delta * share, m2_a + m2_b + delta * delta * weight_a * share, weight


@ptxforge.jit
def moments(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    value = tl.load(x + tl.program_id(0) * n + i, mask=i < n, other=0.0)
    weight = tl.where(i < n, 1.0, 0.0)
    mean, m2, total = tl.reduce((value, tl.zeros_like(value), weight), 0, merged)
    tl.store(out + tl.program_id(0) * 3, mean)
    tl.store(out + tl.program_id(0) * 3 + 1, m2 / total)
    tl.store(out + tl.program_id(0) * 3 + 2, total)


@pytest.mark.parametrize("num_warps", [1, 4, 8, 16])
@pytest.mark.parametrize("n", [1000, 1])
def test_moments(execute, num_warps, n):
    x = np.random.default_rng(0).normal(3, 2, (2, n)).astype(np.float32)
    expected = np.stack([x.mean(1), x.var(1), np.full(2, n)], 1)
    arguments = [x, np.zeros((2, 3), np.float32), n]
    results = execute(moments, (2,), arguments, {"BLOCK": 1024}, outputs=[1], num_warps=num_warps)
    for (out,) in results:
        np.testing.assert_allclose(out, expected, rtol=2e-5, atol=1e-6)


def divisions_behind_the_barrier(num_warps: int) -> int:
    signature = {"x": "*fp32:16", "out": "*fp32:16", "n": "i32:16"}
    ptx = moments.compile(signature, {"BLOCK": 1024}, target="sm_90a", num_warps=num_warps).asm["ptx"]
    return ptx.split("bar.sync")[-1].count("div.")


def test_partial_results_are_combined_in_rounds():
    """A division for each of three or four rounds, and the kernel's last; not one for each warp."""
    assert divisions_behind_the_barrier(8) == 3 + 1
    assert divisions_behind_the_barrier(16) == 4 + 1
