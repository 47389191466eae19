"""Special functions: gamma and its logarithm, the error function's relatives, the normal distribution.

A table has coefficients for float64, then for float32 where that is not computed in float64, of highest
degree first, fitted at Chebyshev's points in 220 bits, without the digits that count for less than 1/30 ulp;
the variable is mapped to [-1, 1].
"""

from __future__ import annotations

from ptxforge.language import arith, core, math
from ptxforge.language.constexpr import constexpr
from ptxforge.language.extra.libdevice import _single as single
from ptxforge.language.extra.libdevice._exponentials import _exp
from ptxforge.language.extra.libdevice._floats import (
    polynomial,
    polynomial_between,
    polynomials_between,
    two_product,
)
from ptxforge.language.extra.libdevice._trigonometry import sinpi
from ptxforge.language.registry import device_function, library
from ptxforge.language.types import PropagateNan, float32, float64

NEAR_1 = constexpr((
    -7.979598225e-10, 1.646992892e-09, 2.182770986e-09, -4.4900756104e-09, -8.2118174256e-09,
    1.6982931759e-08, -3.047966637e-09, 6.6220543964e-09, -5.3072085181e-08, 1.11305018238e-07,
    -2.02088086791e-07, 4.27449330315e-07, -9.25602545612e-07, 1.970304720019e-06, -4.204031791899e-06,
    9.029658952008e-06, -1.9503491369359e-05, 4.23936367634325e-05, -9.2857669526756e-05,
    0.0002052981182133205, -0.000459202667220664, 0.0010426832555553084, -0.0024161927666072084,
    0.005764938028979333, -0.014393317820479734, 0.0388585664659889, -0.12262568426129018, 0.5772156649015329,
))  # fmt: skip
"""lgamma(x) / ((x - 1) (x - 2)) for x from 0.5 to 1.5."""

NEAR_2 = constexpr((
    1.0793696e-11, -3.37771497e-11, 4.9236171e-11, -1.55414708e-10, 6.19433963e-10, -1.9609769273e-09,
    6.0676251714e-09, -1.93522720554e-08, 6.2115725708e-08, -1.999838215283e-07, 6.4771654727e-07,
    -2.113574573486e-06, 6.960129382686e-06, -2.3187395980634e-05, 7.8427431113308e-05,
    -0.0002707614660722675, 0.0009622289503497507, -0.003570760544169681, 0.014213449664599944,
    -0.06441063566344568, 0.3995894876556691,
))  # fmt: skip
"""The same for x from 1.5 to 3."""

STIRLING = constexpr((
    1.1519e-15, -4.81063e-14, 2.8769112e-12, -2.718191768e-10, 4.76073826222e-08, -2.1605346910997e-05,
    0.08331168010429436,
))  # fmt: skip
"""(lgamma(x) - (x - 1/2) log x + x - log(2π)/2) · x in 1/x², for x from 8."""

GAMMA = constexpr((
    3.110706e-12, -1.5443062e-11, 6.5157236e-11, -3.08076311e-10, 1.771810354e-09, -6.255009451e-09,
    5.9892104761e-08, 7.70104246e-09, 2.94716470099e-06, 1.2557815611548e-05, 0.000162381303508217,
    0.000886274393696772, 0.006854577125136554, 0.03173390585513512, 0.16363964449533416, 0.4673672608130429,
    1.329340388179137,
))  # fmt: skip
"""Γ(x) for x from 2 to 3."""

GAMMA_FAR = constexpr((
    2.216e-15, -1.2111e-13, -5.25687e-13, 9.7955817e-11, -1.98361856e-10, -1.95740907182e-07,
    5.443115869126e-06, 0.003483694391166795, 1.0034780558311105,
))  # fmt: skip
"""Γ(x) / (sqrt(2π) x**(x - 1/2) exp(-x)) in 1/x, for x from 12."""


