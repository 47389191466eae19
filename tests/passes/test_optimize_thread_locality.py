"""optimize_thread_locality: reductions that a loop accumulates cross threads once, after the loop."""

from __future__ import annotations

import pytest

from ptxforge.ir.ops.arith import MulF
from ptxforge.ir.ops.control import For
from ptxforge.ir.ops.reduce import Reduce
from ptxforge.ir.parser import parse_function
from ptxforge.layouts.linear import LANE, WARP
from ptxforge.layouts.scratch import axis_bits
from ptxforge.passes.optimize_thread_locality import optimize_thread_locality
from ptxforge.passes.remove_layout_conversions import remove_layout_conversions
from tests.passes.gpu import TARGET, apply, operations, parse, same_meaning, up_to
from tests.passes.kernels import ADD, COLUMN_SUM, ONLINE_SOFTMAX


def crosses_threads(reduce: Reduce) -> bool:
    type = reduce.inputs[0].type
    linear = type.layout.linear(type.shape)
    return bool(axis_bits(linear, reduce.axis, LANE) or axis_bits(linear, reduce.axis, WARP))


def rewritten(text_or_function):
    function = parse_function(text_or_function) if isinstance(text_or_function, str) else text_or_function
    before = up_to(function, remove_layout_conversions)
    return before, apply(before, optimize_thread_locality)


def test_column_sum_crosses_threads_after_the_loop_only():
    before, after = rewritten(COLUMN_SUM)
    (loop,) = operations(after, For)
    inside = [op for op in loop.body.walk() if isinstance(op, Reduce)]
    outside = [op for op in operations(after, Reduce) if op not in inside]
    assert inside and not any(map(crosses_threads, inside))
    assert len(outside) == 1 and crosses_threads(outside[0])
    assert len(loop.results) == 1
    same_meaning(before, after, {"m": 100, "n": 128})


def test_scaled_sums_are_scaled_part_by_part():
    """Attention's denominator: the maximum must cross lanes in every step, the sum need not."""
    before, after = rewritten(ONLINE_SOFTMAX)
    (loop,) = operations(after, For)
    inside = [op for op in loop.body.walk() if isinstance(op, Reduce)]
    assert [op.combine_name for op in inside if crosses_threads(op)] == ["maxnumf"]
    assert len(loop.results) == 2, "an accumulator that begins at 0 is not carried twice"
    same_meaning(before, after, {"n": 192}, rtol=1e-4)


def test_a_scaled_start_is_carried_on():
    text = ONLINE_SOFTMAX.replace("%zero = constant {value = 0.0}", "%zero = constant {value = 3.0}")
    before, after = rewritten(text)
    (loop,) = operations(after, For)
    assert len(loop.results) == 3 and len(operations(after, MulF)) == 2
    same_meaning(before, after, {"n": 192}, rtol=1e-4)


VECTOR = """
  %c0 = constant {{value = 0}} : i32
  %c512 = constant {{value = 512}} : i32
  %r = make_range {{start = 0, end = 512}} : tensor<512xi32>
  %s = splat %x : (ptr<{t}>) -> tensor<512xptr<{t}>>
  %init = constant {{value = {start}}} : {t}
  %a = for %i = %c0 to %n step %c512 iter_args(%b = %init) : {t} {{
    %is = splat %i : (i32) -> tensor<512xi32>
    %o = addi %is, %r : tensor<512xi32>
    %p = addptr %s, %o : tensor<512xptr<{t}>>
    %v = load %p : (tensor<512xptr<{t}>>) -> tensor<512x{t}>
    %d = reduce %v {{axis = 0}} : (tensor<512x{t}>) -> {t} {{
      (%e: {t}, %f: {t}):
      %g = {op} %e, %f : {t}
      yield %g
    }}
    %h = {op} {order} : {t}
    yield %h
  }}
  store %out, %a : (ptr<{t}>, {t})"""


@pytest.mark.parametrize(("op", "type", "start"), [
    ("addf", "f32", "0.0"), ("addf", "f32", "2.5"), ("mulf", "f32", "1.0"), ("maxnumf", "f32", "-1.0"),
    ("minimumf", "f32", "9.0"),
    ("addi", "i32", "7"), ("maxsi", "i32", "-3"), ("minsi", "i32", "5"), ("maxui", "i32", "1"),
    ("minui", "i32", "9"),
    ("xori", "i32", "12"), ("andi", "i32", "255"), ("ori", "i32", "1"), ("minsi", "i16", "5"),
])  # fmt: skip
@pytest.mark.parametrize("order", ["%b, %d", "%d, %b"])
def test_scalar_accumulators(op, type, start, order):
    body = VECTOR.format(op=op, t=type, start=start, order=order)
    function = parse(body, parameters=f"%x: ptr<{type}> {{divisibility = 16}}, %out: ptr<{type}>, %n: i32")
    before, after = rewritten(function)
    (loop,) = operations(after, For)
    assert not any(crosses_threads(op) for op in loop.body.walk() if isinstance(op, Reduce))
    for n in (0, 512, 1500):
        same_meaning(before, after, {"n": n}, rtol=1e-3)


@pytest.mark.parametrize(("change", "why"), [
    (("%h = addf %b, %d", "%h = subf %b, %d"), "no sum"),
    (("yield %h", "store %out, %h : (ptr<f32>, f32)\n yield %h"), "the value is used in every step"),
    (("yield %h", "store %out, %b : (ptr<f32>, f32)\n yield %h"), "the carried value is used in every step"),
    (("yield %h", "store %out, %d : (ptr<f32>, f32)\n yield %h"), "the reduction is used in every step"),
    (("%g = addf %e, %f", "%g = maxnumf %e, %f"), "another operation than the reduction's"),
])  # fmt: skip
def test_left_alone(change, why):
    body = VECTOR.format(op="addf", t="f32", start="0.0", order="%b, %d").replace(*change)
    function = parse(body, parameters="%x: ptr<f32> {divisibility = 16}, %out: ptr<f32>, %n: i32")
    assert not optimize_thread_locality(up_to(function, remove_layout_conversions), TARGET), why


def test_no_loop_no_change():
    assert not optimize_thread_locality(up_to(parse_function(ADD), remove_layout_conversions), TARGET)
