"""Every function of the language in programs of 2, 4 and 8 CTAs: the same results as with one, on every
executor. Tiles have few rows and many columns and the other way round, so that the cluster cuts the dimension
along which a function works, and others."""

from __future__ import annotations

import inspect
import re

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge import interpreter
from ptxforge.compiler import compile_function
from ptxforge.ir.parser import parse_function
from ptxforge.language.registry import is_builtin


@ptxforge.jit
def keep(y, value):
    """Store a block of any rank, or a scalar."""
    if len(value.shape) == 0:
        tl.store(y, value)
    elif len(value.shape) == 1:
        tl.store(y + tl.arange(0, value.shape[0]), value)
    elif len(value.shape) == 2:
        at = tl.arange(0, value.shape[0])[:, None] * value.shape[1] + tl.arange(0, value.shape[1])[None, :]
        tl.store(y + at, value)
    else:
        row = tl.arange(0, value.shape[0])[:, None, None] * value.shape[1]
        row = (row + tl.arange(0, value.shape[1])[None, :, None]) * value.shape[2]
        tl.store(y + row + tl.arange(0, value.shape[2])[None, None, :], value)


@ptxforge.jit
def of_a_tile(x, y, F: tl.constexpr, AXIS: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    """What F makes of a tile, at y, and what it stores itself behind it."""
    i, j = tl.arange(0, M), tl.arange(0, N)
    keep(y, F(tl.load(x + i[:, None] * N + j[None, :]), AXIS, x, y + 4096))


# -- functions of tiles --------------------------------------------------------------------------------------


@ptxforge.jit
def integers(t, A: tl.constexpr, x, y):
    u = tl.umulhi(t.to(tl.uint32), tl.full(t.shape, 3_000_000_000, tl.uint32)).to(tl.int32)
    t = tl.add(tl.mul(tl.abs(t), 3), tl.sub(t, u)) + tl.zeros_like(t) + tl.zeros(t.shape, tl.int32)
    t = tl.maximum(tl.minimum(t, 50), tl.cdiv(t, 4)) + tl.where(tl.logical_and(t > 3, t < 30), t, -t)
    return tl.where(tl.logical_or(t < 0, t > 7), t, tl.next_power_of_2(5)) + tl.cast(t, tl.int8).to(tl.int32)


@ptxforge.jit
def floats(t, A: tl.constexpr, x, y):
    f = tl.abs(t.to(tl.float32)) + 1
    f = tl.fma(tl.sqrt(f), tl.sqrt_rn(f), tl.clamp(f, 2.0, 9.0)) + tl.floor(f / 3) * tl.ceil(tl.fdiv(f, 4.0))
    f += tl.exp(-f) + tl.exp2(-f) + tl.log(f) + tl.log2(f) + tl.sin(f) + tl.cos(f) + tl.rsqrt(f) + tl.erf(f)
    return tl.sigmoid(f * 0.01) + tl.div_rn(f, 3.0)


@ptxforge.jit
def halved(n):
    for _ in tl.static_range(2):
        if n % 2 == 0:
            n = n // 2
    return n


@ptxforge.jit
def by_elements(t, A: tl.constexpr, x, y):
    t = tl.inline_asm_elementwise("add.s32 $0, $1, 5;", "=r,r", [t], tl.int32, True, 1)
    return tl.map_elementwise(halved, t)


@ptxforge.jit
def random_numbers(t, A: tl.constexpr, x, y):
    a, b, l, d = tl.randint4x(7, t)
    e, f, g, h = tl.rand4x(7, t)
    k, m, n, o = tl.randn4x(7, t)
    p, q, r, s = tl.philox(7, t, t, t, t)
    c = t.to(tl.uint32)
    u, v, w, z = tl.philox_impl(c, c, c, c, c, c)
    first, second = tl.pair_uniform_to_normal(e, f)
    whole = (a ^ b ^ l ^ d ^ p ^ q ^ r ^ s ^ u ^ v ^ w ^ z ^ tl.randint(3, t)).to(tl.uint32)
    return e + f + g + h + k + m + n + o + tl.rand(3, t) + first * second + tl.randn(5, t) + \
        tl.uint_to_uniform_float(whole)  # fmt: skip


@ptxforge.jit
def promises(t, A: tl.constexpr, x, y):
    tl.assume(t.shape[0] > 0)
    tl.static_assert(len(t.shape) == 2)
    tl.device_assert(t < 1000, "small")
    i = tl.max_contiguous(tl.multiple_of(tl.arange(0, t.shape[1]), t.shape[1]), t.shape[1])
    return t + tl.max_constancy(i, 1)[None, :]


@ptxforge.jit
def printed(t, A: tl.constexpr, x, y):
    tl.device_print("sum", tl.sum(tl.sum(t, 0), 0))
    return t


@ptxforge.jit
def sums(t, A: tl.constexpr, x, y):
    return tl.sum(t, A) + tl.xor_sum(t, A) + tl.reduce_or(t, A) + tl.max(t, A) - tl.min(t, A)


@ptxforge.jit
def kept_dimensions(t, A: tl.constexpr, x, y):
    return t - tl.max(t, A, keep_dims=True) + tl.sum(t, A, keep_dims=True)


@ptxforge.jit
def everything(t, A: tl.constexpr, x, y):
    return tl.sum(t) + tl.max(tl.sum(t, A), 0)


@ptxforge.jit
def places(t, A: tl.constexpr, x, y):
    return tl.argmax(t, A) * 100 + tl.argmin(t, A)


@ptxforge.jit
def any_of_the_places(t, A: tl.constexpr, x, y):
    top, at = tl.max(t, A, return_indices=True, return_indices_tie_break_left=True)
    low, where = tl.min(t, A, return_indices=True)
    return top + at * 3 + low * 5 + where * 7


@ptxforge.jit
def last(a, b):
    return b


@ptxforge.jit
def multiplied(a, i, b, j):
    return a * b, tl.maximum(i, j)


@ptxforge.jit
def own_reduction(t, A: tl.constexpr, x, y):
    a, b = tl.reduce((t, t + 1), A, multiplied)
    return a + b + tl.reduce(t, A, last)


@ptxforge.jit
def scans(t, A: tl.constexpr, x, y):
    a, b = tl.associative_scan((t, t + 1), A, multiplied)
    return tl.cumsum(t, A) + tl.cumsum(t, A, reverse=True) * 3 + tl.cumprod(t % 2, A) + a + b


@ptxforge.jit
def sorted_rows(t, A: tl.constexpr, x, y):
    return tl.sort(t) * 3 + tl.sort(t, descending=True) + tl.flip(t) + tl.flip(t, A)


@ptxforge.jit
def highest(t, A: tl.constexpr, x, y):
    return tl.topk(t, 4)


@ptxforge.jit
def merged(t, A: tl.constexpr, x, y):
    return tl.bitonic_merge(tl.where(tl.arange(0, t.shape[1])[None, :] < 4, t * 0, t * 0 + 1))


@ptxforge.jit
def shares(t, A: tl.constexpr, x, y):
    return tl.softmax(t.to(tl.float32) * 0.1, A)


@ptxforge.jit
def counts(t, A: tl.constexpr, x, y):
    v = tl.abs(tl.sum(t, A))
    return tl.histogram(v % 16, 16) + tl.histogram(v % 16, 16, mask=v > 5)


@ptxforge.jit
def gathered(t, A: tl.constexpr, x, y):
    return tl.gather(t, tl.abs(t) % t.shape[A], A)


@ptxforge.jit
def gathered_fewer(t, A: tl.constexpr, x, y):
    return tl.gather(t, tl.abs(tl.trans(t)) % 8, A)


@ptxforge.jit
def turned(t, A: tl.constexpr, x, y):
    return tl.trans(t) + tl.permute(t, 1, 0) * 3


@ptxforge.jit
def reshaped(t, A: tl.constexpr, x, y):
    r = tl.reshape(t, (t.shape[1], t.shape[0])) + tl.view(t, (t.shape[1], t.shape[0]))
    return tl.trans(tl.reshape(r, (2, t.shape[1] // 2, t.shape[0])), 2, 0, 1)


@ptxforge.jit
def flat(t, A: tl.constexpr, x, y):
    return tl.ravel(t) + tl.arange(0, t.shape[0] * t.shape[1])


@ptxforge.jit
def joined(t, A: tl.constexpr, x, y):
    a, b = tl.split(tl.join(t, -t))
    return tl.interleave(a + 1, b * 3)


@ptxforge.jit
def one_behind_the_other(t, A: tl.constexpr, x, y):
    v = tl.sum(t, A)
    return tl.cat(v, v + 1, can_reorder=True) * 0 + tl.cat(v * 0, v * 0)


@ptxforge.jit
def spread(t, A: tl.constexpr, x, y):
    v = tl.sum(t, A)
    a, _ = tl.broadcast(tl.expand_dims(v, A), t)
    b = tl.broadcast_to(tl.unsqueeze(v, A), t.shape)
    return a + b + tl.squeeze(tl.expand_dims(t, 0), 0) + tl.swizzle2d(a * 0, b * 0, 4, 4, 2)[0]


@ptxforge.jit
def product(t, A: tl.constexpr, x, y):
    h = (t % 4).to(tl.float16)
    if A == 0:
        result = tl.dot(tl.trans(h), h)
    else:
        result = tl.dot(h, tl.trans(h))
    return result


@ptxforge.jit
def scaled_product(t, A: tl.constexpr, x, y):
    h = (t % 4).to(tl.float16).to(tl.float8e5)
    rows = tl.full((t.shape[0], t.shape[1] // 32), 127, tl.uint8)
    return tl.dot_scaled(h, rows, "e5m2", tl.trans(h), rows, "e5m2")


@ptxforge.jit
def added(t, A: tl.constexpr, x, y):
    """Atomics whose results nobody wants; two CTAs never count the same element twice."""
    at = y + tl.abs(t) % 8
    tl.atomic_add(at, t)
    tl.atomic_max(at + 8, t)
    tl.atomic_min(at + 16, t)
    tl.atomic_and(at + 24, t)
    tl.atomic_or(at + 32, t)
    tl.atomic_xor(at + 40, t)
    tl.atomic_add(y + 48, 3, sem="relaxed")
    return t


@ptxforge.jit
def added_sums(t, A: tl.constexpr, x, y):
    """By all CTAs together, once."""
    v = tl.sum(t, A)
    tl.atomic_add(y + tl.arange(0, v.shape[0]), v)
    tl.atomic_add(y + 64 + v % 8, 1)
    return v


@ptxforge.jit
def answers(t, A: tl.constexpr, x, y):
    at = y + tl.arange(0, t.shape[0])[:, None] * t.shape[1] + tl.arange(0, t.shape[1])[None, :]
    old = tl.atomic_add(at, t) + tl.atomic_xchg(at + 1024, t) + tl.atomic_cas(at + 2048, t * 0, t)
    return old * 2 + tl.atomic_add(y + 3072, 5)


@ptxforge.jit
def without_orders(t, A: tl.constexpr, x, y):
    tl.atomic_store(y, 5, sem="release")
    return t + tl.atomic_load(x, sem="acquire")


@ptxforge.jit
def waited_for(t, A: tl.constexpr, x, y):
    tl.atomic_xchg(y, 1)
    tl.atomic_poll(y, 1)
    return t


@ptxforge.jit
def through_memory(t, A: tl.constexpr, x, y):
    """What one thread writes another one reads, also of another CTA."""
    keep(y, t)
    tl.debug_barrier()
    n: tl.constexpr = t.shape[0] * t.shape[1]
    return tl.load(y + n - 1 - tl.arange(0, n))


@ptxforge.jit
def blocks(t, A: tl.constexpr, x, y):
    """Block pointers."""
    m: tl.constexpr = t.shape[0]
    n: tl.constexpr = t.shape[1]
    p = tl.make_block_ptr(x, (m, n), (n, 1), (0, 0), (m, n), (1, 0))
    q = tl.make_block_ptr(y, (m, n), (n, 1), (0, 0), (m, n), (1, 0))
    p = tl.advance(p, (1, 1))
    tl.store(q, tl.load(p, boundary_check=(0, 1), padding_option="zero"), boundary_check=(0, 1))
    return t


@ptxforge.jit
def boxes(t, A: tl.constexpr, x, y):
    m: tl.constexpr = t.shape[0]
    n: tl.constexpr = t.shape[1]
    p = tl.make_tensor_descriptor(x, [m, n], [n, 1], [m, n])
    q = tl.make_tensor_descriptor(y, [m, n], [n, 1], [m, n])
    tl.store_tensor_descriptor(q, [0, 0], tl.load_tensor_descriptor(p, [1, 4]))
    q.atomic_add([0, 0], t)
    return t


@ptxforge.jit
def rows_of_a_tensor(t, A: tl.constexpr, x, y):
    """Rows that an index names."""
    p = tl.make_tensor_descriptor(x, [8, 16], [16, 1], [1, 16])
    q = tl.make_tensor_descriptor(y, [8, 16], [16, 1], [1, 16])
    i = 7 - tl.arange(0, 8)
    q.scatter(p.gather(i, 0) + 1, i, 0)
    return t


@ptxforge.jit
def loops(t, A: tl.constexpr, x, y):
    """Carried and chosen values."""
    total = t
    for step in tl.range(4):
        if step % 2 == 0:
            total += tl.expand_dims(tl.sum(total, A), A)
        else:
            total = tl.cumsum(total, A)
    while tl.sum(tl.sum(total, 0), 0) > 100:
        total = total // 2 - 1
    return total + tl.program_id(0) + tl.num_programs(0)


FUNCTIONS = [
    integers, floats, by_elements, random_numbers, promises, printed, sums, kept_dimensions, everything,
    places, any_of_the_places, own_reduction, scans, sorted_rows, highest, merged, shares, counts, gathered,
    turned, reshaped, flat, joined, one_behind_the_other, spread, product, scaled_product, added,
    added_sums, answers, without_orders, waited_for, through_memory, blocks, boxes, rows_of_a_tensor, loops,
]  # fmt: skip
TILES = [(8, 32), (32, 8), (2, 64), (32, 32)]
TILES = [((8, 32), 1, 2), ((32, 8), 0, 4), ((2, 64), 1, 8), ((32, 32), 0, 2)]
"""Sizes, an axis, and how many CTAs."""
FLOATS = (floats, random_numbers, shares, product, scaled_product)


def is_there(function, tile) -> bool:
    """Whether a function has such operands."""
    if function is product:
        return min(tile) >= 16
    return tile == (32, 32) if function in (scaled_product, random_numbers) else True


CASES = [(function, *case) for function in FUNCTIONS for case in TILES if is_there(function, case[0])]


def compiled(function, tile: tuple[int, int], axis: int, **options) -> ptxforge.Artifact:
    signature = {"x": "*i32:16", "y": "*fp32:16" if function in FLOATS else "*i32:16"}
    constants = {"F": function, "AXIS": axis, "M": tile[0], "N": tile[1]}
    return compile_function(of_a_tile, signature, constants, **options)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0].fn.__name__}-{case[1:]}")
def test_as_with_one_cta(execute, capfd, case):
    function, tile, axis, num_ctas = case
    x = np.random.default_rng(tile[0]).integers(-20, 20, tile).astype(np.int32)
    y = np.zeros(8192, np.float32 if function in FLOATS else np.int32)
    expected = y.copy()
    whole = parse_function(compiled(function, tile, axis).asm["tile"])
    interpreter.run(whole, (1, 1, 1), [x.copy(), expected])
    constants = {"F": function, "AXIS": axis, "M": tile[0], "N": tile[1]}
    for (out,) in execute(of_a_tile, (1,), [x, y], constants, outputs=[1], num_ctas=num_ctas):
        if function in FLOATS:
            np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-5)
        else:
            np.testing.assert_array_equal(out, expected)


ALONE = {
    product: "no dimension", scaled_product: "no dimension",  # of a tile with itself
    one_behind_the_other: "no dimension",
}  # fmt: skip
"""What the first CTA does alone, and why; all else is shared out."""


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.fn.__name__)
def test_what_is_shared_out(function):
    artifact = compiled(function, (32, 32), 1, num_ctas=2)
    reasons = [remark.message for remark in artifact.remarks if remark.kind == "one-cta-works"]
    assert [ALONE.get(function, "") in reason for reason in reasons] == [True] * (function in ALONE)


WITHOUT_BLOCKS = set(
    """arange constexpr_function condition range static_range static_print static_assert assume to_tensor
    str_to_ty tuple aggregate_replace load store num_programs program_id zeros full expect_zero""".split()
)


def test_every_function_of_the_language_is_here():
    """Those of the language that take a block, but for those every kernel has."""
    text = "".join(inspect.getsource(f.fn) for f in (*FUNCTIONS, keep, halved))
    public = {n for n, f in vars(tl).items() if is_builtin(f) or getattr(f, "__ptxforge_jit__", False)}
    public -= {n for n in public if n.startswith("_") or n in WITHOUT_BLOCKS}
    assert not [n for n in sorted(public) if not re.search(rf"\btl\.{n}\(|\.{n}\(", text)]
