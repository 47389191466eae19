"""Operands of dots that are transposed, cast or scaled between memory and the dot: results on every executor,
and loops that hold nothing but copies, reads of fragments, work in registers and products."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from examples import flash_attention
from ptxforge.emulator import EmulatorDevice
from tests.kernels.tensor_core import loops


@ptxforge.jit
def dequantized(
    a, b, scale, c, K, stride_bk, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    TRANSPOSED: tl.constexpr, SCALED: tl.constexpr,
):  # fmt: skip
    """c = a @ (b · scale of its column) in f32; b is cast to a's type. TRANSPOSED: tiles of b are loaded as
    [n, k] and transposed. One tile a program, a is [m, K]."""
    i = tl.arange(0, BLOCK_M)
    j = tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a_tile = a + i[:, None] * K + k[None, :]
    if TRANSPOSED:
        b_tile = b + j[:, None] * stride_bn + k[None, :] * stride_bk
    else:
        b_tile = b + k[:, None] * stride_bk + j[None, :] * stride_bn
    factor = tl.load(scale + j)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for _ in range(0, K, BLOCK_K):
        x = tl.load(a_tile)
        y = tl.load(b_tile).to(x.dtype)
        if TRANSPOSED:
            y = tl.trans(y)
        if SCALED:
            y = y * factor[None, :]
        acc = tl.dot(x, y, acc)
        a_tile += BLOCK_K
        b_tile += BLOCK_K * stride_bk
    tl.store(c + i[:, None] * BLOCK_N + j[None, :], acc)


KINDS = {  # name: element types of a and b
    "f16 f16": (np.float16, np.float16),
    "f16 i8": (np.float16, np.int8),
    "f16 u8": (np.float16, np.uint8),
    "f16 e4m3": (np.float16, ml_dtypes.float8_e4m3fn),
    "f16 e5m2": (np.float16, ml_dtypes.float8_e5m2),
    "bf16 i8": (ml_dtypes.bfloat16, np.int8),
    "bf16 e4m3": (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn),
    "f16 f32": (np.float16, np.float32),
    "tf32 f16": (np.float32, np.float16),
    "tf32 i8": (np.float32, np.int8),
}
TILE = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64}


def problem(kind: str, order: str, steps: int, tile: dict[str, int]):
    """(arguments, the exact product without scales, the scales) of random small integers."""
    left, right = KINDS[kind]
    m, n, k = tile["BLOCK_M"], tile["BLOCK_N"], tile["BLOCK_K"] * steps
    rng = np.random.default_rng(7)
    a = rng.integers(-3, 4, (m, k)).astype(left)
    b = rng.integers(0 if right is np.uint8 else -3, 4, (k, n)).astype(right)
    scale = rng.integers(1, 3, n).astype(left)
    placed = np.ascontiguousarray(b if order == "row" else b.T)
    strides = (n, 1) if order == "row" else (1, k)
    arguments = [a, placed, scale, np.full((m, n), np.nan, np.float32), k, *strides]
    return arguments, a.astype(np.float64) @ b.astype(np.float64), scale.astype(np.float64)


@pytest.mark.parametrize("is_scaled", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("order", ["row", "column"])
@pytest.mark.parametrize("kind", KINDS)
def test_results(execute, kind, order, transposed, is_scaled):
    arguments, expected, scale = problem(kind, order, 3, TILE)
    if is_scaled:
        expected = expected * scale
    options = TILE | {"TRANSPOSED": transposed, "SCALED": is_scaled}
    for (c,) in execute(dequantized, (1,), arguments, options, outputs=[3], num_warps=4, num_stages=3):
        np.testing.assert_array_equal(c, expected)


@pytest.mark.parametrize("kind", ["f16 e4m3", "f16 i8", "f16 f32"])
@pytest.mark.parametrize("num_warps, num_stages", [(1, 2), (2, 4), (8, 1), (8, 3)])
def test_warps_and_stages(execute, kind, num_warps, num_stages):
    for order in ("row", "column"):
        arguments, expected, scale = problem(kind, order, 2, TILE)
        options = TILE | {"TRANSPOSED": order == "column", "SCALED": True}
        found = execute(
            dequantized, (1,), arguments, options, outputs=[3], num_warps=num_warps, num_stages=num_stages
        )
        for (c,) in found:
            np.testing.assert_array_equal(c, expected * scale)


def launched(kernel, grid, arguments, **options) -> tuple[EmulatorDevice, str]:
    """An emulator that counts, after a launch, and the PTX: of ``mma.sync``, which reads registers."""
    device = EmulatorDevice(target="sm_90", counters=True)
    placed = [ptxforge.to_device(x, device) if isinstance(x, np.ndarray) else x for x in arguments]
    return device, kernel[grid](*placed, **options).asm["ptx"]


def check_loops(device: EmulatorDevice, ptx: str) -> None:
    """No bank conflicts; no stores to shared memory, loads from global memory or small copies in any loop."""
    report = device.last_report
    assert {line.text: line.bank_conflicts for line in report.lines if line.bank_conflicts} == {}
    for body in loops(ptx):
        assert "st.shared" not in body and "ld.global" not in body and body.count("bar.sync") == 1
        assert "cp.async.cg" in body and "shfl" not in body


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("order", ["row", "column"])
@pytest.mark.parametrize("kind", KINDS)
def test_loop_sends_nothing_to_shared_memory_twice(kind, order, transposed):
    tile = {"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 64}
    arguments, _, _ = problem(kind, order, 2, tile)
    device, ptx = launched(
        dequantized, (1,), arguments, **tile, TRANSPOSED=transposed, SCALED=True, num_warps=4, num_stages=3
    )
    check_loops(device, ptx)
    (body,) = loops(ptx)
    assert "cp.async.ca" not in body
    wide = {np.dtype(np.float32)} & {np.dtype(x) for x in KINDS[kind]}
    if "8" in kind:
        assert not re.search(r"cvt\.rn\.\w+\.[su](8|32)", body)
    if not wide:
        assert not re.search(r"ld\.shared\.(b8|b16|b32)", body)


@ptxforge.jit
def attend(q, k, v, out, length, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, D: tl.constexpr):
    """Attention as most write it: tiles of k are loaded row by row, and transposed."""
    i = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    j = tl.arange(0, BLOCK_N)
    d = tl.arange(0, D)
    rows = tl.load(q + i[:, None] * D + d[None, :])
    top = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    for start in range(0, length, BLOCK_N):
        keys = tl.load(k + (start + j)[:, None] * D + d[None, :])
        scores = tl.dot(rows, tl.trans(keys))
        new_top = tl.maximum(top, tl.max(scores, 1))
        p = tl.exp2(scores - new_top[:, None])
        shrink = tl.exp2(top - new_top)
        total = total * shrink + tl.sum(p, 1)
        values = tl.load(v + (start + j)[:, None] * D + d[None, :])
        acc = tl.dot(p.to(values.dtype), values, acc * shrink[:, None])
        top = new_top
    tl.store(out + i[:, None] * D + d[None, :], (acc / total[:, None]).to(out.dtype.element_ty))


@pytest.mark.parametrize(
    "depth, block_m, num_warps", [(64, 64, 4), (128, 64, 4), (128, 128, 4), (64, 128, 8)]
)
def test_attention_with_transposed_keys(execute, depth, block_m, num_warps):
    """Also with q read from shared memory in every iteration (128 rows of 128, 4 warps)."""
    length = 2 * block_m
    rng = np.random.default_rng(1)
    q, k, v = ((rng.standard_normal((length, depth)) / 4).astype(np.float16) for _ in range(3))
    arguments = [q, k, v, np.zeros((length, depth), np.float16), length]
    constants = {"BLOCK_M": block_m, "BLOCK_N": 64, "D": depth}
    scores = q.astype(np.float64) @ k.astype(np.float64).T
    p = np.exp2(scores - scores.max(1, keepdims=True))
    expected = (p / p.sum(1, keepdims=True)) @ v.astype(np.float64)
    options = {"num_warps": num_warps, "num_stages": 2}
    for (out,) in execute(attend, (2,), arguments, constants, outputs=[3], **options):
        np.testing.assert_allclose(out.astype(np.float64), expected, atol=2e-3)
    device, ptx = launched(attend, (1,), arguments, **constants, **options)
    report = device.last_report
    assert {line.text: line.bank_conflicts for line in report.lines if line.bank_conflicts} == {}
    (body,) = loops(ptx)
    assert "st.shared" not in body and "ld.shared" not in body and "ld.global" not in body
    of_rows = block_m * depth // 256 // num_warps if (depth, block_m, num_warps) == (128, 128, 4) else 0
    assert body.count("ldmatrix") == 2 * 64 * depth // 256 + of_rows


@pytest.mark.parametrize("depth", [64, 128])
@pytest.mark.parametrize("kernel", [flash_attention.columns_kernel, flash_attention.rows_kernel])
def test_attention_backward_goes_through_shared_memory_once(kernel, depth):
    length = 128
    f16 = [np.zeros((length, depth), np.float16) for _ in range(4)]
    f32 = [np.zeros(length, np.float32) for _ in range(2)]
    count = 2 if kernel is flash_attention.columns_kernel else 1
    results = [np.zeros((length, depth), np.float16) for _ in range(count)]
    device, ptx = launched(
        kernel, (1, 1), [*f16, *f32, *results, 0.1, 0.1, length],
        BLOCK_M=64, BLOCK_N=64, D=depth, CAUSAL=False, num_warps=4,
    )  # fmt: skip
    check_loops(device, ptx)
