"""Each rule of the canonicalizer on the smallest case, exactly; its meaning by interpretation."""

from __future__ import annotations

import itertools
import operator

import pytest

from ptxforge.passes.canonicalize import RULES, canonicalize
from ptxforge.passes.rules.arith import _decided
from tests.passes.harness import body, check, function, transform

SCALARS = {
    "x + 0": ("%c = constant {value = 0} : i32\n%r = addi %c, %x : i32", "%x"),
    "x - 0": ("%c = constant {value = 0} : i32\n%r = subi %x, %c : i32", "%x"),
    "x * 1": ("%c = constant {value = 1} : i32\n%r = muli %x, %c : i32", "%x"),
    "x / 1": ("%c = constant {value = 1} : i32\n%r = divsi %x, %c : i32", "%x"),
    "x & -1": ("%c = constant {value = -1} : i32\n%r = andi %x, %c : i32", "%x"),
    "x | 0": ("%c = constant {value = 0} : i32\n%r = ori %x, %c : i32", "%x"),
    "x << 0": ("%c = constant {value = 0} : i32\n%r = shli %x, %c : i32", "%x"),
    "min(x, x)": ("%r = minsi %x, %x : i32", "%x"),
    "select flag, x, x": ("%r = select %flag, %x, %x : i32", "%x"),
    "trunc (sext x)": ("%w = extsi %x : (i32) -> i64\n%r = trunci %w : (i64) -> i32", "%x"),
    "bitcast (bitcast x)": ("%w = bitcast %x : (i32) -> f32\n%r = bitcast %w : (f32) -> i32", "%x"),
    "ptr_to_int": ("%w = ptr_to_int %p : (ptr<i32>) -> i64\n%q = int_to_ptr %w : (i64) -> ptr<i32>\n"
                   "%r = load %q : (ptr<i32>) -> i32", "%r"),
}  # fmt: skip


@pytest.mark.parametrize("name", SCALARS)
def test_identities(name):
    text, expected = SCALARS[name]
    after = body(transform(canonicalize, function(f"{text}\nstore %p, %r : (ptr<i32>, i32)")))
    assert after.splitlines()[-1] == f"store %p, {expected} : (ptr<i32>, i32)"
    assert len(after.splitlines()) == (2 if expected == "%r" else 1)


CONSTANTS = {
    "x * 0": ("%c = constant {value = 0} : i32\n%r = muli %x, %c : i32", 0),
    "x | -1": ("%c = constant {value = -1} : i32\n%r = ori %c, %x : i32", -1),
    "x - x": ("%r = subi %x, %x : i32", 0),
    "x ^ x": ("%r = xori %x, %x : i32", 0),
    "x % 1": ("%c = constant {value = 1} : i32\n%r = remsi %x, %c : i32", 0),
    "x <= x": ("%t = cmpi %x, %x {predicate = \"sle\"} : i1\n%r = extui %t : (i1) -> i32", 1),
    "x < x": ("%t = cmpi %x, %x {predicate = \"ult\"} : i1\n%r = extui %t : (i1) -> i32", 0),
    "wrapping sum": ("%c = constant {value = 2147483647} : i32\n%r = addi %c, %c : i32", -2),
    "saturating cast": ("%c = constant {value = 1e+20} : f32\n%r = fptosi %c : (f32) -> i32", 2147483647),
    "division by zero": ("%c = constant {value = 7} : i32\n%z = constant {value = 0} : i32\n%r = divui %c, %z : i32", -1),  # noqa: E501
}  # fmt: skip


@pytest.mark.parametrize("name", CONSTANTS)
def test_folding(name):
    text, value = CONSTANTS[name]
    after = body(transform(canonicalize, function(f"{text}\nstore %p, %r : (ptr<i32>, i32)")))
    assert after.splitlines()[0].endswith(f" = constant {{value = {value}}} : i32")
    assert len(after.splitlines()) == 2


FLOATS = "%x: f32, %p: ptr<f32>"
STORE = "\nstore %p, %r : (ptr<f32>, f32)"


