"""Loads through descriptors in loops without products, whose boxes TMA copies where the loop stores by TMA
or threads would copy few bytes at once: on every executor, beside what threads copy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.support import machine


@pytest.fixture(params=[True, False], ids=["by TMA", "by threads"])
def by_tma(request, monkeypatch) -> bool:
    """All boxes, or only those of loops that store by TMA."""
    monkeypatch.setattr(machine, "THREADS_COPY_BOXES_FROM", 17 if request.param else 0)
    return request.param


def integers(*shape: int, dtype=np.float16, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(dtype)


def mapped(kernel) -> set[str]:
    """The parameters of whose tensors the newest variant reads by maps."""
    return {recipe.base for recipe in kernel.variants[-1].artifact.tensor_maps}


def fresh(function):
    """A kernel that was compiled by no other rule."""
    return ptxforge.jit(function.fn)


@ptxforge.jit
def row_sums(x, out, M, N, PAD: tl.constexpr, STAGES: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    i = tl.program_id(0) * BM
    tiles = tl.make_tensor_descriptor(x, [M, N], [N, 1], [BM, BN], PAD)
    total = tl.zeros((BM, BN), tl.float32)
    for j in tl.range(0, N, BN, num_stages=STAGES):
        total += tiles.load([i, j]).to(tl.float32)
    tl.store(out + i + tl.arange(0, BM), tl.sum(total, 1))


@pytest.mark.parametrize("stages", [2, 4])
@pytest.mark.parametrize("dtype, m, n, tile", [
    (np.float16, 100, 320, (64, 64)), (np.float32, 100, 72, (32, 32)),
    (ml_dtypes.bfloat16, 40, 64, (16, 256)), (np.int8, 300, 128, (256, 16)),
    (np.float16, 64, 0, (64, 64)), (np.float16, 17, 64, (64, 8)),
])  # fmt: skip
def test_sums_of_rows(execute, by_tma, dtype, m, n, tile, stages):
    kernel, (bm, bn) = fresh(row_sums), tile
    x, programs = integers(m, max(n, 16), dtype=dtype), -(-m // bm)
    expected = np.zeros(programs * bm, np.float32)
    expected[:m] = x[:, :n].astype(np.float32).sum(1)
    constants = {"PAD": "zero", "STAGES": stages, "BM": bm, "BN": bn}
    arguments = [x[:, :n].copy() if n else x, np.ones_like(expected), m, n]
    for (out,) in execute(kernel, (programs,), arguments, constants, outputs=[1]):
        np.testing.assert_array_equal(out, expected)
    if n:
        assert mapped(kernel) == ({"x"} if by_tma else set())


@ptxforge.jit
def sums_of_parts(x, out, N, PITCH: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Of the first N elements of each row."""
    tiles = tl.make_tensor_descriptor(x, [BM, N], [PITCH, 1], [BM, BN])
    total = tl.zeros((BM, BN), tl.float32)
    for j in tl.range(0, N, BN, num_stages=3):
        total += tiles.load([0, j]).to(tl.float32)
    tl.store(out + tl.arange(0, BM), tl.sum(total, 1))


@pytest.mark.parametrize("n, bases", [(80, set()), (77, {"x"}), (8, {"x"})])
def test_what_threads_would_copy_by_elements(execute, n, bases):
    """TMA brings rows that may end within 16 bytes. What are whole pieces threads copy as fast."""
    x, kernel = integers(32, 96), fresh(sums_of_parts)
    arguments, constants = [x, np.ones(32, np.float32), n], {"PITCH": 96, "BM": 32, "BN": 64}
    for (out,) in execute(kernel, (1,), arguments, constants, outputs=[1]):
        np.testing.assert_array_equal(out, x[:, :n].astype(np.float32).sum(1))
    assert mapped(kernel) == bases


def test_padding_with_nan(execute, by_tma):
    kernel, x = fresh(row_sums), integers(48, 80)
    expected = np.full(64, np.nan, np.float32)
    constants = {"PAD": "nan", "STAGES": 3, "BM": 64, "BN": 64}
    for (out,) in execute(kernel, (1,), [x, np.ones_like(expected), 48, 80], constants, outputs=[1]):
        np.testing.assert_array_equal(out, expected)
    assert mapped(kernel) == ({"x"} if by_tma else set())


