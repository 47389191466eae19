"""canonicalize_pointers: loops advance scalars."""

from __future__ import annotations

import pytest

from ptxforge.ir import types as T
from ptxforge.ir.ops.control import For, Loop, While
from ptxforge.ir.parser import parse_function
from ptxforge.passes.canonicalize_pointers import canonicalize_pointers
from tests.passes.gpu import TARGET, apply, operations, parse, same_meaning
from tests.passes.harness import check
from tests.passes.kernels import MATMUL

PARAMETERS = "%x: ptr<f32>, %y: ptr<f32>, %n: i32, %s: i32"


def test_a_tensor_of_pointers_becomes_a_scalar():
    check(canonicalize_pointers, """
      %c0 = constant {value = 0} : i32
      %c1 = constant {value = 1} : i32
      %o = make_range {start = 0, end = 8} : tensor<8xi32>
      %b = splat %x : (ptr<f32>) -> tensor<8xptr<f32>>
      %p = addptr %b, %o : tensor<8xptr<f32>>
      %st = splat %s : (i32) -> tensor<8xi32>
      %e = for %k = %c0 to %n step %c1 iter_args(%q = %p) : tensor<8xptr<f32>> {
        %v = load %q : (tensor<8xptr<f32>>) -> tensor<8xf32>
        store %q, %v : (tensor<8xptr<f32>>, tensor<8xf32>)
        %r = addptr %q, %st : tensor<8xptr<f32>>
        yield %r
      }""", """
      %c0 = constant {value = 0} : i32
      %c1 = constant {value = 1} : i32
      %o = make_range {start = 0, end = 8} : tensor<8xi32>
      %0 = for %k = %c0 to %n step %c1 iter_args(%q = %x) : ptr<f32> {
        %1 = splat %q : (ptr<f32>) -> tensor<8xptr<f32>>
        %2 = addptr %1, %o : tensor<8xptr<f32>>
        %v = load %2 : (tensor<8xptr<f32>>) -> tensor<8xf32>
        store %2, %v : (tensor<8xptr<f32>>, tensor<8xf32>)
        %3 = addptr %q, %s : ptr<f32>
        yield %3
      }""", parameters=PARAMETERS)


def test_a_tensor_of_offsets_becomes_a_scalar():
    check(canonicalize_pointers, """
      %c0 = constant {value = 0} : i32
      %c1 = constant {value = 1} : i32
      %o = make_range {start = 0, end = 8} : tensor<8xi32>
      %b = splat %x : (ptr<f32>) -> tensor<8xptr<f32>>
      %st = constant {value = 8} : tensor<8xi32>
      %e = for %k = %c0 to %n step %c1 iter_args(%i = %o) : tensor<8xi32> {
        %q = addptr %b, %i : tensor<8xptr<f32>>
        %v = load %q : (tensor<8xptr<f32>>) -> tensor<8xf32>
        store %q, %v : (tensor<8xptr<f32>>, tensor<8xf32>)
        %r = addi %st, %i : tensor<8xi32>
        yield %r
      }""", """
      %c0 = constant {value = 0} : i32
      %c1 = constant {value = 1} : i32
      %o = make_range {start = 0, end = 8} : tensor<8xi32>
      %b = splat %x : (ptr<f32>) -> tensor<8xptr<f32>>
      %0 = constant {value = 0} : i32
      %1 = for %k = %c0 to %n step %c1 iter_args(%i = %0) : i32 {
        %2 = splat %i : (i32) -> tensor<8xi32>
        %3 = addi %o, %2 : tensor<8xi32>
        %q = addptr %b, %3 : tensor<8xptr<f32>>
        %v = load %q : (tensor<8xptr<f32>>) -> tensor<8xf32>
        store %q, %v : (tensor<8xptr<f32>>, tensor<8xf32>)
        %4 = constant {value = 8} : i32
        %5 = addi %i, %4 : i32
        yield %5
      }""", parameters=PARAMETERS)


def test_matmul_carries_its_accumulator_and_two_pointers():
    before = parse_function(MATMUL)
    after = apply(before, canonicalize_pointers)
    (loop,) = operations(after, For)
    assert sorted(isinstance(v.type, T.PointerType) for v in loop.results) == [False, True, True]
    same_meaning(before, after, {"K": 64, "sam": 64, "sbk": 64, "scm": 64}, grid=2)


