"""Mathematical functions of f64 as PTX sequences. Operands are registers."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

from ptxforge.codegen_ptx.lower import polynomials as P
from ptxforge.codegen_ptx.lower.trigonometry import reduce
from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.codegen_ptx.ptx.constants import f64
from ptxforge.codegen_ptx.ptx.registers import Register

_NAN = "0d7FFFFFFFFFFFFFFF"


def _fma(b: Builder, x, y, z) -> Register:
    return b.pure("fma.rn.f64 %s, %s, %s, %s;", "d", x, y, z)


def _mul(b: Builder, x, y) -> Register:
    return b.pure("mul.rn.f64 %s, %s, %s;", "d", x, y)


def _add(b: Builder, x, y) -> Register:
    return b.pure("add.rn.f64 %s, %s, %s;", "d", x, y)


def _sub(b: Builder, x, y) -> Register:
    return b.pure("sub.rn.f64 %s, %s, %s;", "d", x, y)


def _div(b: Builder, x, y) -> Register:
    return b.pure("div.rn.f64 %s, %s, %s;", "d", x, y)


def _neg(b: Builder, x) -> Register:
    return b.pure("neg.f64 %s, %s;", "d", x)


def _abs(b: Builder, x) -> Register:
    return b.pure("abs.f64 %s, %s;", "d", x)


def _select(b: Builder, condition, x, y) -> Register:
    return b.pure("selp.b64 %s, %s, %s, %s;", "d", x, y, condition)


def _is(b: Builder, relation: str, x, y) -> Register:
    return b.pure(f"setp.{relation}.f64 %s, %s, %s;", "p", x, y)


def _either(b: Builder, p: Register, q: Register) -> Register:
    return b.pure("or.pred %s, %s, %s;", "p", p, q)


def _two_parts(value: Fraction) -> tuple[float, float]:
    """A number as the sum of two f64."""
    high = float(value)
    return high, float(value - Fraction(high))


def _log_of_2() -> Fraction:
    """log 2 to 200 bits: sum of 1 / (n 2**n)."""
    return sum((Fraction(1, n << n) for n in range(1, 210)), Fraction(0))


_LN2 = _two_parts(_log_of_2())
_LOG2_E = _two_parts(1 / _log_of_2())


# -- simple ----------------------------------------------------------------------------------------------


def sqrt(b: Builder, x: Register) -> Register:
    return b.pure("sqrt.rn.f64 %s, %s;", "d", x)


def rsqrt(b: Builder, x: Register) -> Register:
    return _div(b, f64(1.0), sqrt(b, x))


def rounding(mode: str) -> Callable[[Builder, Register], Register]:
    """Rounding to an integer: ``rmi`` down, ``rpi`` up, ``rzi`` towards zero, ``rni`` to nearest even."""
    return lambda b, x: b.pure(f"cvt.{mode}.f64.f64 %s, %s;", "d", x)


# -- exponentials ----------------------------------------------------------------------------------------


def _power_of_two(b: Builder, n: Register) -> Register:
    """2**n for an integer register n between -1022 and 1023."""
    biased = b.pure("add.s32 %s, %s, 1023;", "r", n)
    return b.pure("mov.b64 %s, {%s, %s};", "d", b.register(0), b.pure("shl.b32 %s, %s, 20;", "r", biased))


def _scaled(b: Builder, x: Register, n: Register) -> Register:
    """x · 2**n in two steps, so that only the last may leave the normal range."""
    half = b.pure("shr.s32 %s, %s, 1;", "r", n)
    rest = b.pure("sub.s32 %s, %s, %s;", "r", n, half)
    return _mul(b, _mul(b, x, _power_of_two(b, half)), _power_of_two(b, rest))


def _exp_reduced(b: Builder, r: Register, n: Register) -> Register:
    """exp(r) · 2**n for |r| up to log(2)/2."""
    value = _add(b, _fma(b, _mul(b, r, r), P.horner(b, P.EXP_F64, r, "d"), r), f64(1.0))
    return _scaled(b, value, n)


def _clamped(b: Builder, x: Register, low: float, high: float) -> Register:
    return b.pure("max.f64 %s, %s, %s;", "d", b.pure("min.f64 %s, %s, %s;", "d", x, f64(high)), f64(low))


def _keep_nan(b: Builder, x: Register, value: Register) -> Register:
    return _select(b, _is(b, "nan", x, x), x, value)


def exp(b: Builder, x: Register) -> Register:
    bounded = _clamped(b, x, -746.0, 710.0)
    turns = b.pure("cvt.rni.f64.f64 %s, %s;", "d", _mul(b, bounded, f64(_LOG2_E[0])))
    r = _fma(b, turns, f64(-_LN2[1]), _fma(b, turns, f64(-_LN2[0]), bounded))
    return _keep_nan(b, x, _exp_reduced(b, r, b.pure("cvt.rni.s32.f64 %s, %s;", "r", turns)))


def exp2(b: Builder, x: Register) -> Register:
    return _keep_nan(b, x, _exp2_of_sum(b, _clamped(b, x, -1076.0, 1025.0), f64(0.0)))


def _exp2_of_sum(b: Builder, high: Register, low: Register) -> Register:
    """2**(high + low) for a bounded ``high`` and a small ``low``."""
    turns = b.pure("cvt.rni.f64.f64 %s, %s;", "d", high)
    fraction = _sub(b, high, turns)
    r = _fma(b, fraction, f64(_LN2[0]), _fma(b, fraction, f64(_LN2[1]), _mul(b, low, f64(_LN2[0]))))
    return _exp_reduced(b, r, b.pure("cvt.rni.s32.f64 %s, %s;", "r", turns))


# -- logarithms ------------------------------------------------------------------------------------------


def _split(b: Builder, x: Register) -> tuple[Register, Register]:
    """(m, e) with x = m · 2**e and m in [sqrt(1/2), sqrt(2)), for positive finite x; e is an f64."""
    small = _is(b, "lt", x, f64(2.0**-1022))
    scaled = _select(b, small, _mul(b, x, f64(2.0**54)), x)
    low, high = b.pure_many("mov.b64 {%s, %s}, %s;", "rr", scaled)
    origin = int(f64(math.sqrt(0.5))[2:10], 16)
    exponent = b.pure("shr.s32 %s, %s, 20;", "r", b.pure("sub.s32 %s, %s, %s;", "r", high, origin))
    mantissa = b.pure("sub.s32 %s, %s, %s;", "r", high, b.pure("shl.b32 %s, %s, 20;", "r", exponent))
    e = b.pure("cvt.rn.f64.s32 %s, %s;", "d", exponent)
    e = _add(b, e, _select(b, small, f64(-54.0), f64(0.0)))
    return b.pure("mov.b64 %s, {%s, %s};", "d", low, mantissa), e


def _logarithm(b: Builder, x: Register, value: Register) -> Register:
    """``value`` for positive finite x; -inf of 0, NaN of negative numbers; inf and NaN stay."""
    inside = b.both(_is(b, "gt", x, f64(0.0)), _is(b, "lt", x, f64(math.inf)))
    other = _select(b, _is(b, "lt", x, f64(0.0)), _NAN, _add(b, x, x))
    other = _select(b, _is(b, "eq", x, f64(0.0)), f64(-math.inf), other)
    return _select(b, inside, value, other)


def log(b: Builder, x: Register) -> Register:
    """log(m) = f - (f²/2 - s (f²/2 + R)) with f = m - 1, s = f / (2 + f) and R = s² P(s²): f is exact and
    large, so that the rounding of the rest hardly counts."""
    m, e = _split(b, x)
    f = _add(b, m, f64(-1.0))
    s = _div(b, f, _add(b, f, f64(2.0)))
    z = _mul(b, s, s)
    half_square = _mul(b, _mul(b, f, f), f64(0.5))
    tail = _mul(b, z, P.horner(b, P.LOG_F64, z, "d"))
    inner = _fma(b, s, _add(b, half_square, tail), _mul(b, e, f64(_LN2[1])))
    value = _sub(b, f, _sub(b, half_square, inner))
    return _logarithm(b, x, _fma(b, e, f64(_LN2[0]), value))


def log2(b: Builder, x: Register) -> Register:
    total = _log2_parts(b, x)
    return _logarithm(b, x, _add(b, total.high, total.low))


# -- numbers of two parts --------------------------------------------------------------------------------


class Double(NamedTuple):
    """An unevaluated sum of two f64, the second below the first's last place (Dekker, 1971)."""

    high: Register
    low: Register


