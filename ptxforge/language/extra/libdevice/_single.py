"""float32 forms of the device library's functions, made of few instructions.

Quotients, roots and powers of two are the approximate instructions, whose results are put right where that
matters; logarithms are a polynomial. What is rare (far arguments, mostly) stands behind ``where_rarely``, so
that threads branch around it. Polynomials and rational functions are minimax fits of the relative error
(Lawson's weighted least squares in 40 digits), of highest degree first.
"""

from __future__ import annotations

from ptxforge.language import arith, core, math
from ptxforge.language.constexpr import constexpr
from ptxforge.language.extra.libdevice._floats import polynomial
from ptxforge.language.extra.libdevice._instructions import fast_log2f
from ptxforge.language.instructions import Form, Instruction
from ptxforge.language.registry import library
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
    -0.12422200575409693, 0.13748309139532636, -0.12288721609296725, 0.14055812653133343,
    -0.1667331625320225, 0.20007233984917233, -0.24999944186243983, 0.33333272619719945, -0.5,
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


@library
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


@library
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


# -- gamma -------------------------------------------------------------------------------------------------

LGAMMA_TOP = constexpr((
    0.00228076871792, 0.723945579117, 10.9636090008, 31.9946361845, 20.3717374331, 2.15706477353,
))  # fmt: skip
LGAMMA_BOTTOM = constexpr((
    0.207643340237, 6.10717440904, 35.4781206286, 53.0896509402, 18.8289092063, 1.0,
))  # fmt: skip
"""Top over bottom is lgamma(x) / ((x - 1) (x - 2)) for x from 0.5 to 8; nothing cancels."""
STIRLING = constexpr((4.760954e-8, -2.160555e-5, 8.331168e-2))
"""(lgamma(x) - (x - 1/2) log x + x - log(2π)/2) · x in 1/x², mapped from 0 … 1/64 to [-1, 1]."""


@library
def _lgamma_near(x):
    """lgamma of ``x`` from 0.5 to 8."""
    ratio = polynomial(x, LGAMMA_TOP) * reciprocal(polynomial(x, LGAMMA_BOTTOM))
    return math.fma((x - 1.0) * (x - 2.0), ratio, 0.0)  # no -0.0


@library
def _lgamma_positive(x):
    """lgamma of ``x`` from 0 on: below 0.5 that of 1 + x less log x, from 8 Stirling's series."""
    is_small = x < 0.5
    log = math.log(x)
    near = _lgamma_near(arith.where(is_small, x + 1.0, arith.minimum(x, 8.0)))
    inverse = math.div_rn(1.0, arith.maximum(x, 8.0))
    series = inverse * polynomial(math.fma(inverse * inverse, 128.0, -1.0), STIRLING)
    far = math.fma(x - 0.5, log - 1.0, 0.4189385332046727 + series)
    return arith.where(x > 8.0, far, arith.where(is_small, near - log, near))


@library
def lgamma(x, wave):
    """The logarithm of the gamma function; ``wave`` is sin(πx). Of negative numbers
    ``log(π / |x sin(πx)|) - lgamma(-x)``."""
    size, wave = math.abs(x), math.abs(wave)
    positive = _lgamma_positive(size)
    tiny = -math.log(size)
    reflected = math.log(math.div_rn(3.141592653589793, size * wave)) - positive
    negative = arith.where(wave == 0.0, float("inf"), arith.where(size < 1e-10, tiny, reflected))
    other = arith.where((x > 0.0) | (size == float("inf")), positive, negative)
    other = arith.where(x == x, other, x)
    return arith.where_rarely(~((x >= 0.5) & (x <= 8.0)), other, _lgamma_near(x))


# -- Bessel's functions --------------------------------------------------------------------------------------

J0 = constexpr((
    3.428051043e-20, 4.986300434e-18, 1.9716273e-15, 3.921964545e-13, 6.063400498e-11, 6.261446823e-09,
    3.892913952e-07, 1.164625682e-05, 8.79387357e-05,
))  # fmt: skip
"""J0(x) / ((x² - z²) (x² - Z²)), z and Z its first zeros, in 64 - x²: all terms are positive."""
J0_ZEROS = constexpr(((2.404825448989868, 1.0870590e-07), (5.520078182220459, -7.1934148e-08)))
J1 = constexpr((
    1.603120139e-21, 2.811320278e-19, 1.186708757e-16, 2.750298296e-14, 5.011606802e-12, 6.36174355e-10,
    5.189393845e-08, 2.326697381e-06, 4.023275722e-05,
))  # fmt: skip
"""J1(x) / (x (x² - z²) (x² - Z²)) in 64 - x²."""
J1_ZEROS = constexpr(((3.8317060470581055, -7.6850593e-08), (7.015586853027344, -1.8321172e-07)))
I0 = constexpr((
    1.498401801e-11, 3.811539966e-10, 4.31580141e-08, 1.893800686e-06, 6.963703889e-05, 0.001735504519,
    0.02777880422, 0.2499991884, 1.000000224, 1.0,
))  # fmt: skip
"""I0(x) in x²/4 up to 16."""
I1 = constexpr((
    1.44200939e-12, 4.593585503e-11, 5.301257141e-09, 2.718340714e-07, 1.159599065e-05, 0.00034714707,
    0.00694458578, 0.08333320569, 0.5000000417, 1.0,
))  # fmt: skip
"""I1(x) / (x/2) in x²/4 up to 16."""
SINE = constexpr((-0.00019587840521305324, 0.008332748037517147, -0.16666664661114838))
COSINE = constexpr((2.454789161981386e-05, -0.0013888302802309161, 0.04166666465830042, -0.5))


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
    turns = math.rint(wide * 0.6366197723675814)
    rest = math.fma(turns, -6.123233995736766e-17, math.fma(turns, -1.5707963267948966, wide)).to(float32)
    quadrant = turns.to(int64).to(int32)
    square = rest * rest
    sine = math.fma(square * rest, polynomial(square, SINE), rest)
    cosine = math.fma(square, polynomial(square, COSINE), 1.0)
    is_odd, is_low = (quadrant & 1) != 0, (quadrant & 2) != 0
    over, under = arith.where(is_odd, cosine, sine), arith.where(is_odd, -sine, cosine)
    return arith.where(is_low, -over, over), arith.where(is_low, -under, under)
