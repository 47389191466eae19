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
def matmul_descriptors(
    a_desc, b_desc, c_desc, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    B_IN_ROWS: tl.constexpr = False,
):  # fmt: skip
    """c[M, N] = a[M, K] @ b by tensor descriptors whose boxes are the tiles, over which programs walk. b is
    stored as [N, K], or as [K, N] with B_IN_ROWS."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0), flatten=True):
        group = tile // (GROUP_M * tiles_n)
        first = group * GROUP_M
        rows = min(tiles_m - first, GROUP_M)
        i = (first + (tile % (GROUP_M * tiles_n)) % rows) * BLOCK_M
        j = (tile % (GROUP_M * tiles_n)) // rows * BLOCK_N
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for step in range(0, tl.cdiv(K, BLOCK_K)):
            x = a_desc.load([i, step * BLOCK_K])
            if B_IN_ROWS:
                y = b_desc.load([step * BLOCK_K, j])
            else:
                y = b_desc.load([j, step * BLOCK_K]).T
            acc = tl.dot(x, y, acc)
        c_desc.store([i, j], acc.to(c_desc.dtype))


@jit
def matmul_split_k(
    a, b, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT_K: tl.constexpr,
    WAITS: tl.constexpr = False,
):  # fmt: skip
    """c += a @ b by SPLIT_K programs for each tile, each with every SPLIT_K-th step along k, for products of
    few tiles. c is zeros before, f32; BLOCK_K · SPLIT_K divides K. With WAITS the launch before makes the
    zeros, and may still be at it when this one starts."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    i = tl.program_id(0) // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
    j = tl.program_id(0) % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.program_id(1) * BLOCK_K + tl.arange(0, BLOCK_K)
    a_tile = a + (i[:, None] % M) * stride_am + k[None, :] * stride_ak
    b_tile = b + k[:, None] * stride_bk + (j[None, :] % N) * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(0, K, BLOCK_K * SPLIT_K):
        acc = tl.dot(tl.load(a_tile), tl.load(b_tile), acc)
        a_tile += BLOCK_K * SPLIT_K * stride_ak
        b_tile += BLOCK_K * SPLIT_K * stride_bk
    inside = (i[:, None] < M) & (j[None, :] < N)
    if WAITS:
        tl.extra.cuda.gdc_wait()
    tl.atomic_add(c + i[:, None] * stride_cm + j[None, :] * stride_cn, acc, mask=inside, sem="relaxed")


@jit
def zeros(c, n, BLOCK: tl.constexpr):
    """c = 0, n elements; the launch behind this one may start."""
    tl.extra.cuda.gdc_launch_dependents()
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(c + i, tl.zeros((BLOCK,), c.dtype.element_ty), mask=i < n)


