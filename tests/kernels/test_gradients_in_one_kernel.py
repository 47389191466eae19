"""Attention's gradients of five products in one kernel: results on every executor; what starts when, by the
PTX."""

from __future__ import annotations

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from benchmarks.dialects import load
from ptxforge.compiler import compile_function
from ptxforge.runtime.tensor_descriptor import TensorDescriptor
from tests.kernels.attentions import LOG2_E, gradients
from tests.kernels.tensor_core import body_of, events

kernels = load("ptxforge")

CASES = [  # length, D, block of keys, step, warps, stages, causal, a warp that copies, by TMA
    (128, 64, 64, 64, 4, 2, False, False, True),
    (256, 64, 128, 64, 8, 2, True, True, True),
    (256, 128, 128, 64, 8, 2, False, True, True),
    (128, 32, 64, 64, 4, 3, True, False, True),
    (256, 32, 64, 64, 4, 2, False, False, False),
    (128, 64, 64, 32, 4, 1, True, False, True),
    (256, 64, 128, 128, 8, 2, False, False, True),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients(execute, case):
    length, depth, block, step, num_warps, num_stages, causal, specialized, by_tma = case
    rng = np.random.default_rng(length + depth)
    shape = (1, 2, length, depth)
    q, k, v, d_out = (rng.standard_normal(shape).astype(np.float16) for _ in range(4))
    scale = depth**-0.5
    lse, delta, *expected = gradients(q, k, v, d_out, scale, causal)
    descriptor = TensorDescriptor.from_tensor(np.zeros((2 * length, depth), np.float32), [step, depth])
    blank = np.full(shape, np.nan, np.float16)
    arguments = [
        q, k, v, d_out, lse.astype(np.float32), delta.astype(np.float32), descriptor, blank, blank,
        scale, scale * LOG2_E, 2, length, 2 * length * depth, length * depth, depth,
    ]  # fmt: skip
    constants = {"BLOCK_N": block, "STEP_M": step, "D": depth, "CAUSAL": causal}
    constants |= {"STAGES": num_stages, "SPECIALIZED": specialized}
    runs = execute(
        kernels.attention_gradients, (length // block, 2), arguments, constants, outputs=[6, 7, 8],
        num_warps=num_warps, tensor_maps=by_tma,
    )  # fmt: skip
    for d_q, d_k, d_v in runs:
        for actual, wanted in zip((d_q.reshape(shape) * scale, d_k, d_v), expected):
            error = np.abs(actual.astype(np.float64) - wanted).max()
            assert error < 4e-3 * np.abs(wanted).max()


def compiled(depth: int, **constants):
    """The kernel with 128 keys for 8 warps, as the benchmarks compile it."""
    signature = dict.fromkeys(("q", "k", "v", "d_out", "d_k", "d_v"), "*fp16:16")
    signature |= dict.fromkeys(("lse", "delta"), "*fp32:16") | {"scale": "fp32", "log2_scale": "fp32"}
    signature |= dict.fromkeys(("heads", "length", "stride_b", "stride_h", "stride_l"), "i32:16")
    signature["d_q"] = f"tensordesc<fp32[64,{depth}]>:16"
    fixed = {"BLOCK_N": 128, "STEP_M": 64, "D": depth, "CAUSAL": False, "STAGES": 2, "SPECIALIZED": False}
    return compile_function(
        kernels.attention_gradients, signature, fixed | constants, "sm_90a", num_warps=8
    )  # fmt: skip


@pytest.mark.parametrize("depth", [64, 128])
def test_what_starts_when(depth, assemble):
    """Scores and their gradients start together; the gradient of q goes before the sum that could start at
    once, which is under way while that is stored; its last copy has been read before the threads meet."""
    artifact = compiled(depth)
    assemble(artifact.ptx)
    loop = body_of(artifact.ptx)
    assert events(loop) == "S S W1 B C E S W1 C B S S W1 B C"
    read = loop.index("cp.async.bulk.wait_group.read 0;")
    assert loop[read:].count("bar.sync") == 2, "no barrier for this wait alone"
    assert loop.count("stmatrix") == 4, "accumulators go to shared memory as they are"
    assert "cp.async.c" not in loop and loop.count("cp.reduce.async.bulk.tensor") == depth // 32


def test_by_a_warp_that_copies(assemble):
    """Of 240 registers, what products take leaves enough: the left operand of the first sum is free when the
    next iteration begins."""
    artifact = compiled(128, SPECIALIZED=True)
    assemble(artifact.ptx)
    assert artifact.threads == 384
    assert events(body_of(artifact.ptx)) == "S S W1 E S W1 C B S S W1 B C"


@ptxforge.jit
def turned(x, y, z, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """out = (x yᵀ)ᵀ z, of which the first product is rounded."""
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    a = tl.load(x + m[:, None] * K + k[None, :])
    b = tl.load(y + n[:, None] * K + k[None, :])
    c = tl.load(z + m[:, None] * K + k[None, :])
    p = tl.dot(a, tl.trans(b)).to(tl.float16)
    tl.store(out + n[:, None] * K + k[None, :], tl.dot(tl.trans(p), c))


@pytest.mark.parametrize("sizes", [(64, 64, 64, 4), (128, 64, 32, 8), (128, 128, 64, 4)], ids=str)
def test_a_transposed_left_operand_is_read_from_shared_memory(execute, sizes):
    m, n, k, num_warps = sizes
    rng = np.random.default_rng(m + n)
    x, y, z = (rng.integers(-2, 3, (rows, k)).astype(np.float16) for rows in (m, n, m))
    expected = (x.astype(np.float64) @ y.T).T @ z
    out = np.full((n, k), np.nan, np.float32)
    runs = execute(turned, (1,), [x, y, z, out], {"M": m, "N": n, "K": k}, outputs=[3], num_warps=num_warps)
    for (found,) in runs:
        np.testing.assert_array_equal(found, expected)
    ptx = turned.variants[-1].artifact.ptx
    assert ptx.count("wgmma.commit_group") == 2 and "mma.sync" not in ptx and "stmatrix" in ptx


@ptxforge.jit
def added(x, y, sums, M, M_BLOCK: tl.constexpr, K: tl.constexpr):
    """sums += xᵢ y of all blocks of rows, by TMA."""
    k = tl.arange(0, K)
    desc = tl.make_tensor_descriptor(sums, [M, K], [K, 1], [M_BLOCK, K])
    weights = tl.load(y + k[:, None] * K + k[None, :])
    tl.assume(M >= 0)
    for first in range(0, M, M_BLOCK):
        rows = tl.load(x + (first + tl.arange(0, M_BLOCK))[:, None] * K + k[None, :])
        desc.atomic_add([first, 0], tl.dot(rows, weights))


def test_loads_run_ahead_of_tiles_that_tma_adds(execute):
    """What TMA writes, threads do not read in order, so that nobody has to promise anything."""
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((192, 64), (64, 64)))
    runs = execute(added, (1,), [x, y, np.ones((192, 64), np.float32), 192], {"M_BLOCK": 64, "K": 64},
                   outputs=[2])  # fmt: skip
    for (sums,) in runs:
        np.testing.assert_array_equal(sums, x.astype(np.float64) @ y + 1)
    artifact = added.variants[-1].artifact
    assert not [r for r in artifact.remarks if r.kind == "not-pipelined"]
