"""What follows from the numbers between which values lie: shorter integers, comparisons that are known,
minima and maxima that meet no NaN, divisions of what is not negative."""

from __future__ import annotations

import re

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.compiler import compile_function
from ptxforge.ir.ops.arith import DivSI, MaximumF, MaxNumF, RemSI
from ptxforge.passes.use_limits import use_limits
from tests.passes.gpu import operations
from tests.passes.harness import body, check, function, transform

WIDE = "      %w = extsi %r : (tensor<64xi32>) -> tensor<64xi64>\n"
HEAD = f"""
      %r = make_range {{start = 0, end = 64}} : tensor<64xi32>
{WIDE}      %ps = splat %p : (ptr<i32>) -> tensor<64xptr<i32>>"""


def test_integers_that_fit_are_computed_in_32_bits():
    check(use_limits, HEAD + """
      %one = constant {value = 1} : tensor<64xi64>
      %last = constant {value = 63} : tensor<64xi64>
      %next = addi %w, %one : tensor<64xi64>
      %kept = minsi %next, %last : tensor<64xi64>
      %q = addptr %ps, %kept : tensor<64xptr<i32>>
      store %q, %r : (tensor<64xptr<i32>>, tensor<64xi32>)""", HEAD.replace(WIDE, "") + """
      %0 = constant {value = 1} : tensor<64xi32>
      %1 = constant {value = 63} : tensor<64xi32>
      %next = addi %r, %0 : tensor<64xi32>
      %kept = minsi %next, %1 : tensor<64xi32>
      %q = addptr %ps, %kept : tensor<64xptr<i32>>
      store %q, %r : (tensor<64xptr<i32>>, tensor<64xi32>)""")  # fmt: skip


@pytest.mark.parametrize(
    "line, narrow",
    {
        "addi %w, %c : tensor<64xi64>": False,  # 2**31 - 1 and more
        "subi %c, %w : tensor<64xi64>": True,
        "muli %w, %w : tensor<64xi64>": True,
        "muli %w, %c : tensor<64xi64>": False,
        "andi %x, %w : tensor<64xi64>": False,  # the other operand has 64 bits
        "minsi %x, %w : tensor<64xi64>": False,
        "remsi %w, %c : tensor<64xi64>": True,
        "divsi %w, %c : tensor<64xi64>": True,
        "shli %w, %w : tensor<64xi64>": False,
        "select %flag, %w, %c : tensor<64xi64>": True,
        "select %flag, %w, %x : tensor<64xi64>": False,
    }.items(),
)
def test_those_that_may_not_fit_stay(line, narrow):
    line = line.replace("%flag", "%fs")
    text = f"""{HEAD}
      %c = constant {{value = {(1 << 31) - 1}}} : tensor<64xi64>
      %fs = splat %flag : (i1) -> tensor<64xi1>
      %many = splat %n : (i64) -> tensor<64xi64>
      %x = addi %many, %w : tensor<64xi64>
      %y = {line}
      %z = trunci %y : (tensor<64xi64>) -> tensor<64xi32>
      %ten = constant {{value = 10}} : tensor<64xi64>
      %h = shrsi %y, %ten : tensor<64xi64>
      %i = trunci %h : (tensor<64xi64>) -> tensor<64xi32>
      %q = addptr %ps, %r : tensor<64xptr<i32>>
      %s = xori %z, %i : tensor<64xi32>
      store %q, %s : (tensor<64xptr<i32>>, tensor<64xi32>)"""
    parameters = "%x: i32, %y: i32, %p: ptr<i32>, %flag: i1, %n: i64"
    after = body(transform(use_limits, function(text.replace("%x", "%u").replace("%y", "%v"), parameters)))
    name = line.split()[0]
    assert bool(re.search(rf"{name} .*i32>", after)) == narrow, after


def test_what_is_cut_off_a_wide_value():
    """What a mask leaves of 64 bits is the end of wide arithmetic."""
    after = body(transform(use_limits, function("""
      %mask = constant {value = 63} : i64
      %two = constant {value = 2} : i64
      %low = andi %n, %mask : i64
      %twice = muli %low, %two : i64
      %more = addi %twice, %two : i64
      %q = addptr %p, %more : ptr<i32>
      store %q, %x : (ptr<i32>, i32)""", "%x: i32, %y: i32, %p: ptr<i32>, %n: i64")))  # fmt: skip
    assert "andi %n, %mask : i64" in after and "trunci" in after
    assert re.search(r"muli .* : i32", after) and "addptr %p, %more" in after


SEARCH = {"x": "*fp32:16", "table": "*fp32:16", "out": "*i64:16"}


def search(x, table, out, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i)
    low = tl.zeros([BLOCK], tl.int64)
    high = tl.full([BLOCK], 64, tl.int64)
    rest = 65
    while rest > 1:
        middle = (high + low) // 2
        inside = middle < 64
        above = value > tl.load(table + middle, mask=inside, other=0)
        low = tl.where(above & inside, middle + 1, low)
        high = tl.where(above, high, middle)
        rest = (rest + 1) // 2
    tl.store(out + i, low)


