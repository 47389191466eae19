"""Mathematical functions against mpmath: within 2 units in the last place."""

from __future__ import annotations

import re

import mpmath
import numpy as np
import pytest

from ptxforge.ir import types as T
from ptxforge.ir.ops import math as ops
from ptxforge.ir.ops.arith import AddF
from ptxforge.ir.ops.shape import Reshape
from ptxforge.support import machine
from tests.codegen_ptx.harness import Kernel, blocked, pointer

COUNT = 512
REFERENCE = {
    ops.Exp2: lambda x: mpmath.mpf(2) ** x, ops.Log: mpmath.log, ops.Log2: lambda x: mpmath.log(x, 2),
    ops.Sin: mpmath.sin,
    ops.Cos: mpmath.cos, ops.Tan: mpmath.tan, ops.Tanh: mpmath.tanh, ops.Erf: mpmath.erf,
    ops.Sqrt: mpmath.sqrt,
    ops.SqrtRn: mpmath.sqrt, ops.Rsqrt: lambda x: 1 / mpmath.sqrt(x), ops.Exp: mpmath.exp,
}  # fmt: skip


def _arguments(kind, dtype):
    rng = np.random.default_rng(7)
    wide = np.dtype(dtype).itemsize == 8
    if kind in (ops.Log, ops.Log2):
        parts = [
            np.exp(rng.uniform(-80, 80, 200)),
            1 + rng.uniform(-0.3, 0.4, 200),
            [1, 2, 0.5, 1e-40, 3e-42, 1e38],
        ]
    elif kind in (ops.Sin, ops.Cos, ops.Tan):
        far = 10.0 ** rng.uniform(5, 300 if wide else 37, 120) * rng.choice([-1, 1], 120)
        parts = [rng.uniform(-10, 10, 200), rng.uniform(-1e5, 1e5, 100), far, np.pi / 2 * np.arange(1, 93)]
    elif kind in (ops.Tanh, ops.Erf):
        parts = [rng.uniform(-1, 1, 250), rng.uniform(-7, 7, 250), [0.0, 1e-30, 50.0, -50.0]]
    elif kind is ops.Exp2:
        parts = [rng.uniform(-1000, 1000, COUNT) if wide else rng.uniform(-125, 127, COUNT)]
    elif kind is ops.Exp:
        parts = [rng.uniform(-700, 700, COUNT) if wide else rng.uniform(-2, 2, COUNT)]
    else:
        parts = [np.exp(rng.uniform(-40, 40, COUNT))]
    return np.resize(np.concatenate(parts), COUNT).astype(dtype)


def _compute(kind, element, *arguments, target="sm_90a", everywhere=False):
    kernel = Kernel(*[pointer(element)] * (len(arguments) + 1))
    loaded = [kernel.load(i, (COUNT,), blocked(4)) for i in range(len(arguments))]
    kernel.store(len(arguments), kernel.b.value(kind, *loaded))
    out = np.zeros(COUNT, element.numpy)
    kernel.run(*arguments, out, check="off", target=target, everywhere=everywhere)
    return out


def _assert_close(out, arguments, function, ulp=2.0):
    with mpmath.workprec(1200):
        for got, *x in zip(out, *arguments):
            exact = function(*(mpmath.mpf(float(v)) for v in x))
            unit = mpmath.mpf(float(np.spacing(np.abs(np.asarray(float(exact), out.dtype)))))
            assert abs(mpmath.mpf(float(got)) - exact) <= ulp * unit, (x, got, float(exact))


@pytest.mark.parametrize("element", [T.F32, T.F64], ids=str)
@pytest.mark.parametrize("kind", REFERENCE, ids=lambda k: k.name)
def test_accuracy(kind, element):
    x = _arguments(kind, element.numpy)
    out = _compute(kind, element, x, everywhere=True)
    # exp of f32 rounds its scaled argument: the error grows with the argument (here up to 2).
    _assert_close(out, [x], REFERENCE[kind], ulp=4 if kind is ops.Exp and element is T.F32 else 2)


@pytest.mark.parametrize("element", [T.F16, T.BF16], ids=str)
@pytest.mark.parametrize("kind", [ops.Exp, ops.Sin, ops.Sqrt, ops.Rsqrt, ops.Log], ids=lambda k: k.name)
def test_narrow_types_are_rounded_once(kind, element):
    x = np.abs(np.random.default_rng(0).normal(size=COUNT)).astype(element.numpy)
    out = _compute(kind, element, x)
    expected = [float(REFERENCE[kind](mpmath.mpf(float(v)))) for v in x]
    assert np.mean(out == np.array(expected).astype(element.numpy)) > 0.99
    np.testing.assert_allclose(
        out.astype(float), expected, rtol=2e-3 if element is T.F16 else 1e-2, atol=1e-6
    )


@pytest.mark.parametrize("element", [T.F32, T.F64], ids=str)
def test_power(element):
    rng = np.random.default_rng(3)
    x = np.exp(rng.uniform(-5, 5, COUNT)).astype(element.numpy)
    y = (rng.uniform(-15, 15, COUNT) * (8 if element is T.F64 else 1)).astype(element.numpy)
    _assert_close(_compute(ops.Pow, element, x, y, everywhere=True), [x, y], lambda a, c: a**c)


