"""Rows that begin anywhere: guarded vectors and rotated tiles, on every executor.

Each row is a program; its first element lies ``offset`` elements behind a multiple of 16 bytes, and nothing
is known of that when the kernel is compiled. Arrays end with the last row, so that the emulator reports any
access beyond it.
"""

from __future__ import annotations

import struct

import ml_dtypes
import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.compiler import compile_function
from ptxforge.emulator import EmulatorDevice

TYPES = {
    "int8": np.int8, "bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32, "f64": np.float64,
}  # fmt: skip
GAP = 99
"""What stands where a kernel must not write."""


@ptxforge.jit
def copy_rows(out, x, offset, stride, columns, other, BLOCK: tl.constexpr, WHOLE: tl.constexpr):
    """out = x, elements beyond ``columns`` as ``other`` where the whole block is written."""
    i = tl.arange(0, BLOCK)
    base = offset + tl.program_id(0) * stride
    values = tl.load(x + base + i, mask=i < columns, other=other)
    if WHOLE:
        tl.store(out + base + i, values)
    else:
        tl.store(out + base + i, values, mask=i < columns)


@ptxforge.jit
def double_rows(out, x, offset, stride, BLOCK: tl.constexpr):
    """Whole rows, without a mask."""
    i = tl.arange(0, BLOCK)
    base = offset + tl.program_id(0) * stride
    tl.store(out + base + i, tl.load(x + base + i) * 2)


@ptxforge.jit
def sum_in_chunks(out, x, stride, columns, BLOCK: tl.constexpr):
    """Row sums, a block at a time; and the row is negated in place."""
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        m = start + i < columns
        values = tl.load(x + row * stride + start + i, mask=m, other=0.0)
        total += values.to(tl.float32)
        tl.store(x + row * stride + start + i, -values, mask=m)
    tl.store(out + row, tl.sum(total, axis=0))


@ptxforge.jit
def first_largest(out, x, stride, columns, BLOCK: tl.constexpr):
    """Where the largest element of each row stands; of equals the first."""
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    values = tl.load(x + row * stride + i, mask=i < columns, other=-100)
    tl.store(out + row, tl.argmax(values, axis=0))


