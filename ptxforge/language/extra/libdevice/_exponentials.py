"""Exponentials, logarithms and hyperbolic functions."""

from __future__ import annotations

from ptxforge.language import arith, core, math
from ptxforge.language.constexpr import constexpr
from ptxforge.language.extra.libdevice._floats import copysign
from ptxforge.language.registry import library
from ptxforge.language.types import PropagateNan, float64


@library
def _exp(high, halvings: constexpr, low=None):
    """e to the power ``high + low``, divided by ``2**halvings``, for a ``low`` below the last place of
    ``high``.

    For float32, where ``exp`` is fast rather than accurate, ``high`` is reduced by multiples of log 2 in two
    parts (W. J. Cody, W. Waite, *Software Manual for the Elementary Functions*, 1980): within 3 ulp.
    """
    if high.dtype == float64:
        half = math.exp(high * 0.5)
        scaled = half * (half * 0.5**halvings)
        if low is None:
            return scaled
        else:
            return scaled + scaled * low
    else:
        bounded = arith.clamp(high, -160.0, 160.0, PropagateNan.ALL)
        turns = math.rint(bounded * 1.4426950408889634)
        rest = math.fma(turns, -0.693145751953125, bounded)  # log 2 to 16 bits, so that the product is exact
        rest = math.fma(turns, -1.428606765330187e-06, rest)
        if low is not None:
            rest += low
        return math.exp2(rest * 1.4426950408889634) * math.exp2(turns - halvings)


@library
def expm1(x):
    """exp(``x``) - 1, accurate near 0: within 4 ulp. expm1(-0.0) is -0.0, expm1(-inf) is -1.

    ``2**n · (exp(r) - 1) + (2**n - 1)`` with ``r`` up to log(2)/2 and the power series of exp(r) - 1.
    """
    wide: constexpr = x.dtype == float64
    bounded = arith.clamp(x, -800.0, 800.0, PropagateNan.ALL)
    turns = math.rint(bounded * 1.4426950408889634)
    high: constexpr = 0.6931471803691238 if wide else 0.693145751953125
    low: constexpr = 1.9082149292705877e-10 if wide else 1.428606765330187e-06
    rest = math.fma(turns, -low, math.fma(turns, -high, bounded))
    series = rest * 0.0 + 1.0
    for k in core.static_range(15 if wide else 8, 2, -1):
        series = math.fma(rest * (1.0 / k), series, 1.0)
    near = math.fma(rest, rest * 0.5 * series, rest)
    half = math.exp2(turns - 1.0)
    value = math.fma(half, near, half - 0.5) * 2.0
    return arith.where(turns == 0.0, arith.where(x == 0.0, x, near), value)


@library
def exp10(x):
    """10 to the power ``x``; float32 within 1 ulp, float64 within 2."""
    return math.pow(10.0, x)


@library
def log10(x):
    """Logarithm of ``x`` to base 10, within 2 ulp. log10(0) is -inf, of negative numbers NaN."""
    return math.log(x) * 0.4342944819032518


@library
def log1p(x):
    """log(1 + ``x``), accurate near 0: within 4 ulp. log1p(-1) is -inf, below NaN.

    W. Kahan: the rounding error of 1 + x is divided out.
    """
    sum = 1.0 + x
    is_tiny = sum == 1.0
    safe = arith.where(is_tiny, 1.0, sum - 1.0)
    return arith.where(is_tiny, x, arith.where(sum == float("inf"), sum, math.log(sum) * (x / safe)))


@library
def sinh(x):
    """Hyperbolic sine of ``x``: within 5 ulp. sinh(-0.0) is -0.0, sinh(±inf) is ±inf.

    Below 1 the power series, above from exp.
    """
    square = x * x
    series = square * 0.0 + 1.0
    for k in core.static_range(9 if x.dtype == float64 else 6, 1, -1):
        series = math.fma(square * (1.0 / (2 * k * (2 * k + 1))), series, 1.0)
    near = math.fma(x, square * (1.0 / 6.0) * series, x)
    size = math.abs(x)
    half = _exp(size, 1)
    return arith.where(size < 1.0, near, copysign(half - 0.25 / half, x))


@library
def cosh(x):
    """Hyperbolic cosine of ``x``: within 5 ulp. cosh(±inf) is inf."""
    half = _exp(math.abs(x), 1)
    return half + 0.25 / half


@library
def asinh(x):
    """Inverse hyperbolic sine of ``x``: within 5 ulp. asinh(-0.0) is -0.0, asinh(±inf) is ±inf."""
    size = math.abs(x)
    near = log1p(size + size * size / (1.0 + math.sqrt(size * size + 1.0)))
    far = math.log(size) + 0.6931471805599453  # log(2x): the rest is 1/(4x²)
    return copysign(arith.where(size > 268435456.0, far, near), x)


@library
def acosh(x):
    """Inverse hyperbolic cosine of ``x``: within 6 ulp. NaN below 1, acosh(inf) is inf."""
    above = x - 1.0
    near = log1p(above + math.sqrt(above * (above + 2.0)))
    far = math.log(x) + 0.6931471805599453  # log(2x): the rest is 1/(4x²)
    return arith.where(x < 1.0, float("nan"), arith.where(x > 268435456.0, far, near))


@library
def atanh(x):
    """Inverse hyperbolic tangent of ``x``: within 5 ulp. atanh(±1) is ±inf, beyond NaN."""
    size = math.abs(x)
    return copysign(0.5 * log1p(2.0 * size / (1.0 - size)), x)