NESTED = """
  %c0 = constant {value = 0} : i32
  %c1 = constant {value = 1} : i32
  %o = make_range {start = 0, end = 8} : tensor<8xi32>
  %b = splat %x : (ptr<f32>) -> tensor<8xptr<f32>>
  %p = addptr %b, %o : tensor<8xptr<f32>>
  %st = splat %s : (i32) -> tensor<8xi32>
  %e = for %k = %c0 to %n step %c1 iter_args(%q = %p) : tensor<8xptr<f32>> {
    %f = for %l = %c0 to %n step %c1 iter_args(%r = %q) : tensor<8xptr<f32>> {
      %v = load %r : (tensor<8xptr<f32>>) -> tensor<8xf32>
      %w = addf %v, %v : tensor<8xf32>
      store %r, %w : (tensor<8xptr<f32>>, tensor<8xf32>)
      %t = addptr %r, %st : tensor<8xptr<f32>>
      yield %t
    }
    %g = addptr %f, %st : tensor<8xptr<f32>>
    yield %g
  }
  %h = load %e : (tensor<8xptr<f32>>) -> tensor<8xf32>
  store %b, %h : (tensor<8xptr<f32>>, tensor<8xf32>)"""


def test_nested_loops_and_uses_after_them():
    before = parse(NESTED, parameters=PARAMETERS)
    after = apply(before, canonicalize_pointers)
    for loop in operations(after, For):
        assert [type(v.type) for v in loop.results] == [T.PointerType]
    same_meaning(before, after, {"n": 3, "s": 16})
    same_meaning(before, after, {"n": 0, "s": 16})


@pytest.mark.parametrize(("old", "new"), [
    ("%g = addptr %f, %st", "%g = addptr %f, %o"),
    ("addptr %b, %o", "addptr %z, %o"),
], ids=["a step that is not uniform", "pointers that were loaded"])  # fmt: skip
def test_left_alone(old, new):
    body = NESTED.replace(old, new)
    if "%z" in new:
        body = body.replace(
            "%p = ", "%z = int_to_ptr %m : (tensor<8xi64>) -> tensor<8xptr<f32>>\n %p = "
        ).replace("%b = splat", "%m = constant {value = 4096} : tensor<8xi64>\n %b = splat")
    function = parse(body, parameters=PARAMETERS)
    outer = operations(function, For)[0]
    canonicalize_pointers(function, TARGET)
    assert isinstance(outer.results[0].type, T.TensorType)


def test_offsets_keep_their_widths():
    """A 64-bit row offset and a 32-bit column offset are added one after the other."""
    body = NESTED.replace("%p = addptr %b, %o", """%wide = extsi %o : (tensor<8xi32>) -> tensor<8xi64>
      %p0 = addptr %b, %wide : tensor<8xptr<f32>>
      %p = addptr %p0, %o""")
    before = parse(body, parameters=PARAMETERS)
    after = apply(before, canonicalize_pointers)
    assert all(isinstance(v.type, T.PointerType) for loop in operations(after, For) for v in loop.results)
    same_meaning(before, after, {"n": 3, "s": 32})


WHILE = """
  %c1 = constant {value = 1} : i32
  %o = make_range {start = 0, end = 8} : tensor<8xi32>
  %b = splat %x : (ptr<f32>) -> tensor<8xptr<f32>>
  %p = addptr %b, %o : tensor<8xptr<f32>>
  %st = splat %s : (i32) -> tensor<8xi32>
  %e, %m = while %p, %n : tensor<8xptr<f32>>, i32 {
    (%q: tensor<8xptr<f32>>, %i: i32):
    %go = cmpi %i, %c1 {predicate = "sgt"} : i1
    %f = load %q : (tensor<8xptr<f32>>) -> tensor<8xf32>
    store %b, %f : (tensor<8xptr<f32>>, tensor<8xf32>)
    %z = addptr %q, %st : tensor<8xptr<f32>>
    condition %go, %z, %i
  } body {
    (%r: tensor<8xptr<f32>>, %j: i32):
    %v = load %r : (tensor<8xptr<f32>>) -> tensor<8xf32>
    %w = addf %v, %v : tensor<8xf32>
    store %r, %w : (tensor<8xptr<f32>>, tensor<8xf32>)
    %t = addptr %r, %st : tensor<8xptr<f32>>
    %l = subi %j, %c1 : i32
    yield %t, %l
  }
  %h = load %e : (tensor<8xptr<f32>>) -> tensor<8xf32>
  store %b, %h : (tensor<8xptr<f32>>, tensor<8xf32>)"""


