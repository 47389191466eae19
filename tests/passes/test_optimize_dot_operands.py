"""optimize_dot_operands: casts, scales and transposes of loaded tiles are done on the dot's fragments; and
what pipeline_loops then makes of them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from ptxforge import interpreter
from ptxforge.ir.core import Function
from ptxforge.ir.definition import ELEMENTWISE
from ptxforge.ir.ops.cast import Bitcast, ExtF, SIToFP
from ptxforge.ir.ops.control import For
from ptxforge.ir.ops.convert_layout import ConvertLayout
from ptxforge.ir.ops.dot import Dot
from ptxforge.ir.ops.math import Exp
from ptxforge.ir.ops.memory import Load
from ptxforge.ir.ops.shape import Broadcast, Trans
from ptxforge.ir.ops.shared import LocalLoad, MemDescTrans
from ptxforge.ir.parser import parse_function
from ptxforge.ir.verifier import verify
from ptxforge.layouts.encodings import DotOperand
from ptxforge.passes.expand_loops import expand_loops
from ptxforge.passes.optimize_dot_operands import optimize_dot_operands
from ptxforge.passes.pipeline import PIPELINE
from ptxforge.passes.pipeline_loops import pipeline_loops
from ptxforge.support.target import parse_target

TARGET = parse_target("sm_90")
M, N, K = 64, 64, 64
STEPS = 3

GEMM = """
func @gemm(%a: ptr<f16> {{divisibility = 16}}, %b: ptr<{element}> {{divisibility = 16}}, %s: ptr<f16> {{divisibility = 16}}, %c: ptr<f32> {{divisibility = 16}}, %k: i32 {{divisibility = 16}}) attributes {{num_warps = 4, num_stages = 3, target = "sm_90"}} {{
  %c0 = constant {{value = 0}} : i32
  %c64 = constant {{value = 64}} : i32
  %zero = constant {{value = 0.0}} : tensor<64x64xf32>
  %r = make_range {{start = 0, end = 64}} : tensor<64xi32>
  %rk = make_range {{start = 0, end = 64}} : tensor<64xi32>
  %i = expand_dims %r {{axis = 1}} : (tensor<64xi32>) -> tensor<64x1xi32>
  %kr = expand_dims %rk {{axis = 0}} : (tensor<64xi32>) -> tensor<1x64xi32>
  %ks = splat %k : (i32) -> tensor<64x1xi32>
  %ik = muli %i, %ks : tensor<64x1xi32>
  %ikb = broadcast %ik : (tensor<64x1xi32>) -> tensor<64x64xi32>
  %krb = broadcast %kr : (tensor<1x64xi32>) -> tensor<64x64xi32>
  %bt = addi %ikb, %krb : tensor<64x64xi32>
  %m64 = constant {{value = 64}} : tensor<1x64xi32>
  %km = muli %kr, %m64 : tensor<1x64xi32>
  %kmb = broadcast %km : (tensor<1x64xi32>) -> tensor<64x64xi32>
  %imb = broadcast %i : (tensor<64x1xi32>) -> tensor<64x64xi32>
  %at = addi %imb, %kmb : tensor<64x64xi32>
  %step = constant {{value = 4096}} : i32
  %ss = splat %s : (ptr<f16>) -> tensor<64xptr<f16>>
  %sp = addptr %ss, %r : tensor<64xptr<f16>>
  %sv = load %sp : (tensor<64xptr<f16>>) -> tensor<64xf16>
  %se = expand_dims %sv {{axis = 1}} : (tensor<64xf16>) -> tensor<64x1xf16>
  %scale = broadcast %se : (tensor<64x1xf16>) -> tensor<64x64xf16>
  %acc, %pa, %pb = for %n = %c0 to %k step %c64 iter_args(%x = %zero, %ap = %a, %bp = %b) : tensor<64x64xf32>, ptr<f16>, ptr<{element}> {{
    %as = splat %ap : (ptr<f16>) -> tensor<64x64xptr<f16>>
    %aptr = addptr %as, %at : tensor<64x64xptr<f16>>
    %av = load %aptr : (tensor<64x64xptr<f16>>) -> tensor<64x64xf16>
    %bs = splat %bp : (ptr<{element}>) -> tensor<64x64xptr<{element}>>
    %bptr = addptr %bs, %bt : tensor<64x64xptr<{element}>>
    %bv = load %bptr : (tensor<64x64xptr<{element}>>) -> tensor<64x64x{element}>
    {chain}
    %d = dot %av, %y, %x : (tensor<64x64xf16>, tensor<64x64xf16>, tensor<64x64xf32>) -> tensor<64x64xf32>
    %an = addptr %ap, %step : ptr<f16>
    %bn = addptr %bp, %c64 : ptr<{element}>
    yield %d, %an, %bn
  }}
  %six = constant {{value = 64}} : tensor<64x1xi32>
  %in = muli %i, %six : tensor<64x1xi32>
  %inb = broadcast %in : (tensor<64x1xi32>) -> tensor<64x64xi32>
  %j = expand_dims %r {{axis = 0}} : (tensor<64xi32>) -> tensor<1x64xi32>
  %jb = broadcast %j : (tensor<1x64xi32>) -> tensor<64x64xi32>
  %co = addi %inb, %jb : tensor<64x64xi32>
  %cs = splat %c : (ptr<f32>) -> tensor<64x64xptr<f32>>
  %cptr = addptr %cs, %co : tensor<64x64xptr<f32>>
  store %cptr, %acc : (tensor<64x64xptr<f32>>, tensor<64x64xf32>)
  return
}}
"""  # noqa: E501
# a is [K, M] in memory (with k along its rows the roles of the operands would be exchanged), b is [N, K].
CHAINS = {  # name: element type of b [N, K] in memory, what becomes of a tile of it, the same in numpy
    "trans": (
        "f16",
        "%y = trans %bv {order = [1, 0]} : (tensor<64x64xf16>) -> tensor<64x64xf16>",
        lambda b, s: b,
    ),
    "trans of cast": (
        "f8e4m3",
        "%w = extf %bv : (tensor<64x64xf8e4m3>) -> tensor<64x64xf16>\n"
        "%y = trans %w {order = [1, 0]} : (tensor<64x64xf16>) -> tensor<64x64xf16>",
        lambda b, s: b,
    ),
    "cast of trans": (
        "i8",
        "%t = trans %bv {order = [1, 0]} : (tensor<64x64xi8>) -> tensor<64x64xi8>\n"
        "%y = sitofp %t : (tensor<64x64xi8>) -> tensor<64x64xf16>",
        lambda b, s: b,
    ),
    "bitcast": (
        "i8",
        "%f = bitcast %bv : (tensor<64x64xi8>) -> tensor<64x64xf8e5m2>\n"
        "%w = extf %f : (tensor<64x64xf8e5m2>) -> tensor<64x64xf16>\n"
        "%y = trans %w {order = [1, 0]} : (tensor<64x64xf16>) -> tensor<64x64xf16>",
        lambda b, s: b.view(ml_dtypes.float8_e5m2).astype(np.float64),
    ),
    "scale": (
        "i8",
        "%f = sitofp %bv : (tensor<64x64xi8>) -> tensor<64x64xf16>\n"
        "%w = mulf %f, %scale : tensor<64x64xf16>\n"
        "%y = trans %w {order = [1, 0]} : (tensor<64x64xf16>) -> tensor<64x64xf16>",
        lambda b, s: b * s[:, None],
    ),
}
COSTLY = "\n".join(
    ["%e0 = extf %bv : (tensor<64x64xf8e4m3>) -> tensor<64x64xf16>"]
    + [f"%e{n + 1} = exp %e{n} : tensor<64x64xf16>" for n in range(4)]
    + ["%y = trans %e4 {order = [1, 0]} : (tensor<64x64xf16>) -> tensor<64x64xf16>"]
)


def after(last, chain: str, element: str, before: bool = False) -> Function:
    """The kernel after the first row of ``last`` (or before it)."""
    function = parse_function(GEMM.format(element=element, chain=chain))
    end = next(i for i, row in enumerate(PIPELINE) if row.function is last)
    for row in PIPELINE[: end + (not before)]:
        row.function(function, TARGET)
    verify(function)
    return function


def body_of(function: Function) -> list:
    (loop,) = [op for op in function.walk() if isinstance(op, For)]
    return list(loop.body.operations)


def way_to_dot(function: Function) -> list:
    """The operations from what brings b into the loop to the dot, each the first operand's maker."""
    (dot,) = [op for op in body_of(function) if isinstance(op, Dot)]
    way = [dot.b.defining_op]
    while not isinstance(way[-1], (Load, LocalLoad)):
        way.append(way[-1].operands[0].defining_op)
    return way[::-1]


