"""Bessel's functions.

Orders 0 and 1: up to 8 polynomials piece by piece, times the distance from the zero in the piece where there
is one (so zeros are as accurate as the rest); from 8 Hankel's form, the amplitude ``sqrt(2 / (πx))`` times
``P(x) cos(x - …) - Q(x) sin(x - …)`` with the sine and cosine of x itself (M. Abramowitz, I. A. Stegun,
*Handbook of Mathematical Functions*, sections 9.1, 9.2 and 9.8).
"""

from __future__ import annotations

from ptxforge.language import arith, core, math, reduction, shape
from ptxforge.language.constexpr import constexpr
from ptxforge.language.extra.libdevice import _bessel_tables as tables
from ptxforge.language.extra.libdevice import _single as single
from ptxforge.language.extra.libdevice._exponentials import _exp
from ptxforge.language.extra.libdevice._floats import (
    _choice,
    copysign,
    polynomial,
    polynomial_between,
    polynomials_between,
)
from ptxforge.language.registry import device_function, library
from ptxforge.language.types import PropagateNan, float32, float64

# Edges of the pieces, and the zero in each, in two parts: for float64, then (Y) for float32.
J0_EDGES = constexpr((0.0, 4.0, 6.8, 8.0))
J0_ZEROS = constexpr((
    (2.404825557695773, 5.520078110286311), (-1.176691651530894e-16, 8.088597146146722e-17),
))  # fmt: skip
J1_EDGES = constexpr((0.0, 2.5, 5.5, 8.0))
J1_ZEROS = constexpr((
    (0.0, 3.8317059702075125, 7.015586669815619), (0.0, -1.5269184090088067e-16, -9.414165653410389e-17),
))  # fmt: skip
Y0_EDGES = constexpr((0.5, 1.3, 3.0, 5.5, 8.0))
Y0_ZEROS = constexpr((
    ((0.8935769662791675, 0.0, 3.957678419314858, 7.086051060301773),
     (2.6596231539720385e-17, 0.0, -1.0764340697562706e-16, -8.835285723085408e-17)),
    ((0.893576979637146, 0.0, 3.9576783180236816, 7.086050987243652),
     (-1.33579787231497e-08, 0.0, 1.0129117811175092e-07, 7.305811777769122e-08)),
))  # fmt: skip
Y1_EDGES = constexpr((1.0, 1.8, 3.6, 6.2, 8.0))
Y1_ZEROS = constexpr((
    ((0.0, 2.197141326031017, 5.429681040794135, 0.0),
     (0.0, -4.8259835876454966e-17, 4.162514026670377e-16, 0.0)),
    ((0.0, 2.197141408920288, 5.429680824279785, 0.0),
     (0.0, -8.288927233479626e-08, 2.1651435133662744e-07, 0.0)),
))  # fmt: skip


@library
def _distance(x, edges: constexpr, zeros: constexpr):
    """``x`` minus the zero in its piece, exact but for one rounding."""
    return (x - _choice(x, zeros[0], edges)) - _choice(x, zeros[1], edges)


@library
def _hankel(x, P: constexpr, Q: constexpr, order: constexpr):
    """J and Y of ``order`` 0 or 1 for ``x`` from 8."""
    # The amplitude has the root of π x; sqrt(x) does not overflow.
    if x.dtype == float32:
        inverse = single.reciprocal(x)
        t = inverse * inverse * 64.0
        p = polynomial_between(t, 0.0, 1.0, P[1])
        q = polynomial_between(t, 0.0, 1.0, Q[1]) * inverse
        sine, cosine = single.wave(arith.minimum(x, 1e15))
        amplitude = 0.5641895835477563 * single.inverse_root(x)
    else:
        inverse = math.div_rn(8.0, x)
        t = inverse * inverse
        p = polynomial_between(t, 0.0, 1.0, P[0])
        q = math.div_rn(polynomial_between(t, 0.0, 1.0, Q[0]), x)
        sine, cosine = math.sin(x), math.cos(x)
        amplitude = math.div_rn(0.5641895835477563, math.sqrt_rn(x))
    # cos(x - π/4) and sin(x - π/4), times sqrt 2; for order 1 a quarter further
    first = cosine + sine if order == 0 else sine - cosine
    second = sine - cosine if order == 0 else -(sine + cosine)
    return amplitude * (p * first - q * second), amplitude * (p * second + q * first)


@library
def _bounded(x):
    """``x`` from 8 for Hankel's form, 8 where it is less or infinite."""
    return arith.where((x >= 8.0) & (x < float("inf")), x, 8.0)


@library
def _j0_near(size):
    """J0 of ``size`` from 0 to 8."""
    if size.dtype == float32:
        return single.oscillating(size, single.J0_ZEROS, single.J0)
    else:
        near = arith.minimum(size, 8.0, PropagateNan.ALL)
        factor = arith.where(near < 6.8, _distance(near, J0_EDGES, J0_ZEROS), 1.0)
        return factor * polynomials_between(near, J0_EDGES, tables.J0)


