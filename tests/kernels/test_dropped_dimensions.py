"""Tiles of products with one index along some dimensions of their tensor, and masks that ask for all elements
alike: by TMA where they say how large the tensor is there."""

from __future__ import annotations

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl

TILE = {"BM": 64, "BN": 64, "BK": 32}


def integers(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(-3, 4, shape).astype(np.float16)


def copied_by_tma(kernel) -> set[str]:
    """The parameters of whose tensors the newest variant has maps."""
    return {recipe.base for recipe in kernel.variants[-1].artifact.tensor_maps}


@ptxforge.jit
def expert(x, w, out, which, M, N, K, E, KIND: tl.constexpr,
           BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):  # fmt: skip
    """out[z] = x @ w[e], nothing where there is no expert e: a number that is loaded, one of the launch, the
    program's place, or one of each step."""
    z = tl.program_id(2)
    if KIND == "loaded":
        e = tl.load(which + z)
    elif KIND == "place":
        e = z
    else:
        e = E - 2
    matrices = tl.make_tensor_descriptor(w, [E, K, N], [K * N, N, 1], [1, BK, BN])
    rows = tl.make_tensor_descriptor(x, [M, K], [K, 1], [BM, BK])
    i, j = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros((BM, BN), tl.float32)
    for step in range(0, tl.cdiv(K, BK)):
        if KIND == "pages":
            e = tl.load(which + z + step % 2)
        y = matrices.load([e, step * BK, j]).reshape(BK, BN)
        total = tl.dot(rows.load([i, step * BK]), y, total)
    rows, columns = i + tl.arange(0, BM)[:, None], j + tl.arange(0, BN)[None, :]
    tl.store(out + z * M * N + rows * N + columns, total, mask=(rows < M) & (columns < N))


@pytest.mark.parametrize("kind", ["loaded", "place", "launched", "pages"])
def test_one_matrix_of_several(execute, kind):
    m, n, k, count = 80, 96, 64, 3
    x, w, which = integers(m, k), integers(count, k, n), np.array([2, -1, 0, 3, 1], np.int32)
    none = {e: np.zeros((k, n), np.float16) for e in (-1, count)} | dict(enumerate(w))
    out = np.ones((4, m, n), np.float32)
    arguments = [x, w, out, which, m, n, k, count]
    expected = []
    for z in range(4):
        e = {"loaded": which[z], "place": z, "launched": 1}.get(kind)
        right = none[e] if e is not None else np.concatenate([none[which[z]][:32], none[which[z + 1]][32:]])
        expected.append(x.astype(np.float32) @ right.astype(np.float32))
    for (found,) in execute(expert, (2, 2, 4), arguments, TILE | {"KIND": kind}, outputs=[2], num_warps=4):
        np.testing.assert_array_equal(found, expected)
    assert copied_by_tma(expert) == {"x", "w"}


@ptxforge.jit
def by_pointers(x, w, out, which, M, N, K, E, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """As :func:`expert`, with the author's own masks."""
    z = tl.program_id(2)
    e = tl.load(which + z)
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    is_there = (e >= 0) & (e < E)
    for start in range(0, K, BK):
        left = tl.load(x + i[:, None] * K + (start + k)[None, :], mask=i[:, None] < M, other=0.0)
        place = w + e * K * N + (start + k)[:, None] * N + j[None, :]
        total = tl.dot(left, tl.load(place, mask=(j[None, :] < N) & is_there, other=0.0), total)
    place = out + z * M * N + i[:, None] * N + j[None, :]
    tl.store(place, total, mask=(i[:, None] < M) & (j[None, :] < N))


def test_the_authors_own_masks(execute):
    m, n, k, count = 80, 96, 64, 3
    x, w, which = integers(m, k), integers(count, k, n), np.array([2, -1, 0, 3], np.int32)
    wanted = [x.astype(np.float32) @ w[e] if 0 <= e < count else np.zeros((m, n)) for e in which]
    arguments = [x, w, np.ones((4, m, n), np.float32), which, m, n, k, count]
    for (found,) in execute(by_pointers, (2, 2, 4), arguments, TILE, outputs=[2], num_warps=4):
        np.testing.assert_array_equal(found, wanted)
    assert copied_by_tma(by_pointers) == {"x", "w"}


@ptxforge.jit
def heads(x, w, out, M, N, K, H, ROWS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """out[z, h] = x @ w[z, h], of which rows are a number of elements apart: a box of one along two
    dimensions."""
    z, h = tl.program_id(1), tl.program_id(2)
    matrices = tl.make_tensor_descriptor(
        w, [2, H, K, N], [H * 32 * ROWS, 32 * ROWS, ROWS, 1], [1, 1, BK, BN]
    )
    i, j, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        left = tl.load(x + i[:, None] * K + (start + k)[None, :])
        total = tl.dot(left, matrices.load([z, h - 1, start, 0]).reshape(BK, BN), total)
    place = out + (z * 3 + h) * M * N + i[:, None] * N + j[None, :]
    tl.store(place, total, mask=(i[:, None] < M) & (j[None, :] < N))


def test_boxes_of_one_along_two_dimensions(execute):
    """Behind the last batch, and in front of the first head, there are zeros."""
    m, n, k, count = 64, 48, 32, 3
    x, w = integers(m, k), integers(2, count, k, 64)
    expected = np.zeros((3, 3, m, n), np.float32)
    for z in range(2):
        for h in range(1, 3):
            expected[z, h] = x.astype(np.float32) @ w[z, h - 1, :, :n]
    arguments, constants = [x, w, np.ones_like(expected), m, n, k, count], TILE | {"ROWS": 64}
    for (found,) in execute(heads, (1, 3, 3), arguments, constants, outputs=[2], num_warps=4):
        np.testing.assert_array_equal(found, expected)
    assert copied_by_tma(heads) == {"x", "w"}


@ptxforge.jit
def masked(a, b, out, K, PITCH, COUNT, KIND: tl.constexpr,
           BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):  # fmt: skip
    """A mask that asks of a step as a whole whether it is to be loaded; pointers to one row, and the same
    row."""
    i, j, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        one = start + tl.arange(0, 1)
        place = a + i[:, None] * PITCH + (start + k)[None, :]
        if KIND == "block":
            x = tl.load(place, mask=one[None, :] < K, other=0.0)
        elif KIND == "other":
            x = tl.load(place, mask=one[None, :] < COUNT, other=0.0)
        elif KIND == "scalar":
            x = tl.load(place, mask=start < COUNT, other=0.0)
        else:
            x = tl.load(place + one[:, None] * PITCH)
        total = tl.dot(x, tl.load(b + (start + k)[:, None] * BN + j[None, :]), total)
    tl.store(out + i[:, None] * BN + j[None, :], total)


@pytest.mark.parametrize("kind", ["block", "other", "scalar", "pointer"])
@pytest.mark.parametrize("depth", [16, 48])
def test_what_holds_for_all_elements_is_no_bound_of_one(execute, kind, depth):
    """A step that begins below the depth is loaded whole."""
    a, b = integers(128, 64), integers(64, 64)
    left, count = a[:64].copy(), 16
    if kind in ("other", "scalar"):
        left[:, 32:] = 0
    if kind == "pointer":
        left[:, 32:] = a[32:96, 32:]
    steps = -(-depth // 32) * 32
    arguments = [a, b, np.zeros((64, 64), np.float32), depth, 64, count]
    for (found,) in execute(masked, (1,), arguments, TILE | {"KIND": kind}, outputs=[2], num_warps=4):
        np.testing.assert_array_equal(found, left[:, :steps].astype(np.float32) @ b[:steps])
    assert "b" in copied_by_tma(masked)


@ptxforge.jit
def behind_the_first(x, w, out, K, PLANE, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """out[z] = x @ w[z + 1], where w has two matrices, and x @ w[z + 1] of one without any."""
    z = tl.program_id(0)
    two = tl.make_tensor_descriptor(w, [2, K, BN], [PLANE, BN, 1], [1, BK, BN])
    one = tl.make_tensor_descriptor(w, [1, K, BN], [PLANE, BN, 1], [1, BK, BN])
    i, j, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        left = tl.load(x + i[:, None] * K + (start + k)[None, :])
        total = tl.dot(left, two.load([z + 1, start, 0]).reshape(BK, BN), total)
        total = tl.dot(left, one.load([z + 1, start, 0]).reshape(BK, BN), total)
    tl.store(out + z * BM * BN + i[:, None] * BN + j[None, :], total)


def test_an_index_that_begins_behind_the_first(execute):
    x, w = integers(64, 64), integers(2, 64, 64)
    wanted = np.stack([x.astype(np.float32) @ w[1], np.zeros((64, 64))])
    arguments = [x, w, np.ones((2, 64, 64), np.float32), 64, 64 * 64]
    for (found,) in execute(behind_the_first, (2,), arguments, TILE, outputs=[2], num_warps=4):
        np.testing.assert_array_equal(found, wanted)
    assert {"x", "w"} == copied_by_tma(behind_the_first) and len(behind_the_first.variants) == 1
