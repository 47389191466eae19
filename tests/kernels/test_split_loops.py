"""Loops with a mask that only some iterations need, on every executor."""

from __future__ import annotations

import re

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from benchmarks.dialects import load
from tests.kernels.attentions import gradients, softmax_product

kernels = load("ptxforge")
LOG2_E = 1.4426950408889634


@pytest.fixture(params=["sm_80", "sm_90a"])
def target(request, monkeypatch):
    monkeypatch.setenv("PTXFORGE_TARGET", request.param)
    return request.param


@pytest.mark.parametrize("case", [  # length, D, BLOCK_M, BLOCK_N, warps, stages
    (256, 64, 64, 64, 4, 2), (384, 32, 128, 64, 8, 3), (192, 32, 64, 32, 4, 3), (256, 32, 64, 128, 4, 2),
], ids=str)  # fmt: skip
def test_attention_in_one_loop(execute, target, case):
    length, dim, block_m, block_n, num_warps, num_stages = case
    rng = np.random.default_rng(length)
    shape = (1, 2, length, dim)
    q, k, v = (rng.standard_normal(shape).astype(np.float16) for _ in range(3))
    scale = dim**-0.5 * LOG2_E
    arguments = [q, k, v, np.zeros(shape, np.float16), scale, 2, length, 2 * length * dim, length * dim, dim]
    constants = {"BLOCK_M": block_m, "BLOCK_N": block_n, "D": dim}
    expected = softmax_product(q, k, v, scale, True)
    for (out,) in execute(kernels.attention_one_loop, (length // block_m, 2), arguments, constants,
                          outputs=[3], num_warps=num_warps, num_stages=num_stages):  # fmt: skip
        assert np.abs(out.astype(np.float64) - expected).max() < 4e-3


@ptxforge.jit
def masked(
    q, k, v, out, offset, rows, columns, window,
    BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, MASK: tl.constexpr,
):  # fmt: skip
    """softmax(q kᵀ) v with a mask, of any sizes; rows begin at ``offset``."""
    start = tl.program_id(0) * BM
    i, n, d = start + tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, D)
    queries = tl.load(q + i[:, None] * D + d[None, :], mask=(i < rows)[:, None], other=0.0)
    top = tl.full((BM,), -1e30, tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    end = columns
    if MASK != "end":
        end = tl.minimum(start + offset + BM, columns)
    for step in range(0, end, BN):
        j = step + n
        keys = tl.load(k + j[None, :] * D + d[:, None], mask=(j < columns)[None, :], other=0.0)
        scores = tl.dot(queries, keys)
        if MASK == "end":
            scores = tl.where((j < columns)[None, :], scores, -1e30)
        elif MASK == "causal":
            scores = tl.where((j[None, :] > (i + offset)[:, None]) | (j >= columns)[None, :], -1e30, scores)
        else:
            near = (i + offset)[:, None] - j[None, :] < window
            seen = ((i + offset)[:, None] >= j[None, :]) & near & (j < columns)[None, :]
            scores = tl.where(seen, scores, -1e30)
        above = tl.maximum(top, tl.max(scores, 1))
        p = tl.exp2(scores - above[:, None])
        shrink = tl.exp2(top - above)
        total = total * shrink + tl.sum(p, 1)
        values = tl.load(v + j[:, None] * D + d[None, :], mask=(j < columns)[:, None], other=0.0)
        acc = tl.dot(p.to(tl.float16), values, acc * shrink[:, None])
        top = above
    tl.store(out + i[:, None] * D + d[None, :], acc / total[:, None], mask=(i < rows)[:, None])


@pytest.mark.parametrize("mask", ["end", "causal", "window"])
@pytest.mark.parametrize("rows, columns, offset", [(128, 128, 0), (100, 130, 0), (70, 200, 130), (64, 64, 3)])
def test_masks_of_any_sizes(execute, target, mask, rows, columns, offset):
    rng = np.random.default_rng(rows)
    q, k, v = ((rng.integers(-4, 5, (n, 32)) / 4).astype(np.float16) for n in (rows, columns, columns))
    window = 70
    i, j = np.arange(rows)[:, None] + offset, np.arange(columns)
    seen = {"end": j >= 0, "causal": i >= j, "window": (i >= j) & (i - j < window)}[mask]
    scores = np.where(seen, q.astype(np.float64) @ k.T.astype(np.float64), -np.inf)
    p = np.exp2(scores - scores.max(1, keepdims=True))
    expected = p / p.sum(1, keepdims=True) @ v.astype(np.float64)
    arguments = [q, k, v, np.zeros((rows, 32), np.float32), offset, rows, columns, window]
    constants = {"BM": 64, "BN": 32, "D": 32, "MASK": mask}
    for (out,) in execute(masked, (-(-rows // 64),), arguments, constants, outputs=[3], num_warps=4):
        assert np.abs(out - expected).max() < 4e-3


@pytest.mark.parametrize("mask", ["end", "causal", "window"])
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_each_of_these_is_split(assemble, target, mask):
    signature = dict.fromkeys(("q", "k", "v"), "*fp16:16") | {"out": "*fp32:16"}
    signature |= dict.fromkeys(("offset", "rows", "columns", "window"), "i32")
    artifact = ptxforge.compile(
        masked, signature=signature, constants={"BM": 128, "BN": 128, "D": 128, "MASK": mask}, target=target,
        num_warps=8, num_stages=2,
    )  # fmt: skip
    assemble(artifact.ptx)
    assert [remark.location.line for remark in artifact.decisions if remark.kind == "split"]


@ptxforge.jit
def gradients_by_mask(
    q, k, v, d_out, lse, delta, d_q, d_k, d_v, scale, log2_scale, length,
    BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """As ``attention_rows`` and ``attention_columns``, causal, by a mask in one loop each."""
    pid, d = tl.program_id(0), tl.arange(0, D)
    i = pid * BM + tl.arange(0, BM)
    at = i[:, None] * D + d[None, :]
    rows, d_rows = tl.load(q + at), tl.load(d_out + at)
    row_lse, row_delta = tl.load(lse + i), tl.load(delta + i)
    acc = tl.zeros((BM, D), tl.float32)
    for step in range(0, (pid + 1) * BM, BN):
        j = step + tl.arange(0, BN)
        keys = tl.load(k + j[:, None] * D + d[None, :])
        p = tl.exp2(tl.dot(rows, tl.trans(keys)) * log2_scale - row_lse[:, None])
        p = tl.where(i[:, None] >= j[None, :], p, 0.0)
        d_p = tl.dot(d_rows, tl.trans(tl.load(v + j[:, None] * D + d[None, :])))
        acc = tl.dot((p * (d_p - row_delta[:, None])).to(keys.dtype), keys, acc)
    tl.store(d_q + at, (acc * scale).to(d_q.dtype.element_ty))
    k_rows, v_rows = tl.load(k + at), tl.load(v + at)
    acc_k = tl.zeros((BM, D), tl.float32)
    acc_v = tl.zeros((BM, D), tl.float32)
    for step in range(pid * BM, length, BN):
        n = step + tl.arange(0, BN)
        block = tl.load(q + n[:, None] * D + d[None, :])
        p = tl.exp2(tl.dot(k_rows, tl.trans(block)) * log2_scale - tl.load(lse + n)[None, :])
        p = tl.where(n[None, :] >= i[:, None], p, 0.0)
        d_block = tl.load(d_out + n[:, None] * D + d[None, :])
        acc_v = tl.dot(p.to(block.dtype), d_block, acc_v)
        d_s = p * (tl.dot(v_rows, tl.trans(d_block)) - tl.load(delta + n)[None, :])
        acc_k = tl.dot(d_s.to(block.dtype), block, acc_k)
    tl.store(d_k + at, (acc_k * scale).to(d_k.dtype.element_ty))
    tl.store(d_v + at, acc_v.to(d_v.dtype.element_ty))


def test_gradients_by_mask(execute, target):
    length, dim = 256, 32
    rng = np.random.default_rng(5)
    q, k, v, d_out = (rng.standard_normal((length, dim)).astype(np.float16) for _ in range(4))
    scale = dim**-0.5
    lse, delta, *expected = gradients(q, k, v, d_out, scale, True)
    sums = [lse.astype(np.float32), delta.astype(np.float32)]
    arguments = [q, k, v, d_out, *sums, *(np.zeros_like(q) for _ in range(3)), scale, scale * LOG2_E, length]
    constants = {"BM": 64, "BN": 32, "D": dim}
    for found in execute(gradients_by_mask, (length // 64,), arguments, constants, outputs=[6, 7, 8],
                         num_warps=4, num_stages=2):  # fmt: skip
        for one, other in zip(found, expected, strict=True):
            assert np.abs(one.astype(np.float64) - other).max() < 2e-2


def test_both_gradients_are_split():
    signature = dict.fromkeys(("q", "k", "v", "d_out", "d_q", "d_k", "d_v"), "*fp16:16")
    signature |= dict.fromkeys(("lse", "delta"), "*fp32:16") | dict.fromkeys(("scale", "log2_scale"), "fp32")
    artifact = ptxforge.compile(
        gradients_by_mask, signature=signature | {"length": "i32:16"},
        constants={"BM": 128, "BN": 64, "D": 64}, target="sm_90a", num_warps=8,
    )  # fmt: skip
    said = [remark.message for remark in artifact.decisions if remark.kind == "split"]
    assert ["only the last" in text for text in said] == [True, False]


@pytest.mark.parametrize("target, block", [("sm_80", 128), ("sm_90a", 128), ("sm_90a", 64)])
def test_one_loop_becomes_what_two_are(target, block):
    """But for the masked blocks' scores, which the kernel with two loops scales before their maximum."""
    signature = dict.fromkeys(("q", "k", "v", "out"), "*fp16:16") | {"scale": "fp32", "heads": "i32"}
    signature |= dict.fromkeys(("length", "stride_b", "stride_h", "stride_l"), "i32:16")
    constants = {"BLOCK_M": 128, "BLOCK_N": block, "D": 128}
    options = {"target": target, "num_warps": 8, "num_stages": 2, "signature": signature}
    one = ptxforge.compile(kernels.attention_one_loop, constants=constants, **options)
    two = ptxforge.compile(kernels.attention, constants=constants | {"CAUSAL": True}, **options)
    opcodes = "mma.sync", "wgmma.mma_async", "cp.async", "mbarrier", "ldmatrix", "ex2", "bar.sync", "selp"
    for opcode in opcodes:
        made = [len(re.findall(rf"^\s.*\b{re.escape(opcode)}", text.ptx, re.M)) for text in (one, two)]
        assert made[0] == made[1], opcode
    assert one.shared_bytes == two.shared_bytes
