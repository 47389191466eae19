"""axis_info: each rule against the values themselves, and the facts that coalescing lives on."""

from __future__ import annotations

import numpy as np
import pytest

from ptxforge.interpreter import run
from ptxforge.ir import types as T
from ptxforge.ir.core import Function
from ptxforge.ir.facts import HIGHEST, AxisInfo
from ptxforge.ir.ops.memory import Load, Store
from ptxforge.passes.analysis.axis_info import AxisInfoAnalysis
from tests.passes.gpu import operations, parse

PARAMETERS = "%out: ptr<i32> {divisibility = 16}, %n: i32 {divisibility = 16}, %m: i32"


def facts_about_stored(body: str, parameters: str = PARAMETERS) -> tuple[Function, AxisInfo]:
    function = parse(body, parameters)
    store = operations(function, Store)[-1]
    return function, AxisInfoAnalysis(function)[store.value]


def stored(expression: str) -> str:
    """A body that stores the 32-element i32 tensor ``%v`` that ``expression`` makes."""
    return f"""
      %r = make_range {{start = 0, end = 32}} : tensor<32xi32>
      %ns = splat %n : (i32) -> tensor<32xi32>
      %ms = splat %m : (i32) -> tensor<32xi32>
      %c4 = constant {{value = 4}} : tensor<32xi32>
      %c3 = constant {{value = 3}} : tensor<32xi32>
      %c12 = constant {{value = 12}} : tensor<32xi32>
      {expression}
      %p = splat %out : (ptr<i32>) -> tensor<32xptr<i32>>
      %q = addptr %p, %r : tensor<32xptr<i32>>
      store %q, %v : (tensor<32xptr<i32>>, tensor<32xi32>)"""