def _sum_ordered(b: Builder, x, y) -> Double:
    """x + y, exact when |x| >= |y|."""
    total = _add(b, x, y)
    return Double(total, _sub(b, y, _sub(b, total, x)))


def _sum(b: Builder, x, y) -> Double:
    """x + y, exact (Knuth)."""
    total = _add(b, x, y)
    shadow = _sub(b, total, x)
    error = _add(b, _sub(b, x, _sub(b, total, shadow)), _sub(b, y, shadow))
    return Double(total, error)


def _product(b: Builder, x, y) -> Double:
    """x · y, exact."""
    high = _mul(b, x, y)
    return Double(high, _fma(b, x, y, _neg(b, high)))


def _add_doubles(b: Builder, x: Double, y: Double) -> Double:
    total = _sum(b, x.high, y.high)
    return _sum_ordered(b, total.high, _add(b, total.low, _add(b, x.low, y.low)))


def _multiply_doubles(b: Builder, x: Double, y: Double) -> Double:
    product = _product(b, x.high, y.high)
    low = _fma(b, x.high, y.low, _fma(b, x.low, y.high, product.low))
    return _sum_ordered(b, product.high, low)


def _log2_parts(b: Builder, x: Register) -> Double:
    """log2 of a positive finite x to some 65 bits: 2 s + 2/3 s³ + s⁵ Q(s²) in two parts, s = (m - 1) / (m +
    1)."""
    m, e = _split(b, x)
    f = _add(b, m, f64(-1.0))
    below = _sum_ordered(b, f64(2.0), f)
    quotient = _div(b, f, below.high)
    rest = _fma(b, _neg(b, quotient), below.low, _fma(b, _neg(b, quotient), below.high, f))
    s = _sum_ordered(b, quotient, _div(b, rest, below.high))
    z = _multiply_doubles(b, s, s)
    tail = _mul(b, z.high, P.horner(b, P.LOG_TAIL_F64, z.high, "d"))
    third = _add_doubles(b, Double(*map(f64, _two_parts(Fraction(2, 3)))), Double(tail, f64(0.0)))
    cubic = _multiply_doubles(b, z, third)
    bracket = _add_doubles(b, Double(f64(2.0), f64(0.0)), cubic)
    natural = _multiply_doubles(b, s, bracket)
    scaled = _multiply_doubles(b, natural, Double(*map(f64, _LOG2_E)))
    return _add_doubles(b, Double(e, f64(0.0)), scaled)


