"""Reductions of values of several widths, and atomics that swap narrow ones."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl


@ptxforge.jit
def sums(a1, b1, c1, d1, a2, b2, c2, d2):
    return a1 + a2, b1 + b2, c1 + c2, d1 + d2


@ptxforge.jit
def columns(a, b, c, d, oa, ob, oc, od, M: tl.constexpr, N: tl.constexpr):
    i, j = tl.arange(0, M), tl.arange(0, N)
    at = i[:, None] * N + j[None, :]
    w, x, y, z = tl.reduce((tl.load(a + at), tl.load(b + at), tl.load(c + at), tl.load(d + at)), 0, sums)
    tl.store(oa + j, w)
    tl.store(ob + j, x)
    tl.store(oc + j, y)
    tl.store(od + j, z)


@pytest.mark.parametrize("shape", [(64, 1), (64, 2), (256, 1), (512, 2)])
@pytest.mark.parametrize(
    "types", [("int8", "int64", "float32", "int64"), ("int32", "float64", "int16", "int64")]
)
def test_partial_results_of_all_widths_are_aligned(execute, types, shape):
    random = np.random.default_rng(0)
    given = [random.integers(-4, 5, shape).astype(dtype) for dtype in types]
    outs = [np.zeros(shape[1], dtype) for dtype in types]
    constants = {"M": shape[0], "N": shape[1]}
    for warps in (2, 4, 8):
        for found in execute(
            columns, (1,), [*given, *outs], constants, outputs=[4, 5, 6, 7], num_warps=warps
        ):
            for one, x in zip(found, given, strict=True):
                np.testing.assert_array_equal(one, x.sum(0, dtype=x.dtype))


@ptxforge.jit
def swap(x, out, old, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(old + i, tl.atomic_cas(x + i, tl.load(out + i), tl.load(out + N + i)))
    tl.store(old + N, tl.atomic_cas(x + N, tl.load(out), tl.load(out + 1)))


@pytest.mark.parametrize(
    "dtype", [np.int16, np.uint16, np.float16, ml_dtypes.bfloat16], ids=lambda t: t.__name__
)
def test_narrow_values_are_swapped(execute, dtype):
    count = 64
    x, given = np.arange(count + 1).astype(dtype), np.arange(2 * count).astype(dtype) - np.array(7, dtype)
    given[0:count:3] = x[0:count:3]
    x[1] = given[1] = np.array([-3]).astype(dtype)[0]
    expected = x.copy()
    same = x[:count] == given[:count]
    expected[:count][same] = given[count:][same]
    old = np.zeros(count + 1, dtype)
    for changed, found in execute(swap, (1,), [x, given, old], {"N": count}, outputs=[0, 2]):
        np.testing.assert_array_equal(found.astype(float), x.astype(float))
        np.testing.assert_array_equal(changed.astype(float), expected.astype(float))


@ptxforge.jit
def largest(x, out, steps, M: tl.constexpr, N: tl.constexpr):
    i, j = tl.arange(0, M), tl.arange(0, N)
    acc = tl.full((M,), float("nan"), tl.float32)
    for step in range(steps):
        acc = tl.maximum(acc, tl.max(tl.load(x + step * M * N + i[:, None] * N + j[None, :]), 1))
    tl.store(out + i, acc)


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_extrema_of_nothing_but_nan_are_nan(execute, steps):
    """A loop that accumulates inside each thread begins with what no number notices, and no NaN either."""
    x = np.full((2, 8, 128), np.nan, np.float32)
    x[1, 3, 5] = 2
    expected = np.full(8, np.nan, np.float32)
    expected[3] = 2 if steps == 2 else np.nan
    constants = {"M": 8, "N": 128}
    for (out,) in execute(largest, (1,), [x, np.zeros(8, np.float32), steps], constants, outputs=[1]):
        np.testing.assert_array_equal(out, expected)