@ptxforge.jit
def scaled(x, y, scales, out, M, N, KIND: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """out = x · y · scales, in tiles, with two boxes and a vector in each step."""
    left = tl.make_tensor_descriptor(x, [M, N], [N, 1], [BM, BN])
    right = tl.make_tensor_descriptor(y, [M, N], [N, 1], [BM, BN])
    factors = tl.make_tensor_descriptor(scales, [N], [1], [BN])
    result = tl.make_tensor_descriptor(out, [M, N], [N, 1], [BM, BN])
    i = tl.program_id(0) * BM
    for j in tl.range(0, N, BN, num_stages=3):
        tile = left.load([i, j]) * right.load([i, j]) * factors.load([j])[None, :]
        if KIND == "boxes":
            result.store([i, j], tile)
        elif KIND == "turned":
            rows, columns = i + tl.arange(0, BM), j + tl.arange(0, BN)
            place = out + rows[None, :] * N + columns[:, None]
            tl.store(place, tile.T, mask=(rows[None, :] < M) & (columns[:, None] < N))
        else:
            rows, columns = i + tl.arange(0, BM), j + tl.arange(0, BN)
            place = out + rows[:, None] * N + columns[None, :]
            tl.store(place, tile, mask=(rows[:, None] < M) & (columns[None, :] < N))


@pytest.mark.parametrize("kind", ["pointers", "boxes", "turned"])
def test_products_of_elements(execute, by_tma, kind):
    m, n, kernel = 80, 208, fresh(scaled)
    x, y, scales = integers(m, n), integers(m, n, seed=1), integers(n, seed=2)
    arguments, constants = [x, y, scales, np.zeros_like(x), m, n], {"KIND": kind, "BM": 32, "BN": 64}
    for (out,) in execute(kernel, (3,), arguments, constants, outputs=[3]):
        np.testing.assert_array_equal(out, x * y * scales)
    assert mapped(kernel) - {"out"} == ({"x", "y", "scales"} if by_tma or kind == "boxes" else set())


@ptxforge.jit
def softmaxes(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    """Rows in two loops, inside of a loop over blocks of rows."""
    tiles = tl.make_tensor_descriptor(x, [M, N], [N, 1], [BM, BN], "nan")
    for i in range(tl.program_id(0) * BM, M, tl.num_programs(0) * BM):
        largest, total = tl.full((BM,), -1e9, tl.float32), tl.zeros((BM,), tl.float32)
        for j in tl.range(0, N, BN, num_stages=3):
            largest = tl.maximum(largest, tl.max(tiles.load([i, j]), 1))
        for j in tl.range(0, N, BN, num_stages=2):
            if j % 128 == 0:
                total += tl.sum(tiles.load([i, j]) - largest[:, None], 1)
            else:
                total -= tl.sum(tiles.load([i, j]), 1)
        rows = i + tl.arange(0, BM)
        tl.store(out + rows, total, mask=rows < M)


def test_loops_in_a_loop(execute, by_tma):
    m, n, kernel = 90, 256, fresh(softmaxes)
    x = integers(m, n, dtype=np.float32)
    steps = x.reshape(m, n // 64, 64)
    expected = (steps[:, ::2] - x.max(1)[:, None, None]).sum((1, 2)) - steps[:, 1::2].sum((1, 2))
    arguments, constants = [x, np.zeros(m, np.float32), m, n], {"BM": 16, "BN": 64}
    for (out,) in execute(kernel, (2,), arguments, constants, outputs=[1]):
        np.testing.assert_array_equal(out, expected)
    assert mapped(kernel) == ({"x"} if by_tma else set())


@ptxforge.jit
def of_loaded_sizes(x, out, sizes, pitch, BM: tl.constexpr, BN: tl.constexpr):
    """A tensor of which no launcher knows how large it is."""
    rows, columns = tl.load(sizes), tl.load(sizes + 1)
    tiles = tl.make_tensor_descriptor(x, [rows, columns], [pitch, 1], [BM, BN])
    total = tl.zeros((BM, BN), tl.float32)
    for j in tl.range(0, columns, BN, num_stages=3):
        total += tiles.load([0, j])
    tl.store(out + tl.arange(0, BM), tl.sum(total, 1))


@pytest.mark.parametrize("rows, columns", [(64, 96), (50, 77), (0, 64)])
def test_maps_that_the_kernel_makes(execute, by_tma, rows, columns):
    kernel, x = fresh(of_loaded_sizes), integers(64, 96, dtype=np.float32)
    expected = np.zeros(64, np.float32)
    expected[:rows] = x[:rows, :columns].sum(1)
    arguments = [x, np.ones_like(expected), np.array([rows, columns], np.int32), 96]
    for (out,) in execute(kernel, (1,), arguments, {"BM": 64, "BN": 32}, outputs=[1]):
        np.testing.assert_array_equal(out, expected)
    made = "make_tensor_map" in kernel.variants[-1].artifact.asm["gpu"]
    assert made == by_tma


@ptxforge.jit
def differences(x, out, M, N, TURNED: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Tiles that begin in front of the tensor, are carried on, used in a branch, and turned."""
    tiles = tl.make_tensor_descriptor(x, [M, N], [N, 1], [BM, BN])
    earlier, total = tl.zeros((BM, BN), tl.float32), tl.zeros((BM, BN), tl.float32)
    across = tl.zeros((BN, BM), tl.float32)
    for j in tl.range(-16, N, BN, num_stages=4):
        tile = tiles.load([tl.program_id(0) * BM - 3, j]).to(tl.float32)
        if j > 16:
            total += 2 * (tile - earlier)
        if TURNED:
            across += tile.T
        earlier = tile
    result = total + across.T
    place = out + (tl.program_id(0) * BM + tl.arange(0, BM))[:, None] * BN + tl.arange(0, BN)[None, :]
    tl.store(place, result)


@pytest.mark.parametrize("warps", [1, 4])
@pytest.mark.parametrize("turned", [False, True])
def test_tiles_that_are_carried_and_turned(execute, by_tma, turned, warps):
    m, n, bm, bn, kernel = 60, 144, 32, 32, fresh(differences)
    x = integers(m, n)
    wide = np.pad(x.astype(np.float32), [(3, 64 - 3 - m + 3), (16, 16 + 32)])
    steps = [wide[:64, first : first + bn] for first in range(0, 16 + n, bn)]
    total = sum(2 * (steps[k] - steps[k - 1]) for k in range(1, len(steps)) if -16 + k * bn > 16)
    expected = total + (sum(steps) if turned else 0)
    arguments, constants = [x, np.zeros((64, bn), np.float32), m, n], {"TURNED": turned, "BM": bm, "BN": bn}
    for (out,) in execute(kernel, (2,), arguments, constants, outputs=[1], num_warps=warps):
        np.testing.assert_array_equal(out, expected)
    assert mapped(kernel) == ({"x"} if by_tma else set())
