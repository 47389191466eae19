"""Loops that load a number, and with it say which rows and tiles they load."""

from __future__ import annotations

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl


@ptxforge.jit
def rows(x, index, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), tl.float32)
    for s in tl.range(0, n):
        row = tl.load(index + s)
        acc += tl.load(x + row * BLOCK + i, mask=i < BLOCK - 3, other=1)
    tl.store(out + i, acc)


@ptxforge.jit
def tiles(x, y, index, out, n, BLOCK: tl.constexpr):
    i, k = tl.arange(0, BLOCK), tl.arange(0, 32)
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for s in tl.range(0, n):
        page = tl.load(index + s)
        left = tl.load(x + i[:, None] * (n * 32) + (s * 32 + k)[None, :])
        right = tl.load(y + (page * 32 + k)[:, None] * BLOCK + i[None, :])
        acc = tl.dot(left, right, acc)
    tl.store(out + i[:, None] * BLOCK + i[None, :], acc)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_rows(execute, n):
    random = np.random.default_rng(n)
    x, index = random.integers(-4, 5, (6, 128)).astype(np.float32), random.integers(0, 6, n).astype(np.int32)
    x[:, 125:] = 1
    for (out,) in execute(rows, (1,), [x, index, np.zeros(128, np.float32), n], {"BLOCK": 128}, [2]):
        np.testing.assert_array_equal(out, x[index].sum(0))


@pytest.mark.parametrize("n", [2, 5])
def test_tiles(execute, n):
    random = np.random.default_rng(n)
    x, y = (random.integers(-4, 5, shape).astype(np.float16) for shape in ((64, n * 32), (6 * 32, 64)))
    index = random.integers(0, 6, n).astype(np.int32)
    pages = y.reshape(6, 32, 64)[index].reshape(n * 32, 64)
    arguments = [x, y, index, np.zeros((64, 64), np.float32), n]
    for (out,) in execute(tiles, (1,), arguments, {"BLOCK": 64}, [3]):
        np.testing.assert_array_equal(out, x.astype(np.float64) @ pages.astype(np.float64))
