"""Mathematical functions of f64, as formulas (``ptx/formula.py``). About polynomials see ``math_f32.py``."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial

from ptxforge.codegen_ptx.lower.reals import Double, exact_product, horner, logarithm, ordered_sum
from ptxforge.codegen_ptx.lower.trigonometry import cosine, reduced, sine
from ptxforge.codegen_ptx.ptx.constants import f64
from ptxforge.codegen_ptx.ptx.formula import (
    Value,
    fma,
    instruction,
    is_nan,
    maximum,
    minimum,
    of_halves,
    rint,
    trunc,
    where,
    with_sign_of,
)


def _two_parts(value: Fraction) -> Double:
    """A number as the sum of two f64."""
    high = float(value)
    return Double(high, float(value - Fraction(high)))


_LOG_OF_2 = sum((Fraction(1, n << n) for n in range(1, 210)), Fraction(0))
"""log 2 to 200 bits: sum of 1 / (n 2**n)."""
LN2 = _two_parts(_LOG_OF_2)
LOG2_E = _two_parts(1 / _LOG_OF_2)

sqrt = sqrt_rn = instruction("sqrt.rn")


def rsqrt(x: Value) -> Value:
    return 1.0 / sqrt(x)


# -- exponentials ------------------------------------------------------------------------------------------


def exp(x: Value) -> Value:
    bounded = _clamped(x, -746.0, 710.0)
    turns = rint(bounded * LOG2_E.high)
    r = fma(turns, -LN2.low, fma(turns, -LN2.high, bounded))
    value = _exp_reduced(r, turns.to_integer())
    return where(is_nan(x, x), x, value)


def exp2(x: Value) -> Value:
    value = _exp2_of_sum(_clamped(x, -1076.0, 1025.0), 0.0)
    return where(is_nan(x, x), x, value)


def _clamped(x: Value, low: float, high: float) -> Value:
    return maximum(minimum(x, high), low)


def _exp2_of_sum(high: Value, low) -> Value:
    """2**(high + low) for a bounded ``high`` and a small ``low``."""
    turns = rint(high)
    fraction = high - turns
    r = fma(fraction, LN2.high, fma(fraction, LN2.low, low * LN2.high))
    return _exp_reduced(r, turns.to_integer())


def _exp_reduced(r: Value, n: Value) -> Value:
    """exp(r) · 2**n for |r| up to log(2)/2: twice a power of two, so that only the last product may leave the
    normal range."""
    value = fma(r * r, horner(r, EXP), r) + 1.0
    half = n >> 1
    rest = n - half
    return value * _power_of_two(half) * _power_of_two(rest)


def _power_of_two(n: Value) -> Value:
    """2**n for an integer between -1022 and 1023."""
    return of_halves(0, (n + 1023) << 20)


EXP = (2.09147553258932e-09, 2.5105312729622103e-08, 2.755727347871858e-07, 2.755725517000089e-06,
       2.480158732567746e-05, 0.0001984126987500228, 0.0013888888888883711, 0.008333333333326084,
       0.04166666666666667, 0.1666666666666667, 0.5)  # fmt: skip
"""(exp(r) - 1 - r) / r**2 on [-log(2)/2, log(2)/2], 1.4e-18."""

# -- logarithms --------------------------------------------------------------------------------------------


def _split(x: Value) -> tuple[Value, Value]:
    """(m, e) with x = m · 2**e and m in [sqrt(1/2), sqrt(2)), for positive finite x; e is an f64."""
    small = x < 2.0**-1022
    low, high = where(small, x * 2.0**54, x).halves()
    exponent = (high - int(f64(math.sqrt(0.5))[2:10], 16)) >> 20
    mantissa = high - (exponent << 20)
    e = exponent.to_float() + where(small, -54.0, 0.0)
    return of_halves(low, mantissa), e


def _is_positive(x: Value) -> Value:
    """Whether x is finite and positive, or 0."""
    return (x >= 0.0) & (x < math.inf)


def log(x: Value) -> Value:
    """log(m) = f - (f²/2 - s (f²/2 + R)) with f = m - 1, s = f / (2 + f) and R = s² P(s²): f is exact and
    large, so that the rounding of the rest hardly counts."""
    m, e = _split(x)
    f = m - 1.0
    s = f / (f + 2.0)
    z = s * s
    half_square = f * f * 0.5
    tail = z * horner(z, LOG)
    inner = fma(s, half_square + tail, e * LN2.low)
    return logarithm(x, fma(e, LN2.high, f - (half_square - inner)), _is_positive(x))


def log2(x: Value) -> Value:
    total = _log2_in_two_parts(x)
    return logarithm(x, total.high + total.low, _is_positive(x))


def _log2_in_two_parts(x: Value) -> Double:
    """log2 of a positive finite x to some 65 bits: 2 s + 2/3 s³ + s⁵ Q(s²), s = (m - 1) / (m + 1)."""
    m, e = _split(x)
    f = m - 1.0
    below = ordered_sum(2.0, f)
    quotient = f / below.high
    rest = fma(-quotient, below.low, fma(-quotient, below.high, f))
    s = ordered_sum(quotient, rest / below.high)
    z = s * s
    tail = Double(z.high * horner(z.high, LOG_TAIL), 0.0)
    natural = s * (Double(2.0, 0.0) + z * (_two_parts(Fraction(2, 3)) + tail))
    return Double(e, 0.0) + natural * LOG2_E


LOG = (0.13089445145246312, 0.1326850331279476, 0.15386249788196105, 0.181817954545265, 0.2222222239345263,
       0.28571428570795937, 0.4000000000000089, 0.6666666666666666)  # fmt: skip
"""(log((1 + s) / (1 - s)) - 2 s) / s**3 in s**2 for s up to (sqrt(2) - 1) / (sqrt(2) + 1), 2e-18."""
LOG_TAIL = (0.11725604536475413, 0.11706004128016817, 0.13334813373687013, 0.15384594802772,
            0.18181818336889324, 0.22222222221649277, 0.28571428571429375, 0.4)  # fmt: skip
"""(log((1 + s) / (1 - s)) - 2 s - 2 s**3 / 3) / s**5 in s**2, on the same interval, 2e-18."""

# -- powers ------------------------------------------------------------------------------------------------


def pow(x: Value, y: Value) -> Value:
    """2**(y · log2|x|), with C's rules for special operands."""
    base = _log2_in_two_parts(abs(x))
    exponent = exact_product(y, base.high)
    high, low = exponent.high, fma(y, base.low, exponent.low)
    # Where |x| is 0 or infinite the logarithm is, too.
    size = abs(x)
    extreme = where(size == 0.0, -math.inf, math.inf)
    is_extreme = (size == 0.0) | (size == math.inf)
    grows = where(is_extreme, extreme, size - 1.0)
    high = where(is_extreme | (abs(y) == math.inf), y * grows, high)
    bounded = _clamped(high, -1080.0, 1030.0)
    value = _exp2_of_sum(bounded, where(bounded == high, low, 0.0))
    return _with_special_powers(x, y, value)


