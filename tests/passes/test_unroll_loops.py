"""unroll_loops: n iterations at a time, the rest in a loop of its own."""

from __future__ import annotations

import numpy as np
import pytest

from ptxforge.interpreter import run
from ptxforge.passes.canonicalize import canonicalize
from ptxforge.passes.unroll_loops import unroll_loops
from tests.passes.harness import TARGET, body, function, transform

TEXT = """
  %r, %s = for %i = %lo to %hi step %st iter_args(%a = %lo, %b = %hi) {num_stages = 4, unroll = 3} : i32, i32 {
    %c = muli %a, %b : i32
    %d = addi %c, %i : i32
    yield %b, %d
  }
  store %p, %s : (ptr<i32>, i32)"""  # noqa: E501
PARAMETERS = "%p: ptr<i32>, %lo: i32, %hi: i32, %st: i32"


def test_shape_of_the_result():
    after = body(transform(unroll_loops, function(TEXT, parameters=PARAMETERS)))
    main, rest = [line for line in after.splitlines() if " = for " in line]
    assert "{num_stages = 4}" in main and "{num_stages = 1}" in rest and "unroll" not in after
    assert after.count("muli %a") == 2 and after.count("muli") == 4 + 2


@pytest.mark.parametrize("lower, upper, step", [
    (0, 0, 1), (0, 1, 1), (0, 2, 1), (0, 3, 1), (0, 9, 1), (0, 10, 3), (-7, 20, 2), (5, -5, 1), (3, 100, 7),
])  # fmt: skip
def test_all_trip_counts(lower, upper, step):
    results = []
    for apply in (lambda f, t: False, unroll_loops):
        f, out = function(TEXT, parameters=PARAMETERS), np.zeros(1, np.int32)
        apply(f, TARGET)
        run(f, 1, [out, lower, upper, step])
        results.append(out[0])
    assert results[0] == results[1]


def test_constant_bounds_leave_no_rest():
    text = (
        """
      %lo = constant {value = 0} : i32
      %hi = constant {value = 12} : i32
      %st = constant {value = 1} : i32"""
        + TEXT
    )
    after = transform(unroll_loops, function(text, parameters="%p: ptr<i32>"))
    canonicalize(after, TARGET)
    text = body(after)
    assert text.count("for ") == 1 and text.count("muli") == 3


SEARCH = """
  %zero = constant {{value = 0}} : i32
  %n = constant {{value = {count}}} : i32
  %one = constant {{value = 1}} : i32
  %two = constant {{value = 2}} : i32
  %low, %left = while %zero, %n : i32, i32 {{
    (%l: i32, %m: i32):
    %t = cmpi %m, %one {{predicate = "sgt"}} : i1
    condition %t, %l, %m
  }} body {{
    (%k: i32, %j: i32):
    %half = divsi %j, %two : i32
    %sum = addi %k, %x : i32
    %up = subi %j, %half : i32
    yield %sum, %up
  }}
  %s = addi %low, %left : i32
  store %p, %s : (ptr<i32>, i32)"""


@pytest.mark.parametrize("count", [0, 1, 2, 100, 10**9])
def test_a_while_of_known_length_is_written_out(count):
    results = []
    for apply in (lambda f, t: False, unroll_loops):
        f = function(SEARCH.format(count=count), parameters="%p: ptr<i32>, %x: i32")
        out = np.zeros(1, np.int32)
        apply(f, TARGET)
        run(f, 1, [out, 5])
        results.append(out[0])
    assert results[0] == results[1]
    assert "while" not in body(f)


@pytest.mark.parametrize(("old", "new"), [
    ("%t = cmpi %m, %one", "%t = cmpi %m, %x"),  # ends by an argument
    ("%up = subi %j, %half", "%up = addi %j, %one"),  # goes on for long
    ("%up = subi %j, %half", "%up = load %p"),
])  # fmt: skip
def test_other_whiles_stay(old, new):
    text = SEARCH.format(count=100).replace(old, new)
    text = text.replace("%up = load %p : i32", "%up = load %p : (ptr<i32>) -> i32")
    f = function(text, parameters="%p: ptr<i32>, %x: i32")
    unroll_loops(f, TARGET)
    assert "while" in body(f)


SHORT = """
  %lo = constant {value = 0} : i32
  %hi = constant {value = HI} : i32
  %st = constant {value = 2} : i32
  %r = for %i = %lo to %hi step %st iter_args(%a = %x) : i32 {ATTRIBUTES{
    %b = load %p : (ptr<i32>) -> i32
    %c = muli %a, %b : i32
    %d = addi %c, %i : i32
    yield %d
  }
  store %p, %r : (ptr<i32>, i32)"""


@pytest.mark.parametrize("end, attributes, loops", [
    (4, "", 0), (8, "", 0), (7, "", 0), (9, "", 1), (8, "{num_stages = 2}", 1), (8, "{flatten = true}", 1),
])  # fmt: skip
def test_loops_of_few_iterations_become_straight_code(end, attributes, loops):
    text = SHORT.replace("HI", str(end)).replace(": i32 {ATTRIBUTES{", f"{attributes} : i32 {{")
    unrolled = transform(unroll_loops, function(text)) if not loops else function(text)
    after = body(transform(canonicalize, unrolled))
    assert after.count(" = for ") == loops
    assert after.count("load") == (1 if loops else -(-end // 2))


def test_loops_of_much_work_stay():
    text = """
      %lo = constant {value = 0} : i32
      %hi = constant {value = 4} : i32
      %st = constant {value = 1} : i32
      %many = splat %x : (i32) -> tensor<COUNTxi32>
      %r = for %i = %lo to %hi step %st iter_args(%a = %many) : tensor<COUNTxi32> {
        %b = muli %a, %a : tensor<COUNTxi32>
        %c = addi %b, %a : tensor<COUNTxi32>
        yield %c
      }
      %s = reduce %r {axis = 0} : (tensor<COUNTxi32>) -> i32 {
      (%u: i32, %v: i32):
        %w = xori %u, %v : i32
        yield %w
      }
      store %p, %s : (ptr<i32>, i32)"""
    for count, changed in ((1024, True), (65536, False)):
        given = function(text.replace("COUNT", str(count)))
        assert unroll_loops(given, TARGET) == changed
