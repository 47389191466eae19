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


@ptxforge.jit
def moments_of_columns(x, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    i, j = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None, :]
    value = tl.load(x + i * COLUMNS + j)
    weight = tl.full((ROWS, COLUMNS), 1, value.dtype)
    mean, m2, total = tl.reduce((value, tl.zeros_like(value), weight), 0, merged)
    columns = tl.arange(0, COLUMNS)
    tl.store(out + columns, mean)
    tl.store(out + COLUMNS + columns, m2 / total)
    tl.store(out + 2 * COLUMNS + columns, total)


@pytest.mark.parametrize("rows, columns, num_warps, element", [
    (32, 64, 4, np.float32), (32, 128, 8, np.float32), (64, 32, 8, np.float32), (64, 16, 16, np.float32),
    (16, 256, 2, np.float32), (32, 64, 4, np.float64),
])  # fmt: skip
def test_threads_share_the_combination_of_columns(execute, rows, columns, num_warps, element):
    """Several threads need each result; they combine a share each (``dealt_out``) if there are enough."""
    x = np.random.default_rng(0).normal(3, 2, (rows, columns)).astype(element)
    expected = np.stack([x.mean(0), x.var(0), np.full(columns, rows)])
    constants = {"ROWS": rows, "COLUMNS": columns}
    arguments = [x, np.zeros((3, columns), element)]
    for (out,) in execute(
        moments_of_columns, (1,), arguments, constants, outputs=[1], num_warps=num_warps
    ):
        np.testing.assert_allclose(out, expected, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("num_warps, columns", [(4, 64), (8, 128)])
def test_shares_are_fewer_instructions(num_warps, columns):
    art = ptxforge.compile(
        moments_of_columns, signature={"x": "*fp32:16", "out": "*fp32:16"},
        constants={"ROWS": 32, "COLUMNS": columns}, target="sm_90a", num_warps=num_warps,
    )  # fmt: skip
    assert "dealt_out = true" in art.asm["gpu"] and art.asm["ptx"].count("bar.sync") == 2
    assert art.asm["ptx"].count("div.full") + art.asm["ptx"].count("rcp.approx") < 32