def test_a_search_is_done_in_32_bits():
    """Sums, halves and choices of 32 bits, and no test of an index but the last one's: it alone may be 64."""
    ptx = compile_function(search, SEARCH, {"BLOCK": 128}, "sm_90a").asm["ptx"]
    assert not re.search(r"(add|shr|selp|setp)\.\w*[bsu]64 (?!%q\d+, %q\d+, %q\d+;)", ptx)
    assert not re.search(r"(shr|selp)\.\w*64|setp\.\w+\.s64", ptx)
    assert len(re.findall(r"setp\.\w+\.s32", ptx)) == 1
    assert len(re.findall(r"shr\.", ptx)) == 6  # what is halved is not negative


def test_a_search_finds():
    rng = np.random.default_rng(3)
    x = rng.standard_normal(256).astype(np.float32)
    table = np.sort(rng.standard_normal(64)).astype(np.float32)
    x[:64] = table
    out = np.zeros(256, np.int64)
    ptxforge.compile(search)[(2,)](x, table, out, BLOCK=128)
    np.testing.assert_array_equal(out, np.searchsorted(table, x))


BETWEEN = """
  %r = make_range {start = 0, end = 64} : tensor<64xi32>
  %f = sitofp %r : (tensor<64xi32>) -> tensor<64xf32>
  %half = constant {value = 0.5} : tensor<64xf32>
  %g = mulf %f, %half : tensor<64xf32>
  %h = subf %g, %half : tensor<64xf32>
  %zero = constant {value = 0.0} : tensor<64xf32>
  %ps = splat %p : (ptr<f32>) -> tensor<64xptr<f32>>
  %q = addptr %ps, %r : tensor<64xptr<f32>>
"""


@pytest.mark.parametrize("value, kind", [("%h", MaxNumF), ("%l", MaximumF)])
def test_maxima_of_numbers_do_not_ask_for_nan(value, kind):
    after = transform(use_limits, function(BETWEEN + f"""
      %l = load %q : (tensor<64xptr<f32>>) -> tensor<64xf32>
      %m = maximumf {value}, %zero : tensor<64xf32>
      %s = addf %m, %l : tensor<64xf32>
      store %q, %s : (tensor<64xptr<f32>>, tensor<64xf32>)""", "%p: ptr<f32>"))  # fmt: skip
    (found,) = operations(after, MaximumF, MaxNumF)
    assert type(found) is kind


def test_floats_between_limits_become_short_integers():
    after = body(transform(use_limits, function(BETWEEN + """
      %m = maximumf %h, %zero : tensor<64xf32>
      %i = fptosi %m : (tensor<64xf32>) -> tensor<64xi64>
      %one = constant {value = 1} : tensor<64xi64>
      %j = addi %i, %one : tensor<64xi64>
      %o = addptr %ps, %j : tensor<64xptr<f32>>
      store %o, %m : (tensor<64xptr<f32>>, tensor<64xf32>)""", "%p: ptr<f32>")))  # fmt: skip
    assert "i64" not in after


COMBINED = """
  %f = load %xs : (tensor<64xptr<f32>>) -> tensor<64xf32>
  %r = make_range {{start = 0, end = 64}} : tensor<64xi32>
  %w = {} %r : (tensor<64xi32>) -> tensor<64xi64>
  %v, %i = {} %f, %w {{axis = 0}} : (tensor<64xf32>, tensor<64xi64>) -> {} {{
    (%a: f32, %ai: i64, %b: f32, %bi: i64):
    %gt = cmpf %a, %b {{predicate = "ogt"}} : i1
    %later = cmpi %ai, %bi {{predicate = "sgt"}} : i1
    %either = ori %gt, %later : i1
    %x = select %either, %a, %b : f32
    %xi = {} : i64
    yield %x, %xi
  }}
  {}
"""
TENSORS, SCALARS = "tensor<64xf32>, tensor<64xi64>", "f32, i64"
KEEP = {
    "scan": "store %ps, %i : (tensor<64xptr<i64>>, tensor<64xi64>)",
    "reduce": "store %p, %i : (ptr<i64>, i64)",
}
BEFORE_COMBINED = """
  %xs = splat %x0 : (ptr<f32>) -> tensor<64xptr<f32>>
  %ps = splat %p : (ptr<i64>) -> tensor<64xptr<i64>>"""


@pytest.mark.parametrize(
    "kind, types, chosen, narrow",
    [
        ("scan", TENSORS, "select %either, %ai, %bi", True),
        ("reduce", SCALARS, "select %either, %ai, %bi", True),
        ("scan", TENSORS, "maxsi %ai, %bi", True),
        ("reduce", SCALARS, "minsi %ai, %bi", True),
        ("scan", TENSORS, "muli %ai, %bi", False),
        ("reduce", SCALARS, "addi %ai, %bi", False),  # a sum beside something else
    ],
)
def test_what_is_chosen_among_short_integers_is_combined_in_32_bits(kind, types, chosen, narrow):
    text = BEFORE_COMBINED + COMBINED.format("extsi", kind, types, chosen, KEEP[kind])
    after = body(transform(use_limits, function(text, "%x0: ptr<f32>, %p: ptr<i64>")))
    (line,) = [line for line in after.splitlines() if f" {kind} " in line]
    assert ("i64" not in line) == narrow, after
    if narrow:
        assert not re.search(r"(cmpi|select|maxsi|minsi) .*i64", after), after


