"""float32 forms of the device library's functions, made of few instructions.

Quotients, roots and powers of two are the approximate instructions, put right where that matters. Polynomials
are minimax fits of the relative error (Lawson's weighted least squares), of highest degree first.
"""

from __future__ import annotations

from ptxforge.language import arith, core, math
from ptxforge.language.constexpr import constexpr
from ptxforge.language.extra.libdevice._floats import polynomial
from ptxforge.language.extra.libdevice._instructions import fast_log2f
from ptxforge.language.instructions import Form, Instruction
from ptxforge.language.registry import device_function, library
from ptxforge.language.types import PropagateNan, float32, float64, int32, int64

reciprocal = Instruction(
    "reciprocal", "x", [Form((float32,), float32, "rcp.approx.ftz.f32 $0, $1;")],
    "``1 / x`` of a float32 within 1 ulp, for normal ``x`` up to 2**126. ``rcp.approx.ftz``.",
)  # fmt: skip
inverse_root = Instruction(
    "inverse_root", "x", [Form((float32,), float32, "rsqrt.approx.ftz.f32 $0, $1;")],
    "``1 / sqrt(x)`` of a normal float32: relative error up to 2**-22.9. ``rsqrt.approx.ftz``.",
)  # fmt: skip
root = Instruction(
    "root", "x", [Form((float32,), float32, "sqrt.approx.ftz.f32 $0, $1;")],
    "The root of a float32 that is 0 or normal, within 1 ulp. ``sqrt.approx.ftz``.",
)  # fmt: skip

LOG = constexpr((
    -0.124222, 0.13748309, -0.12288722, 0.14055813,
    -0.16673316, 0.20007234, -0.249999442, 0.33333273, -0.5,
))  # fmt: skip
"""(log(1 + f) - f) / f² for f from -1/3 to 1/3."""
LN_2_OF_BITS = constexpr(0.6931471805599453 * 2.0**-23)
"""log 2, for exponents that stand where a float has its own."""


@library
def quotient(x, y):
    """``x / y`` with an error of hardly more than half an ulp, for ``y`` from 2**-126 to 2**126."""
    inverse = reciprocal(y)
    first = x * inverse
    return math.fma(math.fma(-first, y, x), inverse, first)


@library
def log_of_normal(x):
    """The logarithm of a positive, normal, finite ``x``: within 1 ulp."""
    bits = x.to(int32, bitcast=True)
    exponent = (bits - 0x3F2AAAAB) & -0x800000
    f = (bits - exponent).to(float32, bitcast=True) - 1.0
    return math.fma(exponent.to(float32), LN_2_OF_BITS, math.fma(f * f, polynomial(f, LOG), f))


@device_function
def log1p(x):
    """log(1 + ``x``): within 1 ulp. ``1 + x`` decides about the exponent alone: with ``2**-e`` of it,
    ``f = 2**-e x - (1 - 2**-e)`` is rounded once, and not at all where the exponent is 0. All exponents have
    their sign changed, so that -0.0 stays."""
    total = 1.0 + x
    lower = (0x3FAAAAAA - total.to(int32, bitcast=True)) & -0x800000
    scale = (lower + 0x40800000).to(float32, bitcast=True)  # 2**(2 - e)
    f = (x.to(int32, bitcast=True) + lower).to(float32, bitcast=True) - math.fma(scale, -0.25, 1.0)
    series = math.fma(f * f, polynomial(f, LOG), f)
    value = math.fma(lower.to(float32), -LN_2_OF_BITS, series)
    return arith.where((x > -1.0) & (x < float("inf")), value, fast_log2f(total))  # -inf, inf or NaN


@device_function
def exp(x, halvings: constexpr, low=None):
    """e to the power ``x + low``, divided by ``2**halvings``: within 2 ulp. ``2**(2m + t)`` with ``t`` up to
    1 is multiplied by 2**m twice, so that subnormal results are rounded once."""
    bounded = arith.clamp(x, -160.0, 160.0, PropagateNan.ALL)
    shifted = math.fma(bounded, 0.7213475204444817, 12582912.0)  # m in its low bits
    m = shifted.to(int32, bitcast=True)
    t = math.fma(bounded, 1.4426950216293335, (12582912.0 - shifted) * 2.0)
    t = math.fma(bounded, 1.925963033500812e-08, t)
    if low is not None:
        t = math.fma(low, 1.4426950216293335, t)
    scale = ((m << 23) + 0x3F800000).to(float32, bitcast=True)
    return math.exp2(t) * 2.0**-halvings * scale * scale


