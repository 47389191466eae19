"""``lambda`` and functions defined in kernels."""

from __future__ import annotations

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl


@ptxforge.jit
def twice(f, x):
    return f(f(x))


@ptxforge.jit
def make_adder(n):
    return lambda x: x + n


@ptxforge.jit
def kernel(out, x, n):
    i = tl.arange(0, 16)
    a = tl.load(x + i)
    scale = lambda y, by=3: y * by + n  # noqa: E731

    def clipped(y, low, *more, high=50):
        if low > 100:
            return y
        for limit in more:
            y = tl.minimum(y, limit)
        return tl.minimum(tl.maximum(y, low), high)

    tl.store(out + i, scale(a))
    tl.store(out + 16 + i, twice(scale, a))
    tl.store(out + 32 + i, clipped(a, 3))
    tl.store(out + 48 + i, clipped(a, n, 9, high=10))
    n += 1
    tl.store(out + 64 + i, scale(a, by=n) + make_adder(n)(1))
    tl.store(out + 80, tl.reduce(a, 0, lambda p, q: p + q))
    tl.store(out + 81 + tl.arange(0, 2), [f(n) for f in (scale, lambda z: z)][1])


def test_closures(execute):
    x = np.random.default_rng(0).integers(-9, 60, 16).astype(np.int32)
    n = 5
    expected = np.concatenate(
        [x * 3 + n, (x * 3 + n) * 3 + n, x.clip(3, 50), np.minimum(x, 9).clip(n, 10), x * 6 + 6 + 7,
         [x.sum(), 6, 6]]
    )  # fmt: skip
    for (out,) in execute(kernel, (1,), [np.zeros(83, np.int32), x, n], {}, outputs=[0]):
        np.testing.assert_array_equal(out, expected)


@ptxforge.jit
def in_branches_and_loops(out, x, n):
    total = 0

    def add(y):
        return total + y * n

    for i in range(4):
        value = tl.load(x + i)
        if value > 3:
            total = add(value)
        else:
            n += 1
    tl.store(out, total)
    tl.store(out + 1, add(0))


def test_closures_read_variables_as_they_are(execute):
    x = np.array([5, 1, 2, 9], np.int32)
    for (out,) in execute(in_branches_and_loops, (1,), [np.zeros(2, np.int32), x, 2], {}, outputs=[0]):
        assert out.tolist() == [10 + 36, 46]


@ptxforge.jit
def captures_in_a_reduction(out, x, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    capped = lambda a, b: tl.minimum(tl.maximum(a, b), n)  # noqa: E731
    tl.store(out, tl.reduce(tl.load(x + i), 0, capped))
    tl.store(out + 1 + i, tl.associative_scan(tl.load(x + i), 0, capped))


@pytest.mark.parametrize("block", [16, 512])
def test_functions_that_combine_read_variables_too(execute, block):
    x = np.random.default_rng(0).integers(0, 60, block).astype(np.int32)
    expected = [min(x.max(), 40), x[0], *np.minimum(np.maximum.accumulate(x), 40)[1:]]
    arguments = [np.zeros(block + 1, np.int32), x, 40]
    for (out,) in execute(captures_in_a_reduction, (1,), arguments, {"BLOCK": block}, outputs=[0]):
        assert out.tolist() == expected
