"""mbarriers and copies by TMA: text, verifier, and what the interpreter makes of them."""

from __future__ import annotations

import numpy as np
import pytest

from ptxforge.interpreter import run
from ptxforge.ir.parser import parse_function
from ptxforge.ir.printer import print_function
from ptxforge.ir.verifier import verify
from ptxforge.support.errors import InterpreterError, VerificationError
from tests.ops import copies


def parsed(*changes: tuple[str, str]):
    text = copies.TEXT
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    function = parse_function(text)
    verify(function)
    return function


def copied(function) -> np.ndarray:
    x, out = np.arange(1, 49).astype(np.float16), np.zeros((16, 16), np.float16)
    run(function, 1, [x, 8, out])
    return out


def test_who_waits_and_who_arrives_at_an_mbarrier():
    """Copies bring bytes, but a phase does not end before somebody has arrived; no bytes come for nobody."""
    more = "  %more = local_alloc : () -> memdesc<1xmbarrier, #bar, mutable>\n"
    with pytest.raises(VerificationError, match="arrives at the mbarrier"):
        parsed((WAIT, more + OTHER.replace("%bar", "%more") + WAIT))
    with pytest.raises(VerificationError, match="invariant 13.*nobody waits for the bytes"):
        parsed((EXPECT, more + EXPECT.replace("%bar", "%more")))
    with pytest.raises(VerificationError, match="to which nothing is added"):
        parsed((EXPECT, ""), (COPY, ""))
    parsed((EXPECT, "  barrier_arrive %bar\n"), (COPY, ""))


BAR, TILE = "memdesc<1xmbarrier, #bar, mutable>", "memdesc<16x16xf16, #a, mutable>"
EXPECT = "  %tile = barrier_expect %bar {bytes = 512} : token<tma>\n"
COPY = f"""\
  tensor_load %map, %tile, %buffer, %minus, %one, %yes {{tile_dims = [0, 1], is_flagged = true}} : \
(tensormap, token<tma>, {TILE}, i32, i32, i1)
"""
WAIT = "  %there = barrier_wait %bar, %zero : token<tma>\n"
READ = f"  %read = local_load %bar : ({BAR}) -> tensor<1xmbarrier, #slice<{{dim = 1, parent = #b}}>>\n"


@pytest.mark.parametrize(("changes", "message"), [
    ([("barrier_init %bars", "barrier_init %buffers")], "'barriers' has type memdesc<2x16x16xf16"),
    ([(COPY, COPY + COPY.replace("%tile", "%bar").replace("token<tma>", BAR))], "expected token<tma>"),
    ([(WAIT, READ + WAIT)], "mbarriers lie in shared memory"),
], ids=["a tile is made an mbarrier", "a copy completes in no phase", "an mbarrier is read"])  # fmt: skip
def test_mbarriers_are_no_tiles(changes, message):
    with pytest.raises(VerificationError, match=message):
        parsed(*changes)


@pytest.mark.parametrize("change", [
    ("16], swizzle = 32", "16], swizzle = 0"), ("tile_dims = [0, 1]", "tile_dims = [1, 0]"),
    ("{swizzle = 32", "{swizzle = 64"),
], ids=["no swizzle", "the other order", "another encoding"])  # fmt: skip
def test_tiles_lie_as_boxes_are_copied(change):
    with pytest.raises(VerificationError, match=r"'tensor_load': boxes of \[16, 16\] under a swizzle of"):
        parsed(change)


def test_text_round_trips():
    text = print_function(parsed())
    assert print_function(parse_function(text)) == text


def test_box_with_zeros_around_the_tensor():
    """Rows of 8 elements, 16 apart; the box begins at row -1, column 1."""
    expected = np.zeros((16, 16))
    for row in range(3):
        expected[row + 1, :7] = np.arange(1, 49)[16 * row + 1 : 16 * row + 8]
    np.testing.assert_array_equal(copied(parsed()), expected)


ROOM = """\
  %room = memdesc_index %bars, %zero : (memdesc<2x1xmbarrier, #bar, mutable>, i32) \
-> memdesc<1xmbarrier, #bar, mutable>
"""


LATER = "  %later = barrier_wait %room, %zero : token<tma>\n"
MORE = """\
  %more = local_alloc : () -> memdesc<1xmbarrier, #bar, mutable>
  barrier_init %more
  %none = barrier_expect %more {bytes = 0} : token<tma>
"""
OTHER = "  %other = barrier_wait %bar, %one : token<tma>\n"
NO = "  %no = constant {value = false} : i1\n"
NONE = "  %none = barrier_expect %bar {bytes = 0} : token<tma>\n"