@pytest.mark.parametrize("text, kept", [
    ("%c = constant {value = 1.0} : f32\n%r = mulf %x, %c : f32", False),
    ("%c = constant {value = -0.0} : f32\n%r = addf %x, %c : f32", False),
    ("%c = constant {value = 0.0} : f32\n%r = subf %x, %c : f32", False),
    ("%c = constant {value = 0.0} : f32\n%r = addf %x, %c : f32", True),
    ("%c = constant {value = -0.0} : f32\n%r = subf %x, %c : f32", True),
    ("%c = constant {value = 0.0} : f32\n%r = mulf %x, %c : f32", True),
    ("%r = subf %x, %x : f32", True),
    ("%w = extf %x : (f32) -> f64\n%r = truncf %w : (f64) -> f32", False),
])  # fmt: skip
def test_float_rules_respect_nan_infinity_and_the_sign_of_zero(text, kept):
    after = body(transform(canonicalize, function(text + STORE, parameters=FLOATS)))
    assert ("store %p, %x : (ptr<f32>, f32)" not in after) == kept


def test_narrowing_to_8_bits_saturates_and_stays():
    text = """
      %v = load %p : (ptr<f8e5m2>) -> f8e5m2
      %w = extf %v : (f8e5m2) -> f32
      %r = truncf %w : (f32) -> f8e5m2
      store %p, %r : (ptr<f8e5m2>, f8e5m2)"""
    assert "truncf" in body(transform(canonicalize, function(text, parameters="%p: ptr<f8e5m2>")))


def test_constants_associate_and_go_right():
    check(canonicalize, """
      %c = constant {value = 5} : i32
      %d = constant {value = 3} : i32
      %a = addi %c, %x : i32
      %r = subi %a, %d : i32
      %t = cmpi %c, %r {predicate = "slt"} : i1
      %u = select %t, %r, %y : i32
      store %p, %u : (ptr<i32>, i32)""", """
      %c = constant {value = 5} : i32
      %0 = constant {value = 2} : i32
      %r = addi %x, %0 : i32
      %t = cmpi %r, %c {predicate = "sgt"} : i1
      %u = select %t, %r, %y : i32
      store %p, %u : (ptr<i32>, i32)""")  # fmt: skip


def test_constants_that_become_known_late_are_multiplied_once():
    """Branches make %a known when the products were looked at before: the last one is looked at first."""
    check(canonicalize, """
      %one = constant {value = 1} : i32
      %two = constant {value = 2} : i32
      %a, %b = if %flag : i32, i32 {
        %z = subi %x, %x : i32
        %t = cmpi %z, %two {predicate = "sgt"} : i1
        %c, %d = if %t : i32, i32 {
          yield %y, %y
        } else {
          yield %one, %x
        }
        yield %c, %d
      } else {
        yield %one, %x
      }
      %e = muli %a, %two : i32
      %f = muli %e, %two : i32
      %g = if %flag : i32 {
        yield %y
      } else {
        yield %y
      }
      %h = addi %f, %g : i32
      store %p, %h : (ptr<i32>, i32)""", """
      %f = constant {value = 4} : i32
      %h = addi %y, %f : i32
      store %p, %h : (ptr<i32>, i32)""")  # fmt: skip


def test_negations_go_into_comparisons_and_selections():
    check(canonicalize, """
      %true = constant {value = true} : i1
      %t = cmpi %x, %y {predicate = "ult"} : i1
      %n = xori %true, %t : i1
      %m = xori %flag, %true : i1
      %a = select %n, %x, %y : i32
      %b = select %m, %a, %x : i32
      store %p, %b : (ptr<i32>, i32)""", """
      %n = cmpi %x, %y {predicate = "uge"} : i1
      %a = select %n, %x, %y : i32
      %b = select %flag, %x, %a : i32
      store %p, %b : (ptr<i32>, i32)""")  # fmt: skip


