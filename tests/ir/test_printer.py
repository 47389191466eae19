"""print → parse → print is the identity: for every operation, for every stage, for random functions."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxforge.ir import ops as _ops  # noqa: F401 - fills the registry
from ptxforge.ir import types as T
from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Block, Function, Operation, Region
from ptxforge.ir.definition import REGISTRY
from ptxforge.ir.ops.arith import AddF, AddI
from ptxforge.ir.ops.control import For, If, Return, Yield
from ptxforge.ir.ops.shape import Constant
from ptxforge.ir.parser import parse_function, parse_type
from ptxforge.ir.printer import print_function
from ptxforge.layouts.encodings import Blocked, DotOperand, Mma, Slice
from ptxforge.layouts.shared import Shared
from ptxforge.support.location import Location

BLOCKED = Blocked((1, 4), (8, 4), (4, 1), (1, 0))
MMA = Mma((2, 0), (2, 2), (16, 8))
SHARED = Shared(8, 1, 8, (1, 0))


def check_identity(function: Function, locations: bool = False) -> str:
    text = print_function(function, locations)
    assert print_function(parse_function(text), locations) == text
    return text


def function_of(*types: T.Type) -> tuple[Function, Builder]:
    function = Function("f", types, {"num_warps": 4})
    return function, Builder(function.body)


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_every_operation_round_trips(name):
    """Syntax needs no valid IR: operands of one type, an attribute of each kind, empty regions."""
    kind = REGISTRY[name]
    definition = kind.definition
    function, builder = function_of(T.I32)
    argument = function.arguments[0]
    count = len(definition.operand_fields) + (2 if definition.variadic is not None else 0)
    attributes = {field.name: _sample(field.kind) for field in definition.attribute_fields.values()}
    regions = [Region(Block([T.I32] * (3 if kind is For else 1))) for _ in definition.region_fields]
    results = [T.I32, T.F32] if kind is For else [T.I32]
    builder.insert(kind([argument] * count, results, attributes, regions))
    text = check_identity(function)
    again = parse_function(text).walk()[0]
    kept = {k: v for k, v in attributes.items() if v != definition.attribute_fields[k].default}
    assert type(again) is kind and again.attributes == kept


def _sample(kind):
    samples = {int: -3, float: 0.1, bool: True, str: 'a "quoted" \\ text\n', tuple: (1, (2, 3), "x")}
    if not isinstance(kind, tuple):
        return samples[kind]
    return samples[kind[0]] if isinstance(kind[0], type) else kind[-1]


@pytest.mark.parametrize("value", [
    0, -1, 2**63 - 1, True, False, 0.0, -0.0, 1.0, 0.1, 1e300, 5e-324, math.inf, -math.inf, math.nan, "",
    "\t\\\"é",
    (), (1,), (1, (2.5, "x")), None, BLOCKED, (MMA, Slice(1, BLOCKED)),
])  # fmt: skip
def test_attribute_values_keep_type_and_bits(value):
    function, builder = function_of()
    builder.insert(Constant([], [T.I32], {"value": 0, "extra": value}))
    again = parse_function(check_identity(function)).walk()[0].attributes["extra"]
    assert type(again) is type(value)
    assert repr(again) == repr(value)


@pytest.mark.parametrize("type", [
    T.I1, T.F8E4M3, T.PointerType(T.F32), T.PointerType(T.PointerType(T.I8), "shared"),
    *map(T.TokenType, T.QUEUES),
    T.TensorType((128, 64), T.F16), T.TensorType((4,), T.PointerType(T.BF16)),
    T.TensorType((8, 32), T.F16, DotOperand(0, MMA, 2)), T.TensorType((8,), T.I32, Slice(0, BLOCKED)),
    T.MemDescType((3, 64, 32), T.F16, SHARED, True), T.MemDescType((64, 32), T.F16, SHARED),
])  # fmt: skip
def test_types_parse_to_the_same_object(type):
    assert parse_type(str(type)) is type


def test_layouts_are_hoisted_and_numbered_in_order_of_use():
    other = Blocked((1, 1), (8, 4), (4, 1), (1, 0))
    function, builder = function_of()
    for layout in (BLOCKED, Slice(0, other), DotOperand(1, MMA, 2), BLOCKED):
        builder.insert(Constant([], [T.TensorType((32,) * layout.rank, T.I32, layout)], {"value": 1}))
    text = check_identity(function)
    assert [line.split(" = ")[0] for line in text.splitlines()[:3]] == ["#blocked", "#blocked1", "#mma"]
    assert "tensor<32xi32, #slice<{dim = 0, parent = #blocked1}>>" in text
    assert text.count("sizePerThread") == 2


def test_hints_become_unique_names():
    function, builder = function_of()
    for hint in ("x", "x", "x_1", "", "2y", "a b", "é"):
        builder.constant(1, T.I32).hint = hint
    names = [line.split(" = ")[0].strip() for line in check_identity(function).splitlines()[1:-1]]
    assert names == ["%x", "%x_1", "%x_2", "%0", "%_2y", "%a_b", "%é"]


def test_for_header_if_labels_and_defaults():
    function, builder = function_of(T.I32, T.I1)
    n, flag = function.arguments
    n.hint, flag.hint = "n", "flag"
    body = Block([T.I32, T.I32])
    body.arguments[0].hint, body.arguments[1].hint = "i", "sum"
    inside = Builder(body)
    inside.create(Yield, inside.value(AddI, body.arguments[1], body.arguments[0]))
    builder.create(For, n, n, n, n, regions=[Region(body)], num_stages=2, unroll=1)
    blocks = [Block(), Block()]
    for block in blocks:
        Builder(block).create(Yield)
    builder.create(If, flag, result_types=[], regions=[Region(block) for block in blocks])
    builder.create(Return)
    assert (
        check_identity(function)
        == """\
