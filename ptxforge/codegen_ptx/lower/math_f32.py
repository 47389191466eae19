"""Mathematical functions of f32 as PTX sequences. Operands are registers."""

from __future__ import annotations

import math
from collections.abc import Callable

from ptxforge.codegen_ptx.lower import math_f64
from ptxforge.codegen_ptx.lower import polynomials as P
from ptxforge.codegen_ptx.lower.trigonometry import reduce
from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.codegen_ptx.ptx.constants import f32
from ptxforge.codegen_ptx.ptx.registers import Register

_LOG2_E = f32(1 / math.log(2))


def _fma(b: Builder, x, y, z) -> Register:
    return b.pure("fma.rn.f32 %s, %s, %s, %s;", "f", x, y, z)


def _mul(b: Builder, x, y) -> Register:
    return b.pure("mul.rn.f32 %s, %s, %s;", "f", x, y)


def _add(b: Builder, x, y) -> Register:
    return b.pure("add.rn.f32 %s, %s, %s;", "f", x, y)


def _select(b: Builder, condition, x, y) -> Register:
    return b.pure("selp.b32 %s, %s, %s, %s;", "f", x, y, condition)


def _is(b: Builder, relation: str, x, y) -> Register:
    return b.pure(f"setp.{relation}.f32 %s, %s, %s;", "p", x, y)


# -- one instruction -------------------------------------------------------------------------------------


def exp2(b: Builder, x: Register) -> Register:
    return b.pure("ex2.approx.f32 %s, %s;", "f", x)


def scaled_for_exp(b: Builder, x: Register) -> Register:
    """The exponent that makes a power of two one of e."""
    return _mul(b, x, _LOG2_E)


def exp(b: Builder, x: Register) -> Register:
    return exp2(b, scaled_for_exp(b, x))


def sqrt(b: Builder, x: Register) -> Register:
    return b.pure("sqrt.approx.f32 %s, %s;", "f", x)


def sqrt_rn(b: Builder, x: Register) -> Register:
    return b.pure("sqrt.rn.f32 %s, %s;", "f", x)


def rsqrt(b: Builder, x: Register) -> Register:
    return b.pure("rsqrt.approx.f32 %s, %s;", "f", x)


def rounding(mode: str) -> Callable[[Builder, Register], Register]:
    """Rounding to an integer: ``rmi`` down, ``rpi`` up, ``rzi`` towards zero, ``rni`` to nearest even."""
    return lambda b, x: b.pure(f"cvt.{mode}.f32.f32 %s, %s;", "f", x)


# -- logarithms ------------------------------------------------------------------------------------------


def _split(b: Builder, x: Register) -> tuple[Register, Register]:
    """(f, e) with x = (1 + f) · 2**e and 1 + f in [2/3, 4/3), for positive finite x."""
    small = _is(b, "lt", x, f32(2.0**-126))
    scaled = _select(b, small, _mul(b, x, f32(2.0**23)), x)
    bits = b.pure("mov.b32 %s, %s;", "r", scaled)
    origin = int(f32(2 / 3)[2:], 16)
    exponent = b.pure(
        "and.b32 %s, %s, %s;", "r", b.pure("sub.s32 %s, %s, %s;", "r", bits, origin), -(1 << 23)
    )
    mantissa = b.pure("sub.s32 %s, %s, %s;", "f", bits, exponent)
    units = b.pure("cvt.rn.f32.s32 %s, %s;", "f", exponent)
    e = _fma(b, units, f32(2.0**-23), _select(b, small, f32(-23.0), f32(0.0)))
    return _add(b, mantissa, f32(-1.0)), e


def _logarithm(b: Builder, x: Register, value: Register) -> Register:
    """``value`` for positive finite x; -inf of 0, NaN of negative numbers; inf and NaN stay."""
    inside = b.both(_is(b, "gt", x, f32(0.0)), _is(b, "lt", x, f32(math.inf)))
    other = _select(b, _is(b, "lt", x, f32(0.0)), "0f7FFFFFFF", _add(b, x, x))
    other = _select(b, _is(b, "eq", x, f32(0.0)), f32(-math.inf), other)
    return _select(b, inside, value, other)


def log(b: Builder, x: Register) -> Register:
    f, e = _split(b, x)
    square = _mul(b, f, f)
    value = _fma(b, square, P.horner(b, P.LOG_F32, f, "f"), f)
    return _logarithm(b, x, _fma(b, e, f32(math.log(2)), value))


def log2(b: Builder, x: Register) -> Register:
    f, e = _split(b, x)
    return _logarithm(b, x, _fma(b, f, P.horner(b, P.LOG2_F32, f, "f"), e))


# -- trigonometry ----------------------------------------------------------------------------------------


