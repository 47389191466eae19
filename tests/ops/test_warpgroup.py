"""Asynchronous matrix products: text, verifier, and what the interpreter makes of them."""

from __future__ import annotations

import numpy as np
import pytest

from ptxforge.interpreter import run
from ptxforge.ir.parser import parse_function
from ptxforge.ir.printer import print_function
from ptxforge.ir.verifier import verify
from ptxforge.support.errors import InterpreterError, IRError, VerificationError

TEXT = """\
#a = #panels<{swizzle = 128, elementBits = 16, order = [1, 0]}>
#b = #blocked<{sizePerThread = [1, 8], threadsPerWarp = [4, 8], warpsPerCTA = [4, 1], order = [1, 0]}>
#mma = #mma<{versionMajor = 3, versionMinor = 0, warpsPerCTA = [4, 1], instrShape = [16, 64, 16]}>
func @product(%x: ptr<f16>, %out: ptr<f32>) attributes {num_warps = 4, target = "sm_90a"} {
  %i = make_range {start = 0, end = 64} : tensor<64xi32, #slice<{dim = 1, parent = #b}>>
  %j = make_range {start = 0, end = 64} : tensor<64xi32, #slice<{dim = 0, parent = #b}>>
  %i2 = expand_dims %i {axis = 1} : (tensor<64xi32, #slice<{dim = 1, parent = #b}>>) \
-> tensor<64x1xi32, #b>
  %j2 = expand_dims %j {axis = 0} : (tensor<64xi32, #slice<{dim = 0, parent = #b}>>) \
-> tensor<1x64xi32, #b>
  %w = constant {value = 64} : tensor<64x1xi32, #b>
  %r = muli %i2, %w : tensor<64x1xi32, #b>
  %rr = broadcast %r : (tensor<64x1xi32, #b>) -> tensor<64x64xi32, #b>
  %cc = broadcast %j2 : (tensor<1x64xi32, #b>) -> tensor<64x64xi32, #b>
  %o = addi %rr, %cc : tensor<64x64xi32, #b>
  %s = splat %x : (ptr<f16>) -> tensor<64x64xptr<f16>, #b>
  %p = addptr %s, %o : tensor<64x64xptr<f16>, #b>
  %v = load %p : (tensor<64x64xptr<f16>, #b>) -> tensor<64x64xf16, #b>
  %m = local_alloc %v : (tensor<64x64xf16, #b>) -> memdesc<64x64xf16, #a, mutable>
  %zero = constant {value = 0.0} : tensor<64x64xf32, #mma>
  %f = dot_begin %zero {is_zero = true} : (tensor<64x64xf32, #mma>) -> flight<tensor<64x64xf32, #mma>>
  fence_async
  barrier
  %g = dot_async %m, %m, %f : (memdesc<64x64xf16, #a, mutable>, memdesc<64x64xf16, #a, mutable>, \
flight<tensor<64x64xf32, #mma>>) -> flight<tensor<64x64xf32, #mma>>
  BETWEEN
  %d = dot_wait %g : (flight<tensor<64x64xf32, #mma>>) -> tensor<64x64xf32, #mma>
  %e = convert_layout %d : (tensor<64x64xf32, #mma>) -> tensor<64x64xf32, #b>
  %so = splat %out : (ptr<f32>) -> tensor<64x64xptr<f32>, #b>
  %q = addptr %so, %o : tensor<64x64xptr<f32>, #b>
  store %q, %e : (tensor<64x64xptr<f32>, #b>, tensor<64x64xf32, #b>)
  return
}
"""


def parsed(between: str = "", text: str = TEXT):
    function = parse_function(text.replace("  BETWEEN\n", f"  {between}\n" if between else ""))
    verify(function)
    return function


def test_text_round_trips():
    text = print_function(parsed())
    assert print_function(parse_function(text)) == text
    assert "flight<tensor<64x64xf32, #mma>>" in text


def test_meaning():
    x = np.random.default_rng(0).integers(-3, 4, (64, 64)).astype(np.float16)
    out = np.zeros((64, 64), np.float32)
    run(parsed(), 1, [x, out])
    np.testing.assert_array_equal(out, x.astype(np.float32) @ x.astype(np.float32))


