"""What is said of products: instruction, feed, schedule, registers."""

from __future__ import annotations

import pytest

import ptxforge
import ptxforge.language as tl
from benchmarks.configurations import configurations
from benchmarks.dialects import load
from ptxforge.compiler import compile_function

kernels = load("ptxforge")


def said(name: str, target: str = "sm_90a") -> list[str]:
    """The remarks on products of a benchmark configuration."""
    (one,) = [one for one in configurations() if one.name == name]
    kernel = getattr(kernels, one.kernel)
    artifact = compile_function(kernel, one.signature, one.constants, target, **one.options)
    found = [remark for remark in artifact.remarks if remark.kind == "product"]
    assert all(remark.location is not None for remark in found)
    return [remark.message for remark in found]


@pytest.mark.parametrize("name, target, wanted", [
    ("f16-NN-128-256-64-w8-s4", "sm_90a",
     "128x256x64 by wgmma m64n256k16, 2 warpgroups; left by TMA, 4 stages; right by TMA, 4 stages; in flight "
     "across iterations; 128 registers of sums in a thread"),
    ("f16-NN-128-256-64-w8-s3", "sm_80",
     "4 of 128x256x16 by mma.sync m16n8k16, 8 warps; left by cp.async, 3 stages; right by "
     "cp.async, 3 stages; 128 registers of sums in a thread"),
    ("f16-NN-odd-128-128-32-w4-s4", "sm_90a",
     "128x128x32 by wgmma m64n128k16, 1 warpgroup; left by threads, 2 stages; right by threads, 2 stages; "
     "in flight across iterations; 128 registers of sums in a thread"),
    ("bf16-i8-NT-128-128-64-w8-s3", "sm_90a",
     "2 of 128x128x32 by wgmma m64n128k16, 2 warpgroups; left by TMA, 3 stages, through registers; "
     "right by TMA, 3 stages; in flight across iterations; 64 registers of sums in a thread"),
])  # fmt: skip
def test_benchmarks(name, target, wanted):
    assert said(name, target) == [wanted]


def test_each_product_of_attention_is_told_of_once():
    scores, sums = said("attention-128-128-64-w8-s2")
    assert scores.startswith("128x64x128 by wgmma m64n64k16") and "right by TMA, 2 stages" in scores
    assert sums.startswith("128x128x64 by wgmma m64n128k16") and "left computed, through registers" in sums


@ptxforge.jit
def small(a, b, c, N: tl.constexpr):
    i = tl.arange(0, N)
    at = i[:, None] * N + i[None, :]
    tl.store(c + at, tl.dot(tl.load(a + at), tl.load(b + at), input_precision="ieee"))


@ptxforge.jit
def batches(a, b, c, N: tl.constexpr):
    g, i = tl.arange(0, 2), tl.arange(0, N)
    at = g[:, None, None] * N * N + i[None, :, None] * N + i[None, None, :]
    tl.store(c + at, tl.dot(tl.load(a + at), tl.load(b + at)))


@ptxforge.jit
def precise(a, b, c, N: tl.constexpr):
    i = tl.arange(0, N)
    at = i[:, None] * N + i[None, :]
    tl.store(c + at, tl.dot(tl.load(a + at), tl.load(b + at), input_precision="tf32x3"))


@pytest.mark.parametrize("kernel, kind, n, beginning", [
    (precise, "fp32", 16, "3 of 16x16x16 by mma.sync m16n8k8, 4 warps; left"),
    (small, "fp32", 16, "16x16x16 by FMA units; left"),
    (small, "fp16", 16, "16x16x16 by mma.sync m16n8k16, 4 warps; left"),
    (small, "fp8e4nv", 32, "32x32x32 by mma.sync m16n8k32, 4 warps; left"),
    (batches, "fp16", 16, "2x16x16x16 by mma.sync m16n8k16, 4 warps; left"),
])  # fmt: skip
def test_without_a_loop(kernel, kind, n, beginning):
    signature = {"a": f"*{kind}:16", "b": f"*{kind}:16", "c": "*fp32:16"}
    artifact = ptxforge.compile(kernel, signature=signature, constants={"N": n}, target="sm_90a")
    (message,) = [remark.message for remark in artifact.remarks if remark.kind == "product"]
    assert message.startswith(beginning), message


@ptxforge.jit
def double(x, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i) * 2)


def test_kernels_without_products_are_passed_over():
    artifact = ptxforge.compile(
        double, signature={"x": "*fp32:16"}, constants={"BLOCK": 128}, target="sm_90a"
    )
    assert not artifact.remarks
