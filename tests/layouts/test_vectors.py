"""Lines of a tensor core's results that each warp stores on its own."""

from __future__ import annotations

import pytest

from ptxforge.layouts.banks import lines_in_warp
from ptxforge.layouts.conversion import SharedMemory, Shuffle, plan_conversion
from ptxforge.layouts.encodings import Mma
from ptxforge.layouts.linear import WARP

SHAPE = (128, 256)


@pytest.mark.parametrize("element_bytes", [1, 2, 4])
@pytest.mark.parametrize("vector_bytes", [4, 8, 16])
def test_lanes_side_by_side_have_a_line(vector_bytes, element_bytes):
    mma = Mma((2, 0), (2, 2), (16, 8), tiles_per_warp=(1, 16))
    width = vector_bytes // element_bytes
    layout = lines_in_warp(mma, SHAPE, width, element_bytes)
    linear, before = layout.linear(SHAPE), mma.linear(SHAPE)
    assert linear.is_permutation and linear.columns_of(WARP) == before.columns_of(WARP)
    for lane in range(32):
        row, column = linear.apply(register=0, lane=lane)
        assert all(linear.apply(register=r, lane=lane) == (row, column + r) for r in range(width))
    lanes = min(32, 128 // vector_bytes)
    assert [linear.apply(lane=lane) for lane in range(lanes)] == [(0, width * lane) for lane in range(lanes)]


@pytest.mark.parametrize(("tiles", "element_bytes", "found"), [(1, 2, False), (2, 2, False), (4, 2, True),
                                                              (2, 4, True), (1, 4, False)])  # fmt: skip
def test_half_a_line_is_worth_it(tiles, element_bytes, found):
    mma = Mma((2, 0), (2, 4), (16, 8), tiles_per_warp=(1, tiles))
    assert bool(lines_in_warp(mma, SHAPE, 16 // element_bytes, element_bytes)) == found


def test_copies_are_left_alone():
    """Of 8 rows, the instruction's lower half is a copy."""
    assert lines_in_warp(Mma((2, 0), (1, 2), (16, 8), tiles_per_warp=(1, 8)), (8, 128), 8, 2) is None


@pytest.mark.parametrize("element_bits", [8, 16, 32])
def test_warps_need_not_wait_for_each_other(element_bits):
    mma = Mma((2, 0), (2, 4), (16, 8), tiles_per_warp=(1, 8))
    layout = lines_in_warp(mma, SHAPE, 128 // element_bits, element_bits // 8)
    plan = plan_conversion(mma, layout, SHAPE, element_bits)
    assert isinstance(plan, Shuffle) or (isinstance(plan, SharedMemory) and plan.warp_local)
