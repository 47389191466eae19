from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxforge.layouts.encodings import Blocked, CTALayout, DotOperand, Mma, Slice
from ptxforge.layouts.panels import Panels
from ptxforge.layouts.shared import Shared
from ptxforge.layouts.syntax import parse_encoding, parse_encoding_prefix
from ptxforge.support.errors import ParseError

from .layout_strategies import distributed, in_shared_memory

PARENT = Blocked((1, 1), (32, 1), (4, 1), (0, 1))


@settings(max_examples=200, deadline=None)
@given(st.one_of(distributed((32, 32), 2), in_shared_memory()))
def test_print_then_parse_is_the_identity(layout):
    assert parse_encoding(str(layout)) == layout
    assert str(parse_encoding(str(layout))) == str(layout)


def test_ctas_round_trip():
    cta = CTALayout((2, 2), (2, 1), (0, 1))
    for layout in (Blocked((1, 1), (32, 1), (4, 1), (0, 1), cta), Shared(8, 1, 8, (1, 0), cta),
                   Panels(64, 8, (0, 1), cta), Mma((2, 0), (2, 2), (16, 8), cta)):
        assert parse_encoding(str(layout)) == layout


def test_aliases():
    names = {PARENT: "#blocked1"}
    assert Slice(1, PARENT).text(names) == "#slice<{dim = 1, parent = #blocked1}>"
    assert parse_encoding("#slice<{dim = 1, parent = #blocked1}>", {"#blocked1": PARENT}) == Slice(1, PARENT)
    assert parse_encoding("#blocked1", {"#blocked1": PARENT}) is PARENT


def test_prefix_of_a_longer_text():
    text = f"tensor<4x4xf32, {Slice(0, PARENT)}> and more"
    start = text.index("#")
    layout, end = parse_encoding_prefix(text, start)
    assert layout == Slice(0, PARENT) and text[end:] == "> and more"


def test_spellings_of_history():
    assert parse_encoding("#ttg.mma<{version = 2, warpsPerCTA = [2, 2]}>") == Mma((2, 0), (2, 2))
    assert parse_encoding("#ttg.swizzled_shared<{vec = 8, perPhase = 1, maxPhase = 8, order = [1, 0]}>") == \
        Shared(8, 1, 8, (1, 0))
    assert parse_encoding("#dot_op<{opIdx = 1, parent = #mma<{warpsPerCTA = [2, 2]}>, kWidth = 4}>") == \
        DotOperand(1, Mma((2, 0), (2, 2)), 4)
    terse = parse_encoding("#blocked<{sizePerThread=[1,2],threadsPerWarp=[4,8],warpsPerCTA=[1,1]}>")
    assert terse.order == (1, 0)


@pytest.mark.parametrize("text, message", [
    ("#bl", "1:1: unknown alias '#bl'"),
    ("blocked", "1:1: expected an encoding such as"),
    ("", "1:1: unexpected the end"),
    ("#foo<{}>", "1:1: unknown encoding '#foo', known are #blocked"),
    ("#shared<{vec=1, perPhase=1, maxPhase=1, order=[0]}> 3", "1:53: unexpected text after the encoding"),
    ("#shared<{\n vec = x}>", "2:8: expected a number, a list or an encoding, found 'x'"),
    ("#shared<{vec = 1, vec = 2}>", "field 'vec' appears twice"),
    ("#shared<{vec = 1}>", "1:1: #shared needs the field 'order'"),
    ("#slice<{dim = 0, parent = 3}>", "the parent of a slice must be a distributed encoding"),
    ("#shared<{vec=3, perPhase=1, maxPhase=1, order=[0]}>", "vec must be a power of two, got 3"),
    ("#shared<{vec=1, perPhase=1, maxPhase=1, order=[0], colour=1}>", "#shared has no field 'colour'"),
    ("#shared<{vec=1, perPhase=1, maxPhase=1, order=[1, 0], hasLeadingOffset=true}>", "are #panels"),
    ("#panels<{swizzle = 128, order = [1, 0]}>", "#panels needs the field 'elementBits'"),
    ("#blocked<{\n sizePerThread = [1] \n foo", "3:5: expected '=', found the end"),
    ("#blocked<{sizePerThread = [1 2]", "expected ',', found '2'"),
    ("#blocked<{sizePerThread = ~}>", "expected a number, a list or an encoding, found '~'"),
])
def test_errors(text, message):
    with pytest.raises(ParseError) as caught:
        parse_encoding(text)
    assert message in str(caught.value)
