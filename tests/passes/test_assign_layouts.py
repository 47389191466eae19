"""assign_layouts: seed 002's tables and conversions."""

from __future__ import annotations

import pytest

from ptxforge.ir import types as T
from ptxforge.ir.ops.control import For
from ptxforge.ir.ops.convert_layout import ConvertLayout
from ptxforge.ir.ops.dot import Dot
from ptxforge.ir.ops.shape import Broadcast, Cat, Constant, ExpandDims, Join, Split, Trans
from ptxforge.ir.parser import parse_function
from ptxforge.passes.assign_layouts import assign_layouts
from ptxforge.passes.properties import PROPERTIES
from tests.passes.gpu import TARGET, apply, operations, parse, same_meaning
from tests.passes.kernels import ALL, ARGUMENTS, MATMUL


def assigned(body: str, **options):
    return apply(parse(body, **options), assign_layouts)


def blocked(size, threads, warps, order) -> str:
    return f"#blocked<{{sizePerThread = {size}, threadsPerWarp = {threads}, warpsPerCTA = {warps}, order = {order}}}>"  # noqa: E501


@pytest.mark.parametrize(("shape", "layout"), [
    ("64x2x32", blocked([1, 1, 1], [1, 1, 32], [2, 2, 1], [2, 1, 0])),
    ("32x64x2", blocked([1, 1, 1], [1, 16, 2], [1, 4, 1], [2, 1, 0])),
    ("64x2x64x2", blocked([1, 1, 1, 1], [1, 1, 16, 2], [1, 1, 4, 1], [3, 2, 1, 0])),
    ("128x32", blocked([1, 1], [1, 32], [4, 1], [1, 0])),
])  # fmt: skip
def test_default_layouts(shape, layout):
    function = assigned(f"%v = constant {{value = 1}} : tensor<{shape}xi32>")
    assert str(operations(function, Constant)[0].result.type.layout) == layout


def test_expand_dims_takes_the_slice_and_its_users_a_conversion():
    """Seed 002, "tt.expand_dims" and the materialisation of a broadcast's operand."""
    function = assigned("""
      %0 = make_range {start = 0, end = 128} : tensor<128xi32>
      %1 = expand_dims %0 {axis = 1} : (tensor<128xi32>) -> tensor<128x1xi32>
      %2 = expand_dims %1 {axis = 0} : (tensor<128x1xi32>) -> tensor<1x128x1xi32>
      %3 = broadcast %1 : (tensor<128x1xi32>) -> tensor<128x32xi32>""")
    first, second = operations(function, ExpandDims)
    inner = blocked([1, 1], [32, 1], [4, 1], [0, 1])
    assert str(first.x.type.layout) == f"#slice<{{dim = 1, parent = {inner}}}>"
    assert str(first.result.type.layout) == inner
    outer = blocked([1, 1, 1], [1, 32, 1], [1, 4, 1], [0, 1, 2])
    assert str(second.x.type.layout) == f"#slice<{{dim = 0, parent = {outer}}}>"
    assert str(second.result.type.layout) == outer
    (spread,) = operations(function, Broadcast)
    assert isinstance(spread.x.defining_op, ConvertLayout) and spread.x.defining_op.x is first.result
    assert str(spread.result.type.layout) == blocked([1, 1], [32, 1], [4, 1], [1, 0])


