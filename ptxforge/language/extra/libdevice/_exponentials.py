"""Exponentials, logarithms, hyperbolic functions, roots and lengths."""

from __future__ import annotations

from ptxforge.language import arith, core, math
from ptxforge.language.constexpr import constexpr
from ptxforge.language.extra.libdevice import _single as single
from ptxforge.language.extra.libdevice._floats import (
    _power_of_two,
    check_type,
    copysign,
    polynomial_between,
    two_product,
    two_sum,
)
from ptxforge.language.instructions import Form, Instruction
from ptxforge.language.registry import device_function, library
from ptxforge.language.types import PropagateNan, float32, float64, int32, tensor

LOG1P_SERIES = constexpr((
    7.451091e-12, -2.33132736e-11, 3.20991476e-11, -1.01330833e-10, 4.180693643e-10, -1.3227755e-09,
    4.067309007e-09, -1.2958953395e-08, 4.155778072e-08, -1.334988048064e-07, 4.309572933995e-07,
    -1.39955955948e-06, 4.57645996771e-06, -1.5087248982417e-05, 5.02316334713596e-05,
    -0.000169291796283838, 0.000579417547289614, -0.002023482179645076, 0.007263369239980412,
    -0.027128233049996814, 0.10786710983813663, -0.4806452102495897,
))  # fmt: skip
"""(log1p(x) - x) / x² from sqrt(1/2) - 1 to sqrt(2) - 1, mapped to [-1, 1], of highest degree first."""


@library
def _reduced(x):
    """(n, r, rest) with ``x = n log 2 + r + rest``, ``r`` up to log(2) / 2 and ``rest`` below its last place.

    n times the upper part of log 2 is exact (W. J. Cody, W. Waite, *Software Manual for the Elementary
    Functions*, 1980).
    """
    check_type(x)
    wide: constexpr = x.dtype == float64
    high: constexpr = 0.6931471803691238 if wide else 0.693145751953125
    low: constexpr = 1.9082149292705877e-10 if wide else 1.428606765330187e-06
    turns = math.rint(x * 1.4426950408889634)
    start = math.fma(turns, -high, x)
    r = math.fma(turns, -low, start)
    return turns, r, math.fma(turns, -low, start - r)


@library
def _exp_series(r):
    """``(exp(r) - 1 - r) / r**2`` for ``r`` up to log(2) / 2: the power series."""
    wide: constexpr = r.dtype == float64
    series = core.full(r.shape, 1.0, r.dtype)
    for k in core.static_range(14 if wide else 8, 2, -1):
        series = math.fma(r * (1.0 / k), series, 1.0)
    return series * 0.5


@library
def _exp(x, halvings: constexpr, low=None):
    """e to the power ``x + low``, divided by ``2**halvings``, for a ``low`` below the last place of ``x``:
    within 1 ulp (float32: 2)."""
    check_type(x)
    if x.dtype == float32:
        return single.exp(x, halvings, low)
    else:
        turns, r, rest = _reduced(arith.clamp(x, -1400.0, 1400.0, PropagateNan.ALL))
        if low is not None:
            rest += low
        series, square = _exp_series(r), r * r
        growth = math.fma(square, series, r)
        value = 1.0 + (r + math.fma(square, series, math.fma(rest, growth, rest)))
        n = arith.where(x == x, turns, 0.0).to(int32)
        first = n >> 1
        return value * _power_of_two(first, float64) * _power_of_two(n - first - halvings, float64)


_fma_sat = Instruction(
    "_fma_sat", "x, y, z", [Form((float32,) * 3, float32, "fma.rn.sat.f32 $0, $1, $2, $3;")],
    "``x * y + z``, limited to [0, 1]; of NaN 0.",
)  # fmt: skip


@library
def _exp_float32(x):
    """e to the power ``x``, a float32, by the hardware's power of two of at most a half: eight instructions.

    The turns ``x / log 2`` are limited to a float's exponents, -126 to 127, while a fraction of their range:
    beyond them the rest grows instead, and its power of two with it. Added to a number whose last place is 1
    they are rounded and stand in its lowest bits, with the exponent's bias.
    """
    fraction = _fma_sat(x, 1.4426950408889634 / 253.0, 126.0 / 253.0)
    shifted = math.fma(fraction, 253.0, 12582913.0)
    # log2(e) in two parts, so that the rest keeps the digits that the turns take away.
    rest = math.fma(x, 1.4426950216293335, 12583039.0 - shifted)
    rest = math.fma(x, 1.925963033500011e-08, rest)
    return math.exp2(rest) * (shifted.to(int32, bitcast=True) << 23).to(float32, bitcast=True)


