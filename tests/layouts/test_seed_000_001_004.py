"""The layout examples of seeds 000, 001, 003 and 004."""

from __future__ import annotations

import re

import pytest

from ptxforge.layouts.banks import register_run
from ptxforge.layouts.encodings import (
    Blocked,
    DotOperand,
    Mma,
    Slice,
    default_blocked,
    elements_per_thread,
)
from ptxforge.layouts.linear import LinearLayout
from ptxforge.layouts.shared import Shared
from ptxforge.layouts.show import holders_of, show, show_threads
from ptxforge.layouts.syntax import parse_encoding

from .linear_maps import linear

# -- seeds 000, 003 and 004: Blocked -------------------------------------------------------------------

TWO_WARPS = """#triton_gpu.blocked_layout<{
  sizePerThread = {2, 2}
  threadsPerWarp = {8, 4}
  warpsPerCTA = {1, 2}
  CTAsPerCGA = {1, 1}
}>"""

TABLE_16x16 = """\
[ 0  0  1  1  2  2  3  3  ; 32 32 33 33 34 34 35 35 ]
[ 0  0  1  1  2  2  3  3  ; 32 32 33 33 34 34 35 35 ]
[ 4  4  5  5  6  6  7  7  ; 36 36 37 37 38 38 39 39 ]
[ 4  4  5  5  6  6  7  7  ; 36 36 37 37 38 38 39 39 ]
...
[ 28 28 29 29 30 30 31 31 ; 60 60 61 61 62 62 63 63 ]
[ 28 28 29 29 30 30 31 31 ; 60 60 61 61 62 62 63 63 ]"""

# Seed 004 breaks these lines in two.
TABLE_32x32 = """\
[ 0  0  1  1  2  2  3  3  ; 32 32 33 33 34 34 35 35  0  0  1  1  2  2  3  3  ; 32 32 33 33 34 34 35 35 ]
[ 0  0  1  1  2  2  3  3  ; 32 32 33 33 34 34 35 35  0  0  1  1  2  2  3  3  ; 32 32 33 33 34 34 35 35 ]
[ 4  4  5  5  6  6  7  7  ; 36 36 37 37 38 38 39 39  4  4  5  5  6  6  7  7  ; 36 36 37 37 38 38 39 39 ]
[ 4  4  5  5  6  6  7  7  ; 36 36 37 37 38 38 39 39  4  4  5  5  6  6  7  7  ; 36 36 37 37 38 38 39 39 ]
...
[ 28 28 29 29 30 30 31 31 ; 60 60 61 61 62 62 63 63  28 28 29 29 30 30 31 31 ; 60 60 61 61 62 62 63 63 ]
[ 28 28 29 29 30 30 31 31 ; 60 60 61 61 62 62 63 63  28 28 29 29 30 30 31 31 ; 60 60 61 61 62 62 63 63 ]
[ 0  0  1  1  2  2  3  3  ; 32 32 33 33 34 34 35 35  0  0  1  1  2  2  3  3  ; 32 32 33 33 34 34 35 35 ]
[ 0  0  1  1  2  2  3  3  ; 32 32 33 33 34 34 35 35  0  0  1  1  2  2  3  3  ; 32 32 33 33 34 34 35 35 ]
[ 4  4  5  5  6  6  7  7  ; 36 36 37 37 38 38 39 39  4  4  5  5  6  6  7  7  ; 36 36 37 37 38 38 39 39 ]
[ 4  4  5  5  6  6  7  7  ; 36 36 37 37 38 38 39 39  4  4  5  5  6  6  7  7  ; 36 36 37 37 38 38 39 39 ]
...
[ 28 28 29 29 30 30 31 31 ; 60 60 61 61 62 62 63 63  28 28 29 29 30 30 31 31 ; 60 60 61 61 62 62 63 63 ]
[ 28 28 29 29 30 30 31 31 ; 60 60 61 61 62 62 63 63  28 28 29 29 30 30 31 31 ; 60 60 61 61 62 62 63 63 ]"""


def with_gaps(table: str, block: int = 16) -> str:
    """The table as the seed prints it: of every ``block`` rows, the first four and the last two."""
    lines = table.splitlines()
    parts = []
    for start in range(0, len(lines), block):
        rows = lines[start:start + block]
        parts += [*rows[:4], "...", *rows[-2:]]
    return "\n".join(parts)


def test_16x16_over_two_warps():
    assert with_gaps(show_threads(parse_encoding(TWO_WARPS), (16, 16))) == TABLE_16x16


