"""The kernels of the benchmarks, in the language that ptxforge and Triton share.

``jit`` and ``tl`` are put here by :mod:`benchmarks.dialects`. The tests run the same functions at small
sizes.
"""
# ruff: noqa: F821


@jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    """out = x + y; vectors of n."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    tl.store(out + i, tl.load(x + i, mask=m) + tl.load(y + i, mask=m), mask=m)


@jit
def softmax(out, x, stride, columns, BLOCK: tl.constexpr):
    """Softmax of each row of a [rows, columns] matrix; one row a program, BLOCK ≥ columns."""
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    m = i < columns
    values = tl.load(x + row * stride + i, mask=m, other=-float("inf")).to(tl.float32)
    values = tl.exp(values - tl.max(values, axis=0))
    result = values / tl.sum(values, axis=0)
    tl.store(out + row * stride + i, result.to(out.dtype.element_ty), mask=m)


@jit
def softmax_rows(out, x, stride, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """The same with ROWS rows a program; ROWS divides the number of rows."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    i = tl.arange(0, BLOCK)[None, :]
    at = row[:, None] * stride + i
    m = i < columns
    values = tl.load(x + at, mask=m, other=-float("inf")).to(tl.float32)
    values = tl.exp(values - tl.max(values, axis=1)[:, None])
    result = values / tl.sum(values, axis=1)[:, None]
    tl.store(out + at, result.to(out.dtype.element_ty), mask=m)


@jit
def layer_norm(out, x, weight, bias, stride, columns, eps, BLOCK: tl.constexpr):
    """(x - mean) / sqrt(var + eps) · weight + bias for each row; one row a program, BLOCK ≥ columns."""
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    m = i < columns
    values = tl.load(x + row * stride + i, mask=m, other=0.0).to(tl.float32)
    mean = tl.sum(values, axis=0) / columns
    centered = tl.where(m, values - mean, 0.0)
    variance = tl.sum(centered * centered, axis=0) / columns
    scale = 1 / tl.sqrt(variance + eps)
    w = tl.load(weight + i, mask=m, other=0.0).to(tl.float32)
    b = tl.load(bias + i, mask=m, other=0.0).to(tl.float32)
    result = centered * scale * w + b
    tl.store(out + row * stride + i, result.to(out.dtype.element_ty), mask=m)