@pytest.mark.parametrize("predicate", ["eq", "slt", "sge", "ult", "ugt"])
@pytest.mark.parametrize("bound", [1 - 2**31, -1, 0, 192, 2**31 - 1])
def test_extended_numbers_are_compared_as_they_were(predicate, bound):
    """Sign extension keeps the order, of unsigned numbers too."""
    check(canonicalize, f"""
      %w = extsi %x : (i32) -> i64
      %v = extsi %y : (i32) -> i64
      %c = constant {{value = {bound}}} : i64
      %s = cmpi %w, %c {{predicate = "{predicate}"}} : i1
      %t = cmpi %w, %v {{predicate = "{predicate}"}} : i1
      %u = andi %s, %t : i1
      %r = select %u, %x, %y : i32
      store %p, %r : (ptr<i32>, i32)""", f"""
      %0 = constant {{value = {bound}}} : i32
      %s = cmpi %x, %0 {{predicate = "{predicate}"}} : i1
      %t = cmpi %x, %y {{predicate = "{predicate}"}} : i1
      %u = andi %s, %t : i1
      %r = select %u, %x, %y : i32
      store %p, %r : (ptr<i32>, i32)""")  # fmt: skip


def test_a_bound_that_the_narrow_type_does_not_have_stays_wide():
    text = """
      %w = extsi %x : (i32) -> i64
      %c = constant {value = 2147483648} : i64
      %t = cmpi %w, %c {predicate = "ult"} : i1
      %r = select %t, %x, %y : i32
      store %p, %r : (ptr<i32>, i32)"""
    assert "cmpi %w, %c" in body(transform(canonicalize, function(text)))


@pytest.mark.parametrize("predicate, opposite", [("olt", "uge"), ("une", "oeq"), ("ord", "uno")])
def test_float_comparisons_are_negated_with_their_order(predicate, opposite):
    text = f"""
      %true = constant {{value = true}} : i1
      %v = load %p : (ptr<f32>) -> f32
      %t = cmpf %x, %v {{predicate = "{predicate}"}} : i1
      %n = xori %t, %true : i1
      %r = uitofp %n : (i1) -> f32{STORE}"""
    after = body(transform(canonicalize, function(text, parameters=FLOATS)))
    assert f'cmpf %x, %v {{predicate = "{opposite}"}}' in after and "xori" not in after


def test_select_of_truth_values():
    check(canonicalize, """
      %true = constant {value = true} : i1
      %false = constant {value = false} : i1
      %a = select %flag, %true, %false : i1
      %b = select %a, %false, %true : i1
      %c = extui %b : (i1) -> i32
      store %p, %c : (ptr<i32>, i32)""", """
      %true = constant {value = true} : i1
      %b = xori %flag, %true : i1
      %c = extui %b : (i1) -> i32
      store %p, %c : (ptr<i32>, i32)""")  # fmt: skip


TILE = """
      %r = make_range {start = 0, end = 8} : tensor<8xi32>
      %q = splat %p : (ptr<i32>) -> tensor<8xptr<i32>>
      %a = addptr %q, %r : tensor<8xptr<i32>>"""


def test_uniform_tensors_through_shapes():
    check(canonicalize, TILE + """
      %s = splat %x : (i32) -> tensor<8xi32>
      %e = expand_dims %s {axis = 1} : (tensor<8xi32>) -> tensor<8x1xi32>
      %b = broadcast %e : (tensor<8x1xi32>) -> tensor<8x4xi32>
      %t = trans %b {order = [1, 0]} : (tensor<8x4xi32>) -> tensor<4x8xi32>
      %c = constant {value = 2} : tensor<4x8xi32>
      %d = constant {value = 3} : i32
      %u = splat %d : (i32) -> tensor<4x8xi32>
      %v = muli %c, %u : tensor<4x8xi32>
      %w = addi %t, %v : tensor<4x8xi32>
      %k = reshape %w : (tensor<4x8xi32>) -> tensor<32xi32>
      %m = reshape %k : (tensor<32xi32>) -> tensor<4x8xi32>
      %z = reduce %m {axis = 0} : (tensor<4x8xi32>) -> tensor<8xi32> {
        (%l: i32, %o: i32):
        %g = addi %l, %o : i32
        yield %g
      }
      store %a, %z : (tensor<8xptr<i32>>, tensor<8xi32>)""", TILE + """
      %t = splat %x : (i32) -> tensor<4x8xi32>
      %v = constant {value = 6} : tensor<4x8xi32>
      %w = addi %t, %v : tensor<4x8xi32>
      %z = reduce %w {axis = 0} : (tensor<4x8xi32>) -> tensor<8xi32> {
        (%l: i32, %o: i32):
        %g = addi %l, %o : i32
        yield %g
      }
      store %a, %z : (tensor<8xptr<i32>>, tensor<8xi32>)""")  # fmt: skip