@library
def _lgamma_positive(x):
    """lgamma of a float64 ``x`` above 0. Up to 3 a polynomial times the zeros at 1 and 2, up to 8 that of a
    number from 2 to 3 and the logarithm of what lies between, then Stirling's series."""
    is_small = x < 0.5
    near = arith.where(is_small, x + 1.0, x)
    zeros = arith.where(is_small, x * (x - 1.0), (x - 1.0) * (x - 2.0))
    near_1 = zeros * polynomial_between(near, 0.5, 1.5, NEAR_1)
    # Down to 2 … 3 by products.
    here, product = arith.minimum(x, 8.0), core.full(x.shape, 1.0, x.dtype)
    for _ in core.static_range(5):
        is_far = here >= 3.0
        here = arith.where(is_far, here - 1.0, here)
        product = arith.where(is_far, product * here, product)
    near_2 = (here - 1.0) * (here - 2.0) * polynomial_between(here, 1.5, 3.0, NEAR_2)
    log = math.log(arith.where(is_small | (x >= 8.0), x, product))
    far = arith.maximum(x, 8.0)
    inverse = math.div_rn(1.0, far)
    series = inverse * polynomial_between(inverse * inverse, 0.0, 0.015625, STIRLING)
    far = math.fma(far - 0.5, log - 1.0, 0.4189385332046727 + series)
    middle = arith.where(x < 3.0, near_2, near_2 + log)
    value = arith.where(x < 1.5, near_1, arith.where(x < 8.0, middle, far))
    return arith.where(is_small, near_1 - log, arith.where(x == float("inf"), x, value))


@device_function
def lgamma(x):
    """The logarithm of the magnitude of the gamma function at ``x``: within 4 ulp (float32: 6) above -2.26;
    below, where it has zeros, 4 ulp (float32: 7) of the larger one of ``log(π / |x sin πx|)`` and
    ``lgamma(-x)``, whose difference it is. Of infinities inf; of integers up to 0 inf.
    """
    if x.dtype == float32:
        return single.lgamma(x, sinpi(x))
    else:
        return _lgamma(x)


@library
def _lgamma(x):
    """:func:`lgamma` of a float64."""
    size = math.abs(x)
    positive = _lgamma_positive(arith.where(size == 0.0, 1.0, size))
    wave = math.abs(sinpi(x))
    reflected = math.log(math.div_rn(3.141592653589793, arith.where(wave == 0.0, 1.0, size * wave)))
    negative = arith.where(wave == 0.0, float("inf"), reflected - positive)
    tiny = -math.log(size)
    value = arith.where(x > 0.0, positive, arith.where(size < 1e-19, tiny, negative))
    value = arith.where(value == 0.0, 0.0, value)
    return arith.where(size == float("inf"), size, arith.where(x == x, value, x))


@library
def _gamma_positive(x):
    """Γ of a float64 ``x`` from 0.5, and a factor that it is still to be multiplied by: up to 12 products and
    a polynomial, then ``sqrt(2π) x**(x - 1/2) exp(-x)`` times a series in 1/x."""
    small = arith.minimum(x, 12.0)
    is_below_2 = small < 2.0
    is_below_1 = small < 1.0
    here = arith.where(is_below_1, small + 2.0, arith.where(is_below_2, small + 1.0, small))
    product = core.full(x.shape, 1.0, x.dtype)
    for _ in core.static_range(9):
        is_far = here >= 3.0
        here = arith.where(is_far, here - 1.0, here)
        product = arith.where(is_far, product * here, product)
    divisor = arith.where(is_below_1, small * (small + 1.0), arith.where(is_below_2, small, 1.0))
    near = math.div_rn(polynomial_between(here, 2.0, 3.0, GAMMA), divisor) * product
    large = arith.maximum(x, 12.0)
    series = polynomial_between(math.div_rn(1.0, large), 0.0, 0.08333333333333333, GAMMA_FAR)
    half = math.pow(large, math.fma(large, 0.5, -0.25))
    far = half * _exp(-large, 0) * (series * 2.5066282746310002)
    return arith.where(x < 12.0, near, far), arith.where(x < 12.0, 1.0, half)


