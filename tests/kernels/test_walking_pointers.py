"""Pointers that walk through a loop, and whose steps are what accesses add to them, too; loops one after
another."""

from __future__ import annotations

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl


@ptxforge.jit
def one_step_ahead(x, out, n, start, step):
    i = tl.arange(0, 64)
    p = x + start + i
    total = tl.zeros([64], tl.float32)
    for _ in range(n):
        total += tl.load(p + step + i)
        p += step
    tl.store(out + i, total)
    tl.store(out + 64 + i, tl.load(p))


@pytest.mark.parametrize("n", [0, 1, 3])
@pytest.mark.parametrize("step", [5, -5])
def test_a_step_that_accesses_are_ahead_by(execute, n, step):
    x = np.random.default_rng(n).integers(-99, 99, 200).astype(np.float32)
    i = np.arange(64)
    start = 30
    total = sum((x[start + step * (k + 1) + 2 * i] for k in range(n)), np.zeros(64))
    arguments = [x, np.zeros(128, np.float32), n, start, step]
    for (out,) in execute(one_step_ahead, (1,), arguments, {}, [1], num_warps=1):
        np.testing.assert_array_equal(out[:64], total)
        np.testing.assert_array_equal(out[64:], x[start + step * n + i])


@ptxforge.jit
def two_steps(x, out, n, stride, first, second):
    rows, columns = tl.arange(0, 32)[:, None], tl.arange(0, 32)[None, :]
    total = tl.zeros([32, 32], tl.float32)
    p = x
    for _ in range(n):
        total += tl.load(p + rows * stride + columns)
        p += first
        total += 2.0 * tl.load(p)
        p += second
    tl.store(out + rows * 32 + columns, total)
    tl.store(out + 1024 + rows * 32 + columns, tl.load(p + rows * stride + columns))


@pytest.mark.parametrize("n", [0, 1, 3])
@pytest.mark.parametrize("warps", [1, 4])
def test_a_pointer_that_takes_two_steps(execute, n, warps):
    x = np.random.default_rng(n).integers(-99, 99, 2000).astype(np.float32)
    places = np.arange(32)[:, None] * 37 + np.arange(32)
    total, p = np.zeros((32, 32)), 0
    for _ in range(n):
        total += x[p + places] + 2 * x[p + 7]
        p += 7 + 18
    arguments = [x, np.zeros(2048, np.float32), n, 37, 7, 18]
    for (out,) in execute(two_steps, (1,), arguments, {}, [1], num_warps=warps):
        np.testing.assert_array_equal(out[:1024].reshape(32, 32), total)
        np.testing.assert_array_equal(out[1024:].reshape(32, 32), x[p + places])


@ptxforge.jit
def old_and_new(x, out, n, stride, step):
    rows, columns = tl.arange(0, 32)[:, None], tl.arange(0, 32)[None, :]
    total = tl.zeros([32, 32], tl.float32)
    p = x
    last = x
    for _ in range(n):
        total += tl.load(p + rows * stride + columns)
        last = p
        p += step
    for _ in range(n):
        total += 3.0 * tl.load(p + rows * stride + columns)
        p += step
    tl.store(out + rows * 32 + columns, total)
    tl.store(out + 1024 + tl.arange(0, 2), tl.load(last + tl.arange(0, 2)) - tl.load(p + tl.arange(0, 2)))


@pytest.mark.parametrize("n", [0, 1, 3])
def test_loops_one_after_another_and_a_pointer_that_is_kept(execute, n):
    x = np.random.default_rng(n).integers(-99, 99, 2000).astype(np.float32)
    places = np.arange(32)[:, None] * 37 + np.arange(32)
    total = sum((x[7 * k + places] * (1 if k < n else 3) for k in range(2 * n)), np.zeros((32, 32)))
    arguments = [x, np.zeros(1026, np.float32), n, 37, 7]
    for (out,) in execute(old_and_new, (1,), arguments, {}, [1], num_warps=4):
        np.testing.assert_array_equal(out[:1024].reshape(32, 32), total)
        np.testing.assert_array_equal(out[1024:], x[7 * max(0, n - 1) :][:2] - x[14 * n :][:2])