@device_function
def j0(x):
    """Bessel function of the first kind and order 0 of ``x``: within 5 ulp up to 8; beyond within 5e-12
    (float64), 1e-6 (float32). Of infinities 0."""
    size = math.abs(x)
    far, _ = _hankel(_bounded(size), tables.P0, tables.Q0, 0)
    return arith.where_rarely(size > 8.0, arith.where(size == float("inf"), 0.0, far), _j0_near(size))


@library
def _j1_near(x):
    """J1 of ``x`` from -8 to 8."""
    size = math.abs(x)
    if x.dtype == float32:
        return x * single.oscillating(size, single.J1_ZEROS, single.J1)
    else:
        near = arith.minimum(size, 8.0, PropagateNan.ALL)
        value = _distance(near, J1_EDGES, J1_ZEROS) * polynomials_between(near, J1_EDGES, tables.J1)
        return arith.where(x < 0.0, -value, arith.where(x == 0.0, x, value))


@device_function
def j1(x):
    """Bessel function of the first kind and order 1 of ``x``: within 5 ulp up to 8; beyond within 5e-12
    (float64), 1e-6 (float32). Of infinities 0."""
    size = math.abs(x)
    far, _ = _hankel(_bounded(size), tables.P1, tables.Q1, 1)
    far = arith.where(size == float("inf"), 0.0, far)
    return arith.where_rarely(size > 8.0, arith.where(x < 0.0, -far, far), _j1_near(x))


@library
def _edges_of_y(x, value):
    """Bessel functions of the second kind where they are simple: -inf at 0, NaN below, 0 at infinity."""
    value = arith.where(x == float("inf"), 0.0, value)
    return arith.where(x > 0.0, value, arith.where(x == 0.0, float("-inf"), float("nan")))


@device_function
def y0(x):
    """Bessel function of the second kind and order 0 of ``x``: within 5 ulp up to 8; beyond within 5e-12
    (float64), 1e-6 (float32). y0(0) is -inf, of negative numbers NaN.

    Up to 0.5 it is 2/π log(x) J0(x) and a polynomial.
    """
    row: constexpr = 0 if x.dtype == float64 else 1
    near = arith.clamp(x, 0.5, 8.0, PropagateNan.ALL)
    has_zero = (near < 1.3) | (near >= 3.0)
    factor = arith.where(has_zero, _distance(near, Y0_EDGES, Y0_ZEROS[row]), 1.0)
    value = factor * polynomials_between(near, Y0_EDGES, tables.Y0[row])
    small = arith.minimum(x, 0.5)
    rest = polynomial_between(small * small, 0.0, 0.25, tables.Y0_REST[row])
    singular = math.fma(math.log(small) * 0.6366197723675814, _j0_near(small), rest)
    _, far = _hankel(_bounded(x), tables.P0, tables.Q0, 0)
    value = arith.where_rarely(x > 8.0, far, value)
    return _edges_of_y(x, arith.where_rarely(x < 0.5, singular, value))


@device_function
def y1(x):
    """Bessel function of the second kind and order 1 of ``x``: within 5 ulp up to 8; beyond within 5e-12
    (float64), 1e-6 (float32). y1(0) is -inf, of negative numbers NaN.

    Up to 1 it is 2/π (log(x) J1(x) - 1/x) and a polynomial.
    """
    row: constexpr = 0 if x.dtype == float64 else 1
    near = arith.clamp(x, 1.0, 8.0, PropagateNan.ALL)
    has_zero = (near >= 1.8) & (near < 6.2)
    factor = arith.where(has_zero, _distance(near, Y1_EDGES, Y1_ZEROS[row]), 1.0)
    value = factor * polynomials_between(near, Y1_EDGES, tables.Y1[row])
    small = arith.minimum(x, 1.0)
    rest = small * polynomial_between(small * small, 0.0, 1.0, tables.Y1_REST[row])
    singular = math.fma(math.log(small) * 0.6366197723675814, _j1_near(small), rest)
    singular -= math.div_rn(0.6366197723675814, small)
    _, far = _hankel(_bounded(x), tables.P1, tables.Q1, 1)
    value = arith.where_rarely(x > 8.0, far, value)
    return _edges_of_y(x, arith.where_rarely(x < 1.0, singular, value))


# -- any order ---------------------------------------------------------------------------------------------


@library
def _largest(n):
    """The largest element of a block of integers, or the scalar."""
    if len(n.shape) == 0:
        return n
    else:
        return reduction.max(shape.ravel(n), axis=0)


