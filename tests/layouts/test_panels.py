"""Tiles in panels, beside the addresses that the hardware computes."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxforge.layouts.banks import offsets_of, shared_access
from ptxforge.layouts.encodings import Blocked, CTALayout, Mma
from ptxforge.layouts.linear import LayoutError
from ptxforge.layouts.mma_atoms import plan_stmatrix
from ptxforge.layouts.panels import SWIZZLES, Panels
from ptxforge.layouts.show import show, svg
from ptxforge.layouts.syntax import parse_encoding

from .layout_strategies import in_shared_memory, panels

SHAPES = st.tuples(*[st.integers(0, 5).map(lambda bit: 1 << bit)] * 3)


@settings(max_examples=60, deadline=None)
@given(panels(3), SHAPES)
def test_every_element_by_its_address(layout, shape):
    """Panels follow each other, in them rows; bits from 4 on of an address are xored with bits from 7 on, as
    many as count the chunks of a row."""
    fastest, second, slowest = layout.order
    size, linear = layout.element_bits // 8, layout.linear(shape)
    width = min(shape[fastest], layout.swizzle // size)
    for index in itertools.product(*map(range, shape)):
        panel, column = divmod(index[fastest], width)
        row = (index[slowest] * (shape[fastest] // width) + panel) * shape[second] + index[second]
        address = (row * width + column) * size
        inside = address % (shape[second] * width * size)
        address ^= (inside >> 7) % (layout.swizzle // 16) << 4
        assert linear.apply(offset=address // size) == index


def test_two_panels_of_128_bytes():
    """64 columns of f16 fill the banks once; the next 64 come after all rows."""
    linear = Panels(128, 16, (1, 0)).linear((16, 128))
    assert linear.apply(offset=64) == (1, 8)
    assert linear.apply(offset=16 * 64) == (0, 64)


def test_equal_ones_are_one():
    layout = Panels(64, 8, [0, 1])
    assert layout is Panels(64, 8, (0, 1), CTALayout.default(2)) is parse_encoding(str(layout))
    assert str(layout) == "#panels<{swizzle = 64, elementBits = 8, order = [0, 1]}>"


@given(in_shared_memory(3), SHAPES, st.permutations(range(3)))
def test_a_transposed_tile_lies_where_it_was(layout, shape, order):
    turned = layout.permuted(tuple(order))
    assert type(turned) is type(layout) and turned.permuted(tuple(map(order.index, range(3)))) is layout
    before, after = layout.linear(shape), turned.linear(tuple(shape[d] for d in order))
    for offset in range(before.in_size("offset")):
        index = before.apply(offset=offset)
        assert after.apply(offset=offset) == tuple(index[d] for d in order)


def test_ctas_have_parts_of_a_tile():
    cta = CTALayout((2, 1), (2, 1), (1, 0))
    linear, part = Panels(32, 16, (1, 0), cta).linear((32, 16)), Panels(32, 16, (1, 0)).linear((16, 16))
    for offset, block in itertools.product(range(256), range(2)):
        row, column = part.apply(offset=offset)
        assert linear.apply(offset=offset, block=block) == (row + 16 * block, column)


@pytest.mark.parametrize("swizzle", SWIZZLES)
def test_tiles_begin_where_the_permutation_does(swizzle):
    layout = Panels(swizzle, 16, (1, 0))
    assert layout.alignment == 8 * swizzle
    rows, columns = layout.pattern
    assert rows * columns * 16 // 8 == layout.alignment


@pytest.mark.parametrize("bits", [8, 16, 32])
@pytest.mark.parametrize("order", [(1, 0), (0, 1)])
@pytest.mark.parametrize("swizzle", SWIZZLES)
def test_chunks_have_no_conflicts(swizzle, order, bits):
    """Eight lanes, which are served together, have the same chunk of eight rows."""
    layout, vec = Panels(swizzle, bits, order), 128 // bits
    shape, size, threads = [0, 0], [1, 1], [1, 1]
    shape[order[0]], shape[order[1]] = 4 * layout.width, 32
    size[order[0]], threads[order[1]] = vec, 32
    lanes = Blocked(size, threads, (1, 1), order[::-1])
    access = shared_access(offsets_of(lanes.linear(shape), layout.linear(shape)), bits)
    assert (access.vec, access.degree) == (vec, 1)


@pytest.mark.parametrize("swizzle", SWIZZLES)
def test_accumulators_are_written_without_conflicts(swizzle):
    layout, shape = Panels(swizzle, 16, (1, 0)), (64, 64)
    tile = Mma((3, 0), (4, 1), (16, 64, 16)).linear(shape)
    plan = plan_stmatrix(offsets_of(tile, layout.linear(shape)), 16)
    assert (plan.count, plan.degree) == (4, 1)


PICTURE = """\
[[[(0:0),(0:1),(0:2),(0:3)]
[  (1:0),(1:1),(1:2),(1:3)]
[  (2:0),(2:1),(2:2),(2:3)]
[  (3:0),(3:1),(3:2),(3:3)]
[  (4:2),(4:3),(4:0),(4:1)]
[  (5:2),(5:3),(5:0),(5:1)]
[  (6:2),(6:3),(6:0),(6:1)]
[  (7:2),(7:3),(7:0),(7:1)]]
[[ (0:4),(0:5),(0:6),(0:7)]
[  (1:4),(1:5),(1:6),(1:7)]
[  (2:4),(2:5),(2:6),(2:7)]
[  (3:4),(3:5),(3:6),(3:7)]
[  (4:6),(4:7),(4:4),(4:5)]
[  (5:6),(5:7),(5:4),(5:5)]
[  (6:6),(6:7),(6:4),(6:5)]
[  (7:6),(7:7),(7:4),(7:5)]]]"""


def test_picture():
    layout = Panels(32, 64, (1, 0))
    assert show(layout, (8, 8)) == PICTURE
    assert svg(layout, (8, 8)).count('x="1" ') == 16  # rows of memory


@pytest.mark.parametrize(("make", "message"), [
    (lambda: Panels(16, 16, (1, 0)), "swizzle must be 32, 64 or 128 bytes, got 16"),
    (lambda: Panels(128, 1, (1, 0)), "elementBits must be 8, 16, 32 or 64, got 1"),
    (lambda: Panels(128, 16, (0,)), "got a tile of one dimension"),
    (lambda: Panels(128, 16, (1, 1)), "order must be a permutation of 0..1"),
])  # fmt: skip
def test_errors(make, message):
    with pytest.raises(LayoutError, match=message):
        make()