@pytest.mark.parametrize("name", ["all", "one", "near", "beyond", "denormal"])
def test_powers_of_f32_are_computed_in_f32_with_results_of_every_size(name):
    """The logarithm has two parts: with it, ``y`` may be large. Not a single instruction of f64, which are
    slower, as are conversions."""
    rng = np.random.default_rng(4)
    x = {"all": 10 ** rng.uniform(-37, 38, COUNT), "one": rng.uniform(0.7, 1.42, COUNT),
         "near": 1 + rng.uniform(-1e-4, 1e-4, COUNT), "beyond": rng.uniform(0.7, 1.42, COUNT),
         "denormal": 10 ** rng.uniform(-44, -38, COUNT)}[name].astype(np.float32)  # fmt: skip
    size = (130, 400) if name == "beyond" else (-125, 127)
    wanted = rng.uniform(*size, COUNT) * (rng.choice([-1, 1], COUNT) if name == "beyond" else 1)
    with np.errstate(divide="ignore"):
        y = (wanted / np.log2(x.astype(np.float64))).astype(np.float32)
    y[~np.isfinite(y)] = 3
    out = _compute(ops.Pow, T.F32, x, y, everywhere=True)
    with np.errstate(over="ignore", under="ignore"):
        exact = x.astype(np.float64) ** y
        expected = exact.astype(np.float32)
    is_normal = (exact > 2.0**-126) & (exact < 2.0**127.99)
    assert is_normal.any() == (name != "beyond")
    np.testing.assert_allclose(out[is_normal], exact[is_normal], rtol=2.5e-7)
    np.testing.assert_allclose(out[~is_normal], expected[~is_normal], rtol=3e-7, atol=1.5e-45)


def test_powers_of_f32_take_no_f64():
    kernel = Kernel(*[pointer(T.F32)] * 3)
    kernel.store(2, kernel.b.value(ops.Pow, *(kernel.load(i, (COUNT,), blocked(4)) for i in range(2))))
    ptx = kernel.ptx()
    assert ".f64" not in ptx and ptx.count("ex2.approx") == ptx.count("rcp.approx") == COUNT // 128


SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 2.0, -2.0, 0.5, -0.5, 3.0, -3.0, 2.5, -2.5,
           16777215.0, 16777217.0, -8388607.0, 2.0**31, 2.0**33]


@pytest.mark.parametrize("kind", [ops.Sin, ops.Cos, ops.Tan])
def test_angles_of_f32_are_reduced_without_conversions(kind):
    """Nor does a tangent divide: but for the branch of large arguments all instructions are cheap."""
    kernel = Kernel(pointer(T.F32), pointer(T.F32))
    kernel.store(1, kernel.b.value(kind, kernel.load(0, (COUNT,), blocked(4))))
    ptx = kernel.ptx()
    body = ptx[ptx.index(".entry") :]
    assert "cvt.rni" not in body and "div." not in body
    assert len(re.findall(r"rcp\.approx", body)) == (4 if kind is ops.Tan else 0)


@pytest.mark.parametrize("kind", [ops.Sin, ops.Cos, ops.Tan])
def test_large_angles_of_a_thread_share_a_branch(kind):
    """One by one, each element's branch would keep its instructions apart from the others'. Behind it the
    large ones are their own again."""
    kernel = Kernel(pointer(T.F32), pointer(T.F32))
    kernel.store(1, kernel.b.value(kind, kernel.load(0, (COUNT,), blocked(4))))
    x = np.resize(np.array([0.5, 2e5, 3e38, -1.0, -7e6, np.inf, 1e5, np.nan, 4.0], np.float32), COUNT)
    out = np.zeros_like(x)
    kernel.run(x, out)
    with np.errstate(invalid="ignore"):
        expected = getattr(np, kind.__name__.lower())(x.astype(np.float64))
    np.testing.assert_allclose(out, expected, rtol=3e-7, atol=1e-7)
    body = kernel.ptx().partition(".entry")[2]
    usual = re.sub(r"@!%p\d+ bra \$(common_\d+);.*?\n\$\1:", "", body, flags=re.S)
    assert "call" in body and "call" not in usual and "bra" not in usual


@pytest.mark.parametrize("element", [T.F32, T.F64], ids=str)
def test_special_powers(element):
    x, y = (np.resize(v.ravel(), COUNT).astype(element.numpy) for v in np.meshgrid(SPECIAL, SPECIAL))
    out = _compute(ops.Pow, element, x, y)
    with np.errstate(all="ignore"):
        expected = np.power(x.astype(np.float64), y.astype(np.float64)).astype(element.numpy)
    same = (np.isnan(out) & np.isnan(expected)) | (
        (np.signbit(out) == np.signbit(expected)) & np.isclose(out, expected, rtol=1e-6)
    )
    assert same.all(), list(zip(x[~same], y[~same], out[~same], expected[~same]))


