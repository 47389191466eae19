"""The table of tensor cores' instructions: it agrees with the layouts, and with the assembler."""

from __future__ import annotations

import pytest

from ptxforge.layouts.encodings import DotOperand, Mma, elements_per_thread, unique_elements_per_thread
from ptxforge.layouts.mma_families import FAMILIES, MMA_SYNC, WGMMA, find_family
from ptxforge.layouts.wgmma import K_BYTES, ROWS
from ptxforge.support.target import parse_target

OF_WARPS = [row for row in FAMILIES if row.name == MMA_SYNC]


@pytest.mark.parametrize("row", OF_WARPS, ids=lambda row: row.operands[0])
def test_register_counts_match_the_layouts(row):
    mma = Mma((2, 0), (1, 1), row.instr_shape)
    a, b = DotOperand(0, mma, row.k_width), DotOperand(1, mma, row.k_width)
    assert unique_elements_per_thread(a, (row.m, row.k)) == row.a_registers * row.k_width
    assert unique_elements_per_thread(b, (row.k, row.n)) == row.b_registers * row.k_width
    assert elements_per_thread(mma, (row.m, row.n)) == row.c_registers(row.sums[0])
    assert a.depth_of_instruction == b.depth_of_instruction == row.k


def test_known_register_counts():
    counts = {row.operands[0]: (row.a_registers, row.b_registers, row.c_registers(row.sums[0]))
              for row in OF_WARPS}  # fmt: skip
    assert counts["f16"] == counts["bf16"] == counts["f32"] == counts["i8"] == counts["f8e4m3"] == (4, 2, 4)
    assert counts["f64"] == (1, 1, 2)
    assert find_family(MMA_SYNC, "f16", "f16", "f16").c_registers("f16") == 2


def test_products_of_warpgroups_are_as_deep_as_their_panels_say():
    for row in FAMILIES:
        if row.name == WGMMA:
            assert row.k * row.bits == 8 * K_BYTES and row.m == ROWS and row.n == 0


def test_find_family():
    assert find_family(MMA_SYNC, "f16", "f16", "f32").k == 16
    assert find_family(MMA_SYNC, "f8e4m3", "f8e5m2", "f32").kinds("f8e4m3", "f8e5m2", "f32") == (
        "e4m3", "e5m2", "f32")  # fmt: skip
    bytes_ = find_family(MMA_SYNC, "i8", "i8", "i32")
    assert bytes_.kinds("i8", "i8", "i32", a_unsigned=True) == ("u8", "s8", "s32")
    assert find_family(MMA_SYNC, "bf16", "bf16", "f16") is None
    assert find_family(MMA_SYNC, "f16", "bf16", "f32") is None
    assert find_family(WGMMA, "f64", "f64", "f64") is None


def test_targets_have_what_the_table_says():
    fp8 = find_family(MMA_SYNC, "f8e5m2", "f8e5m2", "f32")
    assert not fp8.is_on(parse_target("sm_80")) and fp8.is_on(parse_target("sm_89"))
    assert [row.is_on(parse_target("sm_90")) for row in FAMILIES if row.name == WGMMA] == [False] * 5
    assert all(row.is_on(parse_target("sm_90a")) for row in FAMILIES)
