"""Mathematical functions of f32, as formulas (``ptx/formula.py``).

Polynomials have their coefficients of highest degree first. They are near-minimax (Chebyshev interpolation at
50 digits: mpmath's ``chebyfit``) of what stands below them, with the interval and the maximal absolute error.
"""

from __future__ import annotations

import math
from functools import partial

from ptxforge.codegen_ptx.lower.reals import TO_WHOLE, Double, exact_product, horner, logarithm, ordered_sum
from ptxforge.codegen_ptx.lower.trigonometry import cosine, reduced, sine
from ptxforge.codegen_ptx.ptx.constants import f32
from ptxforge.codegen_ptx.ptx.formula import (
    Value,
    compare,
    fma,
    instruction,
    is_nan,
    maximum,
    minimum,
    trunc,
    where,
    with_sign_of,
)

LOG2_E = 1 / math.log(2)
_INFINITY = "0x7F800000"
"""The bits of infinity, which are an exponent's."""

sqrt, sqrt_rn, rsqrt = map(instruction, ("sqrt.approx", "sqrt.rn", "rsqrt.approx"))
_reciprocal = instruction("rcp.approx.ftz")
_exp2 = instruction("ex2.approx.ftz")
"""The hardware's instruction, where the result is no denormal number, or need not be told from 0."""


def _bits_of(number: float) -> int:
    return int(f32(number)[2:], 16)


# -- logarithms --------------------------------------------------------------------------------------------


def _split(x: Value, low: float = 2 / 3) -> tuple[Value, Value]:
    """(f, e) with x = (1 + f) · 2**e and 1 + f in [low, 2 low), for positive finite x."""
    small = x < 2.0**-126
    scaled = where(small, x * 2.0**23, x).bits()
    exponent = (scaled - _bits_of(low)) & -(1 << 23)
    mantissa = (scaled - exponent).as_f32()
    e = fma(exponent.to_float(), 2.0**-23, where(small, -23.0, 0.0))
    return mantissa - 1.0, e


def _is_positive(x: Value) -> Value:
    """Whether x is finite and positive, or 0."""
    return compare("lt", x.bits(), _INFINITY, "u32")


def log(x: Value) -> Value:
    f, e = _split(x)
    value = fma(f * f, horner(f, LOG), f)
    return logarithm(x, fma(e, math.log(2), value), _is_positive(x))


def log2(x: Value) -> Value:
    f, e = _split(x)
    return logarithm(x, fma(f, horner(f, LOG2), e), _is_positive(x))


# fmt: off
LOG = (-0.124222, 0.13748309, -0.12288722, 0.14055812, -0.16673316, 0.20007233, -0.24999945, 0.33333272,
       -0.5)
"""(log(1 + f) - f) / f**2 on [-1/3, 1/3], 3e-8."""
LOG2 = (-0.18360154, 0.20311543, -0.17631695, 0.20172597, -0.2406123, 0.28871644, -0.36067146, 0.48089585,
        -0.7213475, 1.442695)
"""log2(1 + f) / f on [-1/3, 1/3], 8e-9."""
# fmt: on

# -- trigonometry ------------------------------------------------------------------------------------------


def _wave(r: Value, turns: Value) -> Value:
    """sin(r + turns · π/2): by the quadrant's parity r + r·s·P(s) or 1 + s·(-1/2 + s·Q(s)), with its sign."""
    odd = (turns & 1) != 0
    square = r * r
    tail = horner(square, (where(odd, q, p) for p, q in zip(SIN, COS, strict=True)))
    first = where(odd, 1.0, r)
    factor = fma(tail, where(odd, square, 1.0), where(odd, -0.5, 0.0))
    value = fma(square * first, factor, first)
    return where((turns & 2) != 0, -value, value)


sin = partial(sine, _wave)
cos = partial(cosine, _wave)


def tan(x: Value) -> Value:
    """tan(r), or -1 / tan(r): a reciprocal, and a step of Newton's that heeds what the tangent lost."""
    r, turns = reduced(x)
    square = r * r
    cube, tail = square * r, horner(square, TAN)
    tangent = fma(cube, tail, r)
    lost = fma(cube, tail, r - tangent)
    near = -_reciprocal(tangent)
    rest = fma(near, lost, fma(near, tangent, 1.0))
    found = where((turns & 1) != 0, fma(near, rest, near), tangent)
    return where(x == 0.0, x, found)  # tan(-0) is -0.


SIN = (-0.00019587841, 0.008332748, -0.16666664)
"""(sin(r) - r) / r**3 in r**2 on [0, (pi/4)**2], 2e-8."""
COS = (2.4547891e-05, -0.0013888302, 0.041666664)
"""(cos(r) - 1 + r**2 / 2) / r**4 in r**2 on [0, (pi/4)**2], 2e-9."""
TAN = (0.003843144, 0.0011853146, 0.009962152, 0.021621127, 0.053994466, 0.13333231, 0.33333334)
"""(tan(r) - r) / r**3 in r**2 on [0, (pi/4)**2], 9e-9."""

# -- others ------------------------------------------------------------------------------------------------