@pytest.mark.parametrize("n", [0, 1, 4])
def test_while_advances_a_scalar_in_both_regions(n):
    before = parse(WHILE, parameters=PARAMETERS)
    after = apply(before, canonicalize_pointers)
    (loop,) = operations(after, While)
    assert not any(isinstance(v.type, T.TensorType) for v in loop.results)
    same_meaning(before, after, {"n": n, "s": 16})


@pytest.mark.parametrize(("old", "new"), [
    ("%z = addptr %q, %st", "%z = addptr %q, %o"), ("%t = addptr %r, %st", "%t = addptr %r, %o"),
], ids=["before", "body"])  # fmt: skip
def test_while_with_a_step_that_is_not_uniform_stays(old, new):
    before = parse(WHILE.replace(old, new), parameters=PARAMETERS)
    (loop,) = operations(apply(before, canonicalize_pointers), While)
    assert isinstance(loop.results[0].type, T.TensorType)


def test_a_while_around_a_for():
    text = """
      %c0 = constant {value = 0} : i32
      %c1 = constant {value = 1} : i32
      %o = make_range {start = 0, end = 8} : tensor<8xi32>
      %b = splat %x : (ptr<f32>) -> tensor<8xptr<f32>>
      %c8 = constant {value = 8} : tensor<8xi32>
      %e, %m = while %o, %n : tensor<8xi32>, i32 {
        (%q: tensor<8xi32>, %i: i32):
        %go = cmpi %i, %c1 {predicate = "sgt"} : i1
        condition %go, %q, %i
      } body {
        (%r: tensor<8xi32>, %j: i32):
        %f = for %k = %c0 to %n step %c1 iter_args(%g = %r) : tensor<8xi32> {
          %p = addptr %b, %g : tensor<8xptr<f32>>
          %v = load %p : (tensor<8xptr<f32>>) -> tensor<8xf32>
          %w = addf %v, %v : tensor<8xf32>
          store %p, %w : (tensor<8xptr<f32>>, tensor<8xf32>)
          %h = addi %g, %c8 : tensor<8xi32>
          yield %h
        }
        %l = subi %j, %c1 : i32
        yield %f, %l
      }
      %z = addptr %b, %e : tensor<8xptr<f32>>
      %y1 = load %z : (tensor<8xptr<f32>>) -> tensor<8xf32>
      store %b, %y1 : (tensor<8xptr<f32>>, tensor<8xf32>)"""
    before = parse(text, parameters=PARAMETERS)
    after = apply(before, canonicalize_pointers)
    assert not any(isinstance(v.type, T.TensorType) for loop in operations(after, Loop) for v in loop.results)
    same_meaning(before, after, {"n": 3})


def test_what_was_promised_of_the_tensor_is_kept():
    function = parse(
        """
      %c0 = constant {value = 0} : i32
      %c1 = constant {value = 1} : i32
      %o = make_range {start = 0, end = 8} : tensor<8xi32>
      %b = splat %x : (ptr<f32>) -> tensor<8xptr<f32>>
      %p = addptr %b, %o : tensor<8xptr<f32>>
      %st = splat %s : (i32) -> tensor<8xi32>
      %e = for %k = %c0 to %n step %c1 iter_args(%q = %p) : tensor<8xptr<f32>> {
        %v = load %q : (tensor<8xptr<f32>>) -> tensor<8xf32>
        store %q, %v : (tensor<8xptr<f32>>, tensor<8xf32>)
        %r = addptr %q, %st : tensor<8xptr<f32>>
        yield %r
      }""",
        parameters=PARAMETERS,
    )
    loop = next(op for op in function.walk() if isinstance(op, For))
    loop.carried[0].attributes["divisibility"] = (16,)
    assert canonicalize_pointers(function, TARGET)
    load = next(op for op in function.walk() if op.name == "load")
    assert load.pointer.defining_op.attributes["divisibility"] == (16,)
