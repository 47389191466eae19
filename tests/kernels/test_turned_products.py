"""Products whose right operand can come through registers only: by ``wgmma`` in exchanged roles, on every
executor; what their loops consist of."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

import ptxforge
from benchmarks.configurations import products
from benchmarks.dialects import load
from ptxforge.compiler import compile_function
from ptxforge.emulator import EmulatorDevice

kernels = load("ptxforge")
WEIGHTS = {"i8": np.int8, "e4m3": ml_dtypes.float8_e4m3fn}


def problem(element: str, layout: str, m: int, n: int, k: int) -> tuple[list, np.ndarray]:
    """Arguments of ``matmul_weights`` and the product of small integers."""
    rng = np.random.default_rng(m + n)
    a = rng.integers(-4, 5, (m, k)).astype(ml_dtypes.bfloat16)
    w = rng.integers(-4, 5, (k, n)).astype(WEIGHTS[element])
    scales = np.exp2(rng.integers(-2, 3, n)).astype(np.float32)
    stored, strides = (w, (n, 1)) if layout == "NN" else (np.ascontiguousarray(w.T), (1, k))
    c = np.zeros((m, n), np.float32)
    arguments = [a, stored, scales, c, m, n, k, k, 1, *strides, n, 1]
    return arguments, a.astype(np.float32) @ w.astype(np.float32) * scales


@pytest.mark.parametrize("element", WEIGHTS)
@pytest.mark.parametrize("layout", ["NN", "NT"])
@pytest.mark.parametrize("block, num_warps, num_stages", [
    ((64, 64, 64), 4, 3), ((32, 128, 32), 4, 2), ((64, 128, 32), 8, 4), ((64, 64, 64), 4, 1)
], ids=str)  # fmt: skip
def test_weights_that_are_widened(execute, element, layout, block, num_warps, num_stages):
    m, n, k = block[0], 2 * block[1], 160 if block[2] == 32 else 192
    arguments, expected = problem(element, layout, m, n, k)
    constants = dict(zip(("BLOCK_M", "BLOCK_N", "BLOCK_K"), block, strict=True)) | {"GROUP_M": 2}
    options = {"num_warps": num_warps, "num_stages": num_stages}
    for (c,) in execute(kernels.matmul_weights, (2,), arguments, constants, outputs=[3], **options):
        np.testing.assert_array_equal(c, expected)


@pytest.mark.parametrize("element", WEIGHTS)
def test_weights_are_read_without_conflicts(element):
    device = EmulatorDevice(target="sm_90a", counters=True)
    arguments, _ = problem(element, "NT", 128, 128, 256)
    placed = [ptxforge.to_device(x, device) if isinstance(x, np.ndarray) else x for x in arguments]
    blocks = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 1}
    ptxforge.compile(kernels.matmul_weights)[(1,)](*placed, **blocks, num_warps=8)
    lines = device.last_report.lines
    assert any(line.text.startswith("ld.shared.") for line in lines)
    assert {x.text: x.bank_conflicts for x in lines if x.bank_conflicts and x.text.startswith("ld.sh")} == {}


@pytest.mark.parametrize("name", [
    "bf16-i8-NT-128-128-64-w8-s3", "bf16-fp8-NT-128-256-64-w8-s3", "tf32-NN-128-256-32-w8-s3"
])  # fmt: skip
def test_their_loop(name, assemble):
    """Products of warpgroups; TMA copies both operands, and threads put nothing into shared memory."""
    (one,) = [c for c in products() if c.name == name]
    kernel = getattr(kernels, one.kernel)
    ptx = compile_function(kernel, one.signature, one.constants, "sm_90a", **one.options).ptx
    assemble(ptx)
    labels = re.finditer(r"^(\$for_\d+):", ptx, re.MULTILINE)
    *_, label = labels  # of the innermost loop
    loop = ptx[label.end() : ptx.index(f"{label[1]};", label.end())]
    assert "wgmma.mma_async" in loop and "mma.sync" not in ptx
    assert "st.shared" not in loop and "cp.async.bulk" in loop and "cp.async.cg" not in loop