@ptxforge.jit
def add_unknown(out, x, y, n, BLOCK: tl.constexpr):
    """Aligned vectors of a length that nothing divides."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    tl.store(out + i, tl.load(x + i, mask=m) + tl.load(y + i, mask=m, other=1), mask=m)


@ptxforge.jit
def between(out, x, offset, low, high, BLOCK: tl.constexpr):
    """Elements from ``low`` to ``high``: no prefix of any vector."""
    i = tl.arange(0, BLOCK)
    m = (i >= low) & (i < high)
    tl.store(out + offset + i, tl.load(x + offset + i, mask=m, other=0) + 1, mask=m)


def _numbers(dtype, size, seed=0):
    return np.random.default_rng(seed).integers(-100, 100, size).astype(dtype)


def _expected_copy(x, offset, stride, columns, rows):
    expected = np.full_like(x, GAP)
    for row in range(rows):
        start = offset + row * stride
        expected[start : start + columns] = x[start : start + columns]
    return expected


@pytest.mark.parametrize("num_warps", [1, 2])
@pytest.mark.parametrize("dtype", TYPES.values(), ids=TYPES)
@pytest.mark.parametrize("columns", [1, 2, 7, 130, 249, 250, 255, 256])
def test_every_misalignment(execute, dtype, columns, num_warps):
    """16 rows of an odd stride begin at every place; the last one ends where the memory does."""
    rows, stride, offset = 16, columns | 1, 3
    x = _numbers(dtype, offset + (rows - 1) * stride + columns)
    arguments = [np.full_like(x, GAP), x, offset, stride, columns, 5]
    constants = {"BLOCK": 256, "WHOLE": False}
    runs = execute(copy_rows, (rows,), arguments, constants, outputs=[0], num_warps=num_warps)
    for (out,) in runs:
        np.testing.assert_array_equal(out, _expected_copy(x, offset, stride, columns, rows))


@pytest.mark.parametrize("dtype", TYPES.values(), ids=TYPES)
@pytest.mark.parametrize("columns", [0, 1, 100, 255, 256, 300])
def test_other(execute, dtype, columns):
    """Masked-off elements are ``other``, wherever the row begins and ends."""
    rows, stride = 9, 257
    x = _numbers(dtype, (rows - 1) * stride + 256 + 1)
    arguments = [np.zeros_like(x), x, 1, stride, columns, 5]
    runs = execute(copy_rows, (rows,), arguments, {"BLOCK": 256, "WHOLE": True}, outputs=[0], num_warps=1)
    for (out,) in runs:
        for row in range(rows):
            start = 1 + row * stride
            known = min(columns, 256)
            np.testing.assert_array_equal(out[start : start + known], x[start : start + known])
            assert (out[start + known : start + 256] == 5).all()


@pytest.mark.parametrize("dtype", TYPES.values(), ids=TYPES)
def test_without_mask(execute, dtype):
    rows, stride, offset = 8, 131, 5
    x = np.random.default_rng(1).integers(-50, 50, offset + (rows - 1) * stride + 128).astype(dtype)
    out = np.full_like(x, GAP)
    runs = execute(double_rows, (rows,), [out, x, offset, stride], {"BLOCK": 128}, outputs=[0], num_warps=1)
    expected = np.full_like(x, GAP)
    for row in range(rows):
        start = offset + row * stride
        expected[start : start + 128] = x[start : start + 128] * dtype(2)
    for (result,) in runs:
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("columns", [5, 256, 600, 777])
def test_in_a_loop(execute, columns):
    """The base advances by multiples of a vector; the shift is found once."""
    rows, stride = 8, columns + 1
    x = _numbers(np.float16, (rows - 1) * stride + columns)
    arguments = [np.zeros(rows, np.float32), x, stride, columns]
    runs = execute(sum_in_chunks, (rows,), arguments, {"BLOCK": 256}, outputs=[0, 1], num_warps=1)
    sums = [x[r * stride : r * stride + columns].astype(np.float64).sum() for r in range(rows)]
    negated = x.copy()
    for row in range(rows):
        negated[row * stride : row * stride + columns] *= -1
    for out, changed in runs:
        np.testing.assert_allclose(out, sums, rtol=1e-5)
        np.testing.assert_array_equal(changed, negated)


def test_positions_are_those_of_the_row(execute):
    """A reduction over pairs with an index sees the element's place in the row, not in the tile."""
    rows, stride, columns = 16, 101, 100
    x = np.zeros(rows * stride, np.int32)
    for row in range(rows):
        x[[row * stride + 7 * row % columns, row * stride + 99]] = 50
    runs = execute(
        first_largest, (rows,), [np.zeros(rows, np.int32), x, stride, columns], {"BLOCK": 128}, outputs=[0]
    )
    for (out,) in runs:
        np.testing.assert_array_equal(out, [7 * row % columns for row in range(rows)])