@pytest.mark.parametrize(("changes", "message"), [
    ([(WAIT, WAIT + OTHER)], "a wait that never ends"),
    ([(EXPECT, ROOM + EXPECT.replace("%bar", "%room"))], "a wait that never ends"),
    ([(COPY, NO + COPY.replace("%yes", "%no"))], "a wait that never ends"),
    ([(EXPECT, NO + EXPECT.replace("%bar {", "%bar, %no {"))],
     "in a phase of an mbarrier that nothing expects"),
    ([(COPY, "  barrier_arrive %bar\n" + COPY)], "in a phase of an mbarrier that nothing expects"),
    ([("  barrier_init %bars\n", "")], "before barrier_init"),
    ([(WAIT, WAIT.replace("zero", "one"))], "while copies are under way"),
    ([(EXPECT, NONE + EXPECT)], "second arrival"),
])  # fmt: skip
def test_faults(changes, message):
    with pytest.raises(InterpreterError, match=message):
        copied(parsed(*changes))


@pytest.mark.parametrize(("changes", "message"), [
    ([("{bytes = 512}", "{bytes = 256}")], "copies bring 512 of the 256 bytes that are expected"),
    ([(COPY, "")], "copies bring 0 of the 512 bytes that are expected"),
    ([(COPY, COPY + COPY)], "copies bring 1024 of the 512 bytes that are expected"),
    ([(COPY, f"  if %yes {{\n{COPY}    yield\n  }} else {{\n    yield\n  }}\n")], "no operation of its"),
], ids=["fewer", "no copy", "two copies", "a copy in a branch"])  # fmt: skip
def test_phases_expect_what_copies_bring(changes, message):
    with pytest.raises(VerificationError, match=message):
        parsed(*changes)


@pytest.mark.parametrize("changes", [
    [("%buffers, %one, %there : (memdesc<2x16x16xf16, #a, mutable>, i32, token<tma>)",
      "%buffers, %one : (memdesc<2x16x16xf16, #a, mutable>, i32)")],
    [("local_load %view", "local_load %buffer")],
    [("%one, %there :", "%one, %tile :")],
    [(WAIT, MORE + WAIT + LATER.replace("%room", "%more")), ("%one, %there :", "%one, %later :")],
], ids=["no token", "another view", "the phase itself", "another ring's"])  # fmt: skip
def test_tiles_are_read_behind_their_wait(changes):
    with pytest.raises(VerificationError, match="invariant 14"):
        parsed(*changes)


def test_a_phase_that_is_over_is_not_waited_for():
    """Parity 1 is that of the phase before the first."""
    copied(parsed((WAIT, OTHER + WAIT)))


def test_coordinates_and_dimensions_agree():
    with pytest.raises(VerificationError, match="2 dimensions has 4 coordinates and flags"):
        parsed(("%one, %yes {", "%one, %one, %yes {"), ("i32, i32, i1)", "i32, i32, i32, i1)"))


def test_arrivals_end_phases():
    """A wait for the end of a second phase, which comes with the second arrival."""
    arrive = "  barrier_arrive %room\n"
    first = "  %first = barrier_wait %room, %zero : token<tma>\n"
    second = "  %second = barrier_wait %room, %one : token<tma>\n"
    copied(parsed((EXPECT, ROOM + arrive + first + arrive + second + EXPECT)))


def test_a_wait_without_arrivals_never_ends():
    with pytest.raises(InterpreterError, match="a wait that never ends"):
        copied(parsed((EXPECT, ROOM + LATER + EXPECT)))


def test_a_wait_whose_flag_does_not_hold_is_none():
    copied(parsed((EXPECT, ROOM + NO + LATER.replace("%zero", "%zero, %no") + EXPECT)))


CLUSTER = ("num_warps = 1,", "num_warps = 1, num_ctas = 4,")
SHARED = ("{tile_dims = [0, 1], is_flagged = true}", "{tile_dims = [0, 1], is_flagged = true, multicast = 2}")
HALF = ("box = [16, 16]", "box = [8, 16]")
ARRIVE = (EXPECT, EXPECT + "  barrier_arrive %bar {peers = [0, 2]}\n")


def test_a_tile_that_ctas_copy_together_is_whole_for_each():
    function = parsed(CLUSTER, SHARED, HALF)
    text = print_function(function)
    assert "multicast = 2" in text and print_function(parse_function(text)) == text
    np.testing.assert_array_equal(copied(function), copied(parsed()))


@pytest.mark.parametrize(("changes", "message"), [
    ((SHARED, HALF), "'multicast' of 'tensor_load' names ranks beyond the 1 of the program"),
    ((CLUSTER, SHARED), r"boxes of \(16, 16\), copied by 2 CTAs, are no tile of \(16, 16\)"),
    ((CLUSTER, SHARED, HALF, (SHARED[1], SHARED[1].replace("2}", "4}"))), "beyond the 4 of the program"),
    ((ARRIVE,), "'peers' of 'barrier_arrive' names ranks beyond the 1 of the program"),
])  # fmt: skip
def test_ctas_that_share_are_of_the_program(changes, message):
    with pytest.raises(VerificationError, match=message):
        parsed(*changes)
    parsed(CLUSTER, ARRIVE)
