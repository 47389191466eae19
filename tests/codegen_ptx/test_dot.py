"""The matrix product."""

from __future__ import annotations

import re

import numpy as np
import pytest

from ptxforge.ir import types as T
from ptxforge.ir.ops import shared as shared_ops
from ptxforge.ir.ops.convert_layout import ConvertLayout
from ptxforge.ir.ops.dot import Dot
from ptxforge.ir.ops.memory import Barrier
from ptxforge.layouts.encodings import DotOperand, Mma
from ptxforge.layouts.shared import Shared
from tests.codegen_ptx.harness import Kernel, blocked, pointer

FMA_CASES = [
    (T.F32, T.F32), (T.F16, T.F32), (T.BF16, T.F32), (T.F64, T.F64), (T.I8, T.I32), (T.F16, T.F16),
    (T.F8E4M3, T.F32),
]  # fmt: skip


def _numbers(element, shape, seed):
    rng = np.random.default_rng(seed)
    if element.is_int:
        return rng.integers(-100, 100, shape).astype(element.numpy)
    return rng.normal(size=shape).astype(element.numpy)


def product(
    element, accumulator, m, n, k, result_layout, a_layout, b_layout, load_layout, targets=None, **attributes
):
    """Run ``a @ b + c``; gives (result, reference in f64)."""
    kernel = Kernel(
        pointer(element), pointer(element), pointer(accumulator), pointer(accumulator), shared_bytes=1 << 16
    )
    builder = kernel.b
    a = kernel.load(0, (m, k), load_layout)
    a = builder.value(ConvertLayout, a, type=a.type.with_layout(a_layout), scratch_offset=0)
    builder.create(Barrier)
    b = kernel.load(1, (k, n), load_layout)
    b = builder.value(ConvertLayout, b, type=b.type.with_layout(b_layout), scratch_offset=0)
    c = kernel.load(2, (m, n), result_layout)
    kernel.store(3, builder.value(Dot, a, b, c, **attributes))
    x, y, z = _numbers(element, (m, k), 0), _numbers(element, (k, n), 1), _numbers(accumulator, (m, n), 2)
    out = np.zeros((m, n), accumulator.numpy)
    kernel.run(x, y, z, out, targets=targets)
    return out, x.astype(np.float64) @ y.astype(np.float64) + z.astype(np.float64)


@pytest.mark.parametrize("element, accumulator", FMA_CASES, ids=str)
def test_on_fma_units(element, accumulator):
    layout = blocked(4, 4, threads=(4, 8), warps=(2, 2))
    out, expected = product(
        element,
        accumulator,
        32,
        64,
        16,
        layout,
        DotOperand(0, layout),
        DotOperand(1, layout),
        blocked(1, 4, threads=(4, 8), warps=(4, 1)),
    )
    tolerance = {T.F16: 2e-2, T.F64: 1e-12}.get(accumulator, 1e-5)
    np.testing.assert_allclose(out.astype(np.float64), expected, rtol=tolerance, atol=tolerance)


def test_fma_instructions_go_to_and_fro():
    """One operand of each changes only, but for the step along k: the other comes from the reuse cache."""
    layout = blocked(4, 4, threads=(4, 8), warps=(2, 2))
    kernel = Kernel(pointer(T.F32), pointer(T.F32), pointer(T.F32))
    a = kernel.load(0, (64, 4), DotOperand(0, layout))
    b = kernel.load(1, (4, 128), DotOperand(1, layout))
    c = kernel.b.constant(0.0, T.TensorType((64, 128), T.F32, layout))
    kernel.store(2, kernel.b.value(Dot, a, b, c))
    operands = re.findall(r"fma\.rn\.f32 \S+ (\S+), (\S+), \S+;", kernel.ptx())
    assert len(operands) == 64 * 128 // 128 * 4
    changes = [(x[0] != y[0]) + (x[1] != y[1]) for x, y in zip(operands, operands[1:])]
    assert changes.count(2) == 3 and changes.count(1) == len(changes) - 3


def test_batched():
    layout = blocked(1, 2, 2, threads=(1, 4, 8), warps=(2, 2, 1))
    kernel = Kernel(pointer(T.F32), pointer(T.F32), pointer(T.F32))
    m, n, k, batch = 16, 16, 8, 4
    a = kernel.load(0, (batch, m, k), DotOperand(0, layout))
    b = kernel.load(1, (batch, k, n), DotOperand(1, layout))
    c = kernel.b.constant(0.0, T.TensorType((batch, m, n), T.F32, layout))
    kernel.store(2, kernel.b.value(Dot, a, b, c))
    x, y = _numbers(T.F32, (batch, m, k), 0), _numbers(T.F32, (batch, k, n), 1)
    out = np.zeros((batch, m, n), np.float32)
    kernel.run(x, y, out)
    np.testing.assert_allclose(out, x @ y, rtol=1e-5, atol=1e-5)


