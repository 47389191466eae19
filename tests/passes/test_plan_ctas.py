"""plan_ctas: what each CTA of a cluster gets; the same results from all of them together."""

from __future__ import annotations

import numpy as np
import pytest

from ptxforge.interpreter import run
from ptxforge.ir.core import Function
from ptxforge.ir.ops.memory import GetCtaRank
from ptxforge.ir.ops.shape import MakeRange
from ptxforge.ir.parser import parse_function
from ptxforge.ir.printer import print_function
from ptxforge.ir.verifier import verify
from ptxforge.passes.plan_ctas import plan_ctas
from tests.passes.harness import TARGET

ROWS = """
      %r = make_range {start = 0, end = 8} : tensor<8xi32>
      %e = expand_dims %r {axis = 1} : (tensor<8xi32>) -> tensor<8x1xi32>
      %w = constant {value = 16} : tensor<8x1xi32>
      %o = muli %e, %w : tensor<8x1xi32>
      %c = make_range {start = 0, end = 16} : tensor<16xi32>
      %d = expand_dims %c {axis = 0} : (tensor<16xi32>) -> tensor<1x16xi32>
      %f = broadcast %o : (tensor<8x1xi32>) -> tensor<8x16xi32>
      %g = broadcast %d : (tensor<1x16xi32>) -> tensor<8x16xi32>
      %i = addi %f, %g : tensor<8x16xi32>
      %s = splat %p : (ptr<i32>) -> tensor<8x16xptr<i32>>
      %q = addptr %s, %i : tensor<8x16xptr<i32>>
"""


def kernel(body: str, ctas: int) -> Function:
    text = f"func @f(%p: ptr<i32>, %out: ptr<i32>) attributes {{num_warps = 4, num_ctas = {ctas}}} {{"
    return parse_function(f"{text}\n{ROWS}{body}\nreturn\n}}")


def planned(body: str, ctas: int) -> tuple[Function, list[int]]:
    """The function after the pass, with the same meaning, and the lengths of its ranges."""
    before = kernel(body, ctas)
    after = before.clone()
    assert plan_ctas(after, TARGET) and not plan_ctas(after, TARGET)
    verify(after)
    after = parse_function(print_function(after))
    assert any(isinstance(op, GetCtaRank) for op in after.walk())
    data = np.random.default_rng(0).integers(-99, 99, 256).astype(np.int32)
    results = []
    for function in (before, after):
        arrays = [data.copy(), np.zeros(256, np.int32)]
        run(function, 1, arrays)
        results.append(arrays)
    for one, other in zip(*results):
        np.testing.assert_array_equal(one, other)
    return after, [op.end - op.start for op in after.walk() if isinstance(op, MakeRange)]


STORE = """
      %v = load %q : (tensor<8x16xptr<i32>>) -> tensor<8x16xi32>
      %t = splat %out : (ptr<i32>) -> tensor<8x16xptr<i32>>
      %u = addptr %t, %i : tensor<8x16xptr<i32>>
      store %u, %v : (tensor<8x16xptr<i32>>, tensor<8x16xi32>)"""
SUMS = """
      %v = load %q : (tensor<8x16xptr<i32>>) -> tensor<8x16xi32>
      %m = reduce %v {{axis = {axis}}} : (tensor<8x16xi32>) -> tensor<{length}xi32> {{
        (%a: i32, %b: i32):
        %x = addi %a, %b : i32
        yield %x
      }}
      %n = make_range {{start = 0, end = {length}}} : tensor<{length}xi32>
      %t = splat %out : (ptr<i32>) -> tensor<{length}xptr<i32>>
      %u = addptr %t, %n : tensor<{length}xptr<i32>>
      store %u, %m : (tensor<{length}xptr<i32>>, tensor<{length}xi32>)"""


@pytest.mark.parametrize("ctas, lengths", [(2, {8}), (4, {4, 8}), (8, {4})])
def test_the_longer_dimension_is_cut_first(ctas, lengths):
    """16 columns, then 8 rows: 8 of each, 8 and 4, 4 and 4 (where both are alike, either)."""
    _, found = planned(STORE, ctas)
    assert set(found) == lengths


@pytest.mark.parametrize("axis, length, ranges", [(1, 8, [4, 16, 4]), (0, 16, [8, 8, 8])])
def test_the_axis_of_a_reduction_is_whole(axis, length, ranges):
    after, found = planned(SUMS.format(axis=axis, length=length), 2)
    assert sorted(found) == sorted(ranges)
    assert not after.remarks


def test_what_cannot_be_cut_is_left_to_the_first():
    body = """
      %v = load %p : (ptr<i32>) -> i32
      store %out, %v : (ptr<i32>, i32)"""
    function = kernel(body, 2)
    assert plan_ctas(function, TARGET)
    assert [remark.kind for remark in function.remarks] == ["one-cta-works"]
    _, lengths = planned(body, 2)
    assert set(lengths) <= {8, 16}


def test_one_cta_needs_no_plan():
    assert not plan_ctas(kernel(STORE, 1), TARGET)
