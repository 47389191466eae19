"""Sorting networks on every executor: rows within threads, within warps and across warps."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.support.errors import CompileTimeAssertionError

DTYPES = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64, np.float16,
          ml_dtypes.bfloat16, np.float32, np.float64]  # fmt: skip


@ptxforge.jit
def sort_rows(x, out, M: tl.constexpr, N: tl.constexpr, DESCENDING: tl.constexpr):
    i = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(out + i, tl.sort(tl.load(x + i), 1, DESCENDING))


@ptxforge.jit
def best_of_rows(x, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, DESCENDING: tl.constexpr):
    i = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    best = tl.topk(tl.load(x + i), K, 1, DESCENDING)
    tl.store(out + tl.arange(0, M)[:, None] * K + tl.arange(0, K)[None, :], best)


@ptxforge.jit
def merge_halves(x, out, N: tl.constexpr, DESCENDING: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.bitonic_merge(tl.load(x + i), descending=DESCENDING))


def numbers(shape, dtype, seed=0):
    """With ties, and the extreme values of integers."""
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind in "iu":
        ends = np.iinfo(dtype)
        x = rng.integers(ends.min, ends.max, shape, dtype, endpoint=True)
        x.flat[:4] = ends.min, ends.max, ends.max, 0
        return x
    return (rng.integers(-50, 50, shape) / 4).astype(dtype)


def ordered(x, descending):
    x = np.sort(x, axis=-1)
    return x[..., ::-1] if descending else x


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
def test_sort(execute, dtype, descending):
    x = numbers((8, 16), dtype)
    constants = {"M": 8, "N": 16, "DESCENDING": descending}
    for (out,) in execute(sort_rows, (1,), [x, np.zeros_like(x)], constants, outputs=[1], num_warps=4):
        np.testing.assert_array_equal(out, ordered(x, descending))


@pytest.mark.parametrize("shape", [(1, 1), (4, 2), (1, 256), (2, 128), (64, 4)], ids=str)
def test_sort_of_rows_in_threads_and_across_warps(execute, shape):
    x = numbers(shape, np.int32, seed=1)
    constants = {"M": shape[0], "N": shape[1], "DESCENDING": False}
    for (out,) in execute(sort_rows, (1,), [x, np.zeros_like(x)], constants, outputs=[1], num_warps=4):
        np.testing.assert_array_equal(out, np.sort(x, axis=1))


def test_sort_keeps_every_zero_of_either_sign(execute):
    """They are equal, so both of a pair must agree whether to change places."""
    rng = np.random.default_rng(2)
    x = rng.choice(np.array([-1, -0.0, 0, 1], np.float32), (4, 32))
    constants = {"M": 4, "N": 32, "DESCENDING": False}
    for (out,) in execute(sort_rows, (1,), [x, np.zeros_like(x)], constants, outputs=[1], num_warps=1):
        np.testing.assert_array_equal(out, np.sort(x, axis=1))
        np.testing.assert_array_equal(np.signbit(out).sum(1), np.signbit(x).sum(1))


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("k", [1, 2, 8, 32])
@pytest.mark.parametrize("dtype", [np.uint32, np.int64, np.float16], ids=lambda dtype: np.dtype(dtype).name)
def test_topk(execute, dtype, k, descending):
    x = numbers((8, 32), dtype, seed=3)
    arguments, constants = [x, np.zeros((8, k), dtype)], {"M": 8, "N": 32, "K": k, "DESCENDING": descending}
    for (out,) in execute(best_of_rows, (1,), arguments, constants, outputs=[1], num_warps=2):
        np.testing.assert_array_equal(out, ordered(x, descending)[:, :k])


@pytest.mark.parametrize("k", [0, 3, 64])
def test_topk_says_what_it_can_find(k):
    constants = {"M": 8, "N": 32, "K": k, "DESCENDING": True}
    with pytest.raises(CompileTimeAssertionError, match=rf"topk\(\) finds 1, 2, 4, … 32 elements, not {k}"):
        best_of_rows.compile({"x": "*fp32", "out": "*fp32"}, constants)


@pytest.mark.parametrize("descending", [False, True])
def test_bitonic_merge(execute, descending):
    x = numbers(128, np.int16, seed=4)
    x = np.concatenate([np.sort(x[:48]), np.sort(x[48:])[::-1]])
    constants = {"N": 128, "DESCENDING": descending}
    for (out,) in execute(merge_halves, (1,), [x, np.zeros_like(x)], constants, outputs=[1], num_warps=4):
        np.testing.assert_array_equal(out, ordered(x, descending))


def test_what_a_warp_holds_is_sorted_by_shuffles():
    """No thread waits for another warp, and only what may be among the best is compared again."""
    signature = {"x": "*u32:16", "out": "*u32:16"}
    constants = {"M": 32, "N": 32, "K": 8, "DESCENDING": True}
    ptx = best_of_rows.compile(signature, constants, "sm_90a", num_warps=4).ptx
    assert "bar.sync" not in ptx and "shared" not in ptx
    whole = sort_rows.compile(signature, {n: constants[n] for n in ("M", "N", "DESCENDING")}, "sm_90a").ptx
    assert ptx.count("setp") < whole.count("setp") and "bar.sync" not in whole
