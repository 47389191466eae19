"""Elements of pairs, written as sums of products with (1, 0) and (0, 1): generated sorting networks do so."""

from __future__ import annotations

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl


@ptxforge.jit
def exchange(x, out, N: tl.constexpr, STEP: tl.constexpr, FLIP: tl.constexpr):
    """Order elements that are STEP apart; every other block of pairs the other way if FLIP."""
    i = tl.arange(0, N)
    y = tl.reshape(tl.load(x + i), [N // (2 * STEP), 2, STEP])
    right_mask = tl.arange(0, 2)[None, :, None].to(y.dtype)
    left_mask = (1 - right_mask).to(y.dtype)
    left = tl.broadcast_to(tl.sum(y * left_mask, 1)[:, None, :], y.shape).to(y.dtype)
    right = tl.broadcast_to(tl.sum(right_mask * y, 1)[:, None, :], y.shape).to(y.dtype)
    flip = 0
    if FLIP:
        blocks = tl.broadcast_to(tl.arange(0, 2)[None, :, None], [N // (4 * STEP), 2, 2 * STEP])
        flip = tl.reshape(blocks, y.shape)
    swap = ((left > right) ^ flip).to(tl.int1)
    ordered = y ^ tl.where(swap, left ^ right, tl.zeros_like(y))
    tl.store(out + i, tl.reshape(ordered, [N]))


def expected(x, step, flip):
    pairs = np.sort(x.reshape(-1, 2, step), axis=1)
    if flip:
        pairs[1::2] = pairs[1::2, ::-1]
    return pairs.reshape(-1)


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("step", [1, 4, 32, 128])
@pytest.mark.parametrize("dtype", [np.int16, np.int32, np.int64], ids=lambda dtype: np.dtype(dtype).name)
def test_exchange(execute, dtype, step, flip):
    ends = np.iinfo(dtype)
    x = np.random.default_rng(step).integers(ends.min, ends.max, 512, dtype, endpoint=True)
    constants = {"N": 512, "STEP": step, "FLIP": flip}
    for (out,) in execute(exchange, (1,), [x, np.zeros_like(x)], constants, outputs=[1], num_warps=4):
        np.testing.assert_array_equal(out, expected(x, step, flip))


def test_elements_of_pairs_take_one_shuffle():
    """No product and no sum, and truth is not made a number on the way."""
    signature, constants = {"x": "*i32:16", "out": "*i32:16"}, {"N": 128, "STEP": 4, "FLIP": True}
    ptx = exchange.compile(signature, constants, "sm_90a", num_warps=1).ptx
    assert ptx.count("shfl.sync") == 4 and "mul.lo" not in ptx
    assert " 1, 0, %p" not in ptx
