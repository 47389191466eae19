"""quotients and exponentials: many results that share the handling of special cases."""

from __future__ import annotations

import numpy as np
import pytest

from ptxforge.ir import types as T
from ptxforge.ir.ops import arith, math, memory
from ptxforge.ir.ops.cast import ExtF
from tests.codegen_ptx.harness import Kernel, blocked, pointer

COUNT = 1024
LARGEST = float(np.finfo(np.float32).max)


def _close(actual, expected, ulps):
    """Within units in the last place, denormal numbers included; infinities and NaN exactly."""
    with np.errstate(all="ignore"):
        rounded = expected.astype(np.float32)
        finite = np.abs(np.where(np.isfinite(rounded), rounded, 0))
        unit = np.maximum(np.spacing(finite), np.float32(2.0**-149))
        near = np.abs(actual.astype(np.float64) - expected) <= ulps * unit.astype(np.float64)
    same = (actual == rounded) | (np.isnan(actual) & np.isnan(rounded))
    assert (near | same).all(), (actual[~(near | same)], expected[~(near | same)])


def _dividends():
    rng = np.random.default_rng(0)
    x = (rng.standard_normal(COUNT) * np.exp2(rng.integers(-140, 127, COUNT))).astype(np.float32)
    x[:8] = [0, -0.0, np.inf, -np.inf, np.nan, 1e-45, LARGEST, 2.0**-126]
    return x


DIVISORS = [
    3.0, -0.7, 1.0, LARGEST, 2.0**126, 1.5 * 2.0**126, -(2.0**127), 2.0**-126, 2.0**-127, 1e-45, -1e-40, 0.0,
    np.inf, np.nan,
]  # fmt: skip


@pytest.mark.parametrize("divisor", DIVISORS)
def test_one_divisor(divisor):
    """Whatever its size, within the 2 ulp of ``div.full.f32``; and the reciprocal is computed once."""
    kernel = Kernel(pointer(T.F32), pointer(T.F32), T.F32)
    layout = blocked(8)
    x = kernel.load(0, (COUNT,), layout, vector=4)
    y = kernel.splat(kernel.function.arguments[2], (COUNT,), layout)
    kernel.store(1, kernel.b.value(arith.DivF, x, y), vector=4)
    data, out = _dividends(), np.zeros(COUNT, np.float32)
    kernel.run(data, out, divisor)
    with np.errstate(all="ignore"):
        expected = data.astype(np.float64) / np.float64(np.float32(divisor))
    _close(out, expected, 2)
    assert kernel.ptx().count("rcp.approx.ftz.f32") == 1 and "div.full" not in kernel.ptx()


def test_many_divisors():
    """Divisors that are not shared are divided by one at a time."""
    kernel = Kernel(pointer(T.F32), pointer(T.F32), pointer(T.F32))
    x, y = (kernel.load(i, (COUNT,), blocked(8), vector=4) for i in (0, 1))
    kernel.store(2, kernel.b.value(arith.DivF, x, y), vector=4)
    x, y, out = _dividends(), np.roll(_dividends(), 5), np.zeros(COUNT, np.float32)
    kernel.run(x, y, out)
    with np.errstate(all="ignore"):
        expected = x.astype(np.float64) / y.astype(np.float64)
    _close(out, expected, 2)
    assert kernel.ptx().count("div.full.f32") == 8


def test_constant_dividends_and_a_divisor_by_row():
    """Rows of a tile have a divisor each, which the elements of a thread's row share."""
    kernel = Kernel(pointer(T.F32), pointer(T.F32), pointer(T.F32))
    layout = blocked(2, 8, threads=(8, 4), warps=(4, 1))
    b, shape = kernel.b, (64, 32)
    x = kernel.load(0, shape, layout)
    rows = kernel.coordinate(shape, 0, layout)
    places = b.value(memory.AddPtr, kernel.splat(kernel.function.arguments[1], shape, layout), rows)
    y = b.value(memory.Load, places, vector=1)
    kernel.store(2, b.value(arith.DivF, x, y))
    rng = np.random.default_rng(1)
    data, by_row = rng.standard_normal(shape).astype(np.float32), rng.standard_normal(64).astype(np.float32)
    by_row[5] = 1e-42
    out = np.zeros(shape, np.float32)
    kernel.run(data, by_row, out)
    with np.errstate(all="ignore"):
        expected = data.astype(np.float64) / by_row.astype(np.float64)[:, None]
    _close(out, expected, 2)
    assert kernel.ptx().count("rcp.approx.ftz.f32") == 2


@pytest.mark.parametrize("element", [T.F32, T.F16, T.BF16], ids=str)
@pytest.mark.parametrize("base", [2, "2 with denormals", "e"])
def test_powers(base, element):
    """Over the whole range: where results are denormal, and in warps that have no such arguments."""
    kernel = Kernel(pointer(element), pointer(T.F32))
    x = kernel.load(0, (COUNT,), blocked(8))
    y = kernel.b.value(math.Exp, x) if base == "e" else kernel.b.value(math.Exp2, x, denormals=base != 2)
    if element is not T.F32:
        y = kernel.b.value(ExtF, y, type=T.TensorType((COUNT,), T.F32, blocked(8)))
    kernel.store(1, y)
    data = np.linspace(-160, 130, COUNT).astype(element.numpy)
    data[512:] = np.linspace(-1, 1, 512).astype(element.numpy)
    data[600:605] = [-np.inf, np.inf, np.nan, 0, -0.0]
    data[700:706] = [-126, -126.00001, -149, -150, -150.5, -140.25]
    out = np.zeros(COUNT, np.float32)
    kernel.run(data, out)
    with np.errstate(all="ignore"):
        wide = data.astype(np.float64)
        expected = np.exp(wide) if base == "e" else np.exp2(wide)
        expected[wide < -126 if base == 2 else []] = 0
        if element is not T.F32:
            expected = expected.astype(np.float32).astype(element.numpy).astype(np.float64)
    scale = 2.0 if base != "e" else 4 + np.abs(np.where(np.isfinite(wide), wide, 0))
    if element is T.F32:
        _close(out, expected, scale)
    else:
        step = 2.0**-7 if element is T.BF16 else 2.0**-10
        np.testing.assert_allclose(out, expected, rtol=step, atol=2.0**-24)
    assert kernel.ptx().count("ex2.approx.ftz.f32") == (8 if base in (2, "e") else 0)


def test_a_few_powers_need_no_branch():
    kernel = Kernel(pointer(T.F32), pointer(T.F32))
    kernel.store(1, kernel.b.value(math.Exp, kernel.load(0, (512,), blocked(4))))
    assert "bra" not in kernel.ptx() and kernel.ptx().count("ex2.approx.f32") == 4


def test_powers_of_two_never_need_one():
    """What would be denormal is 0."""
    kernel = Kernel(pointer(T.F32), pointer(T.F32))
    kernel.store(1, kernel.b.value(math.Exp2, kernel.load(0, (COUNT,), blocked(8))))
    assert "bra" not in kernel.ptx() and "ex2.approx.f32" not in kernel.ptx()