RULES = {
    "range": ("%v = addi %r, %ns : tensor<32xi32>", 32, 16, 1),
    "range plus unknown": ("%v = addi %r, %ms : tensor<32xi32>", 32, 1, 1),
    "range plus constant": ("%v = addi %r, %c12 : tensor<32xi32>", 32, 4, 1),
    "range minus constant": ("%v = subi %r, %c4 : tensor<32xi32>", 32, 4, 1),
    "constant minus range": ("%v = subi %c4, %r : tensor<32xi32>", 1, 1, 1),
    "range plus range": ("%v = addi %r, %r : tensor<32xi32>", 1, 1, 1),
    "product": ("%v = muli %r, %c12 : tensor<32xi32>", 1, 4, 1),
    "product of uniforms": ("%v = muli %ns, %c12 : tensor<32xi32>", 1, 64, 32),
    "shift": ("%v = shli %r, %c3 : tensor<32xi32>", 1, 8, 1),
    "quotient": ("%v = divsi %r, %c4 : tensor<32xi32>", 1, 1, 4),
    "quotient by no power": ("%v = divsi %r, %c3 : tensor<32xi32>", 1, 1, 1),
    "quotient by part of a power": ("%v = divsi %r, %c12 : tensor<32xi32>", 1, 1, 4),
    "quotient of a remainder": (
        "%a = divsi %r, %ns : tensor<32xi32>\n%b = muli %a, %ns : tensor<32xi32>\n"
        "%x = subi %r, %b : tensor<32xi32>\n%v = divsi %x, %c4 : tensor<32xi32>", 1, 1, 4),
    "quotient of a difference": (
        "%a = divsi %r, %ns : tensor<32xi32>\n%b = muli %a, %c12 : tensor<32xi32>\n"
        "%x = subi %r, %b : tensor<32xi32>\n%v = divsi %x, %c4 : tensor<32xi32>", 1, 1, 1),
    "quotient of runs": (
        "%a = muli %ns, %ns : tensor<32xi32>\n%b = shli %a, %c4 : tensor<32xi32>\n"
        "%x = addi %r, %b : tensor<32xi32>\n%v = shrui %x, %c12 : tensor<32xi32>", 1, 1, 32),
    "even quotient of runs": (
        "%a = muli %ns, %ns : tensor<32xi32>\n%b = shli %a, %c4 : tensor<32xi32>\n%d = shli %b, %c4 : tensor<32xi32>\n"  # noqa: E501
        "%x = addi %r, %d : tensor<32xi32>\n%v = shrui %x, %c12 : tensor<32xi32>", 1, 16, 32),
    "exclusive or of uniforms": ("%v = xori %ns, %c12 : tensor<32xi32>", 1, 1, 32),
    "exclusive or": ("%v = xori %r, %c12 : tensor<32xi32>", 1, 1, 1),
    "right shift": ("%v = shrui %r, %c3 : tensor<32xi32>", 1, 1, 8),
    "quotient of negative": ("%w = subi %r, %c4 : tensor<32xi32>\n%v = divsi %w, %c4 : tensor<32xi32>", 1, 1, 1),  # noqa: E501
    "quotient by multiples": ("%v = divsi %r, %ns : tensor<32xi32>", 1, 1, 16),
    "unsigned quotient by multiples": ("%v = divui %r, %ns : tensor<32xi32>", 1, 1, 16),
    "quotient by unknown": ("%v = divsi %r, %ms : tensor<32xi32>", 1, 1, 1),
    "quotient by a run": ("%w = addi %r, %ns : tensor<32xi32>\n%v = divsi %r, %w : tensor<32xi32>", 1, 1, 1),
    "quotient of uniforms": ("%v = divsi %ms, %ns : tensor<32xi32>", 1, 1, 32),
    "quotient of negative by multiples": (
        "%w = subi %r, %c12 : tensor<32xi32>\n%v = divsi %w, %ns : tensor<32xi32>", 1, 1, 1),
    "remainder": ("%v = remsi %r, %c4 : tensor<32xi32>", 4, 4, 1),
    "remainder by no power": ("%v = remsi %r, %c12 : tensor<32xi32>", 4, 4, 1),
    "remainder of negative": ("%w = subi %r, %c4 : tensor<32xi32>\n%v = remsi %w, %c4 : tensor<32xi32>", 1, 1, 1),  # noqa: E501
    "low bits": ("%v = andi %r, %c3 : tensor<32xi32>", 4, 4, 1),
    "bits": ("%v = andi %ns, %r : tensor<32xi32>", 1, 16, 1),
    "or": ("%v = ori %ns, %c4 : tensor<32xi32>", 1, 4, 32),
    "minimum": ("%v = minsi %r, %ns : tensor<32xi32>", 1, 1, 1),
    "maximum of constants": ("%v = maxsi %c3, %c12 : tensor<32xi32>", 1, 4, 32),
    "comparison below": (
        "%b = cmpi %r, %ns {predicate = \"slt\"} : tensor<32xi1>\n%v = extui %b : (tensor<32xi1>) -> tensor<32xi32>",  # noqa: E501
        1, 1, 16),
    "comparison above": (
        "%b = cmpi %ns, %r {predicate = \"sgt\"} : tensor<32xi1>\n%v = extui %b : (tensor<32xi1>) -> tensor<32xi32>",  # noqa: E501
        1, 1, 16),
    "comparison or equal": (
        "%b = cmpi %r, %ns {predicate = \"sle\"} : tensor<32xi1>\n%v = extui %b : (tensor<32xi1>) -> tensor<32xi32>",  # noqa: E501
        1, 1, 1),
    "selection": (
        "%b = cmpi %r, %ns {predicate = \"slt\"} : tensor<32xi1>\n"
        "%w = addi %r, %c4 : tensor<32xi32>\n%v = select %b, %r, %w : tensor<32xi32>", 16, 4, 1),
    "hint": ("%w = muli %ms, %ms : tensor<32xi32>\n%v = addi %w, %r {divisibility = [8]} : tensor<32xi32>", 32, 8, 1),  # noqa: E501
}  # fmt: skip


@pytest.mark.parametrize(("expression", "contiguity", "divisibility", "constancy"), RULES.values(), ids=RULES)
def test_rule(expression, contiguity, divisibility, constancy):
    function, info = facts_about_stored(stored(expression))
    assert (info.contiguity, info.divisibility, info.constancy) == (
        (contiguity,),
        (divisibility,),
        (constancy,),
    )


@pytest.mark.parametrize("name", [name for name in RULES if name != "hint"])
@pytest.mark.parametrize("numbers", [(16, 5), (48, -3), (-32, 7)])
def test_facts_hold_of_the_values(name, numbers):
    """Computed values agree with what was claimed of them, for several arguments (16 divides the first)."""
    function, info = facts_about_stored(stored(RULES[name][0]))
    array = np.zeros(64, np.int32)
    run(function, 1, [array, *numbers])
    values = array[:32]
    runs = values.reshape(-1, info.contiguity[0])
    assert (np.diff(runs, axis=1) == 1).all()
    assert (runs[:, 0] % min(info.divisibility[0], 1 << 20) == 0).all()
    equal = values.reshape(-1, info.constancy[0])
    assert (equal == equal[:, :1]).all()
    if info.constant is not None:
        assert (values == info.constant).all()