def test_join_split_trans():
    check(canonicalize, TILE + """
      %v = load %a : (tensor<8xptr<i32>>) -> tensor<8xi32>
      %j = join %v, %r : (tensor<8xi32>, tensor<8xi32>) -> tensor<8x2xi32>
      %s, %t = split %j : (tensor<8x2xi32>) -> tensor<8xi32>, tensor<8xi32>
      %e = expand_dims %s {axis = 0} : (tensor<8xi32>) -> tensor<1x8xi32>
      %u = trans %e {order = [1, 0]} : (tensor<1x8xi32>) -> tensor<8x1xi32>
      %w = trans %u {order = [1, 0]} : (tensor<8x1xi32>) -> tensor<1x8xi32>
      %k = reshape %w : (tensor<1x8xi32>) -> tensor<8xi32>
      %n = addi %k, %t : tensor<8xi32>
      store %a, %n : (tensor<8xptr<i32>>, tensor<8xi32>)""", TILE + """
      %v = load %a : (tensor<8xptr<i32>>) -> tensor<8xi32>
      %n = addi %v, %r : tensor<8xi32>
      store %a, %n : (tensor<8xptr<i32>>, tensor<8xi32>)""")  # fmt: skip


def test_dimensions_of_one():
    """A sum along one is a reshape, and a transpose moves it nowhere."""
    check(canonicalize, TILE + """
      %v = load %a : (tensor<8xptr<i32>>) -> tensor<8xi32>
      %m = reshape %v : (tensor<8xi32>) -> tensor<4x1x2xi32>
      %t = trans %m {order = [2, 0, 1]} : (tensor<4x1x2xi32>) -> tensor<2x4x1xi32>
      %w = reshape %t : (tensor<2x4x1xi32>) -> tensor<2x4xi32>
      %z = reduce %m {axis = 1} : (tensor<4x1x2xi32>) -> tensor<4x2xi32> {
        (%l: i32, %o: i32):
        %g = addi %l, %o : i32
        yield %g
      }
      %u = trans %z {order = [1, 0]} : (tensor<4x2xi32>) -> tensor<2x4xi32>
      %s = addi %u, %w : tensor<2x4xi32>
      %k = reshape %s : (tensor<2x4xi32>) -> tensor<8xi32>
      store %a, %k : (tensor<8xptr<i32>>, tensor<8xi32>)""", TILE + """
      %v = load %a : (tensor<8xptr<i32>>) -> tensor<8xi32>
      %0 = reshape %v : (tensor<8xi32>) -> tensor<4x2xi32>
      %w = trans %0 {order = [1, 0]} : (tensor<4x2xi32>) -> tensor<2x4xi32>
      %z = reshape %v : (tensor<8xi32>) -> tensor<4x2xi32>
      %u = trans %z {order = [1, 0]} : (tensor<4x2xi32>) -> tensor<2x4xi32>
      %s = addi %u, %w : tensor<2x4xi32>
      %k = reshape %s : (tensor<2x4xi32>) -> tensor<8xi32>
      store %a, %k : (tensor<8xptr<i32>>, tensor<8xi32>)""")  # fmt: skip


def test_layout_conversions():
    blocked = "#blocked<{sizePerThread = [%d], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}>"
    one, other = f"tensor<8xi32, {blocked % 1}>", f"tensor<8xi32, {blocked % 4}>"
    pointers = other.replace("8xi32", "8xptr<i32>")
    after = body(
        transform(
            canonicalize,
            function(f"""
      %r = make_range {{start = 0, end = 8}} : {one}
      %c = convert_layout %r : ({one}) -> {other}
      %q = splat %p : (ptr<i32>) -> {pointers}
      %a = addptr %q, %c : {pointers}
      %v = load %a : ({pointers}) -> {other}
      %d = convert_layout %v : ({other}) -> {one}
      %e = convert_layout %d : ({one}) -> {other}
      %s = splat %x : (i32) -> {one}
      %t = convert_layout %s : ({one}) -> {other}
      %w = addi %e, %t : {other}
      store %a, %w : ({pointers}, {other})"""),
        )
    )
    assert "convert_layout" not in after and after.count("make_range") == 1