@jit
def transpose(out, x, rows, columns, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """out[j, i] = x[i, j] of a [rows, columns] matrix."""
    i = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    j = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = (i[:, None] < rows) & (j[None, :] < columns)
    tile = tl.load(x + i[:, None] * columns + j[None, :], mask=inside)
    tl.store(out + j[:, None] * rows + i[None, :], tl.trans(tile), mask=tl.trans(inside))


@jit
def column_sum(out, x, rows, columns, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """out[j] = sum of column j in f32; a program walks down BLOCK_N columns, BLOCK_M rows at a time."""
    j = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    i = tl.arange(0, BLOCK_M)
    total = tl.zeros((BLOCK_N,), dtype=tl.float32)
    for start in range(0, rows, BLOCK_M):
        at = start + i
        inside = (at[:, None] < rows) & (j[None, :] < columns)
        tile = tl.load(x + at[:, None] * columns + j[None, :], mask=inside, other=0.0)
        total += tl.sum(tile.to(tl.float32), axis=0)
    tl.store(out + j, total, mask=j < columns)


@jit
def cumsum(out, x, columns, BLOCK: tl.constexpr):
    """Running sum along each row of a [rows, columns] matrix; one row a program, BLOCK ≥ columns."""
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    m = i < columns
    values = tl.load(x + row * columns + i, mask=m, other=0.0)
    tl.store(out + row * columns + i, tl.cumsum(values, axis=0), mask=m)


@jit
def histogram(out, x, n, BLOCK: tl.constexpr):
    """out[x[i]] += 1 by atomics."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    tl.atomic_add(out + tl.load(x + i, mask=m, other=0), 1, mask=m)


@jit
def matmul(
    a, b, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    PRECISION: tl.constexpr, EVEN_K: tl.constexpr = False,
):  # fmt: skip
    """c = a @ b with f32 accumulation; programs in groups of GROUP_M rows of tiles, for the L2 cache. EVEN_K
    says that BLOCK_K divides K: no mask is needed along it."""
    pid = tl.program_id(0)
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    group = pid // (GROUP_M * tiles_n)
    first = group * GROUP_M
    rows = min(tiles_m - first, GROUP_M)
    pid_m = first + (pid % (GROUP_M * tiles_n)) % rows
    pid_n = (pid % (GROUP_M * tiles_n)) // rows
    i = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    j = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a_tile = a + (i[:, None] % M) * stride_am + k[None, :] * stride_ak
    b_tile = b + k[:, None] * stride_bk + (j[None, :] % N) * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(0, tl.cdiv(K, BLOCK_K)):
        if EVEN_K:
            x = tl.load(a_tile)
            y = tl.load(b_tile)
        else:
            left = K - step * BLOCK_K
            x = tl.load(a_tile, mask=k[None, :] < left, other=0.0)
            y = tl.load(b_tile, mask=k[:, None] < left, other=0.0)
        acc = tl.dot(x, y, acc, input_precision=PRECISION)
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk
    inside = (i[:, None] < M) & (j[None, :] < N)
    tl.store(c + i[:, None] * stride_cm + j[None, :] * stride_cn, acc.to(c.dtype.element_ty), mask=inside)


@jit
def matmul_persistent(
    a, b, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    PRECISION: tl.constexpr, EVEN_K: tl.constexpr = False,
):  # fmt: skip
    """As matmul, with a program for each multiprocessor that walks over tiles: ``flatten`` lets the first
    loads of a tile start before the one before it is stored."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0), flatten=True):
        group = tile // (GROUP_M * tiles_n)
        first = group * GROUP_M
        rows = min(tiles_m - first, GROUP_M)
        pid_m = first + (tile % (GROUP_M * tiles_n)) % rows
        pid_n = (tile % (GROUP_M * tiles_n)) // rows
        i = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
        j = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
        a_tile = a + (i[:, None] % M) * stride_am + k[None, :] * stride_ak
        b_tile = b + k[:, None] * stride_bk + (j[None, :] % N) * stride_bn
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for step in range(0, tl.cdiv(K, BLOCK_K)):
            if EVEN_K:
                x = tl.load(a_tile)
                y = tl.load(b_tile)
            else:
                left = K - step * BLOCK_K
                x = tl.load(a_tile, mask=k[None, :] < left, other=0.0)
                y = tl.load(b_tile, mask=k[:, None] < left, other=0.0)
            acc = tl.dot(x, y, acc, input_precision=PRECISION)
            a_tile += BLOCK_K * stride_ak
            b_tile += BLOCK_K * stride_bk
        inside = (i[:, None] < M) & (j[None, :] < N)
        tl.store(c + i[:, None] * stride_cm + j[None, :] * stride_cn, acc.to(c.dtype.element_ty), mask=inside)


@jit
def matmul_int8(
    a, b, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """As matmul, of 8-bit integers with 32-bit sums; sizes are multiples of the tiles."""
    pid = tl.program_id(0)
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    group = pid // (GROUP_M * tiles_n)
    first = group * GROUP_M
    rows = min(tiles_m - first, GROUP_M)
    i = (first + (pid % (GROUP_M * tiles_n)) % rows) * BLOCK_M + tl.arange(0, BLOCK_M)
    j = (pid % (GROUP_M * tiles_n)) // rows * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a_tile = a + i[:, None] * stride_am + k[None, :] * stride_ak
    b_tile = b + k[:, None] * stride_bk + j[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.int32)
    for _ in range(0, K, BLOCK_K):
        acc = tl.dot(tl.load(a_tile), tl.load(b_tile), acc, out_dtype=tl.int32)
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk
    tl.store(c + i[:, None] * stride_cm + j[None, :] * stride_cn, acc)


@jit
def attention(
    q, k, v, out, scale, heads, length, stride_b, stride_h, stride_l,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """softmax(q kᵀ · scale) v for [batch, heads, length, D] tensors of equal strides; BLOCK_M rows of one
    head a program. ``scale`` includes log2(e): exponentials are powers of two. ``length`` is a multiple of
    both blocks."""
    start = tl.program_id(0) * BLOCK_M
    head = tl.program_id(1)
    base = (head // heads).to(tl.int64) * stride_b + (head % heads).to(tl.int64) * stride_h
    i = start + tl.arange(0, BLOCK_M)
    j = tl.arange(0, BLOCK_N)
    d = tl.arange(0, D)
    rows = tl.load(q + base + i[:, None] * stride_l + d[None, :])
    k_tile = k + base + j[None, :] * stride_l + d[:, None]
    v_tile = v + base + j[:, None] * stride_l + d[None, :]
    top = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    end = start if CAUSAL else length
    for _ in range(0, end, BLOCK_N):
        scores = tl.dot(rows, tl.load(k_tile))
        new_top = tl.maximum(top, tl.max(scores, 1) * scale)
        p = tl.exp2(scores * scale - new_top[:, None])
        shrink = tl.exp2(top - new_top)
        total = total * shrink + tl.sum(p, 1)
        acc = acc * shrink[:, None]
        acc = tl.dot(p.to(v.dtype.element_ty), tl.load(v_tile), acc)
        top = new_top
        k_tile += BLOCK_N * stride_l
        v_tile += BLOCK_N * stride_l
    if CAUSAL:
        for step in range(start, start + BLOCK_M, BLOCK_N):
            scores = tl.dot(rows, tl.load(k_tile))
            scores = tl.where(i[:, None] >= step + j[None, :], scores * scale, -1.0e6)
            new_top = tl.maximum(top, tl.max(scores, 1))
            p = tl.exp2(scores - new_top[:, None])
            shrink = tl.exp2(top - new_top)
            total = total * shrink + tl.sum(p, 1)
            acc = acc * shrink[:, None]
            acc = tl.dot(p.to(v.dtype.element_ty), tl.load(v_tile), acc)
            top = new_top
            k_tile += BLOCK_N * stride_l
            v_tile += BLOCK_N * stride_l
    acc = acc / total[:, None]
    tl.store(out + base + i[:, None] * stride_l + d[None, :], acc.to(out.dtype.element_ty))
