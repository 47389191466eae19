"""Elementwise mathematical functions.

Accuracy is part of the meaning; the numpy evaluation is the exact function, rounded. Unless said otherwise
f32 results are within 2 ulp, f64 results within 2 ulp, and f16/bf16 are computed in f32 and rounded.
"""

from __future__ import annotations

import math

import numpy as np

from ptxforge.ir import definition as D
from ptxforge.ir import types as T
from ptxforge.ir.ops.arith import BinaryFloat
from ptxforge.ir.ops.cast import convert_float
from ptxforge.ir.ops.extrema import extremum


class UnaryFloat(D.Elementwise):
    """Base of float functions ``T -> T``. ``function`` is the numpy function (applied in f64 up to f32)."""

    x = D.operand(D.FLOAT)
    function = None

    def evaluate(self, x):
        with np.errstate(all="ignore"):
            return type(self).function(x.astype(np.float64)).astype(x.dtype)


@D.define("exp", cost=D.EXPENSIVE)
class Exp(UnaryFloat):
    """e**x. f32: ``ex2.approx`` of x·log2(e), as Triton has it
    (relative error grows with |x|, 2 ulp near 0).

    How results below 2**-126 are made (``choose_sequences``): with ``flushes`` they are 0, as nothing shows
    them; with ``together``, fewest, most and ways, by rare code, which one branch skips for so many of a
    thread's results: its test goes through the arguments in so many ways side by side; else for each
    result."""

    flushes = D.attribute(bool, False)
    together = D.attribute(tuple, ())
    function = np.exp


@D.define("exp2", cost=D.EXPENSIVE)
class Exp2(UnaryFloat):
    """2**x. f32 (in which narrower types are computed, too): ``ex2.approx.ftz``, so that results below
    2**-126 are 0, unless it keeps ``denormals``."""

    denormals = D.attribute(bool, False)
    function = np.exp2

    def evaluate(self, x):
        result = super().evaluate(x)
        if self.denormals or x.dtype == np.float64:
            return result
        return np.where(x < -126, np.zeros_like(result), result)


@D.define("log", cost=D.EXPENSIVE)
class Log(UnaryFloat):
    """Natural logarithm."""

    function = np.log


@D.define("log2", cost=D.EXPENSIVE)
class Log2(UnaryFloat):
    """Logarithm to base 2."""

    function = np.log2


class Periodic(UnaryFloat):
    """Base of functions of angles. The large ones among ``reduced_together`` of a thread's angles share a
    branch (``choose_sequences``)."""

    reduced_together = D.attribute(int, 1)


@D.define("sin", cost=D.EXPENSIVE)
class Sin(Periodic):
    """Sine, for any argument (full range reduction)."""

    function = np.sin


@D.define("cos", cost=D.EXPENSIVE)
class Cos(Periodic):
    """Cosine, for any argument (full range reduction)."""

    function = np.cos


@D.define("tan", cost=D.EXPENSIVE)
class Tan(Periodic):
    """Tangent, for any argument (full range reduction)."""

    function = np.tan


@D.define("tanh", cost=D.EXPENSIVE)
class Tanh(UnaryFloat):
    """Hyperbolic tangent."""

    function = np.tanh


@D.define("erf", cost=D.EXPENSIVE)
class Erf(UnaryFloat):
    """The error function."""

    function = staticmethod(np.vectorize(math.erf, otypes=[np.float64]))


@D.define("sqrt", cost=D.EXPENSIVE)
class Sqrt(UnaryFloat):
    """Square root. f32: ``sqrt.approx`` (1 ulp); ``sqrt_rn`` is the IEEE one. f64: exact rounding."""

    function = np.sqrt


@D.define("sqrt_rn", cost=D.EXPENSIVE)
class SqrtRn(UnaryFloat):
    """Square root, rounded to nearest even (IEEE)."""

    function = np.sqrt


@D.define("rsqrt", cost=D.EXPENSIVE)
class Rsqrt(UnaryFloat):
    """1/sqrt(x). f32: ``rsqrt.approx``."""

    @staticmethod
    def function(x):
        return 1.0 / np.sqrt(x)


@D.define("floor")
class Floor(UnaryFloat):
    """The largest integer not above x."""

    function = np.floor


@D.define("ceil")
class Ceil(UnaryFloat):
    """The smallest integer not below x."""

    function = np.ceil


