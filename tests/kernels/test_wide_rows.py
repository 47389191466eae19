"""Rows of which each thread holds much: registers for them, not for more blocks than keep memory busy."""

from __future__ import annotations

import re

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from benchmarks.dialects import load
from ptxforge.codegen_ptx import emit
from ptxforge.compiler import compile_function
from ptxforge.ir.parser import parse_function
from ptxforge.support.target import parse_target
from tests.kernels.assembly import spilled_bytes, spills_and_registers

kernels = load("ptxforge")


def softmax(columns: int, warps: int) -> str:
    signature = {"out": "*fp32:16", "x": "*fp32:16", "stride": "i32:16", "columns": "i32:16"}
    return compile_function(kernels.softmax, signature, {"BLOCK": columns}, "sm_90", num_warps=warps).ptx


def layer_norm(columns: int, warps: int) -> str:
    signature = dict.fromkeys(("out", "x", "weight", "bias"), "*fp32:16") | {"eps": "fp32"}
    signature |= dict.fromkeys(("stride", "columns"), "i32:16")
    return compile_function(kernels.layer_norm, signature, {"BLOCK": columns}, "sm_90", num_warps=warps).ptx


@pytest.mark.parametrize("warps", [4, 8])
def test_layer_norm_of_wide_rows_does_not_spill(warps, tmp_path):
    """In 8 warps the assembler takes 64 registers of 128 and spills if it is left to itself."""
    assert spilled_bytes(layer_norm(8192, warps), tmp_path) == 0


def test_what_spills_anyway_spills_from_all_registers(tmp_path):
    """512 words are more than a thread has; left to itself, the assembler gives them 64 registers. (256 get
    all registers in any case: their exponentials have no branch.)"""
    ptx = softmax(16384, 1)
    alone = ptx.replace(".minnctapersm 2\n", "")
    assert alone != ptx and spilled_bytes(ptx, tmp_path) < spilled_bytes(alone, tmp_path) * 3 / 4
    assert spilled_bytes(softmax(16384, 2), tmp_path) < 4000


@pytest.mark.parametrize(
    ("columns", "warps", "blocks"),
    [
        (512, 1, None),
        (1024, 1, 2),
        (2048, 1, 2),
        (4096, 1, None),
        (8192, 1, 2),
        (16384, 16, 2),
        (32768, 16, 1),
    ],
)
def test_by_words_in_a_thread(columns, warps, blocks):
    """16 words are few, 32 and 64 many, 128 just fit, 256 never do. Each has room for two registers."""
    ptx = softmax(columns, warps)
    assert (f".minnctapersm {blocks}" in ptx) if blocks else (".minnctapersm" not in ptx)


@ptxforge.jit
def moments(x, out, rows, stride, BLOCK: tl.constexpr):
    """Mean and sum of squares of columns, and how many there are, one row after the other."""
    i = tl.arange(0, BLOCK)
    mean, squares = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    count = tl.zeros((BLOCK,), tl.int32)
    for row in range(rows):
        here = row + i < stride
        value = tl.load(x + row * stride + i, mask=here)
        new = tl.where(here, mean + (value - mean) / (row + 1), mean)
        squares = tl.where(here, squares + (value - new) * (value - mean), squares)
        count += here.to(tl.int32)
        mean = new
    tl.store(out + i, mean * count + squares)


@pytest.mark.parametrize(("warps", "words", "blocks"), [
    (16, 32, 1), (8, 32, 2), (8, 64, 1), (4, 128, 1), (8, 16, None),
])  # fmt: skip
def test_what_a_loop_carries_is_counted(warps, words, blocks, tmp_path):
    """Three tiles that are carried and one that is loaded take twice what one is allowed."""
    signature = {"x": "*fp32:16", "out": "*fp32:16", "rows": "i32", "stride": "i32:16"}
    constants = {"BLOCK": 32 * warps * words}
    ptx = compile_function(moments, signature, constants, "sm_90", num_warps=warps).ptx
    assert (f".minnctapersm {blocks}" in ptx) if blocks else (".minnctapersm" not in ptx)
    if blocks == 1:
        crowded = re.sub(r"\.minnctapersm 1\n", ".minnctapersm 2\n" if words < 128 else "", ptx)
        assert spilled_bytes(ptx, tmp_path) < spilled_bytes(crowded, tmp_path) / 2


