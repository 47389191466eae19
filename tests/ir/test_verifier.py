"""Each numbered invariant of the verifier is broken once, and the message names it."""

from __future__ import annotations

import re

import pytest

from ptxforge.ir import types as T
from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Block, Function, Region
from ptxforge.ir.ops.arith import AddI
from ptxforge.ir.ops.control import If, Return, Yield
from ptxforge.ir.parser import parse_function
from ptxforge.ir.verifier import verify
from ptxforge.support.errors import VerificationError

LAYOUTS = """\
#blocked = #blocked<{sizePerThread = [4], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}>
#narrow = #blocked<{sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}>
#eight = #blocked<{sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [8], order = [0]}>
#plane = #blocked<{sizePerThread = [1, 1], threadsPerWarp = [32, 1], warpsPerCTA = [4, 1], order = [1, 0]}>
#shared = #shared<{vec = 8, perPhase = 1, maxPhase = 8, order = [1, 0]}>
#panels = #panels<{swizzle = 128, elementBits = 16, order = [1, 0]}>
"""
HEAD = "func @f(%x: i32, %y: i64, %flag: i1, %p: ptr<f32>, %z: f32) attributes {num_warps = 4} {\n"


def verify_text(body: str) -> None:
    verify(parse_function(LAYOUTS + HEAD + body + "\n return\n}"))


GOOD = [
    "%a = addi %x, %x : i32",
    "%t = splat %x : (i32) -> tensor<128xi32, #blocked>\n%u = addi %t, %t : tensor<128xi32, #blocked>",
    "%s = local_alloc : () -> memdesc<3x64x64xf16, #shared, mutable>",
    "%s = local_alloc : () -> memdesc<3x64x64xf16, #panels, mutable>",
    "%r = for %i = %x to %x step %x iter_args(%c = %y) : i64 {\n yield %c\n}",
    "%r = while %x : i32 {\n(%a: i32):\n condition %flag, %a\n} body {\n(%b: i32):\n yield %b\n}",
    "%v = constant {value = nan} : f32\n store %p, %v, %flag : (ptr<f32>, f32, i1)",
]


@pytest.mark.parametrize("body", GOOD)
def test_sound_functions_pass(body):
    verify_text(body)


