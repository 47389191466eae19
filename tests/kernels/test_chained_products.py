"""Attention by ``wgmma``: both products under way at once, tiles released by mbarriers, on every executor."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from benchmarks.dialects import load
from ptxforge.compiler import compile_function
from tests.kernels.attentions import softmax_product

kernels = load("ptxforge")

CASES = [  # length, D, BLOCK_M, BLOCK_N, warps, stages, causal
    (64, 64, 64, 64, 4, 2, False),
    (128, 64, 64, 64, 4, 3, False),
    (384, 32, 128, 64, 8, 2, False),
    (512, 64, 128, 64, 8, 3, False),
    (640, 16, 128, 32, 8, 4, False),
    (256, 64, 64, 32, 4, 2, True),
    (512, 32, 128, 64, 8, 3, True),
    (384, 32, 128, 32, 8, 2, True),
    (192, 32, 64, 64, 4, 2, True),  # from here on the loop of masked blocks reads on in the other's ring
    (256, 64, 64, 64, 4, 3, True),
    (512, 16, 128, 64, 8, 4, True),
    (256, 128, 64, 32, 4, 3, True),
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


def compiled(num_stages: int = 2, **changes) -> ptxforge.Artifact:
    constants = {"BLOCK_M": 128, "BLOCK_N": 128, "D": 128, "CAUSAL": False} | changes
    signature = {name: "*fp16:16" for name in ("q", "k", "v", "out")} | {"scale": "fp32", "heads": "i32"}
    signature |= dict.fromkeys(("length", "stride_b", "stride_h", "stride_l"), "i32:16")
    options = {"target": "sm_90a", "num_warps": 8, "num_stages": num_stages}
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


def tile_ir(num_stages: int = 2, **changes) -> str:
    return compiled(num_stages, **changes).asm["gpu"]


def test_no_product_is_for_an_iteration_that_does_not_exist():
    """The loop stops one step earlier; behind it there is the last second product alone."""
    text = tile_ir()
    start = text.index(" = for ")
    end = text.index("\n    }", start)
    assert [text[:start].count("dot_async"), text[start:end].count("dot_async")] == [1, 2]
    assert text[end:].count("dot_async") == 1 and text[end:].count("tensor_load") == 0
    assert "-1073741824" not in text


def test_the_first_copies_start_before_queries_are_stored():
    text = tile_ir()
    store, branch = text.index("local_alloc %rows"), text.index(" = if ")
    assert text[:store].count("tensor_load") == 3 and text[:branch].count("barrier\n") == 2
    assert text.index("load %") < text.index("tensor_load") < store < branch
    assert text[branch:].count("fence_async") == 0, "what products read is fenced in front of the branch"


@pytest.mark.parametrize("changes", [{"BLOCK_N": 64}, {"BLOCK_N": 128}], ids=str)
def test_a_row_is_carried_not_the_tile_that_it_is_spread_to(changes):
    """The accumulators' layouts differ where BLOCK_N is not D."""
    head = next(line for line in tile_ir(**changes).splitlines() if " = for " in line)
    types = head[head.rindex(") : ") :] if ") : " in head else head
    assert types.count("tensor<128x128xf32") == 1


@pytest.mark.parametrize("num_stages, block, copies", [(2, 128, 6), (3, 128, 7), (3, 64, 8)])
def test_the_masked_loop_reads_on_in_the_ring(num_stages, block, copies):
    """Where it reads as many tiles as copies lead by, the last second product is beside one more copy."""
    first, second = tile_ir(num_stages, CAUSAL=True, BLOCK_N=block).split("%step = ")
    assert first.count("tensor_load") == copies and second.count("tensor_load") == 0
    assert second.count("barrier_wait") == 2 and second.count("    barrier\n") == 0
    assert first.count("barrier_init") == 4 and second.count("barrier_init") == 0


def test_loops_of_few_iterations_are_left_alone():
    """The masked blocks of causal attention: one iteration of 128 columns."""
    ptx = compiled(CAUSAL=True).ptx
    waits = [line.split()[1] for line in ptx.splitlines() if "wgmma.wait_group" in line]
    assert waits.count("1;") == 1