func @f(%n: i32, %flag: i1) attributes {num_warps = 4} {
  %0 = for %i = %n to %n step %n iter_args(%sum = %n) {num_stages = 2} : i32 {
    %1 = addi %sum, %i : i32
    yield %1
  }
  if %flag {
    yield
  } else {
    yield
  }
  return
}"""
    )


def test_locations_with_spans_functions_and_call_sites():
    call = Location("main.py", 7, 4, 9, 2, "kernel")
    function, builder = function_of()
    builder.location = Location('lib"é.py', 3, 0, 3, 5, "helper", call)
    builder.constant(1, T.I32)
    builder.location = Location("main.py", 8)
    builder.create(Return)
    function.location = call
    text = check_identity(function, locations=True)
    assert [op.location for op in parse_function(text).walk()] == [op.location for op in function.walk()]
    assert parse_function(text).location == call
    assert 'loc("main.py":8:1)' in text
    assert "loc" not in print_function(function)


def test_notes_stand_under_their_operations():
    function, builder = function_of()
    constant = builder.constant(1, T.I32).defining_op
    builder.create(Return)
    lines = print_function(function, notes={constant: "here"}).splitlines()
    assert lines[1:3] == ["  %0 = constant {value = 1} : i32", "  ^ here"]


def test_an_operation_without_operands_ends_with_its_line():
    text = "func @f(%x: i32) {\n  barrier\n  %0, %1 = split %x : (i32) -> i32, i32\n  return\n}"
    assert print_function(parse_function(text)) == text


def test_comments_and_blanks_are_skipped():
    text = "// a comment\nfunc @f() { // another\n\n  return }  // the end\n"
    assert print_function(parse_function(text)) == "func @f() {\n  return\n}"


# -- random functions ----------------------------------------------------------------------------------------

TYPES = (
    T.I32, T.F32, T.PointerType(T.F16), T.TensorType((8, 32), T.F32), T.TensorType((8, 32), T.F32, BLOCKED),
    T.TensorType((8,), T.I64, Slice(1, BLOCKED)), T.TensorType((64, 64), T.F16, DotOperand(0, MMA, 2)),
)  # fmt: skip
NAMES = st.text("abc_1.é %-", max_size=4)
LEAVES = (
    st.integers(-(2**63), 2**64) | st.floats() | st.booleans() | st.text(max_size=6) | st.none()
    | st.sampled_from([BLOCKED, MMA, SHARED])
)  # fmt: skip
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=5)
KEYS = st.from_regex(r"[a-z_][a-z0-9_]{0,5}", fullmatch=True)


def _fill(draw, block: Block, visible: list, depth: int) -> None:
    builder = Builder(block)
    for _ in range(draw(st.integers(0, 3))):
        visible.extend(_random_operation(draw, builder, list(visible), depth).results)
    builder.create(Yield, *visible[:1])


def _random_operation(draw, builder: Builder, visible: list, depth: int) -> Operation:
    kind = draw(st.sampled_from([Constant, AddF, For, If] if depth < 2 and visible else [Constant]))
    attributes = draw(st.dictionaries(KEYS, VALUES, max_size=2))
    attributes = {k: v for k, v in attributes.items() if k not in kind.definition.attribute_fields}
    if kind is Constant:
        attributes["value"] = draw(LEAVES)
    results = draw(st.lists(st.sampled_from(TYPES), min_size=1 if kind is not If else 0, max_size=2))
    extra = len(results) if kind is For else 0
    count = {Constant: 0, AddF: 2, For: 3 + extra, If: 1}[kind]
    operands = [draw(st.sampled_from(visible)) for _ in range(count)]
    regions = []
    for _ in kind.definition.region_fields:
        block = Block([v.type for v in operands[2:]] if kind is For else [])
        for argument in block.arguments:
            argument.hint = draw(NAMES)
        _fill(draw, block, visible + list(block.arguments), depth + 1)
        regions.append(Region(block))
    if kind is For:
        regions[0].block.arguments[0].type = operands[0].type
    op = builder.insert(kind(operands, results, attributes, regions))
    for result in op.results:
        result.hint = draw(NAMES)
    return op


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_random_functions_round_trip(data):
    types = data.draw(st.lists(st.sampled_from(TYPES), max_size=3))
    function = Function("g", types, data.draw(st.dictionaries(KEYS, VALUES, max_size=2)))
    for argument in function.arguments:
        argument.hint = data.draw(NAMES)
        argument.attributes = data.draw(st.dictionaries(KEYS, VALUES, max_size=1))
    _fill(data.draw, function.body, list(function.arguments), 0)
    check_identity(function)