@device_function
def exp(x):
    """e to the power ``x``: float32 within 2 ulp, float64 within 1. exp(-inf) is 0, exp(inf) is inf. For
    float32 more accurate than ``tl.exp`` far from 0, and slower."""
    if x.dtype == float32:
        return _exp_float32(x)
    else:
        return _exp(x, 0)


@device_function
def exp10(x):
    """10 to the power ``x``: within 1 ulp (float32: 2)."""
    wide: constexpr = x.dtype == float64
    limit: constexpr = 420.0 if wide else 60.0
    log10: constexpr = 2.302585092994046 if wide else 2.3025851249694824
    log10_low: constexpr = -2.1707562233822494e-16 if wide else -3.1975436344e-08
    bounded = arith.clamp(x, -limit, limit, PropagateNan.ALL)
    high, low = two_product(bounded, core.full(x.shape, log10, x.dtype))
    return _exp(high, 0, math.fma(bounded, log10_low, low))


@device_function
def expm1(x):
    """exp(``x``) - 1, accurate near 0: within 1 ulp. expm1(-0.0) is -0.0, expm1(-inf) is -1.

    ``2**n · (exp(r) - 1) + (2**n - 1)``, computed at half its size.
    """
    wide: constexpr = x.dtype == float64
    lowest: constexpr = -40.0 if wide else -19.0
    highest: constexpr = 710.0 if wide else 89.0
    turns, r, rest = _reduced(arith.clamp(x, lowest, highest, PropagateNan.ALL))
    near = r + math.fma(r * r, _exp_series(r), math.fma(rest, r, rest))
    type: constexpr = x.dtype
    half = _power_of_two(arith.where(x == x, turns, 0.0).to(int32) - 1, type)
    value = math.fma(half, near, half - 0.5) * 2.0
    return arith.where(turns == 0.0, arith.where(x == 0.0, x, near), value)


@device_function
def log10(x):
    """Logarithm of ``x`` to base 10, within 2 ulp. log10(0) is -inf, of negative numbers NaN."""
    wide: constexpr = x.dtype == float64
    high: constexpr = 0.4342944819032518 if wide else 0.4342944920063019
    low: constexpr = 1.098319650216765e-17 if wide else -1.0103050118726e-08
    log = math.log(x)
    value = math.fma(log, high, log * low)
    return arith.where(math.abs(log) == float("inf"), log, value)


@device_function
def log1p(x):
    """log(1 + ``x``), accurate near 0: within 1 ulp. log1p(-1) is -inf, below NaN.

    Between sqrt(1/2) - 1 and sqrt(2) - 1 a polynomial; elsewhere the logarithm of 1 + x, corrected by what
    that sum lost.
    """
    if x.dtype == float32:
        return single.log1p(x)
    else:
        near = math.fma(x * x, polynomial_between(x, -0.2929, 0.4143, LOG1P_SERIES), x)
        sum = 1.0 + x
        lost = arith.where(x < 1.0, x - (sum - 1.0), 1.0 - (sum - x))
        is_usual = (sum > 0.0) & (sum < float("inf"))
        far = math.log(sum) + arith.where(is_usual, lost / arith.where(is_usual, sum, 1.0), 0.0)
        is_near = (x > -0.2929) & (x < 0.4143)
        return arith.where(is_near, arith.where(x == 0.0, x, near), far)


@library
def pow(x, y):
    """``x`` to the power ``y``, a float or an int32: within 4 ulp (float32), 2 (float64). Special values as
    C's ``pow``; an integer is taken exactly."""
    if not isinstance(y, tensor):
        return math.pow(x, y)
    elif y.dtype.is_int():
        base = core.to_tensor(x)
        return math.pow(base.to(float64), y.to(float64)).to(base.dtype)
    else:
        return math.pow(x, y)


# -- hyperbolic functions ----------------------------------------------------------------------------------


@library
def _quarter_over(x):
    """0.25 / x for ``x`` from 0.5."""
    return single.reciprocal(x) * 0.25 if x.dtype == float32 else 0.25 / x


@device_function
def sinh(x):
    """Hyperbolic sine of ``x``: within 2 ulp. sinh(-0.0) is -0.0, sinh(±inf) is ±inf.

    Below 1 the power series, above from exp.
    """
    square = x * x
    series = core.full(x.shape, 1.0, x.dtype)
    for k in core.static_range(9 if x.dtype == float64 else 6, 1, -1):
        series = math.fma(square * (1.0 / (2 * k * (2 * k + 1))), series, 1.0)
    near = math.fma(x, square * (1.0 / 6.0) * series, x)
    size = math.abs(x)
    half = _exp(size, 1)
    return arith.where(size < 1.0, near, copysign(half - _quarter_over(half), x))


