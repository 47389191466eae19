"""Every function of the language, interpreted and compared with numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest

import ptxforge.language as tl
from ptxforge.frontend.semantics.registry import SEMANTICS
from ptxforge.language.registry import library as jit

RNG = np.random.default_rng(1)


def floats(*shape: int, dtype=np.float32) -> np.ndarray:
    return RNG.normal(size=shape).astype(dtype)


# -- memory ------------------------------------------------------------------------------------------------


def masked_copy(out, x, n):
    i = tl.arange(0, 16)
    value = tl.load(x + i, mask=i < n, other=-1.0, cache_modifier=".cg", eviction_policy="evict_first")
    tl.store(out + i, value, mask=i < 12, cache_modifier=".wt", eviction_policy="evict_last")


def test_masks_and_other(interpret, ir):
    x, out = floats(16), np.zeros(16, np.float32)
    interpret(masked_copy, out, x, 5)
    assert out.tolist() == [*x[:5].tolist(), *[-1.0] * 7, *[0.0] * 4]
    text = ir(masked_copy, {"out": "*fp32", "x": "*fp32", "n": "i32"})
    assert 'cache = ".cg", eviction = "evict_first"' in text
    assert 'cache = ".wt", eviction = "evict_last"' in text


def scalar_memory(out, x, n):
    value = tl.load(x + 1, mask=n > 0, other=7)
    tl.store(out, value)
    tl.store(out + 1 + tl.arange(0, 2), value)


def test_scalar_pointers(interpret):
    out = np.zeros(3, np.int32)
    interpret(scalar_memory, out, np.array([4, 5], np.int32), 1000)
    assert out.tolist() == [5, 5, 5]
    interpret(scalar_memory, out, np.array([4, 5], np.int32), -1000)
    assert out.tolist() == [7, 7, 7]


def broadcast_mask(out, x, n):
    i, j = tl.arange(0, 4)[:, None], tl.arange(0, 8)[None, :]
    tl.store(out + i * 8 + j, tl.load(x + i * 8 + j, mask=i < n, other=0), mask=j < 6)


def test_masks_broadcast(interpret):
    x, out = np.arange(32, dtype=np.int32).reshape(4, 8), np.zeros((4, 8), np.int32)
    interpret(broadcast_mask, out, x, np.int32(2))
    expected = np.where(np.arange(4)[:, None] < 2, x, 0) * (np.arange(8) < 6)
    assert (out == expected).all()


def volatile(out, x):
    tl.load(x, volatile=True)
    tl.store(out, tl.load(x + 0, volatile=True))


def test_volatile(ir):
    assert ir(volatile, {"out": "*i32", "x": "*i32"}).count("volatile = true") == 2


# -- creation ----------------------------------------------------------------------------------------------


def creation(out, n):
    a = tl.zeros([2, 4], tl.int32)
    b = tl.full((2, 4), n, tl.int32) + tl.full([2, 4], 3, tl.int32)
    c = tl.zeros_like(b) + tl.arange(4, 8)[None, :]
    tl.store(out + tl.arange(0, 2)[:, None] * 4 + tl.arange(0, 4)[None, :], a + b + c)


def test_creation(interpret):
    out = np.zeros((2, 4), np.int32)
    interpret(creation, out, 10)
    assert (out == 13 + np.arange(4, 8)).all()


def grid_info(out):
    index = tl.program_id(0) + 2 * (tl.program_id(1) + 3 * tl.program_id(axis=2))
    tl.store(out + index, tl.num_programs(0) + 10 * tl.num_programs(1) + 100 * tl.num_programs(2))


def test_grid(interpret):
    out = np.zeros(24, np.int32)
    interpret(grid_info, out, grid=(2, 3, 4))
    assert (out == 432).all()


# -- shapes ------------------------------------------------------------------------------------------------


def shapes(out, x, WHAT: tl.constexpr):
    i = tl.arange(0, 4)[:, None] * 8 + tl.arange(0, 8)[None, :]
    a = tl.load(x + i)
    if WHAT == "trans":
        r = tl.trans(a)
    elif WHAT == "T":
        r = a.T
    elif WHAT == "permute":
        r = tl.reshape(a, [2, 2, 8]).permute(2, 0, 1)
    elif WHAT == "permute list":
        r = tl.permute(a, (1, 0))
    elif WHAT == "reshape":
        r = a.reshape(2, 16)
    elif WHAT == "view":
        r = a.view([16, 2])
    elif WHAT == "ravel":
        r = tl.ravel(a)
    elif WHAT == "join":
        r = tl.join(a, a * 2)
    elif WHAT == "split":
        left, right = tl.split(tl.reshape(a, [4, 4, 2]))
        r = left - right
    elif WHAT == "interleave":
        r = tl.interleave(a, -a)
    elif WHAT == "cat":
        r = tl.cat(a, a + 1)
    elif WHAT == "cat dim":
        r = tl.cat(a, a + 1, dim=1)
    elif WHAT == "flip":
        r = tl.flip(a)
    elif WHAT == "flip 0":
        r = a.flip(0)
    elif WHAT == "expand":
        r = tl.expand_dims(a, (0, -1))
    elif WHAT == "unsqueeze":
        r = tl.unsqueeze(a, 1)
    elif WHAT == "squeeze":
        r = tl.squeeze(a[:, None, :], 1)
    elif WHAT == "broadcast":
        r = tl.broadcast_to(a[None, :, :], 2, 4, 8)
    elif WHAT == "broadcast both":
        p, q = tl.broadcast(tl.arange(0, 4)[:, None], tl.arange(0, 8)[None, :])
        r = p * 100 + q
    elif WHAT == "gather":
        r = tl.gather(a, (tl.arange(0, 8)[None, :] * 3 + tl.arange(0, 4)[:, None]) % 8, axis=1)
    elif WHAT == "gather 0":
        r = a.gather(tl.broadcast_to(3 - tl.arange(0, 4)[:, None], [4, 8]), 0)
    else:
        r = tl.histogram(tl.ravel(a) & 7, 8)
    flat = tl.ravel(r)
    tl.store(out + tl.arange(0, flat.shape[0]), flat)


X = np.arange(32, dtype=np.int32).reshape(4, 8)
SHAPES = {
    "trans": X.T,
    "T": X.T,
    "permute": X.reshape(2, 2, 8).transpose(2, 0, 1),
    "permute list": X.T,
    "reshape": X,
    "view": X,
    "ravel": X,
    "join": np.stack([X, X * 2], -1),
    "split": np.full((4, 4), -1),
    "interleave": np.stack([X, -X], -1),
    "cat": np.concatenate([X, X + 1]),
    "cat dim": np.concatenate([X, X + 1], 1),
    "flip": X[:, ::-1],
    "flip 0": X[::-1],
    "expand": X,
    "unsqueeze": X,
    "squeeze": X,
    "broadcast": np.stack([X, X]),
    "broadcast both": np.arange(4)[:, None] * 100 + np.arange(8),
    "gather": np.take_along_axis(X, (np.arange(8) * 3 + np.arange(4)[:, None]) % 8, 1),
    "gather 0": X[::-1],
    "histogram": np.full(8, 4),
}


@pytest.mark.parametrize("what", SHAPES)
def test_shapes(interpret, what):
    expected = np.ravel(SHAPES[what])
    out = np.zeros(expected.size, np.int32)
    interpret(shapes, out, X, WHAT=what)
    assert out.tolist() == expected.tolist()


def small_shapes(out, x):
    a, b = tl.split(tl.load(x + tl.arange(0, 2)))
    pair = tl.join(b, a)
    tl.store(out + tl.arange(0, 2), pair)
    tl.store(out + 2, tl.load(x + tl.arange(0, 1)).item())
    tl.store(out + 3 + tl.arange(0, 4), tl.histogram(tl.arange(0, 8), 4, mask=tl.arange(0, 8) < 3))


def test_scalars_and_pairs(interpret):
    out = np.zeros(7, np.int32)
    interpret(small_shapes, out, np.array([5, 6], np.int32))
    assert out.tolist() == [6, 5, 5, 1, 1, 1, 0]


# -- reductions --------------------------------------------------------------------------------------------


def reductions(out, x, WHAT: tl.constexpr, AXIS: tl.constexpr, KEEP: tl.constexpr):
    a = tl.load(x + tl.arange(0, 4)[:, None] * 8 + tl.arange(0, 8)[None, :])
    if WHAT == "sum":
        r = tl.sum(a, AXIS, keep_dims=KEEP)
    elif WHAT == "max":
        r = a.max(axis=AXIS, keep_dims=KEEP)
    elif WHAT == "min":
        r = tl.min(a, axis=AXIS, keep_dims=KEEP)
    elif WHAT == "argmax":
        r = tl.argmax(a, AXIS, keep_dims=KEEP)
    elif WHAT == "argmin":
        r = tl.argmin(a, AXIS, tie_break_left=True, keep_dims=KEEP)
    elif WHAT == "xor":
        r = tl.xor_sum(a, AXIS, keep_dims=KEEP)
    elif WHAT == "or":
        r = tl.reduce_or(a, AXIS, keep_dims=KEEP)
    else:
        r = tl.max(a, AXIS, return_indices=True, keep_dims=KEEP)[1]
    tl.static_assert(KEEP == (len(r.shape) == 2))
    flat = tl.reshape(r, [r.numel])
    tl.store(out + tl.arange(0, r.numel), flat)


REDUCTIONS = {
    "sum": np.sum, "max": np.max, "min": np.min, "argmax": np.argmax, "argmin": np.argmin,
    "xor": np.bitwise_xor.reduce, "or": np.bitwise_or.reduce, "max index": np.argmax,
}  # fmt: skip


@pytest.mark.parametrize("axis", [0, 1, -1, None])
@pytest.mark.parametrize("what", REDUCTIONS)
def test_reductions(interpret, what, axis):
    x = RNG.integers(-9, 9, (4, 8)).astype(np.int32)
    for keep in (False, True):
        source = x.ravel() if axis is None and what in ("xor", "or") else x
        expected = np.ravel(REDUCTIONS[what](source, axis=0 if source.ndim == 1 else axis))
        out = np.zeros(expected.size, np.int32)
        interpret(reductions, out, x, WHAT=what, AXIS=axis, KEEP=keep)
        assert out.tolist() == expected.tolist()


def wide_sums(out, x):
    i = tl.arange(0, 64)
    tl.store(out, tl.sum(tl.load(x + i)))
    tl.store(out + 1, tl.sum(tl.load(x + i), dtype=tl.int64) * (1 << 30))


def test_small_integers_are_summed_in_32_bits(interpret):
    out = np.zeros(2, np.int64)
    interpret(wide_sums, out, np.full(64, 127, np.int8))
    assert out.tolist() == [64 * 127, 64 * 127 << 30]


def bfloat_sum(out, x):
    tl.store(out, tl.sum(tl.load(x + tl.arange(0, 512))))


def test_bfloat16_is_summed_in_float32(interpret):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    out = np.zeros(1, ml_dtypes.bfloat16)
    interpret(bfloat_sum, out, np.ones(512, ml_dtypes.bfloat16))
    assert float(out[0]) == 512


@jit
def larger(a, i, b, j):
    take = (a > b) | ((a == b) & (i < j))
    return tl.where(take, a, b), tl.where(take, i, j)


@jit
def product(a, b):
    return a * b


@jit
def affine(a1, b1, a2, b2):
    return a1 * a2, a2 * b1 + b2


def user_functions(out, where, x, y):
    i = tl.arange(0, 8)
    best, position = tl.reduce((tl.load(x + i), i), 0, larger)
    tl.store(out, best)
    tl.store(where, position)
    tl.store(out + 1, tl.reduce(tl.load(x + i), axis=0, combine_fn=product))
    _, h = tl.associative_scan((tl.load(x + i), tl.load(y + i)), 0, affine)
    tl.store(out + 2 + i, h)


def test_user_functions_combine(interpret):
    x, y = floats(8, dtype=np.float64), floats(8, dtype=np.float64)
    out, where = np.zeros(10), np.zeros(1, np.int32)
    interpret(user_functions, out, where, x, y)
    h, states = 0.0, []
    for a, b in zip(x, y):
        h = a * h + b
        states.append(h)
    np.testing.assert_allclose(out, [x.max(), x.prod(), *states], rtol=1e-12)
    assert where[0] == x.argmax()


def scans(out, x, WHAT: tl.constexpr, AXIS: tl.constexpr, REVERSE: tl.constexpr):
    i = tl.arange(0, 4)[:, None] * 8 + tl.arange(0, 8)[None, :]
    a = tl.load(x + i)
    r = tl.cumsum(a, AXIS, reverse=REVERSE) if WHAT == "sum" else tl.cumprod(a, AXIS, REVERSE)
    tl.store(out + i, r)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("what", ["sum", "prod"])
def test_scans(interpret, what, axis, reverse):
    x, out = floats(4, 8, dtype=np.float64), np.zeros((4, 8))
    interpret(scans, out, x, WHAT=what, AXIS=axis, REVERSE=reverse)
    function = np.cumsum if what == "sum" else np.cumprod
    source = np.flip(x, axis) if reverse else x
    expected = function(source, axis=axis)
    np.testing.assert_allclose(out, np.flip(expected, axis) if reverse else expected)


# -- arithmetic and mathematics ----------------------------------------------------------------------------


def mathematics(out, x, WHAT: tl.constexpr):
    i = tl.arange(0, 16)
    a = tl.load(x + i)
    if WHAT == "exp":
        r = tl.exp(a)
    elif WHAT == "exp2":
        r = tl.math.exp2(a)
    elif WHAT == "log":
        r = tl.log(a)
    elif WHAT == "log2":
        r = a.log2()
    elif WHAT == "sin":
        r = tl.sin(a)
    elif WHAT == "cos":
        r = tl.cos(a)
    elif WHAT == "tan":
        r = tl.math.tan(a)
    elif WHAT == "tanh":
        r = tl.math.tanh(a)
    elif WHAT == "erf":
        r = tl.erf(a)
    elif WHAT == "sqrt":
        r = tl.sqrt(a)
    elif WHAT == "sqrt_rn":
        r = tl.sqrt_rn(a)
    elif WHAT == "rsqrt":
        r = tl.rsqrt(a)
    elif WHAT == "floor":
        r = tl.floor(a)
    elif WHAT == "ceil":
        r = tl.ceil(a)
    elif WHAT == "trunc":
        r = tl.math.trunc(-a)
    elif WHAT == "rint":
        r = tl.math.rint(a)
    elif WHAT == "abs":
        r = tl.abs(-a)
    elif WHAT == "builtin abs":
        r = abs(-a)
    elif WHAT == "pow":
        r = tl.math.pow(a, 1.5)
    elif WHAT == "fma":
        r = tl.fma(a, 2.0, a)
    elif WHAT == "fdiv":
        r = tl.fdiv(a, 3.0)
    elif WHAT == "div_rn":
        r = tl.div_rn(1.0, a)
    elif WHAT == "sigmoid":
        r = tl.sigmoid(a)
    elif WHAT == "softmax":
        r = tl.softmax(a)
    elif WHAT == "clamp":
        r = tl.clamp(a, 0.5, 1.0)
    elif WHAT == "minimum":
        r = tl.minimum(a, 1.0)
    elif WHAT == "maximum":
        r = tl.maximum(1.0, a)
    elif WHAT == "builtins":
        r = max(min(a, 1.0), 0.5, 0.25)
    elif WHAT == "expect_zero":
        r = tl.expect_zero(a, i < 4)
    else:
        r = tl.mul(tl.add(a, 1.0), tl.sub(a, 1.0))
    tl.store(out + i, r)


MATHEMATICS = {
    "exp": np.exp, "exp2": np.exp2, "log": np.log, "log2": np.log2, "sin": np.sin, "cos": np.cos,
    "tan": np.tan,
    "tanh": np.tanh, "erf": np.vectorize(math.erf), "sqrt": np.sqrt, "sqrt_rn": np.sqrt,
    "rsqrt": lambda a: 1 / np.sqrt(a), "floor": np.floor, "ceil": np.ceil, "trunc": lambda a: np.trunc(-a),
    "rint": np.rint, "abs": np.abs, "builtin abs": np.abs, "pow": lambda a: a**1.5, "fma": lambda a: a * 3,
    "fdiv": lambda a: a / 3, "div_rn": lambda a: 1 / a, "sigmoid": lambda a: 1 / (1 + np.exp(-a)),
    "softmax": lambda a: np.exp(a) / np.exp(a).sum(), "clamp": lambda a: a.clip(0.5, 1),
    "minimum": lambda a: np.minimum(a, 1), "maximum": lambda a: np.maximum(a, 1),
    "builtins": lambda a: a.clip(0.5, 1), "expect_zero": lambda a: np.where(np.arange(16) < 4, a, 0),
    "functions": lambda a: (a + 1) * (a - 1),
}  # fmt: skip


@pytest.mark.parametrize("what", MATHEMATICS)
def test_mathematics(interpret, what):
    x, out = np.abs(floats(16)) + 0.1, np.zeros(16, np.float32)
    interpret(mathematics, out, x, WHAT=what)
    np.testing.assert_allclose(out, MATHEMATICS[what](x.astype(np.float64)), rtol=2e-6)


def nan_rules(out, x):
    i = tl.arange(0, 2)
    a = tl.load(x + i)
    tl.store(out + i, tl.minimum(a, 1.0))
    tl.store(out + 2 + i, tl.maximum(a, 1.0, propagate_nan=tl.PropagateNan.ALL))
    tl.store(out + 4 + i, tl.clamp(a, 0.0, 1.0, tl.PropagateNan.ALL))
    tl.store(out + 6 + i, tl.clamp(a, 0.0, 1.0))


def test_nans(interpret):
    out = np.zeros(8, np.float32)
    interpret(nan_rules, out, np.array([np.nan, 5], np.float32))
    np.testing.assert_array_equal(out, [1, 1, np.nan, 5, np.nan, 1, 0, 1])


def integer_functions(out, n, x):
    tl.store(out, tl.cdiv(n, 8))
    tl.store(out + 1, tl.cdiv(17, 8) + tl.next_power_of_2(9))
    tl.store(out + 2, tl.umulhi(tl.load(x), tl.load(x + 1)))
    tl.store(out + 3, tl.abs(-n))
    i, j = tl.swizzle2d(1, 2, 4, 4, 2)
    tl.store(out + 4, i * 10 + j)


def test_integer_functions(interpret):
    out = np.zeros(5, np.int64)
    interpret(integer_functions, out, 20, np.array([3_000_000_000, 4_000_000_000], np.uint32))
    # Programs 4-7 of the group of rows 0 and 1 (row 1, column 2 is number 6): rows alternate.
    assert out.tolist() == [3, 3 + 16, 3_000_000_000 * 4_000_000_000 >> 32, 20, 0 * 10 + 3]


def rounded_up(out, x, d, D: tl.constexpr):
    i = tl.arange(0, 4)
    tl.store(out + i, tl.cdiv(tl.load(x + i), D))
    tl.store(out + 4 + i, tl.cdiv(tl.load(x + i), tl.load(d)))


def in_their_type(x: int, d: int, limits: np.iinfo) -> int:
    """``(x + d - 1) // d`` as C does it in a type that wraps around."""
    ahead = (x + d - 1 - limits.min) % 2**limits.bits + limits.min
    return abs(ahead) // abs(d) * (1 if (ahead < 0) == (d < 0) else -1)


