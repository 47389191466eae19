"""Mathematical functions of f32 as PTX sequences. Operands are registers."""

from __future__ import annotations

import math

from ptxforge.codegen_ptx.lower import reals as P
from ptxforge.codegen_ptx.lower.reals import Double, Reals
from ptxforge.codegen_ptx.lower.trigonometry import reduce
from ptxforge.codegen_ptx.ptx.constants import f32
from ptxforge.codegen_ptx.ptx.registers import Register

_LOG2_E = f32(1 / math.log(2))
_TWICE_LOG2_E = 2.885390043258667, 3.8519259e-08
"""2 / log(2) in two f32."""
_THIRD = f32(1 / 3)
_TO_WHOLE = 1.5 * 2.0**23
"""Added to a number below 2**22 it rounds that to an integer, which then stands in its lowest bits."""


class Float32(Reals):
    """Functions of f32."""

    kind, bits, quotient, nan = "f", 32, "div.full", "0f7FFFFFFF"
    literal = staticmethod(f32)
    sine, cosine = P.SIN_F32, P.COS_F32

    # -- one instruction -------------------------------------------------------------------------------------

    def exp2(self, x: Register) -> Register:
        return self.make("ex2.approx", x)

    def exp2_of_normal(self, x: Register) -> Register:
        """Where the result is no denormal number, or need not be told from 0: the hardware's instruction."""
        return self.make("ex2.approx.ftz", x)

    def scaled_for_exp(self, x: Register) -> Register:
        """The exponent that makes a power of two one of e."""
        return self.mul(x, _LOG2_E)

    def sqrt(self, x: Register) -> Register:
        return self.make("sqrt.approx", x)

    def sqrt_rn(self, x: Register) -> Register:
        return self.make("sqrt.rn", x)

    def rsqrt(self, x: Register) -> Register:
        return self.make("rsqrt.approx", x)

    # -- logarithms ------------------------------------------------------------------------------------------

    def _split(self, x: Register, low: float = 2 / 3) -> tuple[Register, Register]:
        """(f, e) with x = (1 + f) · 2**e and 1 + f in [low, 2 low), for positive finite x."""
        small = self.holds("lt", x, f32(2.0**-126))
        scaled = self.select(small, self.mul(x, f32(2.0**23)), x)
        bits = self.b.pure("mov.b32 %s, %s;", "r", scaled)
        origin = int(f32(low)[2:], 16)
        exponent = self.b.pure(
            "and.b32 %s, %s, %s;", "r", self.b.pure("sub.s32 %s, %s, %s;", "r", bits, origin), -(1 << 23)
        )
        mantissa = self.b.pure("sub.s32 %s, %s, %s;", "f", bits, exponent)
        units = self.b.pure("cvt.rn.f32.s32 %s, %s;", "f", exponent)
        e = self.fma(units, f32(2.0**-23), self.select(small, f32(-23.0), f32(0.0)))
        return self.add(mantissa, f32(-1.0)), e

    def has_logarithm(self, x: Register) -> Register:
        bits = self.b.pure("mov.b32 %s, %s;", "r", x)
        return self.b.pure("setp.lt.u32 %s, %s, 0x7F800000;", "p", bits)

    def log(self, x: Register) -> Register:
        f, e = self._split(x)
        square = self.mul(f, f)
        value = self.fma(square, self.horner(P.LOG_F32, f), f)
        return self.logarithm(x, self.fma(e, f32(math.log(2)), value))

    def log2(self, x: Register) -> Register:
        f, e = self._split(x)
        return self.logarithm(x, self.fma(f, self.horner(P.LOG2_F32, f), e))

    # -- trigonometry ----------------------------------------------------------------------------------------

    def nearest_multiple(self, x: Register, factor: float) -> tuple[Register, Register]:
        """Without conversions, of which there are few a cycle; below 2**22."""
        moved = self.fma(x, f32(factor), f32(_TO_WHOLE))
        return self.add(moved, f32(-_TO_WHOLE)), self.b.pure("mov.b32 %s, %s;", "r", moved)

    def tan(self, x: Register) -> Register:
        """tan(r), or -1 / tan(r): a reciprocal, and a step of Newton's that heeds what the tangent lost."""
        r, turns = reduce(self, x)
        square = self.mul(r, r)
        cube, tail = self.mul(square, r), self.horner(P.TAN_F32, square)
        tangent = self.fma(cube, tail, r)
        lost = self.fma(cube, tail, self.sub(r, tangent))
        near = self.neg(self.make("rcp.approx.ftz", tangent))
        rest = self.fma(near, lost, self.fma(near, tangent, f32(1.0)))
        found = self.select(self.bit(turns, 1), self.fma(near, rest, near), tangent)
        # tan(-0) is -0.
        return self.select(self.holds("eq", x, f32(0.0)), x, found)

    def wave(self, r: Register, turns: Register) -> Register:
        odd = self.bit(turns, 1)
        square = self.mul(r, r)
        tail = self.horner_selected(odd, P.COS_F32, P.SIN_F32, square)
        # sine: r + r·s·P(s); cosine: 1 + s·(-1/2 + s·Q(s))
        first = self.select(odd, f32(1.0), r)
        factor = self.fma(tail, self.select(odd, square, f32(1.0)), self.select(odd, f32(-0.5), f32(0.0)))
        value = self.fma(self.mul(square, first), factor, first)
        negative = self.bit(turns, 2)
        return self.select(negative, self.neg(value), value)

    # -- others ----------------------------------------------------------------------------------------------

    def tanh(self, x: Register) -> Register:
        """Near 0 a polynomial, else 1 - 2 / (exp(2|x|) + 1) with the sign of x; what is so small that the
        instructions make 0 of it does not show beside 1."""
        square = self.mul(x, x)
        near = self.fma(self.mul(square, x), self.horner(P.TANH_F32, square), x)
        size = self.abs(x)
        power = self.exp2_of_normal(self.mul(size, f32(2 / math.log(2))))
        reciprocal = self.make("rcp.approx.ftz", self.add(power, f32(1.0)))
        far = self.fma(f32(-2.0), reciprocal, f32(1.0))
        return self.with_sign_of(x, self.select(self.holds("gt", size, f32(0.55)), far, near))

    def erf(self, x: Register) -> Register:
        """Up to 1 a polynomial, beyond 1 - 2**p(|x|), where p is the logarithm of 1 - erf; from 4 on the
        result is 1."""
        square = self.mul(x, x)
        near = self.fma(x, self.horner(P.ERF_F32, square), x)
        size = self.abs(x)
        bounded = self.make("min", size, f32(4.0))
        complement = self.exp2_of_normal(self.horner(P.ERFC_F32, bounded))
        far = self.with_sign_of(x, self.sub(f32(1.0), complement))
        return self.select(self.holds("gt", size, f32(1.0)), far, near)

    # -- powers ----------------------------------------------------------------------------------------------

    def pow(self, x: Register, y: Register) -> Register:
        """2**(y · log2|x|) with the logarithm in two parts, and C's rules for special operands.

        A ``y`` beyond 2**32 counts as that: of a logarithm that is not 0, at least 2**-24, the power is then
        0 or infinite.
        """
        bounded = self.make("min", self.make("max", y, f32(-(2.0**32))), f32(2.0**32))
        size = self.abs(x)
        logarithm = self._log2_parts(size)
        high = self.mul(bounded, logarithm.high)
        low = self.fma(bounded, logarithm.low, self.fma(bounded, logarithm.high, self.neg(high)))
        return self._power_special(x, y, bounded, self._exp2_of_sum(high, low))

    def _log2_parts(self, x: Register) -> Double:
        """The logarithm of a positive finite ``x`` to base 2, in two parts: 2/log(2) · artanh(s) of
        s = f / (2 + f), whose first two terms, s and s³/3, are kept in two parts as well."""
        f, e = self._split(x, math.sqrt(0.5))
        inverse = self.make("rcp.approx.ftz", self.add(f, f32(2.0)))
        s = self.mul(f, inverse)
        rest = self.mul(self.fma(self.neg(s), f, self.fma(s, f32(-2.0), f)), inverse)
        z = self.mul(s, s)
        z_rest = self.fma(self.add(s, s), rest, self.fma(s, s, self.neg(z)))
        factor, factor_rest = map(f32, _TWICE_LOG2_E)
        first = self.mul(s, factor)
        low = self.fma(s, factor_rest, self.fma(s, factor, self.neg(first)))
        low = self.fma(rest, factor, low)
        cube = self.mul(first, z)
        cube_rest = self.fma(first, z_rest, self.fma(first, z, self.neg(cube)))
        second = self.mul(cube, _THIRD)
        low = self.add(low, self.fma(cube_rest, _THIRD, self.fma(cube, _THIRD, self.neg(second))))
        low = self.fma(self.mul(cube, z), self.horner(P.ARTANH_F32, z), low)
        whole = self.sum_ordered(e, first)
        total = self.sum_ordered(whole.high, second)
        return Double(total.high, self.add(self.add(whole.low, total.low), low))

    def _exp2_of_sum(self, high: Register, low: Register) -> Register:
        """2**(high + low) for a small ``low``, as a fraction's power times two powers with whole exponents,
        so that denormal results are rounded once."""
        bounded = self.make("min", self.make("max", high, f32(-252.0)), f32(252.0))
        low = self.select(self.holds("eq", bounded, high), low, f32(0.0))
        shifted = self.add(bounded, f32(_TO_WHOLE))
        fraction = self.sub(bounded, self.add(shifted, f32(-_TO_WHOLE)))
        value = self.make("ex2.approx.ftz", self.add(fraction, low))
        b = self.b
        exponent = b.pure("shl.b32 %s, %s, 23;", "r", b.pure("mov.b32 %s, %s;", "r", shifted))
        half = b.pure("shr.s32 %s, %s, 1;", "r", exponent)
        half = b.pure("and.b32 %s, %s, %s;", "r", half, -(1 << 23))
        for part in (half, b.sub(exponent, half)):
            value = self.mul(value, b.pure("add.s32 %s, %s, %s;", "f", part, 0x3F800000))
        return value

    def _power_special(self, x: Register, y: Register, bounded: Register, value: Register) -> Register:
        """``value`` = |x|**y with its sign, where neither is special; ``bounded`` is as odd as ``y``."""
        b, zero = self.b, f32(0.0)
        rest = self.fma(self.trunc(self.mul(bounded, f32(0.5))), f32(-2.0), bounded)
        odd = self.holds("eq", self.abs(rest), f32(1.0))
        broken = b.both(b.negate(odd), self.holds("ne", rest, zero))
        value = self.select(b.both(self.holds("lt", x, zero), broken), self.nan, value)
        # Of 0 and infinity the power is the same or, if y is negative, the other: their bits differ so.
        size = self.abs(x)
        flipped = b.pure("xor.b32 %s, %s, 0x7F800000;", "f", size)
        extreme = self.holds("eq", self.add(x, x), x)
        value = self.select(extreme, self.select(self.holds("lt", y, zero), flipped, size), value)
        bits = b.pure("mov.b32 %s, %s;", "r", x)
        negative = b.pure("setp.lt.s32 %s, %s, 0;", "p", bits)
        value = self.select(b.both(negative, odd), self.neg(value), value)
        value = self.select(self.holds("nan", x, y), self.add(x, y), value)
        unit = b.pure("or.pred %s, %s, %s;", "p", self.holds("eq", x, f32(1.0)), self.holds("eq", y, zero))
        return self.select(unit, f32(1.0), value)
