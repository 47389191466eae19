"""widen_booleans: what a loop accumulates of booleans is words, unless something in the loop asks for it."""

from __future__ import annotations

import pytest

from ptxforge.ir import types as T
from ptxforge.ir.core import Function
from ptxforge.ir.ops.arith import CmpI
from ptxforge.ir.ops.cast import ExtSI
from ptxforge.ir.ops.control import For
from ptxforge.ir.ops.memory import Load
from ptxforge.ir.parser import parse_function
from ptxforge.ir.printer import print_function
from ptxforge.passes.widen_booleans import widen_booleans
from tests.passes.gpu import apply, operations, parse, same_meaning

LAYOUT = "#blocked<{sizePerThread = [4], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}>"


def loop_of(step: str, size: int = 512, start: str = "false") -> Function:
    """A loop that makes %b of the boolean %a that it carries; %c, %d are comparisons of what it loads."""
    return parse(f"""
      %i = make_range {{start = 0, end = {size}}} : tensor<{size}xi32, {LAYOUT}>
      %xs = splat %x : (ptr<f32>) -> tensor<{size}xptr<f32>, {LAYOUT}>
      %zero = constant {{value = 0.0}} : tensor<{size}xf32, {LAYOUT}>
      %start = constant {{value = {start}}} : tensor<{size}xi1, {LAYOUT}>
      %true = constant {{value = true}} : tensor<{size}xi1, {LAYOUT}>
      %z = constant {{value = 0}} : i32
      %s = constant {{value = {size}}} : i32
      %any = for %k = %z to %n step %s iter_args(%a = %start) : tensor<{size}xi1, {LAYOUT}> {{
        %ks = splat %k : (i32) -> tensor<{size}xi32, {LAYOUT}>
        %o = addi %ks, %i : tensor<{size}xi32, {LAYOUT}>
        %p = addptr %xs, %o : tensor<{size}xptr<f32>, {LAYOUT}>
        %v = load %p {{vector = 4}} : (tensor<{size}xptr<f32>, {LAYOUT}>) -> tensor<{size}xf32, {LAYOUT}>
        %c = cmpf %v, %zero {{predicate = "olt"}} : tensor<{size}xi1, {LAYOUT}>
        %w = addf %v, %v : tensor<{size}xf32, {LAYOUT}>
        %one = constant {{value = 1.0}} : tensor<{size}xf32, {LAYOUT}>
        %d = cmpf %w, %one {{predicate = "ogt"}} : tensor<{size}xi1, {LAYOUT}>
        {step.replace("BOOLS", f"tensor<{size}xi1, {LAYOUT}>")}
        yield %b
      }}
      %os = splat %out : (ptr<f32>) -> tensor<{size}xptr<f32>, {LAYOUT}>
      %q = addptr %os, %i : tensor<{size}xptr<f32>, {LAYOUT}>
      %f = uitofp %any : (tensor<{size}xi1, {LAYOUT}>) -> tensor<{size}xf32, {LAYOUT}>
      store %q, %f {{vector = 4}} : (tensor<{size}xptr<f32>, {LAYOUT}>, tensor<{size}xf32, {LAYOUT}>)""")


def carried(function: Function) -> list[T.Type]:
    (loop,) = operations(function, For)
    return [value.type.element for value in loop.results]


STEPS = {
    "any": "%b = ori %a, %c : BOOLS",
    "all": "%b = andi %c, %a : BOOLS",
    "parity": "%b = xori %a, %c : BOOLS",
    "not": "%b = xori %a, %true : BOOLS",
    "masked": "%e = ori %c, %a : BOOLS\n%b = select %d, %e, %start : BOOLS",
    "replaced": "%b = select %d, %c, %a : BOOLS",
    "of two": "%e = ori %a, %c : BOOLS\n%g = xori %a, %d : BOOLS\n%b = andi %e, %g : BOOLS",
}


@pytest.mark.parametrize("start", ["false", "true"])
@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("n", [0, 512, 2048])
def test_accumulated_booleans_become_words(name, start, n):
    before = loop_of(STEPS[name], start=start)
    after = apply(before, widen_booleans)
    assert carried(before) == [T.I1] and carried(after) == [T.I32]
    same_meaning(before, after, {"n": n})


@pytest.mark.parametrize("n", [0, 512, 2048])
@pytest.mark.parametrize("step", [
    "%e = ori %a, %h : BOOLS\n%b = select %m, %e, %start : BOOLS",
    "%e = ori %a, %h : BOOLS\n%b = andi %m, %e : BOOLS",
])  # fmt: skip
def test_the_mask_of_a_load_becomes_a_word_beside_its_comparisons(step, n):
    """So it is needed as a predicate until the load is under way, and not until what it read is there."""
    numbers = f"tensor<512xf32, {LAYOUT}>"
    before = loop_of(f"""
      %rows = splat %n : (i32) -> tensor<512xi32, {LAYOUT}>
      %inside = cmpi %o, %rows {{predicate = "slt"}} : BOOLS
      %few = constant {{value = 700}} : tensor<512xi32, {LAYOUT}>
      %early = cmpi %o, %few {{predicate = "slt"}} : BOOLS
      %m = andi %inside, %early : BOOLS
      %g = load %p, %m, %zero {{vector = 4}} : (tensor<512xptr<f32>, {LAYOUT}>, BOOLS, {numbers}) -> {numbers}
      %h = cmpf %g, %zero {{predicate = "ogt"}} : BOOLS
      {step}""")
    after = apply(before, widen_booleans)
    (load,) = [op for op in operations(after, Load) if op.mask is not None]
    words = operations(after, ExtSI)
    (loop,) = operations(after, For)
    order = list(loop.body.operations)
    assert [type(op.x.defining_op) for op in words] == [CmpI, CmpI]
    assert all(order.index(op) < order.index(load) for op in words)
    assert [user for user in load.mask.users] == [load]
    same_meaning(before, after, {"n": n})


@pytest.mark.parametrize("step", [
    "%b = ori %c, %d : BOOLS",
    "%e = select %a, %c, %d : BOOLS\n%b = ori %a, %e : BOOLS",
    "%e = ori %a, %c : BOOLS\n%u = uitofp %e : (BOOLS) -> tensor<512xf32, LAYOUT>\n%b = andi %e, %c : BOOLS",
    "%b = cmpi %a, %c {predicate = \"eq\"} : BOOLS",
])  # fmt: skip
def test_what_else_asks_for_a_boolean_keeps_it(step):
    """One that is not carried on, one that chooses, one that becomes a number, one that is compared."""
    function = loop_of(step.replace("LAYOUT", LAYOUT))
    assert not widen_booleans(function.clone(), None)


def test_a_single_boolean_of_a_thread_stays_a_predicate():
    text = print_function(loop_of(STEPS["any"], size=128))
    function = parse_function(text.replace("sizePerThread = [4]", "sizePerThread = [1]"))
    assert carried(function) == [T.I1] and not widen_booleans(function, None)
