"""Products and sums become one operation in the IR, where everybody sees it; and where the user says no, they
do not."""

from __future__ import annotations

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge import interpreter
from ptxforge.compiler import compile_function
from ptxforge.ir.ops.arith import AddF, MulF, SubF
from ptxforge.ir.ops.math import Fma
from ptxforge.ir.ops.reduce import Reduce
from ptxforge.ir.parser import parse_function
from ptxforge.passes.contract_products import contract_products
from ptxforge.support.errors import ArgumentError
from tests.passes.gpu import TARGET, operations

POINTERS = {"x": "*fp32:16", "y": "*fp32:16", "out": "*fp32:16"}
HEAD = "func @f(%p: ptr<f32>, %x: f32, %y: f32, %z: f32) attributes {num_warps = 4} {\n"


def contracted(body: str, **attributes):
    function = parse_function(HEAD + body + "  return\n}\n")
    function.attributes.update(attributes)
    contract_products(function, TARGET)
    return function


def value_of(function, *arguments: float) -> np.float32:
    out = np.zeros(1, np.float32)
    interpreter.run(function, 1, [out, *map(np.float32, arguments)])
    return out[0]


CASES = {
    "%s = addf %m, %z : f32": ("", 1),
    "%s = addf %z, %m : f32": ("", 1),
    "%s = subf %m, %z : f32": ("addend", -1),
    "%s = subf %z, %m : f32": ("product", None),
}


@pytest.mark.parametrize("sum", CASES)
def test_a_product_and_a_sum_are_rounded_once(sum):
    """(1 + 2⁻¹²)² - (1 + 2⁻¹¹) is 2⁻²⁴, which a rounded product has lost."""
    negated, sign = CASES[sum]
    body = f"  %m = mulf %x, %y : f32\n  {sum}\n  store %p, %s : (ptr<f32>, f32)\n"
    x, z = 1 + 2.0**-12, 1 + 2.0**-11
    z, expected = (z, -(2.0**-24)) if sign is None else (-sign * z, 2.0**-24)
    function = contracted(body)
    (fused,) = operations(function, Fma)
    assert fused.negated == negated and not operations(function, AddF, SubF, MulF)
    assert value_of(function, x, x, z) == np.float32(expected)
    assert value_of(contracted(body, enable_fp_fusion=False), x, x, z) == 0


def test_of_two_products_one_stays():
    body = """
  %m = mulf %x, %y : f32
  %n = mulf %y, %z : f32
  %s = addf %m, %n : f32
  store %p, %s : (ptr<f32>, f32)
"""
    function = contracted(body)
    (fused,), (kept,) = operations(function, Fma), operations(function, MulF)
    assert fused.operands[2] is kept.result
    assert value_of(function, 2, 3, 4) == 18


@pytest.mark.parametrize("body", [
    "%s = addf %m, %m : f32\nstore %p, %s : (ptr<f32>, f32)",
    "%s = addf %m, %z : f32\nstore %p, %s : (ptr<f32>, f32)\nstore %p, %m : (ptr<f32>, f32)",
    "%c = cmpf %x, %y {predicate = \"olt\"} : i1\n%s = if %c : f32 {\n%t = addf %m, %z : f32\nyield %t\n} "
    "else {\nyield %z\n}\nstore %p, %s : (ptr<f32>, f32)",
], ids=["both operands", "another use", "another block"])  # fmt: skip
def test_products_that_are_needed_for_themselves_stay(body):
    function = contracted(f"%m = mulf %x, %y : f32\n{body}\n")
    assert operations(function, MulF) and not operations(function, Fma)


def polynomial(x, y, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i) * 1.5 + tl.load(y + i))


def norm(x, y, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out, tl.sum(tl.load(x + i) * tl.load(y + i), axis=0))


@pytest.mark.parametrize("kernel", [polynomial, norm])
def test_the_option_is_obeyed(kernel):
    fused = compile_function(kernel, POINTERS, {"BLOCK": 512}, num_warps=1)
    apart = compile_function(kernel, POINTERS, {"BLOCK": 512}, num_warps=1, enable_fp_fusion=False)
    assert "fma.rn.f32" in fused.ptx
    assert "fma" not in apart.ptx and "mul.rn.f32" in apart.ptx and "add.rn.f32" in apart.ptx


def test_sums_of_products_are_marked():
    marked = parse_function(compile_function(norm, POINTERS, {"BLOCK": 512}).asm["gpu"])
    assert [op.contracted_sums for op in operations(marked, Reduce)] == [4]


def test_a_launch_with_the_option(emulator):
    """Every executor rounds as the option says."""
    x = np.full(512, 1 + 2.0**-12, np.float32)
    y = np.full(512, -1.5, np.float32)
    results = {}
    for fusion in (True, False):
        out = ptxforge.to_device(np.zeros(512, np.float32), emulator)
        arrays = [ptxforge.to_device(v, emulator) for v in (x * x[0], y)]
        ptxforge.compile(polynomial)[(1,)](*arrays, out, BLOCK=512, enable_fp_fusion=fusion)
        results[fusion] = out.numpy()
    exact = (x * x[0]).astype(np.float64) * 1.5 + y
    np.testing.assert_array_equal(results[True], exact.astype(np.float32))
    np.testing.assert_array_equal(results[False], x * x[0] * np.float32(1.5) + y)


def test_a_wrong_value_is_refused():
    with pytest.raises(ArgumentError, match="enable_fp_fusion"):
        compile_function(polynomial, POINTERS, {"BLOCK": 512}, enable_fp_fusion="no")