@pytest.mark.parametrize("type", [np.int8, np.int16, np.int32, np.int64])
@pytest.mark.parametrize("distance", [0, 1, 100, 2**7 + 7, 2**8 - 1])
def test_cdiv_by_every_divisor(interpret, type, distance):
    """By the least one, too: what is one less fits in no type."""
    limits = np.iinfo(type)
    by = distance + limits.min if distance < 2**7 else distance - 2**8 + limits.max + 1
    values, out = [1, limits.max, -3, limits.min + 7], np.zeros(8, np.int64)
    interpret(rounded_up, out, np.array(values, type), np.array([by], type), D=by)
    assert out.tolist() == [in_their_type(value, by, limits) for value in values] * 2


@pytest.mark.parametrize("by", [-128, -127, -1, 3, 127])
def test_cdiv_by_a_narrower_divisor(interpret, by):
    """All is done in the common type."""
    values, out = [1, 1000, -3, 2**31 - 1000], np.zeros(8, np.int64)
    interpret(rounded_up, out, np.array(values, np.int32), np.array([by], np.int8), D=by)
    assert out.tolist() == [in_their_type(value, by, np.iinfo(np.int32)) for value in values] * 2


def choose(out, x, p, q):
    i = tl.arange(0, 4)
    a = tl.load(x + i)
    tl.store(out + i, tl.where(a > 0, a, 0))
    tl.store(out + 4 + i, tl.load(tl.where(i < 2, p + i, q + i)))
    tl.store(out + 8 + i, tl.where(i & 1, 1, tl.full([4], 2, tl.int32)).to(tl.float32))