def tanh(x: Value) -> Value:
    """Near 0 a polynomial, else 1 - 2 / (exp(2|x|) + 1) with the sign of x; what is so small that the
    instructions make 0 of it does not show beside 1."""
    square = x * x
    near = fma(square * x, horner(square, TANH), x)
    size = abs(x)
    far = fma(-2.0, _reciprocal(_exp2(size * (2 * LOG2_E)) + 1.0), 1.0)
    return with_sign_of(x, where(size > 0.55, far, near))


def erf(x: Value) -> Value:
    """Up to 1 a polynomial, beyond 1 - 2**p(|x|), where p is the logarithm of 1 - erf; from 4 on the result
    is 1."""
    near = fma(x, horner(x * x, ERF), x)
    size = abs(x)
    far = with_sign_of(x, 1.0 - _exp2(horner(minimum(size, 4.0), ERFC)))
    return where(size > 1.0, far, near)


# fmt: off
TANH = (-0.0066102277, 0.021309389, -0.05390943, 0.13333113, -0.3333333)
"""(tanh(x) - x) / x**3 in x**2 on [0, 0.55**2], 1.3e-8."""
ERF = (7.875875e-05, -0.00080168643, 0.0051890872, -0.026854211, 0.11283594, -0.37612626, 0.12837917)
"""erf(x) / x - 1 in x**2 on [0, 1], 1.2e-9."""
ERFC = (-1.09394975e-07, 4.792178e-06, -8.9877525e-05, 0.0009894532, -0.0073071737, 0.039096348,
        -0.16021852, -0.91027284, -1.6312194, 0.0006006361)
"""log2(1 - erf(a)) on [1, 4], 1.2e-8."""
# fmt: on

# -- powers ------------------------------------------------------------------------------------------------


def pow(x: Value, y: Value) -> Value:
    """2**(y · log2|x|) with the logarithm in two parts, and C's rules for special operands.

    A ``y`` beyond 2**32 counts as that: of a logarithm that is not 0, at least 2**-24, the power is then 0 or
    infinite.
    """
    bounded = minimum(maximum(y, -(2.0**32)), 2.0**32)
    base = _log2_in_two_parts(abs(x))
    exponent = exact_product(bounded, base.high)
    value = _exp2_of_sum(exponent.high, fma(bounded, base.low, exponent.low))
    return _with_special_powers(x, y, bounded, value)


def _log2_in_two_parts(x: Value) -> Double:
    """The logarithm of a positive finite ``x`` to base 2: 2/log(2) · artanh(s) of s = f / (2 + f), whose
    first two terms, s and s³/3, are kept in two parts as well."""
    f, e = _split(x, math.sqrt(0.5))
    inverse = _reciprocal(f + 2.0)
    s = f * inverse
    s_low = fma(-s, f, fma(s, -2.0, f)) * inverse
    z = exact_product(s, s)
    z_low = fma(s + s, s_low, z.low)
    first = exact_product(s, TWICE_LOG2_E[0])
    low = fma(s_low, TWICE_LOG2_E[0], fma(s, TWICE_LOG2_E[1], first.low))
    cube = exact_product(first.high, z.high)
    second = exact_product(cube.high, 1 / 3)
    low = low + fma(fma(first.high, z_low, cube.low), 1 / 3, second.low)
    low = fma(cube.high * z.high, horner(z.high, ARTANH), low)
    whole = ordered_sum(e, first.high)
    total = ordered_sum(whole.high, second.high)
    return Double(total.high, whole.low + total.low + low)


def _exp2_of_sum(high: Value, low: Value) -> Value:
    """2**(high + low) for a small ``low``, as a fraction's power times two powers with whole exponents, so
    that denormal results are rounded once."""
    bounded = minimum(maximum(high, -252.0), 252.0)
    low = where(bounded == high, low, 0.0)
    shifted = bounded + TO_WHOLE
    value = _exp2(bounded - (shifted - TO_WHOLE) + low)
    exponent = shifted.bits() << 23
    half, one = (exponent >> 1) & -(1 << 23), _bits_of(1.0)
    return value * (half + one).as_f32() * (exponent - half + one).as_f32()


def _with_special_powers(x: Value, y: Value, bounded: Value, value: Value) -> Value:
    """``value`` = |x|**y with its sign, where neither is special; ``bounded`` is as odd as ``y``."""
    rest = fma(trunc(bounded * 0.5), -2.0, bounded)
    odd = abs(rest) == 1.0
    value = where((x < 0.0) & ~odd & (rest != 0.0), math.nan, value)
    # Of 0 and infinity the power is the same or, if y is negative, the other: their bits differ so.
    size = abs(x)
    value = where(x + x == x, where(y < 0.0, size ^ _INFINITY, size), value)
    value = where((x.bits() < 0) & odd, -value, value)
    value = where(is_nan(x, y), x + y, value)
    return where((x == 1.0) | (y == 0.0), 1.0, value)


TWICE_LOG2_E = 2.885390043258667, 3.8519259e-08
"""2 / log(2) in two parts."""
ARTANH = (0.11524077, 0.1428112, 0.20000008)
"""(artanh(s) - s - s**3/3) / s**5 in s**2 for s up to (sqrt(2) - 1) / (sqrt(2) + 1), 8e-8."""