@device_function
def cosh(x):
    """Hyperbolic cosine of ``x``: within 1.5 ulp. cosh(±inf) is inf."""
    half = _exp(math.abs(x), 1)
    return half + _quarter_over(half)


@device_function
def asinh(x):
    """Inverse hyperbolic sine of ``x``: within 3 ulp. asinh(-0.0) is -0.0, asinh(±inf) is ±inf."""
    size = math.abs(x)
    bounded = arith.minimum(size, 268435456.0)
    square = bounded * bounded
    if x.dtype == float32:
        near = log1p(math.fma(square, single.reciprocal(1.0 + single.root(square + 1.0)), bounded))
    else:
        near = log1p(bounded + math.div_rn(square, 1.0 + math.sqrt_rn(square + 1.0)))
    far = math.log(size) + 0.6931471805599453  # log(2x): the rest is 1/(4x²)
    return copysign(arith.where_rarely(~(size <= 268435456.0), arith.where(x == x, far, x), near), x)


@device_function
def acosh(x):
    """Inverse hyperbolic cosine of ``x``: within 3 ulp. NaN below 1, acosh(inf) is inf."""
    above = arith.minimum(x, 268435456.0) - 1.0
    product = above * (above + 2.0)
    near = log1p(above + (single.root(product) if x.dtype == float32 else math.sqrt_rn(product)))
    far = math.log(x) + 0.6931471805599453  # log(2x): the rest is 1/(4x²)
    return arith.where(x >= 1.0, arith.where_rarely(x > 268435456.0, far, near), float("nan"))


@device_function
def atanh(x):
    """Inverse hyperbolic tangent of ``x``: within 2 ulp. atanh(±1) is ±inf, beyond NaN."""
    size = math.abs(x)
    twice = size + size
    if x.dtype == float32:
        # Of 1 the quotient is inf, beyond NaN.
        inverse = single.reciprocal(1.0 - size)
        large = arith.where(size > 1.0, float("nan"), twice * inverse)
        small = math.fma(twice * size, inverse, twice)
    else:
        small = twice + math.div_rn(twice * size, 1.0 - size)
        large = 2.0 * math.div_rn(size, 1.0 - size)
    return copysign(0.5 * log1p(arith.where(size < 0.5, small, large)), x)


@library
def _sum_of_squares(values):
    """The sum of squares in two parts."""
    total, rest = two_product(values[0], values[0])
    for i in core.static_range(1, len(values)):
        square, lost = two_product(values[i], values[i])
        total, more = two_sum(total, square)
        rest += lost + more
    return total, rest


@library
def _scaled_values(values):
    """The magnitudes of ``values`` scaled by a power of two, that scale, and whether one is infinite."""
    sizes = [math.abs(value) for value in values]
    large = sizes[0]
    is_infinite = sizes[0] == float("inf")
    for i in core.static_range(1, len(values)):
        large = arith.maximum(large, sizes[i])
        is_infinite = is_infinite | (sizes[i] == float("inf"))
    large = arith.where(is_infinite, 1.0, large)
    # Squares neither overflow nor vanish.
    scale = arith.where(large > 1e150, 2.0**-600, arith.where(large < 1e-150, 2.0**600, 1.0))
    return [arith.where(is_infinite, 1.0, size * scale) for size in sizes], scale, is_infinite


@library
def _length(values):
    """The root of the sum of squares: infinite where one is, even beside a NaN."""
    if values[0].dtype == float32:
        total, _, scale, is_infinite = single.sum_of_squares(values)
        length = single.root(total) * scale
    else:
        sizes, scale, is_infinite = _scaled_values(values)
        total, rest = _sum_of_squares(sizes)
        root = math.sqrt_rn(total)
        safe = arith.where(total > 0.0, root, 1.0)
        better = root + math.div_rn(math.fma(-root, root, total) + rest, safe + safe)
        length = arith.where(total > 0.0, better, total) * (1.0 / scale)
    return arith.where(is_infinite, float("inf"), length)


@library
def _inverse_length(values):
    """One over the root of the sum of squares: 0 where one is infinite, even beside a NaN; inf of zeros."""
    if values[0].dtype == float32:
        total, scale, _, is_infinite = single.sum_of_squares(values)
        inverse = single.inverse_root(total) * scale
    else:
        sizes, scale, is_infinite = _scaled_values(values)
        total, rest = _sum_of_squares(sizes)
        safe = arith.where(total > 0.0, total, 1.0)
        root = math.div_rn(1.0, math.sqrt_rn(safe))
        # Newton's step with 1 - total · root² in two parts.
        square, lost = two_product(root, root)
        error = math.fma(-safe, square, 1.0) - math.fma(safe, lost, rest * square)
        better = math.fma(root * 0.5, error, root) * scale
        inverse = arith.where(total > 0.0, better, arith.where(total == 0.0, float("inf"), total))
    return arith.where(is_infinite, 0.0, inverse)