def pointer_facts(body: str, parameters: str) -> AxisInfo:
    function = parse(body, parameters)
    return AxisInfoAnalysis(function)[operations(function, Load, Store)[0].pointer]


TILE = """
  %r = make_range {start = 0, end = 16} : tensor<16xi32>
  %c = make_range {start = 0, end = 32} : tensor<32xi32>
  %e = expand_dims %r {axis = 1} : (tensor<16xi32>) -> tensor<16x1xi32>
  %f = expand_dims %c {axis = 0} : (tensor<32xi32>) -> tensor<1x32xi32>
  %s = splat %n : (i32) -> tensor<16x1xi32>
  %t = muli %e, %s : tensor<16x1xi32>
  %tb = broadcast %t : (tensor<16x1xi32>) -> tensor<16x32xi32>
  %fb = broadcast %f : (tensor<1x32xi32>) -> tensor<16x32xi32>
  %o = addi %tb, %fb : tensor<16x32xi32>
  %b = splat %x : (ptr<f16>) -> tensor<16x32xptr<f16>>
  %p = addptr %b, %o : tensor<16x32xptr<f16>>
  %v = load %p : (tensor<16x32xptr<f16>>) -> tensor<16x32xf16>"""


@pytest.mark.parametrize(("stride", "rows"), [(16, 16), (8, 16), (1, 2)])
def test_rows_are_contiguous_and_as_aligned_as_the_stride(stride, rows):
    info = pointer_facts(TILE, f"%x: ptr<f16> {{divisibility = 16}}, %n: i32 {{divisibility = {stride}}}")
    assert info.contiguity == (1, 32) and info.divisibility[1] == min(16, 2 * stride)


def test_loop_carried_pointers_keep_what_every_step_keeps():
    body = TILE.rsplit("\n", 1)[0] + """
      %c0 = constant {value = 0} : i32
      %c8 = constant {value = 8} : i32
      %st = constant {value = STEP} : tensor<16x32xi32>
      %z = for %k = %c0 to %n step %c8 iter_args(%q = %p) : tensor<16x32xptr<f16>> {
        %v = load %q : (tensor<16x32xptr<f16>>) -> tensor<16x32xf16>
        %w = addptr %q, %st : tensor<16x32xptr<f16>>
        yield %w
      }"""
    parameters = "%x: ptr<f16> {divisibility = 16}, %n: i32 {divisibility = 16}"
    assert pointer_facts(body.replace("STEP", "64"), parameters).divisibility[1] == 16
    assert pointer_facts(body.replace("STEP", "4"), parameters).divisibility[1] == 8
    assert pointer_facts(body.replace("STEP", "3"), parameters).divisibility[1] == 2
    assert pointer_facts(body.replace("STEP", "3"), parameters).contiguity == (1, 32)


def test_branches_join():
    body = """
      %r = make_range {start = 0, end = 32} : tensor<32xi32>
      %c4 = constant {value = 4} : tensor<32xi32>
      %v = if %flag : tensor<32xi32> {
        %a = addi %r, %c4 : tensor<32xi32>
        yield %a
      } else {
        %b = muli %r, %c4 : tensor<32xi32>
        yield %b
      }
      %p = splat %out : (ptr<i32>) -> tensor<32xptr<i32>>
      %q = addptr %p, %r : tensor<32xptr<i32>>
      store %q, %v : (tensor<32xptr<i32>>, tensor<32xi32>)"""
    _, info = facts_about_stored(body, "%out: ptr<i32>, %flag: i1")
    assert (info.contiguity, info.divisibility, info.constancy) == ((1,), (1,), (1,))


def test_while_carries_what_both_regions_agree_on():
    body = """
      %r = make_range {start = 0, end = 32} : tensor<32xi32>
      %c8 = constant {value = 8} : tensor<32xi32>
      %v = while %r : tensor<32xi32> {
        (%a: tensor<32xi32>):
        condition %flag, %a
      } body {
        (%b: tensor<32xi32>):
        %d = addi %b, %c8 : tensor<32xi32>
        yield %d
      }
      %p = splat %out : (ptr<i32>) -> tensor<32xptr<i32>>
      %q = addptr %p, %r : tensor<32xptr<i32>>
      store %q, %v : (tensor<32xptr<i32>>, tensor<32xi32>)"""
    _, info = facts_about_stored(body, "%out: ptr<i32>, %flag: i1")
    assert (info.contiguity, info.divisibility) == ((32,), (8,))


