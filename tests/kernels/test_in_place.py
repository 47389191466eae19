"""Memory updated in place by programs whose threads hold copies of its elements, on every executor."""

from __future__ import annotations

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl


@ptxforge.jit
def count(x):
    tl.store(x, tl.load(x) + 1)


@ptxforge.jit
def double_and_spread(x, out, SIZE: tl.constexpr, ROWS: tl.constexpr):
    """x is doubled after every row of out, which other threads write, got it as it was."""
    i = tl.arange(0, SIZE)
    row = tl.load(x + i)
    tl.store(x + i, row * 2)
    places = tl.arange(0, ROWS)[:, None] * SIZE + i[None, :]
    tl.store(out + places, row[None, :] + tl.zeros((ROWS, SIZE), tl.float32))


@pytest.mark.parametrize("num_warps", [1, 4])
def test_a_scalar(execute, num_warps):
    for (x,) in execute(count, (1,), [np.array([41.0], np.float32)], {}, outputs=[0], num_warps=num_warps):
        assert x == 42


@pytest.mark.parametrize("num_warps", [1, 4])
@pytest.mark.parametrize("size", [16, 64, 256])
def test_a_tile(execute, size, num_warps):
    x = np.arange(size, dtype=np.float32)
    arguments = [x, np.zeros((32, size), np.float32)]
    results = execute(
        double_and_spread, (1,), arguments, {"SIZE": size, "ROWS": 32}, outputs=[0, 1], num_warps=num_warps
    )
    for doubled, out in results:
        np.testing.assert_array_equal(doubled, 2 * x)
        np.testing.assert_array_equal(out, np.broadcast_to(x, (32, size)))