@device_function
def hypot(x, y):
    """sqrt(x² + y²) of ``x`` and ``y``, scaled so that squares do not overflow: within 1 ulp (float32: 3).

    Infinite where one of them is, even beside a NaN.
    """
    return _length([x, y])


@device_function
def rhypot(x, y):
    """``1 / hypot(x, y)``: within 1 ulp (float32: 2). 0 where one of them is infinite, even beside a NaN."""
    return _inverse_length([x, y])


@device_function
def norm3d(x, y, z):
    """sqrt(x² + y² + z²) of ``x``, ``y`` and ``z`` without overflow of squares: within 1 ulp
    (float32: 3)."""
    return _length([x, y, z])


@device_function
def norm4d(x, y, z, w):
    """The length of four numbers ``x``, ``y``, ``z`` and ``w`` without overflow of squares: within 1 ulp
    (float32: 3)."""
    return _length([x, y, z, w])


@device_function
def rnorm3d(x, y, z):
    """``1 / norm3d(x, y, z)``: within 1 ulp (float32: 2)."""
    return _inverse_length([x, y, z])


@device_function
def rnorm4d(x, y, z, w):
    """``1 / norm4d(x, y, z, w)``: within 1 ulp (float32: 2)."""
    return _inverse_length([x, y, z, w])


# -- roots -------------------------------------------------------------------------------------------------


@device_function
def rsqrt_rn(x):
    """``1 / sqrt(x)`` of a float32, rounded exactly to nearest even: by way of float64, in which no result is
    so near the middle between two float32 that its own rounding would matter."""
    wide = x.to(float64)
    return math.div_rn(1.0, math.sqrt_rn(wide)).to(float32)


@library
def _cube_root(x):
    """The cube root of a float64 that is positive and finite, and what it lacks of the exact one: a power,
    then Newton's method with the cube in two parts."""
    root = math.pow(x, 1.0 / 3.0)
    square, lost = two_product(root, root)
    error = math.fma(-square, root, x) - lost * root
    lack = math.div_rn(error, square * 3.0)
    better = root + lack
    return better, (root - better) + lack


@library
def _inverse_cube_root(x):
    """One over :func:`_cube_root`."""
    root, lack = _cube_root(x)
    inverse = math.div_rn(1.0, root)
    error = math.fma(-inverse, root, 1.0) - inverse * lack
    return math.fma(inverse, error, inverse)


@library
def _usual(x):
    """``x`` scaled by a power of eight where its cube root's cube would lose bits, and the root's scale."""
    is_small = x < 1e-250
    return arith.where(is_small, x * 2.0**150, x), arith.where(is_small, 2.0**-50, 1.0)


@device_function
def cbrt(x):
    """Cube root of ``x``, of negative numbers too: within 1 ulp. cbrt(-0.0) is -0.0, cbrt(±inf) is ±inf."""
    size = math.abs(x)
    if x.dtype == float32:
        small = single.cube_root(size * 2.0**60) * 2.0**-20
        other = arith.where((size > 0.0) & (size < 1e-30), small, size)
        value = arith.where_rarely(~((size >= 1e-30) & (size < float("inf"))), other, single.cube_root(size))
    else:
        is_special = (size == 0.0) | (size == float("inf"))
        usual, scale = _usual(arith.where(is_special, 1.0, size))
        root, _ = _cube_root(usual)
        value = arith.where(is_special, size, root * scale)
    return copysign(value, x)


@device_function
def rcbrt(x):
    """``1 / cbrt(x)`` of ``x``: within 1 ulp. rcbrt(±0.0) is ±inf, rcbrt(±inf) is ±0.0."""
    size = math.abs(x)
    if x.dtype == float32:
        small = single.inverse_cube_root(size * 2.0**60) * 2.0**20
        other = arith.where((size > 0.0) & (size < 1e-30), small, math.div_rn(1.0, size))
        is_usual = (size >= 1e-30) & (size < float("inf"))
        value = arith.where_rarely(~is_usual, other, single.inverse_cube_root(size))
    else:
        is_special = (size == 0.0) | (size == float("inf"))
        usual, scale = _usual(arith.where(is_special, 1.0, size))
        value = arith.where(is_special, math.div_rn(1.0, size), _inverse_cube_root(usual) * (1.0 / scale))
    return copysign(value, x)