# -- powers ----------------------------------------------------------------------------------------------


def pow(b: Builder, x: Register, y: Register) -> Register:
    logarithm = _log2_parts(b, _abs(b, x))
    product = _product(b, y, logarithm.high)
    low = _fma(b, y, logarithm.low, product.low)
    return _finish_power(b, x, y, product.high, low)


def pow_single(b: Builder, x: Register, y: Register) -> Register:
    """As :func:`pow` for operands that were f32, to f32 accuracy."""
    size = _abs(b, x)
    m, e = _split(b, size)
    f = _add(b, m, f64(-1.0))
    s = _div(b, f, _add(b, f, f64(2.0)))
    z = _mul(b, s, s)
    natural = _fma(b, _mul(b, s, z), P.horner(b, P.LOG_F64[:6], z, "d"), _add(b, s, s))
    return _finish_power(b, x, y, _mul(b, y, _fma(b, natural, f64(_LOG2_E[0]), e)), f64(0.0))


def _finish_power(b: Builder, x: Register, y: Register, high: Register, low: Register) -> Register:
    """2**(high + low), where that is y · log2|x|, with C's rules for special operands."""
    size = _abs(b, x)
    # Where |x| is 0 or infinite the logarithm is, too.
    extreme = _select(b, _is(b, "eq", size, f64(0.0)), f64(-math.inf), f64(math.inf))
    is_extreme = _either(b, _is(b, "eq", size, f64(0.0)), _is(b, "eq", size, f64(math.inf)))
    infinite = _either(b, is_extreme, _is(b, "eq", _abs(b, y), f64(math.inf)))
    grows = _select(b, is_extreme, extreme, _sub(b, size, f64(1.0)))
    high = _select(b, infinite, _mul(b, y, grows), high)
    bounded = _clamped(b, high, -1080.0, 1030.0)
    safe_low = _select(b, _is(b, "eq", bounded, high), low, f64(0.0))
    value = _exp2_of_sum(b, bounded, safe_low)
    return _power_special(b, x, y, value)


def _power_special(b: Builder, x: Register, y: Register, value: Register) -> Register:
    whole = b.pure("cvt.rzi.f64.f64 %s, %s;", "d", y)
    half = _mul(b, y, f64(0.5))
    is_whole = _is(b, "eq", whole, y)
    odd = b.both(is_whole, _is(b, "ne", b.pure("cvt.rzi.f64.f64 %s, %s;", "d", half), half))
    bits = b.pure("mov.b64 %s, %s;", "q", x)
    negative = b.pure("setp.lt.s64 %s, %s, 0;", "p", bits)
    value = _select(b, b.both(negative, odd), _neg(b, value), value)
    below = b.both(_is(b, "lt", x, f64(0.0)), _is(b, "gt", x, f64(-math.inf)))
    value = _select(b, b.both(below, b.negate(is_whole)), _NAN, value)
    value = _select(b, _is(b, "nan", x, y), _add(b, x, y), value)
    unit = b.both(_is(b, "eq", x, f64(-1.0)), _is(b, "eq", _abs(b, y), f64(math.inf)))
    unit = _either(b, unit, _either(b, _is(b, "eq", x, f64(1.0)), _is(b, "eq", y, f64(0.0))))
    return _select(b, unit, f64(1.0), value)


