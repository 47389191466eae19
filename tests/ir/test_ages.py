"""Waits for copies name them; how many newer groups they may leave follows, on every path."""

from __future__ import annotations

import pytest

from ptxforge.ir.ages import ages_at_waits
from ptxforge.ir.definition import COPIES
from ptxforge.ir.ops.shared import AsyncWait
from ptxforge.ir.parser import parse_function
from ptxforge.ir.verifier import verify
from ptxforge.support.errors import VerificationError

TOKEN = "token<cp.async>"
COMMIT = f"= async_commit_group : {TOKEN}\n"
COPY = "= async_copy_global_to_local %places, %tile : (tensor<4xptr<f32>>, memdesc<4xf32, #s, mutable>)"
COPY += f" -> {TOKEN}\n"
AHEAD = f"""%g0 {COMMIT}%g1 {COMMIT}
%a, %b = for %i = %zero to %n step %one iter_args(%old = %g0, %new = %g1) : {TOKEN}, {TOKEN} {{
  %t = async_wait %old {{num = NUM}} : {TOKEN}
  %g2 {COMMIT}
  yield %new, %g2
}}
"""
BRANCH = f"""%g0 {COMMIT}
%g = if %flag : {TOKEN} {{
  %g1 {COMMIT}%g2 {COMMIT}
  yield %g1
}} else {{
  yield %g0
}}
%g3 {COMMIT}%t = async_wait %g {{num = NUM}} : {TOKEN}
"""
WHILE = f"""%g0 {COMMIT}
%p, %g = while %flag, %g0 : i1, {TOKEN} {{
(%q: i1, %old: {TOKEN}):
  %g1 {COMMIT}
  condition %q, %flag, %old
}} body {{
(%r: i1, %now: {TOKEN}):
  %g2 {COMMIT}
  yield %r, %g2
}}
%t = async_wait %g {{num = NUM}} : {TOKEN}
"""
NAMED = f"""%c0 {COPY}%c1 {COPY}%g0 = async_commit_group %c1 : {TOKEN}
%c2 {COPY}%g1 = async_commit_group %c0, %c2 : {TOKEN}
%g2 {COMMIT}%t = async_wait %c0 {{num = NUM}} : {TOKEN}
"""
BODIES = {
    f"%g0 {COMMIT}%t = async_wait %g0 {{num = NUM}} : {TOKEN}": 0,
    f"%g0 {COMMIT}%g1 {COMMIT}%t = async_wait %g0, %g1 {{num = NUM}} : {TOKEN}": 0,
    f"%g0 {COMMIT}%g1 {COMMIT}%t = async_wait %g0 {{num = NUM}} : {TOKEN}": 1,
    f"%c {COPY}%g0 {COMMIT}%g1 {COMMIT}%t = async_wait %c {{num = NUM}} : {TOKEN}": 1,
    NAMED: 1,
    AHEAD: 1,
    AHEAD.replace("step %one", "step %n").replace("%new, %g2", "%g2, %g2"): 0,
    BRANCH: 1,
    WHILE: 1,
}


def parsed(body: str, num: int):
    head = "#s = #shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0]}>\n"
    head += "func @f(%x: ptr<f32>, %n: i32, %flag: i1) attributes {num_warps = 1} {\n"
    head += "%places = splat %x : (ptr<f32>) -> tensor<4xptr<f32>>\n"
    head += "%tile = local_alloc : () -> memdesc<4xf32, #s, mutable>\n"
    head += "%zero = constant {value = 0} : i32\n%one = constant {value = 1} : i32\n"
    return parse_function(f"{head}{body.replace('NUM', str(num))}\nreturn\n}}")


@pytest.mark.parametrize("body", BODIES)
def test_a_wait_may_leave_what_is_newer(body):
    most = BODIES[body]
    function = parsed(body, most)
    verify(function)
    (wait,) = function.walk(AsyncWait)
    assert ages_at_waits(function, COPIES) == {wait: most}
    with pytest.raises(VerificationError, match="invariant 16 does not hold in 'async_wait'"):
        verify(parsed(body, most + 1))


def test_a_wait_for_numbers_alone_names_nothing():
    function = parsed(f"%g0 {COMMIT}%t = async_wait {{num = NUM}} : {TOKEN}", 5)
    verify(function)
    assert not ages_at_waits(function, COPIES)
