"""The rewriter's driver: what comes back to the worklist, folding, dead operations,
and the end of rewriting."""

from __future__ import annotations

import gc

import pytest

from ptxforge.ir import types as T
from ptxforge.ir.core import Function
from ptxforge.ir.ops.arith import AddI, MulI, SubI, XorI
from ptxforge.ir.ops.shape import Constant
from ptxforge.ir.parser import parse_function
from ptxforge.ir.printer import print_function
from ptxforge.ir.rewriter import PatternSet, constant_of, erase_dead, fold, keep_hints, rewrite
from ptxforge.ir.verifier import verify
from ptxforge.support.errors import InternalCompilerError


def function(body: str) -> Function:
    return parse_function(f"func @f(%x: i32, %y: i32, %p: ptr<i32>) {{\n{body}\nreturn\n}}")


def rewritten(body: str, patterns: PatternSet, **options) -> list[str]:
    f = function(body)
    assert rewrite(f, patterns, **options) == (print_function(f) != print_function(function(body)))
    verify(f)
    return [line.strip() for line in print_function(f).splitlines()[1:-2]]


def test_users_come_back_when_an_operand_changes():
    """The sum becomes a product only after both differences have become x."""
    rules = PatternSet()

    @rules.on(SubI)
    def difference(op, rewriter):
        return rewriter.replace(op, op.lhs)

    @rules.on(AddI)
    def doubled(op, rewriter):
        if op.lhs is not op.rhs:
            return False
        return rewriter.replace(op, rewriter.value(MulI, op.lhs, rewriter.constant(2, op.lhs.type)))

    lines = rewritten(
        "%a = subi %x, %y : i32\n%b = subi %x, %x : i32\n"
        + "%c = addi %a, %b : i32\nstore %p, %c : (ptr<i32>, i32)",
        rules,
    )
    assert lines == [
        "%0 = constant {value = 2} : i32", "%c = muli %x, %0 : i32", "store %p, %c : (ptr<i32>, i32)",
    ]  # fmt: skip


def test_a_chain_that_lost_its_use_goes_with_the_regions_in_it():
    body = """
      %a = addi %x, %y : i32
      %b = muli %a, %a : i32
      %r = for %i = %x to %y step %b iter_args(%k = %b) : i32 {
        %v = load %p : (ptr<i32>) -> i32
        %s = addi %v, %a : i32
        yield %s
      }
      %c = subi %r, %x : i32"""
    assert rewritten(body, PatternSet()) == []


def test_effects_keep_what_they_need():
    body = """
      %a = addi %x, %y : i32
      for %i = %x to %y step %a {
        store %p, %i : (ptr<i32>, i32)
        yield
      }"""
    assert len(rewritten(body, PatternSet())) == 5


def test_folding_can_be_left_out():
    body = """
      %a = constant {value = 1} : i32
      %b = addi %a, %a : i32
      store %p, %b : (ptr<i32>, i32)"""
    assert "%b = constant {value = 2} : i32" in rewritten(body, PatternSet())
    assert "%b = addi %a, %a : i32" in rewritten(body, PatternSet(), fold=False)


@pytest.mark.parametrize("text, value", [
    ("%a = constant {value = 3} : tensor<4xi32>\n%b = muli %a, %a : tensor<4xi32>", 9),
    ("%a = constant {value = 3} : i8\n%b = splat %a : (i8) -> tensor<4xi8>", 3),
    ("%a = constant {value = true} : i1\n%b = extsi %a : (i1) -> i64", -1),
    ("%a = constant {value = 0.1} : f64\n%b = truncf %a : (f64) -> bf16", 0.10009765625),
    ("%a = constant {value = -1} : i32\n%b = bitcast %a : (i32) -> f32", None),
    ("%a = constant {value = nan} : f32\n%b = bitcast %a : (f32) -> i32", "no"),
    ("%a = constant {value = 1} : i64\n%b = int_to_ptr %a : (i64) -> ptr<i32>", "no"),
])  # fmt: skip
def test_fold(text, value):
    first, second, _ = function(text).body.operations
    found = fold(second)
    if value is None:
        assert found != found  # a NaN
    else:
        assert found == (None if value == "no" else value)
        assert value == "no" or type(found) is type(value)


def test_constants_and_hints():
    f = function(
        "%a = constant {value = 3} : i32\n%b = addi %x, %a {divisibility = [4]} : i32\n%c = muli %b, %b : i32"
    )
    a, b, c, _ = f.body.operations
    assert (
        constant_of(a.result) == 3 and constant_of(b.result) is None and constant_of(f.arguments[0]) is None
    )
    keep_hints(b, c.result)
    keep_hints(b, a.result)
    assert c.attributes == {"divisibility": (4,)} and a.attributes == {"value": 3}


def test_endless_rewriting_is_a_fault_of_the_compiler():
    rules = PatternSet()

    @rules.on(AddI)
    def swap(op, rewriter):
        return rewriter.set_operands(op, op.operands[::-1])

    with pytest.raises(InternalCompilerError, match="does not come to an end at 'addi'"):
        rewrite(function("%a = addi %x, %y : i32\nstore %p, %a : (ptr<i32>, i32)"), rules)


def test_union_tries_earlier_sets_first():
    first, second = PatternSet(), PatternSet()
    order = []
    first.on(Constant)(lambda op, rewriter: order.append(1) or False)
    second.on(Constant)(lambda op, rewriter: order.append(2) or False)
    f = function("%a = constant {value = 1} : i32\nstore %p, %a : (ptr<i32>, i32)")
    assert not rewrite(f, PatternSet.union(first, second))
    assert order == [1, 2]
    assert T.I32 is f.arguments[0].type


def test_dead_operations_are_freed_without_the_garbage_collector():
    f = function("%a = addi %x, %y : i32\n%b = xori %a, %a : i32\n%c = xori %b, %a : i32")
    gc.collect()
    before = sum(isinstance(one, XorI) for one in gc.get_objects())
    gc.disable()
    try:
        erase_dead(f)
        assert [op.name for op in f.walk()] == ["return"]
        assert sum(isinstance(one, XorI) for one in gc.get_objects()) == before - 2
    finally:
        gc.enable()
