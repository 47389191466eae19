"""Attention by ``wgmma``: both products under way at once, tiles released by mbarriers, on every executor."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from benchmarks.dialects import load
from ptxforge.compiler import compile_function

kernels = load("ptxforge")


def softmax_product(q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float, causal: bool) -> np.ndarray:
    """In f64; ``scale`` is for powers of two."""
    scores = np.einsum("bhid,bhjd->bhij", q.astype(np.float64), k.astype(np.float64)) * scale
    if causal:
        length = scores.shape[-1]
        scores = np.where(np.arange(length)[:, None] >= np.arange(length), scores, -np.inf)
    p = np.exp2(scores - scores.max(-1, keepdims=True))
    return np.einsum("bhij,bhjd->bhid", p / p.sum(-1, keepdims=True), v.astype(np.float64))


CASES = [  # length, D, BLOCK_M, BLOCK_N, warps, stages, causal
    (64, 64, 64, 64, 4, 2, False),
    (128, 64, 64, 64, 4, 3, False),
    (384, 32, 128, 64, 8, 2, False),
    (512, 64, 128, 64, 8, 3, False),
    (640, 16, 128, 32, 8, 4, False),
    (256, 64, 64, 32, 4, 2, True),
    (512, 32, 128, 64, 8, 3, True),
    (384, 32, 128, 32, 8, 2, True),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_attention(execute, case):
    length, dim, block_m, block_n, num_warps, num_stages, causal = case
    rng = np.random.default_rng(length)
    shape = (2, 2, length, dim)
    q, k, v = (rng.standard_normal(shape).astype(np.float16) for _ in range(3))
    scale = dim**-0.5 * 1.4426950408889634
    strides = (2 * length * dim, length * dim, dim)
    arguments = [q, k, v, np.zeros(shape, np.float16), scale, 2, length, *strides]
    constants = {"BLOCK_M": block_m, "BLOCK_N": block_n, "D": dim, "CAUSAL": causal}
    expected = softmax_product(q, k, v, scale, causal)
    for (out,) in execute(kernels.attention, (length // block_m, 4), arguments, constants, outputs=[3],
                          num_warps=num_warps, num_stages=num_stages):  # fmt: skip
        assert np.abs(out.astype(np.float64) - expected).max() < 4e-3


def compiled(**changes) -> ptxforge.Artifact:
    constants = {"BLOCK_M": 128, "BLOCK_N": 128, "D": 128, "CAUSAL": False} | changes
    signature = {name: "*fp16:16" for name in ("q", "k", "v", "out")} | {"scale": "fp32", "heads": "i32"}
    signature |= dict.fromkeys(("length", "stride_b", "stride_h", "stride_l"), "i32:16")
    options = {"target": "sm_90a", "num_warps": 8, "num_stages": 2}
    return ptxforge.compile(kernels.attention, signature=signature, constants=constants, **options)


def test_both_products_are_started_before_either_is_waited_for(assemble):
    artifact = compiled()
    assemble(artifact.ptx)
    loop = artifact.ptx[artifact.ptx.index("$for_") :]
    loop = loop[loop.index("\n") : loop.index("bra.uni $for_")]
    groups = [line.split()[0] for line in loop.splitlines() if "commit_group" in line or "wait_group" in line]
    waits = [line.split()[1] for line in loop.splitlines() if "wgmma.wait_group" in line]
    assert groups == ["wgmma.commit_group.sync.aligned;"] * 2 + ["wgmma.wait_group.sync.aligned"] * 2
    assert waits == ["1;", "0;"]
    first_wait = loop.index("wgmma.wait_group")
    assert "ex2" not in loop[:first_wait] and loop.count("ex2") > 60


def test_no_barrier_of_all_threads_in_the_loop():
    ptx = compiled().ptx
    loop = ptx[ptx.index("$for_") :]
    loop = loop[loop.index("\n") : loop.index("bra.uni $for_")]
    assert "bar.sync" not in loop and "mbarrier.arrive.shared::cta" in loop


def test_loops_of_few_iterations_are_left_alone():
    """The masked blocks of causal attention: one iteration of 128 columns."""
    ptx = compiled(CAUSAL=True).ptx
    waits = [line.split()[1] for line in ptx.splitlines() if "wgmma.wait_group" in line]
    assert waits.count("1;") == 1


@ptxforge.jit
def attention_f8(q, k, v, out, length, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, D: tl.constexpr):
    """``v`` lies transposed: its columns are what a product of 8-bit floats reads."""
    rows, d = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M), tl.arange(0, D)
    queries = tl.load(q + rows[:, None] * D + d[None, :])
    most = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    sums, result = tl.zeros((BLOCK_M,), tl.float32), tl.zeros((BLOCK_M, D), tl.float32)
    for start in range(0, length, BLOCK_N):
        columns = start + tl.arange(0, BLOCK_N)
        scores = tl.dot(queries, tl.load(k + columns[:, None] * D + d[None, :]).T)
        higher = tl.maximum(most, tl.max(scores, 1))
        p, alpha = tl.exp2(scores - higher[:, None]), tl.exp2(most - higher)
        values = tl.load(v + d[:, None] * length + columns[None, :]).T
        result = tl.dot(p.to(v.dtype.element_ty), values, result * alpha[:, None])
        sums, most = sums * alpha + tl.sum(p, 1), higher
    tl.store(out + rows[:, None] * D + d[None, :], result / sums[:, None])


@pytest.mark.parametrize("num_stages", [2, 3])
def test_a_chain_whose_second_tile_is_transposed(execute, num_stages):
    length, dim, rng = 384, 64, np.random.default_rng(8)
    q, k, v = (rng.standard_normal((length, dim)).astype(ml_dtypes.float8_e5m2) for _ in range(3))
    expected = softmax_product(q[None, None], k[None, None], v[None, None], 1.0, False)[0, 0]
    arguments = [q, k, np.ascontiguousarray(v.T), np.zeros((length, dim), np.float32), length]
    constants = {"BLOCK_M": 64, "BLOCK_N": 32, "D": dim}
    for (out,) in execute(
        attention_f8, (length // 64,), arguments, constants, outputs=[3], num_stages=num_stages
    ):
        assert np.abs(out - expected).max() < 0.3
    signature = dict.fromkeys("qkv", "*fp8e5:16") | {"out": "*fp32:16", "length": "i32:16"}
    ptx = compile_function(attention_f8, signature, constants, "sm_90a", num_stages=num_stages).ptx
    assert "wgmma.wait_group.sync.aligned 1;" in ptx and "cp.async.bulk.tensor" in ptx
