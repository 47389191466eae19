"""Reductions that pick one of equal elements, and scans of several values of which some are booleans."""

from __future__ import annotations

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl

ROWS = 4


@ptxforge.jit
def larger(x, y):
    return tl.where(tl.abs(x) > tl.abs(y), x, y)


@ptxforge.jit
def drawn(x, out, DRAWS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Take the least element out of each row, again and again; then what is far from 0."""
    i, j = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    tile = tl.load(x + i[:, None] * COLUMNS + j[None, :])
    far = tl.reduce(tile, 1, larger)
    tl.store(out + i * (DRAWS + 1) + DRAWS, tl.sum(tl.where(tile == far[:, None], 1, 0), 1) > 0)
    for draw in range(DRAWS):
        at = tl.argmin(tile, 1, tie_break_left=False)
        is_taken = j[None, :] == at[:, None]
        tl.store(out + i * (DRAWS + 1) + draw, tl.sum(tl.where(is_taken, tile, 0), 1))
        tile = tl.where(is_taken, 99, tile)


@pytest.mark.parametrize("columns, warps", [(2, 1), (8, 4), (64, 1), (128, 4), (512, 16)])
def test_all_threads_agree_which_of_equal_elements_is_taken(execute, columns, warps):
    x = np.random.default_rng(columns).integers(-2, 3, (ROWS, columns)).astype(np.int32)
    x[:, :2] = [-2, 2]
    draws = min(columns, 5)
    constants = {"DRAWS": draws, "ROWS": ROWS, "COLUMNS": columns}
    expected = np.concatenate([np.sort(x, 1)[:, :draws], np.ones((ROWS, 1))], 1)
    arguments = [x, np.zeros_like(expected, np.int32)]
    for (found,) in execute(drawn, (1,), arguments, constants, [1], num_warps=warps):
        np.testing.assert_array_equal(found, expected)


@ptxforge.jit
def both(number, flag, other, mark):
    return number + other, flag | mark


@ptxforge.jit
def running(x, out, BLOCK: tl.constexpr, TURNED: tl.constexpr):
    i = tl.arange(0, BLOCK)
    number = tl.load(x + i)
    sums, found = tl.associative_scan((number.to(tl.int64), number > 7), 0, both, reverse=TURNED)
    tl.store(out + i, sums.to(tl.int32))
    tl.store(out + BLOCK + i, found.to(tl.int32))


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("block, warps", [(1, 1), (4, 4), (64, 1), (256, 4)])
def test_numbers_and_booleans_are_scanned_together(execute, block, warps, turned):
    x = np.random.default_rng(block).integers(-9, 10, block).astype(np.int32)
    step = -1 if turned else 1
    expected = [np.cumsum(x[::step])[::step], np.logical_or.accumulate((x > 7)[::step])[::step]]
    arguments, constants = [x, np.zeros((2, block), np.int32)], {"BLOCK": block, "TURNED": turned}
    for (found,) in execute(running, (1,), arguments, constants, [1], num_warps=warps):
        np.testing.assert_array_equal(found, expected)
