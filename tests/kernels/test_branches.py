"""Which branches promise that all threads take them alike (``bra.uni``)."""

from __future__ import annotations

import re

import numpy as np

import ptxforge
import ptxforge.language as tl


@ptxforge.jit
def row_sums(x, out, columns, BLOCK: tl.constexpr):
    j = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        total += tl.load(x + tl.program_id(0) * columns + start + j, mask=start + j < columns, other=0.0)
    tl.store(out + tl.program_id(0), tl.sum(total, 0))


@ptxforge.jit
def matmul(a, b, c, K, SIZE: tl.constexpr):
    i, j, k = tl.arange(0, SIZE)[:, None], tl.arange(0, SIZE)[None, :], tl.arange(0, 32)
    total = tl.zeros((SIZE, SIZE), tl.float32)
    for start in range(0, K, 32):
        total += tl.dot(tl.load(a + i * K + start + k[None, :]), tl.load(b + (start + k)[:, None] * SIZE + j))
    tl.store(c + i * SIZE + j, total)


def back_edges(ptx: str) -> list[str]:
    return re.findall(r"(bra[.\w]*) \$for_\d", ptx)


def test_the_assembler_may_unroll_loops_without_products():
    signature = {"x": "*fp32:16", "out": "*fp32:16", "columns": "i32:16"}
    ptx = row_sums.compile(signature, {"BLOCK": 512}, target="sm_90a").asm["ptx"]
    assert back_edges(ptx) == ["bra"]


def test_loops_with_products_stay_as_they_are():
    signature = {"a": "*fp16:16", "b": "*fp16:16", "c": "*fp32:16", "K": "i32:16"}
    ptx = matmul.compile(signature, {"SIZE": 32}, target="sm_80").asm["ptx"]
    assert set(back_edges(ptx)) == {"bra.uni"}


@ptxforge.jit
def steps_to_one(n):
    steps = 0
    while n > 1:
        if n % 2 == 0:
            n = n // 2
        else:
            n = 3 * n + 1
        steps += 1
    return steps


@ptxforge.jit
def longer(a, b):
    """The number that takes more steps to 1; each pair takes another time."""
    x, y = steps_to_one(a), steps_to_one(b)
    return a if x > y or (x == y and a > b) else b


@ptxforge.jit
def reduce_with_branches(x, out, BLOCK: tl.constexpr):
    tl.store(out, tl.reduce(tl.load(x + tl.arange(0, BLOCK)), 0, longer))


def steps(n: int) -> int:
    return 0 if n == 1 else 1 + steps(n // 2 if n % 2 == 0 else 3 * n + 1)


def test_threads_decide_for_themselves_in_a_reduction(execute):
    x = np.random.default_rng(0).integers(1, 50, 128).astype(np.int32)
    arguments = [x, np.zeros(1, np.int32)]
    for (out,) in execute(reduce_with_branches, (1,), arguments, {"BLOCK": 128}, outputs=[1]):
        assert out[0] == max(x.tolist(), key=lambda n: (steps(n), n))
    ptx = reduce_with_branches.compile({"x": "*i32:16", "out": "*i32:16"}, {"BLOCK": 128}).asm["ptx"]
    assert "bra $while" in ptx and "bra.uni" not in ptx
