"""A matrix product by tensor descriptors, in programs that walk over tiles.

    python examples/persistent_matmul.py [M N K]

The same source runs everywhere: on Hopper (sm_90a) TMA brings the tiles, elsewhere ``cp.async`` does.
``matmul_kernel.asm["ptx"]`` shows which. Prints the largest error against numpy and, on a GPU, TFLOP/s.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np

import ptxforge
import ptxforge.language as tl
from ptxforge import TensorDescriptor


@ptxforge.jit
def tile_at(tile, tiles_m, tiles_n, GROUP_M: tl.constexpr):
    """The row and the column of a tile. GROUP_M rows of tiles are done before the next ones, so that their
    tiles of b stay in the L2 cache."""
    first = tile // (GROUP_M * tiles_n) * GROUP_M
    rows = min(tiles_m - first, GROUP_M)
    return first + tile % (GROUP_M * tiles_n) % rows, tile % (GROUP_M * tiles_n) // rows


@ptxforge.jit
def matmul_kernel(a_desc, b_desc, c_desc, PROGRAMS: tl.constexpr, GROUP_M: tl.constexpr):
    """c[M, N] = a[M, K] @ b[N, K]ᵀ, f32 accumulation. The sizes and the boxes are the descriptors'."""
    BLOCK_M: tl.constexpr = c_desc.block_shape[0]
    BLOCK_N: tl.constexpr = c_desc.block_shape[1]
    BLOCK_K: tl.constexpr = a_desc.block_shape[1]
    tiles_m, tiles_n = tl.cdiv(c_desc.shape[0], BLOCK_M), tl.cdiv(c_desc.shape[1], BLOCK_N)
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, PROGRAMS, flatten=True):
        i, j = tile_at(tile, tiles_m, tiles_n, GROUP_M)
        accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, a_desc.shape[1], BLOCK_K):
            a = a_desc.load([i * BLOCK_M, k])
            b = b_desc.load([j * BLOCK_N, k])
            accumulator = tl.dot(a, b.T, accumulator)
        c_desc.store([i * BLOCK_M, j * BLOCK_N], accumulator.to(c_desc.dtype))


def launcher(x, y, out, tile=(64, 64, 32), programs: int = 132, num_warps: int = 4) -> Callable[[], object]:
    """A function that queues ``out = x @ y.T`` for row-major f16 matrices on a device; their rows are
    multiples of 16 bytes."""
    m, n, k = tile
    a, b, c = (
        TensorDescriptor.from_tensor(array, box) for array, box in ((x, [m, k]), (y, [n, k]), (out, [m, n]))
    )
    tiles = ptxforge.cdiv(out.shape[0], m) * ptxforge.cdiv(out.shape[1], n)
    grid = (min(programs, tiles),)
    return lambda: matmul_kernel[grid](a, b, c, PROGRAMS=grid[0], GROUP_M=8, num_warps=num_warps)


def main(m: int = 256, n: int = 256, k: int = 256, programs: int = 132) -> float:
    """Multiply random matrices; the largest error."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((m, k), (n, k)))
    x, y, out = (ptxforge.to_device(v) for v in (a, b, np.zeros((m, n), np.float16)))
    run = launcher(x, y, out, programs=programs)
    run()
    error = float(np.abs(out.numpy() - a.astype(np.float32) @ b.astype(np.float32).T).max())
    speed = ""
    if ptxforge.default_device().name != "emulator":
        speed = f", {2e-9 * m * n * k / ptxforge.do_bench(run):.0f} TFLOP/s"
    print(f"persistent matmul {m}x{n}x{k}: largest error {error:.3g}{speed}")
    return error


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