SUM = """
  %r = make_range {{start = 0, end = 64}} : tensor<64xi32>
  %w = extsi %r : (tensor<64xi32>) -> tensor<64xi64>
  %c = constant {{value = {}}} : tensor<64xi64>
  %t = muli %w, %c : tensor<64xi64>
  %s = reduce %t {{axis = 0}} : (tensor<64xi64>) -> i64 {{
    (%a: i64, %b: i64):
    %ab = addi %a, %b : i64
    yield %ab
  }}
  store %p, %s : (ptr<i64>, i64)
"""


@pytest.mark.parametrize("factor, narrow", [(1, True), (1 << 18, True), (-1000, True), (1 << 19, False)])
def test_sums_that_fit_are_added_up_in_32_bits(factor, narrow):
    """64 times 63 times the factor, and twice that, which an addition of two unknown ones could give."""
    after = body(transform(use_limits, function(SUM.format(factor), "%p: ptr<i64>")))
    (line,) = [line for line in after.splitlines() if " reduce " in line]
    assert ("i64" not in line) == narrow, after
    assert bool(re.search(r"addi %\w+, %\w+ : i32", after)) == narrow, after


INDEX = """
  %pid = get_program_id {{axis = 0}} : i32
  %size = constant {{value = {}}} : i32
  %first = muli %pid, %size : i32
  %r = make_range {{start = 0, end = 64}} : tensor<64xi32>
  %firsts = splat %first : (i32) -> tensor<64xi32>
  %i = addi %firsts, %r : tensor<64xi32>
  %seven = constant {{value = 7}} : tensor<64xi32>
  %d = divsi %i, %seven : tensor<64xi32>
  %m = remsi %i, %seven : tensor<64xi32>
  %ps = splat %p : (ptr<i32>) -> tensor<64xptr<i32>>
  %q = addptr %ps, %m : tensor<64xptr<i32>>
  store %q, %d : (tensor<64xptr<i32>>, tensor<64xi32>)
"""


@pytest.mark.parametrize("size, natural", [(64, True), (-64, False), (1103515245, False)])
def test_indices_are_not_negative_and_hashes_may_be(size, natural):
    found = function(INDEX.format(size), "%p: ptr<i32>")
    use_limits(found, None)
    assert [op.natural for op in operations(found, DivSI, RemSI)] == [natural] * 2


@pytest.mark.parametrize(
    "size, axis, most",
    [(2048, 0, 1 << 20), (1000, 0, 1 << 21), (64, 0, 1 << 25), (2048, 1, None), (1, 0, 1 << 30)],
)
def test_for_how_many_programs_indices_do_not_wrap_is_said(size, axis, most):
    """Along y and z there cannot be so many."""
    found = function(INDEX.format(size).replace("axis = 0", f"axis = {axis}"), "%p: ptr<i32>")
    use_limits(found, None)
    assert all(op.natural for op in operations(found, DivSI, RemSI))
    assert found.attributes.get("most_programs") == most


@pytest.mark.parametrize("size, axis, natural", [(2048, 0, False), (64, 0, False), (2048, 1, True)])
def test_for_any_grid_nothing_is_taken_for_granted(size, axis, natural):
    found = function(INDEX.format(size).replace("axis = 0", f"axis = {axis}"), "%p: ptr<i32>")
    found.attributes["any_grid"] = True
    use_limits(found, None)
    assert [op.natural for op in operations(found, DivSI, RemSI)] == [natural] * 2
    assert "most_programs" not in found.attributes


def rows_and_columns(x, out, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i % 128 * 128 + i // 128 % 128))


def test_divisions_of_indices_by_powers_of_two():
    """A shift for two quotients four apart, a mask for each remainder, and one where a multiple of the
    divisor lies between two indices."""
    signature = {"x": "*fp32:16", "out": "*fp32:16"}
    ptx = compile_function(rows_and_columns, signature, {"BLOCK": 1024}, "sm_90a").asm["ptx"]
    assert len(re.findall(r"shr\.", ptx)) == 1
    assert len(re.findall(r"and\.b32 %r\d+, %r\d+, 127;", ptx)) == 3


def test_divisions_of_indices_are_right():
    x, out = np.arange(1 << 14, dtype=np.float32), np.zeros(1 << 14, np.float32)
    ptxforge.compile(rows_and_columns)[(16,)](x, out, BLOCK=1024)
    np.testing.assert_array_equal(out, x.reshape(128, 128).T.ravel())
