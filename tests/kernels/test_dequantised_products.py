"""Products of weights of a few bits, two in a byte or all that fit in words, with scales for groups along k:
against float64, on every executor; and how small integers become f16 and bf16."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from benchmarks.configurations import int4
from benchmarks.dialects import load
from ptxforge.compiler import compile_function
from ptxforge.emulator import EmulatorDevice

kernels = load("ptxforge")
HALVES = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16}


def draw(m: int, n: int, k: int, group: int, dtype, split: int = 1):
    """Arguments of ``matmul_int4``, and the product in float64. Scales are powers of two, so that what is
    multiplied is exact."""
    rng = np.random.default_rng(m + n + k)
    a = rng.integers(-4, 5, (m, k)).astype(dtype)
    q = rng.integers(0, 16, (n, k)).astype(np.uint8)
    scales = np.exp2(rng.integers(-2, 3, (k // group, n))).astype(dtype)
    w = (q.astype(np.float64) - 8) * scales.astype(np.float64).T.repeat(group, 1)
    c = np.zeros((m, n), np.float32)
    return [a, q[:, ::2] | q[:, 1::2] << 4, scales, c, m, n, k, k, k // 2, n, n], a.astype(np.float64) @ w.T


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("block", "group", "num_warps", "stages", "split"), [
    ((64, 64, 64), 128, 4, 3, 1),
    ((64, 128, 128), 128, 8, 2, 1),
    ((16, 64, 128), 128, 4, 4, 2),
    ((16, 64, 32), 64, 4, 3, 1),
    ((128, 64, 64), 64, 4, 1, 1),
    ((32, 32, 32), 32, 4, 3, 1),
], ids=str)  # fmt: skip
def test_weights_of_four_bits(execute, block, group, num_warps, stages, split, turned):
    arguments, expected = draw(block[0], 128, 256, group, ml_dtypes.bfloat16)
    constants = dict(zip(("BLOCK_M", "BLOCK_N", "BLOCK_K"), block), GROUP_M=2, GROUP_K=group)
    constants |= {"TURNED": turned, "SPLIT_K": split}
    options = {"num_warps": num_warps, "num_stages": stages}
    for (c,) in execute(kernels.matmul_int4, (128 // block[1], split), arguments, constants, [3], **options):
        np.testing.assert_array_equal(c, expected)


@pytest.mark.parametrize("one", int4("int4"), ids=lambda one: one.name)
def test_weights_stay_on_their_way_through_registers(one, assemble):
    """In every configuration of the benchmarks products run on into the next iteration, scales are loaded
    ahead, and no instruction converts."""
    artifact = compile_function(kernels.matmul_int4, one.signature, one.constants, "sm_90a", **one.options)
    assemble(artifact.ptx)
    (product,) = [r.message for r in artifact.remarks if r.kind == "product"]
    assert "wgmma" in product and "in flight across iterations" in product
    assert {recipe.base for recipe in artifact.tensor_maps} >= {"a", "w", "scales"}
    assert not [r for r in artifact.remarks if r.kind == "not-pipelined"]
    body = artifact.ptx[artifact.ptx.index("wgmma.wait_group") :]
    assert "cvt.rn.bf16.u32" not in artifact.ptx
    words = len(re.findall(r"lop3\.b32", body))
    assert words and len(re.findall(r"ld\.shared\.b8", body)) == words


@pytest.mark.parametrize("row", [32, 64, 128])
def test_weights_are_read_without_conflicts(row):
    """A warp reads four bytes of each of eight rows, which lie in all banks."""
    n, k = 64, 2 * row
    arguments, _ = draw(64, n, 2 * k, k, ml_dtypes.bfloat16)
    device = EmulatorDevice(target="sm_90a", counters=True)
    placed = [ptxforge.to_device(x, device) if isinstance(x, np.ndarray) else x for x in arguments]
    blocks = {"BLOCK_M": 64, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": 2, "GROUP_K": k}
    ptxforge.compile(kernels.matmul_int4)[(1,)](*placed, **blocks, num_warps=4)
    lines = device.last_report.lines
    assert any(line.text.startswith("ld.shared.b8") for line in lines)
    assert not [x.text for x in lines if x.bank_conflicts and x.text.startswith("ld.sh")]


# -- words of eight weights, each loaded by eight rows of the tile -----------------------------------------


@ptxforge.jit
def matmul_words(
    a, b, scales, zeros, c, K, stride_am, stride_bk, stride_s, stride_cm,
    BITS: tl.constexpr, GROUP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    STEPS: tl.constexpr,
):  # fmt: skip
    """a @ w, where ``w[k, n] = q[k, n] · scales[k // GROUP, n] + zeros[k // GROUP, n]``; the numbers ``q`` of
    32 / BITS neighbours along k lie in a word."""
    EACH: tl.constexpr = 32 // BITS
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    words = b + (k[:, None] // EACH) * stride_bk + n[None, :]
    shift = ((k % EACH) * BITS)[:, None]
    left = a + m[:, None] * stride_am + k[None, :]
    total = tl.zeros((BM, BN), tl.float32)
    for step in range(STEPS):
        x = tl.load(left)
        w = tl.load(words)
        group = (step * (BK / GROUP)).to(tl.int32) * stride_s
        s = tl.load(scales + n[None, :] + group)
        z = tl.load(zeros + n[None, :] + group)
        w = (w >> shift) & ((1 << BITS) - 1)
        total = tl.dot(x, tl.fma(w.to(s.dtype), s, z).to(x.dtype), total)
        left += BK
        words += (BK // EACH) * stride_bk
    tl.store(c + m[:, None] * stride_cm + n[None, :], total)


def draw_words(bits: int, m: int, n: int, k: int, group: int, dtype):
    """Arguments of ``matmul_words``, and the product in float64: all of it is exact."""
    rng = np.random.default_rng(bits + m + n + k)
    a = rng.integers(-2, 3, (m, k)).astype(dtype)
    q = rng.integers(0, min(16, 1 << bits), (k, n))
    scales = np.exp2(rng.integers(-1, 2, (k // group, n))).astype(dtype)
    zeros = rng.integers(-8, 9, (k // group, n)).astype(dtype)
    each = 32 // bits
    words = sum(q[i::each].astype(np.uint32) << np.uint32(bits * i) for i in range(each)).view(np.int32)
    w = q * scales.astype(np.float64).repeat(group, 0) + zeros.astype(np.float64).repeat(group, 0)
    c = np.zeros((m, n), np.float32)
    return [a, words, scales, zeros, c, k, k, n, n, n], a.astype(np.float64) @ w


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(("bits", "block", "group", "num_warps", "stages"), [
    (4, (64, 64, 64), 64, 4, 4),
    (4, (64, 128, 32), 64, 8, 3),
    (8, (64, 64, 64), 64, 4, 3),
    (4, (16, 64, 64), 64, 4, 3),
    (2, (64, 64, 64), 64, 4, 1),
    (4, (32, 32, 64), 128, 2, 2),
], ids=str)  # fmt: skip
def test_words_of_several_weights(execute, bits, block, group, num_warps, stages, dtype):
    arguments, expected = draw_words(bits, 2 * block[0], 2 * block[1], 256, group, HALVES[dtype])
    constants = dict(zip(("BM", "BN", "BK"), block), BITS=bits, GROUP=group, STEPS=256 // block[2])
    options = {"num_warps": num_warps, "num_stages": stages}
    for (c,) in execute(matmul_words, (2, 2), arguments, constants, [4], **options):
        np.testing.assert_array_equal(c, expected)


WORDS = {
    "a": "*fp16:16", "b": "*i32:16", "scales": "*fp16:16", "zeros": "*fp16:16", "c": "*fp32:16",
    **dict.fromkeys(("K", "stride_am", "stride_bk", "stride_s", "stride_cm"), "i32:16"),
}  # fmt: skip


@pytest.mark.parametrize(("bits", "block", "num_warps"), [
    (4, (128, 128, 64), 8), (4, (128, 128, 64), 4), (8, (128, 256, 64), 8), (4, (64, 128, 32), 8),
], ids=str)  # fmt: skip
def test_words_are_copied_once_and_unpacked_in_registers(bits, block, num_warps, assemble):
    """The ring holds each word once; the product's left operand is computed where it is needed, while the one
    before is multiplied; scales and zeros come by TMA."""
    constants = dict(zip(("BM", "BN", "BK"), block), BITS=bits, GROUP=64, STEPS=64)
    options = {"num_warps": num_warps, "num_stages": 4}
    artifact = compile_function(matmul_words, WORDS, constants, "sm_90a", **options)
    assemble(artifact.ptx)
    (product,) = [r.message for r in artifact.remarks if r.kind == "product"]
    assert "through registers" in product and "in flight across iterations" in product
    assert not [r for r in artifact.remarks if r.kind == "not-pipelined"]
    gpu = artifact.asm["gpu"]
    assert f"memdesc<4x{block[2] * bits // 32}x{block[1]}xi32" in gpu
    loop = gpu[gpu.index("= for ") : gpu.index("yield")]
    assert "tensor_load %scales_map" in loop and "tensor_load %zeros_map" in loop
    assert "scratch_offset" not in loop  # what is left of conversions gives registers other names


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_120"])
def test_words_leave_room_for_stages(target, assemble):
    """A tile of 64×128 words of eight weights in five stages would take 160 KiB beside the left operands."""
    constants = {"BM": 64, "BN": 128, "BK": 64, "BITS": 4, "GROUP": 64, "STEPS": 64}
    artifact = compile_function(matmul_words, WORDS, constants, target, num_warps=4, num_stages=5)
    assemble(artifact.ptx)
    assert artifact.shared_bytes < 80 << 10


# -- small integers ----------------------------------------------------------------------------------------


@ptxforge.jit
def convert(out, x, KIND: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    value = tl.load(x + i)
    if KIND == "nibbles":
        value = tl.join(value & 15, value >> 4).reshape(2 * BLOCK)
    if KIND == "signed nibbles":
        value = tl.join((value << 4).to(tl.int8) >> 4, value >> 4).reshape(2 * BLOCK)
    if KIND == "zero point":
        value = (value & 15).to(tl.int8) - 8
    if KIND == "pairs":
        value = tl.join(value & 3, (value >> 2) & 3).reshape(2 * BLOCK)
    found = value.to(out.dtype.element_ty)
    if KIND == "taken off":
        found = (value & 127).to(out.dtype.element_ty) - 100.0
    if KIND == "taken off twice":
        found = (value & 127).to(out.dtype.element_ty) + 3.0 - 130.0
    if KIND == "much taken off":
        found = (value & 127).to(out.dtype.element_ty) - 1001.0
    if KIND == "a fraction":
        found = (value & 127).to(out.dtype.element_ty) - 0.5
    j = tl.arange(0, found.shape[0])
    tl.store(out + j, found)


def expected_of(kind: str, x: np.ndarray, dtype) -> np.ndarray:
    """What ``convert`` gives, by way of float64 with a rounding after each operation."""
    wide = x.astype(np.int64)
    if kind in ("nibbles", "signed nibbles", "pairs"):
        bits = 2 if kind == "pairs" else 4
        parts = np.stack([wide & (1 << bits) - 1, wide >> bits & (1 << bits) - 1], -1).reshape(-1)
        return (parts - 16 * (parts > 7) if kind == "signed nibbles" else parts).astype(dtype)
    if kind == "zero point":
        return ((wide & 15) - 8).astype(dtype)
    if kind == "any":
        return wide.astype(dtype)
    low = (wide & 127).astype(dtype).astype(np.float64)
    for step in {"taken off": (-100,), "taken off twice": (3, -130), "much taken off": (-1001,),
                 "a fraction": (-0.5,)}[kind]:  # fmt: skip
        low = (low + np.float64(np.float64(step).astype(dtype))).astype(dtype).astype(np.float64)
    return low.astype(dtype)


@pytest.mark.parametrize("target", HALVES)
@pytest.mark.parametrize(("kind", "source"), [
    ("any", np.int8), ("any", np.uint8), ("any", np.int16), ("nibbles", np.uint8), ("nibbles", np.int32),
    ("signed nibbles", np.int8), ("zero point", np.uint8), ("pairs", np.uint8), ("taken off", np.uint8),
    ("taken off twice", np.int8), ("much taken off", np.uint8), ("a fraction", np.uint8),
])  # fmt: skip
def test_all_bytes_become_floats(execute, kind, source, target):
    x = np.arange(256).astype(source)
    expected = expected_of(kind, x, HALVES[target])
    out = np.zeros(expected.shape, HALVES[target])
    constants = {"KIND": kind, "BLOCK": 256}
    for (found,) in execute(convert, (1,), [out, x], constants, outputs=[0], num_warps=1):
        np.testing.assert_array_equal(found.view(np.uint16), expected.view(np.uint16))


@pytest.mark.parametrize(("kind", "source", "target"), [
    ("nibbles", "u8", "bf16"), ("nibbles", "u8", "fp16"), ("signed nibbles", "i8", "bf16"),
    ("zero point", "u8", "bf16"), ("any", "i8", "bf16"), ("taken off", "u8", "fp16"),
])  # fmt: skip
def test_small_integers_need_no_conversion(kind, source, target):
    signature = {"out": f"*{target}:16", "x": f"*{source}:16"}
    artifact = ptxforge.compile(
        convert, signature=signature, constants={"KIND": kind, "BLOCK": 256}, target="sm_90a", num_warps=1
    )
    assert "cvt.rn" not in artifact.ptx
    halves = 512 if "nibbles" in kind else 256
    subtractions = len(re.findall(r"\bsub\.(rn\.)?(f16|bf16) ", artifact.ptx))
    subtractions += 2 * len(re.findall(r"\bsub\.f16x2 ", artifact.ptx))
    assert subtractions == halves // 32


# -- counters of another unit than the tiles' -------------------------------------------------------------


@ptxforge.jit
def counted_otherwise(a, b, c, M, N, K, UNIT: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
                      BK: tl.constexpr):  # fmt: skip
    """c = a @ b; the loop counts UNIT for each index along k."""
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    left, right = a + i[:, None] * K + k[None, :], b + k[:, None] * N + j[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, UNIT * K, UNIT * BK):
        acc = tl.dot(tl.load(left), tl.load(right), acc)
        left += BK
        right += BK * N
    tl.store(c + i[:, None] * N + j[None, :], acc)


@pytest.mark.parametrize("unit", [1, 2, 3, 8])
def test_counters_of_another_unit(execute, unit):
    """Tiles begin at a share of the counter, in columns as in rows; of thirds, pointers walk."""
    rng = np.random.default_rng(unit)
    a, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((64, 192), (192, 128)))
    arguments = [a, b, np.zeros((64, 128), np.float32), 64, 128, 192]
    blocks = {"UNIT": unit, "BM": 64, "BN": 64, "BK": 64}
    for (c,) in execute(counted_otherwise, (1, 2), arguments, blocks, [2], num_warps=4, num_stages=3):
        np.testing.assert_array_equal(c, a.astype(np.float32) @ b.astype(np.float32))
    bases = {recipe.base for recipe in counted_otherwise.variants[-1].artifact.tensor_maps}
    assert bases == (set() if unit == 3 else {"a", "b"})
