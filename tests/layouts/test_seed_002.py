"""The layout examples of seed 002, to the letter of its printed tables."""

from __future__ import annotations

import re

import pytest

from ptxforge.layouts.encodings import (
    Blocked,
    DotOperand,
    Slice,
    blocked_for_dot,
    blocked_for_expand_dims,
    default_blocked,
    elements_per_thread,
    infer_cat,
    infer_expand_dims,
    infer_join,
    infer_split,
    infer_trans,
)
from ptxforge.layouts.shared import Shared
from ptxforge.layouts.show import holders_of, show
from ptxforge.layouts.syntax import parse_encoding

UNSWIZZLED = """\
[[(0:0),(0:1),(0:2),(0:3)]
[ (1:0),(1:1),(1:2),(1:3)]
[ (2:0),(2:1),(2:2),(2:3)]
[ (3:0),(3:1),(3:2),(3:3)]]"""

SWIZZLES = {
    "#shared<{vec=1, perPhase=1, maxPhase=4, order=[1,0]}>": """\
[[(0:0),(0:1),(0:2),(0:3)]
[ (1:1),(1:0),(1:3),(1:2)]
[ (2:2),(2:3),(2:0),(2:1)]
[ (3:3),(3:2),(3:1),(3:0)]]""",
    "#shared<{vec=1, perPhase=2, maxPhase=4, order=[1,0]}>": """\
[[(0:0),(0:1),(0:2),(0:3)]
[ (1:0),(1:1),(1:2),(1:3)]
[ (2:1),(2:0),(2:3),(2:2)]
[ (3:1),(3:0),(3:3),(3:2)]]""",
    "#shared<{vec=1, perPhase=1, maxPhase=2, order=[1,0]}>": """\
[[(0:0),(0:1),(0:2),(0:3)]
[ (1:1),(1:0),(1:3),(1:2)]
[ (2:0),(2:1),(2:2),(2:3)]
[ (3:1),(3:0),(3:3),(3:2)]]""",
    "#shared<{vec=2, perPhase=1, maxPhase=4, order=[1,0]}>": """\
[[(0:0),(0:1),(0:2),(0:3)]
[ (1:2),(1:3),(1:0),(1:1)]
[ (2:0),(2:1),(2:2),(2:3)]
[ (3:2),(3:3),(3:0),(3:1)]]""",
    "#shared<{vec=2, perPhase=2, maxPhase=4, order=[1,0]}>": """\
[[(0:0),(0:1),(0:2),(0:3)]
[ (1:0),(1:1),(1:2),(1:3)]
[ (2:2),(2:3),(2:0),(2:1)]
[ (3:2),(3:3),(3:0),(3:1)]]""",
}

BLOCKED = "#triton_gpu.blocked<{sizePerThread = [1, 4], threadsPerWarp = [4, 8], warpsPerCTA = [1, 1], order = [1, 0]}>"  # noqa: E501
BLOCKED_2_4 = BLOCKED.replace("[1, 4]", "[2, 4]")
FOUR_WARPS = BLOCKED.replace("warpsPerCTA = [1, 1]", "warpsPerCTA = [4, 1]")
SHARED = "#triton_gpu.shared<{vec = 2, perPhase = 1, maxPhase = 4, order = [1,0], hasLeadingOffset = false}>"