def products(function: Function, element: str, reference) -> tuple[np.ndarray, np.ndarray]:
    """What the kernel computes of small integers, and what it should."""
    rng = np.random.default_rng(0)
    a = rng.integers(-3, 4, (M, K * STEPS)).astype(np.float16)
    dtype = {"f16": np.float16, "i8": np.int8, "f8e4m3": ml_dtypes.float8_e4m3fn}[element]
    b = rng.integers(-3, 4, (N, K * STEPS)).astype(dtype)
    if reference is CHAINS["bitcast"][2]:
        b = rng.integers(-2, 3, b.shape).astype(ml_dtypes.float8_e5m2).view(np.int8)
    s = rng.integers(1, 4, N).astype(np.float16)
    c = np.full((M, N), np.nan, np.float32)
    interpreter.run(function, 1, [np.ascontiguousarray(a.T), b, s, c, K * STEPS])
    values = reference(b, s.astype(np.float64))
    return c, a.astype(np.float64) @ values.astype(np.float64).T


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize(
    "last", [optimize_dot_operands, pipeline_loops, expand_loops, PIPELINE[-1].function]
)
def test_meaning_is_kept(name, last):
    element, chain, reference = CHAINS[name]
    got, expected = products(after(last, chain, element), element, reference)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("name", CHAINS)
