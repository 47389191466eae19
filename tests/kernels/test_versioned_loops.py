"""Loops that store what they might load: loads run ahead where a program finds that they do not meet."""

from __future__ import annotations

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.compiler import compile_function
from ptxforge.emulator.device import EmulatorDevice

SIDE, TRIPS = 32, 6
TILE = SIDE * SIDE
ROOM = 4 * TRIPS * TILE
PRODUCTS = SIDE**3 // (16 * 8 * 16) // 4
"""Instructions for one product of tiles in 4 warps."""


@ptxforge.jit
def chain(a, b, out, at_a, at_b, at_out, trips, step, row, CARRIED: tl.constexpr, STAGES: tl.constexpr):
    """Each step stores the signs of the sums so far, and adds to them a product of two tiles."""
    i = tl.arange(0, 32)
    within = i[:, None] * row + i[None, :]
    a, b, out = a + at_a, b + at_b, out + at_out
    sums = tl.zeros((32, 32), tl.float32)
    left = a + within
    for k in tl.range(0, trips, num_stages=STAGES):
        tl.store(out + k * step + within, tl.where(sums > 0, 1.0, -1.0).to(tl.float16))
        x = tl.load(left if CARRIED else a + k * step + within)
        y = tl.load(b + k * step + within)
        sums = tl.dot(x, y, sums)
        left += step
    tl.store(out + trips * step + within, tl.where(sums > 0, 1.0, -1.0).to(tl.float16))


def expected(memory, a, b, out, step, row):
    """The same, one step after the other, in numpy."""
    memory = memory.copy()
    within = np.arange(SIDE)[:, None] * row + np.arange(SIDE)
    sums = np.zeros((SIDE, SIDE), np.float32)
    for k in range(TRIPS + 1):
        memory[out + k * step + within] = np.where(sums > 0, 1, -1)
        if k < TRIPS:
            sums += memory[a + k * step + within].astype(np.float32) @ memory[b + k * step + within]
    return memory


CASES = {
    "apart": (0, ROOM // 4, ROOM // 2, TILE, SIDE, True),
    "in front": (ROOM // 2, 3 * ROOM // 4, 0, TILE, SIDE, True),
    "one step behind": (0, ROOM // 2, TILE, TILE, SIDE, False),
    "two steps behind": (ROOM // 2, 0, 2 * TILE, TILE, SIDE, False),
    "backwards, apart": (ROOM - TILE, ROOM // 2 - TILE, ROOM // 4 - TILE, -TILE // 2, SIDE, True),
    "backwards, one step": (ROOM - TILE, ROOM // 2, ROOM - 2 * TILE, -TILE, SIDE, False),
    "columns of one matrix": (0, 0, SIDE, 2 * SIDE, 16 * SIDE, False),
}


@pytest.mark.parametrize("carried", [False, True], ids=["computed", "carried"])
@pytest.mark.parametrize("case", CASES)
def test_what_a_step_stores_later_ones_load(devices, case, carried):
    a, b, out, step, row, are_apart = CASES[case]
    memory = np.random.default_rng(3).choice([-1.0, 1.0], ROOM).astype(np.float16)
    wanted = expected(memory, a, b, out, step, row)
    counting = EmulatorDevice(target="sm_90", counters=True)
    for device in (*devices, counting):
        placed = ptxforge.to_device(memory, device)
        constants = {"CARRIED": carried, "STAGES": None}
        chain[(1,)](
            placed, placed, placed, a, b, out, TRIPS, step, row, **constants, num_warps=4, num_stages=3
        )
        np.testing.assert_array_equal(placed.numpy(), wanted)
    copies = [line for line in counting.last_report.lines if line.text.startswith("cp.async.c")]
    assert copies and any(line.instructions for line in copies) == are_apart


@ptxforge.jit
def found(a, rows, out, trips, HOW: tl.constexpr):
    """Steps whose memory is not known in front of the loop, or is the same for sure."""
    i = tl.arange(0, 32)
    within = i[:, None] * 32 + i[None, :]
    sums = tl.zeros((32, 32), tl.float32)
    for k in range(trips):
        place = tl.load(rows + k) if HOW == "loaded" else k * k if HOW == "squared" else k % 3
        target = a if HOW == "same" else out
        tl.store(target + k * 1024 + within, sums.to(tl.float16))
        x = tl.load(a + place * 1024 + within)
        sums = tl.dot(x, x, sums)
    tl.store(out + within, sums.to(tl.float16))


@pytest.mark.parametrize("how", ["loaded", "squared", "wrapped", "same"])
def test_loops_of_one_version(how):
    signature = {"a": "*fp16:16", "rows": "*i32:16", "out": "*fp16:16", "trips": "i32"}
    ptx = compile_function(found, signature, {"HOW": how}, "sm_90", num_warps=4).ptx
    assert "cp.async" not in ptx and ptx.count("mma.sync") == PRODUCTS


@pytest.mark.parametrize(
    ("stages", "kernel_stages", "versions"), [(None, 3, 2), (None, 1, 1), (3, 3, 1), (1, 3, 1)]
)
def test_who_asks_gets_one_version(stages, kernel_stages, versions):
    """An explicit ``num_stages`` is a promise, and 1 asks for nothing to run ahead."""
    numbers = ("at_a", "at_b", "at_out", "trips", "step", "row")
    signature = dict.fromkeys(("a", "b", "out"), "*fp16:16") | dict.fromkeys(numbers, "i32:16")
    constants = {"CARRIED": False, "STAGES": stages}
    ptx = compile_function(chain, signature, constants, "sm_90", num_warps=4, num_stages=kernel_stages).ptx
    assert ptx.count("mma.sync") == versions * PRODUCTS
    assert ("cp.async.c" in ptx) == (stages == 3 or versions == 2)
