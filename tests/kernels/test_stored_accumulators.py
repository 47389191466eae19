"""How the sums of ``wgmma`` reach memory: in every type, by rows and by columns, in whole and cut tiles."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl

TYPES = {
    "float16": tl.float16, "bfloat16": tl.bfloat16, "float32": tl.float32, "float8_e4m3fn": tl.float8e4nv,
    "int8": tl.int8, "int32": tl.int32,
}  # fmt: skip


@ptxforge.jit
def product(a, b, c, M, N, row, column, BM: tl.constexpr, BN: tl.constexpr, TYPE: tl.constexpr):
    i, j, k = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, 64)
    x = tl.load(a + i[:, None] * 64 + k[None, :], mask=(i < M)[:, None], other=0.0)
    y = tl.load(b + k[:, None] * BN + j[None, :])
    at = c + i[:, None] * row + j[None, :] * column
    tl.store(at, tl.dot(x, y).to(TYPE), mask=(i < M)[:, None] & (j < N)[None, :])


def expected_and_operands(m: int, columns: int, dtype: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sums of few ones and threes, which every type holds."""
    rng = np.random.default_rng(m)
    a = np.where(np.arange(64) < 4, rng.integers(0, 2, (m, 64)), 0).astype(np.float16)
    b = rng.integers(0, 4, (64, columns)).astype(np.float16)
    kind = getattr(ml_dtypes, dtype) if hasattr(ml_dtypes, dtype) else dtype
    return (a.astype(np.float32) @ b.astype(np.float32)).astype(kind), a, b


@pytest.mark.parametrize("order", ["rows", "columns"])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("m", "n", "block", "num_warps"), [
    (128, 128, (64, 128), 4), (100, 96, (64, 128), 4), (128, 64, (128, 64), 8), (70, 250, (64, 256), 8),
])  # fmt: skip
def test_stored(execute, dtype, order, m, n, block, num_warps):
    expected, a, b = expected_and_operands(m, block[1], dtype)
    strides = (block[1], 1) if order == "rows" else (1, m)
    out = np.zeros((m, block[1]) if order == "rows" else (block[1], m), expected.dtype)
    constants = {"BM": block[0], "BN": block[1], "TYPE": TYPES[dtype]}
    for (found,) in execute(product, (-(-m // block[0]),), [a, b, out, m, n, *strides], constants,
                            outputs=[2], num_warps=num_warps):  # fmt: skip
        found = found if order == "rows" else found.T
        np.testing.assert_array_equal(found[:, :n].astype(np.float32), expected[:, :n].astype(np.float32))
        assert not found[:, n:].astype(np.float32).any()


def compiled(dtype: str, order: str = "rows", target: str = "sm_90a") -> str:
    signature = {"a": "*fp16:16", "b": "*fp16:16", "M": "i32", "N": "i32:16"}
    signature["c"] = f"*{TYPES[dtype].name}:16"
    constants = {"BM": 64, "BN": 128, "TYPE": TYPES[dtype]}
    long, unit = ("row", "column") if order == "rows" else ("column", "row")
    signature[long], constants[unit] = "i32:16", 1
    return ptxforge.compile(
        product, signature=signature, constants=constants, target=target, tensor_maps=False
    ).ptx


@pytest.mark.parametrize(("dtype", "order", "form"), [
    ("float16", "rows", "x4"), ("bfloat16", "rows", "x4"), ("float8_e4m3fn", "rows", "x4"),
    ("int8", "rows", "x4"), ("float16", "columns", "x4.trans"),
])  # fmt: skip
def test_narrow_sums_go_in_matrices(dtype, order, form, assemble):
    ptx = compiled(dtype, order)
    assemble(ptx)
    assert f"stmatrix.sync.aligned.m8n8.{form}.shared.b16" in ptx
    behind = ptx[ptx.index("wgmma.wait_group") :]
    assert "st.global.v4.b32" in behind and "st.shared" not in behind


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100", "sm_120"])
def test_other_targets_store_vectors(target):
    assert "stmatrix" not in compiled("float16", target=target)
