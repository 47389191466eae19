"""peel_loops: the first iteration in front of loops that ask for it."""

from __future__ import annotations

import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.ir.ops.control import For, If
from ptxforge.passes.canonicalize import canonicalize
from ptxforge.passes.peel_loops import peel_loops
from tests.passes.harness import TARGET, function, transform

TEXT = """
  %lo = constant {{value = {lower}}} : i32
  %hi = constant {{value = {upper}}} : i32
  %st = constant {{value = {step}}} : i32
  %bound = constant {{value = {bound}}} : i32
  %r = for %i = %lo to %hi step %st iter_args(%a = %x) {{num_stages = {stages}}} : i32 {{
    %first = cmpi {question} {{predicate = "{predicate}"}} : i1
    %n = if %first : i32 {{
      %t = addi %a, %i : i32
      yield %t
    }} else {{
      %u = muli %a, %y : i32
      yield %u
    }}
    yield %n
  }}
  store %p, %r : (ptr<i32>, i32)"""


def looped(question="%i, %bound", predicate="eq", lower=0, upper=24, step=4, bound=0, stages=-1):
    return function(TEXT.format(**locals()))


def peeled(**choices):
    """After the pass, and after canonicalization, which follows it."""
    after = transform(peel_loops, looped(**choices))
    canonicalize(after, TARGET)
    return after


@pytest.mark.parametrize("choices", [
    {}, {"predicate": "ne"}, {"predicate": "sle"}, {"predicate": "sgt"}, {"predicate": "slt", "bound": 4},
    {"predicate": "sge", "bound": 1}, {"question": "%bound, %i", "predicate": "sge"}, {"predicate": "ugt"},
    {"lower": -8, "bound": -8}, {"lower": 3, "step": 7, "bound": 3}, {"upper": 9},
])  # fmt: skip
def test_the_first_iteration_is_taken_out(choices):
    after = peeled(**choices)
    assert len(after.walk(For)) == 1 and not after.walk(If)


@pytest.mark.parametrize("choices", [
    {"bound": 4}, {"bound": 20}, {"bound": 1}, {"predicate": "slt", "bound": 8}, {"predicate": "slt"},
    {"predicate": "sge"}, {"lower": 0, "upper": 4}, {"upper": 0}, {"stages": 3}, {"question": "%y, %bound"},
    {"question": "%i, %y"}, {"lower": -8, "upper": 12, "predicate": "ult", "bound": 4},
])  # fmt: skip
def test_other_loops_stay(choices):
    before = looped(**choices)
    assert not peel_loops(before, TARGET) and before.walk(If)


def test_long_bodies_stay():
    text = TEXT.format(lower=0, upper=24, step=4, bound=0, stages=-1, question="%i, %bound", predicate="eq")
    wide = "{" + """
    %wide = splat %i : (i32) -> tensor<131072xi32>
    %ps = splat %p : (ptr<i32>) -> tensor<131072xptr<i32>>
    store %ps, %wide : (tensor<131072xptr<i32>>, tensor<131072xi32>)
    %first"""
    assert not peel_loops(function(text.replace("{\n    %first", wide, 1)), TARGET)


@ptxforge.jit
def running_mean(x, out, n: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    mean, weight = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for k in range(n):
        value = tl.load(x + k * BLOCK + i)
        if k == 0:
            mean, weight = value, tl.full((BLOCK,), 1, tl.float32)
        else:
            weight += 1
            mean += (value - mean) / weight
    tl.store(out + i, mean)


def test_kernels_have_no_branch_left_in_such_loops():
    art = ptxforge.compile(running_mean, signature={"x": "*fp32:16", "out": "*fp32:16"},
                           constants={"n": 40, "BLOCK": 512}, target="sm_90a")  # fmt: skip
    assert art.asm["gpu"].count("= load ") == 2 and " = if " not in art.asm["gpu"]
