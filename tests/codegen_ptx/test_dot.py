"""The matrix product."""

from __future__ import annotations

import numpy as np
import pytest

from ptxforge.ir import types as T
from ptxforge.ir.ops.convert_layout import ConvertLayout
from ptxforge.ir.ops.dot import Dot
from ptxforge.layouts.encodings import DotOperand
from tests.codegen_ptx.harness import Kernel, blocked, pointer

FMA_CASES = [(T.F32, T.F32), (T.F16, T.F32), (T.BF16, T.F32), (T.F64, T.F64), (T.I8, T.I32), (T.F16, T.F16), (T.F8E4M3, T.F32)]


def _numbers(element, shape, seed):
    rng = np.random.default_rng(seed)
    if element.is_int:
        return rng.integers(-100, 100, shape).astype(element.numpy)
    return rng.normal(size=shape).astype(element.numpy)


def product(element, accumulator, m, n, k, result_layout, a_layout, b_layout, load_layout, **attributes):
    """Run ``a @ b + c``; gives (result, reference in f64)."""
    kernel = Kernel(pointer(element), pointer(element), pointer(accumulator), pointer(accumulator), shared_bytes=1 << 16)
    builder = kernel.b
    a = kernel.load(0, (m, k), load_layout)
    a = builder.value(ConvertLayout, a, type=a.type.with_layout(a_layout), scratch_offset=0)
    from ptxforge.ir.ops.memory import Barrier

    builder.create(Barrier)
    b = kernel.load(1, (k, n), load_layout)
    b = builder.value(ConvertLayout, b, type=b.type.with_layout(b_layout), scratch_offset=0)
    c = kernel.load(2, (m, n), result_layout)
    kernel.store(3, builder.value(Dot, a, b, c, **attributes))
    x, y, z = _numbers(element, (m, k), 0), _numbers(element, (k, n), 1), _numbers(accumulator, (m, n), 2)
    out = np.zeros((m, n), accumulator.numpy)
    kernel.run(x, y, z, out)
    return out, x.astype(np.float64) @ y.astype(np.float64) + z.astype(np.float64)


@pytest.mark.parametrize("element, accumulator", FMA_CASES, ids=str)
def test_on_fma_units(element, accumulator):
    layout = blocked(4, 4, threads=(4, 8), warps=(2, 2))
    out, expected = product(element, accumulator, 32, 64, 16, layout, DotOperand(0, layout), DotOperand(1, layout),
                            blocked(1, 4, threads=(4, 8), warps=(4, 1)))
    tolerance = {T.F16: 2e-2, T.F64: 1e-12}.get(accumulator, 1e-5)
    np.testing.assert_allclose(out.astype(np.float64), expected, rtol=tolerance, atol=tolerance)


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
