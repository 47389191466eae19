"""Vectors that are loaded beside tiles of products: what TMA copies of them, what threads do."""

from __future__ import annotations

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl


@ptxforge.jit
def scaled(a, b, scales, shifts, c, K, heads, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
           VECTOR_FIRST: tl.constexpr):  # fmt: skip
    """For each head (a · scales + shifts) @ bᵀ, with a [heads, BM, K], b [heads, BN, K], and a scale and a
    shift for each index along K of each head."""
    head = tl.program_id(0)
    i, j, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    a += head * BM * K
    b += head * BN * K
    acc = tl.zeros((BM, BN), tl.float32)
    for step in range(0, K, BK):
        here = step + k
        if VECTOR_FIRST:
            scale = tl.load(scales + head * K + here, mask=here < K, other=0.0)
        x = tl.load(a + i[:, None] * K + here[None, :], mask=here[None, :] < K, other=0.0)
        y = tl.load(b + j[:, None] * K + here[None, :], mask=here[None, :] < K, other=0.0)
        if not VECTOR_FIRST:
            scale = tl.load(scales + head * K + here, mask=here < K, other=0.0)
        x = x * scale[None, :] + tl.load(shifts + head * K + here, mask=here < K, other=0.0)[None, :]
        acc = tl.dot(x.to(tl.float16), tl.trans(y), acc)
    tl.store(c + head * BM * BN + i[:, None] * BN + j[None, :], acc)


def run(execute, block, K, vector_first, element=np.float32, rows=64, **options):
    rng = np.random.default_rng(K + block)
    a, b = (rng.integers(-2, 3, (3, extent, K)).astype(np.float16) for extent in (rows, 64))
    scales, shifts = (rng.integers(-2, 3, (3, K)).astype(element) for _ in range(2))
    expected = (a.astype(np.float32) * scales[:, None] + shifts[:, None]) @ b.astype(np.float32).swapaxes(
        1, 2
    )
    arguments = [a, b, scales, shifts, np.zeros((3, rows, 64), np.float32), K, 3]
    blocks = {"BM": rows, "BN": 64, "BK": block, "VECTOR_FIRST": vector_first}
    for (out,) in execute(scaled, (3,), arguments, blocks, outputs=[4], num_warps=4, **options):
        np.testing.assert_array_equal(out, expected)
    return scaled.variants[-1].artifact


@pytest.mark.parametrize("vector_first", [False, True])
@pytest.mark.parametrize("K", [64, 208, 16])
@pytest.mark.parametrize("stages", [2, 3])
def test_vectors_come_with_the_tiles(execute, K, vector_first, stages):
    artifact = run(execute, 64, K, vector_first, num_stages=stages)
    recipes = {recipe.base: recipe for recipe in artifact.tensor_maps}
    assert set(recipes) >= {"b", "scales", "shifts"}
    assert recipes["scales"].box == (1, 64) and recipes["scales"].swizzle == 0
    assert recipes["scales"].shape[-1] == "K" and recipes["scales"].strides == ("K", 1)


def test_vectors_of_half_precision(execute):
    artifact = run(execute, 64, 208, False, np.float16, num_stages=3)
    assert {"scales", "shifts"} <= {recipe.base for recipe in artifact.tensor_maps}


@pytest.mark.parametrize("block, element", [(16, np.float32), (16, np.int8), (64, np.int8)])
def test_buffers_of_short_vectors_lie_apart(execute, block, element):
    """TMA writes to multiples of 128 bytes, so each buffer of a ring begins at one."""
    artifact = run(execute, block, 3 * block, False, element, num_stages=3)
    assert {"scales", "shifts"} <= {recipe.base for recipe in artifact.tensor_maps}


def test_without_tensor_maps_threads_copy_vectors(execute):
    artifact = run(execute, 64, 208, False, num_stages=3, tensor_maps=False)
    assert not artifact.tensor_maps and "cp.async.c" in artifact.ptx


@ptxforge.jit
def gathered(a, rows, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """aᵀ @ bᵀ, with the rows of a in the order that ``rows`` says."""
    i, j, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for step in range(0, K, BK):
        y = tl.load(b + j[:, None] * K + (step + k)[None, :])
        x = tl.load(a + tl.load(rows + step + k)[:, None] * BM + i[None, :])
        acc = tl.dot(tl.trans(x), tl.trans(y), acc)
    tl.store(c + i[:, None] * BN + j[None, :], acc)


def test_threads_copy_vectors_that_say_where_others_are(execute):
    rng = np.random.default_rng(2)
    a, b = (
        rng.integers(-2, 3, (128, 64)).astype(np.float16),
        rng.integers(-2, 3, (64, 128)).astype(np.float16),
    )
    rows = rng.permutation(128).astype(np.int32)
    arguments = [a, rows, b, np.zeros((64, 64), np.float32), 128]
    for (out,) in execute(gathered, (1,), arguments, {"BM": 64, "BN": 64, "BK": 32}, outputs=[3],
                          num_warps=4, num_stages=3):  # fmt: skip
        np.testing.assert_array_equal(out, a[rows].T.astype(np.float32) @ b.T.astype(np.float32))
    assert "rows" not in {recipe.base for recipe in gathered.variants[-1].artifact.tensor_maps}


def test_ctas_of_a_cluster_copy_vectors_for_themselves(execute):
    """They share b's tile, of which each copies a half."""
    artifact = run(execute, 64, 208, False, num_stages=3, rows=128, num_ctas=2)
    assert "one-cta-works" not in {remark.kind for remark in artifact.remarks}
    assert {"scales", "shifts"} <= {recipe.base for recipe in artifact.tensor_maps}
