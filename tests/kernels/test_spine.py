"""The spine's kernels, from one source, on every executor that is present, against numpy.

The functions are those of ``benchmarks/kernels.py``: what is measured is what is tested. The fixture
``execute`` (see ``conftest.py`` here) runs a kernel on the tile interpreter, the emulator in checked mode
and, with ``--device cuda``, the GPU; it returns the output arrays of each and has checked that there are no
findings.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from benchmarks.dialects import load

kernels = load("ptxforge")
FLOATS = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}


def _random(rng, shape, dtype):
    return rng.standard_normal(shape).astype(dtype)


def _close(actual, expected, dtype, scale=1.0):
    tolerance = {np.float32: 2e-6, np.float16: 2e-3, ml_dtypes.bfloat16: 1.6e-2, np.float64: 1e-12}[
        dtype
    ] * scale
    np.testing.assert_allclose(
        actual.astype(np.float64), expected.astype(np.float64), rtol=tolerance, atol=tolerance
    )


@pytest.mark.parametrize("n", [1, 1000, 4096])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.int32, np.float64, np.int8])
def test_add(execute, n, dtype):
    rng = np.random.default_rng(n)
    x, y = (rng.integers(-50, 50, n).astype(dtype) for _ in range(2))
    for (out,) in execute(
        kernels.add, (-(-n // 1024),), [x, y, np.zeros(n, dtype), n], {"BLOCK": 1024}, outputs=[2]
    ):
        np.testing.assert_array_equal(out, x + y)


@pytest.mark.parametrize("num_warps", [1, 4, 8])
@pytest.mark.parametrize("columns", [1, 31, 128, 781])
@pytest.mark.parametrize("dtype", FLOATS.values(), ids=FLOATS)
def test_softmax(execute, dtype, columns, num_warps):
    x, expected = _rows_and_their_softmax(5, columns, dtype)
    constants = {"BLOCK": 1 << (columns - 1).bit_length()}
    arguments = [np.zeros_like(x), x, columns, columns]
    for (out,) in execute(kernels.softmax, (5,), arguments, constants, outputs=[0], num_warps=num_warps):
        _close(out, expected, dtype)


@pytest.mark.parametrize("rows, num_warps", [(1, 4), (2, 1), (2, 8), (4, 4)])
@pytest.mark.parametrize("columns", [31, 512, 781])
@pytest.mark.parametrize("dtype", FLOATS.values(), ids=FLOATS)
def test_softmax_of_several_rows(execute, dtype, columns, rows, num_warps):
    x, expected = _rows_and_their_softmax(2 * rows, columns, dtype)
    constants = {"ROWS": rows, "BLOCK": 1 << (columns - 1).bit_length()}
    arguments = [np.zeros_like(x), x, columns, columns]
    for (out,) in execute(
        kernels.softmax_rows, (2,), arguments, constants, outputs=[0], num_warps=num_warps
    ):
        _close(out, expected, dtype)


def _rows_and_their_softmax(rows: int, columns: int, dtype) -> tuple[np.ndarray, np.ndarray]:
    x = _random(np.random.default_rng(0), (rows, columns), dtype)
    wide = x.astype(np.float64)
    powers = np.exp(wide - wide.max(1, keepdims=True))
    return x, powers / powers.sum(1, keepdims=True)


@pytest.mark.parametrize("columns", [64, 781, 1024])
@pytest.mark.parametrize("dtype", FLOATS.values(), ids=FLOATS)
def test_layer_norm(execute, dtype, columns):
    rng = np.random.default_rng(1)
    x, weight, bias = (
        _random(rng, (4, columns), dtype),
        _random(rng, columns, dtype),
        _random(rng, columns, dtype),
    )
    wide = x.astype(np.float64)
    normal = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    expected = normal * weight.astype(np.float64) + bias.astype(np.float64)
    block = 1 << (columns - 1).bit_length()
    arguments = [np.zeros_like(x), x, weight, bias, columns, columns, 1e-5]
    for (out,) in execute(kernels.layer_norm, (4,), arguments, {"BLOCK": block}, outputs=[0]):
        _close(out, expected, dtype, scale=4)


@pytest.mark.parametrize("shape", [(64, 64), (100, 37), (128, 256)])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8])
def test_transpose(execute, dtype, shape):
    x = np.random.default_rng(2).integers(-100, 100, shape).astype(dtype)
    rows, columns = shape
    grid = (-(-rows // 32), -(-columns // 64))
    arguments = [np.zeros((columns, rows), dtype), x, rows, columns]
    for (out,) in execute(kernels.transpose, grid, arguments, {"BLOCK_M": 32, "BLOCK_N": 64}, outputs=[0]):
        np.testing.assert_array_equal(out, x.T)


@pytest.mark.parametrize("rows", [0, 7, 128])
def test_column_sum(execute, rows):
    x = np.random.default_rng(3).standard_normal((rows, 100)).astype(np.float16)
    arguments = [np.zeros(100, np.float32), x if rows else np.zeros((1, 100), np.float16), rows, 100]
    for (out,) in execute(kernels.column_sum, (2,), arguments, {"BLOCK_M": 32, "BLOCK_N": 64}, outputs=[0]):
        _close(out, x.astype(np.float64).sum(0), np.float32, scale=20)


@pytest.mark.parametrize("columns", [1, 100, 2048])
def test_cumsum(execute, columns):
    x = np.random.default_rng(4).integers(-9, 9, (3, columns)).astype(np.float32)
    block = 1 << (columns - 1).bit_length()
    for (out,) in execute(
        kernels.cumsum, (3,), [np.zeros_like(x), x, columns], {"BLOCK": block}, outputs=[0]
    ):
        np.testing.assert_array_equal(out, np.cumsum(x, axis=1))


def test_histogram(execute):
    x = np.random.default_rng(5).integers(0, 13, 3000).astype(np.int32)
    for (out,) in execute(
        kernels.histogram, (3,), [np.zeros(13, np.int32), x, 3000], {"BLOCK": 1024}, outputs=[0]
    ):
        np.testing.assert_array_equal(out, np.bincount(x, minlength=13))


@ptxforge.jit
def count(out, x, BINS: tl.constexpr):
    tl.store(out + tl.arange(0, BINS), tl.histogram(tl.load(x + tl.arange(0, 256)), BINS))


@pytest.mark.parametrize("bins", [8, 128, 256, 512])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int64])
def test_histogram_of_narrow_and_of_negative_numbers(execute, dtype, bins):
    """A type may hold fewer numbers than there are bins; negative ones are in none."""
    x = np.arange(-64, 192).astype(dtype)
    x[0] = np.iinfo(dtype).min
    expected = np.bincount(x[(x >= 0) & (x < bins)], minlength=bins)
    for (out,) in execute(count, (1,), [np.zeros(bins, np.int32), x], {"BINS": bins}, outputs=[0]):
        np.testing.assert_array_equal(out, expected)


@ptxforge.jit
def pick(out, x, which, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.gather(tl.load(x + i), tl.load(which + i), 0))


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int64])
def test_narrow_indices(execute, dtype):
    """Those of an unsigned type are not negative."""
    x = np.random.default_rng(1).integers(0, 1000, 256).astype(np.int32)
    which = np.arange(256)[::-1] % (128 if dtype == np.int8 else 256)
    for (out,) in execute(
        pick, (1,), [np.zeros(256, np.int32), x, which.astype(dtype)], {"N": 256}, outputs=[0]
    ):
        np.testing.assert_array_equal(out, x[which])


@pytest.mark.parametrize("shape", [(64, 64, 32), (100, 70, 45)])
@pytest.mark.parametrize("dtype", FLOATS.values(), ids=FLOATS)
def test_matmul_ieee(execute, dtype, shape):
    m, n, k = shape
    rng = np.random.default_rng(6)
    a, b = _random(rng, (m, k), dtype), _random(rng, (k, n), dtype)
    arguments = [a, b, np.zeros((m, n), np.float32), m, n, k, k, 1, n, 1, n, 1]
    constants = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 16, "GROUP_M": 2, "PRECISION": "ieee"}
    constants["EVEN_K"] = k % 16 == 0
    grid = (-(-m // 64) * -(-n // 64),)
    for (out,) in execute(kernels.matmul, grid, arguments, constants, outputs=[2]):
        _close(out, a.astype(np.float64) @ b.astype(np.float64), np.float32, scale=20)


@pytest.mark.parametrize("steps", [1, 2, 3, 7])
@pytest.mark.parametrize("layout", ["NN", "NT"])
def test_matmul_without_a_mask_along_k(execute, layout, steps):
    """Fewer steps than stages, as many, and more."""
    m, n, k = 70, 64, 32 * steps
    rng = np.random.default_rng(steps)
    a, b = rng.integers(-4, 5, (m, k)).astype(np.float16), rng.integers(-4, 5, (k, n)).astype(np.float16)
    strides = (n, 1) if layout == "NN" else (1, k)
    stored = b if layout == "NN" else np.ascontiguousarray(b.T)
    arguments = [a, stored, np.zeros((m, n), np.float16), m, n, k, k, 1, *strides, n, 1]
    constants = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 2, "PRECISION": "tf32"}
    constants["EVEN_K"] = True
    for (out,) in execute(kernels.matmul, (2,), arguments, constants, outputs=[2]):
        np.testing.assert_array_equal(out, (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16))


@pytest.mark.parametrize("programs, shape", [
    (1, (64, 64, 32)), (2, (200, 136, 96)), (3, (128, 192, 45)), (5, (256, 64, 128)), (7, (64, 128, 64))
], ids=str)  # fmt: skip
@pytest.mark.parametrize("layout", ["NN", "NT"])
@pytest.mark.parametrize("num_stages", [2, 3, 4])
def test_matmul_persistent(execute, layout, programs, shape, num_stages):
    """One tile, several for a program, tiles that hang over, and programs without a tile."""
    m, n, k = shape
    rng = np.random.default_rng(m)
    a, b = rng.integers(-4, 5, (m, k)).astype(np.float16), rng.integers(-4, 5, (k, n)).astype(np.float16)
    strides = (n, 1) if layout == "NN" else (1, k)
    stored = b if layout == "NN" else np.ascontiguousarray(b.T)
    arguments = [a, stored, np.zeros((m, n), np.float16), m, n, k, k, 1, *strides, n, 1]
    constants = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 2, "PRECISION": "tf32"}
    constants["EVEN_K"] = k % 32 == 0
    for (out,) in execute(
        kernels.matmul_persistent, (programs,), arguments, constants, outputs=[2], num_stages=num_stages
    ):
        np.testing.assert_array_equal(out, (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16))
