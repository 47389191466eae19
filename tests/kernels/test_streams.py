"""Loops without matrix products whose loads are asked to run ahead: ``tl.range(…, num_stages=n)``."""

from __future__ import annotations

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.compiler import compile_function

STAGES = [1, 2, 3, 5]


def runs_ahead(kernel, signature: dict[str, str], **constants) -> bool:
    return "cp.async.c" in compile_function(kernel, signature, constants).asm["ptx"]


@ptxforge.jit
def weighted_sum(x, y, out, n, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    """out = Σ x · y over blocks."""
    i = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in tl.range(0, n, BLOCK, num_stages=STAGES):
        m = start + i < n
        total += tl.load(x + start + i, mask=m, other=0.0) * tl.load(y + start + i, mask=m, other=0.0)
    tl.store(out + i, total)


@pytest.mark.parametrize("stages", [*STAGES, 8])
@pytest.mark.parametrize("n", [0, 100, 256, 1000])
def test_a_sum(execute, n, stages):
    rng = np.random.default_rng(13)
    x, y = (rng.integers(-3, 4, max(n, 1)).astype(np.float32) for _ in range(2))
    padded = np.zeros(-(-n // 128) * 128, np.float32)
    padded[:n] = (x * y)[:n]
    arguments = [x, y, np.zeros(128, np.float32), n]
    constants = {"BLOCK": 128, "STAGES": stages}
    for (out,) in execute(weighted_sum, (1,), arguments, constants, outputs=[2]):
        np.testing.assert_array_equal(out, padded.reshape(-1, 128).sum(0))


@ptxforge.jit
def row_maxima_away(x, out, rows, columns, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    """out = x minus the maximum of its row; rows are dealt out to programs."""
    i = tl.arange(0, BLOCK)
    m = i < columns
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=STAGES):
        values = tl.load(x + row * columns + i, mask=m, other=-float("inf"))
        tl.store(out + row * columns + i, values - tl.max(values, axis=0), mask=m)


ROWS = {"x": "*fp32:16", "out": "*fp32:16", "rows": "i32", "columns": "i32:16"}


@pytest.mark.parametrize("stages", STAGES)
@pytest.mark.parametrize("programs", [1, 3, 9])
def test_stores_elsewhere_and_another_fill_than_zero(execute, programs, stages):
    """The shape of a softmax: maxima of negative numbers show a zero that came from outside."""
    x = -np.random.default_rng(1).integers(1, 100, (7, 208)).astype(np.float32)
    arguments = [x, np.zeros_like(x), 7, 208]
    constants = {"BLOCK": 256, "STAGES": stages}
    for (out,) in execute(row_maxima_away, (programs,), arguments, constants, outputs=[1]):
        np.testing.assert_array_equal(out, x - x.max(1, keepdims=True))
    assert runs_ahead(row_maxima_away, ROWS, **constants) == (stages > 1)


@pytest.mark.parametrize("stages", [2, 3, 5])
def test_the_next_copy_is_under_way_while_a_step_computes(stages):
    """It starts when the step has read its tile, and not behind its stores."""
    ptx = compile_function(row_maxima_away, ROWS, {"BLOCK": 256, "STAGES": stages}, "sm_90a").asm["ptx"]
    step = ptx[ptx.index("$for") :]
    places = [step.index(word) for word in ("ld.shared", "cp.async.c", "max.", "st.global")]
    assert places == sorted(places)


@ptxforge.jit
def recurrence(x, n, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    """Row k + 1 of x grows by row k: what is loaded was stored an iteration before."""
    i = tl.arange(0, BLOCK)
    for k in tl.range(0, n, num_stages=STAGES):
        following = x + (k + 1) * BLOCK + i
        tl.store(following, tl.load(following) + tl.load(x + k * BLOCK + i))


@pytest.mark.parametrize("stages", STAGES)
def test_loads_wait_for_stores_to_the_same_array(execute, stages):
    x = np.random.default_rng(2).integers(-9, 9, (6, 128)).astype(np.int32)
    constants = {"BLOCK": 128, "STAGES": stages}
    for (out,) in execute(recurrence, (1,), [x, 5], constants, outputs=[0]):
        np.testing.assert_array_equal(out, x.cumsum(0))
    assert not runs_ahead(recurrence, {"x": "*i32:16", "n": "i32"}, **constants)


@ptxforge.jit
def gathered_sum(out, index, far, x, n, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    """out = Σ x[far[index]], through two levels of indices."""
    i = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for k in tl.range(0, n, num_stages=STAGES):
        at = tl.load(index + k * BLOCK + i)
        total += tl.load(x + tl.load(far + at))
    tl.store(out + i, total)


@pytest.mark.parametrize("stages", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_levels_of_indices(execute, n, stages):
    rng = np.random.default_rng(3)
    index, far = rng.integers(0, 500, (5, 128)).astype(np.int32), rng.permutation(500).astype(np.int32)
    x = rng.integers(-9, 9, 500).astype(np.float32)
    arguments = [np.zeros(128, np.float32), index, far, x, n]
    constants = {"BLOCK": 128, "STAGES": stages}
    for (out,) in execute(gathered_sum, (1,), arguments, constants, outputs=[0]):
        np.testing.assert_array_equal(out, x[far[index[:n]]].sum(0))
    signature = dict(out="*fp32:16", index="*i32:16", far="*i32:16", x="*fp32:16", n="i32")
    assert runs_ahead(gathered_sum, signature, **constants) == (stages > 1)


@ptxforge.jit
def follow(start, next, weight, out, n, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    """The weights along lists: each element says where the next one is."""
    i = tl.arange(0, BLOCK)
    at = tl.load(start + i)
    total = tl.zeros((BLOCK,), tl.float32)
    for _ in tl.range(0, n, num_stages=STAGES):
        total += tl.load(weight + at)
        at = tl.load(next + at)
    tl.store(out + i, total)


@pytest.mark.parametrize("stages", STAGES)
@pytest.mark.parametrize("n", [0, 1, 6])
def test_a_list_is_followed_one_by_one(execute, n, stages):
    rng = np.random.default_rng(4)
    start, next = rng.integers(0, 300, 64).astype(np.int32), rng.permutation(300).astype(np.int32)
    weight = rng.integers(-9, 9, 300).astype(np.float32)
    expected, at = np.zeros(64, np.float32), start
    for _ in range(n):
        expected, at = expected + weight[at], next[at]
    arguments = [start, next, weight, np.zeros(64, np.float32), n]
    for (out,) in execute(follow, (1,), arguments, {"BLOCK": 64, "STAGES": stages}, outputs=[3]):
        np.testing.assert_array_equal(out, expected)


@ptxforge.jit
def searched(x, ends, out, n, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    """out = Σ x[the first place at or behind k whose mark is set], a search for each k."""
    i = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for k in tl.range(0, n, num_stages=STAGES):
        place = k
        while tl.load(ends + place) == 0:
            place += 1
        total += tl.load(x + place * BLOCK + i)
    tl.store(out + i, total)


@pytest.mark.parametrize("stages", STAGES)
def test_a_search_does_not_run_behind_the_end(execute, stages):
    """Behind the last mark there is none: a search that began there would leave the array."""
    rng = np.random.default_rng(5)
    ends = np.array([0, 1, 0, 0, 1, 1], np.int32)
    x = rng.integers(-9, 9, (6, 128)).astype(np.float32)
    arguments = [x, ends, np.zeros(128, np.float32), 6]
    for (out,) in execute(searched, (1,), arguments, {"BLOCK": 128, "STAGES": stages}, outputs=[2]):
        np.testing.assert_array_equal(out, x[[1, 1, 4, 4, 4, 5]].sum(0))


@ptxforge.jit
def branching(x, index, out, n, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    """out = Σ x[index[k] if index[k] is of use else k]; the index is read in a branch."""
    i = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for k in tl.range(0, n, num_stages=STAGES):
        place = k
        if k % 2 == 0:
            place = tl.load(index + k)
        total += tl.load(x + place * BLOCK + i)
    tl.store(out + i, total)


@pytest.mark.parametrize("stages", STAGES)
def test_a_branch_does_not_load_behind_the_end(execute, stages):
    rng = np.random.default_rng(6)
    index, x = np.array([3, 0, 1, 0, 2], np.int32), rng.integers(-9, 9, (5, 128)).astype(np.float32)
    arguments = [x, index, np.zeros(128, np.float32), 5]
    for (out,) in execute(branching, (1,), arguments, {"BLOCK": 128, "STAGES": stages}, outputs=[2]):
        np.testing.assert_array_equal(out, x[[3, 1, 1, 3, 2]].sum(0))


@ptxforge.jit
def looked_up(table, x, out, n, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    """out = Σ x[table[32 k] + i]: behind the last k there is nothing in the table."""
    i = tl.arange(0, BLOCK)
    held = tl.load(table + i)
    total = tl.zeros((BLOCK,), tl.int32)
    for k in tl.range(0, n, num_stages=STAGES):
        total += tl.load(x + tl.gather(held, i * 0 + k * 32, 0) + i)
    tl.store(out + i, total)


@pytest.mark.parametrize("stages", STAGES)
@pytest.mark.parametrize("n", [0, 1, 4])
def test_a_look_up_does_not_run_behind_the_end(execute, n, stages):
    rng = np.random.default_rng(7)
    table, x = (rng.integers(0, 50, size).astype(np.int32) for size in (128, 200))
    arguments = [table, x, np.zeros(128, np.int32), n]
    expected = sum((x[table[32 * k] :][:128] for k in range(n)), np.zeros(128, np.int32))
    for (out,) in execute(looked_up, (1,), arguments, {"BLOCK": 128, "STAGES": stages}, outputs=[2]):
        np.testing.assert_array_equal(out, expected)


@ptxforge.jit
def turned(index, x, out, sides, n, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    """out = Σ x[index] over tiles; two of three tiles of indices are stored transposed, in a branch."""
    i = tl.arange(0, BLOCK)
    where = i[:, None] * BLOCK + i[None, :]
    total = tl.zeros((BLOCK, BLOCK), tl.int32)
    for k in tl.range(0, n, num_stages=STAGES):
        at = tl.load(index + k * BLOCK * BLOCK + where)
        total += tl.load(x + at)
        if k % 3 != 1:
            total += tl.trans(at)
            tl.store(sides + k * BLOCK * BLOCK + where, tl.trans(at))
    tl.store(out + where, total)


@pytest.mark.parametrize("stages", [1, 2, 3, 5])
@pytest.mark.parametrize("n, num_warps", [(0, 1), (2, 4), (7, 1), (7, 4)])
def test_a_branch_uses_what_ran_ahead(execute, n, num_warps, stages):
    """What was copied is read before the branch: there all warps meet, and there the tile's iteration is
    known to exist."""
    rng = np.random.default_rng(8)
    index = rng.integers(0, 500, (max(n, 1), 16, 16)).astype(np.int32)
    x = rng.integers(-9, 9, 500).astype(np.int32)
    out, sides = np.zeros((16, 16), np.int32), np.zeros_like(index)
    expected, turned_tiles = out.copy(), sides.copy()
    for k in range(n):
        expected += x[index[k]]
        if k % 3 != 1:
            expected += index[k].T
            turned_tiles[k] = index[k].T
    arguments, constants = [index, x, out, sides, n], {"BLOCK": 16, "STAGES": stages}
    for total, stored in execute(turned, (1,), arguments, constants, outputs=[2, 3], num_warps=num_warps):
        np.testing.assert_array_equal(total, expected)
        np.testing.assert_array_equal(stored, turned_tiles)


@ptxforge.jit
def product_and_operands(a, b, out, sides, n, N: tl.constexpr, STAGES: tl.constexpr):
    """out = Σ a[k] @ b[k]; the tiles of a are stored as well, one more than they were."""
    i = tl.arange(0, N)
    where = i[:, None] * N + i[None, :]
    acc = tl.zeros((N, N), tl.float32)
    for k in tl.range(0, n, num_stages=STAGES):
        x = tl.load(a + k * N * N + where)
        acc = tl.dot(x, tl.load(b + k * N * N + where), acc)
        tl.store(sides + k * N * N + where, x + 1)
    tl.store(out + where, acc)


@pytest.mark.parametrize("stages", [1, 2, 4])
@pytest.mark.parametrize("n", [1, 4])
def test_an_operand_of_a_product_is_used_elsewhere(execute, n, stages):
    rng = np.random.default_rng(9)
    a, b = (rng.integers(-4, 5, (4, 32, 32)).astype(np.float16) for _ in range(2))
    arguments = [a, b, np.zeros((32, 32), np.float32), np.zeros_like(a[:n]), n]
    expected = sum(x.astype(np.float32) @ y.astype(np.float32) for x, y in zip(a[:n], b))
    constants = {"N": 32, "STAGES": stages}
    for product, sides in execute(product_and_operands, (1,), arguments, constants, outputs=[2, 3]):
        np.testing.assert_array_equal(product, expected)
        np.testing.assert_array_equal(sides, a[:n] + 1)