def test_products_on_fma_units_are_left_alone():
    """64 sums and the operands take all 128 registers that two blocks leave."""
    integers = ("M", "N", "K", "stride_am", "stride_bk", "stride_cm")
    signature = dict.fromkeys("abc", "*fp32:16") | dict.fromkeys(integers, "i32:16")
    constants = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 16, "GROUP_M": 8, "PRECISION": "ieee",
                 "EVEN_K": True, "stride_ak": 1, "stride_bn": 1, "stride_cn": 1}  # fmt: skip
    ptx = compile_function(kernels.matmul, signature, constants, "sm_90", num_warps=8, num_stages=2).ptx
    assert ".minnctapersm" not in ptx


@ptxforge.jit
def divergence(x, y, out, gradient, n, BLOCK: tl.constexpr):
    """Four exponentials and a logarithm of each element, which meets no other."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + i, mask=i < n, other=float("-inf")).to(tl.float32)
    b = tl.load(y + i, mask=i < n, other=float("-inf")).to(tl.float32)
    most = tl.maximum(a, b)
    middle = most + tl.log(tl.exp(a - most) + tl.exp(b - most))
    change = tl.exp(a) * (a - middle)
    tl.store(out + i, change + tl.exp(b) * (b - middle), mask=i < n)
    tl.store(gradient + i, change, mask=i < n)


@pytest.mark.parametrize(("block", "at_once"), [(4096, False), (1024, True)])
def test_elements_that_do_not_meet_do_not_wait_for_others(block, at_once, tmp_path):
    """32 of them a thread would take 200 registers in front of a branch, and two blocks of 4 warps would fill
    a multiprocessor, which has room for 16; 8 of them share a branch."""
    signature = dict.fromkeys(("x", "y", "out", "gradient"), "*fp32:16") | {"n": "i32:16"}
    ptx = compile_function(divergence, signature, {"BLOCK": block}, "sm_90", num_warps=4).ptx
    assert (".minnctapersm" not in ptx) and ("$denormal" in ptx) == at_once
    assert spills_and_registers(ptx, tmp_path, "sm_90a")[1] < (64 if at_once else 96)


def test_elements_that_do_not_meet_go_through_few_registers_one_after_the_other(execute, tmp_path):
    """All at once they leave room for half as many blocks, or spill."""
    signature = dict.fromkeys(("x", "y", "out", "gradient"), "*fp16:16") | {"n": "i32:16"}
    made = compile_function(divergence, signature, {"BLOCK": 8192}, "sm_90a", num_warps=4)
    target, function = parse_target("sm_90a"), parse_function(made.asm["gpu"])
    early = emit(function, target, without={"compute_late"})
    late, at_once = (spills_and_registers(ptx, tmp_path, "sm_90a") for ptx in (made.ptx, early))
    assert late[0] == 0 and late[1] <= 128 < sum(at_once)
    x, y = np.random.default_rng(0).normal(-3, 2, (2, 9000)).astype(np.float16)
    arguments = [x, y, x * 0, x * 0, 9000]
    for found in execute(divergence, (2,), arguments, {"BLOCK": 8192}, outputs=[2, 3], num_warps=4):
        a, b = x.astype(np.float64), y.astype(np.float64)
        middle = np.log(np.exp(a) + np.exp(b))
        change = np.exp(a) * (a - middle)
        np.testing.assert_allclose(found[1], change, rtol=2e-3, atol=1e-4)
        np.testing.assert_allclose(found[0], change + np.exp(b) * (b - middle), rtol=2e-3, atol=1e-4)
