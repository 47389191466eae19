"""How products are stored whose conversion passes in parts."""

from __future__ import annotations

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl


@ptxforge.jit
def product(a, b, out, columns):
    i, k = tl.arange(0, 128), tl.arange(0, 32)
    x = tl.load(a + i[:, None] * 32 + k[None, :])
    y = tl.load(b + k[:, None] * 128 + i[None, :])
    tl.store(out + i[:, None] * 128 + i[None, :], tl.dot(x, y), mask=(i < columns)[None, :])


@pytest.mark.parametrize("columns", [0, 77, 128])
def test_a_guarded_store_of_what_comes_in_parts(execute, columns):
    """Where ``columns`` is no multiple of 16, only a running kernel knows whether four are one vector."""
    rng = np.random.default_rng(columns)
    a, b = (rng.integers(-4, 5, shape).astype(np.float16) for shape in ((128, 32), (32, 128)))
    expected = a.astype(np.float32) @ b.astype(np.float32)
    expected[:, columns:] = 7
    arguments = [a, b, np.full((128, 128), 7, np.float32), columns]
    for (out,) in execute(product, (1,), arguments, {}, [2], num_warps=4):
        np.testing.assert_array_equal(out, expected)
