"""Fragments of the next slice along k, loaded while the present one multiplies: the products of FMA units."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.dialects import load
from ptxforge import frontend, interpreter
from ptxforge.ir.core import Function
from ptxforge.ir.ops import shared
from ptxforge.ir.ops.control import For
from ptxforge.ir.ops.dot import Dot
from ptxforge.ir.parser import parse_function
from ptxforge.ir.verifier import verify
from ptxforge.passes.expand_loops import expand_loops
from ptxforge.passes.pipeline import PIPELINE
from ptxforge.passes.pipeline_loops import pipeline_loops
from ptxforge.support.errors import IRError
from ptxforge.support.target import parse_target

kernels = load("ptxforge")
STRIDES = {"N": ("row", 1), "T": (1, "row")}


def expanded(tile: tuple[int, int, int], num_warps: int, layout: str = "NN") -> Function:
    """The f32 product of the benchmarks after ``expand_loops``; ``layout`` says which operands lie transposed."""
    m, n, k = tile
    signature = {name: "*fp32:16" for name in "abc"} | {name: "i32:16" for name in "MNK"}
    constants = {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": 1, "PRECISION": "ieee"}
    pairs = ("stride_am", "stride_ak"), ("stride_bk", "stride_bn"), ("stride_cm", "stride_cn")
    for names, transposed in zip(pairs, (*layout, "N")):
        for name, stride in zip(names, STRIDES[transposed]):
            if stride == 1:
                constants[name] = 1
            else:
                signature[name] = "i32:16"
    function = frontend.build(
        kernels.matmul, signature, constants, target="sm_90", num_warps=num_warps, num_stages=3)
    end = max(i for i, row in enumerate(PIPELINE) if row.function is expand_loops)
    for row in PIPELINE[: end + 1]:
        row.function(function, parse_target("sm_90"))
    verify(function)
    return function


def slices(function: Function) -> list[Dot]:
    (loop,) = [op for op in function.walk() if isinstance(op, For)]
    return [op for op in loop.body.operations if isinstance(op, Dot)]


@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize("tile, num_warps, width", [
    ((128, 128, 16), 8, 1), ((128, 256, 16), 8, 1), ((64, 64, 16), 4, 2), ((64, 32, 16), 4, 4),
    ((32, 32, 8), 4, 4),
], ids=str)  # fmt: skip
def test_a_slice_is_as_thin_as_reads_can_hide_behind(tile, num_warps, width, layout):
    """64 products of each thread, where the tile is deep enough."""
    dots = slices(expanded(tile, num_warps, layout))
    assert [dot.a.type.shape[1] for dot in dots] == [width] * (tile[2] // width)


@pytest.mark.parametrize("layout", ["NN", "TT"])
def test_operands_wait_transposed_if_need_be(layout):
    function = expanded((128, 128, 16), 8, layout)
    buffers = [op.result.type for op in function.walk() if isinstance(op, shared.LocalAlloc)]
    assert {(t.shape[1:], t.layout.order) for t in buffers} == {((128, 16), (0, 1)), ((16, 128), (1, 0))}


@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize("k", [1, 16, 40, 64])
def test_meaning(layout, k):
    tile = (64, 32, 16)
    rng = np.random.default_rng(k)
    a, b = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((64, k), (k, 32)))
    c = np.full((64, 32), np.nan, np.float32)
    stored_a = a if layout[0] == "N" else np.ascontiguousarray(a.T)
    stored_b = b if layout[1] == "N" else np.ascontiguousarray(b.T)
    rows = {"stride_am": k, "stride_ak": 64, "stride_bk": 32, "stride_bn": k, "stride_cm": 32}
    values = {"a": stored_a, "b": stored_b, "c": c, "M": 64, "N": 32, "K": k} | rows
    function = expanded(tile, 4, layout)
    interpreter.run(function, 1, [values[argument.name] for argument in function.arguments])
    np.testing.assert_array_equal(c, a @ b)


SCHEDULED = (Path(__file__).parents[1] / "tir" / "schedule.tir").read_text().split("// ----\n")


@pytest.mark.parametrize(("written", "why"), [
    ("slice = 12", "slices of 12"), ("slice = 0", "slices of 0"), ("slice = 16", "slices of 16"),
])  # fmt: skip
def test_a_slice_that_cannot_be_is_refused(written, why):
    """None that the product is not a multiple of; and not where operands come by several waits."""
    (case,) = [case for case in SCHEDULED if "// run: pipeline_loops" in case and "slice = 16" in case]
    text = case.partition("// gives:")[0].replace("slice = 16", written)
    if written == "slice = 16":
        text = text.replace("%b = load %y_at {vector = 8, group = 0", "%b = load %y_at {vector = 8, group = 1")
    with pytest.raises(IRError, match=why):
        pipeline_loops(parse_function(text), parse_target("sm_80"))
