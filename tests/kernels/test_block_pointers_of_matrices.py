"""Block pointers to matrices of several, boxes of one along a dimension: their tiles come as those of the
matrix alone would, on every executor."""

from __future__ import annotations

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl

TILE = {"BM": 64, "BN": 64, "BK": 32}


def integers(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).integers(-3, 4, shape).astype(np.float16)


@ptxforge.jit
def batched(x, y, out, B, M, N, K, CHECK: tl.constexpr, PAD: tl.constexpr, BM: tl.constexpr,
            BN: tl.constexpr, BK: tl.constexpr):  # fmt: skip
    """out[z] = x[z] @ y[z + 1]; the rows that ``out`` has beyond M too."""
    z, i, j = tl.program_id(2), tl.program_id(0) * BM, tl.program_id(1) * BN
    left = tl.make_block_ptr(x, [B, M, K], [M * K, K, 1], [z, i, 0], [1, BM, BK], [2, 1, 0])
    right = tl.make_block_ptr(y, [B, K, N], [K * N, N, 1], [z + 1, 0, j], [1, BK, BN], [2, 1, 0])
    total = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K, BK):
        a = tl.load(left, boundary_check=CHECK, padding_option=PAD).reshape(BM, BK)
        b = tl.load(right, boundary_check=CHECK, padding_option="zero").reshape(BK, BN)
        total = tl.dot(a, b, total)
        left, right = tl.advance(left, [0, 0, BK]), tl.advance(right, [0, BK, 0])
    rows, columns = i + tl.arange(0, BM)[:, None], j + tl.arange(0, BN)[None, :]
    place = out + ((z * tl.num_programs(0) * BM + rows) * tl.num_programs(1) * BN) + columns
    tl.store(place, total)


def compiled(kernel, **constants):
    signature = {"x": "*fp16:16", "y": "*fp16:16", "out": "*fp32:16"} | dict.fromkeys("BMNK", "i32:16")
    return kernel.compile(signature, TILE | constants, target="sm_90a", num_warps=4)