# -- tensor cores ----------------------------------------------------------------------------------------

TENSOR_CASES = [
    (T.F16, T.F32, 2), (T.F16, T.F32, 4), (T.F16, T.F32, 8), (T.BF16, T.F32, 2), (T.F16, T.F16, 2),
    (T.F32, T.F32, 1),
    (T.I8, T.I32, 4), (T.F8E4M3, T.F32, 4), (T.F8E5M2, T.F32, 4), (T.F64, T.F64, 1),
]  # fmt: skip


@pytest.mark.parametrize("element, accumulator, k_width", TENSOR_CASES, ids=str)
@pytest.mark.parametrize("warps", [(2, 2), (4, 1), (1, 4)], ids=str)
def test_on_tensor_cores(element, accumulator, k_width, warps):
    layout = Mma((2, 0), warps, (8, 8) if element is T.F64 else (16, 8))
    targets = ("sm_89", "sm_90a", "sm_120") if element in (T.F8E4M3, T.F8E5M2) else None
    out, expected = product(
        element,
        accumulator,
        32,
        32,
        64,
        layout,
        DotOperand(0, layout, k_width),
        DotOperand(1, layout, k_width),
        blocked(1, 4, threads=(4, 8), warps=(4, 1)),
        targets=targets,
    )
    tolerance = {T.F16: 3e-2, T.F64: 1e-12, T.I32: 0}.get(accumulator, 1e-5)
    if element is T.F32:
        tolerance = 3e-2
    np.testing.assert_allclose(out.astype(np.float64), expected, rtol=tolerance, atol=tolerance * 4)


@pytest.mark.parametrize("m, n, k", [(16, 8, 16), (8, 16, 16), (16, 16, 8), (64, 128, 32), (128, 16, 16)])
def test_sizes_on_tensor_cores(m, n, k):
    layout = Mma((2, 0), (2, 2), (16, 8))
    out, expected = product(T.F16, T.F32, m, n, k, layout, DotOperand(0, layout, 2), DotOperand(1, layout, 2),
                            blocked(1, 4, threads=(4, 8), warps=(4, 1)))
    np.testing.assert_allclose(out, expected, rtol=1e-3, atol=1e-3)


def test_batched_on_tensor_cores():
    layout = Mma((2, 0), (2, 2, 1), (1, 16, 8))
    kernel = Kernel(pointer(T.F16), pointer(T.F16), pointer(T.F32))
    m, n, k, batch = 32, 16, 32, 4
    a = kernel.load(0, (batch, m, k), DotOperand(0, layout, 2))
    b = kernel.load(1, (batch, k, n), DotOperand(1, layout, 2))
    c = kernel.b.constant(0.0, T.TensorType((batch, m, n), T.F32, layout))
    kernel.store(2, kernel.b.value(Dot, a, b, c))
    x, y = _numbers(T.F16, (batch, m, k), 0), _numbers(T.F16, (batch, k, n), 1)
    out = np.zeros((batch, m, n), np.float32)
    kernel.run(x, y, out)
    np.testing.assert_allclose(out, x.astype(np.float32) @ y.astype(np.float32), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("order", [(1, 0), (0, 1)])
@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("element, k_width", [(T.F16, 2), (T.BF16, 2), (T.F32, 1), (T.I8, 4)], ids=str)
def test_operands_by_ldmatrix(element, k_width, index, order):
    """Both orders of both operands; 16-bit ones always by ldmatrix, others where k is contiguous."""
    layout = DotOperand(index, Mma((2, 0), (2, 2), (16, 8)), k_width)
    size = (64, 64)
    vector = 128 // element.bits
    shared = Shared(
        vector, max(1, 1024 // (64 * element.bits)), 8 // max(1, 1024 // (64 * element.bits)), order
    )
    kernel = Kernel(pointer(element), pointer(element), shared_bytes=1 << 15)
    b = kernel.b
    x = kernel.load(0, size, blocked(1, 4, threads=(4, 8), warps=(4, 1)))
    tile = b.value(shared_ops.LocalAlloc, x, type=T.MemDescType(size, element, shared), offset=0)
    b.create(Barrier)
    kernel.store(1, b.value(shared_ops.LocalLoad, tile, type=T.TensorType(size, element, layout)))
    data = _numbers(element, size, 0)
    out = np.zeros_like(data)
    kernel.run(data, out)
    np.testing.assert_array_equal(out, data)
    contiguous_k = order[0] == (1 if index == 0 else 0)
    assert ("ldmatrix" in kernel.ptx()) == (element.bits == 16 or contiguous_k)
    if element.bits == 16:
        assert (".trans" in kernel.ptx()) != contiguous_k
