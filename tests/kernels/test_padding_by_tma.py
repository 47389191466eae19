"""Tiles of products that are padded with NaN: TMA brings them, and the NaN."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge import interpreter
from ptxforge.ir.parser import parse_function

TILE = {"BM": 64, "BN": 64, "BK": 32}


def integers(*shape: int, dtype=np.float16) -> np.ndarray:
    return np.random.default_rng(0).integers(-3, 4, shape).astype(dtype)


def padded(x: np.ndarray, rows: int, columns: int, by: float) -> np.ndarray:
    """``x`` in float32, among numbers ``by`` behind its rows and columns."""
    return np.pad(x.astype(np.float32), [(0, rows - len(x)), (0, columns - x.shape[1])], constant_values=by)


def paddings(artifact) -> dict[str, str]:
    """What lies outside of the tensors of which a kernel has maps."""
    return {recipe.base: recipe.padding for recipe in artifact.tensor_maps}


def reasons(artifact) -> list[str]:
    return [remark.message for remark in artifact.remarks if remark.kind in ("not-by-tma", "not-pipelined")]


@ptxforge.jit
def product(x, y, out, M, N, K, PAD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Whole tiles of ``out``: ``x`` is padded with PAD, ``y`` with zeros."""
    left = tl.make_tensor_descriptor(x, [M, K], [K, 1], [BM, BK], PAD)
    right = tl.make_tensor_descriptor(y, [K, N], [N, 1], [BK, BN])
    i, j = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        total = tl.dot(left.load([i, k]), right.load([k, j]), total)
    rows, columns = i + tl.arange(0, BM)[:, None], j + tl.arange(0, BN)[None, :]
    tl.store(out + rows * (tl.num_programs(1) * BN) + columns, total)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32], ids=lambda d: d.__name__)
