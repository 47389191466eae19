"""Kernels whose loops may ask for warps that copy (``WS``), and what they look like compiled."""

from __future__ import annotations

import inspect

import ptxforge
import ptxforge.language as tl
from ptxforge.compiler import compile_function
from ptxforge.ir.ops.partition import Partition
from ptxforge.ir.parser import parse_function


@ptxforge.jit
def product(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, WS: tl.constexpr):
    """c = a @ b by pointers."""
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in tl.range(0, K, BK, warp_specialize=WS):
        inside = start + k < K
        x = tl.load(a + (i % M)[:, None] * K + (start + k)[None, :], mask=inside[None, :], other=0.0)
        right = inside[:, None] & (j < N)[None, :]
        y = tl.load(b + (start + k)[:, None] * N + j[None, :], mask=right, other=0.0)
        acc = tl.dot(x, y, acc)
    tl.store(c + i[:, None] * N + j[None, :], acc, mask=(i < M)[:, None] & (j < N)[None, :])


@ptxforge.jit
def by_descriptors(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, WS: tl.constexpr):
    """c = a @ bᵀ by descriptors."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for start in tl.range(0, K, BK, warp_specialize=WS):
        acc = tl.dot(a.load([row, start]), b.load([column, start]).T, acc)
    c.store([row, column], acc.to(tl.float16))


@ptxforge.jit
def walking(
    a, b, c, M, N, K, tiles, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PROGRAMS: tl.constexpr,
    FLATTEN: tl.constexpr, WS: tl.constexpr, INNER: tl.constexpr, TRIANGLE: tl.constexpr,
):  # fmt: skip
    """c = a @ b, tile by tile; ``WS`` and ``INNER`` mark the outer and the inner loop. With ``TRIANGLE`` a
    tile sums as many columns of a as rows come before it: for some none."""
    i, j, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    for tile in tl.range(tl.program_id(0), tiles, PROGRAMS, flatten=FLATTEN, warp_specialize=WS):
        rows, columns = tile // tl.cdiv(N, BN) * BM + i, tile % tl.cdiv(N, BN) * BN + j
        depth = tl.minimum(K, tile // tl.cdiv(N, BN) * BM) if TRIANGLE else K
        acc = tl.zeros((BM, BN), tl.float32)
        for start in tl.range(0, depth, BK, warp_specialize=INNER):
            inside = start + k < K
            x = tl.load(a + (rows % M)[:, None] * K + (start + k)[None, :], mask=inside[None, :], other=0.0)
            right = inside[:, None] & (columns < N)[None, :]
            y = tl.load(b + (start + k)[:, None] * N + columns[None, :], mask=right, other=0.0)
            acc = tl.dot(x, y, acc)
        inside = (rows < M)[:, None] & (columns < N)[None, :]
        tl.store(c + rows[:, None] * N + columns[None, :], acc, mask=inside)


@ptxforge.jit
def attention(
    q, k, v, out, scale, length, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr,
    WS: tl.constexpr,
):  # fmt: skip
    """Online softmax over blocks of k and v; with ``CAUSAL`` in two loops: below the diagonal, and on it."""
    head, first = tl.program_id(1) * length * D, tl.program_id(0) * BM
    i, j, d = first + tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, D)
    queries = tl.load(q + head + i[:, None] * D + d[None, :])
    most = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for part in tl.static_range(2 if CAUSAL else 1):
        low = first if part == 1 else 0
        high = first + BM if part == 1 else (first if CAUSAL else length)
        for start in tl.range(low, high, BN, warp_specialize=WS):
            keys = tl.load(k + head + (start + j)[None, :] * D + d[:, None])
            scores = tl.dot(queries, keys) * scale
            if part == 1:
                scores = tl.where(i[:, None] >= (start + j)[None, :], scores, -float("inf"))
            new = tl.maximum(most, tl.max(scores, 1))
            p = tl.exp2(scores - new[:, None])
            alpha = tl.exp2(most - new)
            total = total * alpha + tl.sum(p, 1)
            values = tl.load(v + head + (start + j)[:, None] * D + d[None, :])
            acc = tl.dot(p.to(tl.float16), values, acc * alpha[:, None])
            most = new
    tl.store(out + head + i[:, None] * D + d[None, :], (acc / total[:, None]).to(tl.float16))


@ptxforge.jit
def one_after_the_other(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, WS: tl.constexpr):
    """c = the products that a @ b is the sum of, stored twice, by two loops."""
    i, j, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    for part in tl.static_range(2):
        for start in tl.range(0, K, BK, num_stages=3, warp_specialize=WS):
            x = tl.load(a + i[:, None] * K + (start + k)[None, :])
            y = tl.load(b + (start + k)[:, None] * BN + j[None, :])
            tl.store(c + (part * K + start) * BM * BN // BK + i[:, None] * BN + j[None, :], tl.dot(x, y))


POINTERS = dict.fromkeys("ab", "*fp16:16") | {"c": "*fp32:16", "tiles": "i32"}
POINTERS |= dict.fromkeys("qkv", "*fp16:16") | {"out": "*fp16:16", "scale": "fp32", "length": "i32:16"}
POINTERS |= dict.fromkeys("MNK", "i32:16")
BLOCKS = {"BM": 64, "BN": 64, "BK": 32}
TILES = BLOCKS | {"PROGRAMS": 2, "FLATTEN": True, "WS": True, "INNER": False, "TRIANGLE": False}


def compiled(
    kernel, constants: dict, target: str = "sm_90a", num_warps: int = 4, **options
) -> ptxforge.Artifact:
    """A kernel, its arguments aligned and its sizes multiples of 16."""
    names = inspect.signature(kernel.fn).parameters
    signature = {name: POINTERS[name] for name in names if name in POINTERS}
    kept = {name: value for name, value in constants.items() if name in names}
    return compile_function(kernel, signature, kept, target=target, num_warps=num_warps, **options)


def partitions(artifact: ptxforge.Artifact) -> list[Partition]:
    """Those of a compiled kernel."""
    return list(parse_function(artifact.asm["gpu"]).walk(Partition))


def reasons(artifact: ptxforge.Artifact) -> list[str]:
    """Why loops that ask for warps that copy have none."""
    return [remark.message for remark in artifact.remarks if remark.kind == "not-specialized"]
