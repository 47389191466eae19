"""Kernels that do nothing, for what a launch costs, and one that is tuned, in the language that ptxforge
and Triton share. ``jit`` and ``tl`` are put here by :mod:`benchmarks.dialects`.
"""
# ruff: noqa: F821


@jit
def nothing():
    """No arguments."""
    pass


@jit
def five(x, y, out, n, m, BLOCK: tl.constexpr):
    """Five arguments and a constant."""
    pass


@jit
def nineteen(
    t1, t2, t3, t4, t5, i1, i2, i3, i4, i5, i6, i7, i8, i9,
    c1: tl.constexpr, c2: tl.constexpr, c3: tl.constexpr, c4: tl.constexpr, c5: tl.constexpr,
):  # fmt: skip
    """Five arrays, nine integers, five constants."""
    pass


@jit
def two(x, y):
    """Two arguments."""
    pass


@jit
def copied_tile(x, y):
    """A tile from one tensor descriptor to another."""
    y.store([0, 0], x.load([0, 0]))


@jit
def tile_product(a, b, c, M, N, K, BLOCK: tl.constexpr):
    """c[M, N] = a[M, K] @ b[K, N] for one tile of BLOCK rows and columns; BLOCK divides M, N and K."""
    i = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, K, BLOCK):
        x = tl.load(a + i[:, None] * K + (k + i)[None, :])
        y = tl.load(b + (k + i)[:, None] * N + i[None, :])
        acc = tl.dot(x, y, acc)
    tl.store(c + i[:, None] * N + i[None, :], acc.to(tl.float16), mask=i[:, None] < M)


@jit
def layer_norm_rows(out, x, weight, bias, stride, columns, eps, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Layer norm of ROWS rows a program; ROWS divides the number of rows, BLOCK ≥ columns."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    i = tl.arange(0, BLOCK)
    inside = (i < columns)[None, :]
    at = row[:, None] * stride + i[None, :]
    values = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(values, axis=1) / columns
    centered = tl.where(inside, values - mean[:, None], 0.0)
    scale = 1 / tl.sqrt(tl.sum(centered * centered, axis=1) / columns + eps)
    w = tl.load(weight + i, mask=i < columns, other=0.0).to(tl.float32)
    b = tl.load(bias + i, mask=i < columns, other=0.0).to(tl.float32)
    result = centered * scale[:, None] * w[None, :] + b[None, :]
    tl.store(out + at, result.to(out.dtype.element_ty), mask=inside)
