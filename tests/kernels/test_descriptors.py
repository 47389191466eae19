"""Tensor descriptors that kernels make, on every executor."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl


@ptxforge.jit
def copy(x, out, M, N, i, j, BM: tl.constexpr, BN: tl.constexpr, PAD: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [M, N], [N, 1], [BM, BN], PAD)
    target = tl.make_tensor_descriptor(out, shape=[BM, BN], strides=[BN, 1], block_shape=[BM, BN])
    tl.store_tensor_descriptor(target, [0, 0], tl.load_tensor_descriptor(source, [i, j]))


def _box(x, i, j, bm, bn, fill):
    out = np.full((bm, bn), fill, x.dtype)
    for a in range(bm):
        for b in range(bn):
            if 0 <= i + a < x.shape[0] and 0 <= j + b < x.shape[1]:
                out[a, b] = x[i + a, j + b]
    return out


@pytest.mark.parametrize("i, j", [(0, 0), (5, 16), (-3, 7), (16, -9), (30, 60), (100, 100)])
@pytest.mark.parametrize("dtype, pad", [
    (np.float16, "zero"), (np.float32, "nan"), (np.uint8, "zero"), (ml_dtypes.float8_e5m2, "nan"),
    (np.bool_, "zero"),
])  # fmt: skip
def test_what_lies_outside_is_padding(execute, i, j, dtype, pad):
    x = (np.arange(20 * 64) % 99).reshape(20, 64).astype(dtype)
    expected = _box(x, i, j, 16, 32, np.nan if pad == "nan" else 0)
    arguments = [x, np.zeros((16, 32), dtype), 20, 64, i, j]
    for (out,) in execute(copy, (1,), arguments, {"BM": 16, "BN": 32, "PAD": pad}, outputs=[1]):
        np.testing.assert_array_equal(out.astype(np.float64), expected.astype(np.float64))


@pytest.mark.parametrize("rows, columns", [(512, 16), (2, 1024), (1, 2048)])
def test_boxes_that_tma_does_not_take_at_once(execute, rows, columns):
    x = np.random.default_rng(0).standard_normal((rows + 3, columns + 8)).astype(np.float16)
    arguments = [x, np.zeros((rows, columns), x.dtype), *x.shape, 1, 8]
    for (out,) in execute(copy, (1,), arguments, {"BM": rows, "BN": columns, "PAD": "zero"}, outputs=[1]):
        np.testing.assert_array_equal(out, x[1 : rows + 1, 8:])


@ptxforge.jit
def tall_product(x, y, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """Its left operand comes in boxes of more rows than TMA copies at once."""
    left = tl.make_tensor_descriptor(x, [M, 2 * K], [2 * K, 1], [M, K])
    right = tl.make_tensor_descriptor(y, [2 * K, N], [N, 1], [K, N])
    total = tl.zeros((M, N), tl.float32)
    for k in range(0, 2 * K, K):
        total = tl.dot(left.load([0, k]), right.load([k, 0]), total)
    tl.make_tensor_descriptor(out, [M, N], [N, 1], [M, N]).store([0, 0], total.to(tl.float16))


def test_a_product_of_tall_boxes(execute):
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(shape).astype(np.float16) for shape in ((512, 32), (32, 16)))
    expected = (x.astype(np.float64) @ y.astype(np.float64)).astype(np.float16)
    arguments = [x, y, np.zeros((512, 16), np.float16)]
    for (out,) in execute(tall_product, (1,), arguments, {"M": 512, "N": 16, "K": 16}, outputs=[2]):
        np.testing.assert_allclose(out, expected, rtol=2e-2, atol=2e-2)


@ptxforge.jit
def swapped(pair):
    a, b = pair
    return b, a


@ptxforge.jit
def walk(x, y, out, M, N, flag, B: tl.constexpr):
    """Descriptors in tuples, through functions, chosen by branches, exchanged by a loop."""
    if flag > 0:
        first = tl.make_tensor_descriptor(x, [M, N], [N, 1], [B, B])
    else:
        first = tl.make_tensor_descriptor(y, [M, N], [N, 1], [B, B])
    second = tl.make_tensor_descriptor(y, [M, N], [N, 1], [B, B])
    result = tl.make_tensor_descriptor(out, [M, N], [N, 1], [B, B])
    tl.static_assert(first.dtype == tl.float32)
    tl.static_assert(first.block_shape[0] == B)
    tl.static_assert(isinstance(first, tl.tensor_descriptor))
    pair = (first, second)
    for j in range(0, first.shape[1], B):
        result.store([tl.program_id(0) * B, j], pair[0].load([tl.program_id(0) * B, j]) + 1)
        pair = swapped(pair)


@pytest.mark.parametrize("flag", [0, 3])
def test_descriptors_are_values(execute, flag):
    x, y = np.random.default_rng(0).standard_normal((2, 20, 64)).astype(np.float32)
    expected = np.concatenate(
        [(x if flag else y)[:, :16], y[:, 16:32], (x if flag else y)[:, 32:48], y[:, 48:]], 1
    )
    for (out,) in execute(walk, (2,), [x, y, np.zeros_like(x), 20, 64, flag], {"B": 16}, outputs=[2]):
        np.testing.assert_array_equal(out, expected + 1)


@ptxforge.jit
def one_dimension(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK
    source = tl.make_tensor_descriptor(x, [n], [1], [BLOCK])
    tl.make_tensor_descriptor(out, [n], [1], [BLOCK]).store([i], source.load([i]) * 2)


def test_one_dimension(execute):
    x = np.arange(100, dtype=np.int32)
    for (out,) in execute(one_dimension, (2,), [x, np.zeros_like(x), 100], {"BLOCK": 64}, outputs=[1]):
        np.testing.assert_array_equal(out, 2 * x)


@ptxforge.jit
def five_dimensions(x, out, A, B, C, D, E):
    source = tl.make_tensor_descriptor(
        x, [A, B, C, D, E], [B * C * D * E, C * D * E, D * E, E, 1], [1, 2, 2, 2, 8]
    )
    target = tl.make_tensor_descriptor(out, [1, 2, 2, 2, 8], [64, 32, 16, 8, 1], [1, 2, 2, 2, 8])
    target.store([0, 0, 0, 0, 0], source.load([1, 2, 0, 1, 4]))


def test_five_dimensions(execute):
    x = np.random.default_rng(1).standard_normal((2, 3, 4, 2, 8)).astype(np.float32)
    expected = np.zeros((1, 2, 2, 2, 8), np.float32)
    expected[:, :1, :, :1, :4] = x[1:2, 2:3, 0:2, 1:2, 4:8]
    arguments = [x, np.zeros_like(expected), *x.shape]
    for (out,) in execute(five_dimensions, (1,), arguments, {}, outputs=[1]):
        np.testing.assert_array_equal(out, expected)


@ptxforge.jit
def exchange_rows(x, where, out, M, N, column, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [M, N], [N, 1], [1, COLUMNS])
    target = tl.make_tensor_descriptor(out, [M, N], [N, 1], [1, COLUMNS])
    rows = tl.load(where + tl.arange(0, ROWS))
    target.scatter(source.gather(rows, column) + 1, rows, column)


@pytest.mark.parametrize("column", [0, 24, 60])
def test_single_rows(execute, column):
    """In any order, some of them outside."""
    x = np.random.default_rng(2).standard_normal((20, 64)).astype(np.float16)
    where = np.array([3, 19, -1, 7, 0, 25, 11, 4], np.int32)
    expected, inside = np.zeros_like(x), where[(where >= 0) & (where < 20)]
    expected[inside, column : column + 32] = x[inside, column : column + 32] + np.float16(1)
    arguments = [x, where, np.zeros_like(x), 20, 64, column]
    for (out,) in execute(exchange_rows, (1,), arguments, {"ROWS": 8, "COLUMNS": 32}, outputs=[2]):
        np.testing.assert_array_equal(out, expected)


@ptxforge.jit
def update(x, out, M, N, KIND: tl.constexpr, B: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [M, N], [N, 1], [B, B])
    target = tl.make_tensor_descriptor(out, [M, N], [N, 1], [B, B])
    tile = source.load([0, tl.program_id(0) * B])
    if KIND == "add":
        target.atomic_add([0, 0], tile)
    elif KIND == "max":
        target.atomic_max([0, 0], tile)
    elif KIND == "min":
        target.atomic_min([0, 0], tile)
    elif KIND == "and":
        target.atomic_and([0, 0], tile)
    elif KIND == "or":
        target.atomic_or([0, 0], tile)
    else:
        target.atomic_xor([0, 0], tile)


UPDATES = {
    "add": np.add, "max": np.maximum, "min": np.minimum, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}  # fmt: skip


@pytest.mark.parametrize("kind", UPDATES)
@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int64])
def test_atomics(execute, kind, dtype):
    x = np.random.default_rng(3).integers(-99, 99, (10, 32)).astype(dtype)
    start = np.random.default_rng(4).integers(-99, 99, (10, 32)).astype(dtype)
    expected = start.copy()
    for j in (0, 16):
        expected[:, :16] = UPDATES[kind](expected[:, :16], x[:, j : j + 16])
    arguments = [x, start, 10, 32]
    for (out,) in execute(update, (2,), arguments, {"KIND": kind, "B": 16}, outputs=[1]):
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_sums_of_floats(execute, dtype):
    x = np.random.default_rng(3).integers(-99, 99, (10, 32)).astype(dtype)
    for (out,) in execute(update, (2,), [x, np.ones_like(x), 10, 32], {"KIND": "add", "B": 16}, outputs=[1]):
        np.testing.assert_array_equal(out[:, :16], 1 + x[:, :16] + x[:, 16:])


@pytest.mark.parametrize("kind", ["max", "min"])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("columns", [16, 13])
def test_extrema_of_halves(execute, kind, dtype, columns):
    """Several programs for the same elements; a number wins against a NaN; the last columns are outside."""
    rng = np.random.default_rng(6)
    x, start = (rng.standard_normal((16, width)).astype(dtype) for width in (64, 16))
    x[3, 5], start[4, 6], x[7, 1::16] = np.nan, np.nan, np.inf
    best = {"max": np.fmax, "min": np.fmin}[kind]
    expected = start.astype(np.float32)
    for j in range(0, 64, 16):
        box = x[:, j : j + columns].astype(np.float32)
        expected[:, :columns] = best(expected[:, :columns], box)
    constants = {"KIND": kind, "B": 16, "COLUMNS": columns}
    for (out,) in execute(extrema, (4,), [x, start, 16, 64], constants, outputs=[1]):
        np.testing.assert_array_equal(out.astype(np.float32), expected)


@ptxforge.jit
def extrema(x, out, M, N, KIND: tl.constexpr, B: tl.constexpr, COLUMNS: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [M, N], [N, 1], [B, B])
    target = tl.make_tensor_descriptor(out, [M, COLUMNS], [B, 1], [B, B])
    tile = source.load([0, tl.program_id(0) * B])
    if KIND == "max":
        target.atomic_max([0, 0], tile)
    else:
        target.atomic_min([0, 0], tile)


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_90a", "sm_100"])
@pytest.mark.parametrize("element", ["fp16", "bf16"])
def test_extrema_of_halves_are_assembled(assemble, target, element):
    signature = {"x": f"*{element}:16", "out": f"*{element}:16", "M": "i32", "N": "i32:16"}
    constants = {"KIND": "min", "B": 32, "COLUMNS": 32}
    ptx = extrema.compile(signature, constants, target=target).asm["ptx"]
    assemble(ptx)
    assert f"min.{element.replace('fp', 'f')}" in ptx and "atom.global.relaxed.gpu.cas.b16" in ptx


# -- products ----------------------------------------------------------------------------------------------


@ptxforge.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    x = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
    y = tl.make_tensor_descriptor(b, [N, K], [K, 1], [BN, BK])
    z = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN])
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(x.load([row, k]), y.load([column, k]).T, acc)
    z.store([row, column], acc.to(c.dtype.element_ty))


@pytest.mark.parametrize("shape", [(64, 64, 64), (100, 72, 48), (33, 40, 8)], ids=str)
def test_matmul(execute, shape):
    m, n, k = shape
    rng = np.random.default_rng(m)
    a, b = rng.integers(-4, 5, (m, k)).astype(np.float16), rng.integers(-4, 5, (n, k)).astype(np.float16)
    arguments = [a, b, np.zeros((m, n), np.float32), m, n, k]
    constants = {"BM": 32, "BN": 64, "BK": 32}
    for (out,) in execute(matmul, (-(-m // 32), -(-n // 64)), arguments, constants, outputs=[2]):
        np.testing.assert_array_equal(out, a.astype(np.float32) @ b.astype(np.float32).T)


@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
def test_a_product_is_pipelined_with_wide_copies(assemble, target):
    """16 bytes a copy, by what a descriptor promises of base and strides, of which the last size is one."""
    signature = dict.fromkeys("abc", "*fp16") | dict.fromkeys("MNK", "i32")
    ptx = matmul.compile(signature, {"BM": 128, "BN": 128, "BK": 64}, target=target).asm["ptx"]
    assemble(ptx)
    assert "cp.async.cg.shared.global" in ptx and "cp.async.ca" not in ptx and "st.global.v4" in ptx


@ptxforge.jit
def product_of_slices(x, w, out, z, batch, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """out = x[z] @ w[z], of boxes in three dimensions."""
    left = tl.make_tensor_descriptor(x, [batch, m, k], [m * k, k, 1], [1, BM, BK])
    right = tl.make_tensor_descriptor(w, [batch, k, n], [k * n, n, 1], [1, BK, BN])
    i, j = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        a, b = left.load([z, i, start]).reshape(BM, BK), tl.reshape(right.load([z, start, j]), (BK, BN))
        total = tl.dot(a, b, total)
    rows, columns = i + tl.arange(0, BM)[:, None], j + tl.arange(0, BN)[None, :]
    tl.store(out + rows * n + columns, total, mask=(rows < m) & (columns < n))


@pytest.mark.parametrize("z", [0, 1, 2])
@pytest.mark.parametrize("tile", [(16, 64, 32), (64, 64, 64)])
def test_boxes_without_their_dimension_of_size_1_are_operands(execute, z, tile):
    """Behind the last slice there are zeros."""
    rng, (m, n, k) = np.random.default_rng(0), (80, 72, 96)
    x, w = (rng.integers(-3, 4, (2, *shape)).astype(np.float16) for shape in ((m, k), (k, n)))
    wanted = x[z].astype(np.float32) @ w[z] if z < 2 else np.zeros((m, n), np.float32)
    grid, sizes = (-(-m // tile[0]), -(-n // tile[1])), dict(zip(("BM", "BN", "BK"), tile))
    arguments = [x, w, np.ones((m, n), np.float32), z, 2, m, n, k]
    for (out,) in execute(product_of_slices, grid, arguments, sizes, outputs=[2]):
        np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize("tile, wanted", [
    ((16, 256, 64), ("ldmatrix", "mma.sync")), ((128, 128, 64), ("wgmma.mma_async", "cp.async.bulk.tensor")),
])  # fmt: skip
def test_such_boxes_go_where_the_product_reads_them(tile, wanted):
    """Not through registers and a second place in shared memory, because of the shape they were loaded in."""
    pointers = dict.fromkeys(("x", "w"), "*fp16:16") | {"out": "*fp32:16"}
    integers = {"z": "i32", "batch": "i32"} | dict.fromkeys("mnk", "i32:16")
    constants = dict(zip(("BM", "BN", "BK"), tile))
    artifact = ptxforge.compile(
        product_of_slices, signature=pointers | integers, constants=constants, target="sm_90a"
    )
    (loop,) = re.findall(r"^\$for_\d+:\n(.*?)bra", artifact.asm["ptx"], re.S | re.M)
    assert all(name in artifact.asm["ptx"] for name in wanted) and "ld.shared.v4" not in loop
