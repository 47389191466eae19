"""Kernels that the reports are tested with; their line numbers stand in goldens."""

import ptxforge
import ptxforge.language as tl


@ptxforge.jit
def softmax(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    inside = i < columns
    values = tl.load(x + row * columns + i, mask=inside, other=-float("inf"))
    values = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * columns + i, values / tl.sum(values, axis=0), mask=inside)


@ptxforge.jit
def halved(x):
    return x * 0.5


@ptxforge.jit
def product(a, b, c, N, K, BLOCK: tl.constexpr, PRECISION: tl.constexpr = "tf32", FILL: tl.constexpr = 0.0):
    i, j = tl.arange(0, BLOCK), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    k = tl.arange(0, 32)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for step in range(0, K, 32):
        left = tl.load(a + i[:, None] * K + (step + k)[None, :], mask=(step + k)[None, :] < K, other=FILL)
        right = tl.load(b + (step + k)[:, None] * N + j[None, :], mask=(step + k)[:, None] < K, other=0.0)
        total = tl.dot(left, right, total, input_precision=PRECISION)
    tl.store(c + i[:, None] * N + j[None, :], halved(total))


@ptxforge.jit
def strided(x, out, stride, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i * stride))


@ptxforge.jit
def scatter(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    for step in range(0, n, BLOCK):
        tl.store(out + step + i, tl.load(x + step + i) + 1)


@ptxforge.jit
def beyond(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, i)