TABLE_4x32 = """\
[[ T0:0, T0:1, T0:2, T0:3, T1:0, T1:1, T1:2, T1:3, T2:0, T2:1, T2:2, T2:3, T3:0, T3:1, T3:2, T3:3, T4:0, T4:1, T4:2, T4:3, T5:0, T5:1, T5:2, T5:3, T6:0, T6:1, T6:2, T6:3, T7:0, T7:1, T7:2, T7:3]
[ T8:0, T8:1, T8:2, T8:3, T9:0, T9:1, T9:2, T9:3, T10:0, T10:1, T10:2, T10:3, T11:0, T11:1, T11:2, T11:3, T12:0, T12:1, T12:2, T12:3, T13:0, T13:1, T13:2, T13:3, T14:0, T14:1, T14:2, T14:3, T15:0, T15:1, T15:2, T15:3]
[ T16:0, T16:1, T16:2, T16:3, T17:0, T17:1, T17:2, T17:3, T18:0, T18:1, T18:2, T18:3, T19:0, T19:1, T19:2, T19:3, T20:0, T20:1, T20:2, T20:3, T21:0, T21:1, T21:2, T21:3, T22:0, T22:1, T22:2, T22:3, T23:0, T23:1, T23:2, T23:3]
[ T24:0, T24:1, T24:2, T24:3, T25:0, T25:1, T25:2, T25:3, T26:0, T26:1, T26:2, T26:3, T27:0, T27:1, T27:2, T27:3, T28:0, T28:1, T28:2, T28:3, T29:0, T29:1, T29:2, T29:3, T30:0, T30:1, T30:2, T30:3, T31:0, T31:1, T31:2, T31:3]]"""  # noqa: E501

TABLE_8x32 = """\
[[ T0:0, T0:1, T0:2, T0:3, T1:0, T1:1, T1:2, T1:3, T2:0, T2:1, T2:2, T2:3, T3:0, T3:1, T3:2, T3:3, T4:0, T4:1, T4:2, T4:3, T5:0, T5:1, T5:2, T5:3, T6:0, T6:1, T6:2, T6:3, T7:0, T7:1, T7:2, T7:3]
[ T8:0, T8:1, T8:2, T8:3, T9:0, T9:1, T9:2, T9:3, T10:0, T10:1, T10:2, T10:3, T11:0, T11:1, T11:2, T11:3, T12:0, T12:1, T12:2, T12:3, T13:0, T13:1, T13:2, T13:3, T14:0, T14:1, T14:2, T14:3, T15:0, T15:1, T15:2, T15:3]
[ T16:0, T16:1, T16:2, T16:3, T17:0, T17:1, T17:2, T17:3, T18:0, T18:1, T18:2, T18:3, T19:0, T19:1, T19:2, T19:3, T20:0, T20:1, T20:2, T20:3, T21:0, T21:1, T21:2, T21:3, T22:0, T22:1, T22:2, T22:3, T23:0, T23:1, T23:2, T23:3]
[ T24:0, T24:1, T24:2, T24:3, T25:0, T25:1, T25:2, T25:3, T26:0, T26:1, T26:2, T26:3, T27:0, T27:1, T27:2, T27:3, T28:0, T28:1, T28:2, T28:3, T29:0, T29:1, T29:2, T29:3, T30:0, T30:1, T30:2, T30:3, T31:0, T31:1, T31:2, T31:3]
[ T0:4, T0:5, T0:6, T0:7, T1:4, T1:5, T1:6, T1:7, T2:4, T2:5, T2:6, T2:7, T3:4, T3:5, T3:6, T3:7, T4:4, T4:5, T4:6, T4:7, T5:4, T5:5, T5:6, T5:7, T6:4, T6:5, T6:6, T6:7, T7:4, T7:5, T7:6, T7:7]
[ T8:4, T8:5, T8:6, T8:7, T9:4, T9:5, T9:6, T9:7, T10:4, T10:5, T10:6, T10:7, T11:4, T11:5, T11:6, T11:7, T12:4, T12:5, T12:6, T12:7, T13:4, T13:5, T13:6, T13:7, T14:4, T14:5, T14:6, T14:7, T15:4, T15:5, T15:6, T15:7]
[ T16:4, T16:5, T16:6, T16:7, T17:4, T17:5, T17:6, T17:7, T18:4, T18:5, T18:6, T18:7, T19:4, T19:5, T19:6, T19:7, T20:4, T20:5, T20:6, T20:7, T21:4, T21:5, T21:6, T21:7, T22:4, T22:5, T22:6, T22:7, T23:4, T23:5, T23:6, T23:7]
[ T24:4, T24:5, T24:6, T24:7, T25:4, T25:5, T25:6, T25:7, T26:4, T26:5, T26:6, T26:7, T27:4, T27:5, T27:6, T27:7, T28:4, T28:5, T28:6, T28:7, T29:4, T29:5, T29:6, T29:7, T30:4, T30:5, T30:6, T30:7, T31:4, T31:5, T31:6, T31:7]]"""  # noqa: E501