@pytest.mark.parametrize("pad", ["nan", "zero"])
@pytest.mark.parametrize("m, k", [(80, 64), (64, 80), (80, 80)])
def test_what_lies_outside(execute, dtype, pad, m, k):
    """Rows behind the last one are NaN; so is all that a column behind the last one reaches."""
    x, y = integers(m, k, dtype=dtype), integers(k, 64, dtype=dtype)
    deep = -(-k // 32) * 32
    with np.errstate(invalid="ignore"):
        expected = padded(x, -(-m // 64) * 64, deep, np.nan if pad == "nan" else 0) @ padded(y, deep, 64, 0)
    arguments = [x, y, np.ones((*expected.shape,), np.float32), m, 64, k]
    for (out,) in execute(product, (len(expected) // 64, 1), arguments, TILE | {"PAD": pad}, outputs=[2]):
        np.testing.assert_array_equal(out, expected)
    assert np.isnan(expected).any() == (pad == "nan")


def compiled(kernel, dtype: str = "fp16", scales: str = "", **constants):
    signature = {"x": f"*{dtype}:16", "y": f"*{dtype}:16", "out": "*fp32:16"} | dict.fromkeys("MNK", "i32:16")
    signature |= {"scales": scales} if scales else {}
    return kernel.compile(signature, TILE | constants, target="sm_90a", num_warps=4)


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("pad", ["nan", "zero"])
def test_tma_brings_it(dtype, pad):
    artifact = compiled(product, dtype, PAD=pad)
    assert paddings(artifact) == {"x": pad, "y": "zero"}
    assert not reasons(artifact)


def test_what_passes_make_of_it():
    m, n, k = 80, 64, 80
    x, y, found = integers(m, k), integers(k, n), np.ones((128, 64), np.float32)
    expected = padded(x, 128, 96, np.nan) @ padded(y, 96, 64, 0)
    function = parse_function(compiled(product, PAD="nan").asm["gpu"])
    interpreter.run(function, (2, 1), {"x": x, "y": y, "out": found, "M": m, "N": n, "K": k})
    np.testing.assert_array_equal(found, expected)


def test_a_tensor_without_rows(execute):
    """No tensor map has none: a variant that reads by pointers."""
    x, y = integers(16, 64), integers(64, 64)
    arguments = [x, y, np.ones((64, 64), np.float32), 0, 64, 64]
    for (out,) in execute(product, (1, 1), arguments, TILE | {"PAD": "nan"}, outputs=[2]):
        assert np.isnan(out).all()


@ptxforge.jit
def scaled(x, y, scales, out, M, N, K, WHAT: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
           BK: tl.constexpr):  # fmt: skip
    """By pointers: ``(x * scales) @ yᵀ``; what WHAT names is padded with NaN, all else with zeros."""
    i, j = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    x_pad: tl.constexpr = float("nan") if WHAT == "x" else 0.0
    y_pad: tl.constexpr = float("nan") if WHAT == "y" else 0.0
    scale_pad: tl.constexpr = float("nan") if WHAT == "scales" else 0.0
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        left = tl.load(x + i[:, None] * K + k[None, :], mask=i[:, None] < M, other=x_pad)
        right = tl.load(y + j[:, None] * K + k[None, :], mask=j[:, None] < N, other=y_pad)
        scale = tl.load(scales + k, mask=k < K, other=scale_pad)
        total = tl.dot((left * scale[None, :]).to(y.dtype.element_ty), right.T, total)
    tl.store(out + i[:, None] * BN + j[None, :], total)


@pytest.mark.parametrize("what", ["x", "y", "scales", ""])
@pytest.mark.parametrize("k", [64, 80])
def test_by_pointers(execute, what, k):
    m, n, deep = 80, 48, -(-k // 32) * 32
    x, y, scales = integers(m + 2, k), integers(n + 2, k), integers(1, k, dtype=np.float32)
    pads = {name: np.nan if name == what else 0 for name in ("x", "y", "scales")}
    factors = padded(scales, 1, deep, pads["scales"])
    # columns have no bound: behind the last one begins the next row, times the scale's zero
    left = padded(x[:m], 128, k, pads["x"])
    right = padded(y[:n], 64, k, pads["y"])
    if np.isnan(factors).any():
        expected = np.full((128, 64), np.nan, np.float32)
    else:
        expected = (left * factors[:, :k]) @ right.T
    arguments = [x, y, scales, np.ones((128, 64), np.float32), m, n, k]
    for (out,) in execute(scaled, (2, 1), arguments, TILE | {"WHAT": what}, outputs=[3], num_warps=4):
        np.testing.assert_array_equal(out, expected)
    found = paddings(compiled(scaled, scales="*fp32:16", WHAT=what))
    assert found == {name: "nan" if name == what else "zero" for name in ("x", "y", "scales")}


def test_bytes_have_no_nan():
    """TMA knows 8-bit floats as bytes."""
    by_what = {
        what: paddings(compiled(scaled, "fp8e5", scales="*fp32:16", WHAT=what, BK=64)) for what in ("", "y")
    }
    both = {"x": "zero", "scales": "zero"}
    assert by_what == {"": both | {"y": "zero"}, "y": both}


@ptxforge.jit
def of_loaded_sizes(x, y, out, sizes, N, K, PAD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
                    BK: tl.constexpr):  # fmt: skip
    """The tensor of ``x`` is as large as is loaded: no launcher knows it."""
    left = tl.make_tensor_descriptor(x, [tl.load(sizes), tl.load(sizes + 1)], [K, 1], [BM, BK], PAD)
    right = tl.make_tensor_descriptor(y, [tl.load(sizes + 2), tl.load(sizes + 1)], [K, 1], [BN, BK])
    total = tl.zeros((BM, BN), tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        total = tl.dot(left.load([0, k * BK]), right.load([0, k * BK]).T, total)
    tl.store(out + tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :], total)


@pytest.mark.parametrize("m, k", [(48, 64), (64, 50), (0, 64)])
def test_only_the_kernel_knows_the_tensor(execute, m, k):
    """Its map would be that of a zero where the tensor is empty: threads copy tiles that NaN pads."""
    x, y = integers(64, 64), integers(64, 64)
    expected = padded(x[:m, :k], 64, 64, np.nan) @ padded(y[:, :k], 64, 64, 0).T
    arguments = [x, y, np.ones((64, 64), np.float32), np.array([m, k, 64], np.int32), 64, 64]
    for (out,) in execute(of_loaded_sizes, (1,), arguments, TILE | {"PAD": "nan"}, outputs=[2]):
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("pad, made", [("nan", 1), ("zero", 2)])
def test_maps_that_kernels_make_have_zeros(pad, made):
    signature = {"x": "*fp16:16", "y": "*fp16:16", "out": "*fp32:16", "sizes": "*i32:16"}
    signature |= dict.fromkeys("NK", "i32:16")
    artifact = of_loaded_sizes.compile(signature, TILE | {"PAD": pad}, target="sm_90a", num_warps=4)
    assert artifact.asm["gpu"].count("= make_tensor_map") == made


@ptxforge.jit
def in_two_loops(q, k, v, out, length, LAST: tl.constexpr, BLOCK: tl.constexpr, D: tl.constexpr):
    """Values of blocks before a program's own are padded with zeros, those of its own with LAST."""
    i, d = tl.arange(0, BLOCK), tl.arange(0, D)
    queries = tl.load(q + i[:, None] * D + d[None, :])
    end = tl.program_id(0) * BLOCK
    sums, result = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK, D), tl.float32)
    for start in range(0, end, BLOCK):
        rows = start + i
        keys = tl.load(k + rows[None, :] * D + d[:, None], mask=rows[None, :] < length, other=0.0)
        values = tl.load(v + rows[:, None] * D + d[None, :], mask=rows[:, None] < length, other=0.0)
        p = tl.exp2(tl.dot(queries, keys))
        result = tl.dot(p.to(tl.float16), values, result)
        sums += tl.sum(p, 1)
    for start in range(end, end + BLOCK, BLOCK):
        rows = start + i
        keys = tl.load(k + rows[None, :] * D + d[:, None], mask=rows[None, :] < length, other=0.0)
        values = tl.load(v + rows[:, None] * D + d[None, :], mask=rows[:, None] < length, other=LAST)
        p = tl.dot(queries, keys)
        result = tl.dot(p.to(tl.float16), values, result)
        sums += tl.sum(p, 1)
    tl.store(out + (tl.program_id(0) * BLOCK + i[:, None]) * D + d[None, :], result + sums[:, None])


@pytest.mark.parametrize("last, rings", [(0.0, 4), (float("nan"), 7)])
def test_a_loop_behind_reads_on_where_both_are_padded_alike(execute, last, rings):
    length, programs = 144, 3
    q, k, v = (integers(rows, 32) for rows in (64, length, length))
    q = q / np.float16(16)
    scores = q.astype(np.float32) @ padded(k, 192, 32, 0).T
    expected = np.zeros((programs, 64, 32))
    for number in range(programs):
        end = number * 64
        p = np.concatenate([np.exp2(scores[:, :end]), scores[:, end : end + 64]], 1)
        values = np.concatenate([v[:end], padded(v[end:], 192 - end, 32, last)])[: end + 64]
        expected[number] = p @ values + p.sum(1)[:, None]
    constants = {"LAST": last, "BLOCK": 64, "D": 32}
    arguments = [q, k, v, np.zeros(expected.shape, np.float32), length]
    for (out,) in execute(in_two_loops, (programs,), arguments, constants, outputs=[3], num_stages=2):
        np.testing.assert_allclose(out, expected, rtol=1e-3, atol=0.5)
        assert np.isnan(out).any() == np.isnan(last)
    signature = dict.fromkeys("qkv", "*fp16:16") | {"out": "*fp32:16", "length": "i32:16"}
    artifact = in_two_loops.compile(signature, constants, target="sm_90a", num_warps=4, num_stages=2)
    assert artifact.asm["gpu"].count("barrier_init") == rings
