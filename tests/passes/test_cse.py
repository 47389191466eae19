"""cse: equal computations once, loads as long as nothing is written, carried values that go alike."""

from __future__ import annotations

import pytest

from ptxforge.ir.ops.control import While
from ptxforge.passes.cse import cse
from tests.passes.harness import body, check, function, transform


def test_equal_and_commuted_operations():
    check(cse, """
      %a = addi %x, %y : i32
      %b = addi %y, %x : i32
      %c = subi %x, %y : i32
      %d = subi %y, %x : i32
      %e = muli %a, %b : i32
      %f = muli %c, %d : i32
      %g = muli %e, %f : i32
      store %p, %g : (ptr<i32>, i32)""", """
      %a = addi %x, %y : i32
      %c = subi %x, %y : i32
      %d = subi %y, %x : i32
      %e = muli %a, %a : i32
      %f = muli %c, %d : i32
      %g = muli %e, %f : i32
      store %p, %g : (ptr<i32>, i32)""")  # fmt: skip


@pytest.mark.parametrize("one, other, count", [
    ("constant {value = 1} : i32", "constant {value = 1} : i32", 1),
    ("constant {value = 1} : i32", "constant {value = 1} : i64", 2),
    ("constant {value = 0.0} : f32", "constant {value = -0.0} : f32", 2),
    ("constant {value = nan} : f32", "constant {value = nan} : f32", 1),
    ("cmpi %x, %y {predicate = \"slt\"} : i1", "cmpi %x, %y {predicate = \"ult\"} : i1", 2),
    ("addi %x, %y {divisibility = [4]} : i32", "addi %x, %y : i32", 1),
])  # fmt: skip
def test_attributes_and_types_count(one, other, count):
    before = function(
        f"%a = {one}\n%b = {other}\nprint %a, %b : ({one.split(': ')[-1]}, {other.split(': ')[-1]})"
    )
    after = before.clone()
    assert cse(after, None) == (count == 1)
    assert len(body(after).splitlines()) == count + 1


def test_hints_are_put_together():
    after = body(
        transform(
            cse,
            function("""
      %a = addi %x, %y {contiguity = [2]} : i32
      %b = addi %x, %y {divisibility = [4]} : i32
      %c = muli %a, %b : i32
      store %p, %c : (ptr<i32>, i32)"""),
        )
    )
    assert "%a = addi %x, %y {contiguity = [2], divisibility = [4]} : i32" in after


def test_scopes():
    check(cse, """
      %a = addi %x, %y : i32
      if %flag {
        %b = addi %x, %y : i32
        %c = muli %b, %b : i32
        store %p, %c : (ptr<i32>, i32)
        yield
      } else {
        %c2 = muli %a, %a : i32
        store %p, %c2 : (ptr<i32>, i32)
        yield
      }""", """
      %a = addi %x, %y : i32
      if %flag {
        %c = muli %a, %a : i32
        store %p, %c : (ptr<i32>, i32)
        yield
      } else {
        %c2 = muli %a, %a : i32
        store %p, %c2 : (ptr<i32>, i32)
        yield
      }""")  # fmt: skip


def test_reductions_with_equal_regions():
    text = """
      %r = make_range {start = 0, end = 8} : tensor<8xi32>
      %m = reduce %r {axis = 0} : (tensor<8xi32>) -> i32 {
        (%a: i32, %b: i32):
        %q = addi %a, %b : i32
        yield %q
      }
      %n = reduce %r {axis = 0} : (tensor<8xi32>) -> i32 {
        (%c: i32, %d: i32):
        %s = OP %d, %c : i32
        yield %s
      }
      %t = addi %m, %n : i32
      store %p, %t : (ptr<i32>, i32)"""
    assert body(transform(cse, function(text.replace("OP", "addi")))).count("reduce") == 1
    assert body(transform(cse, function(text.replace("OP", "muli")))).count("reduce") == 2


LOAD = "%v{} = load %p : (ptr<i32>) -> i32\n"
USE = "%s = addi %v1, %v2 : i32\nstore %p, %s : (ptr<i32>, i32)"


@pytest.mark.parametrize("between, loads", [
    ("", 1),
    ("%a = addi %x, %y : i32", 1),
    ("store %p, %x : (ptr<i32>, i32)", 2),
    ("%o = atomic_rmw %p, %x {kind = \"add\"} : (ptr<i32>, i32) -> i32", 2),
    ("barrier", 2),
    ("if %flag {\nstore %p, %x : (ptr<i32>, i32)\nyield\n} else {\nyield\n}", 2),
    ("if %flag {\nprint %x : (i32)\nyield\n} else {\nyield\n}", 2),
])  # fmt: skip
def test_loads_are_merged_unless_something_was_written(between, loads):
    before = function(LOAD.format(1) + between + "\n" + LOAD.format(2) + USE)
    assert body(transform(cse, before)).count("load") == loads


def test_a_loop_writes_before_it_reads():
    text = """
      %c = constant {value = 1} : i32
      %v1 = load %p : (ptr<i32>) -> i32
      for %i = %c to %x step %c {
        %v2 = load %p : (ptr<i32>) -> i32
        %s = addi %v1, %v2 : i32
        store %p, %s : (ptr<i32>, i32)
        yield
      }"""
    assert body(transform(cse, function(text))).count("load") == 2


def test_volatile_loads_stay():
    load = "%v{} = load %p {{volatile = true}} : (ptr<i32>) -> i32\n"
    assert body(transform(cse, function(load.format(1) + load.format(2) + USE))).count("load") == 2


