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
    room = 2**31 if types == "i32, i32" else 2**64
    for offset in offsets:
        for size in [size for size in sizes if 0 <= size < room + offset]:
            expected = [0 <= offset + i < size for i in range(16)]
            for function in (before, after):
                out = np.zeros(16, np.int32)
                run(function, 1, [out, offset, size])
                assert out.tolist() == expected, (offset, size)


def test_any_offset():
    check(lower_bounds, """
      %m = in_bounds %x, %y : (i32, i32) -> tensor<16xi1>""", """
      %0 = make_range {start = 0, end = 16} : tensor<16xi32>
      %1 = subi %y, %x : i32
      %2 = splat %1 : (i32) -> tensor<16xi32>
      %3 = cmpi %0, %2 {predicate = "slt"} : tensor<16xi1>
      %4 = constant {value = 0} : i32
      %5 = subi %4, %x : i32
      %6 = splat %5 : (i32) -> tensor<16xi32>
      %7 = cmpi %0, %6 {predicate = "sge"} : tensor<16xi1>
      %m = andi %3, %7 : tensor<16xi1>""")


def test_wide_numbers():
    """Cut to the box while they have 64 bits."""
    check(lower_bounds, """
      %m = in_bounds %x, %z : (i32, i64) -> tensor<16xi1>""", """
      %0 = make_range {start = 0, end = 16} : tensor<16xi32>
      %1 = extsi %x : (i32) -> i64
      %2 = subi %z, %1 : i64
      %3 = constant {value = 0} : i64
      %4 = maxsi %2, %3 : i64
      %5 = constant {value = 16} : i64
      %6 = minsi %4, %5 : i64
      %7 = trunci %6 : (i64) -> i32
      %8 = splat %7 : (i32) -> tensor<16xi32>
      %9 = cmpi %0, %8 {predicate = "slt"} : tensor<16xi1>
      %10 = constant {value = 0} : i32
      %11 = constant {value = 0} : i64
      %12 = subi %11, %1 : i64
      %13 = constant {value = 0} : i64
      %14 = maxsi %12, %13 : i64
      %15 = constant {value = 16} : i64
      %16 = minsi %14, %15 : i64
      %17 = trunci %16 : (i64) -> i32
      %18 = splat %17 : (i32) -> tensor<16xi32>
      %19 = cmpi %0, %18 {predicate = "sge"} : tensor<16xi1>
      %m = andi %9, %19 : tensor<16xi1>""", parameters="%x: i32, %z: i64")


def test_an_offset_that_is_not_negative():
    """One comparison, and 32 bits where they suffice."""
    check(lower_bounds, """
      %pid = get_program_id {axis = 0} : i32
      %n = extsi %x : (i32) -> i64
      %m = in_bounds %pid, %n : (i32, i64) -> tensor<16xi1>""", """
      %pid = get_program_id {axis = 0} : i32
      %n = extsi %x : (i32) -> i64
      %0 = make_range {start = 0, end = 16} : tensor<16xi32>
      %1 = subi %x, %pid : i32
      %2 = splat %1 : (i32) -> tensor<16xi32>
      %m = cmpi %0, %2 {predicate = "slt"} : tensor<16xi1>""")


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
