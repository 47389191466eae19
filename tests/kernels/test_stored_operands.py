"""Products whose right operand is computed: threads store it for ``wgmma`` on sm_90a; against float64, on
every executor."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.compiler import compile_function
from ptxforge.support import machine

INTEGERS = ("M", "N", "K", "stride_am", "stride_ak", "stride_bk", "stride_bn")


@ptxforge.jit
def product(
    a, b, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    KIND: tl.constexpr, PRECISION: tl.constexpr = "tf32", IMPRECISE: tl.constexpr = 0,
):  # fmt: skip
    """c = f(a) @ f(b), where f depends on KIND: what both operands are computed to."""
    i = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    j = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a_tile = a + i[:, None] * stride_am + k[None, :] * stride_ak
    b_tile = b + k[:, None] * stride_bk + j[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.int32 if KIND == "masked bytes" else tl.float32)
    for _ in range(0, K, BLOCK_K):
        x = tl.load(a_tile)
        y = tl.load(b_tile)
        if KIND == "widened":
            x = x.to(tl.bfloat16)
            y = y.to(tl.bfloat16)
        if KIND == "doubled" or KIND == "right":
            y = (y.to(tl.float32) * 2).to(y.dtype)
        if KIND == "doubled":
            x = (x.to(tl.float32) * 2).to(x.dtype)
        if KIND == "masked bytes":
            x = x & 7
            y = y & 7
        if KIND == "turned":
            x = x.to(tl.float16)
            y = tl.trans(tl.trans(y).to(tl.float16) + 1.0)
        acc = tl.dot(x, y, acc, PRECISION, max_num_imprecise_acc=IMPRECISE, out_dtype=acc.dtype)
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk
    tl.store(c + i[:, None] * N + j[None, :], acc)


def draw(m: int, n: int, k: int, layout: str, dtype, low: int = -4, high: int = 5):
    """Matrices of small integers, which of them lie transposed in memory, and their strides."""
    rng = np.random.default_rng(m + n + k)
    a, b = (rng.integers(low, high, shape).astype(dtype) for shape in ((m, k), (k, n)))
    held = [np.ascontiguousarray(x.T) if how == "T" else x for x, how in zip((a, b), layout)]
    strides = [s for x, how in zip(held, layout) for s in (x.shape[1], 1)[:: -1 if how == "T" else 1]]
    return a, b, held, strides


def messages(kind: str, kernel=product) -> list[str]:
    """What the newest variant has to say."""
    return [r.message for r in kernel.variants[-1].artifact.remarks if r.kind == kind]


def run(execute, dtype, expected, block, layout, num_warps, stages, kind, kernel=product, **constants):
    """Launch ``product`` on every executor; the results must be exact."""
    m, n, k = block[0], 2 * block[1], 3 * block[2]
    a, b, held, strides = draw(m, n, k, layout, dtype, *((0, 8) if kind == "masked bytes" else ()))
    out = np.zeros((m, n), np.int32 if kind == "masked bytes" else np.float32)
    constants |= dict(zip(("BLOCK_M", "BLOCK_N", "BLOCK_K"), block), KIND=kind)
    options = {"num_warps": num_warps, "num_stages": stages}
    for (c,) in execute(kernel, (1, 2), [*held, out, m, n, k, *strides], constants, [2], **options):
        np.testing.assert_array_equal(c, expected(a.astype(np.float64), b.astype(np.float64)))


SHAPES = [((64, 64, 64), 4, 3), ((128, 128, 64), 8, 2), ((128, 64, 32), 4, 1), ((64, 256, 32), 8, 3)]


@pytest.mark.parametrize("layout", ["NN", "NT", "TN"])
@pytest.mark.parametrize(("block", "num_warps", "stages"), SHAPES, ids=str)
def test_two_widened_operands(execute, block, num_warps, stages, layout):
    run(execute, np.int8, lambda a, b: a @ b, block, layout, num_warps, stages, "widened")


@pytest.mark.parametrize("kind", ["doubled", "turned", "masked bytes"])
@pytest.mark.parametrize(("layout", "dtype"), [
    ("NN", ml_dtypes.float8_e4m3fn), ("NT", ml_dtypes.float8_e5m2), ("NN", np.float16), ("TT", np.float32),
], ids=str)  # fmt: skip
def test_every_type_in_every_order(execute, kind, layout, dtype):
    if kind == "masked bytes":
        dtype = np.int8 if layout == "NN" else np.uint8
    doubled, added = {"doubled": (4, 0), "turned": (1, 1), "masked bytes": (1, 0)}[kind]

    def expected(a, b):
        return doubled * a @ (b + added)

    run(execute, dtype, expected, (64, 64, 64), layout, 4, 2, kind)


@pytest.mark.parametrize("imprecise", [32, 64])
def test_sums_that_are_taken_out_of_the_tensor_core(execute, imprecise):
    """Slices along k of operands that threads store, also where it is the left one alone."""
    dtype = ml_dtypes.float8_e4m3fn
    run(execute, dtype, lambda a, b: 4 * a @ b, (64, 64, 64), "NT", 4, 2, "doubled", IMPRECISE=imprecise)


@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize("precision", ["tf32x3", "bf16x3", "bf16x6"])
def test_products_of_parts(execute, precision, layout):
    """Integers are exact in each precision; what is not is below."""
    block = (64, 128, 32) if layout == "NT" else (128, 64, 32)
    run(execute, np.float32, lambda a, b: a @ b, block, layout, 4, 3, "loaded", PRECISION=precision)


@pytest.mark.parametrize("layout", ["NN", "NT"])
@pytest.mark.parametrize(("precision", "bits"), [("tf32x3", 20), ("bf16x3", 15), ("bf16x6", 21)])
def test_parts_are_as_exact_as_promised(execute, precision, bits, layout):
    m, n, k = 64, 64, 96
    rng = np.random.default_rng(k)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((m, k), (k, n)))
    held = [a, np.ascontiguousarray(b.T) if layout == "NT" else b]
    strides = [k, 1, *((1, k) if layout == "NT" else (n, 1))]
    constants = {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": 32, "KIND": "loaded", "PRECISION": precision}
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    bound = (2 * 2.0**-bits + k / 8 * 2.0**-22) * (abs(wide_a) @ abs(wide_b))
    arguments = [*held, np.zeros((m, n), np.float32), m, n, k, *strides]
    for (c,) in execute(product, (1, 1), arguments, constants, [2], num_warps=4):
        assert (abs(c - wide_a @ wide_b) <= bound).all()


# -- what becomes of them --------------------------------------------------------------------------------


def compiled(element: str, kind: str, block, num_warps: int, stages: int, layout="NN", **constants):
    """The artifact of ``product`` for sm_90a."""
    out = "i32" if kind == "masked bytes" else "fp32"
    signature = {"a": f"*{element}:16", "b": f"*{element}:16", "c": f"*{out}:16"}
    signature |= dict.fromkeys(INTEGERS, "i32:16")
    fixed = {"NN": ("stride_ak", "stride_bn"), "NT": ("stride_ak", "stride_bk")}[layout]
    constants |= dict(zip(("BLOCK_M", "BLOCK_N", "BLOCK_K"), block), KIND=kind) | dict.fromkeys(fixed, 1)
    signature = {name: type for name, type in signature.items() if name not in fixed}
    options = {"num_warps": num_warps, "num_stages": stages}
    return compile_function(product, signature, constants, "sm_90a", **options)


def remark(artifact, kind: str) -> str:
    (found,) = [r.message for r in artifact.remarks if r.kind == kind]
    return found


@pytest.mark.parametrize(("element", "kind"), [
    ("i8", "widened"), ("fp16", "doubled"), ("i8", "masked bytes"),
])  # fmt: skip
@pytest.mark.parametrize("layout", ["NN", "NT"])
def test_the_product_runs_on_while_operands_are_computed(element, kind, layout, assemble):
    """Tiles come by TMA, and what is made of them is stored behind the wait for the last product."""
    artifact = compiled(element, kind, (128, 128, 32), 8, 3, layout)
    assemble(artifact.ptx)
    text = remark(artifact, "product")
    assert "by wgmma" in text and "in flight across iterations" in text
    assert {recipe.base for recipe in artifact.tensor_maps} == {"a", "b"}
    loop = artifact.asm["gpu"].split("= for ")[1].split("yield")[0]
    assert loop.count("fence_async") == 1 and loop.count("barrier\n") == 3
    assert "scratch_offset" not in loop
    assert not [r for r in artifact.remarks if r.kind in ("not-by-wgmma", "not-by-tma", "not-in-flight")]


@pytest.mark.parametrize("precision", ["tf32x3", "bf16x3", "bf16x6"])
@pytest.mark.parametrize("layout", ["NN", "NT"])
def test_products_of_parts_begin_at_zero(precision, layout, assemble):
    """What tensor cores add to a sum they cut off, so each step's products are added outside of them."""
    artifact = compiled("fp32", "loaded", (128, 128, 32), 8, 3, layout, PRECISION=precision)
    assemble(artifact.ptx)
    text = remark(artifact, "product")
    assert "by wgmma" in text and "waited for in its iteration" in text
    loop = artifact.asm["gpu"].split("= for ")[1].split("yield")[0]
    assert loop.count("is_zero = true") == 1 and loop.count("dot_begin") == 2 and loop.count("addf") == 1
    assert not [r for r in artifact.remarks if r.kind == "not-by-wgmma"]