# The seed prints the first three rows.
TABLE_8x32_TWO_ROWS_PER_THREAD = """\
[[ T0:0, T0:1, T0:2, T0:3, T1:0, T1:1, T1:2, T1:3, T2:0, T2:1, T2:2, T2:3, T3:0, T3:1, T3:2, T3:3, T4:0, T4:1, T4:2, T4:3, T5:0, T5:1, T5:2, T5:3, T6:0, T6:1, T6:2, T6:3, T7:0, T7:1, T7:2, T7:3]
[ T0:4, T0:5, T0:6, T0:7, T1:4, T1:5, T1:6, T1:7, T2:4, T2:5, T2:6, T2:7, T3:4, T3:5, T3:6, T3:7, T4:4, T4:5, T4:6, T4:7, T5:4, T5:5, T5:6, T5:7, T6:4, T6:5, T6:6, T6:7, T7:4, T7:5, T7:6, T7:7]
[ T8:0, T8:1, T8:2, T8:3, T9:0, T9:1, T9:2, T9:3, T10:0, T10:1, T10:2, T10:3, T11:0, T11:1, T11:2, T11:3, T12:0, T12:1, T12:2, T12:3, T13:0, T13:1, T13:2, T13:3, T14:0, T14:1, T14:2, T14:3, T15:0, T15:1, T15:2, T15:3]"""  # noqa: E501

