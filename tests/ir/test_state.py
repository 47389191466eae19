"""A function's state tells of every change that a verifier could see."""

from __future__ import annotations

import pytest

from ptxforge.ir import types as T
from ptxforge.ir.parser import parse_function
from ptxforge.ir.state import State

TEXT = """func @f(%x: i32, %y: i32) attributes {num_warps = 4} {
  %zero = constant {value = 0} : i32
  %a = addi %x, %y : i32
  %b = muli %a, %y {divisibility = 16} : i32
  %sum = for %i = %zero to %x step %y iter_args(%c = %b) : i32 {
    %d = subi %c, %i : i32
    yield %d
  }
  return
}"""


def operation(function, name):
    (found,) = (op for op in function.walk() if op.name == name)
    return found


def exchange_operands(function):
    op = operation(function, "subi")
    op.set_operands(op.operands[::-1])


def use_another_value(function):
    operation(function, "muli").set_operand(1, function.arguments[0])


def forget_a_use(function):
    function.arguments[0].uses.popitem()


def move(function):
    operation(function, "subi").parent.first.move_before(operation(function, "muli"))


def exchange_neighbours(function):
    operation(function, "constant").move_after(operation(function, "addi"))


def erase(function):
    operation(function, "subi").parent.last.erase()


def unlink(function):
    operation(function, "muli").previous = None


def misplace(function):
    operation(function, "muli").parent = operation(function, "subi").parent


def lose_the_end(function):
    function.body.last = operation(function, "addi")


def write_an_attribute(function):
    operation(function, "subi").attributes["stage"] = 1


def write_one_of_another_type(function):
    operation(function, "constant").attributes["value"] = False


def drop_an_attribute(function):
    del operation(function, "muli").attributes["divisibility"]


def change_a_result(function):
    operation(function, "muli").result.type = T.I64


def add_a_result(function):
    operation(function, "for").add_result(T.I64)


def change_an_argument(function):
    operation(function, "for").regions[0].block.arguments[1].type = T.I64


def add_an_argument(function):
    operation(function, "for").regions[0].block.add_argument(T.I64)


def rename_a_parameter(function):
    function.arguments[0].name = "y"


def promise_of_a_parameter(function):
    function.arguments[0].attributes["divisibility"] = 16


def more_warps(function):
    function.attributes["num_warps"] = 8


def take_a_region_from_its_operation(function):
    operation(function, "for").regions[0].parent = None


def lose_a_region(function):
    operation(function, "for").regions = ()


CHANGES = [
    exchange_operands, use_another_value, forget_a_use, move, exchange_neighbours, erase, unlink, misplace,
    lose_the_end, write_an_attribute, write_one_of_another_type, drop_an_attribute, change_a_result,
    add_a_result, change_an_argument, add_an_argument, rename_a_parameter, promise_of_a_parameter, more_warps,
    take_a_region_from_its_operation, lose_a_region,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_seen(change):
    function = parse_function(TEXT)
    before = State(function)
    change(function)
    assert not before.agrees(State(function))


def test_where_nothing_changes_states_agree():
    function = parse_function(TEXT)
    before = State(function)
    assert before.agrees(State(function)) and State(function).agrees(before)


def test_copies_are_told_apart():
    function = parse_function(TEXT)
    assert not State(function).agrees(State(function.clone()))
