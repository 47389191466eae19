"""The gamma function and its logarithm."""

from __future__ import annotations

from ptxforge.language import arith, core, math
from ptxforge.language.extra.libdevice._exponentials import _exp
from ptxforge.language.extra.libdevice._gamma_tables import GAMMA, GAMMA_FAR, NEAR_1, NEAR_2, STIRLING
from ptxforge.language.extra.libdevice._polynomials import polynomial_between
from ptxforge.language.extra.libdevice._trigonometry import sinpi
from ptxforge.language.registry import library
from ptxforge.language.types import PropagateNan, float64


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