@pytest.mark.parametrize("element", [T.F32, T.F64], ids=str)
@pytest.mark.parametrize("kind, function", [
    (ops.Exp, np.exp), (ops.Exp2, np.exp2), (ops.Log, np.log), (ops.Log2, np.log2), (ops.Sin, np.sin),
    (ops.Cos, np.cos),
    (ops.Tan, np.tan), (ops.Tanh, np.tanh), (ops.Sqrt, np.sqrt), (ops.Floor, np.floor), (ops.Ceil, np.ceil),
    (ops.Trunc, np.trunc), (ops.Rint, np.rint)], ids=lambda v: getattr(v, "name", ""))
def test_special_values(kind, function, element):
    x = np.resize([0.0, -0.0, np.inf, -np.inf, np.nan, -1.0, 1e-45, 2.5, -2.5, 1.5, -0.5], COUNT).astype(
        element.numpy
    )
    out = _compute(kind, element, x)
    with np.errstate(all="ignore"):
        expected = function(x)
    exact = ~np.isfinite(expected) | (expected == 0)
    np.testing.assert_array_equal(out[exact], expected[exact])
    zeros = expected == 0
    np.testing.assert_array_equal(np.signbit(out[zeros]), np.signbit(expected[zeros]))
    np.testing.assert_allclose(out[~exact], expected[~exact], rtol=1e-6)


def test_many_exponentials_are_tested_in_parts(monkeypatch):
    """One test for all would need all arguments at once. Each part decides about denormal results alone."""
    monkeypatch.setattr(machine, "EXPONENTIALS_TOGETHER", 16)
    kernel = Kernel(pointer(T.F32), pointer(T.F32), num_warps=1)
    kernel.store(1, kernel.b.value(ops.Exp, kernel.load(0, (2048,), blocked(1, warps=(1,)))))
    x = np.random.default_rng(1).uniform(-80, 80, 2048).astype(np.float32)
    x[:64] = -100.0  # in the first of the four parts some results are denormal
    out = np.zeros_like(x)
    kernel.run(x.copy(), out)
    assert len(re.findall(r"bra \$denormal", kernel.ptx())) == 4
    np.testing.assert_allclose(out, np.exp(x.astype(np.float64)), rtol=2e-5, atol=2e-45)


def test_exponentials_are_not_tested_where_registers_are_short():
    """Threads of 32 warps have room for 64 words: 32 elements and two exponentials of each are more. (All are
    there at once where elements meet others.)"""
    for warps, is_tested in ((8, True), (32, False)):
        size = 32 * 32 * warps
        kernel = Kernel(pointer(T.F32), pointer(T.F32), num_warps=warps)
        x = kernel.load(0, (size,), blocked(1, warps=(warps,)))
        powers = kernel.b.value(ops.Exp, x)
        again = kernel.b.value(ops.Exp, powers)
        total = kernel.b.value(AddF, kernel.b.value(AddF, x, powers), again)
        kernel.store(1, kernel.b.value(Reshape, total, type=total.type))
        values = np.random.default_rng(1).uniform(-104, 2, size).astype(np.float32)
        out = np.zeros_like(values)
        kernel.run(values.copy(), out)
        assert ("$denormal" in kernel.ptx()) == is_tested
        first = np.exp(values.astype(np.float64))
        np.testing.assert_allclose(out, values + first + np.exp(first), rtol=4e-5)


@pytest.mark.parametrize("addend, is_tested", [(-1.0, False), (2.0**-100, False), (2.0**-120, True)])
def test_exponentials_whose_denormal_results_no_sum_shows(addend, is_tested):
    """``1 + exp(x)`` is 1 for a denormal power and for 0; a sum with a tiny number is not."""
    kernel = Kernel(pointer(T.F32), pointer(T.F32), num_warps=1)
    x = kernel.load(0, (512,), blocked(1, warps=(1,)))
    powers = kernel.b.value(ops.Exp, x)
    kernel.store(1, kernel.b.value(AddF, powers, kernel.b.constant(addend, x.type)))
    x = np.random.default_rng(1).uniform(-104, -60, 512).astype(np.float32)
    out = np.zeros_like(x)
    kernel.run(x.copy(), out)
    assert ("ex2.approx.f32" in kernel.ptx()) == is_tested
    expected = (addend + np.exp(x.astype(np.float64))).astype(np.float32)
    np.testing.assert_allclose(out, expected, rtol=2e-5)


@pytest.mark.parametrize("element", [T.F16, T.BF16], ids=str)
def test_exponentials_of_sixteen_bits_are_tested_where_denormal_results_are_kept(element):
    kernel = Kernel(pointer(element), pointer(element), num_warps=1)
    kernel.store(1, kernel.b.value(ops.Exp, kernel.load(0, (512,), blocked(1, warps=(1,)))))
    x = np.random.default_rng(1).uniform(-90, 10, 512).astype(element.numpy)
    out = np.zeros_like(x)
    kernel.run(x.copy(), out)
    assert ("$denormal" in kernel.ptx()) == (element is T.BF16)
    expected = np.exp(x.astype(np.float64)).astype(element.numpy)
    difference = np.abs(out.view(np.int16).astype(int) - expected.view(np.int16).astype(int))
    assert difference.max() <= 1
