"""Loops on a condition: carried pointers, offsets and accumulators, on every executor."""

from __future__ import annotations

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl


@ptxforge.jit
def sum_by_pointer(x, out, n, BLOCK: tl.constexpr):
    """out = sums over the blocks of x, in a loop that advances a tensor of pointers."""
    pointers = x + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    done = 0
    while done < n:
        total += tl.load(pointers)
        pointers += BLOCK
        done += BLOCK
    tl.store(out + tl.arange(0, BLOCK), total)
    tl.store(pointers - BLOCK, total)


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


@pytest.mark.parametrize("blocks", [1, 3])
@pytest.mark.parametrize("block", [16, 256])
def test_pointers_advance(execute, blocks, block):
    x = np.random.default_rng(0).standard_normal(blocks * block).astype(np.float32)
    total = np.add.accumulate(x.reshape(blocks, block), axis=0, dtype=np.float32)[-1]
    arguments = [x, np.zeros(block, np.float32), x.size]
    for after, out in execute(sum_by_pointer, (1,), arguments, {"BLOCK": block}, outputs=[0, 1]):
        np.testing.assert_array_equal(out, total)
        np.testing.assert_array_equal(after[-block:], total)


@pytest.mark.parametrize("n", [0, 1, 3])
def test_an_accumulator_is_stored_in_another_layout(execute, n):
    x = np.random.default_rng(1).uniform(0.5, 1.5, (32, 32)).astype(np.float32)
    expected = x
    for _ in range(n):
        expected = expected * expected
    for (out,) in execute(transposed_powers, (1,), [x, np.zeros_like(x), n], {"SIZE": 32}, outputs=[1]):
        np.testing.assert_array_equal(out, expected.T)