def test_parts_of_tf32_are_the_tiles_themselves():
    """Of a right tile along k nothing but the rest is stored, and of a left one nothing. Of tiles across k,
    one whose parts threads read becomes the left one."""
    stores = {layout: compiled("fp32", "loaded", (128, 128, 32), 8, 3, layout, PRECISION="tf32x3")
              .asm["gpu"].split("= for ")[1].count("local_alloc") for layout in ("NT", "NN")}  # fmt: skip
    assert stores == {"NT": 1, "NN": 1}


@pytest.mark.parametrize(("block", "stages", "text"), [
    ((128, 32, 32), 3, "with 64 columns and more for each warpgroup threads store it there"),
    ((128, 256, 64), 2, "which has no room beside the loop's tiles; use smaller blocks or fewer num_stages"),
], ids=str)  # fmt: skip
def test_products_that_mma_sync_does(block, stages, text):
    num_warps = 8 if block[1] == 256 else 4
    artifact = compiled("fp32", "loaded", block, num_warps, stages, "NT", PRECISION="tf32x3")
    assert text in remark(artifact, "not-by-wgmma") and "mma.sync" in remark(artifact, "product")


def test_left_operands_stay_in_registers_where_memory_has_no_room():
    """Both operands take 48 KiB beside 192 KiB of stages, the right one 32."""
    artifact = compiled("i8", "widened", (128, 256, 64), 8, 8)
    text = remark(artifact, "product")
    assert "by wgmma" in text and "left by TMA, 8 stages, through registers" in text


