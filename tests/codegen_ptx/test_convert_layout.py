"""Conversions through shared memory, and what else of shared memory is put off: neither passes barriers."""

from __future__ import annotations

import re

from ptxforge.codegen_ptx import emit
from ptxforge.ir.parser import parse_function
from ptxforge.passes.interleave_products import interleave_products
from ptxforge.support.target import parse_target

MMA = "#mma<{versionMajor = 2, versionMinor = 0, warpsPerCTA = [2, 4], instrShape = [16, 8]}>"
ROWS = "#blocked<{sizePerThread = [1, 8], threadsPerWarp = [1, 32], warpsPerCTA = [8, 1], order = [1, 0]}>"
BYTES = "#blocked<{sizePerThread = [1, 16], threadsPerWarp = [32, 1], warpsPerCTA = [8, 1], order = [1, 0]}>"
SMALL = f"tensor<256x16xi8, {BYTES}>"
ACROSS = BYTES.replace("[1, 16]", "[16, 1]").replace("[32, 1]", "[2, 16]").replace("[1, 0]}", "[0, 1]}")
TEXT = f"""func @f(%out: ptr<f16> {{divisibility = 16}}, %x: f16, %y: i8)
    attributes {{num_warps = 8, target = "sm_80", shared_bytes = 65536}} {{
  %wide = splat %x : (f16) -> tensor<128x256xf16, {MMA}>
  %rows = convert_layout %wide {{scratch_offset = 0}} :
    (tensor<128x256xf16, {MMA}>) -> tensor<128x256xf16, {ROWS}>
  %narrow = splat %y : (i8) -> {SMALL}
  BETWEEN
  %p = splat %out : (ptr<f16>) -> tensor<128x256xptr<f16>, {ROWS}>
  store %p, %rows {{vector = 8}} : (tensor<128x256xptr<f16>, {ROWS}>, tensor<128x256xf16, {ROWS}>)
  return
}}"""
CONVERSION = f"""%turned = convert_layout %narrow {{scratch_offset = 0}} :
    ({SMALL}) -> tensor<256x16xi8, {ACROSS}>"""


def interleaved(text: str) -> str:
    """PTX behind the pass that decides what is put off."""
    function, target = parse_function(text), parse_target("sm_80")
    interleave_products(function, target)
    return emit(function, target)


def events(between: str) -> list[str]:
    text = TEXT.replace("BETWEEN", between)
    ptx = interleaved(text)
    return re.findall(r"st\.shared\.v4|ld\.shared\.v4|st\.shared|ld\.shared|st\.global", ptx)


def test_a_store_begins_with_the_first_part():
    order = events("")
    assert order.index("st.global") < len(order) - 1 - order[::-1].index("st.shared.v4")


def test_other_scratch_waits_for_all_parts():
    """Both lie at the same place, and barriers were put where the program's order demands them."""
    order = events(CONVERSION)
    parts = [i for i, event in enumerate(order) if event == "ld.shared.v4"]
    others = [i for i, event in enumerate(order) if event == "ld.shared"]
    assert len(parts) == len(others) == 16 and max(parts) < min(others) < order.index("st.global")


OPERAND = "#dot_op<{opIdx = 1, parent = #mma<{versionMajor = 2, versionMinor = 0, warpsPerCTA = [1, 2], instrShape = [16, 8]}>, kWidth = 2}>"  # noqa: E501
COLUMNS = "#blocked<{sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [2], order = [0]}>"
OTHERS = COLUMNS.replace("[1]", "[4]")
SHARED = "memdesc<16x16xf16, #shared<{vec = 8, perPhase = 4, maxPhase = 2, order = [1, 0]}>>"  # noqa: E501
TILE = "tensor<16x16xf16, #blocked<{sizePerThread = [1, 4], threadsPerWarp = [8, 4], warpsPerCTA = [2, 1], order = [1, 0]}>>"  # noqa: E501
READ = f"""func @f(%out: ptr<f32>, %x: f16, %y: f32)
    attributes {{num_warps = 2, target = "sm_80", shared_bytes = 4096}} {{
  %tile = splat %x : (f16) -> {TILE}
  %buffer = local_alloc %tile {{offset = 2048}} : ({TILE}) -> {SHARED}
  barrier
  %b = local_load %buffer : ({SHARED}) -> tensor<16x16xf16, {OPERAND}>
  %v = splat %y : (f32) -> tensor<256xf32, {COLUMNS}>
  %w = convert_layout %v {{scratch_offset = 0}} : (tensor<256xf32, {COLUMNS}>) -> tensor<256xf32, {OTHERS}>
  %p = splat %out : (ptr<f32>) -> tensor<256xptr<f32>, {OTHERS}>
  store %p, %w {{vector = 4}} : (tensor<256xptr<f32>, {OTHERS}>, tensor<256xf32, {OTHERS}>)
  return
}}"""


def test_a_read_comes_before_the_barrier_of_a_later_conversion():
    """That barrier may be the only one between the read and what next overwrites the buffer."""
    ptx = interleaved(READ)
    order = re.findall(r"ldmatrix|bar\.sync|ld\.shared", ptx)
    assert order == ["bar.sync", "ldmatrix", "bar.sync", "ld.shared"], order