@device_function
def yn(n, x):
    """Bessel function of the second kind and order ``n`` (an int32 from 0; of negative ones NaN) of ``x``, by
    the recurrence ``Y(n + 1) = 2n/x Y(n) - Y(n - 1)``, whose error grows with n. yn(n, 0) is -inf."""
    n, x = shape.broadcast(core.to_tensor(n), core.to_tensor(x))
    before, value = y0(x), y1(x)
    factor = math.div_rn(2.0, x)
    result = arith.where(n == 0, before, value)
    for k in range(1, _largest(n)):
        following = arith.where(value == float("-inf"), value, k.to(x.dtype) * factor * value - before)
        before, value = value, following
        result = arith.where(n == k + 1, value, result)
    return arith.where(n < 0, float("nan"), result)


@device_function
def jn(n, x):
    """Bessel function of the first kind and order ``n`` (an int32 from 0; of negative ones NaN) of ``x``:
    absolute error below 5e-12 (float64), 1e-6 (float32) for orders up to 128.

    For ``n`` below ``x`` the recurrence ``J(n + 1) = 2n/x J(n) - J(n - 1)`` from orders 0 and 1; above, the
    same downwards from an order so high that its value does not matter, scaled by
    ``J(0) + 2 J(2) + 2 J(4) + … = 1`` (J. C. P. Miller).
    """
    n, x = shape.broadcast(core.to_tensor(n), core.to_tensor(x))
    size = math.abs(x)
    count = _largest(n)
    factor = math.div_rn(2.0, arith.where(size == 0.0, 1.0, size))
    before, value = j0(size), j1(size)
    forward = arith.where(n == 0, before, value)
    for k in range(1, count):
        following = k.to(x.dtype) * factor * value - before
        before, value = value, following
        forward = arith.where(n == k + 1, value, forward)
    # Downwards, for x below n: twice as far, and at least 40, further than needed.
    start = (count + 20) * 2
    above = size * 0.0
    here = above + 1e-30
    total = above
    backward = above
    for i in range(0, start):
        k = start - i
        below = k.to(x.dtype) * factor * here - above
        above, here = here, below
        is_large = math.abs(here) > 1e15
        scale = arith.where(is_large, 1e-15, 1.0)
        here, above, total, backward = here * scale, above * scale, total * scale, backward * scale
        backward = arith.where(n == k - 1, here, backward)
        total += arith.where((k - 1) % 2 == 0, 2.0, 0.0) * here
    backward = math.div_rn(backward, total - here)
    value = arith.where(n.to(x.dtype) < size, forward, backward)
    value = arith.where(size == 0.0, arith.where(n == 0, 1.0, 0.0), value)
    value = arith.where(size == float("inf"), 0.0, value)
    value = arith.where((x < 0.0) & ((n & 1) == 1), -value, value)
    return arith.where(n < 0, float("nan"), arith.where(x == x, value, x))


# -- modified functions ------------------------------------------------------------------------------------


@library
def _power_series(x, order: constexpr):
    """The modified function of order 0, or of order 1 over x/2, for ``x`` up to 8: all terms are positive."""
    square = x * x * 0.25
    if x.dtype == float32:
        return polynomial(square, single.I0 if order == 0 else single.I1)
    else:
        value = core.full(x.shape, 1.0, x.dtype)
        for k in core.static_range(24, 0, -1):
            value = math.fma(square * (1.0 / (k * (k + order))), value, 1.0)
        return value


@library
def _growing(x, FAR: constexpr):
    """The modified function for ``x`` from 8, by exp(x) / sqrt(x): the exponential in two factors, as it
    overflows before."""
    far = arith.maximum(x, 8.0, PropagateNan.ALL)
    half = _exp(far * 0.5, 0)
    if x.dtype == float32:
        root = single.inverse_root(far)
        return half * (half * (polynomial_between(root * root * 8.0, 0.0, 1.0, FAR[1]) * root))
    else:
        series = polynomial_between(math.div_rn(8.0, far), 0.0, 1.0, FAR[0])
        return half * (half * math.div_rn(series, math.sqrt_rn(far)))


@device_function
def cyl_bessel_i0(x):
    """Modified Bessel function of the first kind and order 0 of ``x``: within 6 ulp. Of infinities inf."""
    size = math.abs(x)
    near = _power_series(size, 0)
    far = arith.where(size > 1000.0, float("inf"), _growing(size, tables.I0_FAR))
    return arith.where_rarely(size > 8.0, far, near)


@device_function
def cyl_bessel_i1(x):
    """Modified Bessel function of the first kind and order 1 of ``x``: within 6 ulp. Of ±inf it is ±inf."""
    size = math.abs(x)
    far = arith.where(size > 1000.0, float("inf"), _growing(size, tables.I1_FAR))
    return arith.where_rarely(size > 8.0, copysign(far, x), x * 0.5 * _power_series(size, 1))