@pytest.mark.parametrize("n", [1, 3, 1021, 1024, 2047])
@pytest.mark.parametrize("dtype", [np.int8, ml_dtypes.bfloat16, np.float32], ids=["int8", "bf16", "f32"])
def test_aligned_with_any_bound(execute, dtype, n):
    x, y = (np.random.default_rng(seed).integers(-50, 50, n).astype(dtype) for seed in (0, 1))
    blocks = -(-n // 1024)
    runs = execute(add_unknown, (blocks,), [np.zeros(n, dtype), x, y, n], {"BLOCK": 1024}, outputs=[0])
    for (out,) in runs:
        np.testing.assert_array_equal(out, x + y)


@pytest.mark.parametrize(("low", "high"), [(0, 128), (3, 9), (9, 10), (64, 64), (17, 100)])
def test_masks_that_are_no_prefix(execute, low, high):
    x = _numbers(np.int8, 128 + 3)
    expected = np.full_like(x, GAP)
    expected[3 + low : 3 + high] = x[3 + low : 3 + high] + 1
    arguments = [np.full_like(x, GAP), x, 3, low, high]
    for (out,) in execute(between, (1,), arguments, {"BLOCK": 128}, outputs=[0], num_warps=1):
        np.testing.assert_array_equal(out, expected)


def test_the_code_is_wide():
    """4 loads and 4 stores of 16 bytes for 1024 bf16 of one warp."""
    signature = {
        "out": "*bf16:16", "x": "*bf16:16", "offset": "i32", "stride": "i32", "columns": "i32",
        "other": "i32",
    }  # fmt: skip
    ptx = compile_function(copy_rows, signature, {"BLOCK": 1024, "WHOLE": False}, "sm_90a", num_warps=1).ptx
    assert ptx.count("ld.global.v4.b32") == 4 and ptx.count("st.global.v4.b32") == 4


@ptxforge.jit
def double_promised(out, x, offset, n, BLOCK: tl.constexpr):
    """The mask is promised to change every 16 elements, which it does in the tile as written."""
    i = tl.arange(0, BLOCK)
    m = tl.max_constancy(i < n, 16)
    tl.store(out + offset + i, tl.load(x + offset + i, mask=m) * 2, mask=m)


@pytest.mark.parametrize("dtype", [np.int8, np.float32])
@pytest.mark.parametrize("offset", [1, 3, 8])
def test_promises_about_the_order_of_a_tile(execute, dtype, offset):
    """What was promised of runs of the tile does not hold when its elements are moved round."""
    n = 528
    x = _numbers(dtype, offset + n) // 2
    expected = np.full_like(x, GAP)
    expected[offset:] = x[offset:] * 2
    arguments = [np.full_like(x, GAP), x, offset, n]
    runs = execute(double_promised, (1,), arguments, {"BLOCK": 1024}, outputs=[0], num_warps=1)
    for (out,) in runs:
        np.testing.assert_array_equal(out, expected)


@ptxforge.jit
def negate(x, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, -tl.load(x + i, mask=i < n), mask=i < n)


@pytest.mark.parametrize("place", range(16))
def test_a_pointer_of_any_alignment(place):
    """The kernel is compiled for pointers that are aligned to their elements,
    and finds the rest when it runs."""
    ptx = compile_function(negate, {"x": "*bf16", "n": "i32"}, {"BLOCK": 256}, "sm_90a", num_warps=1).ptx
    assert ptx.count("st.global.v4.b32") == 1
    x = _numbers(ml_dtypes.bfloat16, 200)
    expected = x.copy()
    expected[place:] *= -1
    device = EmulatorDevice(target="sm_90a")
    address = device.register_host_array(x) + 2 * place
    function = device.load_module(ptx).function("negate")
    function.launch((1, 1, 1), (32, 1, 1), 0, 0, struct.pack("<Qi", address, 200 - place))
    assert not device.findings
    np.testing.assert_array_equal(x, expected)


def test_arrays_that_nothing_aligns_alike():
    """One shift cannot serve two arrays."""
    signature = {
        "out": "*bf16", "x": "*bf16", "offset": "i32", "stride": "i32", "columns": "i32", "other": "i32",
    }  # fmt: skip
    ptx = compile_function(copy_rows, signature, {"BLOCK": 256, "WHOLE": False}, "sm_90a", num_warps=1).ptx
    assert "st.global.v4.b32" not in ptx


@ptxforge.jit
def two_bytes_a_thread(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n, other=1))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, ml_dtypes.float8_e5m2], ids=["int8", "uint8", "f8"])
@pytest.mark.parametrize("n", [0, 1, 77, 126, 127])
def test_vectors_of_two_bytes(execute, dtype, n):
    """They are no words: each register has one element."""
    x, one = np.arange(128).astype(dtype), np.ones(1, dtype)
    expected = np.where(np.arange(128) < n, x, one)
    for (out,) in execute(two_bytes_a_thread, (1,), [x, np.zeros(128, dtype), n], {"BLOCK": 128}, outputs=[1],
                          num_warps=2):  # fmt: skip
        np.testing.assert_array_equal(out.view(np.uint8), expected.view(np.uint8))