TABLE_16x16 = """\
[[ T0:0| T4:0, T0:1| T4:1, T0:2| T4:2, T0:3| T4:3, T1:0| T5:0, T1:1| T5:1, T1:2| T5:2, T1:3| T5:3, T2:0| T6:0, T2:1| T6:1, T2:2| T6:2, T2:3| T6:3, T3:0| T7:0, T3:1| T7:1, T3:2| T7:2, T3:3| T7:3]
[ T8:0| T12:0, T8:1| T12:1, T8:2| T12:2, T8:3| T12:3, T9:0| T13:0, T9:1| T13:1, T9:2| T13:2, T9:3| T13:3, T10:0| T14:0, T10:1| T14:1, T10:2| T14:2, T10:3| T14:3, T11:0| T15:0, T11:1| T15:1, T11:2| T15:2, T11:3| T15:3]
[ T16:0| T20:0, T16:1| T20:1, T16:2| T20:2, T16:3| T20:3, T17:0| T21:0, T17:1| T21:1, T17:2| T21:2, T17:3| T21:3, T18:0| T22:0, T18:1| T22:1, T18:2| T22:2, T18:3| T22:3, T19:0| T23:0, T19:1| T23:1, T19:2| T23:2, T19:3| T23:3]
[ T24:0| T28:0, T24:1| T28:1, T24:2| T28:2, T24:3| T28:3, T25:0| T29:0, T25:1| T29:1, T25:2| T29:2, T25:3| T29:3, T26:0| T30:0, T26:1| T30:1, T26:2| T30:2, T26:3| T30:3, T27:0| T31:0, T27:1| T31:1, T27:2| T31:2, T27:3| T31:3]
[ T32:0| T36:0, T32:1| T36:1, T32:2| T36:2, T32:3| T36:3, T33:0| T37:0, T33:1| T37:1, T33:2| T37:2, T33:3| T37:3, T34:0| T38:0, T34:1| T38:1, T34:2| T38:2, T34:3| T38:3, T35:0| T39:0, T35:1| T39:1, T35:2| T39:2, T35:3| T39:3]
[ T40:0| T44:0, T40:1| T44:1, T40:2| T44:2, T40:3| T44:3, T41:0| T45:0, T41:1| T45:1, T41:2| T45:2, T41:3| T45:3, T42:0| T46:0, T42:1| T46:1, T42:2| T46:2, T42:3| T46:3, T43:0| T47:0, T43:1| T47:1, T43:2| T47:2, T43:3| T47:3]
[ T48:0| T52:0, T48:1| T52:1, T48:2| T52:2, T48:3| T52:3, T49:0| T53:0, T49:1| T53:1, T49:2| T53:2, T49:3| T53:3, T50:0| T54:0, T50:1| T54:1, T50:2| T54:2, T50:3| T54:3, T51:0| T55:0, T51:1| T55:1, T51:2| T55:2, T51:3| T55:3]
[ T56:0| T60:0, T56:1| T60:1, T56:2| T60:2, T56:3| T60:3, T57:0| T61:0, T57:1| T61:1, T57:2| T61:2, T57:3| T61:3, T58:0| T62:0, T58:1| T62:1, T58:2| T62:2, T58:3| T62:3, T59:0| T63:0, T59:1| T63:1, T59:2| T63:2, T59:3| T63:3]
[ T64:0| T68:0, T64:1| T68:1, T64:2| T68:2, T64:3| T68:3, T65:0| T69:0, T65:1| T69:1, T65:2| T69:2, T65:3| T69:3, T66:0| T70:0, T66:1| T70:1, T66:2| T70:2, T66:3| T70:3, T67:0| T71:0, T67:1| T71:1, T67:2| T71:2, T67:3| T71:3]
[ T72:0| T76:0, T72:1| T76:1, T72:2| T76:2, T72:3| T76:3, T73:0| T77:0, T73:1| T77:1, T73:2| T77:2, T73:3| T77:3, T74:0| T78:0, T74:1| T78:1, T74:2| T78:2, T74:3| T78:3, T75:0| T79:0, T75:1| T79:1, T75:2| T79:2, T75:3| T79:3]
[ T80:0| T84:0, T80:1| T84:1, T80:2| T84:2, T80:3| T84:3, T81:0| T85:0, T81:1| T85:1, T81:2| T85:2, T81:3| T85:3, T82:0| T86:0, T82:1| T86:1, T82:2| T86:2, T82:3| T86:3, T83:0| T87:0, T83:1| T87:1, T83:2| T87:2, T83:3| T87:3]
[ T88:0| T92:0, T88:1| T92:1, T88:2| T92:2, T88:3| T92:3, T89:0| T93:0, T89:1| T93:1, T89:2| T93:2, T89:3| T93:3, T90:0| T94:0, T90:1| T94:1, T90:2| T94:2, T90:3| T94:3, T91:0| T95:0, T91:1| T95:1, T91:2| T95:2, T91:3| T95:3]
[ T96:0|T100:0, T96:1|T100:1, T96:2|T100:2, T96:3|T100:3, T97:0|T101:0, T97:1|T101:1, T97:2|T101:2, T97:3|T101:3, T98:0|T102:0, T98:1|T102:1, T98:2|T102:2, T98:3|T102:3, T99:0|T103:0, T99:1|T103:1, T99:2|T103:2, T99:3|T103:3]
[ T104:0|T108:0, T104:1|T108:1, T104:2|T108:2, T104:3|T108:3, T105:0|T109:0, T105:1|T109:1, T105:2|T109:2, T105:3|T109:3, T106:0|T110:0, T106:1|T110:1, T106:2|T110:2, T106:3|T110:3, T107:0|T111:0, T107:1|T111:1, T107:2|T111:2, T107:3|T111:3]
[ T112:0|T116:0, T112:1|T116:1, T112:2|T116:2, T112:3|T116:3, T113:0|T117:0, T113:1|T117:1, T113:2|T117:2, T113:3|T117:3, T114:0|T118:0, T114:1|T118:1, T114:2|T118:2, T114:3|T118:3, T115:0|T119:0, T115:1|T119:1, T115:2|T119:2, T115:3|T119:3]
[ T120:0|T124:0, T120:1|T124:1, T120:2|T124:2, T120:3|T124:3, T121:0|T125:0, T121:1|T125:1, T121:2|T125:2, T121:3|T125:3, T122:0|T126:0, T122:1|T126:1, T122:2|T126:2, T122:3|T126:3, T123:0|T127:0, T123:1|T127:1, T123:2|T127:2, T123:3|T127:3]]"""  # noqa: E501