def _with_special_powers(x: Value, y: Value, value: Value) -> Value:
    half = y * 0.5
    is_whole = trunc(y) == y
    odd = is_whole & (trunc(half) != half)
    value = where((x.bits() < 0) & odd, -value, value)
    value = where((x < 0.0) & (x > -math.inf) & ~is_whole, math.nan, value)
    value = where(is_nan(x, y), x + y, value)
    unit = (x == -1.0) & (abs(y) == math.inf)
    return where(unit | (x == 1.0) | (y == 0.0), 1.0, value)


# -- trigonometry ------------------------------------------------------------------------------------------


def _wave(r: Value, turns: Value) -> Value:
    """sin(r + turns · π/2): sine or cosine of r by the quadrant's parity, with its sign."""
    odd = (turns & 1) != 0
    square = r * r
    sine = fma(square * r, horner(square, SIN), r)
    cosine = fma(square, fma(square, horner(square, COS), -0.5), 1.0)
    value = where(odd, cosine, sine)
    return where((turns & 2) != 0, -value, value)


sin = partial(sine, _wave)
cos = partial(cosine, _wave)


def tan(x: Value) -> Value:
    """sin / cos (or -cos / sin). Both are kept in two parts, so that only r and the quotient are rounded."""
    r, turns = reduced(x)
    square = r * r
    sine = ordered_sum(r, r * square * horner(square, SIN))
    cosine = ordered_sum(1.0, square * fma(square, horner(square, COS), -0.5))
    odd = (turns & 1) != 0
    over = Double(*(where(odd, -c, s) for s, c in zip(sine, cosine)))
    under = Double(*(where(odd, s, c) for s, c in zip(sine, cosine)))
    quotient = over.high / under.high
    negative = -quotient
    rest = fma(negative, under.high, over.high)
    rest = fma(negative, under.low, rest + over.low)
    corrected = quotient + rest / under.high
    return where(x == 0.0, x, corrected)  # tan(-0) is -0.


