"""What neighbouring elements share (a row's number, what is gathered by it) is computed and loaded once."""

from __future__ import annotations

import re

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl

ROWS, WIDTH = 16, 64


@ptxforge.jit
def gather(index, rows, out, WIDTH: tl.constexpr, COUNT: tl.constexpr):
    i = tl.program_id(0) * COUNT + tl.arange(0, COUNT)
    row = tl.load(index + i // WIDTH)
    tl.store(out + i, tl.load(rows + row * WIDTH + i % WIDTH) * 2)


@ptxforge.jit
def volatile(index, out, COUNT: tl.constexpr):
    i = tl.arange(0, COUNT)
    tl.store(out + i, tl.load(index + i // 4, volatile=True))


def test_a_row_is_gathered_in_vectors():
    signature = {"index": "*i64:16", "rows": "*fp32:16", "out": "*fp32:16"}
    ptx = gather.compile(signature, {"WIDTH": WIDTH, "COUNT": 1024}, target="sm_90a", num_warps=4).asm["ptx"]
    assert len(re.findall(r"ld\.global\.b64", ptx)) == 2  # for 8 elements, 4 and 4 of which are neighbours
    assert len(re.findall(r"ld\.global\.v4\.b32", ptx)) == 2 and ptx.count("ld.global") == 4
    assert ptx.count("shr.") <= 6


@pytest.mark.parametrize("width", [1, 2, WIDTH, 48])
def test_what_is_gathered(devices, width):
    rng = np.random.default_rng(0)
    index = rng.integers(0, ROWS, 1024 // width + 1)
    rows = rng.standard_normal((ROWS, width)).astype(np.float32)
    i = np.arange(1024)
    for device in devices:
        placed = [ptxforge.to_device(a, device) for a in (index, rows.ravel(), np.zeros(1024, np.float32))]
        gather[1, 1, 1](*placed, WIDTH=width, COUNT=1024)
        np.testing.assert_array_equal(placed[-1].numpy(), rows[index[i // width], i % width] * 2)


@ptxforge.jit
def stacked(x, out, parts, size, part, COUNT: tl.constexpr):
    """One of the ``parts`` of each row, ``size`` elements of it."""
    i = tl.program_id(0) * COUNT + tl.arange(0, COUNT)
    place = (i // size) * parts * size + part * size + i % size
    tl.store(out + place, tl.load(x + i))


def test_rows_of_any_width_that_vectors_divide_are_copied_in_vectors():
    signature = {"x": "*fp32:16", "out": "*fp32:16", "parts": "i32", "size": "i32:16", "part": "i32"}
    ptx = stacked.compile(signature, {"COUNT": 1024}, target="sm_90a", num_warps=4).asm["ptx"]
    assert ptx.count("st.global") == len(re.findall(r"st\.global\.v4\.b32", ptx)) == 2
    assert ptx.count("div.") + ptx.count("rem.") <= 4  # one quotient and one remainder for 4 neighbours


@pytest.mark.parametrize("size", [16, 48, 256, 5])
def test_what_is_stacked(devices, size):
    x = np.arange(1024, dtype=np.float32)
    rows = -(-1024 // size)
    wanted = np.zeros((rows, 3, size), np.float32)
    wanted[:, 1] = np.resize(x, rows * size).reshape(rows, size)
    wanted[-1, 1, 1024 - (rows - 1) * size :] = 0
    for device in devices:
        placed = [ptxforge.to_device(a, device) for a in (x, np.zeros(wanted.size, np.float32))]
        stacked[1, 1, 1](*placed, 3, size, 1, COUNT=1024)
        np.testing.assert_array_equal(placed[-1].numpy(), wanted.ravel())


def test_volatile_loads_stay_apart(emulator):
    ptx = volatile.compile({"index": "*i32:16", "out": "*i32:16"}, {"COUNT": 512}, target="sm_90a").asm["ptx"]
    assert "ld.volatile" in ptx


BOUNDS = {"ogt": [0.0, 1.5, -3.0, float("inf")], "olt": [1.5, -3.0, float("-inf")]}
KEPT = {"ogt": [-0.0], "olt": [0.0, -0.0]}


@ptxforge.jit
def limited(x, out, BOUND: tl.constexpr, IS_MAXIMUM: tl.constexpr, COUNT: tl.constexpr):
    i = tl.arange(0, COUNT)
    value = tl.load(x + i)
    if IS_MAXIMUM:
        mask = value > BOUND
    else:
        mask = value < BOUND
    mask |= value != value
    tl.store(out + i, tl.where(mask, value, BOUND))


@pytest.mark.parametrize(
    ("order", "bound"), [(o, b) for table in (BOUNDS, KEPT) for o, bounds in table.items() for b in bounds]
)
def test_a_selection_that_is_an_extremum(devices, order, bound):
    """Exactly: zeros have their signs, NaN stay NaN."""
    x = np.resize(np.array([0, -0.0, 1, -1, 1.5, 2, -3, -4, np.inf, -np.inf, np.nan], np.float32), 128)
    with np.errstate(invalid="ignore"):
        test = x > bound if order == "ogt" else x < bound
    wanted = np.where(test | np.isnan(x), x, np.float32(bound))
    constants = {"BOUND": bound, "IS_MAXIMUM": order == "ogt", "COUNT": 128}
    for device in devices:
        placed = [ptxforge.to_device(a, device) for a in (x, np.zeros_like(x))]
        limited[1, 1, 1](*placed, **constants)
        got = placed[-1].numpy()
        np.testing.assert_array_equal(got, wanted)
        np.testing.assert_array_equal(np.signbit(got[~np.isnan(x)]), np.signbit(wanted[~np.isnan(x)]))
    ptx = limited.compile({"x": "*fp32:16", "out": "*fp32:16"}, constants, target="sm_90a").asm["ptx"]
    is_one = bool(re.search(r"(max|min)\.NaN\.f32", ptx))
    assert is_one == (str(bound) in map(str, BOUNDS[order]))