@ptxforge.jit
def attention_in_two_loops(
    q, k, v, w, out, BLOCK: tl.constexpr, D: tl.constexpr, TAIL: tl.constexpr, ROUNDS: tl.constexpr
):
    """As many blocks of keys as the program's number, then TAIL more, whose values are weighted by ``w``.
    Several rounds of it, each for other queries."""
    i, d = tl.arange(0, BLOCK), tl.arange(0, D)
    weights = tl.load(w + i[:, None] * BLOCK + i[None, :])
    end = tl.program_id(0) * BLOCK
    for turn in range(ROUNDS):
        rows = turn * BLOCK + i[:, None]
        queries = tl.load(q + rows * D + d[None, :])
        sums, result = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK, D), tl.float32)
        for start in range(0, end, BLOCK):
            p = tl.exp2(tl.dot(queries, tl.load(k + (start + i[None, :]) * D + d[:, None])))
            result = tl.dot(p.to(tl.float16), tl.load(v + (start + i[:, None]) * D + d[None, :]), result)
            sums += tl.sum(p, 1)
        for start in range(end, end + TAIL * BLOCK, BLOCK):
            s = tl.dot(queries, tl.load(k + (start + i[None, :]) * D + d[:, None]))
            values = tl.load(v + (start + i[:, None]) * D + d[None, :])
            sums += tl.sum(s, 1) + tl.sum(tl.dot(weights, values), 1)
        tl.store(out + (tl.program_id(0) * ROUNDS * BLOCK + rows) * D + d[None, :], result + sums[:, None])


LOOPS_BEHIND = [(1, 2, 1), (1, 3, 3), (2, 3, 2), (3, 3, 1), (2, 4, 1)]


@pytest.mark.parametrize("tail, num_stages, rounds", LOOPS_BEHIND)
def test_a_loop_behind(execute, tail, num_stages, rounds):
    """It reads on in the ring, or not (three blocks do not fit), also in a loop around; products that could
    start at once wait for tiles that the loop before has asked for."""
    block, dim, programs, rng = 64, 32, 6, np.random.default_rng(tail)
    length = (programs - 1 + tail) * block
    q = (rng.standard_normal((rounds * block, dim)) / 8).astype(np.float16)
    k, v = (rng.standard_normal((length, dim)).astype(np.float16) for _ in range(2))
    w = rng.standard_normal((block, block)).astype(np.float16)
    scores, values = q.astype(np.float64) @ k.astype(np.float64).T, v.astype(np.float64)
    expected = np.zeros((programs, rounds * block, dim))
    for number in range(programs):
        end = number * block
        p, last = np.exp2(scores[:, :end]), values[end : end + tail * block].reshape(tail, block, dim)
        weighted = (w.astype(np.float64) @ last.sum(0)).sum(1)
        sums = p.sum(1) + scores[:, end : end + tail * block].sum(1) + np.tile(weighted, rounds)
        expected[number] = p @ values[:end] + sums[:, None]
    constants = {"BLOCK": block, "D": dim, "TAIL": tail, "ROUNDS": rounds}
    arguments = [q, k, v, w, np.zeros(expected.shape, np.float32)]
    for (out,) in execute(attention_in_two_loops, (programs,), arguments, constants, outputs=[4],
                          num_stages=num_stages):  # fmt: skip
        assert np.abs(out - expected).max() < 2e-3 * np.abs(expected).max()


@pytest.mark.parametrize("tail, num_stages, rounds", LOOPS_BEHIND)
def test_which_loop_behind_reads_on(tail, num_stages, rounds):
    """Both tiles have a ring of mbarriers for their arrival, and in the chain one for their release."""
    signature = dict.fromkeys("qkvw", "*fp16:16") | {"out": "*fp32:16"}
    constants = {"BLOCK": 64, "D": 32, "TAIL": tail, "ROUNDS": rounds}
    text = ptxforge.compile(attention_in_two_loops, signature=signature, constants=constants,
                            target="sm_90a", num_stages=num_stages).asm["gpu"]  # fmt: skip
    assert text.count("barrier_init") == (4 if tail < num_stages else 6)


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
