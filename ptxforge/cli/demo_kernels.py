"""The three kernels of ``python -m ptxforge demo``: a vector sum, a softmax, a matrix product."""

from __future__ import annotations

import ptxforge
import ptxforge.language as tl


@ptxforge.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    """out = x + y: each program adds BLOCK elements."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    tl.store(out + i, tl.load(x + i, mask=inside) + tl.load(y + i, mask=inside), mask=inside)


@ptxforge.jit
def softmax(x, out, columns, BLOCK: tl.constexpr):
    """Softmax of each row: one program, one row, held in registers."""
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    inside = i < columns
    values = tl.load(x + row * columns + i, mask=inside, other=-float("inf"))
    values = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * columns + i, values / tl.sum(values, axis=0), mask=inside)


@ptxforge.jit
def matmul(a, b, c, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """c = a @ b, row-major: each program makes one BLOCK_M x BLOCK_N tile of c."""
    i = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    j = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        at = start + k
        left = tl.load(a + i[:, None] * K + at[None, :], mask=(i[:, None] < M) & (at[None, :] < K), other=0.0)
        right = tl.load(
            b + at[:, None] * N + j[None, :], mask=(at[:, None] < K) & (j[None, :] < N), other=0.0
        )
        total = tl.dot(left, right, total)
    tl.store(c + i[:, None] * N + j[None, :], total, mask=(i[:, None] < M) & (j[None, :] < N))