def test_one_computed_operand_is_the_left_one():
    """As before: nothing is stored."""
    artifact = compiled("fp16", "right", (128, 128, 64), 8, 3)
    assert "through registers" in remark(artifact, "product")
    assert "local_store" not in artifact.asm["gpu"].split("= for ")[1].split("yield")[0]


# -- operands that do not change, and chains ---------------------------------------------------------------


@ptxforge.jit
def same_right(a, b, c, K, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr):
    """c[s] = (2 a[s]) @ (2 b) for each s."""
    i, j, d = tl.arange(0, M), tl.arange(0, N), tl.arange(0, D)
    y = (tl.load(b + d[:, None] * N + j[None, :]).to(tl.float16)) * 2
    for s in range(K):
        x = tl.load(a + (s * M + i[:, None]) * D + d[None, :]).to(tl.float16) * 2
        tl.store(c + (s * M + i[:, None]) * N + j[None, :], tl.dot(x, y))


def test_a_right_operand_that_does_not_change_is_stored_once(execute):
    steps, m, n, d = 3, 64, 64, 64
    rng = np.random.default_rng(5)
    a, b = (rng.integers(-4, 5, shape).astype(np.int8) for shape in ((steps * m, d), (d, n)))
    arguments = [a, b, np.zeros((steps * m, n), np.float32), steps]
    for (c,) in execute(same_right, (1,), arguments, {"M": m, "N": n, "D": d}, [2], num_warps=4):
        np.testing.assert_array_equal(c, 4 * (a.astype(np.float64) @ b))
    assert not messages("not-by-wgmma", same_right)
    gpu = same_right.variants[-1].artifact.asm["gpu"]
    before = gpu[: gpu.index(" = for ")]
    assert "memdesc<64x64xf16, #panels" in before and "local_alloc %y" in before


@ptxforge.jit
def narrow_attention(q, k, v, out, L, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    """out = max(q kᵀ, 0) v, of keys and values in 8 bits."""
    i, j, d = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, D)
    queries = tl.load(q + i[:, None] * D + d[None, :])
    acc = tl.zeros((BM, D), tl.float32)
    for start in range(0, L, BN):
        keys = tl.load(k + (start + j[:, None]) * D + d[None, :]).to(tl.float16)
        values = tl.load(v + (start + j[:, None]) * D + d[None, :]).to(tl.float16)
        scores = tl.dot(queries, tl.trans(keys))
        acc = tl.dot(tl.minimum(tl.maximum(scores, 0), 8).to(tl.float16), values, acc)
    tl.store(out + i[:, None] * D + d[None, :], acc)


