"""Pipelined loops in loops: the first copies of the next must not overwrite what a slow warp still reads.
Products in branches of pipelined loops: nor must the copies of the next step. And addresses that come from
control flow or from the iteration before."""

from __future__ import annotations

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl


@ptxforge.jit
def accumulate(a, b, index, out, rounds, trips, INDIRECT: tl.constexpr, STAGES: tl.constexpr):
    """out = rounds · (a @ b), with nothing between the loops at which warps would meet."""
    i, k = tl.arange(0, 32), tl.arange(0, 32)
    acc = tl.zeros([32, 32], tl.float32)
    for _ in range(rounds):
        for step in tl.range(0, trips, num_stages=STAGES):
            at = step * 32 + k
            rows = tl.load(index + at) if INDIRECT else at
            x = tl.load(a + i[:, None] * 160 + at[None, :])
            y = tl.load(b + rows[:, None] * 32 + i[None, :])
            acc = tl.dot(x, y, acc)
    tl.store(out + i[:, None] * 32 + i[None, :], acc)


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("indirect", [False, True], ids=["direct", "indirect"])
@pytest.mark.parametrize("rounds, trips", [(3, 2), (2, 5), (2, 1), (2, 0), (0, 3)])
def test_a_loop_of_pipelined_loops(execute, stages, indirect, rounds, trips):
    rng = np.random.default_rng(stages)
    a = rng.integers(-4, 5, (32, 160)).astype(np.float16)
    b = rng.integers(-4, 5, (160, 32)).astype(np.float16)
    index = rng.permutation(160).astype(np.int32)
    depth = trips * 32
    chosen = index[:depth] if indirect else np.arange(depth)
    expected = rounds * (a[:, :depth].astype(np.float64) @ b[chosen].astype(np.float64))
    arguments = [a, b, index, np.zeros((32, 32), np.float32), rounds, trips]
    constants = {"INDIRECT": indirect, "STAGES": stages}
    for (out,) in execute(accumulate, (1,), arguments, constants, [3], num_warps=4):
        np.testing.assert_array_equal(out, expected)


@ptxforge.jit
def wandering_product(a, b, index, b_of, out, trips, LIST: tl.constexpr, STAGES: tl.constexpr):
    """out = Σ a[k] @ b[rows], where a branch finds the rows, or the rows before say where to go on."""
    i = tl.arange(0, 32)
    acc = tl.zeros([32, 32], tl.float32)
    rows = tl.load(index + i)
    for step in tl.range(0, trips, num_stages=STAGES):
        if not LIST:
            place = step
            if step % 2 == 0:
                place = tl.load(b_of + step)
            rows = place * 32 + i
        x = tl.load(a + i[:, None] * 160 + (step * 32 + i)[None, :])
        acc = tl.dot(x, tl.load(b + rows[:, None] * 32 + i[None, :]), acc)
        if LIST:
            rows = tl.load(index + rows)
    tl.store(out + i[:, None] * 32 + i[None, :], acc)


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
@pytest.mark.parametrize("along_list", [False, True], ids=["branch", "list"])
@pytest.mark.parametrize("trips", [0, 1, 5])
def test_addresses_that_must_not_run_ahead(execute, stages, along_list, trips):
    rng = np.random.default_rng(7)
    a = rng.integers(-4, 5, (32, 160)).astype(np.float16)
    b = rng.integers(-4, 5, (160, 32)).astype(np.float16)
    index = rng.permutation(160).astype(np.int32)
    b_of = rng.integers(0, 5, max(trips, 1)).astype(np.int32)  # behind its end there is nothing to read
    expected, rows = np.zeros((32, 32)), index[:32]
    for step in range(trips):
        if not along_list:
            rows = (b_of[step] if step % 2 == 0 else step) * 32 + np.arange(32)
        expected += a[:, step * 32 : step * 32 + 32].astype(np.float64) @ b[rows]
        rows = index[rows]
    arguments = [a, b, index, b_of, np.zeros((32, 32), np.float32), trips]
    constants = {"LIST": along_list, "STAGES": stages}
    for (out,) in execute(wandering_product, (1,), arguments, constants, [4], num_warps=4):
        np.testing.assert_array_equal(out, expected)


@ptxforge.jit
def sometimes(
    a, b, out, sums, DEPTH: tl.constexpr, EVERY: tl.constexpr, SUMMED: tl.constexpr, STAGES: tl.constexpr
):
    """out = Σ a[:, block] @ b[block] over one of EVERY blocks; sums = Σ a. Rows are turned, so that threads
    copy, not TMA."""
    i, j, k = tl.arange(0, 128), tl.arange(0, 32), tl.arange(0, 32)
    acc, total = tl.zeros((128, 32), tl.float32), tl.zeros((128,), tl.float32)
    for start in tl.range(0, DEPTH, 32, num_stages=STAGES):
        x = tl.load(a + (i ^ 1)[:, None] * DEPTH + (start + k)[None, :])
        y = tl.load(b + ((start + k) ^ 1)[:, None] * 32 + j[None, :])
        if SUMMED:
            total += tl.sum(x.to(tl.float32), 1)
        if start // 32 % EVERY == 1:
            acc = tl.dot(x, y, acc)
    tl.store(out + i[:, None] * 32 + j[None, :], acc)
    tl.store(sums + i, total)


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("every", [2, 3])
@pytest.mark.parametrize("summed", [False, True])
def test_a_product_in_a_branch_has_read_its_tiles_when_the_next_are_copied(execute, summed, every, stages):
    rng = np.random.default_rng(every)
    a = rng.integers(-4, 5, (128, 256)).astype(np.float16)
    b = rng.integers(-4, 5, (256, 32)).astype(np.float16)
    chosen = np.arange(256) // 32 % every == 1
    turned, rows = a[np.arange(128) ^ 1].astype(np.float64), b[np.arange(256) ^ 1]
    arguments = [a, b, np.zeros((128, 32), np.float32), np.zeros(128, np.float32)]
    constants = {"DEPTH": 256, "EVERY": every, "SUMMED": summed, "STAGES": stages}
    for out, sums in execute(sometimes, (1,), arguments, constants, [2, 3], num_warps=8):
        np.testing.assert_array_equal(out, turned[:, chosen] @ rows[chosen])
        np.testing.assert_array_equal(sums, turned.sum(1) * summed)


@pytest.mark.parametrize("summed", [False, True])
def test_copies_need_no_barrier_of_their_own_where_each_step_begins_with_reads(summed):
    signature = {"a": "*fp16:16", "b": "*fp16:16", "out": "*fp32:16", "sums": "*fp32:16"}
    constants = {"DEPTH": 256, "EVERY": 2, "SUMMED": summed, "STAGES": 3}
    text = sometimes.compile(signature, constants, target="sm_90a", num_warps=8).asm["gpu"]
    copies = [line for line in text.splitlines() if "async_copy_global_to_local" in line]
    assert "dot_async" in text and len(copies) == 6
    assert sum("ordered = true" in copy for copy in copies) == 2 * summed
