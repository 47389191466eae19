"""``>>`` fills with the sign of what is shifted, whatever the type that the operands are promoted to."""

from __future__ import annotations

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl


@ptxforge.jit
def shift(out, x, distance):
    i = tl.arange(0, 4)
    tl.store(out + i, tl.load(x + i) >> tl.load(distance + i))


@pytest.mark.parametrize("distance", ["int8", "int32", "uint32", "uint64", "int64"])
@pytest.mark.parametrize("shifted", ["int8", "int32", "uint8", "uint32", "int64", "uint64"])
def test_right_shifts(execute, shifted, distance):
    bits = np.dtype(shifted).itemsize * 8
    x = np.array([-2, 1 << (bits - 2), 100, -(1 << (bits - 1))]).astype(shifted)
    by = np.array([1, 3, 2, 7], distance)
    out = np.zeros(4, np.int64)
    expected = [int(value) >> int(count) for value, count in zip(x, by)]
    for (found,) in execute(shift, (1,), [out, x, by], {}, outputs=[0]):
        # What is promoted to an unsigned type has its bits, which int64 shows as they are.
        wide = max(bits, by.dtype.itemsize * 8, 8)
        mask = (1 << wide) - 1
        assert [int(value) & mask for value in found] == [value & mask for value in expected]


@ptxforge.jit
def shift_numbers(out, x, y):
    y = y.to(tl.uint32)
    tl.store(out, (x >> 1).to(tl.int64))
    tl.store(out + 1, (y >> 1).to(tl.int64))
    tl.store(out + 2, (64 >> (y & 3)).to(tl.int64))
    tl.store(out + 3, (x >> y // y).to(tl.int64))


def test_numbers_and_scalars(execute):
    expected = [-4, 0x7FFFFFFC, 64, 0xFFFFFFFC]
    for (out,) in execute(shift_numbers, (1,), [np.zeros(4, np.int64), -8, -8], {}, outputs=[0]):
        assert out.tolist() == expected
