"""Attention that never writes its scores to memory: forward and backward.

    python examples/flash_attention.py [BATCH HEADS LENGTH D]

Forward: a program holds a block of rows of q and walks over blocks of k and v. It keeps, for each row, the
largest score so far and the sum of exponentials relative to it; when the largest score grows, sum and result
shrink by one factor (Milakov, Gimelshein: *Online normalizer calculation for softmax*, 2018; Dao et al.:
*FlashAttention*, 2022). It leaves ``lse``, the logarithm of each row's sum, from which the backward kernels
make any probability anew.

Backward, with s = q kᵀ · scale, p = softmax(s), o = p v, δ = rowsum(do ∘ o):

    dv = pᵀ do      dp = do vᵀ      ds = p ∘ (dp - δ)      dq = ds k · scale      dk = dsᵀ q · scale

One kernel makes the row sums, one dk and dv for a block of columns, one dq for a block of rows: no atomics,
so the result is the same in every run. Logarithms and exponentials are to the base 2, which is what the
hardware has.
"""

from __future__ import annotations

import math
import sys

import numpy as np

import ptxforge
import ptxforge.language as tl


@ptxforge.jit
def attend(
    acc, total, top, rows, k_tile, v_tile, begin, end, i, j, scale,
    BLOCK_N: tl.constexpr, D: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Take the columns begin … end into a block's state; with MASKED, only those up to the diagonal."""
    for step in range(begin, end, BLOCK_N):
        scores = tl.dot(rows, tl.load(k_tile + step * D)) * scale
        if MASKED:
            scores = tl.where(i[:, None] >= step + j[None, :], scores, -float("inf"))
        new_top = tl.maximum(top, tl.max(scores, 1))
        p = tl.exp2(scores - new_top[:, None])
        shrink = tl.exp2(top - new_top)
        total = total * shrink + tl.sum(p, 1)
        acc = tl.dot(p.to(rows.dtype), tl.load(v_tile + step * D), acc * shrink[:, None])
        top = new_top
    return acc, total, top


@ptxforge.jit
def forward_kernel(
    q, k, v, out, lse, scale, length,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """BLOCK_M rows of one head: ``out = softmax(q kᵀ · scale) v``, ``lse`` = log2 of each row's sum. Here
    ``scale`` includes log2(e)."""
    start = tl.program_id(0) * BLOCK_M
    base = tl.program_id(1).to(tl.int64) * length * D
    i = start + tl.arange(0, BLOCK_M)
    j = tl.arange(0, BLOCK_N)
    d = tl.arange(0, D)
    rows = tl.load(q + base + i[:, None] * D + d[None, :])
    k_tile = k + base + j[None, :] * D + d[:, None]
    v_tile = v + base + j[:, None] * D + d[None, :]
    top = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    full = start if CAUSAL else length
    acc, total, top = attend(
        acc, total, top, rows, k_tile, v_tile, 0, full, i, j, scale, BLOCK_N, D, MASKED=False
    )
    if CAUSAL:
        end = start + BLOCK_M
        acc, total, top = attend(
            acc, total, top, rows, k_tile, v_tile, start, end, i, j, scale, BLOCK_N, D, MASKED=True
        )
    tl.store(out + base + i[:, None] * D + d[None, :], (acc / total[:, None]).to(out.dtype.element_ty))
    tl.store(lse + tl.program_id(1) * length + i, top + tl.log2(total))


@ptxforge.jit
def row_sums_kernel(out, d_out, delta, BLOCK: tl.constexpr, D: tl.constexpr):
    """``delta`` = sum of ``out · d_out`` along each row."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    where = i.to(tl.int64)[:, None] * D + tl.arange(0, D)[None, :]
    products = tl.load(out + where).to(tl.float32) * tl.load(d_out + where).to(tl.float32)
    tl.store(delta + i, tl.sum(products, 1))


@ptxforge.jit
def columns_kernel(
    q, k, v, d_out, lse, delta, d_k, d_v, scale, log2_scale, length,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """d_k and d_v of BLOCK_N columns of one head. Scores are made transposed, [columns, rows], so that they
    are the left operands of the products."""
    start = tl.program_id(0) * BLOCK_N
    base = tl.program_id(1).to(tl.int64) * length * D
    j = start + tl.arange(0, BLOCK_N)
    m = tl.arange(0, BLOCK_M)
    d = tl.arange(0, D)
    columns = base + j[:, None] * D + d[None, :]
    keys = tl.load(k + columns)
    values = tl.load(v + columns)
    acc_k = tl.zeros((BLOCK_N, D), tl.float32)
    acc_v = tl.zeros((BLOCK_N, D), tl.float32)
    first = start // BLOCK_M * BLOCK_M if CAUSAL else 0
    for step in range(first, length, BLOCK_M):
        i = step + m
        where = base + i[:, None] * D + d[None, :]
        rows = tl.load(q + where)
        d_rows = tl.load(d_out + where)
        row = tl.program_id(1) * length + i
        p = tl.exp2(tl.dot(keys, tl.trans(rows)) * log2_scale - tl.load(lse + row)[None, :])
        if CAUSAL:
            p = tl.where(i[None, :] >= j[:, None], p, 0.0)
        acc_v = tl.dot(p.to(keys.dtype), d_rows, acc_v)
        d_p = tl.dot(values, tl.trans(d_rows))
        d_s = p * (d_p - tl.load(delta + row)[None, :])
        acc_k = tl.dot(d_s.to(keys.dtype), rows, acc_k)
    tl.store(d_k + columns, (acc_k * scale).to(d_k.dtype.element_ty))
    tl.store(d_v + columns, acc_v.to(d_v.dtype.element_ty))


@ptxforge.jit
def rows_kernel(
    q, k, v, d_out, lse, delta, d_q, scale, log2_scale, length,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """d_q of BLOCK_M rows of one head."""
    start = tl.program_id(0) * BLOCK_M
    base = tl.program_id(1).to(tl.int64) * length * D
    i = start + tl.arange(0, BLOCK_M)
    n = tl.arange(0, BLOCK_N)
    d = tl.arange(0, D)
    where = base + i[:, None] * D + d[None, :]
    rows = tl.load(q + where)
    d_rows = tl.load(d_out + where)
    row = tl.program_id(1) * length + i
    row_lse = tl.load(lse + row)[:, None]
    row_delta = tl.load(delta + row)[:, None]
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    end = start + BLOCK_M if CAUSAL else length
    for step in range(0, end, BLOCK_N):
        j = step + n
        columns = base + j[:, None] * D + d[None, :]
        keys = tl.load(k + columns)
        p = tl.exp2(tl.dot(rows, tl.trans(keys)) * log2_scale - row_lse)
        if CAUSAL:
            p = tl.where(i[:, None] >= j[None, :], p, 0.0)
        d_p = tl.dot(d_rows, tl.trans(tl.load(v + columns)))
        d_s = p * (d_p - row_delta)
        acc = tl.dot(d_s.to(keys.dtype), keys, acc)
    tl.store(d_q + where, (acc * scale).to(d_q.dtype.element_ty))


LOG2_E = math.log2(math.e)


def _blocks(length: int, block: int) -> tuple[int, dict[str, int]]:
    """(blocks of a head, the constants that say so); a block is cut to a short head."""
    size = min(block, length)
    if length % size or size < 16:
        raise ValueError(f"the length must be a multiple of {block}, or 16 … {block}: it is {length}")
    return length // size, {"BLOCK_M": size, "BLOCK_N": size}


def forward(q, k, v, causal: bool = False, block: int = 64):
    """(out, lse) for f16 or bf16 arrays of one shape [batch, heads, length, D] on a device."""
    batch, heads, length, depth = q.shape
    out = ptxforge.empty(q.shape, q.dtype)
    lse = ptxforge.empty((batch, heads, length), np.float32)
    count, blocks = _blocks(length, block)
    forward_kernel[count, batch * heads](
        q, k, v, out, lse, LOG2_E / math.sqrt(depth), length, **blocks, D=depth, CAUSAL=causal, num_warps=4
    )
    return out, lse


def backward(q, k, v, out, lse, d_out, causal: bool = False, block: int = 64):
    """(d_q, d_k, d_v) from what :func:`forward` returned and the gradient of its output."""
    batch, heads, length, depth = q.shape
    count, blocks = _blocks(length, block)
    delta = ptxforge.empty(lse.shape, np.float32)
    row_sums_kernel[(batch * heads * count,)](out, d_out, delta, BLOCK=blocks["BLOCK_M"], D=depth)
    d_q, d_k, d_v = (ptxforge.empty(q.shape, q.dtype) for _ in range(3))
    scale = 1 / math.sqrt(depth)
    common = (scale, LOG2_E * scale, length)
    options = blocks | {"D": depth, "CAUSAL": causal, "num_warps": 4}
    columns_kernel[count, batch * heads](q, k, v, d_out, lse, delta, d_k, d_v, *common, **options)
    rows_kernel[count, batch * heads](q, k, v, d_out, lse, delta, d_q, *common, **options)
    return d_q, d_k, d_v


def reference(q, k, v, d_out, causal: bool) -> list[np.ndarray]:
    """[out, d_q, d_k, d_v] in f64, with all scores in memory."""
    q, k, v, d_out = (x.astype(np.float64) for x in (q, k, v, d_out))
    scale = 1 / math.sqrt(q.shape[-1])
    scores = q @ k.swapaxes(-1, -2) * scale
    if causal:
        scores = np.where(np.tri(scores.shape[-1], dtype=bool), scores, -np.inf)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    out = p @ v
    d_p = d_out @ v.swapaxes(-1, -2)
    d_s = p * (d_p - (d_out * out).sum(-1, keepdims=True)) * scale
    return [out, d_s @ k, d_s.swapaxes(-1, -2) @ q, p.swapaxes(-1, -2) @ d_out]


def main(batch=1, heads=2, length=128, depth=64, block=64, dtype=np.float16) -> float:
    """Random arrays, causal and not; the largest error, relative to the largest value of its array."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((batch, heads, length, depth)).astype(dtype) for _ in range(4)]
    q, k, v, d_out = (ptxforge.to_device(x) for x in arrays)
    worst = 0.0
    for causal in (False, True):
        out, lse = forward(q, k, v, causal, block)
        results = [out, *backward(q, k, v, out, lse, d_out, causal, block)]
        pairs = zip([x.numpy().astype(np.float64) for x in results], reference(*arrays, causal), strict=True)
        errors = [float(np.abs(got - expected).max() / np.abs(expected).max()) for got, expected in pairs]
        named = ", ".join(f"{n} {e:.1e}" for n, e in zip(("out", "dq", "dk", "dv"), errors, strict=True))
        print(f"attention {batch}x{heads}x{length}x{depth}, {'causal' if causal else 'full'}: errors {named}")
        worst = max(worst, *errors)
    return worst


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