@jit
def matmul_weights(
    a, w, scales, c, M, N, K, stride_am, stride_ak, stride_wk, stride_wn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    SPLIT_K: tl.constexpr = 1,
):  # fmt: skip
    """c = a @ (w · scales): w holds 8-bit numbers, which become those of a on their way; ``scales`` are for
    its columns. Sizes are multiples of the tiles. SPLIT_K programs for each tile add to c, zeros before."""
    pid = tl.program_id(0)
    tiles_n = tl.cdiv(N, BLOCK_N)
    group = pid // (GROUP_M * tiles_n)
    first = group * GROUP_M
    rows = min(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    i = (first + (pid % (GROUP_M * tiles_n)) % rows) * BLOCK_M + tl.arange(0, BLOCK_M)
    j = (pid % (GROUP_M * tiles_n)) // rows * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    if SPLIT_K > 1:
        k += tl.program_id(1) * BLOCK_K
    a_tile = a + i[:, None] * stride_am + k[None, :] * stride_ak
    w_tile = w + k[:, None] * stride_wk + j[None, :] * stride_wn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(0, K, BLOCK_K * SPLIT_K):
        x = tl.load(a_tile)
        acc = tl.dot(x, tl.load(w_tile).to(x.dtype), acc)
        a_tile += BLOCK_K * SPLIT_K * stride_ak
        w_tile += BLOCK_K * SPLIT_K * stride_wk
    acc = acc * tl.load(scales + j)[None, :]
    out = c + i[:, None] * stride_cm + j[None, :] * stride_cn
    if SPLIT_K > 1:
        tl.atomic_add(out, acc, sem="relaxed")
    else:
        tl.store(out, acc.to(c.dtype.element_ty))


@jit
def matmul_scaled(
    a, w, a_scales, w_scales, c, M, N, K, stride_am, stride_wn, stride_as, stride_ws, stride_cm,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ wᵀ of 8-bit floats, rows contiguous, with a scale (e8m0) for 32 neighbours along k of both;
    sizes are multiples of the tiles."""
    pid = tl.program_id(0)
    tiles_n = tl.cdiv(N, BLOCK_N)
    group = pid // (GROUP_M * tiles_n)
    first = group * GROUP_M
    rows = min(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    i = (first + (pid % (GROUP_M * tiles_n)) % rows) * BLOCK_M + tl.arange(0, BLOCK_M)
    j = (pid % (GROUP_M * tiles_n)) // rows * BLOCK_N + tl.arange(0, BLOCK_N)
    k, g = tl.arange(0, BLOCK_K), tl.arange(0, BLOCK_K // 32)
    a_tile = a + i[:, None] * stride_am + k[None, :]
    w_tile = w + k[:, None] + j[None, :] * stride_wn
    a_scale = a_scales + i[:, None] * stride_as + g[None, :]
    w_scale = w_scales + j[:, None] * stride_ws + g[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(0, K, BLOCK_K):
        s, t = tl.load(a_scale), tl.load(w_scale)
        acc = tl.dot_scaled(tl.load(a_tile), s, "e4m3", tl.load(w_tile), t, "e4m3", acc)
        a_tile += BLOCK_K
        w_tile += BLOCK_K
        a_scale += BLOCK_K // 32
        w_scale += BLOCK_K // 32
    tl.store(c + i[:, None] * stride_cm + j[None, :], acc.to(c.dtype.element_ty))


@jit
def matmul_kept(
    a, b, kept, c, M, N, K, stride_am, stride_bk, stride_cm,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b without the columns of a for which ``kept``, a byte for each, is 0. Rows are contiguous,
    sizes multiples of the tiles."""
    pid = tl.program_id(0)
    tiles_n = tl.cdiv(N, BLOCK_N)
    group = pid // (GROUP_M * tiles_n)
    first = group * GROUP_M
    rows = min(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    i = (first + (pid % (GROUP_M * tiles_n)) % rows) * BLOCK_M + tl.arange(0, BLOCK_M)
    j = (pid % (GROUP_M * tiles_n)) // rows * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        x = tl.load(a + i[:, None] * stride_am + (start + k)[None, :])
        y = tl.load(b + (start + k)[:, None] * stride_bk + j[None, :])
        acc = tl.dot(tl.where(tl.load(kept + start + k)[None, :] != 0, x, 0.0), y, acc)
    tl.store(c + i[:, None] * stride_cm + j[None, :], acc.to(c.dtype.element_ty))


@jit
def matmul_int4(
    a, w, scales, c, M, N, K, stride_am, stride_wn, stride_sg, stride_cm,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    GROUP_K: tl.constexpr, TURNED: tl.constexpr = False, SPLIT_K: tl.constexpr = 1,
):  # fmt: skip
    """c = a @ wᵀ, rows contiguous: w holds 4-bit numbers plus 8, two neighbours along k in a byte, the first
    in its low bits; ``scales``, [K / GROUP_K, N], are for GROUP_K of a column of c each. BLOCK_K divides
    GROUP_K, sizes are multiples of the tiles. TURNED: cᵀ = w @ aᵀ is computed. SPLIT_K as above."""
    pid = tl.program_id(0)
    tiles_n = tl.cdiv(N, BLOCK_N)
    group = pid // (GROUP_M * tiles_n)
    first = group * GROUP_M
    rows = min(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    i = (first + (pid % (GROUP_M * tiles_n)) % rows) * BLOCK_M + tl.arange(0, BLOCK_M)
    j = (pid % (GROUP_M * tiles_n)) // rows * BLOCK_N + tl.arange(0, BLOCK_N)
    begin = 0
    if SPLIT_K > 1:
        begin = tl.program_id(1) * BLOCK_K
    a_tile = a + i[:, None] * stride_am + begin + tl.arange(0, BLOCK_K)[None, :]
    w_tile = w + j[:, None] * stride_wn + begin // 2 + tl.arange(0, BLOCK_K // 2)[None, :]
    if TURNED:
        acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    else:
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(begin, K, BLOCK_K * SPLIT_K):
        x = tl.load(a_tile)
        pairs = tl.load(w_tile)
        scale = tl.load(scales + step // GROUP_K * stride_sg + j)
        q = tl.join(pairs & 15, pairs >> 4).reshape(BLOCK_N, BLOCK_K)
        y = (q.to(x.dtype) - 8) * scale[:, None]
        if TURNED:
            acc = tl.dot(y, x.T, acc)
        else:
            acc = tl.dot(x, y.T, acc)
        a_tile += BLOCK_K * SPLIT_K
        w_tile += BLOCK_K // 2 * SPLIT_K
    if TURNED:
        acc = acc.T
    out = c + i[:, None] * stride_cm + j[None, :]
    if SPLIT_K > 1:
        tl.atomic_add(out, acc, sem="relaxed")
    else:
        tl.store(out, acc.to(c.dtype.element_ty))


@jit
def grouped_matmul(
    a_pointers, b_pointers, c_pointers, sizes, strides, groups,
    PROGRAMS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Products of several sizes: the operands' and results' addresses, the sizes (M, N, K) and the distances
    of rows (of a, b, c) of each are read from memory. PROGRAMS programs walk over the tiles of all of them;
    sizes are multiples of the tiles."""
    tile = tl.program_id(0)
    begin = 0
    for g in range(groups):
        M = tl.load(sizes + g * 3)
        N = tl.load(sizes + g * 3 + 1)
        K = tl.load(sizes + g * 3 + 2)
        tiles_n = tl.cdiv(N, BLOCK_N)
        tiles = tl.cdiv(M, BLOCK_M) * tiles_n
        while tile >= begin and tile < begin + tiles:
            stride_a = tl.load(strides + g * 3)
            stride_b = tl.load(strides + g * 3 + 1)
            stride_c = tl.load(strides + g * 3 + 2)
            a = tl.load(a_pointers + g).to(tl.pointer_type(tl.float16))
            b = tl.load(b_pointers + g).to(tl.pointer_type(tl.float16))
            c = tl.load(c_pointers + g).to(tl.pointer_type(tl.float16))
            i = (tile - begin) // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
            j = (tile - begin) % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
            k = tl.arange(0, BLOCK_K)
            a_tile = a + i[:, None] * stride_a + k[None, :]
            b_tile = b + k[:, None] * stride_b + j[None, :]
            acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
            for _ in range(0, tl.cdiv(K, BLOCK_K)):
                a_tile = tl.multiple_of(a_tile, [16, 16])
                b_tile = tl.multiple_of(b_tile, [16, 16])
                x = tl.load(a_tile)
                y = tl.load(b_tile)
                acc += tl.dot(x, y)
                a_tile += BLOCK_K
                b_tile += BLOCK_K * stride_b
            tl.store(c + i[:, None] * stride_c + j[None, :], acc.to(tl.float16))
            tile += PROGRAMS
        begin += tiles


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
    block = tl.num_programs(0) - 1 - tl.program_id(0) if CAUSAL else tl.program_id(0)  # the longest first
    start = block * BLOCK_M
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


@jit
def attention_one_loop(
    q, k, v, out, scale, heads, length, stride_b, stride_h, stride_l,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """As ``attention`` with ``CAUSAL``, by a mask in one loop over all blocks of keys."""
    start = (tl.num_programs(0) - 1 - tl.program_id(0)) * BLOCK_M
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
    for step in range(0, start + BLOCK_M, BLOCK_N):
        scores = tl.dot(rows, tl.load(k_tile))
        scores = tl.where(i[:, None] >= step + j[None, :], scores, -float("inf"))
        new_top = tl.maximum(top, tl.max(scores, 1) * scale)
        p = tl.exp2(scores * scale - new_top[:, None])
        shrink = tl.exp2(top - new_top)
        total = total * shrink + tl.sum(p, 1)
        acc = acc * shrink[:, None]
        acc = tl.dot(p.to(v.dtype.element_ty), tl.load(v_tile), acc)
        top = new_top
        k_tile += BLOCK_N * stride_l
        v_tile += BLOCK_N * stride_l
    acc = acc / total[:, None]
    tl.store(out + base + i[:, None] * stride_l + d[None, :], acc.to(out.dtype.element_ty))


@jit
def attention_deltas(
    out, d_out, delta, heads, length, stride_b, stride_h, stride_l, BLOCK_M: tl.constexpr, D: tl.constexpr
):
    """``delta``, [batch · heads, length]: the sums of ``out · d_out`` along rows, for ``attention``'s
    gradients."""
    head = tl.program_id(1)
    base = (head // heads).to(tl.int64) * stride_b + (head % heads).to(tl.int64) * stride_h
    i = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    at = base + i[:, None] * stride_l + tl.arange(0, D)[None, :]
    products = tl.load(out + at).to(tl.float32) * tl.load(d_out + at).to(tl.float32)
    tl.store(delta + head * length + i, tl.sum(products, 1))


@jit
def _columns_of_gradients(
    acc_k, acc_v, keys, values, q, d_out, lse, delta, begin, end, j, log2_scale, stride_l,
    STEP_M: tl.constexpr, D: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Add what the rows begin … end contribute to a block of columns. Scores are made transposed."""
    m = tl.arange(0, STEP_M)
    d = tl.arange(0, D)
    for step in range(begin, end, STEP_M):
        i = step + m
        rows = tl.load(q + i[:, None] * stride_l + d[None, :])
        scores = tl.dot(keys, tl.trans(rows))
        p = tl.exp2(scores * log2_scale - tl.load(lse + i)[None, :])
        if MASKED:
            p = tl.where(i[None, :] >= j[:, None], p, 0.0)
        d_rows = tl.load(d_out + i[:, None] * stride_l + d[None, :])
        acc_v = tl.dot(p.to(rows.dtype), d_rows, acc_v)
        d_p = tl.dot(values, tl.trans(d_rows))
        d_s = p * (d_p - tl.load(delta + i)[None, :])
        acc_k = tl.dot(d_s.to(rows.dtype), rows, acc_k)
    return acc_k, acc_v


@jit
def attention_columns(
    q, k, v, d_out, lse, delta, d_k, d_v, scale, log2_scale, heads, length, stride_b, stride_h, stride_l,
    BLOCK_N: tl.constexpr, STEP_M: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """The gradients of k and v, BLOCK_N columns of one head a program, from those of ``attention``'s result,
    its rows' logarithms of sums (base 2) ``lse``, and ``delta`` (see above)."""
    start = tl.program_id(0) * BLOCK_N
    head = tl.program_id(1)
    base = (head // heads).to(tl.int64) * stride_b + (head % heads).to(tl.int64) * stride_h
    j = start + tl.arange(0, BLOCK_N)
    at = base + j[:, None] * stride_l + tl.arange(0, D)[None, :]
    keys = tl.load(k + at)
    values = tl.load(v + at)
    acc_k = tl.zeros((BLOCK_N, D), tl.float32)
    acc_v = tl.zeros((BLOCK_N, D), tl.float32)
    q += base
    d_out += base
    lse += head * length
    delta += head * length
    begin = 0
    if CAUSAL:
        begin = start + BLOCK_N
        acc_k, acc_v = _columns_of_gradients(
            acc_k, acc_v, keys, values, q, d_out, lse, delta, start, begin, j, log2_scale, stride_l,
            STEP_M, D, True,
        )  # fmt: skip
    acc_k, acc_v = _columns_of_gradients(
        acc_k, acc_v, keys, values, q, d_out, lse, delta, begin, length, j, log2_scale, stride_l,
        STEP_M, D, False,
    )  # fmt: skip
    tl.store(d_k + at, (acc_k * scale).to(d_k.dtype.element_ty))
    tl.store(d_v + at, acc_v.to(d_v.dtype.element_ty))


@jit
def _rows_of_gradients(
    acc, rows, d_rows, row_lse, row_delta, k, v, begin, end, i, log2_scale, stride_l,
    STEP_N: tl.constexpr, D: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Add what the columns begin … end contribute to a block of rows."""
    n = tl.arange(0, STEP_N)
    d = tl.arange(0, D)
    for step in range(begin, end, STEP_N):
        at = (step + n)[:, None] * stride_l + d[None, :]
        keys = tl.load(k + at)
        p = tl.exp2(tl.dot(rows, tl.trans(keys)) * log2_scale - row_lse[:, None])
        if MASKED:
            p = tl.where(i[:, None] >= (step + n)[None, :], p, 0.0)
        d_p = tl.dot(d_rows, tl.trans(tl.load(v + at)))
        d_s = p * (d_p - row_delta[:, None])
        acc = tl.dot(d_s.to(keys.dtype), keys, acc)
    return acc


@jit
def attention_rows(
    q, k, v, d_out, lse, delta, d_q, scale, log2_scale, heads, length, stride_b, stride_h, stride_l,
    BLOCK_M: tl.constexpr, STEP_N: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """The gradient of q, BLOCK_M rows of one head a program."""
    start = tl.program_id(0) * BLOCK_M
    head = tl.program_id(1)
    base = (head // heads).to(tl.int64) * stride_b + (head % heads).to(tl.int64) * stride_h
    i = start + tl.arange(0, BLOCK_M)
    at = base + i[:, None] * stride_l + tl.arange(0, D)[None, :]
    rows = tl.load(q + at)
    d_rows = tl.load(d_out + at)
    row_lse = tl.load(lse + head * length + i)
    row_delta = tl.load(delta + head * length + i)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    end = start if CAUSAL else length
    k += base
    v += base
    acc = _rows_of_gradients(
        acc, rows, d_rows, row_lse, row_delta, k, v, 0, end, i, log2_scale, stride_l, STEP_N, D, False
    )
    if CAUSAL:
        end = start + BLOCK_M
        acc = _rows_of_gradients(
            acc, rows, d_rows, row_lse, row_delta, k, v, start, end, i, log2_scale, stride_l, STEP_N, D, True
        )
    tl.store(d_q + at, (acc * scale).to(d_q.dtype.element_ty))


@jit
def _gradients_of_block(
    acc_k, acc_v, keys, values, q, d_out, lse, delta, d_q, first, begin, end, j, log2_scale, stride_l,
    STEP_M: tl.constexpr, D: tl.constexpr, MASKED: tl.constexpr, STAGES: tl.constexpr,
    SPECIALIZED: tl.constexpr,
):  # fmt: skip
    """Add what the rows begin … end contribute to a block of columns, and what that contributes to these
    rows, which are those from ``first`` on of ``d_q``."""
    m = tl.arange(0, STEP_M)
    d = tl.arange(0, D)
    for step in tl.range(begin, end, STEP_M, num_stages=STAGES, warp_specialize=SPECIALIZED):
        i = step + m
        rows = tl.load(q + i[:, None] * stride_l + d[None, :])
        scores = tl.dot(keys, tl.trans(rows))
        p = tl.exp2(scores * log2_scale - tl.load(lse + i)[None, :])
        if MASKED:
            p = tl.where(i[None, :] >= j[:, None], p, 0.0)
        d_rows = tl.load(d_out + i[:, None] * stride_l + d[None, :])
        acc_v = tl.dot(p.to(rows.dtype), d_rows, acc_v)
        d_p = tl.dot(values, tl.trans(d_rows))
        d_s = (p * (d_p - tl.load(delta + i)[None, :])).to(rows.dtype)
        acc_k = tl.dot(d_s, rows, acc_k)
        d_q.atomic_add([first + step, 0], tl.dot(tl.trans(d_s), keys))
    return acc_k, acc_v


@jit
def attention_gradients(
    q, k, v, d_out, lse, delta, d_q, d_k, d_v, scale, log2_scale, heads, length, stride_b, stride_h, stride_l,
    BLOCK_N: tl.constexpr, STEP_M: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr, STAGES: tl.constexpr,
    SPECIALIZED: tl.constexpr = False,
):  # fmt: skip
    """All three gradients, of five products for each pair of blocks: those of ``attention_columns``, and that
    of q, to which all programs of a head add. ``d_q`` is a descriptor of f32, [batch · heads · length, D],
    that begins at zero; ``scaled_gradients`` makes the result of it."""
    tl.assume(length >= 0)
    start = tl.program_id(0) * BLOCK_N
    head = tl.program_id(1)
    base = (head // heads).to(tl.int64) * stride_b + (head % heads).to(tl.int64) * stride_h
    first = head * length
    j = start + tl.arange(0, BLOCK_N)
    at = base + j[:, None] * stride_l + tl.arange(0, D)[None, :]
    keys = tl.load(k + at)
    values = tl.load(v + at)
    acc_k = tl.zeros((BLOCK_N, D), tl.float32)
    acc_v = tl.zeros((BLOCK_N, D), tl.float32)
    q += base
    d_out += base
    lse += first
    delta += first
    begin = 0
    if CAUSAL:
        begin = start + BLOCK_N
        acc_k, acc_v = _gradients_of_block(
            acc_k, acc_v, keys, values, q, d_out, lse, delta, d_q, first, start, begin, j, log2_scale,
            stride_l, STEP_M, D, True, STAGES, SPECIALIZED,
        )  # fmt: skip
    acc_k, acc_v = _gradients_of_block(
        acc_k, acc_v, keys, values, q, d_out, lse, delta, d_q, first, begin, length, j, log2_scale, stride_l,
        STEP_M, D, False, STAGES, SPECIALIZED,
    )  # fmt: skip
    tl.store(d_k + at, (acc_k * scale).to(d_k.dtype.element_ty))
    tl.store(d_v + at, acc_v.to(d_v.dtype.element_ty))


@jit
def scaled_gradients(out, sums, scale, stride_l, BLOCK_M: tl.constexpr, D: tl.constexpr):
    """``out = sums · scale``, rows of D elements each, those of ``sums`` one after the other."""
    i = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    d = tl.arange(0, D)
    x = tl.load(sums + i[:, None] * D + d[None, :]) * scale
    tl.store(out + i[:, None] * stride_l + d[None, :], x.to(out.dtype.element_ty))


@jit
def paged_decode(
    q, k, v, table, partial, sums, scale, length, heads, table_stride, stride_page, stride_token, stride_head,
    GROUP: tl.constexpr, BLOCK_G: tl.constexpr, BLOCK_N: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr,
    SPLITS: tl.constexpr,
):  # fmt: skip
    """Attention of one query for each sequence over keys and values in pages: program (s, h, split) has
    GROUP queries [GROUP, D] that share the head h of k and v, and one of SPLITS parts of the sequence.

    ``table`` has the page of each PAGE tokens, k and v are [pages, PAGE, heads, D]. Leaves the part's result
    in ``partial`` and the logarithm (base 2) of its sum of exponentials in ``sums``, f32. ``scale`` includes
    log2(e); BLOCK_N · SPLITS divides ``length``."""
    sequence = tl.program_id(0)
    head = tl.program_id(1)
    split = tl.program_id(2)
    row = sequence * heads + head
    g = tl.arange(0, BLOCK_G)
    n = tl.arange(0, BLOCK_N)
    d = tl.arange(0, D)
    inside = (g < GROUP)[:, None]
    queries = tl.load(q + (row * GROUP + g[:, None]) * D + d[None, :], mask=inside, other=0.0)
    top = tl.full((BLOCK_G,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK_G,), tl.float32)
    acc = tl.zeros((BLOCK_G, D), tl.float32)
    part = length // SPLITS
    for step in range(split * part, split * part + part, BLOCK_N):
        token = step + n
        page = tl.load(table + sequence * table_stride + token // PAGE).to(tl.int64)
        at = page * stride_page + token % PAGE * stride_token + head * stride_head
        scores = tl.dot(queries, tl.load(k + at[None, :] + d[:, None])) * scale
        new_top = tl.maximum(top, tl.max(scores, 1))
        p = tl.exp2(scores - new_top[:, None])
        shrink = tl.exp2(top - new_top)
        total = total * shrink + tl.sum(p, 1)
        values = tl.load(v + at[:, None] + d[None, :])
        acc = tl.dot(p.to(values.dtype), values, acc * shrink[:, None])
        top = new_top
    where = (row * SPLITS + split) * GROUP + g
    tl.store(partial + where[:, None] * D + d[None, :], acc / total[:, None], mask=inside)
    tl.store(sums + where, top + tl.log2(total), mask=g < GROUP)


@jit
def merge_parts(partial, sums, out, GROUP: tl.constexpr, D: tl.constexpr, SPLITS: tl.constexpr):
    """Puts the parts of ``paged_decode`` together: program (row, g) makes one query's result."""
    row = tl.program_id(0)
    g = tl.program_id(1)
    where = (row * SPLITS + tl.arange(0, SPLITS)) * GROUP + g
    d = tl.arange(0, D)
    logs = tl.load(sums + where)
    weights = tl.exp2(logs - tl.max(logs, 0))
    values = tl.load(partial + where[:, None] * D + d[None, :])
    result = tl.sum(values * weights[:, None], 0) / tl.sum(weights, 0)
    tl.store(out + (row * GROUP + g) * D + d, result.to(out.dtype.element_ty))