def test_carried_values_that_go_alike():
    check(cse, """
      %c = constant {value = 1} : i32
      %r, %s, %t = for %i = %c to %x step %c iter_args(%a = %y, %b = %y, %d = %y) : i32, i32, i32 {
        %e = muli %a, %i : i32
        %f = muli %b, %i : i32
        %g = addi %e, %c : i32
        %h = addi %f, %c : i32
        %j = addi %d, %f : i32
        yield %g, %h, %j
      }
      %u = muli %r, %s : i32
      %v = muli %u, %t : i32
      store %p, %v : (ptr<i32>, i32)""", """
      %c = constant {value = 1} : i32
      %r, %t = for %i = %c to %x step %c iter_args(%a = %y, %d = %y) : i32, i32 {
        %e = muli %a, %i : i32
        %g = addi %e, %c : i32
        %j = addi %d, %e : i32
        yield %g, %j
      }
      %u = muli %r, %r : i32
      %v = muli %u, %t : i32
      store %p, %v : (ptr<i32>, i32)""")  # fmt: skip


def test_carried_values_that_go_alike_once_their_body_is_done():
    """By two loads, which are one by then."""
    check(cse, """
      %c = constant {value = 1} : i32
      %r, %s = for %i = %c to %x step %c iter_args(%a = %y, %b = %y) : i32, i32 {
        %e = load %p : (ptr<i32>) -> i32
        %f = load %p : (ptr<i32>) -> i32
        %g = addi %a, %e : i32
        %h = addi %b, %f : i32
        yield %g, %h
      }
      %u = muli %r, %s : i32
      store %p, %u : (ptr<i32>, i32)""", """
      %c = constant {value = 1} : i32
      %r = for %i = %c to %x step %c iter_args(%a = %y) : i32 {
        %e = load %p : (ptr<i32>) -> i32
        %g = addi %a, %e : i32
        yield %g
      }
      %u = muli %r, %r : i32
      store %p, %u : (ptr<i32>, i32)""")  # fmt: skip


def test_carried_values_that_take_what_others_were():
    """The two that are passed on as others go alike when these do."""
    check(cse, """
      %c = constant {value = 1} : i32
      %q, %r, %s, %t = for %i = %c to %x step %c iter_args(%a = %y, %b = %x, %d = %x, %e = %y)
          : i32, i32, i32, i32 {
        yield %b, %i, %i, %d
      }
      %u = muli %q, %r : i32
      %v = muli %s, %t : i32
      %w = subi %u, %v : i32
      store %p, %w : (ptr<i32>, i32)""", """
      %c = constant {value = 1} : i32
      %q, %r = for %i = %c to %x step %c iter_args(%a = %y, %b = %x) : i32, i32 {
        yield %b, %i
      }
      %u = muli %q, %r : i32
      %w = subi %u, %u : i32
      store %p, %w : (ptr<i32>, i32)""")  # fmt: skip


def test_values_that_a_while_carries_alike():
    check(cse, """
      %c = constant {value = 1} : i32
      %r, %s = while %x, %x : i32, i32 {
        (%a: i32, %b: i32):
        %t = cmpi %a, %c {predicate = "sgt"} : i1
        %d = addi %a, %c : i32
        %e = addi %b, %c : i32
        condition %t, %d, %e
      } body {
        (%f: i32, %g: i32):
        %h = divsi %f, %f : i32
        %j = divsi %g, %g : i32
        yield %h, %j
      }
      %u = muli %r, %s : i32
      store %p, %u : (ptr<i32>, i32)""", """
      %c = constant {value = 1} : i32
      %r = while %x : i32 {
        (%a: i32):
        %t = cmpi %a, %c {predicate = "sgt"} : i1
        %d = addi %a, %c : i32
        condition %t, %d
      } body {
        (%f: i32):
        %h = divsi %f, %f : i32
        yield %h
      }
      %u = muli %r, %r : i32
      store %p, %u : (ptr<i32>, i32)""")  # fmt: skip


def test_values_that_part_in_either_region_of_a_while_stay():
    text = """
      %c = constant {value = 1} : i32
      %r, %s = while %x, %x : i32, i32 {
        (%a: i32, %b: i32):
        %t = cmpi %a, %c {predicate = "sgt"} : i1
        condition %t, %a, FIRST
      } body {
        (%f: i32, %g: i32):
        %h = divsi %f, %f : i32
        %j = divsi SECOND, %f : i32
        yield %h, %j
      }
      %u = subi %r, %s : i32
      store %p, %u : (ptr<i32>, i32)"""
    for first, second, count in (("%b", "%g", 1), ("%c", "%g", 2), ("%b", "%c", 2)):
        after = transform(cse, function(text.replace("FIRST", first).replace("SECOND", second)))
        (loop,) = (op for op in after.walk() if isinstance(op, While))
        assert len(loop.results) == count


def test_carried_values_that_part_stay():
    text = """
      %c = constant {value = 1} : i32
      %r, %s = for %i = %c to %x step %c iter_args(%a = %y, %b = %y) : i32, i32 {
        %e = addi %a, %i : i32
        %f = addi %b, %c : i32
        yield %e, %f
      }
      %u = subi %r, %s : i32
      store %p, %u : (ptr<i32>, i32)"""
    assert "iter_args(%a = %y, %b = %y)" in body(transform(cse, function(text)))
