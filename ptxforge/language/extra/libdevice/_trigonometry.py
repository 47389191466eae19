"""Trigonometric functions of multiples of π, and inverse ones.

The tables have coefficients for float64, then for float32, of highest degree first, fitted at Chebyshev's
points in 220 bits; the variable is mapped to [-1, 1].
"""

from __future__ import annotations

from ptxforge.language import arith, math
from ptxforge.language.constexpr import constexpr
from ptxforge.language.extra.libdevice import _single as single
from ptxforge.language.extra.libdevice._floats import _is_negative, copysign, polynomial_between
from ptxforge.language.registry import device_function, library
from ptxforge.language.types import PropagateNan, float32, float64

ASIN = constexpr((
    5.3864e-14, 4.20228e-13, 3.1177938e-12, 2.48015357e-11, 1.999102803e-10, 1.6323759554e-09,
    1.35652576702e-08, 1.152465720038e-07, 1.0074723775342e-06, 9.1519732546863e-06, 8.77802113521293e-05,
    0.000914564855106236, 0.010972967607792887, 0.17680460199399817,
))  # fmt: skip
"""(asin(x) / x - 1) / x² in x² up to 1/4, for float64."""

ATAN = constexpr((
    (
        3.0702e-14, -4.21304e-13, 5.7322684e-12, -7.997644e-11, 1.128189831e-09, -1.61319349583e-08,
        2.34748491066e-07, -3.4967338549244e-06, 5.38173559821156e-05, -0.000869988178970679,
        0.015270805511345829, -0.3171349734584032,
    ),
    (
        2.365e-07, -3.521e-06, 5.38167e-05, -0.000869979, 0.015270806, -0.31713498,
    ),
))  # fmt: skip
"""(atan(x) / x - 1) / x² in x² up to 11/64."""

SINPI = constexpr((
    (
        -2.025e-14, 1.377497e-11, -6.95981151e-09, 2.47891611118e-06, -0.00057774062165869,
        0.07852968034627374, -5.08860287319232,
    ),
    (
        2.48e-06, -0.000577748, 0.07852968, -5.088603,
    ),
))  # fmt: skip
"""(sin(πx) / x - π) / x² in x² up to 1/16."""

COSPI = constexpr((
    (
        -9.658e-14, 5.6923925e-11, -2.432529793e-08, 7.08384853235e-06, -0.001282569479636235,
        0.12424826585926357, -4.809264256974929,
    ),
    (
        7.084e-06, -0.001282594, 0.124248266, -4.809264,
    ),
))  # fmt: skip
"""(cos(πx) - 1) / x² in x² up to 1/16."""

HALVES = constexpr((
    (1.5707963267948966, 6.123233995736766e-17), (1.5707963705062866, -4.371138828673793e-08),
))  # fmt: skip
"""π/2 in two parts, for float64 and float32."""


@library
def _quadrant(x):
    """(q, r) with ``x = q / 2 + r`` modulo 2, ``r`` in [-1/4, 1/4] and ``q`` in -2 … 2."""
    turn = x - 2.0 * math.rint(0.5 * x)
    quadrant = math.rint(2.0 * turn)
    return quadrant, turn - 0.5 * quadrant


@library
def _waves(r):
    """sin(πr) and cos(πr) for ``r`` in [-1/4, 1/4]. π comes in two parts, so that π r is rounded last."""
    row: constexpr = 0 if r.dtype == float64 else 1
    high: constexpr = HALVES[row][0] * 2.0
    low: constexpr = HALVES[row][1] * 2.0
    square = r * r
    sine = math.fma(r, high, r * math.fma(square, polynomial_between(square, 0.0, 0.0625, SINPI[row]), low))
    return sine, math.fma(square, polynomial_between(square, 0.0, 0.0625, COSPI[row]), 1.0)


@device_function
def sinpi(x):
    """sin(π · ``x``), within 1 ulp; exact zeros at integers, with the sign of ``x``. Of infinities NaN."""
    quadrant, rest = _quadrant(x)
    sine, cosine = _waves(rest)
    value = arith.where(math.abs(quadrant) == 1.0, cosine * quadrant, sine)
    value = arith.where(math.abs(quadrant) == 2.0, -value, value)
    return arith.where(value == 0.0, copysign(value, x), value)


