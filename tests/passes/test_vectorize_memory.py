"""vectorize_memory: how many elements one instruction moves."""

from __future__ import annotations

import pytest

from ptxforge.ir.ops.arith import CmpI, RemSI
from ptxforge.ir.ops.atomic import AtomicRMW
from ptxforge.ir.ops.memory import Load, Store
from ptxforge.ir.parser import parse_function
from ptxforge.layouts.banks import register_run
from ptxforge.layouts.encodings import Blocked, Mma, Slice
from ptxforge.passes.properties import PROPERTIES, VECTORS
from ptxforge.passes.remove_layout_conversions import remove_layout_conversions
from ptxforge.passes.vectorize_memory import vectorize_memory
from ptxforge.support.errors import VerificationError
from ptxforge.support.target import parse_target
from tests.passes.elementwise import elementwise, pointers
from tests.passes.gpu import TARGET, apply, operations, parse, up_to
from tests.passes.kernels import ADD, TRANSPOSE


def accesses(text, target=TARGET, **options):
    function = parse_function(text) if text.startswith("func") else parse(text, **options)
    function = up_to(function, remove_layout_conversions)
    vectorize_memory(function, target)
    return operations(function, Load, Store, AtomicRMW)


def widths(text, target=TARGET, **options):
    return [op.attributes["vector"] for op in accesses(text, target, **options)]


def test_sixteen_bytes():
    assert widths(ADD) == [4, 4, 4]
    assert widths(TRANSPOSE) == [4, 4]


@pytest.mark.parametrize(("target", "width"), [("sm_90a", 4), ("sm_100", 8)])
def test_as_wide_as_the_target_can(target, width):
    layout = "#blocked<{sizePerThread = [8], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}>"
    text = f"""
func @copy(%x: ptr<f32> {{divisibility = 32}}) attributes {{num_warps = 4}} {{
  %i = make_range {{start = 0, end = 1024}} : tensor<1024xi32, {layout}>
  %b = splat %x : (ptr<f32>) -> tensor<1024xptr<f32>, {layout}>
  %p = addptr %b, %i : tensor<1024xptr<f32>, {layout}>
  %v = load %p : (tensor<1024xptr<f32>, {layout}>) -> tensor<1024xf32, {layout}>
  store %p, %v : (tensor<1024xptr<f32>, {layout}>, tensor<1024xf32, {layout}>)
  return
}}
"""
    function = parse_function(text)
    vectorize_memory(function, parse_target(target))
    assert [op.vector for op in operations(function, Load, Store)] == [width] * 2


@pytest.mark.parametrize(("divisibility", "width"), [(16, 4), (4, 4), (2, 2), (1, 1)])
def test_masks_limit_the_width(divisibility, width):
    """``i < n`` changes at n: it is the same for 4 neighbours only when 4 divides n."""
    text = ADD.replace("%n: i32 {divisibility = 16}", f"%n: i32 {{divisibility = {divisibility}}}")
    assert widths(text) == [width] * 3


@pytest.mark.parametrize(("divisibility", "guarded"), [(16, 1), (4, 1), (2, 4), (1, 4)])
def test_a_bound_that_nothing_divides_is_tested(divisibility, guarded):
    """Aligned addresses and a mask that is a prefix of every vector."""
    text = ADD.replace("%n: i32 {divisibility = 16}", f"%n: i32 {{divisibility = {divisibility}}}")
    for op in accesses(text):
        assert op.guarded == guarded
        assert op.aligned == (guarded > 1)


def test_masks_say_how_long_they_do_not_change():
    function = up_to(parse_function(ADD), remove_layout_conversions)
    vectorize_memory(function, TARGET)
    (mask,) = operations(function, CmpI)
    assert mask.attributes["constancy"] == (16,)


@pytest.mark.parametrize(("divisibility", "run"), [(16, 16), (4, 4), (1, None)])
def test_remainders_say_how_far_they_count_up(divisibility, run):
    text = ADD.replace("%n: i32 {divisibility = 16}", f"%n: i32 {{divisibility = {divisibility}}}")
    wrapped = """%w = remsi %r, %ns : tensor<1024xi32>
  %op = addptr %os, %w : tensor<1024xptr<f32>>"""
    text = text.replace("%op = addptr %os, %i : tensor<1024xptr<f32>>", wrapped)
    function = up_to(parse_function(text), remove_layout_conversions)
    vectorize_memory(function, TARGET)
    (remainder,) = operations(function, RemSI)
    assert remainder.attributes.get("contiguity") == (run and (run,))