def test_join_looks_inside_runs():
    run8, run2 = AxisInfo((8,), (64,), (1,)), AxisInfo((2,), (16,), (1,))
    joined = run8.join(run2)
    # The runs of 8 start at multiples of 64, so their parts of 2 start at multiples of 2 only.
    assert (joined.contiguity, joined.divisibility) == ((2,), (2,))


def test_zero_is_divisible_by_everything():
    function, info = facts_about_stored(stored("%v = constant {value = 0} : tensor<32xi32>"))
    assert info.divisibility == (HIGHEST,) and info.constant == 0


def test_float_values_have_no_facts():
    function = parse("%v = load %x : (ptr<f32>) -> f32\n store %out, %v : (ptr<f32>, f32)")
    info = AxisInfoAnalysis(function)[operations(function, Load)[0].result]
    assert (info.contiguity, info.divisibility, info.constancy) == ((1,), (1,), (1,))
    assert T.element_type(operations(function, Load)[0].result.type).is_float


def assumed(condition: str, expression: str = "%v = addi %r, %ms : tensor<32xi32>") -> AxisInfo:
    """Facts about ``expression`` where ``condition`` computes ``%t`` of the scalar %m, which is assumed."""
    scalars = """
      %zero = constant {value = 0} : i32
      %c16 = constant {value = 16} : i32
      %c15 = constant {value = 15} : i32
      %minus = constant {value = -1} : i32
    """
    return facts_about_stored(f"{scalars}{condition}\nassume %t : (i1)\n{stored(expression)}")[1]


DIVISIBLE = "%d = remsi %m, %c16 : i32\n%t = cmpi %d, %zero {predicate = \"eq\"} : i1"
POSITIVE = "%t = cmpi %m, %zero {predicate = \"sgt\"} : i1"


@pytest.mark.parametrize(("condition", "divisor"), [
    (DIVISIBLE, 16),
    (DIVISIBLE.replace("remsi", "remui"), 16),
    (DIVISIBLE.replace("remsi %m, %c16", "andi %m, %c15"), 16),
    (DIVISIBLE.replace("remsi %m, %c16", "andi %m, %c16"), 1),
    (DIVISIBLE.replace("eq", "ne"), 1),
    (DIVISIBLE.replace("%zero {", "%c15 {"), 1),
    (DIVISIBLE.replace("%t =", "%e =") + "\n%f = cmpi %m, %zero {predicate = \"sgt\"} : i1\n%t = andi %f, %e : i1", 16),  # noqa: E501
    ("%t = cmpi %m, %c16 {predicate = \"eq\"} : i1", 16),
], ids=["remsi", "remui", "mask", "one bit", "not", "remainder", "both", "constant"])  # fmt: skip
def test_assumed_divisibility(condition, divisor):
    info = assumed(condition)
    assert (info.contiguity, info.divisibility) == ((32,), (divisor,))


@pytest.mark.parametrize(("condition", "length"), [
    (POSITIVE, 4),
    (POSITIVE.replace("sgt", "sge"), 4),
    (POSITIVE.replace("%zero", "%minus"), 4),
    (POSITIVE.replace("%zero", "%minus").replace("sgt", "sge"), 1),
    (POSITIVE.replace("sgt", "slt"), 1),
    (POSITIVE.replace("sgt", "ne"), 1),
])  # fmt: skip
def test_assumed_signs(condition, length):
    """Of (r + 4·m) / 4, four at a time are equal only if r + 4·m is nowhere negative."""
    info = assumed(condition, """%m4 = muli %ms, %c4 : tensor<32xi32>
      %w = addi %r, %m4 : tensor<32xi32>
      %v = divsi %w, %c4 : tensor<32xi32>""")
    assert info.constancy == (length,)


def test_what_is_assumed_in_a_branch_holds_there_only():
    body = f"""
      %zero = constant {{value = 0}} : i32
      %c16 = constant {{value = 16}} : i32
      {DIVISIBLE}
      if %flag {{
        assume %t : (i1)
        yield
      }} else {{
        yield
      }}
      {stored("%v = addi %r, %ms : tensor<32xi32>")}"""
    _, info = facts_about_stored(body, PARAMETERS + ", %flag: i1")
    assert info.divisibility == (1,)


def test_an_assumption_about_every_element():
    body = stored("""%v = muli %ms, %ms : tensor<32xi32>
      %t = cmpi %v, %c12 {predicate = "eq"} : tensor<32xi1>
      assume %t : (tensor<32xi1>)""")
    _, info = facts_about_stored(body)
    assert info.constant == 12 and info.constancy == (32,)
