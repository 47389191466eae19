"""The error function's relatives and the normal distribution."""

from __future__ import annotations

from ptxforge.language import arith, math
from ptxforge.language.constexpr import constexpr
from ptxforge.language.extra.libdevice._error_tables import (
    ERFCX,
    INVERSE_CENTRE,
    INVERSE_EDGES,
    INVERSE_NEAR,
    INVERSE_TAIL,
)
from ptxforge.language.extra.libdevice._exponentials import _exp
from ptxforge.language.extra.libdevice._polynomials import (
    polynomial,
    polynomial_between,
    polynomials_between,
    two_product,
)
from ptxforge.language.registry import library
from ptxforge.language.types import PropagateNan, float32, float64


@library
def _erfcx_positive(x):
    """exp(x²) · erfc(x) for ``x`` from 0: a polynomial over 1 + 2x (M. M. Shepherd, J. G. Laframboise,
    *Chebyshev Approximation of (1 + 2x) exp(x²) erfc x*, 1981)."""
    row: constexpr = 0 if x.dtype == float64 else 1
    bounded = arith.minimum(x, 1e15, PropagateNan.ALL)
    t = math.div_rn(bounded - 4.0, bounded + 4.0)
    value = math.div_rn(polynomial(t, ERFCX[row]), math.fma(bounded, 2.0, 1.0))
    return arith.where(x > 1e15, math.div_rn(0.5641895835477563, x), value)


@library
def erfcx(x):
    """exp(x²) · erfc(``x``), scaled so as not to vanish: within 4 ulp. erfcx(inf) is 0, erfcx(-inf) inf.

    For negative ``x`` it is 2 exp(x²) - erfcx(-x).
    """
    size = math.abs(x)
    positive = _erfcx_positive(size)
    high, low = two_product(arith.minimum(size, 30.0), arith.minimum(size, 30.0))
    return arith.where(x < 0.0, 2.0 * _exp(high, 0, low) - positive, positive)


@library
def erfc(x):
    """1 - erf(``x``) without cancellation: within 4 ulp. erfc(inf) is 0, erfc(-inf) is 2."""
    far = arith.clamp(x, 0.5, 30.0, PropagateNan.ALL)
    high, low = two_product(far, far)
    return arith.where(x < 0.5, 1.0 - math.erf(x), _exp(-high, 0, -low) * _erfcx_positive(far))


@library
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
def _erfinv(x, w):
    """erfinv(x) for ``w = -log(1 - x²)``: x times a function of w (M. Giles, *Approximating the erfinv
    function*, 2012)."""
    row: constexpr = 0 if x.dtype == float64 else 1
    # The product with the leading constant is rounded apart from the rest, which is small.
    z = (w - 3.125) * 0.32
    rest = polynomial(z, INVERSE_CENTRE[row][:-1]) * z
    centre = math.fma(x, rest, x * INVERSE_CENTRE[row][-1])
    if x.dtype == float32:
        square = x * x
        near = polynomial_between(square, 0.0, 0.7225, INVERSE_NEAR)
        series = math.fma(square, near, -2.6623e-08)  # and what sqrt(π) / 2 lacks
        centre = arith.where(math.abs(x) < 0.85, math.fma(x, 0.886226952, x * series), centre)
    root = math.sqrt_rn(arith.maximum(w, 6.25))
    return arith.where(
        w < 6.25, centre, x * polynomials_between(root, INVERSE_EDGES[row], INVERSE_TAIL[row])
    )


@library
def erfinv(x):
    """The number whose error function is ``x``: within 2 ulp. erfinv(±1) is ±inf, beyond NaN."""
    size = math.abs(x)
    value = _erfinv(x, -math.log((1.0 - size) * (1.0 + size)))
    edge = arith.where(size == 1.0, x * float("inf"), float("nan"))
    return arith.where(size < 1.0, arith.where(x == 0.0, x, value), edge)


@library
def erfcinv(x):
    """The number whose complementary error function is ``x``: within 4 ulp. erfcinv(0) is inf, erfcinv(2)
    -inf, beyond NaN."""
    value = _erfinv(1.0 - x, -math.log(x * (2.0 - x)))
    is_inside = (x > 0.0) & (x < 2.0)
    edge = arith.where(x == 0.0, float("inf"), arith.where(x == 2.0, float("-inf"), float("nan")))
    return arith.where(is_inside, value, edge)


@library
def normcdfinv(x):
    """The value below which the normal distribution has the probability ``x``: within 5 ulp. normcdfinv(0) is
    -inf, normcdfinv(1) inf, beyond NaN."""
    value = erfcinv(x + x)
    return arith.where(value == 0.0, 0.0, -1.4142135623730951 * value)
