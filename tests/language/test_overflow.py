"""Integers that overflow: they wrap around, and under ``debug=True`` an assertion fails."""

from __future__ import annotations

import operator

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.emulator import EmulatorDevice
from ptxforge.support.errors import PtxforgeError


@ptxforge.jit
def combine(x, y, out, OP: tl.constexpr, SANITIZE: tl.constexpr):
    i = tl.arange(0, 16)
    a, b = tl.load(x + i), tl.load(y + i)
    if OP == "add":
        c = a + b if SANITIZE else tl.add(a, b, sanitize_overflow=False)
    elif OP == "sub":
        c = a - b if SANITIZE else tl.sub(a, b, sanitize_overflow=False)
    else:
        c = a * b if SANITIZE else tl.mul(a, b, sanitize_overflow=False)
    tl.store(out + i, c)


OPERATORS = {"add": operator.add, "sub": operator.sub, "mul": operator.mul}
CASES = [  # operator, element type, two numbers, whether their result fits
    ("add", "int32", 2**30, 2**30, False), ("add", "int32", 2**30, 2**30 - 1, True),
    ("add", "int32", -(2**31), -1, False), ("add", "int16", 300, -5, True), ("add", "int8", 100, 100, False),
    ("sub", "uint32", 3, 4, False), ("sub", "int32", -(2**31), 1, False), ("sub", "int32", 5, 9, True),
    ("mul", "int32", 2**16, 2**15, False), ("mul", "int32", -(2**16), 2**15, True),
    ("mul", "uint32", 2**32 - 1, 2**32 - 1, False), ("mul", "uint8", 15, 17, True),
    ("add", "int64", 2**62, 2**62, True),
]  # fmt: skip


def run(device, name, dtype, left, right, sanitize=True, **options):
    x, y, out = np.full(16, 1, dtype), np.full(16, 1, dtype), np.zeros(16, dtype)
    x[5], y[5] = left, right
    placed = [ptxforge.to_device(array, device) for array in (x, y, out)]
    combine[(1,)](*placed, OP=name, SANITIZE=sanitize, **options)
    return placed[2].numpy()[5], OPERATORS[name](x[5:6], y[5:6])[0]


@pytest.mark.parametrize(("name", "dtype", "left", "right", "fits"), CASES)
def test_overflow(name, dtype, left, right, fits):
    device = EmulatorDevice()
    found, wrapped = run(device, name, dtype, left, right)
    assert found == wrapped
    if fits:
        assert run(device, name, dtype, left, right, debug=True)[0] == wrapped
        return
    bits = np.dtype(dtype).itemsize * 8
    message = f"int{bits} overflow detected for operation {name}"
    with pytest.raises(PtxforgeError, match=message):
        run(device, name, dtype, left, right, debug=True)


@pytest.mark.parametrize("way", [{"sanitize": False}, {"sanitize_overflow": False}])
def test_no_assertion_where_none_is_wanted(way):
    device = EmulatorDevice()
    found, wrapped = run(device, "add", "int32", 2**30, 2**30, debug=True, **way)
    assert found == wrapped == -(2**31)


@ptxforge.jit
def random_numbers(out, seed):
    i = tl.arange(0, 64)
    tl.store(out + i, tl.randint(seed, i))


def test_the_library_may_wrap_around(emulator):
    results = []
    for debug in (False, True):
        out = ptxforge.to_device(np.zeros(64, np.int32), emulator)
        random_numbers[(1,)](out, 7, debug=debug)
        results.append(out.numpy())
    np.testing.assert_array_equal(*results)
    assert "assert" not in random_numbers.asm["tile"]