def test_known_masks():
    check(canonicalize, """
      %true = constant {value = true} : i1
      %false = constant {value = false} : i1
      %zero = constant {value = 0} : i32
      %q = addptr %p, %zero : ptr<i32>
      %a = load %q, %true, %x : (ptr<i32>, i1, i32) -> i32
      %b = load %q, %false, %y : (ptr<i32>, i1, i32) -> i32
      %c = addi %a, %b : i32
      store %q, %x, %false : (ptr<i32>, i32, i1)
      store %q, %c, %true : (ptr<i32>, i32, i1)""", """
      %a = load %p : (ptr<i32>) -> i32
      %c = addi %a, %y : i32
      store %p, %c : (ptr<i32>, i32)""")  # fmt: skip


def test_if_with_a_known_condition_is_inlined():
    check(canonicalize, """
      %true = constant {value = true} : i1
      %r = if %true : i32 {
        %a = addi %x, %y : i32
        store %p, %x : (ptr<i32>, i32)
        yield %a
      } else {
        yield %x
      }
      store %p, %r : (ptr<i32>, i32)""", """
      %a = addi %x, %y : i32
      store %p, %x : (ptr<i32>, i32)
      store %p, %a : (ptr<i32>, i32)""")  # fmt: skip


def test_if_with_empty_branches_is_a_selection():
    check(canonicalize, """
      %r, %s = if %flag : i32, i32 {
        yield %x, %y
      } else {
        yield %y, %y
      }
      %t = addi %r, %s : i32
      store %p, %t : (ptr<i32>, i32)""", """
      %r = select %flag, %x, %y : i32
      %t = addi %r, %y : i32
      store %p, %t : (ptr<i32>, i32)""")  # fmt: skip


def test_unused_results_of_if():
    check(canonicalize, """
      %r, %s = if %flag : i32, i32 {
        store %p, %x : (ptr<i32>, i32)
        %a = muli %x, %y : i32
        yield %a, %x
      } else {
        yield %y, %y
      }
      store %p, %s : (ptr<i32>, i32)""", """
      %s = if %flag : i32 {
        store %p, %x : (ptr<i32>, i32)
        yield %x
      } else {
        yield %y
      }
      store %p, %s : (ptr<i32>, i32)""")  # fmt: skip


LOOP = """
  %zero = constant {value = 0} : i32
  %one = constant {value = 1} : i32
  %end = constant {value = END} : i32
  %r = for %i = %zero to %end step %one iter_args(%a = %x) : i32 {
    %b = addi %a, %i : i32
    %c = muli %b, %y : i32
    yield %c
  }
  store %p, %r : (ptr<i32>, i32)"""


@pytest.mark.parametrize("end, after", [
    (0, "store %p, %x : (ptr<i32>, i32)"),
    (1, "%c = muli %x, %y : i32\nstore %p, %c : (ptr<i32>, i32)"),
])  # fmt: skip
def test_loops_of_no_or_one_iteration(end, after):
    check(canonicalize, LOOP.replace("END", str(end)), after)


def test_loops_of_more_iterations_stay():
    assert "for " in body(transform(canonicalize, function(LOOP.replace("END", "2"))))


RANGE_LOOP = """
  %lo = constant {value = LO} : i32
  %step = constant {value = STEP} : i32
  %hi = constant {value = HI} : i32
  %bound = constant {value = BOUND} : i32
  %r = for %i = %lo to %hi step %step iter_args(%a = %x) : i32 {
    %lanes = make_range {end = 16, start = 0} : tensor<16xi32>
    %spread = splat %i : (i32) -> tensor<16xi32>
    %index = addi %lanes, %spread : tensor<16xi32>
    %bounds = splat %bound : (i32) -> tensor<16xi32>
    %inside = cmpi %index, %bounds {predicate = "PREDICATE"} : tensor<16xi1>
    %ps = splat %p : (ptr<i32>) -> tensor<16xptr<i32>>
    %places = addptr %ps, %lanes : tensor<16xptr<i32>>
    store %places, %index, %inside : (tensor<16xptr<i32>>, tensor<16xi32>, tensor<16xi1>)
    yield %i
  }
  store %p, %r : (ptr<i32>, i32)"""


