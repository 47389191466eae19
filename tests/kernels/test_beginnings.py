"""Tiles that begin in front of what a pointer leads to: TMA would read zeros there, so it copies only those
of which the program, its author, or a launch says that they do not."""

from __future__ import annotations

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge import interpreter
from ptxforge.driver.device_array import DeviceArray
from ptxforge.ir.parser import parse_function
from ptxforge.support.errors import ArgumentError

TILE = {"BM": 64, "BN": 64, "BK": 32}
SIDE = 64


class Rest(DeviceArray):
    """What a larger array has from a row on: in front of its memory lies more."""

    def __init__(self, whole: DeviceArray, first: int):
        rows, *others = whole.shape
        self.owner, self.dtype, self.shape = whole.owner, whole.dtype, (rows - first, *others)
        self._address, self._free = whole.data_ptr() + first * whole.nbytes // rows, whole._free


@ptxforge.jit
def product(x, y, out, firsts, first, depth, KIND: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
            BK: tl.constexpr):  # fmt: skip
    """out = x[row :] @ y[begin :] of some row and step."""
    row, begin = 0, 0
    if KIND == "loaded" or KIND == "assumed":
        row = tl.load(firsts) * 16
    if KIND == "assumed":
        tl.assume(row >= 0)
    if KIND == "unsigned":
        row = tl.load(firsts).to(tl.uint8).to(tl.int32) * 16
    if KIND == "largest":
        row = tl.maximum(tl.load(firsts), 0)
    if KIND == "asked" or KIND == "twice":
        begin = first * BK
    rows, columns, k = row + tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(begin, depth, BK):
        left = tl.load(x + rows[:, None] * 64 + tl.arange(0, BK)[None, :])
        total = tl.dot(left, tl.load(y + (start + k)[:, None] * BN + columns[None, :]), total)
        if KIND == "twice":
            total = tl.dot(left, tl.load(y + k[:, None] * BN + columns[None, :]), total)
    tl.store(out + tl.arange(0, BM)[:, None] * BN + columns[None, :], total)


def integers(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(-3, 4, shape).astype(np.float16)


def launched(device, kind: str, row: int, first: int) -> tuple[np.ndarray, np.ndarray, set[str]]:
    """What the kernel finds, what numpy does, and which parameters the maps of the last variant are of."""
    x, y, firsts = integers(4 * SIDE, SIDE), integers(4 * SIDE, SIDE), np.array([row], np.int32)
    wholes = [ptxforge.to_device(array, device) for array in (x, y)]
    parts = [Rest(whole, 2 * SIDE) for whole in wholes]
    out = ptxforge.to_device(np.ones((SIDE, SIDE), np.float32), device)
    product[(1,)](*parts, out, ptxforge.to_device(firsts, device), first, SIDE, KIND=kind, **TILE)
    named = 16 * row if kind in ("loaded", "assumed", "unsigned") else row if kind == "largest" else 0
    left = x[2 * SIDE + named :][:SIDE, :32].astype(np.float32)
    begin = 32 * first if kind in ("asked", "twice") else 0
    steps = [y[2 * SIDE + start :][:32] for start in range(begin, SIDE, 32)]
    steps += [y[2 * SIDE :][:32]] * (len(steps) if kind == "twice" else 0)
    expected = sum(left @ step.astype(np.float32) for step in steps)
    artifact = product.variants[-1].artifact
    return out.numpy(), expected, {recipe.base for recipe in artifact.tensor_maps}


@pytest.mark.parametrize("kind, row, first, maps", [
    ("loaded", -3, 0, {"y"}), ("loaded", 2, 0, {"y"}), ("assumed", 2, 0, {"x", "y"}),
    ("unsigned", 3, 0, {"x", "y"}), ("largest", 5, 0, {"x", "y"}), ("asked", 0, 1, {"x", "y"}),
    ("asked", 0, -1, set()), ("twice", 0, -2, set()), ("twice", 0, 1, {"x", "y"}),
])  # fmt: skip
def test_memory_in_front_of_a_pointer(devices, kind, row, first, maps):
    for device in devices:
        found, expected, mapped = launched(device, kind, row, first)
        np.testing.assert_array_equal(found, expected)
        assert mapped == maps


def compiled(kind: str):
    signature = {"x": "*fp16:16", "y": "*fp16:16", "out": "*fp32:16", "firsts": "*i32", "first": "i32"}
    return product.compile(signature | {"depth": "i32"}, TILE | {"KIND": kind}, target="sm_90a")


def test_why_threads_copy():
    remarks = [remark.message for remark in compiled("loaded").remarks if remark.kind == "not-by-tma"]
    assert len(remarks) == 1 and "may begin in front of" in remarks[0] and "tl.assume" in remarks[0]
    assert not [remark for remark in compiled("assumed").remarks if remark.kind == "not-by-tma"]


def test_what_launches_ask():
    """Loads of one tensor share a map, and what is asked for it."""
    for kind, count in (("asked", 2), ("twice", 2), ("assumed", 2)):
        asked = {recipe.base: recipe.nonnegative for recipe in compiled(kind).tensor_maps}
        assert asked == {"x": (), "y": () if kind == "assumed" else ("first",)}
        assert len(compiled(kind).tensor_maps) == count


def test_the_gpu_ir_says_what_was_promised():
    assert "nonnegative" in compiled("assumed").asm["gpu"]


def test_the_interpreter_takes_no_number_that_a_launch_refuses():
    function = parse_function(compiled("asked").asm["gpu"])
    whole, out = integers(SIDE, SIDE), np.zeros((SIDE, SIDE), np.float32)
    arguments = {"x": whole, "y": whole, "out": out, "firsts": np.zeros(1, np.int32), "depth": SIDE}
    interpreter.run(function, (1,), arguments | {"first": 1})
    np.testing.assert_array_equal(out, whole[:, :32].astype(np.float32) @ whole[32:].astype(np.float32))
    with pytest.raises(ArgumentError, match="is negative"):
        interpreter.run(function, (1,), arguments | {"first": -1})


@ptxforge.jit
def named_steps(x, y, out, steps, count, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """out = Σ x[:, k] @ y[k] of the steps k in a list: a loop that loads a scalar beside its tiles."""
    rows, columns, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for number in range(count):
        first = tl.load(steps + number) * BK
        tl.assume(first >= 0)
        left = tl.load(x + rows[:, None] * 64 + (first + k)[None, :])
        total = tl.dot(left, tl.load(y + (first + k)[:, None] * BN + columns[None, :]), total)
    tl.store(out + rows[:, None] * BN + columns[None, :], total)


def test_scalars_that_say_which_tile(execute):
    x, y, steps = integers(SIDE, SIDE), integers(SIDE, SIDE), np.array([1, 0, 1], np.int32)
    parts = [x[:, 32 * k :][:, :32].astype(np.float32) @ y[32 * k :][:32].astype(np.float32) for k in steps]
    arguments = [x, y, np.ones((SIDE, SIDE), np.float32), steps, len(steps)]
    for (out,) in execute(named_steps, (1,), arguments, TILE, outputs=[2]):
        np.testing.assert_array_equal(out, sum(parts))
    assert {recipe.base for recipe in named_steps.variants[-1].artifact.tensor_maps} == {"x", "y"}
