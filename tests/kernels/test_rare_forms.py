"""Kernels whose instructions hardly any other test has: a GPU runs every form of ``tests/forms.txt`` once."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl


@ptxforge.jit
def larger_or_other(x, y, out, least, B: tl.constexpr):
    i = tl.arange(0, B)
    a, b = tl.load(x + i), tl.load(y + i)
    tl.store(out + i, tl.where(a > least, a, b))


def test_select_of_sixteen_bits(execute):
    """selp.b16: each half of a register has a condition of its own."""
    rng = np.random.default_rng(7)
    x, y = (rng.standard_normal(256).astype(np.float16) for _ in range(2))
    arguments = [x, y, np.zeros(256, np.float16), 0.25]
    for (out,) in execute(larger_or_other, (1,), arguments, {"B": 256}, outputs=[2], num_warps=4):
        np.testing.assert_array_equal(out, np.where(x > 0.25, x, y))


@ptxforge.jit
def product_of_powers(x, y, out, N: tl.constexpr, K: tl.constexpr):
    i, j, k = tl.arange(0, 64), tl.arange(0, N), tl.arange(0, 32)
    acc = tl.zeros((64, N), tl.float32)
    for start in range(0, K, 32):
        a = tl.load(x + i[:, None] * K + (start + k)[None, :])
        b = tl.load(y + (start + k)[:, None] * N + j[None, :])
        acc = tl.dot(tl.exp2(a.to(tl.float32)).to(tl.bfloat16), b, acc)
    tl.store(out + i[:, None] * N + j[None, :], acc)


def test_bfloat16_product_whose_left_operand_is_computed(execute):
    """wgmma m64n128k16 with A in registers, on sm_90a."""
    rng = np.random.default_rng(8)
    x = rng.integers(-2, 3, (64, 64)).astype(ml_dtypes.bfloat16)
    y = rng.integers(-3, 4, (64, 128)).astype(ml_dtypes.bfloat16)
    expected = np.exp2(x.astype(np.float32)) @ y.astype(np.float32)
    arguments = [x, y, np.zeros((64, 128), np.float32)]
    constants = {"N": 128, "K": 64}
    for (out,) in execute(product_of_powers, (1,), arguments, constants, outputs=[2], num_warps=4):
        np.testing.assert_array_equal(out, expected)


@ptxforge.jit
def tells(x, out, B: tl.constexpr):
    i = tl.arange(0, B)
    value = tl.load(x + i, volatile=True)
    tl.device_assert(value < 100, "too large")
    tl.device_print("of 64 bits", value, value.to(tl.float64))
    tl.store(out + i, value + 1)


def test_what_a_kernel_tells_goes_through_local_memory(execute):
    """An assertion that holds, and words of 64 bits for printf."""
    x, options = np.arange(32), {"num_warps": 1, "debug": True}
    for (out,) in execute(tells, (1,), [x, np.zeros_like(x)], {"B": 32}, outputs=[1], **options):
        np.testing.assert_array_equal(out, x + 1)


@ptxforge.jit
def added(x, sums, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.atomic_add(sums + i, tl.load(x + i), sem="relaxed")
    tl.atomic_add(sums + i, tl.load(x + i), sem="release")


@pytest.mark.parametrize("each", [1, 2])
def test_atomics_of_eight_halves(execute, each):
    """atom.v4.f16x2 on sm_90a, and red of several."""
    x = np.arange(1024 * each).astype(np.float16) % 500
    for (sums,) in execute(added, (1,), [x, np.ones_like(x)], {"B": len(x)}, outputs=[1], num_warps=4):
        np.testing.assert_array_equal(sums, 2 * x + 1)
