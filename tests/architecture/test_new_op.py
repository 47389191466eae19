"""A new operation needs its definition, its lowering and (where it touches memory) its interpretation: passes
then treat it rightly without having heard of it. Two are added here, in memory, and taken out again."""

from __future__ import annotations

import re

import numpy as np
import pytest

from ptxforge import interpreter
from ptxforge.codegen_ptx import emit
from ptxforge.codegen_ptx.lower.elementwise import elementwise
from ptxforge.codegen_ptx.lower.memory import load as lower_load
from ptxforge.codegen_ptx.lowering import LOWERINGS, lowers
from ptxforge.emulator import EmulatorDevice
from ptxforge.interpreter import HANDLERS
from ptxforge.ir import facts
from ptxforge.ir import types as T
from ptxforge.ir.definition import (
    ALL,
    ANCHOR,
    ELEMENTWISE,
    EXPENSIVE,
    FLOAT,
    READS_GLOBAL,
    REGISTRY,
    Elementwise,
    MemoryAccess,
    define,
    operand,
)
from ptxforge.ir.ops.arith import BinaryInt
from ptxforge.ir.ops.memory import Load
from ptxforge.ir.parser import parse_function
from ptxforge.ir.printer import print_function
from ptxforge.passes import pipeline
from ptxforge.passes.analysis.axis_info import AxisInfoAnalysis
from ptxforge.passes.analysis.sign import is_nonnegative
from ptxforge.support.target import parse_target
from tests.codegen_ptx.harness import launch

TEXT = """
func @f(%x: ptr<f32> {divisibility = 16}, %out: ptr<f32> {divisibility = 16}) attributes {num_warps = 4} {
  %i = make_range {start = 0, end = 1024} : tensor<1024xi32>
  %xs = splat %x : (ptr<f32>) -> tensor<1024xptr<f32>>
  %outs = splat %out : (ptr<f32>) -> tensor<1024xptr<f32>>
  %p = addptr %xs, %i : tensor<1024xptr<f32>>
  %q = addptr %outs, %i : tensor<1024xptr<f32>>
  %a = peek %p : (tensor<1024xptr<f32>>) -> tensor<1024xf32>
  %dead = peek %q : (tensor<1024xptr<f32>>) -> tensor<1024xf32>
  %b = thrice %a : tensor<1024xf32>
  %again = thrice %a : tensor<1024xf32>
  %unused = thrice %b : tensor<1024xf32>
  %s = addf %b, %again : tensor<1024xf32>
  store %q, %s : (tensor<1024xptr<f32>>, tensor<1024xf32>)
  return
}
"""


@pytest.fixture
def new_ops():
    """``thrice``, an elementwise operation, and ``peek``, a load."""
    names, lowerings, handlers = set(REGISTRY), set(LOWERINGS), set(HANDLERS)

    @define("thrice", cost=EXPENSIVE)
    class Thrice(Elementwise):
        """3·x."""

        x = operand(FLOAT)

        def evaluate(self, x):
            return x * x.dtype.type(3)

    @define("peek", effects=READS_GLOBAL, traits=[ELEMENTWISE, ANCHOR], shows_operand_types=True)
    class Peek(MemoryAccess):
        """Read memory."""

        other, cache, eviction, volatile = None, "", "", False

        @classmethod
        def infer(cls, operands, attributes):
            return [T.like(operands[0], T.element_type(operands[0]).pointee)]

    @lowers(Thrice)
    def thrice(ctx, op):
        elementwise(ctx, op, lambda x: ctx.b.pure("mul.rn.f32 %s, %s, 0f40400000;", "f", x))

    lowers(Peek)(lower_load)
    HANDLERS[Peek] = HANDLERS[Load]
    yield
    for table, before in ((REGISTRY, names), (LOWERINGS, lowerings), (HANDLERS, handlers)):
        for key in set(table) - before:
            del table[key]


def test_passes_and_executors_need_not_know_of_it(new_ops):
    function = parse_function(TEXT)
    assert parse_function(print_function(function))
    x = np.random.default_rng(1).normal(size=1024).astype(np.float32)
    before, after, emulated = (np.zeros(1024, np.float32) for _ in range(3))
    interpreter.run(function, 1, [x.copy(), before])
    target = parse_target("sm_80")
    pipeline.run(function, target, verify=True)
    interpreter.run(function, 1, [x.copy(), after])
    names = [op.name for op in function.walk()]
    assert names.count("thrice") == names.count("peek") == 1, "cse and dce know what it does"
    (access,) = [op for op in function.walk() if op.name == "peek"]
    assert access.vector == 4 and access.pointer.type.layout.size_per_thread == (4,)
    ptx = emit(function, target)
    assert len(re.findall(r"ld\.global\.v4\.b32", ptx)) == 2 and ptx.count("mul.rn.f32") == 8
    launch(EmulatorDevice(check="all", target="sm_80"), ptx, function, [x, emulated])
    expected = x * np.float32(3) + x * np.float32(3)
    for found in (before, after, emulated):
        np.testing.assert_array_equal(found, expected)


def test_facts_about_values_are_on_the_definition():
    """Of a function of its operands it is known where results are equal; the definition can say more. It
    tells what it is the sum of, and analyses of sums follow."""
    try:

        @define("mixed")
        class Mixed(BinaryInt):
            """The bits of both, mixed up."""

            def evaluate(self, x, y):
                return (x * 7) ^ y

        @define("far", nonnegative_if=ALL)
        class Far(BinaryInt):
            """x + 8·y, of which is known that it is a sum."""

            def evaluate(self, x, y):
                return x + 8 * y

            def axis_info(self, operands, nonnegative):
                x, y = operands
                return facts.sum_of(x, facts.pointwise([y], [8 * y.divides(0, 1)]))

        function = parse_function(FACTS)
        info = AxisInfoAnalysis(function)
        by_name = {result.hint: result for op in function.walk() for result in op.results}
        equal, run = info[by_name["equal"]], info[by_name["run"]]
        assert (equal.constancy, equal.contiguity) == ((64,), (1,))
        assert (run.contiguity, run.divisibility) == ((64,), (8,))
        assert info[by_name["number"]].constant == 5 * 7 ^ 3, "and constants are folded"
        assert is_nonnegative(by_name["run"]) and not is_nonnegative(by_name["equal"])
    finally:
        for name in ("mixed", "far"):
            REGISTRY.pop(name, None)


FACTS = """
func @f(%n: i32 {divisibility = 8}) attributes {num_warps = 4} {
  %i = make_range {start = 0, end = 64} : tensor<64xi32>
  %c = get_program_id {axis = 0} : i32
  %cs = splat %c : (i32) -> tensor<64xi32>
  %ns = splat %n : (i32) -> tensor<64xi32>
  %equal = mixed %ns, %cs : tensor<64xi32>
  %run = far %i, %cs : tensor<64xi32>
  %five = constant {value = 5} : i32
  %three = constant {value = 3} : i32
  %number = mixed %five, %three : i32
  return
}
"""


def test_it_is_gone_afterwards():
    assert not {"thrice", "peek", "mixed", "far"} & REGISTRY.keys()
