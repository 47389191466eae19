"""The gamma function and its logarithm.

Coefficients of the gamma function.

A table has coefficients for float64, then for float32, of highest degree first, fitted at Chebyshev's points
in 220 bits; the variable is mapped to [-1, 1].
"""

from __future__ import annotations

from ptxforge.language import arith, core, math
from ptxforge.language.constexpr import constexpr
from ptxforge.language.extra.libdevice._exponentials import _exp
from ptxforge.language.extra.libdevice._floats import polynomial_between
from ptxforge.language.extra.libdevice._trigonometry import sinpi
from ptxforge.language.registry import library
from ptxforge.language.types import PropagateNan, float64

NEAR_1 = constexpr((
    (
        -7.979598225397292e-10, 1.6469928917833468e-09, 2.1827709860649723e-09, -4.490075610433403e-09,
        -8.21181742556287e-09, 1.6982931758783137e-08, -3.047966636629851e-09, 6.622054396429401e-09,
        -5.307208518126023e-08, 1.1130501823817055e-07, -2.0208808679067717e-07, 4.2744933031519466e-07,
        -9.256025456119982e-07, 1.9703047200189415e-06, -4.204031791898769e-06, 9.029658952007896e-06,
        -1.9503491369358582e-05, 4.2393636763432495e-05, -9.285766952675569e-05, 0.0002052981182133205,
        -0.00045920266722066384, 0.0010426832555553084, -0.0024161927666072084, 0.005764938028979333,
        -0.014393317820479734, 0.0388585664659889, -0.12262568426129018, 0.5772156649015329,
    ),
    (
        1.9717916e-5, -4.2252315e-5, 2.6938773e-5, -5.9993814e-5, 2.1523087e-4, -4.8031457e-4,
        1.0396758e-3, -2.409802e-3, 5.7653217e-3, -1.4394132e-2, 3.885855e-2, -1.2262566e-1, 5.772157e-1,
    ),
))  # fmt: skip
"""lgamma(x) / ((x - 1) (x - 2)) for x from 0.5 to 1.5."""

NEAR_2 = constexpr((
    (
        1.0793695910668129e-11, -3.377714967085556e-11, 4.92361707655989e-11, -1.5541470807813495e-10,
        6.194339630121299e-10, -1.9609769273489686e-09, 6.067625171423504e-09, -1.9352272055410812e-08,
        6.211572570822804e-08, -1.9998382152832278e-07, 6.477165472702376e-07, -2.113574573485792e-06,
        6.96012938268613e-06, -2.3187395980633794e-05, 7.842743111330793e-05, -0.00027076146607226754,
        0.0009622289503497507, -0.003570760544169681, 0.014213449664599944, -0.06441063566344568,
        0.3995894876556691,
    ),
    (
        -2.7041647e-6, 8.869523e-6, -2.2643666e-5, 7.6670476e-5, -2.7096012e-4, 9.628707e-4,
        -3.5707355e-3, 1.4213368e-2, -6.4410634e-2, 3.9958948e-1,
    ),
))  # fmt: skip
"""The same for x from 1.5 to 3."""

STIRLING = constexpr((
    (
        1.15185352118627e-15, -4.8106265025283106e-14, 2.8769112170847075e-12, -2.718191768252192e-10,
        4.760738262224275e-08, -2.1605346910997007e-05, 0.08331168010429436,
    ),
    (
        4.760954e-8, -2.160555e-5, 8.331168e-2,
    ),
))  # fmt: skip
"""(lgamma(x) - (x - 1/2) log x + x - log(2π)/2) · x in 1/x², for x from 8."""