def test_where(interpret):
    x, p, q = floats(4), floats(4), floats(4)
    out = np.zeros(12, np.float32)
    interpret(choose, out, x, p, q)
    assert out.tolist() == [*np.maximum(x, 0), *p[:2], *q[2:], 2, 1, 2, 1]


# -- dot ---------------------------------------------------------------------------------------------------


def matmul(out, a, b, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, ACC: tl.constexpr):
    i, j, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(a + i[:, None] * K + k[None, :])
    y = tl.load(b + k[:, None] * N + j[None, :])
    if ACC:
        acc = tl.full([M, N], 1, out.dtype.element_ty)
        c = tl.dot(x, y, acc=acc, input_precision="ieee")
    else:
        c = tl.dot(x, y, allow_tf32=False)
    tl.store(out + i[:, None] * N + j[None, :], c)


@pytest.mark.parametrize("acc", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8"])
def test_dot(interpret, ir, dtype, acc):
    k = 32 if dtype == "int8" else 16
    a, b = (RNG.integers(-5, 5, shape).astype(dtype) for shape in ((4, k), (k, 8)))
    result = {"float16": "float32", "int8": "int32"}.get(dtype, dtype)
    out = np.zeros((4, 8), result)
    interpret(matmul, out, a, b, M=4, N=8, K=k, ACC=acc)
    assert (out == a.astype(result) @ b.astype(result) + acc).all()
    text = ir(matmul, {"out": "*fp32", "a": "*fp32", "b": "*fp32"}, M=4, N=8, K=k, ACC=acc)
    assert 'input_precision = "ieee"' in text


def batched(out, a, b):
    i = tl.arange(0, 2)[:, None, None, None] * 128 + tl.arange(0, 2)[None, :, None, None] * 64
    x = tl.load(a + i + tl.arange(0, 8)[:, None] * 8 + tl.arange(0, 8)[None, :])
    y = tl.load(b + i + tl.arange(0, 8)[:, None] * 8 + tl.arange(0, 8)[None, :])
    tl.store(out + i + tl.arange(0, 8)[:, None] * 8 + tl.arange(0, 8)[None, :], tl.dot(x, y))


def test_dot_of_batches(interpret):
    a, b = (RNG.integers(-5, 5, (2, 2, 8, 8)).astype(np.float32) for _ in range(2))
    out = np.zeros((2, 2, 8, 8), np.float32)
    interpret(batched, out, a, b)
    assert (out == a @ b).all()


def half_dot(out, a):
    i = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
    x = tl.load(a + i)
    tl.store(out + i, tl.dot(x, x.T, out_dtype=tl.float16, max_num_imprecise_acc=32))


def test_dot_in_float16(interpret, ir):
    a, out = RNG.integers(-3, 3, (16, 16)).astype(np.float16), np.zeros((16, 16), np.float16)
    interpret(half_dot, out, a)
    assert (out == a @ a.T).all()
    assert "max_num_imprecise_acc = 32" in ir(half_dot, {"out": "*fp16", "a": "*fp16"})


# -- atomics -----------------------------------------------------------------------------------------------


def atomics(out, old, x, WHAT: tl.constexpr):
    i = tl.arange(0, 8)
    v = tl.load(x + i)
    if WHAT == "add":
        before = tl.atomic_add(out + i, v, mask=i < 6, sem="relaxed", scope="cta")
    elif WHAT == "max":
        before = tl.atomic_max(out + i, v, mask=i < 6)
    elif WHAT == "min":
        before = tl.atomic_min(out + i, v, mask=i < 6, sem="release", scope="sys")
    elif WHAT == "and":
        before = tl.atomic_and(out + i, v, mask=i < 6)
    elif WHAT == "or":
        before = tl.atomic_or(out + i, v, mask=i < 6)
    elif WHAT == "xor":
        before = tl.atomic_xor(out + i, v, mask=i < 6)
    else:
        before = tl.atomic_xchg(out + i, v, mask=i < 6)
    tl.store(old + i, before, mask=i < 6)


ATOMICS = {
    "add": lambda a, b: a + b, "max": np.maximum, "min": np.minimum, "and": lambda a, b: a & b,
    "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b, "xchg": lambda a, b: b,
}  # fmt: skip
ATOMIC_CASES = [
    (what, dtype)
    for what in ATOMICS
    for dtype in ("int32", "uint32", "int64", "uint64", "float32", "float64")
    if dtype.startswith(("int", "uint")) or what in ("add", "max", "min", "xchg")
]


@pytest.mark.parametrize("what, dtype", ATOMIC_CASES)
def test_atomics(interpret, what, dtype):
    low = 0 if dtype.startswith("u") else -50
    a, b = RNG.integers(low, 50, 8).astype(dtype), RNG.integers(low, 50, 8).astype(dtype)
    out, old = a.copy(), np.zeros(8, dtype)
    interpret(atomics, out, old, b, WHAT=what)
    expected = np.where(np.arange(8) < 6, ATOMICS[what](a, b), a)
    assert out.tolist() == expected.tolist()
    assert old[:6].tolist() == a[:6].tolist()


def scalar_atomics(out):
    tl.atomic_add(out, 2)
    tl.atomic_add(out + tl.zeros([4], tl.int32), 1)
    tl.store(out + 1, tl.atomic_cas(out, 6, 100))
    tl.store(out + 2, tl.atomic_cas(out, 6, 200))


def test_scalar_atomics(interpret):
    out = np.zeros(3, np.int32)
    interpret(scalar_atomics, out)
    assert out.tolist() == [100, 6, 100]


# -- hints and debugging -----------------------------------------------------------------------------------


def hints(x, out, n):
    tl.assume(n > 0)
    n = tl.multiple_of(n, 16)
    i = tl.max_contiguous(tl.multiple_of(tl.arange(0, 8) + n, 8), 8)
    j = tl.max_constancy((i // 4)[:, None] + tl.zeros([8, 4], tl.int32), (4, 4))
    tl.debug_barrier()
    tl.store(out + j, tl.load(x + j))


def test_hints_stand_on_the_operation(ir):
    text = ir(hints, {"x": "*i32", "out": "*i32", "n": "i32"})
    assert "%n: i32 {divisibility = 16}" in text
    assert "contiguity = [8], divisibility = [8]" in text
    assert "constancy = [4, 4]" in text
    assert "assume" in text and "barrier" in text


def debugging(x, n):
    assert n > 0, "n must be positive"
    tl.device_assert(tl.load(x + tl.arange(0, 4)) >= 0, "negative", mask=tl.arange(0, 4) < n)
    print("n =", n, hex=True)
    tl.device_print("x", tl.load(x))
    tl.static_print("compiling", n, 3)


def test_assertions_only_with_debug(ir, interpret, capsys):
    text = ir(debugging, {"x": "*i32", "n": "u32"})
    assert "assert" not in text and text.count("print") == 2
    assert 'prefix = " n =: ", hex = true, signed = [false]' in text and 'prefix = " x: "' in text
    assert capsys.readouterr().out == "compiling uint32[] 3\n"
    x = np.array([1, 2, -3, 4], np.int32)
    interpret(debugging, x, np.uint32(2), debug=True)
    with pytest.raises(Exception, match="negative"):
        interpret(debugging, x, np.uint32(3), debug=True)


# -- library functions -------------------------------------------------------------------------------------


def sorting(out, x, K: tl.constexpr, DESCENDING: tl.constexpr):
    i = tl.arange(0, 2)[:, None] * 16 + tl.arange(0, 16)[None, :]
    a = tl.load(x + i)
    tl.store(out + i, tl.sort(a, descending=DESCENDING))
    best = tl.topk(a, K)
    tl.store(out + 32 + tl.arange(0, 2)[:, None] * K + tl.arange(0, K)[None, :], best)


@pytest.mark.parametrize("descending", [False, True])
def test_sort_and_topk(interpret, descending):
    x, out = floats(2, 16), np.zeros(40, np.float32)
    interpret(sorting, out, x, K=4, DESCENDING=descending)
    expected = np.sort(x)
    assert out[:32].tolist() == (expected[:, ::-1] if descending else expected).ravel().tolist()
    assert out[32:].tolist() == expected[:, :-5:-1].ravel().tolist()


def random_numbers(bits, uniform, normal, seed):
    i = tl.arange(0, 1024)
    tl.store(bits + i, tl.randint(seed, i))
    tl.store(uniform + i, tl.rand(seed, i))
    tl.store(normal + i, tl.randn(seed, i))


def philox_4x32(seed: int, offset: int) -> int:
    """The first word of Philox-4x32-10 of the counter (offset, 0, 0, 0)."""
    c, k = [offset, 0, 0, 0], [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        p0, p1 = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & 0xFFFFFFFF, (p0 >> 32) ^ c[3] ^ k[1], p0 & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c[0]


def test_random_numbers(interpret):
    # The known answer of the paper's library (Random123, kat_vectors) for a zero counter and key.
    assert philox_4x32(0, 0) == 0x6627E8D5
    bits, uniform, normal = np.zeros(1024, np.uint32), np.zeros(1024, np.float32), np.zeros(1024, np.float32)
    interpret(random_numbers, bits, uniform, normal, np.int64(0x123456789ABCDEF))
    assert bits.tolist() == [philox_4x32(0x123456789ABCDEF, i) for i in range(1024)]
    assert 0 <= uniform.min() and uniform.max() < 1 and abs(uniform.mean() - 0.5) < 0.03
    assert abs(normal.mean()) < 0.1 and abs(normal.std() - 1) < 0.1


def wide_random(out):
    a, b, c, d = tl.rand4x(3, tl.arange(0, 64).to(tl.int64) + (1 << 40))
    e, f, g, h = tl.randn4x(3, tl.arange(0, 64))
    i = tl.arange(0, 64)
    tl.store(out + i, a + b + c + d)
    tl.store(out + 64 + i, (e + f + g + h) / 2)
    x, _, _, _ = tl.philox(7, i.to(tl.uint64), 0, 0, 0)
    tl.store(out + 128 + i, tl.uint_to_uniform_float(x))


def test_wide_random_numbers(interpret):
    out = np.zeros(192, np.float32)
    interpret(wide_random, out)
    assert abs(out[:64].mean() - 2) < 0.3
    assert abs(out[64:128].std() - 1) < 0.3
    assert 0 <= out[128:].min() and out[128:].max() < 1


def test_every_stub_has_a_meaning():
    stubs = {value for value in vars(tl).values() if getattr(value, "__ptxforge_builtin__", False)}
    stubs |= {value for value in vars(tl.math).values() if getattr(value, "__ptxforge_builtin__", False)}
    assert stubs <= SEMANTICS.keys()
