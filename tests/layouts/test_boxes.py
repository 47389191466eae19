"""Where TMA puts the elements of a box: beside the addresses that PTX describes, and shared encodings."""

from __future__ import annotations

import itertools

import pytest

from ptxforge.layouts.boxes import box_layout, lies_in_boxes
from ptxforge.layouts.linear import LayoutError
from ptxforge.layouts.panels import Panels
from ptxforge.layouts.shared import Shared

SPANS = [(swizzle, bits) for swizzle in (32, 64, 128) for bits in (8, 16, 32)]


@pytest.mark.parametrize(("swizzle", "bits"), SPANS)
@pytest.mark.parametrize("rows", [1, 4, 32])
def test_every_element_of_a_box(swizzle, bits, rows):
    """Element (r, c) has the address r · row + 16 · (chunk ^ bits 7 and up) + byte."""
    size = bits // 8
    columns = swizzle // size
    layout = box_layout((rows, columns), bits, swizzle)
    for row, column in itertools.product(range(rows), range(columns)):
        address = row * swizzle + column * size
        address ^= (address >> 7) % (swizzle // 16) << 4
        assert layout.apply(offset=address // size) == (row, column)


def test_without_a_swizzle_rows_follow_each_other():
    layout = box_layout((4, 2, 8), 16, 0)
    assert [layout.apply(offset=n) for n in (7, 8, 16, 63)] == [(0, 0, 7), (0, 1, 0), (1, 0, 0), (3, 1, 7)]


def test_extents_are_powers_of_two():
    with pytest.raises(LayoutError):
        box_layout((3, 16), 16, 32)


@pytest.mark.parametrize(("swizzle", "bits"), SPANS)
@pytest.mark.parametrize("panels", [1, 2, 4])
@pytest.mark.parametrize("order", [(1, 0), (0, 1)])
def test_tiles_for_wgmma(swizzle, bits, panels, order):
    columns, rows = swizzle * 8 // bits, 16
    shape = tuple(rows if dim == order[1] else columns * panels for dim in range(2))
    tile = Panels(swizzle, bits, order)
    dims = order[::-1]
    assert lies_in_boxes(tile, shape, bits, (rows, columns), dims, swizzle)
    assert lies_in_boxes(tile, shape, bits, (1, rows, columns), (-1, *dims), swizzle)
    others = {32, 64, 128} - {swizzle}
    assert not any(lies_in_boxes(tile, shape, bits, (rows, columns), dims, other) for other in others)
    assert not lies_in_boxes(tile, shape, bits, (rows, columns), dims, 0)
    if panels > 1:
        assert not lies_in_boxes(tile, shape, bits, (rows, columns * panels), dims, swizzle)
        assert not lies_in_boxes(tile, shape, bits, (rows, columns // 2), dims, swizzle)


def test_tiles_without_a_swizzle():
    rows = Shared(1, 1, 1, (1, 0))
    assert lies_in_boxes(rows, (16, 64), 16, (16, 64), (0, 1), 0)
    assert not lies_in_boxes(rows, (16, 64), 16, (16, 32), (0, 1), 0)  # a box's rows are shorter
    assert not lies_in_boxes(Shared(8, 1, 8, (1, 0)), (16, 64), 16, (16, 64), (0, 1), 0)
    assert lies_in_boxes(Shared(1, 1, 1, (0,)), (256,), 32, (1, 256), (-1, 0), 0)