# -- trigonometry ----------------------------------------------------------------------------------------


def _wave(b: Builder, r: Register, turns: Register) -> Register:
    """sin(r + turns · π/2): sine or cosine of r by the quadrant's parity, with its sign."""
    odd = b.pure("setp.ne.b32 %s, %s, 0;", "p", b.pure("and.b32 %s, %s, 1;", "r", turns))
    square = _mul(b, r, r)
    sine = _fma(b, _mul(b, square, r), P.horner(b, P.SIN_F64, square, "d"), r)
    cosine = _fma(b, square, _fma(b, square, P.horner(b, P.COS_F64, square, "d"), f64(-0.5)), f64(1.0))
    value = _select(b, odd, cosine, sine)
    negative = b.pure("setp.ne.b32 %s, %s, 0;", "p", b.pure("and.b32 %s, %s, 2;", "r", turns))
    return _select(b, negative, _neg(b, value), value)


def sin(b: Builder, x: Register) -> Register:
    # sin(-0) is -0.
    return _select(b, _is(b, "eq", x, f64(0.0)), x, _wave(b, *reduce(b, x, "d")))


def cos(b: Builder, x: Register) -> Register:
    r, turns = reduce(b, x, "d")
    return _wave(b, r, b.pure("add.s32 %s, %s, 1;", "r", turns))


def tan(b: Builder, x: Register) -> Register:
    """sin / cos (or -cos / sin). Both are kept in two parts, so that only r and the quotient are rounded."""
    r, turns = reduce(b, x, "d")
    square = _mul(b, r, r)
    sine = _sum_ordered(b, r, _mul(b, _mul(b, r, square), P.horner(b, P.SIN_F64, square, "d")))
    tail = _mul(b, square, _fma(b, square, P.horner(b, P.COS_F64, square, "d"), f64(-0.5)))
    cosine = _sum_ordered(b, f64(1.0), tail)
    odd = b.pure("setp.ne.b32 %s, %s, 0;", "p", b.pure("and.b32 %s, %s, 1;", "r", turns))
    over, over_low = (_select(b, odd, _neg(b, c), s) for s, c in zip(sine, cosine))
    under, under_low = (_select(b, odd, s, c) for s, c in zip(sine, cosine))
    quotient = _div(b, over, under)
    rest = _fma(b, _neg(b, quotient), under, over)
    rest = _fma(b, _neg(b, quotient), under_low, _add(b, rest, over_low))
    corrected = _add(b, quotient, _div(b, rest, under))
    # tan(-0) is -0.
    return _select(b, _is(b, "eq", x, f64(0.0)), x, corrected)


# -- others ----------------------------------------------------------------------------------------------


def tanh(b: Builder, x: Register) -> Register:
    """Near 0 a polynomial, else 1 - 2 / (exp(2|x|) + 1) with the sign of x."""
    square = _mul(b, x, x)
    near = _fma(b, _mul(b, square, x), P.horner(b, P.TANH_F64, square, "d"), x)
    size = _abs(b, x)
    power = exp(b, _add(b, size, size))
    far = _sub(b, f64(1.0), _div(b, f64(2.0), _add(b, power, f64(1.0))))
    return b.pure("copysign.f64 %s, %s, %s;", "d", x, _select(b, _is(b, "gt", size, f64(0.55)), far, near))


def erf(b: Builder, x: Register) -> Register:
    """Up to 1 a polynomial, beyond 1 - exp(-a²) g(t) / (1 + 2a) with t = (a - 4) / (a + 4); from 6 on the
    result is 1."""
    square = _mul(b, x, x)
    near = _fma(b, x, P.horner(b, P.ERF_F64, square, "d"), x)
    size = _abs(b, x)
    a = b.pure("min.f64 %s, %s, %s;", "d", size, f64(6.0))
    t = _div(b, _add(b, a, f64(-4.0)), _add(b, a, f64(4.0)))
    scale = _div(b, P.horner(b, P.ERFC_F64, t, "d"), _fma(b, a, f64(2.0), f64(1.0)))
    complement = _mul(b, exp(b, _neg(b, _mul(b, a, a))), scale)
    far = b.pure("copysign.f64 %s, %s, %s;", "d", x, _sub(b, f64(1.0), complement))
    return _select(b, _is(b, "gt", size, f64(1.0)), far, near)
