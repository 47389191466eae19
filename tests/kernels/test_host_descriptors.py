"""Tensor descriptors that the host makes, on every executor: products, attention, ragged tensors."""

from __future__ import annotations

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.runtime.ragged import (
    atomic_add_ragged,
    create_ragged_descriptor,
    load_ragged,
    store_ragged,
)
from ptxforge.runtime.tensor_descriptor import TensorDescriptor

of = TensorDescriptor.from_tensor


@ptxforge.jit
def _tile_of(tile, tiles_m, tiles_n, GROUP_M: tl.constexpr):
    group = tile // (GROUP_M * tiles_n)
    first = group * GROUP_M
    rows = min(tiles_m - first, GROUP_M)
    return first + tile % (GROUP_M * tiles_n) % rows, tile % (GROUP_M * tiles_n) // rows


@ptxforge.jit
def matmul_persistent(
    a_desc, b_desc, c_desc, M, N, K, PROGRAMS: tl.constexpr, GROUP_M: tl.constexpr, FLATTEN: tl.constexpr
):
    """c = a bᵀ; each program walks over tiles. The result is stored in two halves."""
    BM: tl.constexpr = a_desc.block_shape[0]
    BN: tl.constexpr = b_desc.block_shape[0]
    BK: tl.constexpr = a_desc.block_shape[1]
    tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, PROGRAMS, flatten=FLATTEN):
        i, j = _tile_of(tile, tiles_m, tiles_n, GROUP_M)
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(tl.cdiv(K, BK)):
            x = a_desc.load([i * BM, k * BK])
            y = b_desc.load([j * BN, k * BK])
            acc = tl.dot(x, y.T, acc)
        halves = tl.permute(tl.reshape(acc, (BM, 2, BN // 2)), (0, 2, 1))
        left, right = tl.split(halves)
        c_desc.store([i * BM, j * BN], left.to(c_desc.dtype))
        c_desc.store([i * BM, j * BN + BN // 2], right.to(c_desc.dtype))


@pytest.mark.parametrize("flatten", [False, True])
@pytest.mark.parametrize("shape", [(64, 64, 32), (200, 136, 96), (128, 192, 40)], ids=str)
def test_a_persistent_product(execute, shape, flatten):
    m, n, k = shape
    rng = np.random.default_rng(m)
    a, b = rng.integers(-4, 5, (m, k)).astype(np.float16), rng.integers(-4, 5, (n, k)).astype(np.float16)
    c = np.zeros((m, n), np.float16)
    arguments = [of(a, [64, 32]), of(b, [64, 32]), of(c, [64, 32]), m, n, k]
    constants = {"PROGRAMS": 3, "GROUP_M": 2, "FLATTEN": flatten}
    for (out,) in execute(matmul_persistent, (3,), arguments, constants, outputs=[2]):
        np.testing.assert_array_equal(out, (a.astype(np.float32) @ b.astype(np.float32).T).astype(np.float16))


@ptxforge.jit
def _attend(acc, total, top, q, k_desc, v_desc, base, first, last, i, scale, N_CTX, MASKED: tl.constexpr):
    BN: tl.constexpr = k_desc.block_shape[0]
    j = tl.arange(0, BN)
    for start in tl.range(first, last, BN):
        scores = tl.dot(q, k_desc.load([base + start, 0]).T) * scale
        if MASKED:
            scores += tl.where(i[:, None] >= start + j[None, :], 0, -1.0e6)
        new_top = tl.maximum(top, tl.max(scores, 1))
        p = tl.math.exp2(scores - new_top[:, None])
        shrink = tl.math.exp2(top - new_top)
        total = total * shrink + tl.sum(p, 1)
        acc = tl.dot(p.to(v_desc.dtype), v_desc.load([base + start, 0]), acc * shrink[:, None])
        top = new_top
    return acc, total, top


@ptxforge.jit
def attention(q_desc, k_desc, v_desc, o_desc, scale, N_CTX, CAUSAL: tl.constexpr):
    """softmax(q kᵀ scale) v; the heads lie behind each other as rows of one matrix."""
    BM: tl.constexpr = q_desc.block_shape[0]
    D: tl.constexpr = q_desc.block_shape[1]
    start, base = tl.program_id(0) * BM, tl.program_id(1) * N_CTX
    i = start + tl.arange(0, BM)
    top = tl.full([BM], -float("inf"), tl.float32)
    total = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    q = q_desc.load([base + start, 0])
    full = start if CAUSAL else N_CTX
    acc, total, top = _attend(acc, total, top, q, k_desc, v_desc, base, 0, full, i, scale, N_CTX, False)
    if CAUSAL:
        acc, total, top = _attend(
            acc, total, top, q, k_desc, v_desc, base, start, start + BM, i, scale, N_CTX, True
        )
    o_desc.store([base + start, 0], (acc / total[:, None]).to(o_desc.dtype))


@pytest.mark.parametrize("causal", [False, True])
def test_attention(execute, causal):
    heads, length, d = 2, 128, 32
    rng = np.random.default_rng(5)
    q, k, v = (rng.standard_normal((heads * length, d)).astype(np.float16) for _ in range(3))
    expected = np.zeros((heads, length, d))
    for h, (x, y, z) in enumerate(zip(*(t.astype(np.float64).reshape(heads, length, d) for t in (q, k, v)))):
        scores = x @ y.T * 0.5
        if causal:
            scores[np.triu_indices(length, 1)] = -np.inf
        p = np.exp2(scores - scores.max(1, keepdims=True))
        expected[h] = p / p.sum(1, keepdims=True) @ z
    boxes = [64, d], [32, d], [32, d], [64, d]
    arguments = [of(t, box) for t, box in zip((q, k, v, np.zeros_like(q)), boxes)] + [0.5, length]
    for (out,) in execute(attention, (2, heads), arguments, {"CAUSAL": causal}, outputs=[3]):
        np.testing.assert_allclose(out.reshape(expected.shape), expected, rtol=2e-2, atol=2e-2)


TYPE = "tensordesc<fp16[{},64]>:16"


def test_tma_feeds_a_product(assemble):
    signature = dict.fromkeys(("a_desc", "b_desc", "c_desc"), TYPE.format(128))
    constants = {"PROGRAMS": 132, "GROUP_M": 8, "FLATTEN": False}
    artifact = matmul_persistent.compile(signature | dict.fromkeys("MNK", "i32"), constants, target="sm_90a")
    assemble(artifact.ptx)
    assert "cp.async.bulk.tensor" in artifact.ptx and "cp.async.c" not in artifact.ptx
    made = {recipe.base: recipe.shape for recipe in artifact.tensor_maps}
    assert made["a_desc"] == ("a_desc.shape.0", "a_desc.shape.1") and "b_desc" in made


def test_tma_feeds_attention(assemble):
    """Although nothing is known of the sign of what places a head among the rows."""
    signature = {name: TYPE.format(128 if name in "qo" else 64) for name in "qkvo"}
    signature = {f"{name}_desc": kind for name, kind in signature.items()} | {"scale": "fp32", "N_CTX": "i32"}
    artifact = attention.compile(signature, {"CAUSAL": True}, target="sm_90a", num_warps=8)
    assemble(artifact.ptx)
    assert "cp.async.bulk.tensor" in artifact.ptx and "cp.async.c" not in artifact.ptx
    made = {recipe.base: recipe.shape for recipe in artifact.tensor_maps}
    assert made["k_desc"] == ("k_desc.shape.0", "k_desc.shape.1") and "v_desc" in made


def test_both_kernels_are_pipelined_with_wide_copies(assemble):
    wide = "tensordesc<fp16[128,64]>:16"
    kernels = [
        (matmul_persistent, dict.fromkeys(("a_desc", "b_desc", "c_desc"), wide)
         | dict.fromkeys("MNK", "i32"), {"PROGRAMS": 132, "GROUP_M": 8, "FLATTEN": True}),
        (attention, dict.fromkeys(("q_desc", "k_desc", "v_desc", "o_desc"), wide)
         | {"scale": "fp32", "N_CTX": "i32"}, {"CAUSAL": True}),
    ]  # fmt: skip
    for kernel, signature, constants in kernels:
        for target in ("sm_80", "sm_90"):
            ptx = kernel.compile(signature, constants, target=target, num_warps=8).asm["ptx"]
            assemble(ptx)
            assert "cp.async.cg.shared.global" in ptx and "cp.async.ca" not in ptx


# -- what a descriptor is specialised for ------------------------------------------------------------------


@ptxforge.jit
def shift(x_desc, out_desc, i, j):
    out_desc.store([0, 0], x_desc.load([i, j]))


@pytest.mark.parametrize("padding", ["zero", "nan"])
@pytest.mark.parametrize("columns", [32, 36])
def test_padding(execute, padding, columns):
    x = np.arange(12 * columns, dtype=np.float32).reshape(12, columns)
    expected = np.full((8, 16), 0 if padding == "zero" else np.nan, np.float32)
    rows = x[10:12, columns - 4 :]
    expected[: rows.shape[0], : rows.shape[1]] = rows
    arguments = [of(x, [8, 16], padding=padding), of(np.zeros((8, 16), "f4"), [8, 16]), 10, columns - 4]
    for (out,) in execute(shift, (1,), arguments, {}, outputs=[1]):
        np.testing.assert_array_equal(out, expected)


def test_a_part_of_a_larger_tensor(execute):
    """Rows that lie further apart than they are long."""
    x = np.arange(12 * 64, dtype=np.float32).reshape(12, 64)
    part = TensorDescriptor(x, [5, 24], [64, 1], [8, 16])
    expected = np.zeros((8, 16), np.float32)
    expected[:2, :8] = x[3:5, 16:24]
    arguments = [part, of(np.zeros((8, 16), "f4"), [8, 16]), 3, 16]
    for (out,) in execute(shift, (1,), arguments, {}, outputs=[1]):
        np.testing.assert_array_equal(out, expected)


# -- ragged tensors ----------------------------------------------------------------------------------------


@ptxforge.jit
def per_expert(x_desc, out_desc, starts, sums_desc, BM: tl.constexpr, BN: tl.constexpr):
    """out = 2 x for each subarray, as far as it goes; the sums of all subarrays' rows by atomics."""
    expert, j = tl.program_id(0), tl.program_id(1) * BN
    first = tl.load(starts + expert)
    count = tl.load(starts + expert + 1) - first
    for i in range(0, count, BM):
        tile = load_ragged(x_desc, first, count, [i, j])
        store_ragged(out_desc, first, count, [i, j], tile * 2)
        atomic_add_ragged(sums_desc, 0, BM, [0, j], tile)


def test_ragged_tensors(execute):
    x = np.random.default_rng(6).integers(-9, 9, (50, 32)).astype(np.float32)
    starts = np.array([0, 7, 7, 30, 41], np.int32)  # nothing belongs to the last nine rows
    expected, sums = np.zeros_like(x), np.zeros((16, 32), np.float32)
    expected[:41] = 2 * x[:41]
    for first, last in zip(starts, starts[1:]):
        for i in range(first, last):
            sums[(i - first) % 16] += x[i]
    box = [16, 16]
    arguments = [
        create_ragged_descriptor(x, box), create_ragged_descriptor(np.zeros_like(x), box), starts,
        create_ragged_descriptor(np.zeros((16, 32), np.float32), box),
    ]  # fmt: skip
    constants = {"BM": 16, "BN": 16}
    for out, added in execute(per_expert, (4, 2), arguments, constants, outputs=[1, 3]):
        np.testing.assert_array_equal(out, expected)
        np.testing.assert_array_equal(added, sums)


@ptxforge.jit
def middle(x_desc, out_desc, first, count):
    store_ragged(out_desc, first, count, [0, 0, 0], load_ragged(x_desc, first, count, [0, 0, 0], 1), 1)


def test_a_ragged_dimension_in_the_middle(execute):
    x = np.random.default_rng(7).integers(-9, 9, (3, 20, 16)).astype(np.int32)
    expected = np.zeros_like(x)
    expected[:2, 5:11] = x[:2, 5:11]
    made = [create_ragged_descriptor(t, [2, 8, 16], ragged_dim=1) for t in (x, np.zeros_like(x))]
    for (out,) in execute(middle, (1,), [*made, 5, 6], {}, outputs=[1]):
        np.testing.assert_array_equal(out, expected)


# -- boxes that begin before the tensor --------------------------------------------------------------------


@ptxforge.jit
def shifted_product(a_desc, b_desc, c, first, K, BM: tl.constexpr, BN: tl.constexpr):
    acc = tl.zeros((BM, BN), tl.float32)
    row = first + tl.program_id(0) * BM
    for k in range(0, K, a_desc.block_shape[1]):
        acc = tl.dot(a_desc.load([row, k]), b_desc.load([0, k]).T, acc)
    at = (tl.program_id(0) * BM + tl.arange(0, BM))[:, None] * BN + tl.arange(0, BN)[None, :]
    tl.store(c + at, acc)


@pytest.mark.parametrize("first", [0, -5, -70, 33])
def test_rows_before_the_first(execute, first):
    rng = np.random.default_rng(8)
    a, b = rng.integers(-4, 5, (100, 96)).astype(np.float16), rng.integers(-4, 5, (64, 96)).astype(np.float16)
    rows = np.arange(first, first + 128)
    inside = (rows >= 0) & (rows < 100)
    expected = np.zeros((128, 64), np.float32)
    expected[inside] = a[rows[inside]].astype(np.float32) @ b.astype(np.float32).T
    arguments = [of(a, [64, 32]), of(b, [64, 32]), np.zeros((128, 64), np.float32), first, 96]
    for (out,) in execute(shifted_product, (2,), arguments, {"BM": 64, "BN": 64}, outputs=[2]):
        np.testing.assert_array_equal(out, expected)


def test_rows_before_the_first_come_by_tma(assemble):
    signature = dict.fromkeys(("a_desc", "b_desc"), "tensordesc<fp16[64,32]>:16")
    signature |= {"c": "*fp32:16", "first": "i32", "K": "i32"}
    artifact = shifted_product.compile(signature, {"BM": 64, "BN": 64}, target="sm_90a")
    assemble(artifact.ptx)
    assert "cp.async.bulk.tensor" in artifact.ptx and len(artifact.tensor_maps) == 2