SIN = (1.591810123027412e-10, -2.5051131455427946e-08, 2.755731610068303e-06, -0.0001984126983675497,
       0.008333333333330946, -0.16666666666666666)  # fmt: skip
"""(sin(r) - r) / r**3 in r**2 on [0, (pi/4)**2], 2e-17."""
COS = (-1.1382614868556325e-11, 2.0876146024689747e-09, -2.7557317270560326e-07, 2.4801587298763433e-05,
       -0.0013888888888887395, 0.041666666666666664)  # fmt: skip
"""(cos(r) - 1 + r**2 / 2) / r**4 in r**2 on [0, (pi/4)**2], 1.3e-18."""

# -- others ------------------------------------------------------------------------------------------------


def tanh(x: Value) -> Value:
    """Near 0 a polynomial, else 1 - 2 / (exp(2|x|) + 1) with the sign of x."""
    square = x * x
    near = fma(square * x, horner(square, TANH), x)
    size = abs(x)
    far = 1.0 - 2.0 / (exp(size + size) + 1.0)
    return with_sign_of(x, where(size > 0.55, far, near))


def erf(x: Value) -> Value:
    """Up to 1 a polynomial, beyond 1 - exp(-a²) g(t) / (1 + 2a) with t = (a - 4) / (a + 4); from 6 on the
    result is 1."""
    near = fma(x, horner(x * x, ERF), x)
    size = abs(x)
    a = minimum(size, 6.0)
    t = (a - 4.0) / (a + 4.0)
    scale = horner(t, ERFC) / fma(a, 2.0, 1.0)
    far = with_sign_of(x, 1.0 - exp(-(a * a)) * scale)
    return where(size > 1.0, far, near)


TANH = (7.874274345344419e-06, -3.372080112046316e-05, 9.455133052924858e-05, -0.0002384727248015252,
        0.0005899052969492733, -0.001455819097151351, 0.0035921267699626346, -0.0088632354631468,
        0.021869488534073906, -0.05396825396822037, 0.1333333333333331, -0.3333333333333333)  # fmt: skip
"""(tanh(x) - x) / x**3 in x**2 on [0, 0.55**2], 2e-19."""
ERF = (5.957176147748911e-11, -1.1372848856791674e-09, 1.4659775274047436e-08, -1.6350312701054695e-07,
       1.6461000484121368e-06, -1.4925595266831182e-05, 0.0001205533111164271, -0.000854832698083379,
       0.0052239776248180145, -0.026866170645076792, 0.11283791670954879, -0.3761263890318375,
       0.12837916709551257)  # fmt: skip
"""erf(x) / x - 1 in x**2 on [0, 1], 1.3e-19."""
ERFC = (-2.0987219091222924e-05, -3.1982217080725404e-05, 0.00014780980824831742, -0.00019943791115473986,
        -0.0007575424899723285, 0.005032040312285165, -0.016197734350641032, 0.037167512486740814,
        -0.06633036611671828, 0.0937328350448936, -0.1010390660290445, 0.0680970542544652,
        0.01537965210257007, -0.13962111684056236, 1.2329951186255526)  # fmt: skip
"""exp(a**2) (1 - erf(a)) (1 + 2 a) in t = (a - 4) / (a + 4) for a on [1, 6], 8e-17."""