@library
def _scaling(large):
    """Powers of two: the one by which ``large`` comes near 1 (of numbers below 2**-126 and from 2**126 as of
    these), and its inverse."""
    bits = arith.clamp(large, 2.0**-126, 2.0**126).to(int32, bitcast=True) & 0x7F800000
    return (0x7F000000 - bits).to(float32, bitcast=True), bits.to(float32, bitcast=True)


@library
def sum_of_squares(values):
    """The sum of the squares of scaled ``values``, the scale, its inverse, and whether one is infinite."""
    large = math.abs(values[0])
    for i in core.static_range(1, len(values)):
        large = arith.maximum(large, math.abs(values[i]))
    scale, unscale = _scaling(large)
    first = values[0] * scale
    total = first * first
    for i in core.static_range(1, len(values)):
        scaled = values[i] * scale
        total = math.fma(scaled, scaled, total)
    return total, scale, unscale, large == float("inf")


# -- arc tangents ------------------------------------------------------------------------------------------

ATAN = constexpr((
    0.00292086597, -0.0163686419, 0.0432130605, -0.0755231999, 0.106660566, -0.142110691, 0.199937746,
    -0.333331528,
))  # fmt: skip
"""(atan(x) / x - 1) / x² in x² up to 1."""


@library
def angle(t, is_steep):
    """The arc tangent of ``t`` from 0 to 1; π/2 less that where it ``is_steep``."""
    square = t * t
    value = math.fma(t * square, polynomial(square, ATAN), t)
    return arith.where(is_steep, (1.5707963705062866 - value) - 4.371138828673793e-08, value)


ASIN = constexpr((
    0.0421666842, 0.0241793413, 0.0454703947, 0.0749529769, 0.166667525,
))  # fmt: skip
"""(asin(x) / x - 1) / x² in x² up to 1/4."""


@library
def arc_sine(size):
    """(angle, is_large): the arc sine of ``size`` up to 1/2; beyond, half its arc cosine, which is the arc
    sine of the root of (1 - size) / 2."""
    is_large = size > 0.5
    square = arith.where(is_large, math.fma(size, -0.5, 0.5), size * size)
    inverse = inverse_root(arith.maximum(square, 1e-30))
    first = square * inverse
    better = math.fma(math.fma(-first, first, square), inverse * 0.5, first)
    sine = arith.where(is_large, better, size)
    return math.fma(sine * square, polynomial(square, ASIN), sine), is_large


# -- cube roots ----------------------------------------------------------------------------------------------


@library
def cube_root(x):
    """The cube root of ``x`` from 1e-30, within 1 ulp: a power of two, then Newton's method."""
    first = math.exp2(fast_log2f(x) * 0.3333333333333333)
    square = first * first
    error = math.fma(-square, first, x)
    return math.fma(error * 0.3333333333333333, reciprocal(square), first)


@library
def inverse_cube_root(x):
    """One over the cube root of ``x`` from 1e-30, within 1 ulp, in the same way."""
    first = math.exp2(fast_log2f(x) * -0.3333333333333333)
    error = math.fma(-(x * first), first * first, 1.0)
    return math.fma(first * 0.3333333333333333, error, first)


# -- gamma -------------------------------------------------------------------------------------------------

LGAMMA_TOP = constexpr((
    0.0022807687, 0.72394558, 10.963609, 31.994636, 20.371737, 2.15706477,
))  # fmt: skip
LGAMMA_BOTTOM = constexpr((
    0.20764334, 6.1071744, 35.47812, 53.08965, 18.828909, 1,
))  # fmt: skip
"""Top over bottom is lgamma(x) / ((x - 1) (x - 2)) for x from 0.5 to 8; nothing cancels."""
STIRLING = constexpr((4.760954e-8, -2.160555e-5, 0.08331168))
"""(lgamma(x) - (x - 1/2) log x + x - log(2π)/2) · x in 1/x², mapped from 0 … 1/64 to [-1, 1]."""


@library
def _lgamma_near(x):
    """lgamma of ``x`` from 0.5 to 8."""
    ratio = polynomial(x, LGAMMA_TOP) * reciprocal(polynomial(x, LGAMMA_BOTTOM))
    return math.fma((x - 1.0) * (x - 2.0), ratio, 0.0)  # no -0.0


