"""Mathematical functions of f64 as PTX sequences. Operands are registers."""

from __future__ import annotations

import math
from fractions import Fraction

from ptxforge.codegen_ptx.lower import reals as P
from ptxforge.codegen_ptx.lower.reals import Double, Reals
from ptxforge.codegen_ptx.ptx.constants import f64
from ptxforge.codegen_ptx.ptx.registers import Register


def _two_parts(value: Fraction) -> tuple[float, float]:
    """A number as the sum of two f64."""
    high = float(value)
    return high, float(value - Fraction(high))


def _log_of_2() -> Fraction:
    """log 2 to 200 bits: sum of 1 / (n 2**n)."""
    return sum((Fraction(1, n << n) for n in range(1, 210)), Fraction(0))


_LN2 = _two_parts(_log_of_2())
_LOG2_E = _two_parts(1 / _log_of_2())


class Float64(Reals):
    """Functions of f64."""

    kind, bits, quotient, nan = "d", 64, "div.rn", "0d7FFFFFFFFFFFFFFF"
    literal = staticmethod(f64)
    sine, cosine = P.SIN_F64, P.COS_F64

    def _either(self, p: Register, q: Register) -> Register:
        return self.b.pure("or.pred %s, %s, %s;", "p", p, q)

    # -- simple ----------------------------------------------------------------------------------------------

    def sqrt(self, x: Register) -> Register:
        return self.make("sqrt.rn", x)

    sqrt_rn = sqrt

    def rsqrt(self, x: Register) -> Register:
        return self.div(f64(1.0), self.sqrt(x))

    # -- exponentials ----------------------------------------------------------------------------------------

    def _power_of_two(self, n: Register) -> Register:
        """2**n for an integer register n between -1022 and 1023."""
        biased = self.b.pure("add.s32 %s, %s, 1023;", "r", n)
        low, high = self.b.register(0), self.b.pure("shl.b32 %s, %s, 20;", "r", biased)
        return self.b.pure("mov.b64 %s, {%s, %s};", "d", low, high)

    def _scaled(self, x: Register, n: Register) -> Register:
        """x · 2**n in two steps, so that only the last may leave the normal range."""
        half = self.b.pure("shr.s32 %s, %s, 1;", "r", n)
        rest = self.b.pure("sub.s32 %s, %s, %s;", "r", n, half)
        return self.mul(self.mul(x, self._power_of_two(half)), self._power_of_two(rest))

    def _exp_reduced(self, r: Register, n: Register) -> Register:
        """exp(r) · 2**n for |r| up to log(2)/2."""
        value = self.add(self.fma(self.mul(r, r), self.horner(P.EXP_F64, r), r), f64(1.0))
        return self._scaled(value, n)

    def _clamped(self, x: Register, low: float, high: float) -> Register:
        return self.make("max", self.make("min", x, f64(high)), f64(low))

    def _keep_nan(self, x: Register, value: Register) -> Register:
        return self.select(self.holds("nan", x, x), x, value)

    def exp(self, x: Register) -> Register:
        bounded = self._clamped(x, -746.0, 710.0)
        turns = self.rint(self.mul(bounded, f64(_LOG2_E[0])))
        r = self.fma(turns, f64(-_LN2[1]), self.fma(turns, f64(-_LN2[0]), bounded))
        return self._keep_nan(x, self._exp_reduced(r, self.b.pure("cvt.rni.s32.f64 %s, %s;", "r", turns)))

    def exp2(self, x: Register) -> Register:
        return self._keep_nan(x, self._exp2_of_sum(self._clamped(x, -1076.0, 1025.0), f64(0.0)))

    def _exp2_of_sum(self, high: Register, low: Register) -> Register:
        """2**(high + low) for a bounded ``high`` and a small ``low``."""
        turns = self.rint(high)
        fraction = self.sub(high, turns)
        r = self.fma(fraction, f64(_LN2[0]), self.fma(fraction, f64(_LN2[1]), self.mul(low, f64(_LN2[0]))))
        return self._exp_reduced(r, self.b.pure("cvt.rni.s32.f64 %s, %s;", "r", turns))

    # -- logarithms ------------------------------------------------------------------------------------------

    def _split(self, x: Register) -> tuple[Register, Register]:
        """(m, e) with x = m · 2**e and m in [sqrt(1/2), sqrt(2)), for positive finite x; e is an f64."""
        small = self.holds("lt", x, f64(2.0**-1022))
        scaled = self.select(small, self.mul(x, f64(2.0**54)), x)
        low, high = self.b.pure_many("mov.b64 {%s, %s}, %s;", "rr", scaled)
        origin = int(f64(math.sqrt(0.5))[2:10], 16)
        offset = self.b.pure("sub.s32 %s, %s, %s;", "r", high, origin)
        exponent = self.b.pure("shr.s32 %s, %s, 20;", "r", offset)
        shifted = self.b.pure("shl.b32 %s, %s, 20;", "r", exponent)
        mantissa = self.b.pure("sub.s32 %s, %s, %s;", "r", high, shifted)
        e = self.b.pure("cvt.rn.f64.s32 %s, %s;", "d", exponent)
        e = self.add(e, self.select(small, f64(-54.0), f64(0.0)))
        return self.b.pure("mov.b64 %s, {%s, %s};", "d", low, mantissa), e

    def log(self, x: Register) -> Register:
        """log(m) = f - (f²/2 - s (f²/2 + R)) with f = m - 1, s = f / (2 + f) and R = s² P(s²): f is exact and
        large, so that the rounding of the rest hardly counts."""
        m, e = self._split(x)
        f = self.add(m, f64(-1.0))
        s = self.div(f, self.add(f, f64(2.0)))
        z = self.mul(s, s)
        half_square = self.mul(self.mul(f, f), f64(0.5))
        tail = self.mul(z, self.horner(P.LOG_F64, z))
        inner = self.fma(s, self.add(half_square, tail), self.mul(e, f64(_LN2[1])))
        value = self.sub(f, self.sub(half_square, inner))
        return self.logarithm(x, self.fma(e, f64(_LN2[0]), value))

    def log2(self, x: Register) -> Register:
        total = self._log2_parts(x)
        return self.logarithm(x, self.add(total.high, total.low))

    def _sum(self, x, y) -> Double:
        """x + y, exact (Knuth)."""
        total = self.add(x, y)
        shadow = self.sub(total, x)
        error = self.add(self.sub(x, self.sub(total, shadow)), self.sub(y, shadow))
        return Double(total, error)

    def _product(self, x, y) -> Double:
        """x · y, exact."""
        high = self.mul(x, y)
        return Double(high, self.fma(x, y, self.neg(high)))

    def _add_doubles(self, x: Double, y: Double) -> Double:
        total = self._sum(x.high, y.high)
        return self.sum_ordered(total.high, self.add(total.low, self.add(x.low, y.low)))

    def _multiply_doubles(self, x: Double, y: Double) -> Double:
        product = self._product(x.high, y.high)
        low = self.fma(x.high, y.low, self.fma(x.low, y.high, product.low))
        return self.sum_ordered(product.high, low)

    def _log2_parts(self, x: Register) -> Double:
        """log2 of a positive finite x to some 65 bits: 2 s + 2/3 s³ + s⁵ Q(s²) in two parts,
        s = (m - 1) / (m + 1)."""
        m, e = self._split(x)
        f = self.add(m, f64(-1.0))
        below = self.sum_ordered(f64(2.0), f)
        quotient = self.div(f, below.high)
        rest = self.fma(self.neg(quotient), below.low, self.fma(self.neg(quotient), below.high, f))
        s = self.sum_ordered(quotient, self.div(rest, below.high))
        z = self._multiply_doubles(s, s)
        tail = self.mul(z.high, self.horner(P.LOG_TAIL_F64, z.high))
        third = self._add_doubles(Double(*map(f64, _two_parts(Fraction(2, 3)))), Double(tail, f64(0.0)))
        cubic = self._multiply_doubles(z, third)
        bracket = self._add_doubles(Double(f64(2.0), f64(0.0)), cubic)
        natural = self._multiply_doubles(s, bracket)
        scaled = self._multiply_doubles(natural, Double(*map(f64, _LOG2_E)))
        return self._add_doubles(Double(e, f64(0.0)), scaled)

    # -- powers ----------------------------------------------------------------------------------------------

    def pow(self, x: Register, y: Register) -> Register:
        logarithm = self._log2_parts(self.abs(x))
        product = self._product(y, logarithm.high)
        low = self.fma(y, logarithm.low, product.low)
        return self._finish_power(x, y, product.high, low)

    def _finish_power(self, x: Register, y: Register, high: Register, low: Register) -> Register:
        """2**(high + low), where that is y · log2|x|, with C's rules for special operands."""
        size = self.abs(x)
        # Where |x| is 0 or infinite the logarithm is, too.
        extreme = self.select(self.holds("eq", size, f64(0.0)), f64(-math.inf), f64(math.inf))
        is_extreme = self._either(self.holds("eq", size, f64(0.0)), self.holds("eq", size, f64(math.inf)))
        infinite = self._either(is_extreme, self.holds("eq", self.abs(y), f64(math.inf)))
        grows = self.select(is_extreme, extreme, self.sub(size, f64(1.0)))
        high = self.select(infinite, self.mul(y, grows), high)
        bounded = self._clamped(high, -1080.0, 1030.0)
        safe_low = self.select(self.holds("eq", bounded, high), low, f64(0.0))
        value = self._exp2_of_sum(bounded, safe_low)
        return self._power_special(x, y, value)

    def _power_special(self, x: Register, y: Register, value: Register) -> Register:
        whole = self.trunc(y)
        half = self.mul(y, f64(0.5))
        is_whole = self.holds("eq", whole, y)
        odd = self.b.both(is_whole, self.holds("ne", self.trunc(half), half))
        bits = self.b.pure("mov.b64 %s, %s;", "q", x)
        negative = self.b.pure("setp.lt.s64 %s, %s, 0;", "p", bits)
        value = self.select(self.b.both(negative, odd), self.neg(value), value)
        below = self.b.both(self.holds("lt", x, f64(0.0)), self.holds("gt", x, f64(-math.inf)))
        value = self.select(self.b.both(below, self.b.negate(is_whole)), self.nan, value)
        value = self.select(self.holds("nan", x, y), self.add(x, y), value)
        unit = self.b.both(self.holds("eq", x, f64(-1.0)), self.holds("eq", self.abs(y), f64(math.inf)))
        unit = self._either(unit, self._either(self.holds("eq", x, f64(1.0)), self.holds("eq", y, f64(0.0))))
        return self.select(unit, f64(1.0), value)

    # -- trigonometry ----------------------------------------------------------------------------------------

    def wave(self, r: Register, turns: Register) -> Register:
        odd = self.bit(turns, 1)
        square = self.mul(r, r)
        sine = self.fma(self.mul(square, r), self.horner(P.SIN_F64, square), r)
        cosine = self.fma(square, self.fma(square, self.horner(P.COS_F64, square), f64(-0.5)), f64(1.0))
        value = self.select(odd, cosine, sine)
        negative = self.bit(turns, 2)
        return self.select(negative, self.neg(value), value)

    # -- others ----------------------------------------------------------------------------------------------

    def tanh(self, x: Register) -> Register:
        """Near 0 a polynomial, else 1 - 2 / (exp(2|x|) + 1) with the sign of x."""
        square = self.mul(x, x)
        near = self.fma(self.mul(square, x), self.horner(P.TANH_F64, square), x)
        size = self.abs(x)
        power = self.exp(self.add(size, size))
        far = self.sub(f64(1.0), self.div(f64(2.0), self.add(power, f64(1.0))))
        return self.with_sign_of(x, self.select(self.holds("gt", size, f64(0.55)), far, near))

    def erf(self, x: Register) -> Register:
        """Up to 1 a polynomial, beyond 1 - exp(-a²) g(t) / (1 + 2a) with t = (a - 4) / (a + 4); from 6 on the
        result is 1."""
        square = self.mul(x, x)
        near = self.fma(x, self.horner(P.ERF_F64, square), x)
        size = self.abs(x)
        a = self.make("min", size, f64(6.0))
        t = self.div(self.add(a, f64(-4.0)), self.add(a, f64(4.0)))
        scale = self.div(self.horner(P.ERFC_F64, t), self.fma(a, f64(2.0), f64(1.0)))
        complement = self.mul(self.exp(self.neg(self.mul(a, a))), scale)
        far = self.with_sign_of(x, self.sub(f64(1.0), complement))
        return self.select(self.holds("gt", size, f64(1.0)), far, near)