@device_function
def cospi(x):
    """cos(π · ``x``), within 1 ulp; exact zeros at halves. Of infinities NaN."""
    quadrant, rest = _quadrant(x)
    sine, cosine = _waves(rest)
    value = arith.where(math.abs(quadrant) == 1.0, -sine * quadrant, cosine)
    value = arith.where(math.abs(quadrant) == 2.0, -value, value)
    return arith.where(value == 0.0, 0.0, value)


# -- inverse functions -------------------------------------------------------------------------------------


@library
def _quarter(top, bottom):
    """The angle of ``top / bottom`` in [0, 1], in two parts: π/4 or 0, and the rest.

    Beyond tan(π/8) it is π/4 + atan((top - bottom) / (top + bottom)).
    """
    row: constexpr = 0 if top.dtype == float64 else 1
    is_large = top > bottom * 0.4142135623730950
    over, under = arith.where(is_large, top - bottom, top), arith.where(is_large, top + bottom, bottom)
    t = single.quotient(over, under) if top.dtype == float32 else math.div_rn(over, under)
    square = t * t
    rest = t * (square * polynomial_between(square, 0.0, 0.171875, ATAN[row]))
    start = arith.where(is_large, HALVES[row][0] * 0.5, t * 0.0)
    return start, t, rest + arith.where(is_large, HALVES[row][1] * 0.5, t * 0.0)


@library
def _angle(height, width, is_left):
    """The angle in [0, π] of the point (``±width``, ``height``), both from 0, finite and not subnormal, one
    of them not 0."""
    row: constexpr = 0 if height.dtype == float64 else 1
    is_steep = height > width
    start, t, rest = _quarter(arith.minimum(width, height), arith.maximum(width, height))
    # Of the sum start + t + rest, what is π/2 minus it, then π minus that, is formed in the parts.
    half: constexpr = HALVES[row][0]
    low: constexpr = HALVES[row][1]
    start = arith.where(is_steep, half - start, start)
    t = arith.where(is_steep, -t, t)
    rest = arith.where(is_steep, low - rest, rest)
    start = arith.where(is_left, 2.0 * half - start, start)
    t = arith.where(is_left, -t, t)
    rest = arith.where(is_left, 2.0 * low - rest, rest)
    # start is a multiple of π/4, t up to tan(π/8): their sum's error goes into the rest.
    total = start + t
    return total + ((t - (total - start)) + rest)


@device_function
def atan(x):
    """Arc tangent of ``x`` in radians: within 1.5 ulp. atan(-0.0) is -0.0, atan(±inf) is ±π/2."""
    size = math.abs(x)
    if x.dtype == float32:
        is_steep = size > 1.0
        return copysign(single.angle(arith.where(is_steep, single.reciprocal(size), size), is_steep), x)
    else:
        angle = _angle(arith.minimum(size, 1e300, PropagateNan.ALL), size * 0.0 + 1.0, size < 0.0)
        angle = arith.where(size > 1e300, HALVES[0][0], angle)
        return copysign(arith.where(size < 1e-10, size, angle), x)


@library
def _scaled(x, y):
    """Both times the power of two that takes the larger one near 1; infinities as 1 beside 0."""
    large = arith.maximum(x, y)
    wide: constexpr = x.dtype == float64
    huge: constexpr = 1e150 if wide else 1e18
    down: constexpr = 2.0**-600 if wide else 2.0**-80
    scale = arith.where(large > huge, down, arith.where(large < 1.0 / huge, 1.0 / down, 1.0))
    return x * scale, y * scale


@device_function
def atan2(y, x):
    """The angle of the point (``x``, ``y``) in radians, in [-π, π]: within 2 ulp.

    Zeros and infinities as C's ``atan2``: the signs of zeros count, and of two infinities the angle is ±π/4
    or ±3π/4.
    """
    if x.dtype == float32:
        width, height = math.abs(x), math.abs(y)
        large = arith.maximum(width, height, PropagateNan.ALL)
        t = single.quotient(arith.minimum(width, height), large)
        value = single.angle(t, height > width)
        left = (2.0 * HALVES[1][0] - value) + 2.0 * HALVES[1][1]
        value = copysign(arith.where(_is_negative(x), left, value), y)
        return arith.where_rarely(~((large > 1e-30) & (large < 1e30)), _any_angle(y, x), value)
    else:
        return _any_angle(y, x)


