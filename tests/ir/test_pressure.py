"""Estimates of registers: of tensors, of what a loop of products holds."""

from __future__ import annotations

from ptxforge.ir.ops.control import For
from ptxforge.ir.ops.dot import Dot
from ptxforge.ir.parser import parse_function
from ptxforge.ir.pressure import held_by_loop, largest_tile, registers_of

MMA = "#mma<{versionMajor = 2, versionMinor = 0, warpsPerCTA = [2, 2], instrShape = [16, 8]}>"
A = f"tensor<64x16xf16, #dot_op<{{opIdx = 0, parent = {MMA}, kWidth = 2}}>>"
B = f"tensor<16x64xf16, #dot_op<{{opIdx = 1, parent = {MMA}, kWidth = 2}}>>"
SUM = f"tensor<64x64xf32, {MMA}>"
TEXT = f"""func @f(%n: i32, %x: f16, %y: f32) attributes {{num_warps = 4}} {{
  %zero = constant {{value = 0}} : i32
  %one = constant {{value = 1}} : i32
  %a = splat %x : (f16) -> {A}
  %start = splat %x : (f16) -> {B}
  %sum = splat %y : (f32) -> {SUM}
  %r0, %r1 = for %i = %zero to %n step %one iter_args(%c = %sum, %b = %start) : {SUM}, {B} {{
    %d = dot %a, %b, %c : ({A}, {B}, {SUM}) -> {SUM}
    yield %d, %b
  }}
  return
}}"""


def test_a_loop_holds_sums_and_operands_that_it_does_not_change():
    """64·64 sums of 32 bits in 128 threads; 64·16 halves, in two copies; the other operand is on its way."""
    function = parse_function(TEXT)
    (dot,), (loop,) = function.walk(Dot), function.walk(For)
    assert registers_of(dot.result.type) == largest_tile(function) == 32
    assert registers_of(dot.a.type) == registers_of(dot.b.type) == 8
    assert held_by_loop(loop) == 32 + 8
