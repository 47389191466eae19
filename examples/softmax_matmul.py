"""softmax(x @ w) in one kernel: a program makes whole rows of the product, so there is no second pass.

    python examples/softmax_matmul.py
"""

from __future__ import annotations

import numpy as np

import ptxforge
import ptxforge.language as tl


@ptxforge.jit
def softmax_matmul_kernel(
    x, w, out, M, K, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """out = softmax(x[M, K] @ w[K, N], axis 1); BLOCK_N ≥ N."""
    i = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    j = tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for step in range(0, K, BLOCK_K):
        at = step + k
        inside_x = (i[:, None] < M) & (at[None, :] < K)
        inside_w = (at[:, None] < K) & (j[None, :] < N)
        left = tl.load(x + i[:, None] * K + at[None, :], mask=inside_x, other=0.0)
        right = tl.load(w + at[:, None] * N + j[None, :], mask=inside_w, other=0.0)
        acc = tl.dot(left, right, acc)
    acc = tl.where(j[None, :] < N, acc, -float("inf"))
    p = tl.exp(acc - tl.max(acc, 1)[:, None])
    p = p / tl.sum(p, 1)[:, None]
    tl.store(out + i[:, None] * N + j[None, :], p.to(tl.float16), mask=(i[:, None] < M) & (j[None, :] < N))


def main(m: int = 70, k: int = 96, n: int = 100) -> float:
    """Random operands; the largest error."""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((m, k)).astype(np.float16), rng.standard_normal((k, n)).astype(np.float16)
    placed = [ptxforge.to_device(v) for v in (x, w, np.zeros((m, n), np.float16))]
    columns = max(16, ptxforge.next_power_of_2(n))
    grid = (ptxforge.cdiv(m, 16),)
    softmax_matmul_kernel[grid](*placed, m, k, n, BLOCK_M=16, BLOCK_N=columns, BLOCK_K=32, num_warps=4)
    scores = x.astype(np.float64) @ w
    p = np.exp(scores - scores.max(1, keepdims=True))
    error = float(np.abs(placed[2].numpy() - p / p.sum(1, keepdims=True)).max())
    print(f"softmax(x @ w) {m}x{k}x{n}: largest error {error:.3g}")
    return error


if __name__ == "__main__":
    main()
