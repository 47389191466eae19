"""The SGEMM ladder: four kernels for one f32 product, each with one idea more.

    python examples/sgemm_ladder.py [SIZE]

1. naive        a program makes 32 results of one column: the threads of a warp read a column of a, which
                touches 32 sectors of memory (32 bytes each) a request
2. coalesced    32 results of one row: the threads read a row of b, 4 sectors a request
3. shared       a 32x32 tile a program: operands are staged through shared memory and used 32 times
4. blocktiling  a 128x128 tile, 8x8 results a thread: what is read from shared memory is used 8 times too

In this language all four are tiles; what changes is the tile's shape and which index runs along the threads.
The script prints, on the emulator, the sectors that each kernel moves (the most a request, and all), and on a
GPU its GFLOP/s: on real memory the first takes about 1 % of the peak and the last more than half.
"""

from __future__ import annotations

import sys

import numpy as np

import ptxforge
import ptxforge.language as tl


@ptxforge.jit
def naive(a, b, c, M, N, K, BLOCK: tl.constexpr):
    """A program makes c[i : i + BLOCK, j]: neighbouring threads hold neighbouring rows, so each of their
    reads and writes touches another line of memory."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    j = tl.program_id(1)
    total = tl.zeros((BLOCK,), tl.float32)
    for k in range(K):
        total += tl.load(a + i * K + k) * tl.load(b + k * N + j)
    tl.store(c + i * N + j, total)


@ptxforge.jit
def coalesced(a, b, c, M, N, K, BLOCK: tl.constexpr):
    """A program makes c[i, j : j + BLOCK]: neighbouring threads hold neighbouring columns."""
    i = tl.program_id(0)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for k in range(K):
        total += tl.load(a + i * K + k) * tl.load(b + k * N + j)
    tl.store(c + i * N + j, total)


@ptxforge.jit
def tiled(a, b, c, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """Tiles of a and b go through shared memory. With 32x32 tiles this is the third step, with 128x128 the
    fourth."""
    i = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    j = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a_tile = a + i[:, None] * K + k[None, :]
    b_tile = b + k[:, None] * N + j[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for _ in range(0, K, BLOCK_K):
        total = tl.dot(tl.load(a_tile), tl.load(b_tile), total, input_precision="ieee")
        a_tile += BLOCK_K
        b_tile += BLOCK_K * N
    tl.store(c + i[:, None] * N + j[None, :], total)


def rungs(size: int):
    """(name, kernel, grid, constants) of each rung for a square product; ``size`` is a multiple of 128."""
    lines = {"BLOCK": 32, "num_warps": 1}
    small = {"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32, "num_warps": 4, "num_stages": 1}
    large = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 16, "num_warps": 8, "num_stages": 2}
    return [
        ("naive", naive, (size // 32, size), lines),
        ("coalesced", coalesced, (size, size // 32), lines),
        ("shared", tiled, (size // 32, size // 32), small),
        ("blocktiling", tiled, (size // 128, size // 128), large),
    ]


def measure(run, size: int) -> str:
    """What one launch moves, on the emulator; how fast it is, on a GPU."""
    device = ptxforge.default_device()
    if device.name != "emulator":
        return f"{2e-6 * size**3 / ptxforge.do_bench(run):8.0f} GFLOP/s"
    device.counters = True
    run()
    device.counters = False
    report = device.last_report
    most = max(line.sectors_per_request for line in report.lines)
    return f"{most:3.0f} sectors a request at most, {report.total.global_sectors:7} in all"


def main(size: int = 128) -> float:
    """Run every rung; the largest error of all."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((size, size)).astype(np.float32) for _ in range(2))
    expected = a.astype(np.float64) @ b
    worst = 0.0
    for name, kernel, grid, options in rungs(size):
        x, y, out = (ptxforge.to_device(v) for v in (a, b, np.zeros_like(a)))
        figure = measure(lambda: kernel[grid](x, y, out, size, size, size, **options), size)
        error = float(np.abs(out.numpy() - expected).max())
        worst = max(worst, error)
        print(f"{name:12} largest error {error:.2e} {figure}")
    return worst


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
