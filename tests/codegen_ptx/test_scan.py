"""Scans across warps, by lanes and one by one: both give what numpy gives."""

from __future__ import annotations

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl


@ptxforge.jit
def last_greatest(a, a_place, b, b_place):
    is_first = (a > b) | ((a == b) & (a_place > b_place))
    return tl.where(is_first, a, b), tl.where(is_first, a_place, b_place)


def greatest(x, out, at, N: tl.constexpr, M: tl.constexpr, AXIS: tl.constexpr, REVERSE: tl.constexpr):
    i = tl.arange(0, N)[:, None] * M + tl.arange(0, M)[None, :]
    along = tl.arange(0, M)[None, :] if AXIS else tl.arange(0, N)[:, None]
    place = tl.broadcast_to(along.to(tl.int64), [N, M])
    found, where = tl.associative_scan((tl.load(x + i), place), AXIS, last_greatest, reverse=REVERSE)
    tl.store(out + i, found)
    tl.store(at + i, where)


def sums(x, out, N: tl.constexpr, M: tl.constexpr, AXIS: tl.constexpr, REVERSE: tl.constexpr):
    i = tl.arange(0, N)[:, None] * M + tl.arange(0, M)[None, :]
    tl.store(out + i, tl.cumsum(tl.load(x + i), AXIS, reverse=REVERSE))


def _running_greatest(row: np.ndarray) -> tuple[list, list]:
    found, places, best = [], [], 0
    for place, value in enumerate(row):
        best = place if value >= row[best] else best
        found.append(row[best])
        places.append(best)
    return found, places


def _expected(x: np.ndarray, axis: int, reverse: bool) -> tuple[np.ndarray, np.ndarray]:
    """The greatest so far; of equal ones the place with the larger number."""
    found, places = np.empty_like(x), np.empty(x.shape, np.int64)
    for row, values, numbers in zip(*(np.moveaxis(a, axis, -1) for a in (x, found, places)), strict=True):
        if reverse:  # of equal ones the first that comes has the larger number
            best = len(row) - 1
            for place in range(best, -1, -1):
                best = place if row[place] > row[best] else best
                values[place], numbers[place] = row[best], best
        else:
            values[:], numbers[:] = _running_greatest(row)
    return found, places


SHAPES = [
    (1, 1024, 1, 8, True), (1, 512, 1, 16, True), (256, 4, 0, 8, True), (512, 1, 0, 4, False),
    (2, 512, 1, 8, False), (16, 64, 1, 8, False), (4, 64, 1, 4, False),
]  # fmt: skip


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("rows, columns, axis, warps, by_lanes", SHAPES)
def test_scans_across_warps(rows, columns, axis, warps, by_lanes, reverse):
    x = np.random.default_rng(rows + warps).integers(-50, 50, (rows, columns)).astype(np.float32)
    out, places = np.zeros_like(x), np.zeros(x.shape, np.int64)
    sizes = {"N": rows, "M": columns, "AXIS": axis, "REVERSE": reverse}
    kernel = ptxforge.compile(greatest)
    kernel[(1,)](x, out, places, **sizes, num_warps=warps)
    found, numbers = _expected(x, axis, reverse)
    np.testing.assert_array_equal(out, found)
    np.testing.assert_array_equal(places, numbers)
    assert ("by_lanes" in kernel.asm["gpu"]) == by_lanes


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("rows, columns, axis, warps", [(1, 1024, 1, 8), (1, 2048, 1, 32), (1024, 1, 0, 4)])
def test_sums_across_warps(rows, columns, axis, warps, reverse):
    x = np.random.default_rng(warps).integers(-9, 9, (rows, columns)).astype(np.float32)
    out = np.zeros_like(x)
    kernel = ptxforge.compile(sums)
    kernel[(1,)](x, out, N=rows, M=columns, AXIS=axis, REVERSE=reverse, num_warps=warps)
    turned = np.flip(x, axis) if reverse else x
    total = np.cumsum(turned, axis)
    np.testing.assert_array_equal(out, np.flip(total, axis) if reverse else total)
    assert "by_lanes" not in kernel.asm["gpu"]


def test_few_totals_are_combined_one_by_one():
    """Of sixteen warps each lane reads one total per operand in place of sixteen."""
    signature = {"x": "*fp32:16", "out": "*fp32:16", "at": "*i64:16"}
    counts = {}
    for warps in (4, 16):
        constants = {"N": 1, "M": warps * 32, "AXIS": 1, "REVERSE": False}
        made = ptxforge.compile(greatest, signature, constants, "sm_90a", num_warps=warps)
        counts[warps] = made.ptx.count("ld.shared")
    assert counts == {4: 4 * 2, 16: 2}