@pytest.mark.parametrize("predicate", ["eq", "ne", "sge", "sgt", "ult"])
def test_masks_that_are_no_prefix_are_not_tested(predicate):
    """They say something else of the last element of a vector than that all may be moved."""
    text = ADD.replace("%n: i32 {divisibility = 16}", "%n: i32").replace('"slt"', f'"{predicate}"')
    assert all(op.guarded == 1 for op in accesses(text))


@pytest.mark.parametrize(("divisibility", "width"), [(16, 4), (8, 2), (4, 1)])
def test_alignment_limits_the_width(divisibility, width):
    parameters = pointers("f32", "f32").replace("16", str(divisibility))
    assert widths(elementwise("f32", "f32"), parameters=parameters) == [width] * 2


@pytest.mark.parametrize(("element", "width"), [("f64", 2), ("f32", 4), ("f16", 8), ("f8e5m2", 8)])
def test_element_sizes(element, width):
    """1024 elements on 128 threads: at most 8 for each."""
    text = (
        elementwise(element, "f32").replace("f32", "f64")
        if element == "f64"
        else elementwise(element, element)
    )
    if element == "f64":
        text = text.replace(
            "extf %v0 : (tensor<1024xf64>) -> tensor<1024xf64>", "addf %v0, %v0 : tensor<1024xf64>"
        )
    assert widths(text, parameters=pointers(element, element))[0] == width


def test_256_bits_where_the_target_has_them():
    """The layout has 4 elements per thread for f32, so 8 take a wider one."""
    layout = "#blocked<{sizePerThread = [8], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}>"
    function = parse(f"""
      %r = make_range {{start = 0, end = 1024}} : tensor<1024xi32, {layout}>
      %s = splat %x : (ptr<f32>) -> tensor<1024xptr<f32>, {layout}>
      %p = addptr %s, %r : tensor<1024xptr<f32>, {layout}>
      %v = load %p : (tensor<1024xptr<f32>, {layout}>) -> tensor<1024xf32, {layout}>
      store %p, %v : (tensor<1024xptr<f32>, {layout}>, tensor<1024xf32, {layout}>)""",
      parameters="%x: ptr<f32> {divisibility = 32}")  # fmt: skip
    for name, width in (("sm_90a", 4), ("sm_100", 8)):
        copy = function.clone()
        assert vectorize_memory(copy, parse_target(name))
        assert {op.attributes["vector"] for op in operations(copy, Load, Store)} == {width}


@pytest.mark.parametrize(("layout", "shape", "run"), [
    (Blocked((1, 4), (2, 16), (4, 1), (1, 0)), (64, 64), (1, 4)),
    (Blocked((4, 1), (16, 2), (1, 4), (0, 1)), (64, 64), (0, 4)),
    (Blocked((1,), (32,), (4,), (0,)), (128,), (0, 1)),
    (Slice(0, Blocked((1, 8), (2, 16), (4, 1), (1, 0))), (128,), (0, 8)),
    (Mma((2, 0), (4, 1), (16, 8)), (64, 64), (1, 2)),
    (Blocked((4,), (32,), (4,), (0,)), (2,), (0, 2)),
])  # fmt: skip
def test_register_runs(layout, shape, run):
    assert register_run(layout, shape) == run


def test_scalars_have_no_width():
    function = parse("%v = load %x : (ptr<f32>) -> f32\n store %out, %v : (ptr<f32>, f32)")
    assert not apply(function, vectorize_memory).attributes.get("vector")
    assert all("vector" not in op.attributes for op in operations(function, Load, Store))


@pytest.mark.parametrize(("name", "width", "target", "most"), [
    ("vector", 8, "sm_90a", 4), ("vector", 16, "sm_100", 8), ("guarded", 8, "sm_90a", 4),
])  # fmt: skip
def test_wider_than_may_be_is_refused(name, width, target, most):
    """What a later pass makes of an access, too: the code generator does as it is told."""
    layout = "#blocked<{sizePerThread = [8], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}>"
    function = parse(f"""
      %p = splat %x : (ptr<f32>) -> tensor<1024xptr<f32>, {layout}>
      %v = load %p {{vector = 4}} : (tensor<1024xptr<f32>, {layout}>) -> tensor<1024xf32, {layout}>""",
      parameters="%x: ptr<f32>")  # fmt: skip
    (load,) = operations(function, Load)
    check = PROPERTIES[VECTORS].check
    check(function, parse_target(target))
    setattr(load, name, width)
    with pytest.raises(VerificationError, match=f"at most {most} elements"):
        check(function, parse_target(target))
