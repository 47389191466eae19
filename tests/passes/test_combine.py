"""combine: dots take their addend, loads the select behind them, pointers their second offset."""

from __future__ import annotations

import pytest

from ptxforge.passes.combine import combine
from tests.passes.harness import body, check, function, transform


def dot(addend: str, then: str) -> str:
    return f"""
      %r = make_range {{start = 0, end = 256}} : tensor<256xi32>
      %i = reshape %r : (tensor<256xi32>) -> tensor<16x16xi32>
      %q = splat %p : (ptr<f32>) -> tensor<16x16xptr<f32>>
      %a = addptr %q, %i : tensor<16x16xptr<f32>>
      %v = load %a : (tensor<16x16xptr<f32>>) -> tensor<16x16xf32>
      %w = mulf %v, %v : tensor<16x16xf32>
      %z = constant {{value = {addend}}} : tensor<16x16xf32>
      %d = dot %v, %w, %z {{input_precision = "ieee"}} : (tensor<16x16xf32>, tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
      {then}
      store %a, %e : (tensor<16x16xptr<f32>>, tensor<16x16xf32>)"""  # noqa: E501


@pytest.mark.parametrize("operands", ["%d, %w", "%w, %d"])
def test_dot_takes_what_is_added_to_it(operands):
    text = dot("0.0", f"%e = addf {operands} : tensor<16x16xf32>")
    after = body(transform(combine, function(text, parameters="%p: ptr<f32>"), rtol=1e-5))
    assert '%e = dot %v, %w, %w {input_precision = "ieee"}' in after and "addf" not in after


@pytest.mark.parametrize("addend, then", [
    ("1.0", "%e = addf %d, %w : tensor<16x16xf32>"),
    ("0.0", "%f = addf %d, %w : tensor<16x16xf32>\n%e = mulf %f, %d : tensor<16x16xf32>"),
])  # fmt: skip
def test_dot_keeps_an_addend_or_other_users(addend, then):
    after = body(transform(combine, function(dot(addend, then), parameters="%p: ptr<f32>")))
    assert "addf" in after


TILE = """
      %r = make_range {start = 0, end = 8} : tensor<8xi32>
      %q = splat %p : (ptr<i32>) -> tensor<8xptr<i32>>
      %a = addptr %q, %r : tensor<8xptr<i32>>
      %n = splat %x : (i32) -> tensor<8xi32>
      %m = cmpi %r, %n {predicate = "slt"} : tensor<8xi1>"""
LOAD = "\n      %v = load %a, %m : (tensor<8xptr<i32>>, tensor<8xi1>) -> tensor<8xi32>"
STORE = "\n      store %a, %s : (tensor<8xptr<i32>>, tensor<8xi32>)"


def test_select_becomes_other():
    check(combine, TILE + LOAD + """
      %s = select %m, %v, %n : tensor<8xi32>""" + STORE, TILE + """
      %v = load %a, %m, %n : (tensor<8xptr<i32>>, tensor<8xi1>, tensor<8xi32>) -> tensor<8xi32>""" + STORE.replace("%s", "%v"))  # fmt: skip # noqa: E501


def test_a_constant_is_made_before_the_load():
    check(combine, TILE + LOAD + """
      %c = constant {value = 7} : tensor<8xi32>
      %s = select %m, %v, %c : tensor<8xi32>""" + STORE, TILE + """
      %0 = constant {value = 7} : tensor<8xi32>
      %v = load %a, %m, %0 : (tensor<8xptr<i32>>, tensor<8xi1>, tensor<8xi32>) -> tensor<8xi32>""" + STORE.replace("%s", "%v"))  # fmt: skip # noqa: E501


@pytest.mark.parametrize("text", [
    # Another mask; a value that comes later than the load; a second user of the load.
    LOAD + "\n%k = xori %m, %m : tensor<8xi1>\n%s = select %k, %v, %n : tensor<8xi32>",
    LOAD + "\n%k = muli %n, %v : tensor<8xi32>\n%s = select %m, %v, %k : tensor<8xi32>",
    LOAD + "\n%t = select %m, %v, %n : tensor<8xi32>\n%s = addi %t, %v : tensor<8xi32>",
    LOAD.replace("%m :", "%m {volatile = true} :") + "\n%s = select %m, %v, %n : tensor<8xi32>",
])  # fmt: skip
def test_select_stays(text):
    assert "select" in body(transform(combine, function(TILE + text + STORE)))


def test_constant_offsets_and_long_offsets_add_up():
    check(combine, """
      %c = constant {value = 3} : i32
      %d = constant {value = 4} : i32
      %a = addptr %p, %c : ptr<i32>
      %b = addptr %a, %d : ptr<i32>
      %e = addptr %b, %l : ptr<i32>
      %f = addptr %e, %l : ptr<i32>
      store %f, %x : (ptr<i32>, i32)""", """
      %0 = constant {value = 7} : i32
      %b = addptr %p, %0 : ptr<i32>
      %1 = addi %l, %l : i64
      %f = addptr %b, %1 : ptr<i32>
      store %f, %x : (ptr<i32>, i32)""", parameters="%p: ptr<i32>, %x: i32, %l: i64")  # fmt: skip


@pytest.mark.parametrize("first, second", [("%c", "%x"), ("%x", "%y"), ("%big", "%big")])
def test_offsets_whose_sum_might_overflow_stay_apart(first, second):
    text = f"""
      %c = constant {{value = 3}} : i32
      %big = constant {{value = 2147483647}} : i32
      %a = addptr %p, {first} : ptr<i32>
      %b = addptr %a, {second} : ptr<i32>
      %t = ptr_to_int %b : (ptr<i32>) -> i64
      %u = trunci %t : (i64) -> i32
      store %p, %u : (ptr<i32>, i32)"""
    assert body(transform(combine, function(text))).count("addptr") == 2