@library
def _lgamma_beside(x, is_small, shifted):
    """lgamma of a positive, normal ``x`` outside of 0.5 to 8: where it ``is_small`` that of 1 + x, which is
    ``shifted``, less log x; beyond Stirling's series."""
    log, inverse = log_of_normal(x), reciprocal(x)
    series = inverse * polynomial(math.fma(inverse * inverse, 128.0, -1.0), STIRLING)
    far = math.fma(x - 0.5, log - 1.0, 0.4189385332046727 + series)
    return arith.where(is_small, shifted - log, far)


@device_function
def lgamma(x, wave):
    """The logarithm of the gamma function; ``wave`` is sin(πx). Of negative numbers
    ``-log(|x sin(πx)| / π) - lgamma(-x)``, of small ones ``-log|x|``, of integers up to 0 inf."""
    size = math.abs(x)
    is_small, is_tiny = size < 0.5, size < 1e-10
    value = _lgamma_near(arith.where(is_small, size + 1.0, size))
    value = arith.where_rarely(is_small | (size > 8.0), _lgamma_beside(size, is_small, value), value)
    product = size * math.abs(wave)
    share = product * 0.3183098861837907
    share = math.fma(math.fma(share, -3.141592653589793, product), 0.3183098861837907, share)
    other = arith.where(is_tiny, 0.0, -value) - math.log(arith.where(is_tiny, size, share))
    # From 2**23 on all are integers.
    other = arith.where(size >= 8388608.0, float("inf"), other)
    return arith.where_rarely(~(x >= 2.0**-126), other, value)


GAMMA = constexpr((
    0.0169257772, -0.0915737749, 0.230277535, -0.370718213, 0.455787539, -0.478046958, 0.494705475,
    -0.41178671, 0.577214602,
))  # fmt: skip
"""(Γ(1 + t) - 1) / (t (t - 1)) for t up to 1."""


@library
def _gamma_from_1_to_2(t):
    """Γ of 1 + ``t``: exact at 1 and 2."""
    return math.fma(math.fma(t, t, -t), polynomial(t, GAMMA), 1.0)


