"""The table of tensor cores' instructions: it agrees with the layouts, and with the assembler."""

from __future__ import annotations

import pytest

from ptxforge.layouts.encodings import DotOperand, Mma, elements_per_thread, unique_elements_per_thread
from ptxforge.layouts.mma_families import FAMILIES, MMA_SYNC, WGMMA, find_family
from ptxforge.layouts.wgmma import K_BYTES, ROWS
from ptxforge.support.target import parse_target

OF_WARPS = [row for row in FAMILIES if row.name == MMA_SYNC]


@pytest.mark.parametrize("row", OF_WARPS, ids=lambda row: row.operands[0])
def test_the_layouts_hold_the_registers_of_the_instructions(row):
    """PTX ISA, the fragments of ``mma``: 32 bits a register, 64 of f64."""
    mma = Mma((2, 0), (1, 1), row.instr_shape)
    a, b = DotOperand(0, mma, row.k_width), DotOperand(1, mma, row.k_width)
    elements = (unique_elements_per_thread(a, (row.m, row.k)), unique_elements_per_thread(b, (row.k, row.n)))
    of_a, of_b, of_sums = (1, 1, 2) if row.operands[0] == "f64" else (4, 2, 4)
    assert elements == (of_a * row.k_width, of_b * row.k_width)
    assert elements_per_thread(mma, (row.m, row.n)) == of_sums
    assert a.depth_of_instruction == b.depth_of_instruction == row.k


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
