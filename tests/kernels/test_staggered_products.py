"""Loops of several products: attention's gradients and others, on every executor; what starts when, by the
PTX."""

from __future__ import annotations

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from benchmarks.configurations import products
from benchmarks.dialects import load
from ptxforge.compiler import compile_function
from tests.kernels.attentions import LOG2_E, gradients
from tests.kernels.tensor_core import body_of, events

kernels = load("ptxforge")

CASES = [  # length, D, block, step, warps, stages, causal, by TMA
    (128, 64, 64, 64, 4, 2, False, True),
    (256, 32, 64, 64, 4, 3, False, True),
    (256, 64, 128, 64, 8, 3, True, True),
    (192, 64, 64, 32, 4, 2, True, False),
    (256, 32, 64, 64, 4, 3, False, False),
    (128, 32, 64, 32, 4, 1, False, True),
    (256, 16, 128, 64, 4, 4, True, True),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients_of_attention(execute, case):
    length, depth, block, step, num_warps, num_stages, causal, by_tma = case
    rng = np.random.default_rng(length + depth)
    shape = (1, 2, length, depth)
    q, k, v, d_out = (rng.standard_normal(shape).astype(np.float16) for _ in range(4))
    scale = depth**-0.5
    lse, delta, *expected = gradients(q, k, v, d_out, scale, causal)
    inputs = [q, k, v, d_out, lse.astype(np.float32), delta.astype(np.float32)]
    sizes = [scale, scale * LOG2_E, 2, length, 2 * length * depth, length * depth, depth]
    shared = {"D": depth, "CAUSAL": causal}
    options = {"num_warps": num_warps, "num_stages": num_stages, "tensor_maps": by_tma}
    blank = np.full(shape, np.nan, np.float16)
    grid = (length // block, 2)
    runs = execute(kernels.attention_rows, grid, [*inputs, blank, *sizes],
                   shared | {"BLOCK_M": block, "STEP_N": step}, outputs=[6], **options)  # fmt: skip
    for (d_q,) in runs:
        _close(d_q, expected[0])
    runs = execute(kernels.attention_columns, grid, [*inputs, blank, blank, *sizes],
                   shared | {"BLOCK_N": block, "STEP_M": step}, outputs=[6, 7], **options)  # fmt: skip
    for d_k, d_v in runs:
        _close(d_k, expected[1])
        _close(d_v, expected[2])


def _close(actual, expected):
    error = np.abs(actual.astype(np.float64) - expected).max()
    assert error < 4e-3 * np.abs(expected).max()


def test_sums_of_rows(execute):
    rng = np.random.default_rng(0)
    out, d_out = (rng.standard_normal((2, 3, 64, 32)).astype(np.float16) for _ in range(2))
    expected = (out.astype(np.float64) * d_out).sum(-1)
    arguments = [out, d_out, np.zeros((2, 3, 64), np.float32), 3, 64, 3 * 64 * 32, 64 * 32, 32]
    for (delta,) in execute(
        kernels.attention_deltas, (2, 6), arguments, {"BLOCK_M": 32, "D": 32}, outputs=[2]
    ):
        np.testing.assert_allclose(delta, expected, atol=1e-4)


def loop_of(name: str, assemble) -> str:
    """The body of the loop of a benchmark's configuration that has one."""
    (one,) = [c for c in products() if c.name == name]
    kernel = getattr(kernels, one.kernel)
    ptx = compile_function(kernel, one.signature, one.constants, "sm_90a", **one.options).ptx
    assemble(ptx)
    return body_of(ptx)


@pytest.mark.parametrize("name", ["gradients-128-columns-128-64-w8-s2", "gradients-64-columns-64-64-w4-s3"])
def test_scores_and_their_gradients_start_together(name, assemble):
    """Two products of the next iteration stand behind the two sums of this one; one barrier, behind the
    first wait; TMA copies the rows' numbers, too, and nobody waits for them apart."""
    loop = loop_of(name, assemble)
    assert events(loop) == "S S W1 B C E S W1 S"
    assert "st.shared" not in loop and "fence.proxy" not in loop
    assert "cp.async.c" not in loop and "cp.async.wait" not in loop
    assert loop.count("mbarrier.try_wait") == 2 and loop.count("cp.async.bulk.tensor.2d") == 2


def test_a_sum_runs_on_into_the_next_iteration(assemble):
    loop = loop_of("gradients-128-rows-128-64-w8-s3", assemble)
    assert events(loop) == "S S W1 B C E W0 S"


def test_where_registers_are_short_a_product_starts_when_it_is_needed():
    """128 registers for each of two products, and 16 for their sum."""
    (one,) = [c for c in products() if c.name == "gradients-64-rows-128-128-w8-s2"]
    starts = []
    for step in (64, 256):
        constants = one.constants | {"D": 32, "STEP_N": step}
        made = compile_function(kernels.attention_rows, one.signature, constants, "sm_90a", **one.options)
        starts.append(events(body_of(made.ptx)).split(" E")[0])
    assert starts[0].startswith("S S W1") and starts[1].startswith("S W0")


@ptxforge.jit
def two_results(a, b, out, sums, K, BLOCK: tl.constexpr):
    """A product that is stored in each step, and one that is summed over them."""
    i = tl.arange(0, BLOCK)
    at = i[:, None] * BLOCK + i[None, :]
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for step in tl.range(0, K, num_stages=3):
        x = tl.load(a + step * BLOCK * BLOCK + at)
        y = tl.load(b + step * BLOCK * BLOCK + at)
        total = tl.dot(x, y, total)
        tl.store(out + step * BLOCK * BLOCK + at, tl.dot(y, x).to(tl.float16))
    tl.store(sums + at, total)


@pytest.mark.parametrize("steps", [0, 1, 2, 5])
@pytest.mark.parametrize("by_tma", [True, False])
def test_a_sum_beside_a_product_that_is_stored(execute, steps, by_tma):
    rng = np.random.default_rng(steps)
    a, b = (rng.integers(-3, 4, (max(steps, 1), 64, 64)).astype(np.float16) for _ in range(2))
    arguments = [a, b, np.zeros_like(a), np.zeros((64, 64), np.float32), steps]
    forward = a.astype(np.float32)[:steps] @ b.astype(np.float32)[:steps]
    backward = b.astype(np.float32)[:steps] @ a.astype(np.float32)[:steps]
    for out, sums in execute(two_results, (1,), arguments, {"BLOCK": 64}, outputs=[2, 3], num_warps=4,
                             tensor_maps=by_tma):  # fmt: skip
        np.testing.assert_array_equal(out[:steps], backward)
        np.testing.assert_array_equal(sums, forward.sum(0))


@ptxforge.jit
def columns(q, k, v, d_out, lse, delta, d_k, d_v, length, BLOCK: tl.constexpr, STEP: tl.constexpr,
            D: tl.constexpr):  # fmt: skip
    """Attention's gradients of a block of keys and values, by a warp that copies."""
    j, m, d = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, STEP), tl.arange(0, D)
    at = j[:, None] * D + d[None, :]
    keys, values = tl.load(k + at), tl.load(v + at)
    acc_k, acc_v = tl.zeros((BLOCK, D), tl.float32), tl.zeros((BLOCK, D), tl.float32)
    for start in tl.range(0, length, STEP, warp_specialize=True):
        i = start + m
        rows = tl.load(q + i[:, None] * D + d[None, :])
        p = tl.exp2(tl.dot(keys, tl.trans(rows)) * 0.25 - tl.load(lse + i)[None, :])
        d_rows = tl.load(d_out + i[:, None] * D + d[None, :])
        acc_v = tl.dot(p.to(tl.float16), d_rows, acc_v)
        d_s = p * (tl.dot(values, tl.trans(d_rows)) - tl.load(delta + i)[None, :])
        acc_k = tl.dot(d_s.to(tl.float16), rows, acc_k)
    tl.store(d_k + at, acc_k)
    tl.store(d_v + at, acc_v)


@pytest.mark.parametrize("num_warps", [4, 8])
def test_gradients_by_a_warp_that_copies(execute, num_warps):
    rng = np.random.default_rng(num_warps)
    length, depth, block = 256, 32, 16 * num_warps
    q, k, v, d_out = (rng.standard_normal((length, depth)).astype(np.float16) for _ in range(4))
    lse, delta = (rng.standard_normal(length).astype(np.float32) + 3 for _ in range(2))
    p = np.exp2(k.astype(np.float64) @ q.T * 0.25 - lse)
    d_s = p * (v.astype(np.float64) @ d_out.T - delta)
    blank = np.full((length, depth), np.nan, np.float32)
    runs = execute(columns, (length // block,), [q, k, v, d_out, lse, delta, blank, blank, length],
                   {"BLOCK": block, "STEP": 64, "D": depth}, outputs=[6, 7], num_warps=num_warps,
                   num_stages=2)  # fmt: skip
    for d_k, d_v in runs:
        _close(d_k, d_s @ q)
        _close(d_v, p @ d_out)
    assert "partition" in columns.variants[-1].artifact.asm["gpu"]


def test_beside_a_warp_that_copies_there_is_no_barrier(assemble):
    signature = dict.fromkeys(("q", "k", "v", "d_out"), "*fp16:16") | {"length": "i32:16"}
    signature |= dict.fromkeys(("lse", "delta", "d_k", "d_v"), "*fp32:16")
    made = compile_function(columns, signature, {"BLOCK": 128, "STEP": 64, "D": 64}, "sm_90a",
                            num_warps=8, num_stages=2)  # fmt: skip
    assemble(made.ptx)
    assert events(body_of(made.ptx)) == "S S W1 E S W1 S"



@ptxforge.jit
def beside_a_small_one(x, y, sums, most, ROWS: tl.constexpr, STEPS: tl.constexpr):
    """sums = Σ xᵢᵀ yᵢ, of 32 rows and columns, by warps; beside it two products of warpgroups."""
    i, j, d = tl.arange(0, 32), tl.arange(0, ROWS), tl.arange(0, 32)
    keys = tl.load(x + j[:, None] * 32 + d[None, :])
    acc = tl.zeros((32, 32), tl.float32)
    top = tl.full((ROWS,), -9.0, tl.float32)
    for step in range(0, STEPS * 32, 32):
        one = tl.load(x + (step + i)[:, None] * 32 + d[None, :])
        other = tl.load(y + (step + i)[:, None] * 32 + d[None, :])
        p = tl.where(tl.dot(keys, other.T) > j[:, None], 1.0, -1.0).to(tl.float16)
        acc = tl.dot(one.T, other, acc)
        top = tl.maximum(top, tl.max(tl.dot(p, other), 1))
    tl.store(sums + i[:, None] * 32 + d[None, :], acc)
    tl.store(most + j, top)


@pytest.mark.parametrize("stages", [2, 3, 4])
def test_operands_that_are_read_ahead_for_a_product_of_warps(execute, stages):
    """Their wait stands behind the copies, and stays there when these start early: it counts them."""
    rng = np.random.default_rng(stages)
    x, y = (rng.integers(-2, 3, (160, 32)).astype(np.float16) for _ in range(2))
    p = [np.where(x[:128] @ tile.T > np.arange(128)[:, None], 1.0, -1.0) @ tile for tile in np.split(y, 5)]
    arguments = [x, y, np.zeros((32, 32), np.float32), np.zeros(128, np.float32)]
    runs = execute(beside_a_small_one, (1,), arguments, {"ROWS": 128, "STEPS": 5}, outputs=[2, 3],
                   num_warps=8, num_stages=stages)  # fmt: skip
    for sums, most in runs:
        np.testing.assert_array_equal(sums, x.astype(np.float32).T @ y)
        np.testing.assert_array_equal(most, np.max(p, axis=(0, 2)))


@ptxforge.jit
def same_left_operand(w, x, y, out, sums, rows):
    """out = xᵢ p and sums = Σ y p for p, computed in front of the loop."""
    i, j = tl.arange(0, 64), tl.arange(0, 32)
    square = i[:, None] * 64 + i[None, :]
    p = tl.load(w + square) + 1
    right = tl.load(y + square)
    acc = tl.zeros((64, 64), tl.float32)
    for first in tl.range(0, rows, 32):
        tile = tl.load(x + (first + j)[:, None] * 64 + i[None, :])
        tl.store(out + (first + j)[:, None] * 64 + i[None, :], tl.dot(tile, p))
        acc = tl.dot(right, p, acc)
    tl.store(sums + square, acc)


def test_what_two_products_read_and_no_iteration_changes(execute):
    """It lies in shared memory. In registers it would be packed for the first product of an iteration, when
    none of the last one may be under way."""
    rng = np.random.default_rng(1)
    w, x, y = (rng.integers(-2, 3, (rows, 64)).astype(np.float16) for rows in (64, 96, 64))
    p = w.astype(np.float32) + 1
    arguments = [w, x, y, np.zeros((96, 64), np.float32), np.zeros((64, 64), np.float32), 96]
    for out, sums in execute(same_left_operand, (1,), arguments, {}, outputs=[3, 4], num_warps=4):
        np.testing.assert_array_equal(out, x.astype(np.float32) @ p)
        np.testing.assert_array_equal(sums, 3 * (y.astype(np.float32) @ p))
