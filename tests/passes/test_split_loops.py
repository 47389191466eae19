"""split_loops: a loop of which only some iterations need a mask becomes two."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

from ptxforge.interpreter import run
from ptxforge.ir.verifier import verify
from ptxforge.passes.split_loops import split_loops
from ptxforge.support.target import parse_target
from tests.passes.harness import body, function

LEAST, MOST = -(1 << 31), (1 << 31) - 1
TARGET = parse_target("sm_80")
PARAMETERS = "%out: ptr<f32>, %lo: i32, %hi: i32, %start: i32, %other: i32"
LOOP = """
  %n = make_range {{start = 0, end = 64}} : tensor<64xi32>
  %k = make_range {{start = 0, end = 64}} : tensor<64xi32>
  %a = constant {{value = 1.0}} : tensor<64x16xf16>
  %b = constant {{value = 1.0}} : tensor<16x64xf16>
  %zeros = constant {{value = 0.0}} : tensor<64x64xf32>
  %low = constant {{value = 7}} : i32
  %st = constant {{value = {step}}} : i32
  %none = constant {{value = -5.0}} : tensor<64x64xf32>
  {point}
  %s = splat {start} : (i32) -> tensor<64xi32>
  %i = addi %s, %k : tensor<64xi32>
  %i2 = expand_dims %i {{axis = 1}} : (tensor<64xi32>) -> tensor<64x1xi32>
  %rows = broadcast %i2 : (tensor<64x1xi32>) -> tensor<64x64xi32>
  %total = for %j = {lower} to {upper} step %st iter_args(%acc = %zeros) : tensor<64x64xf32> {{
    %c = splat %j : (i32) -> tensor<64xi32>
    %m = addi %c, %n : tensor<64xi32>
    %m2 = expand_dims %m {{axis = 0}} : (tensor<64xi32>) -> tensor<1x64xi32>
    %columns = broadcast %m2 : (tensor<1x64xi32>) -> tensor<64x64xi32>
    %bits = andi %j, %low : i32
    %f = sitofp %bits : (i32) -> f32
    %g = splat %f : (f32) -> tensor<64x64xf32>
    %d = dot %a, %b, %g : (tensor<64x16xf16>, tensor<16x64xf16>, tensor<64x64xf32>) -> tensor<64x64xf32>
    {mask}
    %t = addf %acc, %w : tensor<64x64xf32>
    yield %t
  }}
  %x = constant {{value = 64}} : i32
  %y = splat %x : (i32) -> tensor<64x1xi32>
  %k2 = expand_dims %k {{axis = 1}} : (tensor<64xi32>) -> tensor<64x1xi32>
  %line = muli %k2, %y : tensor<64x1xi32>
  %line2 = broadcast %line : (tensor<64x1xi32>) -> tensor<64x64xi32>
  %n2 = expand_dims %n {{axis = 0}} : (tensor<64xi32>) -> tensor<1x64xi32>
  %n3 = broadcast %n2 : (tensor<1x64xi32>) -> tensor<64x64xi32>
  %at = addi %line2, %n3 : tensor<64x64xi32>
  %o = splat %out : (ptr<f32>) -> tensor<64x64xptr<f32>>
  %p = addptr %o, %at : tensor<64x64xptr<f32>>
  store %p, %total : (tensor<64x64xptr<f32>>, tensor<64x64xf32>)"""
BLOCK = """%pid = get_program_id {axis = 0} : i32
  %size = constant {value = 64} : i32
  %begin = muli %pid, %size : i32
  %end = addi %begin, %size : i32
  %zero = constant {value = 0} : i32"""


def compared(predicate: str, sides: str = "%rows, %columns", values: str = "%d, %none") -> str:
    return (
        f'%q = cmpi {sides} {{predicate = "{predicate}"}} : tensor<64x64xi1>\n'
        f"    %w = select %q, {values} : tensor<64x64xf32>"
    )


CAUSAL = compared("sge")


def made(mask=CAUSAL, step=64, lower="%lo", upper="%hi", start="%start", point="", **attributes):
    f = function(
        LOOP.format(mask=mask, step=step, lower=lower, upper=upper, start=start, point=point), PARAMETERS
    )
    f.attributes.update(attributes)
    return f


def split(f, target=TARGET):
    after = f.clone()
    changed = split_loops(after, target)
    verify(after)
    assert not split_loops(after.clone(), target), "a second run finds more to do"
    return after if changed else None


def results(f, lo, hi, start, other=0, grid=1):
    out = np.zeros(64 * 64, np.float32)
    run(f, grid, [out, lo, hi, start, other])
    return out


def loops_of(text: str) -> list[str]:
    """The bodies of a function's loops."""
    return [part.split("\n}\n")[0] for part in re.split(r" = for ", text)[1:]]


# -- what becomes of a loop --------------------------------------------------------------------------------


def test_a_causal_mask_stays_in_a_second_loop_that_begins_on_the_diagonal():
    text = body(split(made(lower="%zero", upper="%end", start="%begin", point=BLOCK)))
    first, second = loops_of(text)
    assert "select" not in first and "select" in second
    assert first.startswith("%j = %zero to %begin step")
    end = re.match(r"%j_1 = %begin to (%\d+) step", second).group(1)
    assert re.search(rf"{end} = addi %begin, %\d+", text)