@pytest.mark.parametrize(("rows", "num_warps"), [(64, 4), (128, 8)])
def test_keys_and_values_of_eight_bits(execute, rows, num_warps):
    length, n, d = 192, 64, 64
    rng = np.random.default_rng(6)
    q = rng.integers(-2, 3, (rows, d)).astype(np.float16)
    k, v = (rng.integers(-2, 3, (length, d)).astype(np.int8) for _ in "kv")
    scores = np.clip(q.astype(np.float64) @ k.T, 0, 8)
    arguments = [q, k, v, np.zeros((rows, d), np.float32), length]
    constants = {"BM": rows, "BN": n, "D": d}
    for (out,) in execute(narrow_attention, (1,), arguments, constants, [3], num_warps=num_warps):
        np.testing.assert_array_equal(out, scores @ v)


@ptxforge.jit
def right_from_product(a, b, d, c, N: tl.constexpr, WORDS: tl.constexpr):
    """c = d @ max(a @ b, 0), as f16, or as f32 by tf32x3."""
    i, j = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    inner = tl.maximum(tl.dot(tl.load(a + i * N + j), tl.load(b + i * N + j)), 0)
    left = tl.load(d + i * N + j)
    if WORDS:
        found = tl.dot(left.to(tl.float32), inner, input_precision="tf32x3")
    else:
        found = tl.dot(left * 2, inner.to(tl.float16))
    tl.store(c + i * N + j, found)


@pytest.mark.parametrize("words", [False, True])
def test_a_right_operand_that_another_product_gave(execute, words):
    """It is stored from the accumulators, without another exchange."""
    n = 64
    rng = np.random.default_rng(9)
    a, b, d = (rng.integers(-2, 3, (n, n)).astype(np.float16) for _ in "abd")
    expected = (d.astype(np.float64) * (1 if words else 2)) @ np.maximum(a.astype(np.float64) @ b, 0)
    arguments = [a, b, d, np.zeros((n, n), np.float32)]
    constants = {"N": n, "WORDS": words}
    for (c,) in execute(right_from_product, (1,), arguments, constants, [3], num_warps=4):
        np.testing.assert_array_equal(c, expected)
    assert not messages("not-by-wgmma", right_from_product)


@ptxforge.jit
def two_products(a, b, c, d, K, M: tl.constexpr, N: tl.constexpr, BK: tl.constexpr):
    """c = (2 a) @ (2 b), d = (3 a) @ (2 b)."""
    i, j, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BK)
    first = tl.zeros((M, N), tl.float32)
    second = tl.zeros((M, N), tl.float32)
    for s in range(0, K, BK):
        x = tl.load(a + i[:, None] * K + s + k[None, :]).to(tl.float16)
        y = tl.load(b + (s + k[:, None]) * N + j[None, :]).to(tl.float16) * 2
        first = tl.dot(x * 2, y, first)
        second = tl.dot(x * 3, y, second)
    tl.store(c + i[:, None] * N + j[None, :], first)
    tl.store(d + i[:, None] * N + j[None, :], second)


def test_two_products_of_one_stored_operand(execute):
    m, n, k = 64, 64, 192
    rng = np.random.default_rng(8)
    a, b = (rng.integers(-4, 5, shape).astype(np.int8) for shape in ((m, k), (k, n)))
    arguments = [a, b, np.zeros((m, n), np.float32), np.zeros((m, n), np.float32), k]
    expected = a.astype(np.float64) @ b
    constants = {"M": m, "N": n, "BK": 64}
    for c, d in execute(two_products, (1,), arguments, constants, [2, 3], num_warps=4):
        np.testing.assert_array_equal(c, 4 * expected)
        np.testing.assert_array_equal(d, 6 * expected)


@pytest.mark.parametrize("stores", list(itertools.product([False, True], repeat=2)), ids=str)
def test_every_road_gives_the_same(execute, monkeypatch, stores):
    """``mma.sync``; a left operand in registers; both in memory."""
    monkeypatch.setattr(machine, "STORES_RIGHT_OPERANDS", stores[0])
    monkeypatch.setattr(machine, "STORES_LEFT_OPERANDS", stores[1])
    monkeypatch.setenv("PTXFORGE_CACHE_DIR", "off")
    kernel, block = ptxforge.jit(product.fn), (128, 64, 32)
    for precision, layout in (("tf32x3", "NN"), ("tf32x3", "NT"), ("bf16x6", "NN")):
        constants = {"kernel": kernel, "PRECISION": precision}
        run(execute, np.float32, lambda a, b: a @ b, block, layout, 4, 2, "loaded", **constants)
        (text,) = messages("product", kernel)
        assert ("wgmma" in text) == stores[0]