def test_operand_that_changes_before_the_wait_is_found():
    store = "local_store %v2, %m : (tensor<64x64xf16, #b>, memdesc<64x64xf16, #a, mutable>)"
    negated = "%v2 = addf %v, %v : tensor<64x64xf16, #b>\n  "
    function = parsed(negated + store)
    x = np.ones((64, 64), np.float16)
    with pytest.raises(InterpreterError, match="overwritten before its wait"):
        run(function, 1, [x, np.zeros((64, 64), np.float32)])


FLIGHT = "flight<tensor<64x64xf32, #mma>>"
LATER = """%f2 = dot_begin %zero : (tensor<64x64xf32, #mma>) -> FLIGHT
  %g2 = dot_async %m, %m, %f2 : (memdesc<64x64xf16, #a, mutable>, memdesc<64x64xf16, #a, mutable>, FLIGHT) \
-> FLIGHT
  dot_wait NAMED
  %v2 = addf %v, %v : tensor<64x64xf16, #b>
  local_store %v2, %m : (tensor<64x64xf16, #b>, memdesc<64x64xf16, #a, mutable>)
  %d2 = dot_wait %g2 : (FLIGHT) -> tensor<64x64xf32, #mma>"""


def test_a_wait_finishes_what_it_names():
    """Not what started later: that may still read its operands, where nobody may store yet."""
    arguments = [np.ones((64, 64), np.float16), np.zeros((64, 64), np.float32)]
    one, both = "%g {stays = 1} : (FLIGHT)", "%g, %g2 {stays = 2} : (FLIGHT, FLIGHT)"
    run(parsed(LATER.replace("NAMED", both).replace("FLIGHT", FLIGHT)), 1, arguments)
    with pytest.raises(InterpreterError, match="overwritten before its wait"):
        run(parsed(LATER.replace("NAMED", one).replace("FLIGHT", FLIGHT)), 1, arguments)


@pytest.mark.parametrize("wait", ["dot_wait", f"dot_wait %g {{stays = 2}} : ({FLIGHT})"])
def test_a_wait_names_a_flight(wait):
    with pytest.raises((VerificationError, IRError), match="flights, of which"):
        parsed(wait)


def test_other_layouts_are_no_accumulators():
    accumulators = "(tensor<64x64xf32, #mma>) -> flight<tensor<64x64xf32, #mma>>"
    others = "(tensor<64x1xi32, #b>) -> flight<tensor<64x1xi32, #b>>"
    text = TEXT.replace("BETWEEN", "").replace(
        "dot_begin %zero {is_zero = true} : " + accumulators, "dot_begin %w : " + others
    )
    with pytest.raises((VerificationError, IRError)):
        parsed(text=text)


def test_a_flight_is_of_a_tensor():
    with pytest.raises(IRError, match="a flight is of a tensor"):
        parse_function(TEXT.replace("BETWEEN", "").replace("flight<tensor<64x64xf32, #mma>>", "flight<f32>"))


WAIT = f"%d = dot_wait %g : ({FLIGHT}) -> tensor<64x64xf32, #mma>"
LOOP = f"""%one = constant {{value = 1}} : i32
  %last = for %k = %one to %one step %one iter_args(%before = %g) : {FLIGHT} {{
    %more = dot_async %m, %m, %before : (memdesc<64x64xf16, #a, mutable>, memdesc<64x64xf16, #a, mutable>, \
{FLIGHT}) -> {FLIGHT}
    yield %more
  }}
  """


def test_flights_land():
    """Those that a loop carries land behind it, or in its next iteration."""
    behind = LOOP + WAIT.replace("%g", "%last")
    at_once = WAIT.replace("%g", "%before").replace("%d", "%now")
    within = LOOP.replace("    %more", f"    {at_once}\n    %more") + WAIT
    for carried in (behind, within):
        parsed(text=TEXT.replace(WAIT, carried).replace("BETWEEN", ""))
    lost = LOOP + "%d = constant {value = 0.0} : tensor<64x64xf32, #mma>"
    with pytest.raises(VerificationError, match="invariant 15 .* nobody waits for its products"):
        parsed(text=TEXT.replace(WAIT, lost).replace("BETWEEN", ""))