GAMMA = constexpr((
    (
        3.1107055603112123e-12, -1.5443061779555456e-11, 6.51572360327812e-11, -3.080763108698437e-10,
        1.7718103539968532e-09, -6.2550094513430585e-09, 5.989210476105906e-08, 7.701042460415819e-09,
        2.9471647009899543e-06, 1.255781561154807e-05, 0.0001623813035082171, 0.0008862743936967716,
        0.0068545771251365545, 0.03173390585513512, 0.16363964449533416, 0.4673672608130429,
        1.329340388179137,
    ),
    (
        3.088195e-6, 1.2552642e-5, 1.6227401e-4, 8.8628376e-4, 6.8546073e-3, 3.1733904e-2, 1.6363963e-1,
        4.6736726e-1, 1.3293403,
    ),
))  # fmt: skip
"""Γ(x) for x from 2 to 3."""

GAMMA_FAR = constexpr((
    (
        2.215964252440953e-15, -1.211092861071118e-13, -5.256872747236651e-13, 9.795581728498845e-11,
        -1.9836185564280634e-10, -1.9574090718180698e-07, 5.443115869126454e-06, 0.0034836943911667946,
        1.0034780558311105,
    ),
    (
        -1.9564305e-7, 5.442917e-6, 3.4836943e-3, 1.003478,
    ),
))  # fmt: skip
"""Γ(x) / (sqrt(2π) x**(x - 1/2) exp(-x)) in 1/x, for x from 12."""


@library
def _lgamma_positive(x):
    """lgamma of a float64 ``x`` above 0. Up to 3 a polynomial times the zeros at 1 and 2, up to 8 that of a
    number from 2 to 3 and the logarithm of what lies between, then Stirling's series."""
    is_small = x < 0.5
    near = arith.where(is_small, x + 1.0, x)
    zeros = arith.where(is_small, x * (x - 1.0), (x - 1.0) * (x - 2.0))
    near_1 = zeros * polynomial_between(near, 0.5, 1.5, NEAR_1[0])
    # Down to 2 … 3 by products.
    here, product = arith.minimum(x, 8.0), core.full(x.shape, 1.0, x.dtype)
    for _ in core.static_range(5):
        is_far = here >= 3.0
        here = arith.where(is_far, here - 1.0, here)
        product = arith.where(is_far, product * here, product)
    near_2 = (here - 1.0) * (here - 2.0) * polynomial_between(here, 1.5, 3.0, NEAR_2[0])
    log = math.log(arith.where(is_small | (x >= 8.0), x, product))
    far = arith.maximum(x, 8.0)
    inverse = math.div_rn(1.0, far)
    series = inverse * polynomial_between(inverse * inverse, 0.0, 0.015625, STIRLING[0])
    far = math.fma(far - 0.5, log - 1.0, 0.4189385332046727 + series)
    middle = arith.where(x < 3.0, near_2, near_2 + log)
    value = arith.where(x < 1.5, near_1, arith.where(x < 8.0, middle, far))
    return arith.where(is_small, near_1 - log, arith.where(x == float("inf"), x, value))


@library
def lgamma(x):
    """The logarithm of the magnitude of the gamma function at ``x``: within 4 ulp above -2.26; below, where
    it has zeros, that many ulp of the larger one of ``log(π / |x sin πx|)`` and ``lgamma(-x)``, whose
    difference it is. Of infinities inf; of integers up to 0 inf.

    float32 is computed in float64, and within 1 ulp.
    """
    return _lgamma(x.to(float64)).to(x.dtype)


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
    near = math.div_rn(polynomial_between(here, 2.0, 3.0, GAMMA[0]), divisor) * product
    large = arith.maximum(x, 12.0)
    series = polynomial_between(math.div_rn(1.0, large), 0.0, 0.08333333333333333, GAMMA_FAR[0])
    half = math.pow(large, math.fma(large, 0.5, -0.25))
    far = half * _exp(-large, 0) * (series * 2.5066282746310002)
    return arith.where(x < 12.0, near, far), arith.where(x < 12.0, 1.0, half)


@library
def tgamma(x):
    """The gamma function of ``x``: within 8 ulp. tgamma(±0.0) is ±inf, tgamma(inf) is inf, of negative
    integers and -inf NaN.

    Of negative numbers ``-π / (x sin(πx) Γ(-x))``. float32 is computed in float64, and within 1 ulp.
    """
    return _tgamma(x.to(float64)).to(x.dtype)


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