@library
def _any_angle(y, x):
    """:func:`atan2` of numbers of any size."""
    width, height = math.abs(x), math.abs(y)
    infinity: constexpr = float("inf")
    is_infinite = (width == infinity) | (height == infinity)
    width, height = (
        arith.where(is_infinite, arith.where(width == infinity, 1.0, 0.0), width),
        arith.where(is_infinite, arith.where(height == infinity, 1.0, 0.0), height),
    )
    width = arith.where((width == 0.0) & (height == 0.0), 1.0, width)
    # Of a small angle the quotient is all there is.
    quotient = math.div_rn(height, arith.where(width == 0.0, 1.0, width))
    width, height = _scaled(width, height)
    angle = _angle(height, width, _is_negative(x))
    angle = arith.where((height < width * 1e-10) & (x > 0.0), quotient, angle)
    return copysign(arith.where((x != x) | (y != y), float("nan"), angle), y)


@library
def _asin_parts(x):
    """For a float64 ``x`` in [0, 1]: (s, rest, is_large) with asin(x) = s + rest up to 1/2, and
    acos(x) = 2 (s + rest) beyond, where s is the root of (1 - x) / 2."""
    is_large = x > 0.5
    square = arith.where(is_large, 0.5 - 0.5 * x, x * x)
    root = math.sqrt_rn(arith.where(is_large, square, 1.0))
    lost = math.div_rn(math.fma(-root, root, square), root + root)
    s = arith.where(is_large, root, x)
    series = s * (square * polynomial_between(square, 0.0, 0.25, ASIN))
    return s, series + arith.where(is_large & (root > 0.0), lost, 0.0), is_large


@device_function
def asin(x):
    """Arc sine of ``x`` in radians: within 1.5 ulp. NaN outside [-1, 1]."""
    row: constexpr = 0 if x.dtype == float64 else 1
    size = math.abs(x)
    if x.dtype == float32:
        angle, is_large = single.arc_sine(size)
        large = math.fma(angle, -2.0, HALVES[row][0]) + HALVES[row][1]
        value = arith.where(is_large, large, angle)
    else:
        s, rest, is_large = _asin_parts(arith.minimum(size, 1.0, PropagateNan.ALL))
        large = (HALVES[row][0] - 2.0 * s) + (HALVES[row][1] - 2.0 * rest)
        value = arith.where(is_large, large, s + rest)
    return arith.where(size <= 1.0, copysign(value, x), float("nan"))


@device_function
def acos(x):
    """Arc cosine of ``x`` in radians, in [0, π]: within 1.5 ulp. NaN outside [-1, 1]."""
    row: constexpr = 0 if x.dtype == float64 else 1
    size = math.abs(x)
    half: constexpr = HALVES[row][0]
    low: constexpr = HALVES[row][1]
    if x.dtype == float32:
        angle, is_large = single.arc_sine(size)
        left = arith.where(x < 0.0, 2.0, 0.0)
        turned = arith.where(is_large, angle * 2.0, -angle)
        turned = arith.where(x < 0.0, -turned, turned)
        quarters = arith.where(is_large, left, 1.0)
        value = math.fma(quarters, half, turned) + quarters * low
    else:
        s, rest, is_large = _asin_parts(arith.minimum(size, 1.0, PropagateNan.ALL))
        small_positive = (half - s) + (low - rest)
        small_negative = (half + s) + (low + rest)
        # half ± s loses less than what is added behind; for |x| up to 1/2 the sum is at least 1.
        large = arith.where(x < 0.0, 2.0 * half - 2.0 * (s + (rest - low)), 2.0 * (s + rest))
        value = arith.where(is_large, large, arith.where(x < 0.0, small_negative, small_positive))
    return arith.where(size <= 1.0, value, float("nan"))
