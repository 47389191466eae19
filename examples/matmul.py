"""A matrix product on tensor cores: grouped program order, masked edges, an epilogue.

    python examples/matmul.py [M N K]

Prints the largest error against numpy and, on a GPU, TFLOP/s. ``matmul_kernel.asm["gpu"]`` shows the
pipelined and prefetched loop.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np

import ptxforge
import ptxforge.language as tl


@ptxforge.jit
def leaky_relu(x):
    return tl.where(x >= 0, x, 0.01 * x)


@ptxforge.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    ACTIVATION: tl.constexpr,
):  # fmt: skip
    """c[M, N] = activation(a[M, K] @ b[K, N]), f32 accumulation."""
    pid = tl.program_id(axis=0)
    num_pid_m = tl.cdiv(M, BLOCK_M)
    num_pid_n = tl.cdiv(N, BLOCK_N)
    # GROUP_M rows of tiles are done before the next ones, so that their tiles of b stay in the L2 cache.
    num_pid_in_group = GROUP_M * num_pid_n
    first_pid_m = (pid // num_pid_in_group) * GROUP_M
    group_size = min(num_pid_m - first_pid_m, GROUP_M)
    pid_m = first_pid_m + (pid % num_pid_in_group) % group_size
    pid_n = (pid % num_pid_in_group) // group_size

    offs_am = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M)) % M
    offs_bn = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N)) % N
    offs_k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + (offs_am[:, None] * stride_am + offs_k[None, :] * stride_ak)
    b_ptrs = b_ptr + (offs_k[:, None] * stride_bk + offs_bn[None, :] * stride_bn)
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        a = tl.load(a_ptrs, mask=offs_k[None, :] < K - k * BLOCK_K, other=0.0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < K - k * BLOCK_K, other=0.0)
        accumulator = tl.dot(a, b, accumulator)
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    if ACTIVATION == "leaky_relu":
        accumulator = leaky_relu(accumulator)

    offs_cm = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_cn = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    c_ptrs = c_ptr + stride_cm * offs_cm[:, None] + stride_cn * offs_cn[None, :]
    tl.store(c_ptrs, accumulator.to(tl.float16), mask=(offs_cm[:, None] < M) & (offs_cn[None, :] < N))


def launcher(x, y, out, activation: str = "", tile=(64, 64, 32), num_warps: int = 4) -> Callable[[], object]:
    """A function that queues ``out = activation(x @ y)`` for row-major f16 matrices on a device."""
    (m, k), n = x.shape, y.shape[1]
    grid = (ptxforge.cdiv(m, tile[0]) * ptxforge.cdiv(n, tile[1]),)
    constants = dict(BLOCK_M=tile[0], BLOCK_N=tile[1], BLOCK_K=tile[2], GROUP_M=8, ACTIVATION=activation)
    return lambda: matmul_kernel[grid](
        x, y, out, m, n, k, k, 1, n, 1, n, 1, **constants, num_warps=num_warps, num_stages=3
    )


def main(m: int = 256, n: int = 256, k: int = 256) -> float:
    """Multiply random matrices; the largest error."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((m, k), (k, n)))
    x, y, out = (ptxforge.to_device(v) for v in (a, b, np.zeros((m, n), np.float16)))
    run = launcher(x, y, out, "leaky_relu")
    run()
    product = a.astype(np.float32) @ b.astype(np.float32)
    expected = np.where(product >= 0, product, 0.01 * product)
    error = float(np.abs(out.numpy() - expected).max())
    speed = ""
    if ptxforge.default_device().name != "emulator":
        speed = f", {2e-9 * m * n * k / ptxforge.do_bench(run):.0f} TFLOP/s"
    print(f"matmul {m}x{n}x{k}: largest error {error:.3g}{speed}")
    return error


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
