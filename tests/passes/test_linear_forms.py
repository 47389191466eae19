"""Linear forms of what loops carry: values that are made of each other."""

from __future__ import annotations

from fractions import Fraction

import pytest

from ptxforge.ir.ops.control import For
from ptxforge.ir.parser import parse_function
from ptxforge.passes.analysis.linear_forms import LinearForms

LOOP = """func @f(%n: i32, %d: i32) attributes {{num_warps = 4, target = "sm_90a"}} {{
  %zero = constant {{value = 0}} : i32
  %one = constant {{value = 1}} : i32
  %r, %s = for %k = %zero to %n step %one iter_args(%x = %zero, %y = %d) : i32, i32 {{
    {body}
    yield {yielded}
  }}
  return
}}
"""


def carried(body: str, yielded: str):
    (loop,) = parse_function(LOOP.format(body=body, yielded=yielded)).walk(For)
    x, y = loop.carried
    return LinearForms(), loop, x, y


def test_a_counter():
    forms, loop, x, y = carried("%z = addi %x, %d : i32", "%z, %d")
    function = loop.parent.parent
    step = function.arguments[1]
    assert [set(m) for m in forms.scalar(x)] == [{loop.induction, step}]


@pytest.mark.parametrize(("step", "grows", "share"), [
    (64, 32, Fraction(1, 2)), (64, 96, Fraction(3, 2)), (64, 128, 2), (96, 32, None),
])  # fmt: skip
def test_steps_of_a_share(step, grows, share):
    """What grows by half of the counter's step is half of it; of thirds there are no multiples in binary."""
    body = f"%g = constant {{value = {grows}}} : i32\n    %z = addi %x, %g : i32"
    text = LOOP.format(body=body, yielded="%z, %d").replace("step %one", "step %step")
    text = text.replace("  %r, %s", f"  %step = constant {{value = {step}}} : i32\n  %r, %s")
    (loop,) = parse_function(text).walk(For)
    x = loop.carried[0]
    assert LinearForms().scalar(x) == ({(x,): 1} if share is None else {(loop.induction,): share})


@pytest.mark.parametrize(("body", "yielded"), [
    ("", "%y, %x"),
    ("%z = addi %y, %one : i32", "%y, %z"),
    ("%z = muli %y, %y : i32", "%y, %z"),
    ("%z = addi %y, %x : i32", "%z, %x"),
    ("%z = addi %y, %x : i32", "%y, %z"),
    ("%z = addi %y, %x : i32\n    %w = addi %x, %y : i32", "%z, %w"),
], ids=["swapped", "counted before", "squared", "added to x", "added to y", "both"])  # fmt: skip
def test_values_of_each_other(body, yielded):
    """What the one was an iteration ago, and sums of both: they stand for themselves, whoever is asked for
    first. (Only what is one more than a counter is a counter, too.)"""
    for first in (0, 1):
        forms, _, *values = carried(body, yielded)
        for value in (values[first], values[1 - first]):
            found = forms.scalar(value)
            assert found == forms.scalar(value) and (found == {(value,): 1} or "one" in body)