@D.define("trunc")
class Trunc(UnaryFloat):
    """x without its fraction, towards zero."""

    function = np.trunc


@D.define("rint")
class Rint(UnaryFloat):
    """The nearest integer, ties to even."""

    function = np.rint


@D.define("absf")
class AbsF(UnaryFloat):
    """|x|: clears the sign, of a NaN too."""

    def evaluate(self, x):
        return np.abs(x)


@D.define("absi")
class AbsI(D.Elementwise):
    """|x| of a signed integer; the most negative one stays itself."""

    x = D.operand(D.INT)

    def evaluate(self, x):
        return np.abs(x)


@D.define("pow", cost=D.EXPENSIVE)
class Pow(D.Elementwise):
    """x**y, with C's rules for special values."""

    x = D.operand(D.FLOAT)
    y = D.operand(D.FLOAT)

    def evaluate(self, x, y):
        with np.errstate(all="ignore"):
            return np.power(x.astype(np.float64), y.astype(np.float64)).astype(x.dtype)


@D.define("div_rn", cost=D.EXPENSIVE)
class DivRn(BinaryFloat):
    """Float quotient, rounded to nearest even (IEEE)."""

    function = np.divide


@D.define("fma")
class Fma(D.Elementwise):
    """x·y + z with one rounding; z - x·y or x·y - z where ``negated`` says ``product`` or ``addend``."""

    x = D.operand(D.FLOAT)
    y = D.operand(D.FLOAT)
    z = D.operand(D.FLOAT)
    negated = D.attribute(("", "product", "addend"), "")

    def evaluate(self, x, y, z):
        x = -x if self.negated == "product" else x
        z = -z if self.negated == "addend" else z
        with np.errstate(all="ignore"):
            if x.dtype == np.float64:
                return _FMA64(x, y, z)
            # The product of two 24-bit significands is exact in f64; the sum is then rounded to odd, so that
            # the final rounding is the only one.
            product, addend = x.astype(np.float64) * y.astype(np.float64), z.astype(np.float64)
            return convert_float(_round_to_odd_sum(product, addend), T.element_type(self.result.type))


def _round_to_odd_sum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a + b in f64 rounded to odd: the last bit is set when the sum is inexact (Boldo & Melquiond, 2008)."""
    total = a + b
    shadow = total - a
    error = (a - (total - shadow)) + (b - shadow)
    bits = np.atleast_1d(total).view(np.int64)
    inexact = np.atleast_1d((error != 0) & np.isfinite(total))
    away = np.atleast_1d(np.signbit(error) == np.signbit(total))
    even = (bits & 1) == 0
    # An inexact even result is moved by one towards the error's side, which makes it odd.
    moved = bits + np.where(away, 1, -1)
    result = np.where(inexact & even, moved, bits).view(np.float64)
    return result.reshape(np.shape(total))


def _fma64(x: float, y: float, z: float) -> float:
    """x·y + z in f64 with one rounding, by exact rationals."""
    if math.isfinite(x) and math.isfinite(y) and not math.isfinite(z):
        return z  # though x·y alone may overflow
    if not (math.isfinite(x) and math.isfinite(y)):
        return x * y + z
    (xn, xd), (yn, yd), (zn, zd) = (v.as_integer_ratio() for v in (float(x), float(y), float(z)))
    numerator, denominator = xn * yn * zd + zn * xd * yd, xd * yd * zd
    if numerator == 0:
        return x * y + z
    try:
        return numerator / denominator
    except OverflowError:
        return math.inf if numerator > 0 else -math.inf


_FMA64 = np.vectorize(_fma64, otypes=[np.float64])


@D.define("clampf")
class ClampF(D.Elementwise):
    """x limited to [low, high]; with ``propagate_nan`` a NaN in x stays a NaN, without it becomes ``low``."""

    x = D.operand(D.FLOAT)
    low = D.operand(D.FLOAT)
    high = D.operand(D.FLOAT)
    propagate_nan = D.attribute(bool, False)

    def evaluate(self, x, low, high):
        with np.errstate(invalid="ignore"):
            if self.propagate_nan:
                return extremum(np.minimum)(extremum(np.maximum)(x, low), high)
            return extremum(np.fmin)(extremum(np.fmax)(x, low), high)
