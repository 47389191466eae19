"""Pipelined loops in loops: the first copies of the next must not overwrite what a slow warp still reads."""

from __future__ import annotations

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl


@ptxforge.jit
def accumulate(a, b, index, out, rounds, trips, INDIRECT: tl.constexpr, STAGES: tl.constexpr):
    """out = rounds · (a @ b), with nothing between the loops at which warps would meet."""
    i, k = tl.arange(0, 32), tl.arange(0, 32)
    acc = tl.zeros([32, 32], tl.float32)
    for _ in range(rounds):
        for step in tl.range(0, trips, num_stages=STAGES):
            at = step * 32 + k
            rows = tl.load(index + at) if INDIRECT else at
            x = tl.load(a + i[:, None] * 160 + at[None, :])
            y = tl.load(b + rows[:, None] * 32 + i[None, :])
            acc = tl.dot(x, y, acc)
    tl.store(out + i[:, None] * 32 + i[None, :], acc)


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("indirect", [False, True], ids=["direct", "indirect"])
@pytest.mark.parametrize("rounds, trips", [(3, 2), (2, 5), (2, 1), (2, 0), (0, 3)])
def test_a_loop_of_pipelined_loops(execute, stages, indirect, rounds, trips):
    rng = np.random.default_rng(stages)
    a = rng.integers(-4, 5, (32, 160)).astype(np.float16)
    b = rng.integers(-4, 5, (160, 32)).astype(np.float16)
    index = rng.permutation(160).astype(np.int32)
    depth = trips * 32
    chosen = index[:depth] if indirect else np.arange(depth)
    expected = rounds * (a[:, :depth].astype(np.float64) @ b[chosen].astype(np.float64))
    arguments = [a, b, index, np.zeros((32, 32), np.float32), rounds, trips]
    constants = {"INDIRECT": indirect, "STAGES": stages}
    for (out,) in execute(accumulate, (1,), arguments, constants, [3], num_warps=4):
        np.testing.assert_array_equal(out, expected)