def _wave(b: Builder, r: Register, turns: Register) -> Register:
    """sin(r + turns · π/2): sine or cosine of r by the quadrant's parity, with its sign."""
    odd = b.pure("setp.ne.b32 %s, %s, 0;", "p", b.pure("and.b32 %s, %s, 1;", "r", turns))
    square = _mul(b, r, r)
    tail = P.horner_selected(b, odd, P.COS_F32, P.SIN_F32, square, "f")
    # sine: r + r·s·P(s); cosine: 1 + s·(-1/2 + s·Q(s))
    first = _select(b, odd, f32(1.0), r)
    factor = _fma(b, tail, _select(b, odd, square, f32(1.0)), _select(b, odd, f32(-0.5), f32(0.0)))
    value = _fma(b, _mul(b, square, first), factor, first)
    negative = b.pure("setp.ne.b32 %s, %s, 0;", "p", b.pure("and.b32 %s, %s, 2;", "r", turns))
    return _select(b, negative, b.pure("neg.f32 %s, %s;", "f", value), value)


def sin(b: Builder, x: Register) -> Register:
    # sin(-0) is -0.
    return _select(b, _is(b, "eq", x, f32(0.0)), x, _wave(b, *reduce(b, x, "f")))


def cos(b: Builder, x: Register) -> Register:
    r, turns = reduce(b, x, "f")
    return _wave(b, r, b.pure("add.s32 %s, %s, 1;", "r", turns))


def tan(b: Builder, x: Register) -> Register:
    """sin / cos (or -cos / sin). Both are kept in two parts, so that only r and the quotient are rounded."""
    r, turns = reduce(b, x, "f")
    square = _mul(b, r, r)
    sine = _sum(b, r, _mul(b, _mul(b, r, square), P.horner(b, P.SIN_F32, square, "f")))
    tail = _mul(b, square, _fma(b, square, P.horner(b, P.COS_F32, square, "f"), f32(-0.5)))
    cosine = _sum(b, f32(1.0), tail)
    odd = b.pure("setp.ne.b32 %s, %s, 0;", "p", b.pure("and.b32 %s, %s, 1;", "r", turns))
    over, over_low = (_select(b, odd, b.pure("neg.f32 %s, %s;", "f", c), s) for s, c in zip(sine, cosine))
    under, under_low = (_select(b, odd, s, c) for s, c in zip(sine, cosine))
    quotient = b.pure("div.full.f32 %s, %s, %s;", "f", over, under)
    negative = b.pure("neg.f32 %s, %s;", "f", quotient)
    rest = _fma(b, negative, under, over)
    rest = _fma(b, negative, under_low, _add(b, rest, over_low))
    corrected = _add(b, quotient, b.pure("div.full.f32 %s, %s, %s;", "f", rest, under))
    # tan(-0) is -0.
    return _select(b, _is(b, "eq", x, f32(0.0)), x, corrected)


def _sum(b: Builder, x: Register, y: Register) -> tuple[Register, Register]:
    """x + y and its rounding error, for |x| >= |y|."""
    total = _add(b, x, y)
    return total, b.pure("sub.rn.f32 %s, %s, %s;", "f", y, b.pure("sub.rn.f32 %s, %s, %s;", "f", total, x))


# -- others ----------------------------------------------------------------------------------------------


def tanh(b: Builder, x: Register) -> Register:
    """Near 0 a polynomial, else 1 - 2 / (exp(2|x|) + 1) with the sign of x."""
    square = _mul(b, x, x)
    near = _fma(b, _mul(b, square, x), P.horner(b, P.TANH_F32, square, "f"), x)
    size = b.pure("abs.f32 %s, %s;", "f", x)
    power = exp2(b, _mul(b, size, f32(2 / math.log(2))))
    reciprocal = b.pure("rcp.approx.f32 %s, %s;", "f", _add(b, power, f32(1.0)))
    far = _fma(b, f32(-2.0), reciprocal, f32(1.0))
    return b.pure("copysign.f32 %s, %s, %s;", "f", x, _select(b, _is(b, "gt", size, f32(0.55)), far, near))


def erf(b: Builder, x: Register) -> Register:
    """Up to 1 a polynomial, beyond 1 - 2**p(|x|), where p is the logarithm of 1 - erf; from 4 on the result
    is 1."""
    square = _mul(b, x, x)
    near = _fma(b, x, P.horner(b, P.ERF_F32, square, "f"), x)
    size = b.pure("abs.f32 %s, %s;", "f", x)
    bounded = b.pure("min.f32 %s, %s, %s;", "f", size, f32(4.0))
    complement = exp2(b, P.horner(b, P.ERFC_F32, bounded, "f"))
    far = b.pure(
        "copysign.f32 %s, %s, %s;", "f", x, b.pure("sub.rn.f32 %s, %s, %s;", "f", f32(1.0), complement)
    )
    return _select(b, _is(b, "gt", size, f32(1.0)), far, near)


def pow(b: Builder, x: Register, y: Register) -> Register:
    """In f64, whose logarithm and exponential are accurate far beyond what an f32 needs."""
    wide = [b.pure("cvt.f64.f32 %s, %s;", "d", v) for v in (x, y)]
    return b.pure("cvt.rn.f32.f64 %s, %s;", "f", math_f64.pow_single(b, *wide))