@pytest.mark.parametrize("lo, hi, step, predicate, bound, known", [
    (0, 64, 16, "slt", 64, True), (0, 63, 16, "slt", 64, True), (0, 65, 16, "slt", 64, False),
    (0, 64, 16, "slt", 63, False), (0, 64, 16, "sle", 63, True), (0, 64, 16, "ult", 64, True),
    (-16, 64, 16, "ult", 64, False), (-16, 64, 16, "slt", 64, True), (4, 64, 16, "slt", 68, True),
    (4, 64, 16, "slt", 67, False), (0, 64, 16, "sge", 0, True), (0, 64, 16, "sgt", 0, False),
    (0, 64, 16, "sgt", 63, True), (0, 64, 16, "eq", 64, True), (0, 64, 16, "ne", 63, False),
    (2147483600, 2147483647, 8, "sge", 0, False),
])  # fmt: skip
def test_masks_that_the_bounds_of_a_loop_decide(lo, hi, step, predicate, bound, known):
    """The meaning stays (the harness interprets both); what could wrap is not known."""
    text = RANGE_LOOP.replace("LO", str(lo)).replace("HI", str(hi)).replace("STEP", str(step))
    text = text.replace("BOUND", str(bound)).replace("PREDICATE", predicate)
    assert ("cmpi" not in body(transform(canonicalize, function(text)))) == known


@pytest.mark.parametrize("predicate", ["eq", "ne", "slt", "sle", "sgt", "sge"])
def test_comparisons_of_limits_hold_for_all_or_for_none(predicate):
    """Every pair of ranges of up to three numbers."""
    compare = {"eq": operator.eq, "ne": operator.ne, "slt": operator.lt, "sle": operator.le,
               "sgt": operator.gt, "sge": operator.ge}[predicate]  # fmt: skip
    ranges = [(low, low + more) for low in range(-3, 4) for more in range(3)]
    for left, right in itertools.product(ranges, ranges):
        numbers = itertools.product(range(left[0], left[1] + 1), range(right[0], right[1] + 1))
        found = {compare(x, y) for x, y in numbers}
        single = left == right and left[0] == left[1]
        if len(found) == 1 and not (predicate in ("eq", "ne") and single):
            assert _decided(predicate, left, right) is found.pop()
        else:
            assert _decided(predicate, left, right) is None


def test_carried_values_that_do_not_change_or_are_not_used():
    check(canonicalize, """
      %zero = constant {value = 0} : i32
      %one = constant {value = 1} : i32
      %a, %b, %c, %d = for %i = %zero to %y step %one
          iter_args(%k = %x, %l = %x, %m = %x, %n = %x) : i32, i32, i32, i32 {
        %s = addi %k, %l : i32
        %t = addi %n, %s : i32
        yield %k, %x, %s, %t
      }
      %e = addi %a, %d : i32
      store %p, %e : (ptr<i32>, i32)""", """
      %zero = constant {value = 0} : i32
      %one = constant {value = 1} : i32
      %d = for %i = %zero to %y step %one iter_args(%n = %x) : i32 {
        %s = addi %x, %x : i32
        %t = addi %n, %s : i32
        yield %t
      }
      %e = addi %x, %d : i32
      store %p, %e : (ptr<i32>, i32)""")  # fmt: skip


def test_what_a_while_carries_unchanged_or_unused():
    check(canonicalize, """
      %a, %b, %c = while %x, %y, %x : i32, i32, i32 {
        (%d: i32, %e: i32, %f: i32):
        %t = cmpi %d, %e {predicate = "slt"} : i1
        condition %t, %d, %y, %f
      } body {
        (%g: i32, %h: i32, %i: i32):
        %j = addi %g, %x : i32
        %k = addi %g, %h : i32
        yield %j, %h, %k
      }
      %l = addi %a, %b : i32
      store %p, %l : (ptr<i32>, i32)""", """
      %a = while %x : i32 {
        (%d: i32):
        %t = cmpi %d, %y {predicate = "slt"} : i1
        condition %t, %d
      } body {
        (%g: i32):
        %j = addi %g, %x : i32
        yield %j
      }
      %l = addi %a, %y : i32
      store %p, %l : (ptr<i32>, i32)""")  # fmt: skip