def test_where_rows_run_the_mask_stays_in_the_first_loop():
    mask = compared("sge", "%columns, %rows")
    text = body(split(made(mask, lower="%begin", start="%begin", point=BLOCK)))
    first, second = loops_of(text)
    assert "select" in first and "select" not in second
    point = re.match(r"%j_1 = (%\d+) to %hi step", second).group(1)
    assert re.search(rf"{point} = addi %begin, %", text) and f"minsi {point}, %hi" in text


def test_a_disjunction_that_leaves_out_is_dropped():
    mask = compared("slt", values="%none, %d")
    f = made(mask, lower="%zero", upper="%end", start="%begin", point=BLOCK)
    first, second = loops_of(body(split(f)))
    assert "select" not in first and "select" in second


def test_of_two_directions_one_stays():
    window = """%u = cmpi %rows, %columns {predicate = "sge"} : tensor<64x64xi1>
    %far = splat %other : (i32) -> tensor<64x64xi32>
    %near = subi %rows, %far : tensor<64x64xi32>
    %v = cmpi %near, %columns {predicate = "slt"} : tensor<64x64xi1>
    %q = andi %u, %v : tensor<64x64xi1>
    %w = select %q, %d, %none : tensor<64x64xf32>"""
    f = made(window, lower="%zero", upper="%end", start="%begin", point=BLOCK)
    after = split(f)
    first, second = loops_of(body(after))
    assert "select %v, %d" in first and "select %q_1, %d_1" in second
    for other in (1, 70, 500):
        np.testing.assert_array_equal(results(f, 0, 0, 0, other, 4), results(after, 0, 0, 0, other, 4))


@pytest.mark.parametrize("change, why", [
    (dict(warp_specialize=True), "it asks for warps that copy"),
    (dict(unroll=2), "to be unrolled"),
])  # fmt: skip
def test_what_was_asked_for_comes_first(change, why):
    f = made()
    loop = next(op for op in f.walk() if op.name == "for")
    for name, value in change.items():
        setattr(loop, name, value)
    assert split(f) is None
    split_loops(f, TARGET)
    (remark,) = f.remarks
    assert remark.kind == "not-split" and why in remark.message


@pytest.mark.parametrize("options", [
    dict(lower="%begin", upper="%end", start="%begin", point=BLOCK),     # the diagonal alone
    dict(lower="%zero", upper="%begin", start="%begin", point=BLOCK),    # nothing of it
    dict(mask=compared("eq")), dict(mask=compared("sge", "%rows, %rows")), dict(mask=compared("uge")),
    dict(num_warps=32),                                                  # 8 elements a thread
    dict(mask=compared("sge").replace("64x64xi1", "64x64xi1"), lower="%zero", upper="%few",
         point=BLOCK + "\n  %few = constant {value = 256} : i32"),
])  # fmt: skip
def test_loops_that_stay(options):
    f = made(**options)
    assert split(f) is None and not list(f.remarks)


def test_a_loop_without_products_stays():
    f = made()
    product = next(op for op in f.walk() if op.name == "dot")
    product.replace_with([product.operands[2]])
    assert split(f) is None


def test_for_any_grid_it_is_computed():
    options = dict(lower="%zero", upper="%end", start="%begin", point=BLOCK)
    few, any_grid = split(made(**options)), split(made(**options, any_grid=True))
    assert few.attributes["most_programs"] == 1 << 20 and "most_programs" not in any_grid.attributes
    assert "i64" not in body(few) and "extsi %begin" in body(any_grid)
    for f in (few, any_grid):
        np.testing.assert_array_equal(results(made(**options), 0, 0, 0, grid=5), results(f, 0, 0, 0, grid=5))


def test_it_is_told():
    f = made()
    split_loops(f, TARGET)
    (remark,) = f.remarks
    assert remark.kind == "split" and "only the last iterations" in remark.message


# -- what it means -----------------------------------------------------------------------------------------

BOUNDS = [(0, 320), (5, -70), (-100, 133), (MOST - 300, MOST - 100), (LEAST, LEAST + 200)]
STARTS = [0, 1, 2, 126, 127, 128, 100, 640, -1, -65, MOST, MOST - 63, MOST - 200, LEAST, LEAST + 64,
          LEAST + 200]  # fmt: skip
MASKS = [*itertools.product(("sge", "sgt", "sle", "slt"), ("%rows, %columns", "%columns, %rows"),
                            ("%d, %none", "%none, %d"))]  # fmt: skip


STEPPED = [(mask, (64, 16, 100)[index % 3]) for index, mask in enumerate(MASKS)]


@pytest.mark.parametrize("mask, step", STEPPED)
def test_it_means_the_same_for_all_bounds(mask, step):
    f = made(compared(*mask), step)
    after = split(f)
    assert after is not None
    for (lo, hi), start in itertools.product(BOUNDS, STARTS):
        same = results(f, lo, hi, start), results(after, lo, hi, start)
        np.testing.assert_array_equal(*same, err_msg=f"{lo} {hi} {start}")


@pytest.mark.parametrize("mask, step", STEPPED)
@pytest.mark.parametrize("bounds", [("%zero", "%end"), ("%begin", "%hi"), ("%zero", "%hi"), ("%lo", "%end")])
def test_it_means_the_same_for_blocks(mask, bounds, step):
    f = made(compared(*mask), step, *bounds, start="%begin", point=BLOCK)
    after = split(f)
    if after is None:
        after = f
    for lo, hi in ((0, 200), (-7, 320), (128, 64)):
        for grid in (1, 3):
            np.testing.assert_array_equal(results(f, lo, hi, 0, 0, grid), results(after, lo, hi, 0, 0, grid))