@device_function
def tgamma(x):
    """The gamma function of ``x``: within 8 ulp (float32: 1, of negative numbers 3). tgamma(±0.0) is ±inf,
    tgamma(inf) is inf, of negative integers and -inf NaN.

    Of negative numbers ``-π / (x sin(πx) Γ(-x))``.
    """
    if x.dtype == float32:
        return single.gamma(x, sinpi(x))
    else:
        return _tgamma(x)


@library
def _tgamma(x):
    """:func:`tgamma` of a float64."""
    size = math.abs(x)
    is_reflected = x < 0.5
    argument = arith.where(is_reflected, arith.where(x < -0.5, size, 1.0 - x), x)
    value, factor = _gamma_positive(arith.clamp(argument, 0.5, 185.0, PropagateNan.ALL))
    wave = sinpi(x)
    # Γ(x) = π / (sin(πx) Γ(1 - x)) = -π / (x sin(πx) Γ(-x))
    divisor = arith.where(x < -0.5, -x * wave, wave)
    divisor = arith.where(wave == 0.0, 1.0, divisor)
    mirrored = math.div_rn(math.div_rn(3.141592653589793, divisor * value), factor)
    mirrored = arith.where(size < 1e-17, math.div_rn(1.0, x), mirrored)
    is_pole = (x < 0.0) & (math.floor(x) == x)
    value = arith.where(is_reflected, mirrored, value * factor)
    value = arith.where(x > 172.0, float("inf"), value)
    return arith.where(is_pole | (x != x), float("nan"), value)


ERFCX = constexpr((
    (
        -2.76412023e-10, 9.29762526e-10, 3.232397345e-09, -1.2338731404e-08, -2.0725802488e-08,
        1.06318175938e-07, 7.7719432411e-08, -8.2106479333e-07, 2.91734255731e-07, 5.70657829924e-06,
        -1.1221135665966e-05, -2.4397731143023e-05, 0.00015062142608652, -0.000199257152472652,
        -0.000757773243594258, 0.005031970069102256, -0.01619773406293477, 0.037167515526338006,
        -0.06633036581186058, 0.09373283499911264, -0.10103906603631811, 0.06809705425466839,
        0.015379652102619974, -0.13962111684056228, 1.2329951186255526,
    ),
    (
        0.000116608, -0.000248632, -0.000716339, 0.005082809, -0.016222274, 0.03713992, -0.06632326,
        0.09374044, -0.10103995, 0.06809613, 0.015379684, -0.13962108, 1.2329952,
    ),
))  # fmt: skip
"""erfcx(x) · (1 + 2x) for all x from 0, in (x - 4) / (x + 4)."""

INVERSE_CENTRE = constexpr((
    -2.70322541e-10, 7.68931273e-10, 1.540173872e-09, -8.562787797e-09, 4.792369996e-09, 3.915473114e-08,
    -9.8677131402e-08, -1.0185147577e-08, 5.3943206487e-07, -1.05932140254e-06, -6.83718721812e-07,
    7.130057263082e-06, -1.1257319182678e-05, -1.5027710420278e-05, 9.3367391778048e-05,
    -0.000116888839930971, -0.000264393668436617, 0.001232485568681283, -0.001271692268437302,
    -0.00413731437741443, 0.017808361818295655, -0.022604447453449802, -0.05892256710377784,
    0.7504943200799635, 1.6536545626831027,
))  # fmt: skip
"""erfinv(x) / x in w = -log(1 - x²) for w from 0 to 6.25, for float64."""

