"""reduce_data_duplication: operands of tensor cores in shared memory, once,
and read where registers allow."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.dialects import load
from ptxforge import interpreter
from ptxforge.compiler import compile_function
from ptxforge.ir.core import Function
from ptxforge.ir.ops.control import For
from ptxforge.ir.ops.convert_layout import ConvertLayout
from ptxforge.ir.ops.dot import Dot
from ptxforge.ir.ops.shared import LocalAlloc, LocalLoad, MemDescTrans
from ptxforge.ir.parser import parse_function
from ptxforge.ir.verifier import verify
from ptxforge.passes.pipeline import PIPELINE
from ptxforge.passes.reduce_data_duplication import reduce_data_duplication
from ptxforge.support.target import parse_target
from tests.passes.gemm import GEMM, product

TARGET = parse_target("sm_90")
kernels = load("ptxforge")

SQUARE = """
func @square(%x: ptr<f16> {divisibility = 16}, %c: ptr<f32> {divisibility = 16})
    attributes {num_warps = 4, num_stages = 3, target = "sm_90"} {
  %r = make_range {start = 0, end = 64} : tensor<64xi32>
  %i = expand_dims %r {axis = 1} : (tensor<64xi32>) -> tensor<64x1xi32>
  %j = expand_dims %r {axis = 0} : (tensor<64xi32>) -> tensor<1x64xi32>
  %s = constant {value = 64} : tensor<64x1xi32>
  %is = muli %i, %s : tensor<64x1xi32>
  %ib = broadcast %is : (tensor<64x1xi32>) -> tensor<64x64xi32>
  %jb = broadcast %j : (tensor<1x64xi32>) -> tensor<64x64xi32>
  %o = addi %ib, %jb : tensor<64x64xi32>
  %xs = splat %x : (ptr<f16>) -> tensor<64x64xptr<f16>>
  %xp = addptr %xs, %o : tensor<64x64xptr<f16>>
  %v = load %xp : (tensor<64x64xptr<f16>>) -> tensor<64x64xf16>
  %t = trans %v {order = [1, 0]} : (tensor<64x64xf16>) -> tensor<64x64xf16>
  %z = constant {value = 0.0} : tensor<64x64xf32>
  %d = dot %v, %t, %z : (tensor<64x64xf16>, tensor<64x64xf16>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %cs = splat %c : (ptr<f32>) -> tensor<64x64xptr<f32>>
  %cp = addptr %cs, %o : tensor<64x64xptr<f32>>
  store %cp, %d : (tensor<64x64xptr<f32>>, tensor<64x64xf32>)
  return
}
"""


def before_and_after(text: str, stages: int) -> tuple[Function, Function]:
    """The kernel as it comes to the pass, and as it leaves it."""
    function = parse_function(text)
    function.attributes["num_stages"] = stages
    end = next(i for i, row in enumerate(PIPELINE) if row.function is reduce_data_duplication)
    for row in PIPELINE[:end]:
        row.function(function, TARGET)
    result = function.clone()
    reduce_data_duplication(result, TARGET)
    verify(result)
    return function, result


def operations(function: Function, kind: type) -> list:
    return [op for op in function.walk() if isinstance(op, kind)]


def test_conversions_through_shared_memory_become_stores_and_reads():
    before, after = before_and_after(GEMM, stages=1)
    (dot,) = operations(after, Dot)
    assert all(isinstance(v.defining_op, ConvertLayout) for v in operations(before, Dot)[0].operands[:2])
    for value in (dot.a, dot.b):
        assert isinstance(value.defining_op, LocalLoad)
        tile = value.defining_op.source.defining_op
        assert (
            isinstance(tile, LocalAlloc)
            and tile.value is not None
            and tile.previous is tile.value.defining_op
        )
    np.testing.assert_array_equal(*product(after, 96))


def test_pipelined_operands_are_left_alone():
    before, after = before_and_after(GEMM, stages=3)
    assert len(operations(before, LocalAlloc)) == len(operations(after, LocalAlloc)) == 2


def test_tile_and_its_transpose_share_the_memory():
    before, after = before_and_after(SQUARE, stages=3)
    assert len(operations(before, ConvertLayout)) == 3
    assert len(operations(after, LocalAlloc)) == 1 and len(operations(after, MemDescTrans)) == 1
    assert len(operations(after, LocalLoad)) == 2
    x = np.random.default_rng(0).integers(-3, 4, (64, 64)).astype(np.float16)
    c = np.zeros((64, 64), np.float32)
    interpreter.run(after, 1, [x, c])
    np.testing.assert_array_equal(c, x.astype(np.float32) @ x.astype(np.float32).T)


def test_conversion_that_stays_in_registers_is_left_alone():
    """The accumulator of a dot as the left operand of the next one."""
    function = attention_after(64, (64, 64), 4)
    chained = [op for op in operations(function, Dot) if isinstance(op.a.defining_op, ConvertLayout)]
    assert len(chained) == 1


def test_tiles_that_do_not_fit_stay_conversions():
    wide = SQUARE.replace("64", "512").replace("f16", "f32").replace("num_warps = 4", "num_warps = 8")
    before, after = before_and_after(wide, stages=1)
    assert 512 * 512 * 4 > TARGET.max_shared_bytes and not operations(after, LocalAlloc)
    assert len(operations(before, ConvertLayout)) == len(operations(after, ConvertLayout))


def attention_after(depth: int, tile: tuple[int, int], num_warps: int) -> Function:
    """The attention kernel of the benchmarks after the pass."""
    integers = ("heads", "length", "stride_b", "stride_h", "stride_l")
    signature = (
        dict.fromkeys(("q", "k", "v", "out"), "*fp16:16")
        | {"scale": "fp32"}
        | dict.fromkeys(integers, "i32:16")
    )
    constants = {"BLOCK_M": tile[0], "BLOCK_N": tile[1], "D": depth, "CAUSAL": False}
    artifact = compile_function(
        kernels.attention, signature, constants, target="sm_90", num_warps=num_warps, num_stages=2
    )
    return parse_function(dict(artifact.stages)["reduce_data_duplication"])


@pytest.mark.parametrize("depth, num_warps, is_inside", [(128, 4, True), (128, 8, False), (64, 4, False)])
def test_operands_that_have_no_room_in_registers_are_read_in_the_loop(depth, num_warps, is_inside):
    """q of 128 rows: with 128 columns and 4 warps, accumulators and scores take 200 registers of a thread."""
    function = attention_after(depth, (128, 64), num_warps)
    (loop,) = operations(function, For)
    scores = operations(loop.body, Dot)[0]
    read = scores.a.defining_op
    assert isinstance(read, LocalLoad) and isinstance(read.source.defining_op, LocalAlloc)
    assert (read.parent is loop.body) == is_inside
