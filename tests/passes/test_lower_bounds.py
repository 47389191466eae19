"""lower_bounds: the bounds of a box as comparisons, exact for every offset and size."""

from __future__ import annotations

import numpy as np
import pytest

from ptxforge.interpreter import run
from ptxforge.ir.parser import parse_function
from ptxforge.passes.lower_bounds import lower_bounds
from tests.passes.harness import TARGET, check, transform

BODY = """
      %m = in_bounds {offset}, {size} : ({types}) -> tensor<16xi1>
      %one = extui %m : (tensor<16xi1>) -> tensor<16xi32>
      %i = make_range {{start = 0, end = 16}} : tensor<16xi32>
      %s = splat %p : (ptr<i32>) -> tensor<16xptr<i32>>
      %q = addptr %s, %i : tensor<16xptr<i32>>
      store %q, %one : (tensor<16xptr<i32>>, tensor<16xi32>)"""


def _function(types: str):
    offset, size = types.split(", ")
    body = BODY.format(offset="%a", size="%n", types=types)
    return parse_function(
        f"func @f(%p: ptr<i32>, %a: {offset}, %n: {size}) attributes {{num_warps = 4}} {{\n{body}\nreturn\n}}"
    )


NUMBERS = (0, 1, -1, -15, -16, 5, 100, 2**31, 2**40, -(2**31) - 7)
LIMITS = {"i32": 2**31, "i64": 2**62}


@pytest.mark.parametrize("types", ["i32, i32", "i32, i64", "i64, i32", "i64, i64"])
def test_every_offset_and_size(types):
    """Around 0, around the size, and at the ends of the types."""
    before = _function(types)
    after = before.clone()
    assert lower_bounds(after, TARGET) and not lower_bounds(after, TARGET)
    offsets, sizes = (
        [x for x in (*NUMBERS, limit - 1, -limit) if -limit <= x < limit]
        for limit in map(LIMITS.get, types.split(", "))
    )
    for offset in offsets:
        for size in sizes:
            expected = [0 <= offset + i < size for i in range(16)]
            for function in (before, after):
                out = np.zeros(16, np.int32)
                run(function, 1, [out, offset, size])
                assert out.tolist() == expected, (offset, size)


def test_any_offset():
    check(lower_bounds, """
      %m = in_bounds %x, %y : (i32, i32) -> tensor<16xi1>""", """
      %0 = make_range {start = 0, end = 16} : tensor<16xi32>
      %1 = extsi %y : (i32) -> i64
      %2 = extsi %x : (i32) -> i64
      %3 = subi %1, %2 : i64
      %4 = constant {value = 0} : i64
      %5 = maxsi %3, %4 : i64
      %6 = constant {value = 16} : i64
      %7 = minsi %5, %6 : i64
      %8 = trunci %7 : (i64) -> i32
      %9 = splat %8 : (i32) -> tensor<16xi32>
      %10 = cmpi %0, %9 {predicate = "slt"} : tensor<16xi1>
      %11 = constant {value = 0} : i64
      %12 = extsi %x : (i32) -> i64
      %13 = subi %11, %12 : i64
      %14 = constant {value = 0} : i64
      %15 = maxsi %13, %14 : i64
      %16 = constant {value = 16} : i64
      %17 = minsi %15, %16 : i64
      %18 = trunci %17 : (i64) -> i32
      %19 = splat %18 : (i32) -> tensor<16xi32>
      %20 = cmpi %0, %19 {predicate = "sge"} : tensor<16xi1>
      %m = andi %10, %20 : tensor<16xi1>""")



def test_an_offset_that_is_not_negative():
    """One comparison, and 32 bits where they suffice."""
    check(lower_bounds, """
      %pid = get_program_id {axis = 0} : i32
      %n = extsi %x : (i32) -> i64
      %m = in_bounds %pid, %n : (i32, i64) -> tensor<16xi1>""", """
      %pid = get_program_id {axis = 0} : i32
      %n = extsi %x : (i32) -> i64
      %0 = make_range {start = 0, end = 16} : tensor<16xi32>
      %1 = constant {value = 0} : i32
      %2 = maxsi %x, %1 : i32
      %3 = subi %2, %pid : i32
      %4 = splat %3 : (i32) -> tensor<16xi32>
      %m = cmpi %0, %4 {predicate = "slt"} : tensor<16xi1>""")


def test_an_offset_that_a_loop_advances():
    """It begins at 0 and grows."""
    after = transform(lower_bounds, parse_function("""
      func @f(%p: ptr<i32>, %n: i32) attributes {num_warps = 4} {
        %c0 = constant {value = 0} : i32
        %c16 = constant {value = 16} : i32
        %end = for %i = %c0 to %n step %c16 iter_args(%offset = %c0) : i32 {
          %m = in_bounds %offset, %n : (i32, i32) -> tensor<16xi1>
          %next = addi %offset, %c16 : i32
          yield %next
        }
        return
      }"""))
    assert [op.predicate for op in after.walk() if op.name == "cmpi"] == ["slt"]


def test_a_box_that_lies_inside():
    check(lower_bounds, """
      %a = constant {value = 16} : i32
      %n = constant {value = 32} : i64
      %m = in_bounds %a, %n : (i32, i64) -> tensor<16xi1>""", """
      %a = constant {value = 16} : i32
      %n = constant {value = 32} : i64
      %m = constant {value = true} : tensor<16xi1>""")