TABLE_SHARED_4x8 = """\
[[(0:0),(0:1),(0:2),(0:3),(0:4),(0:5),(0:6),(0:7)]
[ (1:2),(1:3),(1:0),(1:1),(1:6),(1:7),(1:4),(1:5)]
[ (2:4),(2:5),(2:6),(2:7),(2:0),(2:1),(2:2),(2:3)]
[ (3:6),(3:7),(3:4),(3:5),(3:2),(3:3),(3:0),(3:1)]]"""


def test_unswizzled_shared():
    assert show(Shared(1, 1, 1, (1, 0)), (4, 4)) == UNSWIZZLED


@pytest.mark.parametrize("encoding", SWIZZLES)
def test_swizzle_tables(encoding):
    assert show(parse_encoding(encoding), (4, 4)) == SWIZZLES[encoding]


@pytest.mark.parametrize("encoding, shape, table", [
    (BLOCKED, (4, 32), TABLE_4x32), (BLOCKED, (8, 32), TABLE_8x32), (FOUR_WARPS, (16, 16), TABLE_16x16),
    (SHARED, (4, 8), TABLE_SHARED_4x8),
])
def test_printed_layouts(encoding, shape, table):
    assert show(parse_encoding(encoding), shape) == table


def test_printed_layout_with_two_rows_per_thread():
    rows = show(parse_encoding(BLOCKED_2_4), (8, 32)).splitlines()
    assert rows[:3] == TABLE_8x32_TWO_ROWS_PER_THREAD.splitlines()


def test_printed_attribute():
    assert str(parse_encoding(BLOCKED)) == BLOCKED.replace("triton_gpu.", "")
    assert str(parse_encoding(SHARED)) == "#shared<{vec = 2, perPhase = 1, maxPhase = 4, order = [1, 0]}>"


def test_aligned_picture_differs_in_spaces_only():
    layout = parse_encoding(FOUR_WARPS)
    aligned = show(layout, (16, 16), align=True)
    assert len({len(line) for line in aligned.splitlines()[:-1]}) == 1
    assert re.sub(" +", " ", aligned) == TABLE_16x16


def test_layout_function():
    """L(A) of a 2 x 8 tensor under a 4 x 4 arrangement of threads."""
    text = """
        {0,8} , {1,9} , {2,10}, {3,11}, {0,8} , {1, 9} , {2, 10}, {3, 11},
        {4,12}, {5,13}, {6,14}, {7,15}, {4,12}, {5, 13}, {6, 14}, {7, 15}"""
    expected = [tuple(map(int, pair)) for pair in re.findall(r"{(\d+), ?(\d+)}", text)]
    holders = holders_of(Blocked((1, 1), (4, 4), (1, 1), (1, 0)), (2, 8))
    threads = [tuple(thread for thread, _ in holders[index]) for index in sorted(holders)]
    assert threads == expected
    assert threads[1 * 8 + 3] == (7, 15)  # "the threads that access A[1, 3] are L[1, 3] and L[3, 3]"


def test_coalescing_example():
    before = parse_encoding(
        "#blocked<{sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [1], order = [0]}>"
    )
    after = parse_encoding(
        "#blocked<{sizePerThread = [4], threadsPerWarp = [32], warpsPerCTA = [1], order = [0]}>"
    )
    assert elements_per_thread(before, (128,)) == elements_per_thread(after, (128,)) == 4
    assert before.linear((128,)).num_consecutive_in_out() == 1
    assert after.linear((128,)).num_consecutive_in_out() == 4


@pytest.mark.parametrize(
    "shape, encoding",
    [
        (
            (64, 2, 32),
            "sizePerThread = [1, 1, 1], threadsPerWarp = [1, 1, 32], warpsPerCTA = [2, 2, 1], order = [2, 1, 0]",  # noqa: E501
        ),
        (
            (32, 64, 2),
            "sizePerThread = [1, 1, 1], threadsPerWarp = [1, 16, 2], warpsPerCTA = [1, 4, 1], order = [2, 1, 0]",  # noqa: E501
        ),
        (
            (64, 2, 64, 2),
            "sizePerThread = [1, 1, 1, 1], threadsPerWarp = [1, 1, 16, 2], warpsPerCTA = [1, 1, 4, 1], "
            "order = [3, 2, 1, 0]",
        ),
        ((128, 32), "sizePerThread = [1, 1], threadsPerWarp = [1, 32], warpsPerCTA = [4, 1], order = [1, 0]"),
    ],
)
def test_default_encodings(shape, encoding):
    assert str(default_blocked(shape, num_warps=4)) == f"#blocked<{{{encoding}}}>"


