"""Mathematical functions against mpmath, fma against exact rationals."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from ptxforge.ir import types as T
from ptxforge.ir.ops import math as M
from tests.ops.floats import exact, same_floats
from tests.ops.references import FLOATS, INTEGERS, evaluate, floats, integers, round_float, wrap

FUNCTIONS = {
    M.Exp: mpmath.exp, M.Exp2: lambda x: mpmath.power(2, x), M.Log: mpmath.log,
    M.Log2: lambda x: mpmath.log(x, 2),
    M.Sin: mpmath.sin, M.Cos: mpmath.cos, M.Tan: mpmath.tan, M.Tanh: mpmath.tanh, M.Erf: mpmath.erf,
    M.Sqrt: mpmath.sqrt, M.SqrtRn: mpmath.sqrt, M.Rsqrt: lambda x: 1 / mpmath.sqrt(x),
}  # fmt: skip
POSITIVE = (M.Log, M.Log2, M.Sqrt, M.SqrtRn, M.Rsqrt)


def fraction(x: mpmath.mpf) -> Fraction:
    """The exact value of a finite number (``as_integer_ratio`` exists only since mpmath 1.4)."""
    mantissa, exponent = x.man_exp  # of |x|
    size = Fraction(int(mantissa)) * Fraction(2) ** int(exponent)
    return -size if x < 0 else size


@pytest.mark.parametrize("type", FLOATS, ids=str)
@pytest.mark.parametrize("kind", FUNCTIONS, ids=lambda k: k.name)
def test_functions_are_rounded_exactly(kind, type):
    """Up to f32 the result is the rounded exact value; in f64 within 2 ulp."""
    rng = np.random.default_rng(1)
    x = (rng.standard_normal(100) * rng.choice([0.01, 1, 20], 100)).astype(np.float32).astype(type.numpy)
    x = np.abs(x) if kind in POSITIVE else x
    result = evaluate(kind, x).astype(np.float64)
    with mpmath.workprec(200):
        for a, r in zip(map(float, x), map(float, result)):
            true = FUNCTIONS[kind](mpmath.mpf(a))
            rounded = round_float(fraction(mpmath.mpf(true)), type)
            if type is T.F64:
                assert r == rounded or abs(r - rounded) <= 2 * np.spacing(abs(rounded)), (a, r, rounded)
            else:
                assert r == rounded, (a, r, rounded)


def test_special_values():
    x = np.array([np.nan, np.inf, -np.inf, -1.0, 0.0, -0.0], np.float32)
    nan, inf = np.nan, np.inf
    same_floats(evaluate(M.Exp, x), np.array([nan, inf, 0.0, np.float32(math.exp(-1)), 1.0, 1.0]))
    same_floats(evaluate(M.Log, x), np.array([nan, inf, nan, nan, -inf, -inf]))
    same_floats(evaluate(M.Sqrt, x), np.array([nan, inf, nan, nan, 0.0, -0.0]))
    same_floats(evaluate(M.Rsqrt, x), np.array([nan, 0.0, nan, nan, inf, -inf]))
    same_floats(evaluate(M.Erf, x), np.array([nan, 1.0, -1.0, np.float32(math.erf(-1)), 0.0, -0.0]))
    same_floats(evaluate(M.Tanh, x), np.array([nan, 1.0, -1.0, np.float32(math.tanh(-1)), 0.0, -0.0]))


@pytest.mark.parametrize("type", FLOATS, ids=str)
@pytest.mark.parametrize("kind, function", [
    (M.Floor, math.floor), (M.Ceil, math.ceil), (M.Trunc, math.trunc), (M.Rint, round), (M.AbsF, abs),
], ids=str)  # fmt: skip
def test_rounding_functions(kind, function, type):
    x = floats(type, 3)
    expected = []
    for v in map(float, x):
        if not math.isfinite(v):
            expected.append(abs(v) if kind is M.AbsF else v)
        else:
            expected.append(abs(v) if kind is M.AbsF else math.copysign(function(v), v))
    same_floats(evaluate(kind, x), np.array(expected))


@pytest.mark.parametrize("type", INTEGERS, ids=str)
def test_absolute_integers(type):
    x = integers(type)
    np.testing.assert_array_equal(evaluate(M.AbsI, x), [wrap(abs(int(v)), type.bits) for v in x])


@pytest.mark.parametrize("type", FLOATS, ids=str)
def test_fma_rounds_once(type):
    x, y, z = (floats(type, seed, 1500) for seed in (4, 5, 6))
    # Cancellation: z near -x·y shows a product that was rounded.
    third = len(x) // 3
    with np.errstate(all="ignore"):
        z[:third] = -(x[:third] * y[:third])
    # A product in the middle between two values, and a tiny addend that decides: rounding twice gets it
    # wrong.
    precision = {T.F16: 11, T.BF16: 8, T.F32: 24, T.F64: 53}[type]
    x[-2:], y[-2:] = type.numpy.type(1 + 2.0 ** (1 - precision)), type.numpy.type(1.5)
    z[-2:] = np.array([1.0, -1.0]) * (2.0**-60 if type in (T.F32, T.F64, T.BF16) else 2.0**-24)
    result = evaluate(M.Fma, x, y, z)
    expected = []
    for a, b, c in zip(map(float, x), map(float, y), map(float, z)):
        if not all(map(math.isfinite, (a, b, c))):
            product = (
                exact("*", a, b, T.F64)
                if not (math.isfinite(a) and math.isfinite(b))
                else math.copysign(1, a) * math.copysign(1, b)
            )
            expected.append(exact("+", product, c, T.F64))
            continue
        value = Fraction(a) * Fraction(b) + Fraction(c)
        expected.append(round_float(value, type) if value else float(np.float64(a) * b + c))
    actual = result.astype(np.float64)
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("type", FLOATS, ids=str)
def test_exact_quotient(type):
    x, y = floats(type, 7), floats(type, 8)
    same_floats(
        evaluate(M.DivRn, x, y), np.array([exact("/", float(a), float(b), type) for a, b in zip(x, y)])
    )


def test_pow_follows_c():
    cases = [(2, 10, 1024), (2, -1, 0.5), (-2, 3, -8), (-2, 0.5, math.nan), (0, 0, 1), (math.nan, 0, 1), (1, math.nan, 1),  # noqa: E501
             (0, -1, math.inf), (-0.0, -1, -math.inf), (math.inf, -1, 0), (-1, math.inf, 1),
             (9, 0.5, 3)]  # fmt: skip
    x, y, expected = np.array(cases, np.float32).T
    same_floats(evaluate(M.Pow, x.copy(), y.copy()), expected)


def test_clamp():
    x = np.array([-2, 0.5, 3, np.nan], np.float32)
    low, high = np.full(4, -1, np.float32), np.full(4, 1, np.float32)
    same_floats(evaluate(M.ClampF, x, low, high), np.array([-1, 0.5, 1, -1]))
    same_floats(evaluate(M.ClampF, x, low, high, propagate_nan=True), np.array([-1, 0.5, 1, np.nan]))