def test_load_then_transpose_then_conversion_then_work(name):
    element, chain, _ = CHAINS[name]
    way = way_to_dot(after(optimize_dot_operands, chain, element))
    assert [type(op) for op in way[:3]] == [Load, Trans, ConvertLayout]
    assert all(ELEMENTWISE in op.traits and isinstance(op.result.type.layout, DotOperand) for op in way[3:])


def test_conversion_to_fragments_comes_first_as_in_the_literature():
    element, chain, _ = CHAINS["bitcast"]
    way = way_to_dot(after(optimize_dot_operands, chain, element))
    assert [type(op) for op in way] == [Load, Trans, ConvertLayout, Bitcast, ExtF]


@pytest.mark.parametrize("name", CHAINS)
def test_pipelined_operand_is_read_from_a_view_of_what_was_copied(name):
    element, chain, _ = CHAINS[name]
    function = after(expand_loops, chain, element)
    read, *work = way_to_dot(function)
    assert isinstance(read.source.defining_op, MemDescTrans)
    layout = read.result.type.layout
    assert layout == DotOperand(1, layout.parent, 32 // read.result.type.element.bits)
    assert not [op for op in body_of(function) if isinstance(op, (ConvertLayout, Trans, Load))]


@pytest.mark.parametrize("name", CHAINS)
def test_the_work_is_sliced_too_and_what_was_read_is_carried(name):
    element, chain, _ = CHAINS[name]
    function = after(expand_loops, chain, element)
    (loop,) = [op for op in function.walk() if isinstance(op, For)]
    dots = [op for op in loop.body.operations if isinstance(op, Dot)]
    width = 16 if name == "trans" else 32
    assert [dot.b.type.shape for dot in dots] == [(width, N)] * (K // width)
    carried = [v.type for v in loop.results if getattr(v.type, "shape", None) == (width, N)]
    assert [type.element.bits for type in carried] == [16 if name == "trans" else 8]


def test_scale_is_converted_before_it_is_spread():
    element, chain, _ = CHAINS["scale"]
    function = after(optimize_dot_operands, chain, element)
    way = way_to_dot(function)
    assert isinstance(way[-2], SIToFP)
    scale = way[-1].operands[1].defining_op
    assert isinstance(scale, Broadcast) and scale.parent is function.body
    conversions = [op.result for op in function.walk() if isinstance(op, ConvertLayout)]
    of_b = [value.type for value in conversions if getattr(value.type.layout, "op_idx", 0) == 1]
    assert [type.element.bits for type in of_b] == [8]


def test_work_that_costs_more_than_the_conversion_stays():
    before = after(optimize_dot_operands, COSTLY, "f8e4m3", before=True)
    function = before.clone()
    assert not optimize_dot_operands(function, TARGET)
    assert not isinstance(way_to_dot(function)[-1], Exp)


def test_value_with_another_user_is_not_computed_twice():
    chain = CHAINS["trans of cast"][1] + (
        "\n%sum = reduce %w {axis = 1} : (tensor<64x64xf16>) -> tensor<64xf16> {\n(%e: f16, %f: f16):\n"
        "%g = addf %e, %f : f16\nyield %g\n}"
        "\nstore %sp, %sum : (tensor<64xptr<f16>>, tensor<64xf16>)"
    )
    function = after(optimize_dot_operands, chain, "f8e4m3", before=True)
    casts = [op for op in function.walk() if isinstance(op, ExtF)]
    assert not optimize_dot_operands(function, TARGET)
    assert [op for op in function.walk() if isinstance(op, ExtF)] == casts


def test_second_application_changes_nothing():
    for element, chain, _ in CHAINS.values():
        assert not optimize_dot_operands(after(optimize_dot_operands, chain, element), TARGET)
