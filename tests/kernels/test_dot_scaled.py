"""Products of matrices in microscaling formats, on every executor, against float64.

Values are all that their format has, scales are powers of two near 1, so that the products are exact in
bfloat16 and float16: what differs from float64 is the sum in float32 alone. What rounds, overflows or is not
a number has tests of its own.
"""

from __future__ import annotations

import itertools
import re

import ml_dtypes
import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.compiler import compile_function
from ptxforge.emulator import EmulatorDevice

ELEMENTS = {
    "e2m1": ml_dtypes.float4_e2m1fn,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "bf16": ml_dtypes.bfloat16,
    "fp16": np.float16,
}
SPANS = {"e2m1": 6, "e4m3": 200, "e5m2": 200, "bf16": 30, "fp16": 30}
"""The largest values drawn: so that a product with its scale is a float16."""


@ptxforge.jit
def scaled_product(
    a, b, a_scale, b_scale, c,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, BLOCK_K: tl.constexpr,
    A: tl.constexpr, B: tl.constexpr, GROUP: tl.constexpr,
    AM: tl.constexpr, AK: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    SCALE_A: tl.constexpr, SCALE_B: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """c = (a · a_scale) @ (b · b_scale) of one tile. AM, AK, BN, BK: elements in a unit of memory."""
    i, j = tl.arange(0, M), tl.arange(0, N)
    g = tl.arange(0, BLOCK_K // GROUP)
    ai, ak = tl.arange(0, M // AM), tl.arange(0, BLOCK_K // AK)
    bj, bk = tl.arange(0, N // BN), tl.arange(0, BLOCK_K // BK)
    acc = tl.zeros([M, N], tl.float32)
    for step in range(0, K, BLOCK_K):
        x = tl.load(a + ai[:, None] * (K // AK) + (step // AK + ak)[None, :])
        y = tl.load(b + (step // BK + bk)[:, None] * (N // BN) + bj[None, :])
        s = None
        if SCALE_A:
            s = tl.load(a_scale + i[:, None] * (K // GROUP) + (step // GROUP + g)[None, :])
        t = None
        if SCALE_B:
            t = tl.load(b_scale + j[:, None] * (K // GROUP) + (step // GROUP + g)[None, :])
        acc = tl.dot_scaled(x, s, A, y, t, B, acc, fast_math=FAST, lhs_k_pack=AM == 1, rhs_k_pack=BN == 1)
    tl.store(c + i[:, None] * N + j[None, :], acc)


def drawn(rng: np.random.Generator, format: str, shape: tuple[int, ...]) -> np.ndarray:
    """Random values of a format, as its own type."""
    dtype = np.dtype(ELEMENTS[format])
    with np.errstate(all="ignore"):
        held = rng.integers(0, 1 << 16, shape).astype(np.uint16 if dtype.itemsize == 2 else np.uint8)
        values = (held & 15 if format == "e2m1" else held).view(dtype)
        fits = np.abs(values.astype(np.float64)) <= SPANS[format]
        # Short mantissas, so that sums stay within reach of float32.
        return np.where(fits & (np.abs(values.astype(np.float64)) >= 2.0**-6), values, dtype.type(1.5))


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def packed(values: np.ndarray, axis: int) -> np.ndarray:
    """4-bit floats as bytes, two neighbours along ``axis`` in each, the first in the low bits."""
    bits = np.moveaxis(values.view(np.uint8) & 15, axis, -1)
    return np.ascontiguousarray(np.moveaxis(bits[..., ::2] | bits[..., 1::2] << 4, -1, axis))


def powers(scale: np.ndarray) -> np.ndarray:
    """e8m0 as float64: 2**(scale - 127); 255 is NaN."""
    return np.where(scale == 255, np.nan, 2.0 ** (scale.astype(np.float64) - 127))


def spread(scale: np.ndarray, group: int) -> np.ndarray:
    """``[lines, K/group]`` as ``[lines, K]``."""
    return np.repeat(scale, group, axis=-1)


def run(
    execute, formats, a, b, a_scale, b_scale, *,
    block_k=None, group=32, as_bits=False, a_k=True, b_k=True, fast=False, **options,
):  # fmt: skip
    """The product of unpacked ``a`` ``[M, K]`` and ``b`` ``[K, N]`` on every executor."""
    (m, k), n = a.shape, b.shape[1]
    left, right = formats
    units = {"AM": 1, "AK": 1, "BN": 1, "BK": 1}
    if left == "e2m1":
        a, units["AK" if a_k else "AM"] = packed(a, 1 if a_k else 0), 2
    if right == "e2m1":
        b, units["BK" if b_k else "BN"] = packed(b, 0 if b_k else 1), 2
    if as_bits:
        a, b = a.view(f"u{a.itemsize}"), b.view(f"u{b.itemsize}")
    constants = {
        "M": m, "N": n, "K": k, "BLOCK_K": block_k or k, "A": left, "B": right, "GROUP": group,
        "SCALE_A": a_scale is not None, "SCALE_B": b_scale is not None, "FAST": fast,
    }  # fmt: skip
    unused = np.zeros(1, np.uint8)
    scales = [unused if scale is None else scale for scale in (a_scale, b_scale)]
    arguments = [a, b, *scales, np.zeros((m, n), np.float32)]
    return [c for (c,) in execute(scaled_product, (1,), arguments, constants | units, [4], **options)]


def problem(rng, formats, m, n, k, group=32):
    """Operands and e8m0 scales of a product."""
    a, b = drawn(rng, formats[0], (m, k)), drawn(rng, formats[1], (k, n))
    scales = (rng.integers(124, 131, (lines, k // group)).astype(np.uint8) for lines in (m, n))
    return a, b, *scales


def check(results, a, b, a_factor, b_factor, group=32):
    """Each result is float64's, but for the rounding of sums. Factors are ``[lines, K/group]``."""
    x = a.astype(np.float64) * spread(a_factor, group)
    y = b.astype(np.float64) * spread(b_factor, group).T
    bound = np.abs(x) @ np.abs(y) * a.shape[1] * 2.0**-23
    for c in results:
        assert (np.abs(c - x @ y) <= bound).all()


def ones(lines: int, k: int, group: int = 32) -> np.ndarray:
    return np.ones((lines, k // group))


@pytest.mark.parametrize("left, right", list(itertools.product(ELEMENTS, ELEMENTS)))
def test_every_pair_of_formats(execute, left, right):
    rng = np.random.default_rng([list(ELEMENTS).index(left), list(ELEMENTS).index(right)])
    a, b, s, t = problem(rng, (left, right), 32, 16, 64)
    check(run(execute, (left, right), a, b, s, t), a, b, powers(s), powers(t))


@pytest.mark.parametrize("formats", [("e4m3", "e5m2"), ("bf16", "fp16"), ("fp16", "bf16")], ids="-".join)
def test_bits_instead_of_floats(execute, rng, formats):
    a, b, s, t = problem(rng, formats, 16, 16, 32)
    check(run(execute, formats, a, b, s, t, as_bits=True), a, b, powers(s), powers(t))


@pytest.mark.parametrize("a_k, b_k", [(True, False), (False, True), (False, False)])
def test_packed_along_the_other_dimension(execute, rng, a_k, b_k):
    a, b, s, t = problem(rng, ("e2m1", "e2m1"), 32, 32, 64)
    results = run(execute, ("e2m1", "e2m1"), a, b, s, t, a_k=a_k, b_k=b_k)
    check(results, a, b, powers(s), powers(t))


@pytest.mark.parametrize("with_a, with_b", [(True, False), (False, True), (False, False)])
def test_no_scale_is_one(execute, rng, with_a, with_b):
    a, b, s, t = problem(rng, ("e4m3", "e2m1"), 16, 32, 64)
    results = run(execute, ("e4m3", "e2m1"), a, b, s if with_a else None, t if with_b else None)
    check(results, a, b, powers(s) if with_a else ones(16, 64), powers(t) if with_b else ones(32, 64))


def test_scales_in_e4m3(execute, rng):
    """NVFP4: 4-bit floats, a scale in e4m3 for 16 of them."""
    group = 16
    a, b, _, _ = problem(rng, ("e2m1", "e2m1"), 16, 16, 64)
    s, t = ((rng.integers(1, 9, (16, 64 // group)) / 4).astype(ml_dtypes.float8_e4m3fn) for _ in range(2))
    results = run(execute, ("e2m1", "e2m1"), a, b, s, t, group=group)
    check(results, a, b, s.astype(np.float64), t.astype(np.float64), group)


def test_signed_bytes_are_scales_too(execute, rng):
    a, b, s, t = problem(rng, ("e4m3", "e4m3"), 16, 16, 64)
    check(run(execute, ("e4m3", "e4m3"), a, b, s.view(np.int8), t.view(np.int8)), a, b, powers(s), powers(t))


# -- special values ----------------------------------------------------------------------------------------


def product_of_scales(execute, formats, scale, value=1.0, fast=False):
    """``value * 2**(scale - 127)`` in the type in which the product is done, as the executors have it."""
    a = np.zeros((16, 32), ELEMENTS[formats[0]])
    a[:, 0] = value
    b = np.zeros((32, 16), ELEMENTS[formats[1]])
    b[0, 0] = 1
    scales = np.full((16, 1), scale, np.uint8)
    return [c[:, 0] for c in run(execute, formats, a, b, scales, None, fast=fast)]


@pytest.mark.parametrize("formats", [("bf16", "e4m3"), ("e4m3", "bf16"), ("e2m1", "e2m1")], ids="-".join)
@pytest.mark.parametrize("scale", [0, 1, 64, 127, 200, 253, 254])
def test_bfloat16_holds_every_scale(execute, formats, scale):
    for column in product_of_scales(execute, formats, scale):
        np.testing.assert_array_equal(column, np.full(16, 2.0 ** (scale - 127), np.float32))


def test_targets_without_bfloat16_arithmetic(rng):
    """Before sm_90 a product of bfloat16 is an ``fma``; subnormal scales and NaN come through it as well."""
    device = EmulatorDevice(check="all", target="sm_80")
    a, b = np.zeros((16, 32), ml_dtypes.bfloat16), drawn(rng, "e2m1", (32, 16))
    a[:, 0] = 1
    scales = np.array([0, 1, 64, 127, 200, 253, 254, 255] * 2, np.uint8)
    arrays = [a, packed(b, 0), scales, np.zeros(1, np.uint8), np.zeros((16, 16), np.float32)]
    placed = [ptxforge.to_device(array, device) for array in arrays]
    given = constants("bf16", "e2m1") | {"SCALE_B": False}
    compiled = scaled_product[1, 1, 1](*placed, **given)
    assert "fma.rn.bf16" in compiled.asm["ptx"] and not device.findings
    expected = powers(scales)[:, None] * b[0].astype(np.float64)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(placed[-1].numpy(), expected.astype(np.float32))


def test_a_product_that_bfloat16_rounds(execute):
    """0.5 · 2**-127 and less are subnormal, 3 · 2**-127 has no bit to lose, 2 · 2**127 overflows."""
    for value, scale in ((0.5, 0), (3.0, 0), (1.0078125 * 2.0**-5, 0), (2.0, 254), (-2.0, 254)):
        with np.errstate(over="ignore"):
            expected = ml_dtypes.bfloat16(np.float64(ml_dtypes.bfloat16(value)) * 2.0 ** (scale - 127))
        for column in product_of_scales(execute, ("bf16", "bf16"), scale, value):
            np.testing.assert_array_equal(column, np.full(16, expected, np.float32))


@pytest.mark.parametrize("formats", [("fp16", "e4m3"), ("e4m3", "fp16")], ids="-".join)
@pytest.mark.parametrize("scale", [0, 102, 103, 113, 142, 143, 254])
def test_float16_loses_scales_out_of_its_range(execute, formats, scale):
    with np.errstate(over="ignore"):
        held = np.float16(2.0 ** (scale - 127))
        expected = np.full(16, held)
        if np.isinf(held):  # the zeros of the row times infinity
            expected[:] = np.nan
    for column in product_of_scales(execute, formats, scale):
        np.testing.assert_array_equal(column, expected.astype(np.float32))


@pytest.mark.parametrize("formats", [("bf16", "bf16"), ("e4m3", "e2m1"), ("fp16", "fp16")], ids="-".join)
def test_a_scale_of_255_is_nan_for_its_row_alone(execute, rng, formats):
    a, b, s, t = problem(rng, formats, 32, 16, 64)
    s[3, 1] = t[5, 0] = 255
    for c in run(execute, formats, a, b, s, t):
        bad = np.zeros(c.shape, bool)
        bad[3, :] = bad[:, 5] = True
        np.testing.assert_array_equal(np.isnan(c), bad)


def test_fast_math_promises_that_no_scale_is_nan(execute, rng):
    a, b, s, t = problem(rng, ("e4m3", "e4m3"), 16, 16, 32)
    check(run(execute, ("e4m3", "e4m3"), a, b, s, t, fast=True), a, b, powers(s), powers(t))
    assert "255" in tile_ir(False) and "255" not in tile_ir(True)


def tile_ir(fast: bool) -> str:
    signature = {"a": "*fp8e4nv", "b": "*fp8e4nv", "a_scale": "*u8", "b_scale": "*u8", "c": "*fp32"}
    return compile_function(scaled_product, signature, constants(fast=fast), target="sm_90a").asm["tile"]


def constants(left="e4m3", right="e4m3", m=16, n=16, k=32, fast=False) -> dict[str, object]:
    return {
        "M": m, "N": n, "K": k, "BLOCK_K": min(k, 64), "A": left, "B": right, "GROUP": 32,
        "SCALE_A": True, "SCALE_B": True, "FAST": fast,
        "AM": 1, "AK": 1 + (left == "e2m1"), "BN": 1, "BK": 1 + (right == "e2m1"),
    }  # fmt: skip


@pytest.mark.parametrize("format", ["e4m3", "e5m2"])
def test_infinity_and_nan_of_a_format(execute, format):
    a = np.zeros((16, 32), ELEMENTS[format])
    a[0, 0] = a[1, 0] = np.nan
    if format == "e5m2":
        a[1, 0] = np.inf
    b = np.ones((32, 16), ELEMENTS["bf16"])
    expected = np.zeros((16, 16), np.float32)
    expected[:2] = a[:2, :1].astype(np.float32)
    for c in run(execute, (format, "bf16"), a, b, None, None):
        np.testing.assert_array_equal(c, expected)


# -- loops, batches, code ----------------------------------------------------------------------------------


@pytest.mark.parametrize("formats", [("e4m3", "e2m1"), ("e2m1", "fp16"), ("bf16", "e5m2")], ids="-".join)
@pytest.mark.parametrize("num_stages", [1, 3])
def test_pipelined_loop(execute, rng, formats, num_stages):
    a, b, s, t = problem(rng, formats, 64, 32, 256)
    results = run(execute, formats, a, b, s, t, block_k=64, num_stages=num_stages)
    check(results, a, b, powers(s), powers(t))


@ptxforge.jit
def batched_product(a, b, a_scale, c):
    z, i, k = tl.arange(0, 2)[:, None, None], tl.arange(0, 16), tl.arange(0, 32)
    x = tl.load(a + z * 512 + i[None, :, None] * 32 + k[None, None, :])
    y = tl.load(b + z * 256 + tl.arange(0, 16)[None, :, None] * 16 + i[None, None, :])
    s = tl.load(a_scale + z * 16 + i[None, :, None])
    result = tl.dot_scaled(x, s, "e5m2", y, None, "e2m1")
    tl.store(c + z * 256 + i[None, :, None] * 16 + i[None, None, :], result)


def test_batches(execute, rng):
    a, b = drawn(rng, "e5m2", (2, 16, 32)), drawn(rng, "e2m1", (2, 32, 16))
    s = rng.integers(124, 131, (2, 16, 1)).astype(np.uint8)
    arguments = [a, packed(b, 1), s, np.zeros((2, 16, 16), np.float32)]
    results = [c for (c,) in execute(batched_product, (1,), arguments, {}, [3])]
    for z in range(2):
        check([c[z] for c in results], a[z], b[z], powers(s[z]), ones(16, 32))


POINTERS = {"e2m1": "*u8", "e4m3": "*fp8e4nv", "e5m2": "*fp8e5", "bf16": "*bf16", "fp16": "*fp16"}


@pytest.mark.parametrize("target", ["sm_80", "sm_89", "sm_90a", "sm_120"])
@pytest.mark.parametrize("formats", [("e4m3", "e2m1"), ("e2m1", "fp16"), ("bf16", "e5m2")], ids="-".join)
def test_tensor_cores_do_it(assemble, target, formats):
    """Every product is an ``mma.sync`` of 16-bit operands, or a ``wgmma``, none an ``fma``."""
    left, right = formats
    signature = {"a": POINTERS[left], "b": POINTERS[right], "a_scale": "*u8", "b_scale": "*u8", "c": "*fp32"}
    signature = {name: f"{type}:16" for name, type in signature.items()}
    sizes = constants(left, right, 64, 64, 256)
    ptx = compile_function(scaled_product, signature, sizes, target=target, num_stages=3).asm["ptx"]
    wanted = "f16" if "fp16" in formats else "bf16"
    # 4 warps do 64 x 64 x 64 an iteration, m16n8k16 each, or together m64n64k16.
    form, count = (r"m16n8k16\.row\.col", 32) if target != "sm_90a" else ("m64n64k16", 4)
    assert len(re.findall(rf"\.aligned\.{form}\.f32\.{wanted}\.{wanted}", ptx)) == count
    assert "fma.rn.f32" not in ptx and "cp.async" in ptx
    assemble(ptx)