@pytest.mark.parametrize("divided, by, times", [
    ("divsi", 8, 1), ("divsi", 4, 2), ("shrsi", 3, 1), ("divsi", 16, None), ("shrsi", 4, None),
])  # fmt: skip
def test_multiples_are_divided_where_the_product_cannot_wrap(divided, by, times):
    text = f"""
      %r = make_range {{start = 0, end = 16}} : tensor<16xi32>
      %c = constant {{value = 8}} : tensor<16xi32>
      %m = muli %r, %c : tensor<16xi32>
      %d = constant {{value = {by}}} : tensor<16xi32>
      %q = {divided} %m, %d : tensor<16xi32>
      %t = splat %p : (ptr<i32>) -> tensor<16xptr<i32>>
      %a = addptr %t, %r : tensor<16xptr<i32>>
      store %a, %q : (tensor<16xptr<i32>>, tensor<16xi32>)"""
    after = body(transform(canonicalize, function(text)))
    assert (divided in after) == (times is None) and ("muli" in after) == (times != 1)
    unknown = text.replace("muli %r", "muli %s").replace("%t =", "%u =").replace("addptr %t", "addptr %u")
    unknown = "%s = splat %x : (i32) -> tensor<16xi32>" + unknown
    assert divided in body(transform(canonicalize, function(unknown)))


@pytest.mark.parametrize("steps, factor, expected", [
    (64, None, "kept"), (64, 0.5, "shrsi"), (64, 0.125, "shrsi"), (64, 2.0, None), (64, 0.75, None),
    (1 << 24, None, "kept"), (1 << 25, None, None),
])  # fmt: skip
def test_indices_by_way_of_floats_are_integers_where_these_are_exact(steps, factor, expected):
    lines = [
        "%lower = constant {value = 0} : i32",
        f"%upper = constant {{value = {steps}}} : i32",
        f"%step = constant {{value = {steps // 4}}} : i32",
        "for %i = %lower to %upper step %step {",
        "  %f = sitofp %i : (i32) -> f32",
        f"  %c = constant {{value = {factor or 1.0}}} : f32",
        f"  {'%unused' if factor is None else '%g'} = mulf %f, %c : f32",
        f"  %n = fptosi {'%f' if factor is None else '%g'} : (f32) -> i32",
        "  store %p, %n : (ptr<i32>, i32)",
        "  yield",
        "}",
    ]
    after = body(transform(canonicalize, function("\n".join(lines))))
    assert ("fptosi" in after) == (expected is None) and ("shrsi" in after) == (expected == "shrsi")


def test_hints_pass_to_what_stands_for_the_operation():
    after = body(
        transform(
            canonicalize,
            function("""
      %c = constant {value = 0} : i32
      %s = muli %x, %y : i32
      %t = addi %s, %c {divisibility = [16]} : i32
      store %p, %t : (ptr<i32>, i32)"""),
        )
    )
    assert "muli %x, %y {divisibility = [16]} : i32" in after


def test_every_rule_says_what_it_does():
    for patterns in RULES.by_kind.values():
        for pattern in patterns:
            assert "→" in pattern.__doc__, pattern.__name__


@pytest.mark.parametrize("extension", ["extui", "extsi"])
@pytest.mark.parametrize("predicate", ["ne", "eq"])
def test_a_boolean_that_was_a_number_is_compared_no_more(extension, predicate):
    """What ``flag != 0`` is where the flag is promoted to the type of 0."""
    inverted = """
      %0 = constant {value = true} : i1
      %s = xori %flag, %0 : i1""" if predicate == "eq" else ""
    stored, parameters = "%s" if inverted else "%flag", "%flag: i1, %q: ptr<i1>"
    check(canonicalize, f"""
      %w = {extension} %flag : (i1) -> i32
      %c = constant {{value = 0}} : i32
      %s = cmpi %w, %c {{predicate = "{predicate}"}} : i1
      store %q, %s : (ptr<i1>, i1)""", f"""{inverted}
      store %q, {stored} : (ptr<i1>, i1)""", parameters=parameters)  # fmt: skip