INVERSE_TAIL = constexpr((
    (
        (
            2.4355543e-11, -6.4715548e-11, -1.17910076e-10, 9.8912975e-10, -2.460529114e-09, -3.6906087e-10,
            2.6399032353e-08, -9.468946845e-08, 9.289338749e-08, 5.26462162694e-07, -2.664793846716e-06,
            5.127316786335e-06, 2.40586480579e-06, -4.7391827316182e-05, 0.000169665021975438,
            -0.000400635698353586, 0.000788307851306695, -0.00158254108940731, 0.003021139436374706,
            0.753944225770624, 3.0838856104922208,
        ),
        (
            -5.96571e-12, 2.534915e-11, -3.5815406e-11, -2.601556e-11, 3.0261499e-10, -1.14880057e-09,
            3.168279606e-09, -7.04393299e-09, 1.33843156e-08, -2.328175714e-08, 4.2940624564e-08,
            -1.0711466809e-07, 3.8398334879e-07, -1.6195268285e-06, 6.891264374854e-06, -2.7640591704736e-05,
            9.780198006402e-05, -0.00024824882603031, -0.0002406192310305, 1.1112932209525201,
            4.950934853078874,
        ),
        (
            7.37591e-12, -2.455966e-11, 4.223782e-11, -1.3525413e-10, 5.1538258e-10, -1.63026732e-09,
            4.98722059e-09, -1.536495658e-08, 4.671437591e-08, -1.3927422362e-07, 4.0597767026e-07,
            -1.14875426321e-06, 3.11439096325e-06, -7.88462554835e-06, 1.752265500605e-05,
            -2.731807484429e-05, -2.178171100396e-05, 0.00049865974579753, -0.00338743552725539,
            2.9192739597305875, 8.984939177788311,
        ),
        (
            2.8498902e-10, -6.9470699e-10, 1.837299e-10, -3.761696e-10, 4.0692824e-09, -9.28587526e-09,
            1.637334523e-08, -3.36085844e-08, 6.60823734e-08, -1.036135337e-07, 7.89258377e-08,
            3.2149176632e-07, -2.31911331017e-06, 1.026213056785e-05, -3.895508789312e-05, 0.0001376674469338,
            -0.00046912639319835, 0.00157483952910749, -0.0053097441333977, 7.718512188715553,
            19.62734227797605,
        ),
    ),
    (
        (
            -2.3e-06, 6.125e-06, 2.009e-06, -4.8246e-05, 0.000169845, -0.00040029, 0.000788275, -0.0015826,
            0.00302114, 0.7539442, 3.0838857,
        ),
        (
            2.684e-05, -5.835e-05, 5.1763e-05, -0.000103053, 0.000258914, -0.00043169, 0.000486313,
            0.00027946, -0.004978068, 3.1514618, 6.995086,
        ),
    ),
))  # fmt: skip
"""erfinv(x) / x in the square root of w, between the edges."""

INVERSE_EDGES = constexpr(((2.5, 4.0, 6.2, 12.0, 27.4), (2.5, 4.0, 10.25)))


@library
def _erfcx_positive(x):
    """exp(x²) · erfc(x) for ``x`` up to 1e15: a polynomial over 1 + 2x (M. M. Shepherd, J. G. Laframboise,
    *Chebyshev Approximation of (1 + 2x) exp(x²) erfc x*, 1981)."""
    if x.dtype == float32:
        inverse = single.reciprocal(x + 4.0)
        t = (x - 4.0) * inverse
        # What t lacks: x - 4 - t (x + 4), without these rounded sums.
        t = math.fma(math.fma(-t, x, math.fma(t + 1.0, -4.0, x)), inverse, t)
        return polynomial(t, ERFCX[1]) * single.reciprocal(math.fma(x, 2.0, 1.0))
    else:
        t = math.div_rn(x - 4.0, x + 4.0)
        return math.div_rn(polynomial(t, ERFCX[0]), math.fma(x, 2.0, 1.0))