def test_32x32_over_two_warps_repeats():
    layout = parse_encoding(TWO_WARPS)
    assert with_gaps(show_threads(layout, (32, 32))) == TABLE_32x32
    assert elements_per_thread(layout, (32, 32)) == 16


def test_32x32_over_four_ctas():
    """Each CTA of the 2 x 2 holds a 16 x 16 part, distributed as the tensor of the first example."""
    layout = parse_encoding(TWO_WARPS.replace("CTAsPerCGA = {1, 1}", "CTAsPerCGA = {2, 2}"))
    corners = []
    for cta in range(4):
        assert with_gaps(show_threads(layout, (32, 32), cta=cta)) == TABLE_16x16
        corners.append(min(holders_of(layout, (32, 32), cta)))
    assert corners == [(0, 0), (0, 16), (16, 0), (16, 16)]  # CTA [0,0], [0,1], [1,0], [1,1]
    assert elements_per_thread(layout, (32, 32)) == 4


# -- seeds 000 and 004: Shared -------------------------------------------------------------------------

SWIZZLED_ROWS = """
A_{0, 0}  A_{0, 1}  A_{0, 2}  A_{0, 3}
A_{1, 0}  A_{1, 1}  A_{1, 2}  A_{1, 3}
A_{2, 2}  A_{2, 3}  A_{2, 0}  A_{2, 1}
A_{3, 2}  A_{3, 3}  A_{3, 0}  A_{3, 1}"""


def test_swizzled_rows():
    """vec = 2, per_phase = 2: rows 2 and 3 are in phase 1."""
    expected = [tuple(map(int, pair)) for pair in re.findall(r"A_{(\d), (\d)}", SWIZZLED_ROWS)]
    linear = Shared(2, 2, 2, (1, 0)).linear((4, 4))
    assert [linear.apply(offset=offset) for offset in range(16)] == expected


# -- seed 004: the layout function ---------------------------------------------------------------------


def test_layout_function():
    text = """
        {0,8} , {1,9} , {2,10}, {3,11}, {0,8} , {1, 9} , {2, 10}, {3, 11},
        {4,12}, {5,13}, {6,14}, {7,15}, {4,12}, {5, 13}, {6, 14}, {7, 15}"""
    expected = [{int(a), int(b)} for a, b in re.findall(r"{(\d+), ?(\d+)}", text)]
    tensor, arrangement = (2, 8), (4, 4)
    holders = holders_of(Blocked((1, 1), arrangement, (1, 1), (1, 0)), tensor)
    assert [{thread for thread, _ in holders[index]} for index in sorted(holders)] == expected
    # And by the seed's formula: L[(i_d + k_d * A.shape[d]) % L.shape[d]] for all k_d.
    for (i, j), where in holders.items():
        threads = {(i + k * tensor[0]) % 4 * 4 + (j + n * tensor[1]) % 4 for k in range(2) for n in range(1)}
        assert {thread for thread, _ in where} == threads


# -- seed 000: the matrix product ----------------------------------------------------------------------

BLOCKED_0 = ("#triton_gpu.blocked<{sizePerThread = [1, 8], threadsPerWarp = [16, 2], "
             "warpsPerCTA = [1, 1], order = [1, 0]}>")
BLOCKED_1 = ("#triton_gpu.blocked<{sizePerThread = [1, 1], threadsPerWarp = [4, 8], "
             "warpsPerCTA = [1, 1], order = [1, 0]}>")
MMA = "#triton_gpu.mma<{version = 2, warpsPerCTA = [1, 1]}>"


def test_matmul_encodings():
    aliases = {"#blocked0": parse_encoding(BLOCKED_0), "#blocked1": parse_encoding(BLOCKED_1),
               "#mma": parse_encoding(MMA)}
    assert aliases["#blocked0"] == Blocked((1, 8), (16, 2), (1, 1), (1, 0))
    assert str(aliases["#blocked0"]) == BLOCKED_0.replace("triton_gpu.", "")
    assert aliases["#mma"] == Mma((2, 0), (1, 1), (16, 8))
    a = parse_encoding("#triton_gpu.dot_op<{opIdx = 0, parent = #mma}>", aliases)
    b = parse_encoding("#triton_gpu.dot_op<{opIdx = 1, parent = #mma}>", aliases)
    mma = aliases["#mma"]
    assert a == DotOperand(0, mma) and a.text({mma: "#mma"}) == "#dot_op<{opIdx = 0, parent = #mma}>"
    assert register_run(aliases["#blocked0"], (16, 16)) == (1, 8)
    # tensor<16x16xf16>, tensor<16x8xf16> and tensor<16x8xf32> of one warp: what mma.m16n8k16 takes per lane.
    operands = ((a, (16, 16)), (b, (16, 8)), (mma, (16, 8)))
    assert [elements_per_thread(encoding, shape) for encoding, shape in operands] == [8, 4, 4]


