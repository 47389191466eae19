"""Walks over operations, whose answer is kept."""

from __future__ import annotations

import pytest

from ptxforge.ir.core import Operation
from ptxforge.ir.definition import SIDE_EFFECT, define
from ptxforge.ir.ops.control import For, Yield
from ptxforge.ir.ops.memory import Store
from ptxforge.ir.parser import parse_function

LOOP = """func @f(%p: ptr<i32>, %n: i32) {
  %zero = constant {value = 0} : i32
  %one = constant {value = 1} : i32
  for %i = %zero to %n step %one {
    %x = addi %i, %one : i32
    store %p, %x : (ptr<i32>, i32)
    yield
  }
  return
}
"""


def names(place):
    return [op.name for op in place.walk()]


def test_a_walk_shows_what_was_put_elsewhere_since_the_last():
    function = parse_function(LOOP)
    (loop,) = function.walk(For)
    before = ["constant", "constant", "for", "addi", "store", "yield", "return"]
    assert names(function) == before and names(loop) == before[2:6] and names(loop.body) == before[3:6]
    store = loop.body.walk(Store)[0]
    store.move_after(loop)
    assert names(function) == ["constant", "constant", "for", "addi", "yield", "store", "return"]
    assert names(loop) == ["for", "addi", "yield"] and not loop.body.walk(Store)
    store.erase()
    loop.body.first.erase()
    loop.body.append(loop.body.last.remove().clone())
    assert names(function) == ["constant", "constant", "for", "yield", "return"]
    assert function.walk(Yield) == (loop.body.last,)


def test_what_is_done_meanwhile_does_not_show():
    function = parse_function(LOOP)
    seen = []
    for op in function.walk((Store, Yield)):
        seen.append(op.name)
        if isinstance(op, Store):
            op.erase()
    assert seen == ["store", "yield"] and function.has(Yield) and not function.has(Store)


def test_a_walk_of_a_block_is_kept_while_others_change():
    function = parse_function(LOOP)
    (loop,) = function.walk(For)
    inside, around = loop.body.walk(), function.walk()
    function.body.first.move_after(function.body.first.next)
    assert loop.body.walk() is inside and function.walk() != around
    around = function.walk()
    loop.body.first.remove()
    assert len(function.walk()) == len(around) - 1


def test_what_may_act():
    function = parse_function(LOOP)
    assert [op.name for op in function.acting()] == ["store"]
    function.walk(Store)[0].erase()
    assert not function.acting()


def test_what_may_act_is_defined_so():
    with pytest.raises(TypeError, match="operation 'secretive' may have effects, but is defined without"):

        @define("secretive")
        class Secretive(Operation):
            """Acts now and then."""

            def get_effects(self):
                return SIDE_EFFECT