def test_join_split_trans_and_cat():
    """Seed 002, "tt.join", "tt.split", "tt.trans", "tt.cat"."""
    function = assigned("""
      %a = constant {value = 1.0} : tensor<16x32xf16>
      %b = join %a, %a : (tensor<16x32xf16>, tensor<16x32xf16>) -> tensor<16x32x2xf16>
      %c = constant {value = 1.0} : tensor<16x32x2xf16>
      %d, %e = split %c : (tensor<16x32x2xf16>) -> tensor<16x32xf16>, tensor<16x32xf16>
      %f = constant {value = 1.0} : tensor<64x2x16xf16>
      %g = trans %f {order = [1, 2, 0]} : (tensor<64x2x16xf16>) -> tensor<2x16x64xf16>
      %h = constant {value = 1.0} : tensor<16x1x1xf16>
      %i = cat %h, %h : (tensor<16x1x1xf16>, tensor<16x1x1xf16>) -> tensor<32x1x1xf16>""")
    plain = blocked([1, 1], [1, 32], [4, 1], [1, 0])
    joined = blocked([1, 1, 2], [1, 32, 1], [4, 1, 1], [2, 1, 0])
    assert str(operations(function, Join)[0].result.type.layout) == joined
    (split,) = operations(function, Split)
    assert str(split.x.type.layout) == joined
    assert str(split.x.defining_op.x.type.layout) == blocked([1, 1, 1], [1, 16, 2], [2, 2, 1], [2, 1, 0])
    assert {str(r.type.layout) for r in split.results} == {plain}
    (trans,) = operations(function, Trans)
    assert str(trans.x.type.layout) == blocked([1, 1, 1], [1, 2, 16], [4, 1, 1], [2, 1, 0])
    assert str(trans.result.type.layout) == blocked([1, 1, 1], [2, 16, 1], [1, 1, 4], [1, 0, 2])
    (cat,) = operations(function, Cat)
    assert str(cat.lhs.type.layout) == blocked([1, 1, 1], [32, 1, 1], [4, 1, 1], [2, 1, 0])
    assert str(cat.result.type.layout) == blocked([1, 1, 2], [32, 1, 1], [4, 1, 1], [2, 1, 0])


@pytest.mark.parametrize(("shape", "size"), [((128, 128), [4, 4]), ((32, 32), [2, 2]), ((16, 16), [1, 1])])
def test_dot_tile(shape, size):
    """Seed 002, "tt.dot": 4x4 elements per thread where there are 16 for each, 2x2 where there are 4."""
    m, n = shape
    function = assigned(f"""
      %a = constant {{value = 1.0}} : tensor<{m}x32xf16>
      %b = constant {{value = 2.0}} : tensor<32x{n}xf16>
      %c = constant {{value = 3.0}} : tensor<{m}x{n}xf32>
      %d = dot %a, %b, %c : (tensor<{m}x32xf16>, tensor<32x{n}xf16>, tensor<{m}x{n}xf32>) ->
          tensor<{m}x{n}xf32>""")
    (dot,) = operations(function, Dot)
    assert list(dot.result.type.layout.size_per_thread) == size
    assert str(dot.a.type.layout) == f"#dot_op<{{opIdx = 0, parent = {dot.result.type.layout}}}>"
    assert str(dot.b.type.layout) == f"#dot_op<{{opIdx = 1, parent = {dot.result.type.layout}}}>"


def test_loops_carry_the_default():
    """Seed 002, "scf.for": the accumulator is converted for the dot and back for the yield."""
    function = apply(parse_function(MATMUL), assign_layouts)
    (loop,) = operations(function, For)
    (dot,) = operations(function, Dot)
    assert isinstance(dot.c.defining_op, ConvertLayout) and dot.c.defining_op.x is loop.carried[0]
    back = loop.body.terminator.operands[0].defining_op
    assert isinstance(back, ConvertLayout) and back.x is dot.result
    assert loop.carried[0].type == loop.results[0].type == back.result.type


@pytest.mark.parametrize("text", ALL.values(), ids=ALL)
def test_every_tensor_has_a_layout_and_means_the_same(text):
    before = parse_function(text)
    after = apply(before, assign_layouts)
    PROPERTIES["layouts"].check(after, TARGET)
    integers, grid = ARGUMENTS[text]
    same_meaning(before, after, integers, grid, seeds=[1])
    assert all(
        v.type.layout is not None
        for op in after.walk()
        for v in op.results
        if isinstance(v.type, T.TensorType)
    )
