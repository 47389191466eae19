"""A product whose programs the compiler lets walk over tiles."""

from __future__ import annotations

import inspect

import numpy as np

import ptxforge
import ptxforge.language as tl
from ptxforge.compiler import compile_function

WIDE = {"BM": 128, "BN": 256, "BK": 64}
"""Of which one block has room in a multiprocessor."""
SMALL = {"BM": 64, "BN": 64, "BK": 32}


@ptxforge.jit
def product(
    a, b, c, bias, M, N, K, stride, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
    KIND: tl.constexpr,
):  # fmt: skip
    """c = a @ b + bias, in groups of GROUP rows of tiles; variants are told by KIND."""
    pid = tl.program_id(0)
    if KIND == "count":
        pid = tl.num_programs(0) - 1 - pid
    if KIND == "rows":
        a += tl.program_id(1) * stride
        c += tl.program_id(1) * M * N
    tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
    first = pid // (GROUP * tiles_n) * GROUP
    rows = min(tiles_m - first, GROUP)
    i = (first + pid % (GROUP * tiles_n) % rows) * BM + tl.arange(0, BM)
    j = pid % (GROUP * tiles_n) // rows * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    x = a + (i[:, None] % M) * K + k[None, :]
    y = b + k[:, None] * N + (j[None, :] % N)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        inside = k < K - start
        right = tl.load(y, mask=inside[:, None], other=0.0)
        acc = tl.dot(tl.load(x, mask=inside[None, :], other=0.0), right, acc)
        x += BK
        y += BK * N
        if KIND == "twice":
            acc = tl.dot(tl.load(x, mask=inside[None, :], other=0.0), right, acc)
    acc += tl.load(bias + j, mask=j < N, other=0.0)[None, :]
    if KIND == "prints":
        tl.device_print("tile", pid)
    if KIND == "barrier":
        tl.debug_barrier()
    if KIND == "read":
        acc += tl.load(bias + j, mask=j < N, other=0.0, volatile=True)[None, :]
    at, inside = c + i[:, None] * N + j[None, :], (i[:, None] < M) & (j[None, :] < N)
    if KIND == "atomic":
        tl.atomic_add(at, acc.to(c.dtype.element_ty), mask=inside, sem="relaxed")
    elif KIND == "second loop":
        for _ in range(stride):
            tl.store(at, acc.to(c.dtype.element_ty), mask=inside)
    else:
        tl.store(at, acc.to(c.dtype.element_ty), mask=inside)


def compiled(kind: str = "", out: str = "fp16", blocks: dict = WIDE, target: str = "sm_90a", **options):
    signature = {"a": "*fp16:16", "b": "*fp16:16", "c": f"*{out}:16", "bias": "*fp32:16"}
    signature |= dict.fromkeys(("M", "N", "K", "stride"), "i32:16")
    order = list(inspect.signature(product.fn).parameters)
    ordered = {name: signature[name] for name in order if name in signature}
    constants = blocks | {"GROUP": 2, "KIND": kind}
    return compile_function(product, ordered, constants, target=target, **{"num_warps": 8} | options)


def problem(m: int, n: int, k: int, batches: int = 1) -> tuple[list, np.ndarray]:
    """The arguments of ``product`` (numbers of which every sum is exact in f16) and what it leaves in c."""
    rng = np.random.default_rng(m + n + k)
    a = rng.integers(-2, 3, (batches, m, k)).astype(np.float16)
    b = rng.integers(-1, 2, (k, n)).astype(np.float16)
    bias = rng.integers(-8, 9, n).astype(np.float32)
    expected = (a.astype(np.float32) @ b + bias).astype(np.float16)
    return [a, b, np.full((batches, m, n), np.nan, np.float16), bias, m, n, k, m * k], expected
