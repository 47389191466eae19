"""Loops on a condition: carried pointers, offsets and accumulators, on every executor."""

from __future__ import annotations

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl


@ptxforge.jit
def running_sums(x, out, n, BLOCK: tl.constexpr):
    """out = sums over the first, the first two … blocks of x, and once more the sum over all behind them."""
    i = tl.arange(0, BLOCK)
    source, target = x + i, out + i
    total = tl.zeros((BLOCK,), tl.float32)
    done = 0
    while done < n:
        total += tl.load(source)
        tl.store(target, total)
        source += BLOCK
        target += BLOCK
        done += BLOCK
    tl.store(target, total)


@ptxforge.jit
def transposed_powers(x, out, n, SIZE: tl.constexpr):
    """out = (x**(2**n)).T: the accumulator is loaded by rows and stored by columns."""
    i, j = tl.arange(0, SIZE)[:, None], tl.arange(0, SIZE)[None, :]
    offsets = i * SIZE + j
    value = tl.load(x + offsets)
    while n > 0:
        value = value * value
        n -= 1
    tl.store(out + j * SIZE + i, value)


@pytest.mark.parametrize("blocks", [0, 1, 3])
@pytest.mark.parametrize("block", [16, 256])
def test_pointers_advance(execute, blocks, block):
    x = np.random.default_rng(0).integers(-9, 9, (max(1, blocks), block)).astype(np.float32)
    sums = np.cumsum(x[:blocks], axis=0)
    expected = np.concatenate([sums, x[:blocks].sum(0, keepdims=True)])
    arguments = [x, np.zeros((blocks + 1, block), np.float32), blocks * block]
    for (out,) in execute(running_sums, (1,), arguments, {"BLOCK": block}, outputs=[1]):
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_an_accumulator_is_stored_in_another_layout(execute, n):
    x = np.random.default_rng(1).uniform(0.5, 1.5, (32, 32)).astype(np.float32)
    expected = x
    for _ in range(n):
        expected = expected * expected
    for (out,) in execute(transposed_powers, (1,), [x, np.zeros_like(x), n], {"SIZE": 32}, outputs=[1]):
        np.testing.assert_array_equal(out, expected.T)


@ptxforge.jit
def previous(x, out, n, GROWS: tl.constexpr, COUNTS: tl.constexpr, BLOCK: tl.constexpr):
    """out = what ``current`` is in the last iteration; only with GROWS do iterations change it."""
    i = tl.arange(0, BLOCK)
    current = tl.load(x + i)
    last, steps, more = current - 1.0, 0, n > 0
    if COUNTS:
        for _ in range(n):
            if GROWS:
                current += 1.0
            last = current
    else:
        while more:
            if GROWS:
                current += 1.0
            last, n, steps = current, n, steps + 1
            more = steps < n
    tl.store(out + i, last)


@pytest.mark.parametrize("counts", [False, True])
@pytest.mark.parametrize("grows", [False, True])
@pytest.mark.parametrize("n", [0, 3])
def test_a_name_gets_what_another_one_keeps(execute, n, grows, counts):
    x = np.arange(32, dtype=np.float32)
    constants = {"GROWS": grows, "COUNTS": counts, "BLOCK": 32}
    for (out,) in execute(previous, (1,), [x, np.zeros_like(x), n], constants, outputs=[1]):
        np.testing.assert_array_equal(out, x + n * grows if n else x - 1)