BAD = {
    "no yield": (4, "if %flag {\n %a = addi %x, %x : i32\n} else {\n yield\n}"),
    "return inside": (4, "if %flag {\n return\n} else {\n yield\n}"),
    "yield in the middle": (4, "if %flag {\n yield\n yield\n} else {\n yield\n}"),
    "empty region": (4, "if %flag {\n} else {\n yield\n}"),
    "while without condition": (4, "%r = while %x : i32 {\n(%a: i32):\n yield %a\n} body {\n(%b: i32):\n yield %b\n}"),  # noqa: E501
    "invisible value": (3, "if %flag {\n %a = addi %x, %x : i32\n yield\n} else {\n yield\n}\n%b = addi %a, %x : i32"),  # noqa: E501
    "too few operands": (5, "%a = addi %x : i32"),
    "too many operands": (5, "%a = addi %x, %x, %x : i32"),
    "operand of a wrong kind": (5, "%a = addf %x, %x : i32"),
    "variadic operand of a wrong kind": (5, "%t = async_commit_group %x : token<cp.async>"),
    "missing attribute": (6, "%a = get_program_id : i32"),
    "attribute of a wrong type": (6, "%a = get_program_id {axis = 1.0} : i32"),
    "attribute outside its values": (6, '%a = cmpi %x, %x {predicate = "lt"} : i1'),
    "bool for an int": (6, "%a = get_program_id {axis = true} : i32"),
    "misspelled attribute": (6, "%a = load %p {gaurded = 8} : (ptr<f32>) -> f32"),
    "declared attribute of a wrong type": (6, '%a = load %p {vector = "eight"} : (ptr<f32>) -> f32'),
    "hint without a result": (6, "store %p, %z {divisibility = 4} : (ptr<f32>, f32)"),
    "result type": (7, "%a = addi %x, %x : i64"),
    "number of results": (7, "%a, %b = addi %x, %x : i32, i32"),
    "scalar and tensor": (8, "%t = splat %p : (ptr<f32>) -> tensor<4xptr<f32>>\n%u = addptr %t, %x : tensor<4xptr<f32>>"),  # noqa: E501
    "two layouts": (8, "%t = splat %x : (i32) -> tensor<128xi32, #blocked>\n"
                       "%u = splat %x : (i32) -> tensor<128xi32, #narrow>\n%v = addi %t, %u : tensor<128xi32, #blocked>"),  # noqa: E501
    "two integer types": (9, "%a = addi %x, %y : i32"),
    "narrowing extsi": (9, "%a = extsi %y : (i64) -> i32"),
    "splat to another type": (9, "%t = splat %x : (i32) -> tensor<4xi64>"),
    "constant out of range": (9, "%c = constant {value = 128} : i8"),
    "int for a float constant": (9, "%c = constant {value = 1} : f32"),
    "store through another type": (9, "store %p, %x : (ptr<f32>, i32)"),
    "reduction yields the wrong type": (9, "%t = splat %x : (i32) -> tensor<4xi32>\n"
        "%r = reduce %t {axis = 0} : (tensor<4xi32>) -> i32 {\n(%a: i32, %b: i32):\n yield %y\n}"),
    "if yields the wrong type": (9, "%r = if %flag : i32 {\n yield %x\n} else {\n yield %y\n}"),
    "float atomic of integers": (9, "%t = atomic_rmw %p, %x {kind = \"add\"} : (ptr<f32>, i32) -> i32"),
    "size of 3": (10, "%t = splat %x : (i32) -> tensor<3xi32>"),
    "too large": (10, "%t = splat %x : (i32) -> tensor<2048x1024xi32>"),
    "memdesc of 3 rows": (10, "%s = local_alloc : () -> memdesc<3x64xf16, #shared, mutable>"),
    "layout on some tensors": (11, "%t = splat %x : (i32) -> tensor<128xi32, #blocked>\n%u = splat %x : (i32) -> tensor<4xi32>"),  # noqa: E501
    "layout of another rank": (11, "%t = splat %x : (i32) -> tensor<128xi32, #plane>"),
    "layout for other warps": (11, "%t = splat %x : (i32) -> tensor<128xi32, #eight>"),
    "wait for copies that nothing starts": (13, "%t = async_wait : token<cp.async>"),
    "wait for stores that nothing starts": (13, "store_wait"),
    "wait for an mbarrier at which nothing arrives": (13,
        "%s = local_alloc : () -> memdesc<4xf16, #shared, mutable>\n%w = barrier_wait %s, %x : token<tma>"),
    "a commit is for copies, not for stores": (13,
        "%t = async_commit_group : token<cp.async>\nstore_wait"),
    "copies that nobody waits for": (15, "%t = async_commit_group : token<cp.async>"),
    "memdesc with a distributed layout": (11, "%s = local_alloc : () -> memdesc<128xf16, #blocked, mutable>"),
    "tensor of tensor maps": (11, "%s = local_alloc : () -> memdesc<1x1xtensormap, #shared, mutable>\n"
        "%t = local_load %s : (memdesc<1x1xtensormap, #shared, mutable>) -> tensor<1x1xtensormap, #plane>"),
    "panels of wider elements": (11, "%s = local_alloc : () -> memdesc<64x64xf32, #panels, mutable>"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_each_invariant_is_checked(name):
    number, body = BAD[name]
    with pytest.raises(VerificationError) as caught:
        verify_text(body)
    message = str(caught.value)
    assert message.startswith(f"invariant {number} does not hold"), message
    assert re.search(rf"^ *\^ .*\(invariant {number}\)$", message, re.MULTILINE), message


def small_function() -> tuple[Function, Builder]:
    function = Function("f", [T.I32], {"num_warps": 4})
    builder = Builder(function.body)
    builder.value(AddI, function.arguments[0], function.arguments[0])
    builder.create(Return)
    verify(function)
    return function, builder


def expect(number: int, function: Function) -> None:
    with pytest.raises(VerificationError, match=f"invariant {number} does not hold"):
        verify(function)


def test_links():
    function, _ = small_function()
    function.body.first.parent = Block()
    expect(1, function)
    function, _ = small_function()
    function.body.last.previous = None
    expect(1, function)
    function, _ = small_function()
    function.body.last = function.body.first
    expect(1, function)
    function, builder = small_function()
    blocks = [Block(), Block()]
    for block in blocks:
        Builder(block).create(Yield)
    flag = Builder(before=function.body.first).constant(True, T.I1)
    branch = Builder(before=function.body.last).create(
        If, flag, result_types=[], regions=[Region(block) for block in blocks]
    )
    verify(function)
    branch.regions[0].parent = None
    expect(1, function)
    function.body.parent = None
    expect(1, function)


def test_use_lists():
    function, _ = small_function()
    function.arguments[0].uses.popitem()
    expect(2, function)
    function, _ = small_function()
    function.arguments[0].uses[AddI([], [T.I32]), 0] = None
    expect(2, function)


def test_dominance_within_a_block():
    function, builder = small_function()
    user = builder.before = function.body.last
    first = function.body.first
    value = builder.value(AddI, first.result, first.result)
    verify(function)
    value.defining_op.move_before(first)
    expect(3, function)
    assert user is function.body.last


def test_the_body_ends_in_return():
    function, _ = small_function()
    function.body.last.erase()
    expect(4, function)
    Builder(function.body).create(Yield)
    expect(4, function)


@pytest.mark.parametrize("types, attributes", [([T.TensorType((4,), T.I32)], {}), ([], {"num_warps": 3})])
def test_parameters(types, attributes):
    function = Function("f", types, attributes)
    Builder(function.body).create(Return)
    expect(12, function)


def test_parameters_have_names_of_their_own():
    function = Function("f")
    for name in ("x", "x"):
        function.add_parameter(T.I32, name)
    Builder(function.body).create(Return)
    expect(12, function)
    function.arguments[1].name = "y"
    verify(function)
    assert [argument.name for argument in function.clone().arguments] == ["x", "y"]


@pytest.mark.parametrize("access", [
    "%v = load %p : (ptr<f32, shared>) -> f32", "store %p, %z : (ptr<f32, shared>, f32)",
    '%v = atomic_rmw %p, %z {kind = "fadd"} : (ptr<f32, shared>, f32) -> f32',
])  # fmt: skip
def test_pointers_name_the_memory_that_is_accessed(access):
    head = "func @f(%p: ptr<f32, shared>, %z: f32) attributes {num_warps = 4} {\n"
    with pytest.raises(VerificationError, match="invariant 9 .* is no access to shared memory"):
        verify(parse_function(f"{head}{access}\n return\n}}"))
    verify(parse_function(f"{head}{access}\n return\n}}".replace(", shared", "")))