@device_function
def erfcx(x):
    """exp(x²) · erfc(``x``), scaled so as not to vanish: within 4 ulp. erfcx(inf) is 0, erfcx(-inf) inf.

    For negative ``x`` it is 2 exp(x²) - erfcx(-x).
    """
    size = math.abs(x)
    positive = _erfcx_positive(arith.minimum(size, 1e15, PropagateNan.ALL))
    positive = arith.where_rarely(size > 1e15, math.div_rn(0.5641895835477563, size), positive)
    high, low = two_product(arith.minimum(size, 30.0), arith.minimum(size, 30.0))
    return arith.where_rarely(x < 0.0, 2.0 * _exp(high, 0, low) - positive, positive)


@device_function
def erfc(x):
    """1 - erf(``x``) without cancellation: within 4 ulp. erfc(inf) is 0, erfc(-inf) is 2."""
    far = arith.clamp(x, 0.5, 30.0, PropagateNan.ALL)
    high, low = two_product(far, far)
    return arith.where(x < 0.5, 1.0 - math.erf(x), _exp(-high, 0, -low) * _erfcx_positive(far))


@device_function
def normcdf(x):
    """The normal distribution's probability of a value below ``x``: within 4 ulp. normcdf(-inf) is 0,
    normcdf(inf) is 1.

    Below -0.7 it is exp(-x²/2) erfcx(-x / sqrt 2) / 2: exp takes x² as it is, where erfc would suffer from
    the rounded ``x / sqrt 2``.
    """
    far = arith.clamp(x, -40.0, -0.7, PropagateNan.ALL)
    high, low = two_product(far, far)
    tail = _exp(-0.5 * high, 1, -0.5 * low) * _erfcx_positive(far * -0.7071067811865476)
    return arith.where(x < -0.7, tail, math.fma(math.erf(x * 0.7071067811865476), 0.5, 0.5))


# -- inverses ----------------------------------------------------------------------------------------------


@library
def _inverse_tail(x, w):
    """erfinv(x) for ``w = -log(1 - x²)`` from 6.25."""
    row: constexpr = 0 if x.dtype == float64 else 1
    root = math.sqrt_rn(arith.maximum(w, 6.25))
    return x * polynomials_between(root, INVERSE_EDGES[row], INVERSE_TAIL[row])


@library
def _erfinv(x, rest, edge):
    """erfinv(x) by ``rest``, which is 1 - x², and ``edge`` where that is 0 or less: x times a function of
    -log(rest) (M. Giles, *Approximating the erfinv function*, 2012)."""
    w = -math.log(rest)
    tail = arith.where(rest > 0.0, _inverse_tail(x, w), edge)
    if x.dtype == float32:
        centre, is_centre = single.erfinv(x, rest)
        return arith.where_rarely(~is_centre, tail, centre)
    else:
        # The product with the leading constant is rounded apart from the rest, which is small.
        z = (w - 3.125) * 0.32
        series = polynomial(z, INVERSE_CENTRE[:-1]) * z
        centre = math.fma(x, series, x * INVERSE_CENTRE[-1])
        return arith.where_rarely(~(w < 6.25), tail, arith.where(x == 0.0, x, centre))


@device_function
def erfinv(x):
    """The number whose error function is ``x``: within 2 ulp. erfinv(±1) is ±inf, beyond NaN."""
    size = math.abs(x)
    rest = math.fma(-x, x, 1.0) if x.dtype == float32 else (1.0 - size) * (1.0 + size)
    return _erfinv(x, rest, arith.where(size == 1.0, x * float("inf"), float("nan")))


@device_function
def erfcinv(x):
    """The number whose complementary error function is ``x``: within 4 ulp. erfcinv(0) is inf, erfcinv(2)
    -inf, beyond NaN."""
    edge = arith.where(x == 0.0, float("inf"), arith.where(x == 2.0, float("-inf"), float("nan")))
    return _erfinv(1.0 - x, x * (2.0 - x), edge)


@device_function
def normcdfinv(x):
    """The value below which the normal distribution has the probability ``x``: within 5 ulp. normcdfinv(0) is
    -inf, normcdfinv(1) inf, beyond NaN."""
    value = erfcinv(x + x)
    return arith.where(value == 0.0, 0.0, -1.4142135623730951 * value)
