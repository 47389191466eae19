"""dce: what nothing depends on goes, around loops and through branches."""

from __future__ import annotations

from ptxforge.passes.dce import dce
from tests.passes.harness import body, check, function, transform


def test_chains_and_unused_loads_go_stores_and_atomics_stay():
    check(dce, """
      %a = addi %x, %y : i32
      %b = muli %a, %a : i32
      %v = load %p : (ptr<i32>) -> i32
      %w = load %p {volatile = true} : (ptr<i32>) -> i32
      %o = atomic_rmw %p, %x {kind = "add"} : (ptr<i32>, i32) -> i32
      store %p, %y : (ptr<i32>, i32)""", """
      %w = load %p {volatile = true} : (ptr<i32>) -> i32
      %o = atomic_rmw %p, %x {kind = "add"} : (ptr<i32>, i32) -> i32
      store %p, %y : (ptr<i32>, i32)""")  # fmt: skip


def test_values_carried_for_their_own_sake():
    check(dce, """
      %c = constant {value = 1} : i32
      %r, %s, %t, %u = for %i = %c to %x step %c
          iter_args(%k = %x, %m = %y, %v = %x, %w = %y) : i32, i32, i32, i32 {
        %n = muli %k, %w : i32
        %o = addi %m, %i : i32
        %l = addi %w, %v : i32
        %h = addi %v, %k : i32
        yield %n, %o, %h, %l
      }
      store %p, %s : (ptr<i32>, i32)""", """
      %c = constant {value = 1} : i32
      %s = for %i = %c to %x step %c iter_args(%m = %y) : i32 {
        %o = addi %m, %i : i32
        yield %o
      }
      store %p, %s : (ptr<i32>, i32)""")  # fmt: skip


def test_a_carried_value_lives_through_another_one():
    text = """
      %c = constant {value = 1} : i32
      %r, %s = for %i = %c to %x step %c iter_args(%k = %x, %m = %y) : i32, i32 {
        %n = addi %k, %i : i32
        yield %n, %k
      }
      store %p, %s : (ptr<i32>, i32)"""
    assert body(transform(dce, function(text))).count("addi") == 1


def test_branches_and_dead_regions():
    check(dce, """
      %r, %s = if %flag : i32, i32 {
        %a = muli %x, %x : i32
        %b = addi %x, %x : i32
        yield %a, %b
      } else {
        yield %y, %x
      }
      %t = if %flag : i32 {
        %v = load %p : (ptr<i32>) -> i32
        yield %v
      } else {
        yield %s
      }
      store %p, %r : (ptr<i32>, i32)""", """
      %r = if %flag : i32 {
        %a = muli %x, %x : i32
        yield %a
      } else {
        yield %y
      }
      store %p, %r : (ptr<i32>, i32)""")  # fmt: skip


def test_inside_reductions_and_nested_loops():
    check(dce, """
      %c = constant {value = 1} : i32
      %k = constant {value = 5} : i32
      %r = make_range {start = 0, end = 8} : tensor<8xi32>
      %e = for %i = %c to %x step %c iter_args(%d = %y) : i32 {
        %f = for %j = %c to %x step %c iter_args(%g = %d) : i32 {
          %h = muli %g, %g : i32
          yield %h
        }
        %m = reduce %r {axis = 0} : (tensor<8xi32>) -> i32 {
          (%a: i32, %b: i32):
          %o = muli %a, %k : i32
          %q = addi %a, %b : i32
          yield %q
        }
        store %p, %m : (ptr<i32>, i32)
        yield %f
      }""", """
      %c = constant {value = 1} : i32
      %r = make_range {start = 0, end = 8} : tensor<8xi32>
      for %i = %c to %x step %c {
        %m = reduce %r {axis = 0} : (tensor<8xi32>) -> i32 {
          (%a: i32, %b: i32):
          %q = addi %a, %b : i32
          yield %q
        }
        store %p, %m : (ptr<i32>, i32)
        yield
      }""")  # fmt: skip


def test_while_keeps_what_decides_when_it_ends():
    text = """
      %c = constant {value = 1} : i32
      %r, %s = while %x, %y : i32, i32 {
        (%a: i32, %b: i32):
        %t = cmpi %a, %c {predicate = "sgt"} : i1
        condition %t, %a, %b
      } body {
        (%d: i32, %e: i32):
        %f = subi %d, %c : i32
        %dead = muli %d, %d : i32
        yield %f, %e
      }
      store %p, %r : (ptr<i32>, i32)"""
    after = body(transform(dce, function(text)))
    assert "while %x :" in after and "%y" not in after and "muli" not in after


def test_while_keeps_what_its_results_come_from():
    text = """
      %c = constant {value = 1} : i32
      %r, %s, %t = while %x, %y, %y : i32, i32, i32 {
        (%a: i32, %b: i32, %d: i32):
        %go = cmpi %a, %c {predicate = "sgt"} : i1
        %e = addi %d, %c : i32
        condition %go, %a, %e, %d
      } body {
        (%f: i32, %g: i32, %h: i32):
        %n = subi %f, %c : i32
        yield %n, %g, %g
      }
      store %p, %s : (ptr<i32>, i32)"""
    after = body(transform(dce, function(text)))
    assert after.startswith("%c = constant {value = 1} : i32\n%r, %s, %t = while %x, %y, %y")
