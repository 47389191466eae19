"""compact_loads: what a loop loads for its product several times over, and what has one row only."""

from __future__ import annotations

import pytest

from ptxforge.passes.compact_loads import compact_loads
from tests.passes.harness import body, check, function, transform

PARAMETERS = "%p: ptr<i32> {divisibility = 16}, %s: ptr<f16>, %out: ptr<f32>, %k: i32, %n: i32"
SETUP = """
  %i = make_range {start = 0, end = 16} : tensor<16xi32>
  %zero = constant {value = 0} : i32
  %one = constant {value = 1} : i32
  %two = constant {value = 2} : i32
  %acc = constant {value = 0.0} : tensor<16x16xf32>
  %a = constant {value = 1.0} : tensor<16x16xf16>
  %c4 = constant {value = 4} : tensor<16xi32>
  %q = divsi %i, %c4 : tensor<16xi32>
  %rows = expand_dims %q {axis = 1} : (tensor<16xi32>) -> tensor<16x1xi32>
  %stride = constant {value = 16} : tensor<16x1xi32>
  %lines = muli %rows, %stride : tensor<16x1xi32>
  %columns = expand_dims %i {axis = 0} : (tensor<16xi32>) -> tensor<1x16xi32>
  %l = broadcast %lines : (tensor<16x1xi32>) -> tensor<16x16xi32>
  %c = broadcast %columns : (tensor<1x16xi32>) -> tensor<16x16xi32>
  %o = addi %l, %c : tensor<16x16xi32>"""
LOOP = """
  %r = for %j = %zero to %two step %one iter_args(%sum = %acc) : tensor<16x16xf32> {
    %t = splat %p : (ptr<i32>) -> tensor<16x16xptr<i32>>
    %e = addptr %t, %o : tensor<16x16xptr<i32>>
LOAD
    %f = sitofp %w : (tensor<16x16xi32>) -> tensor<16x16xf16>
    %d = dot %a, %f, %sum : (tensor<16x16xf16>, tensor<16x16xf16>, tensor<16x16xf32>) -> tensor<16x16xf32>
    yield %d
  }"""
STORE = """
  %x = splat %out : (ptr<f32>) -> tensor<16x16xptr<f32>>
  %y = addptr %x, %c : tensor<16x16xptr<f32>>
  store %y, %r : (tensor<16x16xptr<f32>>, tensor<16x16xf32>)"""
PLAIN = "    %w = load %e : (tensor<16x16xptr<i32>>) -> tensor<16x16xi32>"


def kernel(load: str = PLAIN, setup: str = SETUP):
    return function(setup + LOOP.replace("LOAD", load) + STORE, PARAMETERS)


def loaded(text: str) -> list[str]:
    return [line.split(" : ")[1].split(" -> ")[1] for line in text.splitlines() if " = load " in line]


def test_rows_that_repeat_are_loaded_once():
    text = body(transform(compact_loads, kernel()))
    assert loaded(text) == ["tensor<4x16xi32>"]
    assert "-> tensor<4x4x16xi32>" in text and "(tensor<4x4x16xi32>) -> tensor<16x16xi32>" in text


def test_a_mask_that_repeats_alike_is_computed_for_the_rows_loaded():
    bound = """
  %b = splat %k : (i32) -> tensor<16x1xi32>
  %t1 = cmpi %rows, %b {predicate = "slt"} : tensor<16x1xi1>
  %mask = broadcast %t1 : (tensor<16x1xi1>) -> tensor<16x16xi1>
  %nought = constant {value = 0} : tensor<16x16xi32>"""
    load = "    %w = load %e, %mask, %nought : (tensor<16x16xptr<i32>>, tensor<16x16xi1>, tensor<16x16xi32>)"
    text = body(transform(compact_loads, kernel(load + " -> tensor<16x16xi32>", SETUP + bound)))
    assert loaded(text) == ["tensor<4x16xi32>"]


def test_a_mask_of_single_rows_is_kept():
    bound = """
  %all = expand_dims %i {axis = 1} : (tensor<16xi32>) -> tensor<16x1xi32>
  %b = splat %k : (i32) -> tensor<16x1xi32>
  %t1 = cmpi %all, %b {predicate = "slt"} : tensor<16x1xi1>
  %mask = broadcast %t1 : (tensor<16x1xi1>) -> tensor<16x16xi1>
  %nought = constant {value = 0} : tensor<16x16xi32>"""
    load = "    %w = load %e, %mask, %nought : (tensor<16x16xptr<i32>>, tensor<16x16xi1>, tensor<16x16xi32>)"
    before = kernel(load + " -> tensor<16x16xi32>", SETUP + bound)
    assert loaded(body(transform(compact_loads, before))) == ["tensor<16x16xi32>"]


@pytest.mark.parametrize("start", [0, 8])
def test_ranges_begin_where_they_began(start):
    setup = SETUP.replace("{start = 0, end = 16}", f"{{start = {start}, end = {start + 16}}}")
    text = body(transform(compact_loads, kernel(setup=setup)))
    assert loaded(text) == ["tensor<4x16xi32>"]


def test_what_others_than_the_product_need_stays():
    before = kernel(PLAIN + "\n    store %e, %w : (tensor<16x16xptr<i32>>, tensor<16x16xi32>)")
    assert loaded(body(transform(compact_loads, before))) == ["tensor<16x16xi32>"]


def test_one_row_is_loaded_as_a_vector():
    load = PLAIN.replace("%w =", "%v =") + """
    %st = splat %s : (ptr<f16>) -> tensor<1x16xptr<f16>>
    %sp = addptr %st, %columns : tensor<1x16xptr<f16>>
    %sc = load %sp : (tensor<1x16xptr<f16>>) -> tensor<1x16xf16>
    %sb = broadcast %sc : (tensor<1x16xf16>) -> tensor<16x16xf16>
    %si = fptosi %sb : (tensor<16x16xf16>) -> tensor<16x16xi32>
    %w = muli %v, %si : tensor<16x16xi32>"""
    text = body(transform(compact_loads, kernel(load)))
    assert loaded(text) == ["tensor<4x16xi32>", "tensor<16xf16>"]


def test_scalars_and_what_is_outside_of_loops_stay():
    check(compact_loads, """
      %r = make_range {start = 0, end = 8} : tensor<8xi32>
      %two = constant {value = 2} : tensor<8xi32>
      %h = divsi %r, %two : tensor<8xi32>
      %q = splat %p : (ptr<i32>) -> tensor<8xptr<i32>>
      %a = addptr %q, %h : tensor<8xptr<i32>>
      %v = load %a : (tensor<8xptr<i32>>) -> tensor<8xi32>
      %b = addptr %q, %r : tensor<8xptr<i32>>
      store %b, %v : (tensor<8xptr<i32>>, tensor<8xi32>)""", """
      %r = make_range {start = 0, end = 8} : tensor<8xi32>
      %two = constant {value = 2} : tensor<8xi32>
      %h = divsi %r, %two : tensor<8xi32>
      %q = splat %p : (ptr<i32>) -> tensor<8xptr<i32>>
      %a = addptr %q, %h : tensor<8xptr<i32>>
      %v = load %a : (tensor<8xptr<i32>>) -> tensor<8xi32>
      %b = addptr %q, %r : tensor<8xptr<i32>>
      store %b, %v : (tensor<8xptr<i32>>, tensor<8xi32>)""")  # fmt: skip