@library
def _gamma_far(x, scale):
    """Γ of ``x`` from 3 to 45 times ``scale``, a float64. Steps down into [1, 2) are products in float64, of
    which the one of ``x - k`` and ``x - (n - k)`` is ``x (x - n) + k (n - k)``."""
    here, product = x.to(float64), scale
    for i in core.static_range(5):
        step: constexpr = (16, 16, 8, 4, 2)[i]
        square = here * (here - (step + 1.0))
        factors = square + step
        for k in core.static_range(2, step // 2 + 1):
            factors *= square + k * (step + 1.0 - k)
        is_far = here >= step + 1.0
        product = arith.where(is_far, product * factors, product)
        here = arith.where(is_far, here - step, here)
    is_far = here >= 2.0
    here = here - 1.0
    product = arith.where(is_far, product * here, product)
    t = arith.where(is_far, here - 1.0, here).to(float32)
    return (_gamma_from_1_to_2(t).to(float64) * product).to(float32)


@device_function
def gamma(x, wave):
    """The gamma function; ``wave`` is sin(πx). Of negative numbers ``-π / (x sin(πx) Γ(-x))``, where from
    20 on Γ is scaled, as it overflows."""
    size = math.abs(x)
    t = size - arith.where(size >= 2.0, 2.0, arith.where(size >= 1.0, 1.0, 0.0))
    value = quotient(_gamma_from_1_to_2(t) * arith.maximum(size - 1.0, 1.0), arith.minimum(size, 1.0))
    is_scaled = x < -20.0
    far = _gamma_far(arith.minimum(size, 45.0), arith.where(is_scaled, 2.0**-64, 1.0).to(float64))
    value = arith.where_rarely(size >= 3.0, far, value)
    mirrored = math.div_rn(3.141592653589793, size * wave * value)
    mirrored = arith.where(is_scaled, mirrored * 2.0**-64, mirrored)
    mirrored = arith.where((wave == 0.0) | (x != x), float("nan"), mirrored)
    mirrored = arith.where(size < 1e-10, math.div_rn(1.0, x), mirrored)
    return arith.where_rarely(~(x >= 2.0**-100), mirrored, value)


# -- the inverse error function ------------------------------------------------------------------------------

ERFINV = constexpr((
    1.6139641e-11, -8.989205e-10, 2.0431436e-08, -2.2384851e-07, 8.010855e-07, 6.026039e-06, -2.7376118e-05,
    -0.00077954333, 0.0055497268, 0.1608195,
))  # fmt: skip
"""(erfinv(x) / x - sqrt(π) / 2) / v in ``v = -log2(1 - x²)`` up to 9.03."""


@library
def erfinv(x, rest):
    """The inverse error function of ``x`` by ``rest``, which is 1 - x², and whether it is that: whether
    ``rest`` is positive and no less than 0.00192, whose -log is 6.2553."""
    v = math.abs(fast_log2f(rest))
    value = math.fma(x * v, polynomial(v, ERFINV), x * 0.8862269254527580)
    return value, v < 9.025


# -- Bessel's functions --------------------------------------------------------------------------------------

J0 = constexpr((
    3.428051e-20, 4.9863004e-18, 1.9716273e-15, 3.9219645e-13, 6.0634005e-11, 6.261447e-09,
    3.892914e-07, 1.1646257e-05, 8.793874e-05,
))  # fmt: skip
"""J0(x) / ((x² - z²) (x² - Z²)), z and Z its first zeros, in 64 - x²: all terms are positive."""
J0_ZEROS = constexpr(((2.4048254, 1.087059e-07), (5.520078, -7.1934148e-08)))
J1 = constexpr((
    1.60312014e-21, 2.8113203e-19, 1.1867088e-16, 2.7502983e-14, 5.011607e-12, 6.3617436e-10,
    5.1893938e-08, 2.3266974e-06, 4.0232757e-05,
))  # fmt: skip
"""J1(x) / (x (x² - z²) (x² - Z²)) in 64 - x²."""
J1_ZEROS = constexpr(((3.831706, -7.685059e-08), (7.015587, -1.8321172e-07)))
I0 = constexpr((
    1.4984018e-11, 3.81154e-10, 4.3158014e-08, 1.8938007e-06, 6.963704e-05, 0.0017355045,
    0.027778804, 0.2499992, 1.0000002, 1,
))  # fmt: skip
"""I0(x) in x²/4 up to 16."""
I1 = constexpr((
    1.4420094e-12, 4.5935855e-11, 5.301257e-09, 2.7183407e-07, 1.1595991e-05, 0.00034714707,
    0.0069445858, 0.08333321, 0.50000004, 1,
))  # fmt: skip
"""I1(x) / (x/2) in x²/4 up to 16."""
SINE = constexpr((-0.00019587841, 0.008332748, -0.166666647))
COSINE = constexpr((2.4547892e-05, -0.0013888303, 0.041666665, -0.5))


@library
def oscillating(size, ZEROS: constexpr, SERIES: constexpr):
    """A function of ``size`` up to 8 by its zeros and the polynomial that is left. A zero has two parts, so
    that the distance from it is rounded once."""
    one = ((size - ZEROS[0][0]) - ZEROS[0][1]) * (size + ZEROS[0][0])
    other = ((size - ZEROS[1][0]) - ZEROS[1][1]) * (size + ZEROS[1][0])
    return one * other * polynomial(math.fma(-size, size, 64.0), SERIES)


@library
def wave(x):
    """(sine, cosine) of a positive ``x`` up to 1e15, reduced in float64: for far arguments, of which there
    are few."""
    wide = x.to(float64)
    shifted = math.fma(wide, 0.6366197723675814, 6755399441055744.0)  # the turns in its low bits
    turns = shifted - 6755399441055744.0
    rest = math.fma(turns, -6.123233995736766e-17, math.fma(turns, -1.5707963267948966, wide)).to(float32)
    quadrant = shifted.to(int64, bitcast=True).to(int32)
    square = rest * rest
    sine = math.fma(square * rest, polynomial(square, SINE), rest)
    cosine = math.fma(square, polynomial(square, COSINE), 1.0)
    is_odd, is_low = (quadrant & 1) != 0, (quadrant & 2) != 0
    over, under = arith.where(is_odd, cosine, sine), arith.where(is_odd, -sine, cosine)
    return arith.where(is_low, -over, over), arith.where(is_low, -under, under)
