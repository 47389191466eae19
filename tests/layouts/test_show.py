from __future__ import annotations

from xml.etree import ElementTree

from ptxforge.layouts.encodings import Blocked, CTALayout, Mma, Slice
from ptxforge.layouts.shared import Shared
from ptxforge.layouts.show import describe, holders_of, show, show_hardware, show_threads, svg

WARP = Blocked((1, 2), (2, 2), (2, 1), (1, 0))


def test_ranks():
    assert show(Blocked((2,), (2,), (1,), (0,)), (4,)) == "[T0:0, T0:1, T1:0, T1:1]"
    assert show(Blocked((1, 1, 1), (2, 2, 1), (1, 1, 1), (2, 1, 0)), (2, 2, 2), align=True) == """\
[[[T0:0, T0:1]
[  T1:0, T1:1]]
[[ T2:0, T2:1]
[  T3:0, T3:1]]]"""


def test_memory_of_a_column_major_tile():
    assert show(Shared(1, 1, 1, (0, 1)), (2, 4)) == """\
[[(0:0),(1:0)]
[ (0:1),(1:1)]
[ (0:2),(1:2)]
[ (0:3),(1:3)]]"""
    assert show(Shared(1, 1, 1, (0,)), (4,)) == "[(0),(1),(2),(3)]"


def test_hardware_view():
    assert show_hardware(WARP, (4, 4)) == """\
Warp 0:
  T0: (0,0), (0,1)
  T1: (0,2), (0,3)
  T2: (1,0), (1,1)
  T3: (1,2), (1,3)
Warp 1:
  T4: (2,0), (2,1)
  T5: (2,2), (2,3)
  T6: (3,0), (3,1)
  T7: (3,2), (3,3)"""


def test_views_agree():
    layout, shape = Mma((2, 0), (2, 1)), (32, 16)
    holders = holders_of(layout, shape)
    text = show(layout, shape)
    rows = [row.strip("[] ").split(", ") for row in text.splitlines()]
    for (i, j), where in holders.items():
        assert rows[i][j] == "|".join(f"T{thread}:{register}" for thread, register in where)
    hardware = show_hardware(layout, shape).splitlines()
    thread_9 = next(line for line in hardware if line.startswith("  T9:"))
    assert thread_9 == "  T9: (2,2), (2,3), (10,2), (10,3), (2,10), (2,11), (10,10), (10,11)"


def test_parts_of_ctas():
    layout = Blocked((1, 1), (2, 2), (1, 1), (1, 0), CTALayout((2, 1), (2, 1), (1, 0)))
    assert show(layout, (4, 2), cta=0) == show(layout, (4, 2), cta=1) == "[[T0:0, T1:0]\n[ T2:0, T3:0]]"
    assert show_hardware(layout, (4, 2), cta=1).splitlines()[1] == "  T0: (2,0)"


def test_threads_of_a_slice():
    assert show_threads(Slice(0, WARP), (4,)) == "[ 0 0 1 1 ]"


def test_svg_is_well_formed():
    for layout in (WARP, Shared(2, 1, 4, (1, 0))):
        root = ElementTree.fromstring(svg(layout, (4, 8)))
        texts = [node.text for node in root if node.tag.endswith("text")]
        assert texts[0] == f"{layout} 4x8"
        assert len(texts) == 1 + 4 * 8
    assert "T0:0+" in svg(WARP, (2, 4))


def test_describe():
    text = describe(Shared(1, 1, 2, (1, 0)).linear((2, 2)))
    assert text == "offset bit 0 -> (0, 1)\noffset bit 1 -> (1, 1)"