@pytest.mark.parametrize("pad", ["zero", "nan"])
@pytest.mark.parametrize("check, m, n, k", [
    ((), 128, 64, 64), ((1, 2), 80, 48, 80), ((0, 1, 2), 80, 48, 80), ((0,), 64, 64, 32),
])  # fmt: skip
def test_a_matrix_of_several(execute, check, m, n, k, pad):
    count = 3
    x, y = integers(count, m, k), integers(count + 1, k, n)
    high, wide, deep = (-(-extent // side) * side for extent, side in ((m, 64), (n, 64), (k, 32)))
    padding = np.nan if pad == "nan" else 0
    expected = np.zeros((count, high, wide), np.float32)
    for z in range(count):
        left = np.pad(x[z].astype(np.float32), [(0, high - m), (0, deep - k)], constant_values=padding)
        right = np.pad(y[z + 1].astype(np.float32), [(0, deep - k), (0, wide - n)])
        expected[z] = left @ (right * (z + 1 < count or 0 not in check))
    arguments = [x, y, np.ones_like(expected), count, m, n, k]
    constants = TILE | {"CHECK": check, "PAD": pad}
    for (out,) in execute(batched, (high // 64, wide // 64, count), arguments, constants, outputs=[2]):
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("pad", ["zero", "nan"])
@pytest.mark.parametrize("check", [(), (1, 2), (0, 1, 2), (0,)], ids=str)
def test_tma_copies_its_tiles(check, pad):
    artifact = compiled(batched, CHECK=check, PAD=pad)
    boxes = {recipe.base: recipe.box for recipe in artifact.tensor_maps}
    assert boxes == {"x": (1, 64, 32), "y": (1, 32, 64)}
    (recipe, _) = artifact.tensor_maps
    assert (recipe.shape[0] == "B") == (0 in check)
    assert recipe.padding == (pad if check else "zero")
    kinds = {remark.kind for remark in artifact.remarks}
    assert not kinds & {"not-by-tma", "not-by-wgmma", "not-pipelined"}


@ptxforge.jit
def turned(x, y, out, B, M, N, K, KIND: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
           BK: tl.constexpr):  # fmt: skip
    """out[z] = x[z] @ y[z]ᵀ, of boxes that lose their dimension of one in several ways."""
    z, i, j = tl.program_id(2), tl.program_id(0) * BM, tl.program_id(1) * BN
    left = tl.make_block_ptr(x, [B, M, K], [M * K, K, 1], [z, i, 0], [1, BM, BK], [2, 1, 0])
    right = tl.make_block_ptr(y, [B, N, K], [K * N, K, 1], [z, j, 0], [1, BN, BK], [2, 1, 0])
    total = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K, BK):
        a, b = tl.load(left), tl.load(right)
        if KIND == "sum":
            a, b = tl.sum(a, 0), tl.sum(b, 0).T
        elif KIND == "trans":
            a, b = a.reshape(BM, BK), tl.trans(b, 0, 2, 1).reshape(BK, BN)
        else:
            a, b = tl.trans(a, 1, 0, 2).reshape(BM, BK), tl.trans(b, 2, 0, 1).reshape(BK, BN)
        total = tl.dot(a, b, total)
        left, right = tl.advance(left, [0, 0, BK]), tl.advance(right, [0, 0, BK])
    rows, columns = i + tl.arange(0, BM)[:, None], j + tl.arange(0, BN)[None, :]
    tl.store(out + (z * M + rows) * N + columns, total)


@pytest.mark.parametrize("kind", ["sum", "trans", "around"])
def test_dimensions_of_one_that_are_turned_or_summed_away(execute, kind):
    count, m, n, k = 2, 128, 64, 64
    x, y = integers(count, m, k), integers(count, n, k)
    expected = x.astype(np.float32) @ y.astype(np.float32).transpose(0, 2, 1)
    arguments = [x, y, np.ones_like(expected), count, m, n, k]
    constants = TILE | {"KIND": kind}
    for (out,) in execute(turned, (m // 64, n // 64, count), arguments, constants, outputs=[2]):
        np.testing.assert_array_equal(out, expected)
    boxes = {recipe.base: recipe.box for recipe in compiled(turned, KIND=kind).tensor_maps}
    assert boxes == {"x": (1, 64, 32), "y": (1, 64, 32)}


@ptxforge.jit
def masked(x, y, out, B, M, N, K, H, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """out[z, h] = x[z, h] @ y, by the author's own pointers in four dimensions, and masks."""
    z, h = tl.program_id(2) // H, tl.program_id(2) % H
    i, j, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    one, head = z + tl.arange(0, 1), h + tl.arange(0, 1)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        place = (one[:, None, None, None] * H + head[None, :, None, None]) * M * K
        place += i[None, None, :, None] * K + (start + k)[None, None, None, :]
        inside = (one < B)[:, None, None, None] & (i < M)[None, None, :, None]
        a = tl.load(x + place, mask=inside & (start + k < K)[None, None, None, :], other=0.0).reshape(BM, BK)
        b = tl.load(y + (start + k)[:, None] * N + j[None, :], mask=(start + k < K)[:, None], other=0.0)
        total = tl.dot(a, b, total)
    tl.store(out + tl.program_id(2) * BM * BN + i[:, None] * BN + j[None, :], total)


def test_the_authors_own_dimensions(execute):
    m, k, count, heads = 48, 80, 2, 3
    x, y = integers(count, heads, m, k), integers(k, 64)
    expected = np.zeros((count * heads + heads, 64, 64), np.float32)
    expected[: count * heads, :m] = (x.astype(np.float32) @ y.astype(np.float32)).reshape(-1, m, 64)
    arguments = [x, y, np.ones_like(expected), count, m, 64, k, heads]
    for (out,) in execute(masked, (1, 1, len(expected)), arguments, TILE, outputs=[2]):
        np.testing.assert_array_equal(out, expected)
    artifact = masked.variants[-1].artifact
    boxes = {recipe.base: recipe.box for recipe in artifact.tensor_maps}
    assert boxes == {"x": (1, 1, 64, 32), "y": (32, 64)}