def blocked(size, threads, warps, order):
    return Blocked(size, threads, warps, order)


def test_broadcast_default_of_the_result():
    """What the result of the broadcast would get, were it not to keep its operand's encoding."""
    assert default_blocked((128, 32), 4, order=(1, 0)).threads_per_warp == (1, 32)


def test_cat():
    source = default_blocked((16, 1, 1), 4)
    assert source == blocked((1, 1, 1), (32, 1, 1), (4, 1, 1), (2, 1, 0))
    assert infer_cat(source, (16, 1, 1)) == blocked((1, 1, 2), (32, 1, 1), (4, 1, 1), (2, 1, 0))


def test_join_and_split():
    narrow = default_blocked((16, 32), 4)
    assert narrow == blocked((1, 1), (1, 32), (4, 1), (1, 0))
    assert default_blocked((16, 32, 2), 4) == blocked((1, 1, 1), (1, 16, 2), (2, 2, 1), (2, 1, 0))
    wide = infer_join(narrow, (16, 32))
    assert wide == blocked((1, 1, 2), (1, 32, 1), (4, 1, 1), (2, 1, 0))
    assert infer_split(wide, (16, 32, 2)) == narrow


def test_expand_dims():
    first = default_blocked((128,), 4)
    assert first == blocked((1,), (32,), (4,), (0,))
    second = blocked_for_expand_dims(first, 1)
    assert second == blocked((1, 1), (32, 1), (4, 1), (0, 1))
    assert infer_expand_dims(Slice(1, second), 1, (128, 1)) == second
    third = blocked_for_expand_dims(default_blocked((128, 1), 4), 0)
    assert default_blocked((128, 1), 4) == blocked((1, 1), (32, 1), (4, 1), (1, 0))
    assert third == blocked((1, 1, 1), (1, 32, 1), (1, 4, 1), (0, 1, 2))
    assert str(Slice(0, third)) == f"#slice<{{dim = 0, parent = {third}}}>"


def test_trans():
    source = default_blocked((64, 2, 16), 4)
    assert source == blocked((1, 1, 1), (1, 2, 16), (4, 1, 1), (2, 1, 0))
    result = infer_trans(source, (1, 2, 0), (64, 2, 16))
    assert result == blocked((1, 1, 1), (2, 16, 1), (1, 1, 4), (1, 0, 2))


def test_dot():
    assert default_blocked((128, 32), 4) == blocked((1, 1), (1, 32), (4, 1), (1, 0))
    assert default_blocked((32, 128), 4) == blocked((1, 1), (1, 32), (1, 4), (1, 0))
    result = blocked_for_dot((128, 128), 4)
    assert result == blocked((4, 4), (1, 32), (4, 1), (1, 0))
    parent = (
        "#blocked<{sizePerThread = [4, 4], threadsPerWarp = [1, 32], warpsPerCTA = [4, 1], order = [1, 0]}>"
    )
    assert str(DotOperand(1, result)) == f"#dot_op<{{opIdx = 1, parent = {parent}}}>"
    # Each thread holds all of k, and what its rows (A) or columns (B) need.
    assert elements_per_thread(DotOperand(0, result), (128, 32)) == 32 * 4 * 8
    assert elements_per_thread(DotOperand(1, result), (32, 128)) == 32 * 4


@pytest.mark.parametrize("shape, side", [((8, 32), 1), ((16, 32), 2), ((32, 64), 4), ((16, 64), 2)])
def test_dot_elements_per_thread(shape, side):
    assert blocked_for_dot(shape, 4).size_per_thread == (side, side)