def test_wide_mma_of_the_dot_operand_example():
    mma = parse_encoding("#mma<{version = 2, warpsPerCTA = [8, 4]}>")
    assert mma.num_warps == 32
    # Warps that differ along n only hold the same rows of A.
    free = DotOperand(0, mma, 2).linear((128, 16)).free_variables()
    assert free["warp"] == 0b00011
    assert DotOperand(1, mma, 2).linear((16, 32)).free_variables()["warp"] == 0b11100


@pytest.mark.parametrize("shape, fields", [
    ((16,), "sizePerThread = [1], threadsPerWarp = [16], warpsPerCTA = [1], order = [0]"),
    ((16, 1), "sizePerThread = [1, 1], threadsPerWarp = [16, 1], warpsPerCTA = [1, 1], order = [0, 1]"),
    ((1, 16), "sizePerThread = [1, 1], threadsPerWarp = [1, 16], warpsPerCTA = [1, 1], order = [0, 1]"),
])
def test_encodings_of_the_first_conversion(shape, fields):
    text = f"#blocked<{{{fields}}}>"
    layout = parse_encoding(text)
    assert str(layout) == text
    assert elements_per_thread(layout, shape) == 1
    assert layout.linear(shape).is_injective and layout.linear(shape).is_surjective


def test_slices_of_the_matmul():
    rows = Slice(1, parse_encoding(BLOCKED_0))
    assert str(rows) == f"#slice<{{dim = 1, parent = {parse_encoding(BLOCKED_0)}}}>"
    linear = rows.linear((16,))
    # tensor<16xi32>: one element per thread, two threads for each.
    assert linear.in_size("register") == 1 and linear.free_variables()["lane"] == 0b00001
    assert Slice(0, parse_encoding(BLOCKED_0)).linear((16,)).in_size("register") == 8


# -- seed 001 ------------------------------------------------------------------------------------------

VECTOR_ADD = ("#triton_gpu.blocked<{sizePerThread = [4], threadsPerWarp = [32], warpsPerCTA = [4], "
              "order = [0], CTAsPerCGA = [1], CTASplitNum = [1], CTAOrder = [0]}>")


def test_vector_add():
    layout = parse_encoding(VECTOR_ADD)
    assert layout == Blocked((4,), (32,), (4,), (0,))
    assert elements_per_thread(layout, (1024,)) == 8
    assert register_run(layout, (1024,)) == (0, 4)
    held = [layout.linear((1024,)).apply(register=r, lane=1, warp=2)[0] for r in range(8)]
    assert held == [260, 261, 262, 263, 772, 773, 774, 775]


def test_unswizzled_shared():
    text = ("#triton_gpu.shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [1, 0], "
            "hasLeadingOffset = false}>")
    linear = parse_encoding(text).linear((32, 32))
    assert linear == LinearLayout(
        {"offset": [(0, 1 << i) for i in range(5)] + [(1 << i, 0) for i in range(5)], "block": []},
        {"dim0": 32, "dim1": 32})


def test_matrix_unit_of_eight_columns():
    """The row that the seed prints of another vendor's matrix unit: 8 threads side by side, then their next
    registers. Any such layout can be written as a linear one."""
    row = " ".join(f"T{lane}:{register}" for register in range(4) for lane in range(8))
    layout = linear((4, 32), {
        "register": [(0, 8), (0, 16)], "lane": [(0, 1), (0, 2), (0, 4), (1, 0), (2, 0)]})
    first = show(layout, (4, 32)).splitlines()[0]
    assert re.findall(r"T\d+:\d+", first) == row.split()


# -- seed 003 ------------------------------------------------------------------------------------------


def test_default_of_eight_warps():
    text = "#blocked<{sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [8], order = [0]}>"
    assert str(default_blocked((1024,), num_warps=8)) == text


def test_hopper_accumulator_syntax():
    text = ("#triton_gpu.nvidia_mma<{versionMajor = 3, versionMinor = 0, warpsPerCTA = [4, 1], "
            "instrShape = [16, 16, 16]}>")
    layout = parse_encoding(text)
    assert layout == Mma((3, 0), (4, 1), (16, 16, 16))
    assert elements_per_thread(layout, (128, 16)) == 16
    assert layout.linear((128, 16)).is_injective
