"""Several products of different sizes in one launch, with a bias and a GELU-like epilogue.

    python examples/grouped_gemm.py

Each program finds its product by walking the list of sizes; where its operands lie is read from a table.
"""

from __future__ import annotations

import numpy as np

import ptxforge
import ptxforge.language as tl


@ptxforge.jit
def grouped_kernel(
    a, b, bias, c, sizes, offsets,
    GROUPS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """c_g = silu(a_g @ b_g + bias_g) for each group g. ``sizes`` holds (M, N, K) of each group, ``offsets``
    where its a, b, bias and c begin (elements)."""
    pid = tl.program_id(0)
    first = 0
    for g in range(GROUPS):
        M = tl.load(sizes + g * 3)
        N = tl.load(sizes + g * 3 + 1)
        K = tl.load(sizes + g * 3 + 2)
        tiles_n = tl.cdiv(N, BLOCK_N)
        tiles = tl.cdiv(M, BLOCK_M) * tiles_n
        if (pid >= first) & (pid < first + tiles):
            i = (pid - first) // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
            j = (pid - first) % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
            k = tl.arange(0, BLOCK_K)
            a_tile = a + tl.load(offsets + g * 4) + i[:, None] * K + k[None, :]
            b_tile = b + tl.load(offsets + g * 4 + 1) + k[:, None] * N + j[None, :]
            acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
            for step in range(0, K, BLOCK_K):
                x = tl.load(a_tile, mask=(i[:, None] < M) & (k[None, :] < K - step), other=0.0)
                y = tl.load(b_tile, mask=(k[:, None] < K - step) & (j[None, :] < N), other=0.0)
                acc = tl.dot(x, y, acc)
                a_tile += BLOCK_K
                b_tile += BLOCK_K * N
            acc += tl.load(bias + tl.load(offsets + g * 4 + 2) + j, mask=j < N, other=0.0)[None, :]
            acc = acc * tl.sigmoid(acc)
            where = c + tl.load(offsets + g * 4 + 3) + i[:, None] * N + j[None, :]
            tl.store(where, acc.to(tl.float16), mask=(i[:, None] < M) & (j[None, :] < N))
        first += tiles


def main(shapes=((40, 48, 32), (64, 16, 80), (17, 33, 50))) -> float:
    """Random products of the given (M, N, K); the largest error."""
    rng = np.random.default_rng(0)
    tile = 32
    parts = [
        [rng.standard_normal(shape).astype(np.float16) for shape in ((m, k), (k, n), (n,))]
        for m, n, k in shapes
    ]
    starts = np.zeros((len(shapes), 4), np.int64)
    for g, (m, n, k) in enumerate(shapes[:-1]):
        starts[g + 1] = starts[g] + (m * k, k * n, n, m * n)
    arrays = [np.concatenate([p[i].ravel() for p in parts]) for i in range(3)]
    results = np.zeros(sum(m * n for m, n, _ in shapes), np.float16)
    placed = [ptxforge.to_device(x) for x in (*arrays, results, np.array(shapes, np.int32), starts)]
    grid = (sum(ptxforge.cdiv(m, tile) * ptxforge.cdiv(n, tile) for m, n, _ in shapes),)
    grouped_kernel[grid](*placed, GROUPS=len(shapes), BLOCK_M=tile, BLOCK_N=tile, BLOCK_K=16, num_warps=4)
    out, worst = placed[3].numpy(), 0.0
    for g, ((m, n, _), (a, b, bias)) in enumerate(zip(shapes, parts)):
        x = a.astype(np.float64) @ b + bias
        got = out[starts[g, 3] :][: m * n].reshape(m, n)
        worst = max(worst, float(np.abs(got - x / (1 + np.exp(-x))).max()))
    print(f"{len(shapes)} products: largest error {worst:.3g}")
    return worst


if __name__ == "__main__":
    main()
