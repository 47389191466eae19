"""Types of results where Triton's rule is not that of the operators."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl


@ptxforge.jit
def extrema(x, out, N: tl.constexpr):
    """Of numbers beside tensors: they have types of their own."""
    i = tl.arange(0, N)
    value = tl.load(x + i)
    half, brain, byte = value.to(tl.float16), value.to(tl.bfloat16), value.to(tl.int8)
    tl.static_assert(tl.maximum(half, 0).dtype == tl.float16)
    tl.static_assert(tl.maximum(half, half).dtype == tl.float16)
    tl.static_assert(tl.maximum(half, 0.5).dtype == tl.float32)
    tl.static_assert(tl.maximum(brain, brain).dtype == tl.float32)
    tl.static_assert(tl.minimum(brain, 0).dtype == tl.float32)
    tl.static_assert(min(brain, 2).dtype == max(0.5, half).dtype)
    tl.static_assert(tl.clamp(half, -1.0, 1.0).dtype == tl.float32)
    tl.static_assert(tl.clamp(half, half, half).dtype == tl.float16)
    tl.static_assert(tl.clamp(brain, brain, brain).dtype == tl.float32)
    tl.static_assert(tl.fma(half, 2.0, half).dtype == tl.float32)
    tl.static_assert(tl.fma(brain, brain, brain).dtype == tl.bfloat16)
    tl.static_assert(tl.minimum(byte, 200).dtype == tl.int32)
    tl.store(out + i, tl.minimum(byte, 200) * 100)
    tl.store(out + N + i, tl.maximum(half, 0.1) * 3.0)
    tl.store(out + 2 * N + i, tl.clamp(brain, -0.1, 0.1) + 1.0)


def test_numbers_in_extrema_have_types_of_their_own(execute):
    x = np.linspace(-2, 2, 16, dtype=np.float32)
    half, brain = x.astype(np.float16).astype(np.float32), x.astype(ml_dtypes.bfloat16).astype(np.float32)
    tenth = np.float32(0.1)
    bytes_, halves = x.astype(np.int8).astype(np.float32) * 100, np.maximum(half, tenth) * 3
    expected = [bytes_, halves, np.clip(brain, -tenth, tenth) + 1]
    arguments = [x, np.zeros((3, 16), np.float32)]
    for (found,) in execute(extrema, (1,), arguments, {"N": 16}, outputs=[1]):
        np.testing.assert_array_equal(found, np.array(expected, np.float32))


@ptxforge.jit
def with_indices(x, out, N: tl.constexpr, SAME: tl.constexpr):
    value = tl.load(x + tl.arange(0, N))
    largest, where = tl.max(value, 0, return_indices=True)
    smallest, _ = value.min(0, return_indices=True, return_indices_tie_break_left=False)
    tl.static_assert(largest.dtype == (value.dtype if SAME else tl.float32) and where.dtype == tl.int32)
    tl.static_assert(smallest.dtype == largest.dtype)
    tl.static_assert(tl.max(value, 0).dtype == (tl.float32 if value.dtype.is_floating() else tl.int32))
    tl.store(out, largest)
    tl.store(out + 1, smallest)
    tl.store(out + 2, where.to(value.dtype))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.int8, np.uint8, np.int16, np.uint16])
def test_extrema_beside_their_indices_keep_narrow_types(execute, dtype):
    x = np.random.default_rng(3).permutation(32).astype(dtype) * (dtype(1) if dtype == np.uint8 else dtype(3))
    constants = {"N": 32, "SAME": dtype is not ml_dtypes.bfloat16}
    for (found,) in execute(with_indices, (1,), [x, np.zeros(3, dtype)], constants, outputs=[1]):
        np.testing.assert_array_equal(found, np.array([x.max(), x.min(), x.argmax()], dtype))


@ptxforge.jit
def conjunctions(x, out, YES: tl.constexpr, NO: tl.constexpr):
    """What is known at compile time decides, or is left out."""
    n = tl.load(x)
    tl.static_assert((YES and n).dtype == tl.int32 and (n and YES).dtype == tl.int32)
    tl.static_assert((n or NO).dtype == tl.int32 and not (n and NO) and (n or YES))
    tl.static_assert((n and n).dtype == tl.int1)
    if n and NO:
        tl.static_assert(False, "this is never compiled")
    tl.store(out, n and YES)
    tl.store(out + 1, NO or n)


def test_conjunctions_with_compile_time_values(execute):
    arguments = [np.array([7], np.int32), np.zeros(2, np.int32)]
    for (found,) in execute(conjunctions, (1,), arguments, {"YES": True, "NO": False}, outputs=[1]):
        assert found.tolist() == [7, 7]


@ptxforge.jit
def exact_numbers(x, out):
    value = tl.load(x)
    tl.store(out, tl.fma(value, 0.1, 0.1))
    tl.store(out + 1, tl.maximum(value, 0.1) + min(value, 0.1))
    tl.store(out + 2, tl.clamp(value, 0.1, 0.3))


def test_numbers_beside_float64_are_not_rounded(execute):
    arguments = [np.zeros(1), np.zeros(3)]
    for (found,) in execute(exact_numbers, (1,), arguments, {}, outputs=[1]):
        assert found.tolist() == [0.1, 0.1, 0.1]
