"""Mathematical functions of f32 as PTX sequences. Operands are registers."""

from __future__ import annotations

import math

from ptxforge.codegen_ptx.lower import polynomials as P
from ptxforge.codegen_ptx.lower.math_f64 import Float64
from ptxforge.codegen_ptx.lower.reals import Reals
from ptxforge.codegen_ptx.ptx.constants import f32
from ptxforge.codegen_ptx.ptx.registers import Register

_LOG2_E = f32(1 / math.log(2))


class Float32(Reals):
    """Functions of f32."""

    kind, bits, quotient, nan = "f", 32, "div.full", "0f7FFFFFFF"
    literal = staticmethod(f32)
    sine, cosine = P.SIN_F32, P.COS_F32

    # -- one instruction -------------------------------------------------------------------------------------

    def exp2(self, x: Register) -> Register:
        return self.make("ex2.approx", x)

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

    def _split(self, x: Register) -> tuple[Register, Register]:
        """(f, e) with x = (1 + f) · 2**e and 1 + f in [2/3, 4/3), for positive finite x."""
        small = self.holds("lt", x, f32(2.0**-126))
        scaled = self.select(small, self.mul(x, f32(2.0**23)), x)
        bits = self.b.pure("mov.b32 %s, %s;", "r", scaled)
        origin = int(f32(2 / 3)[2:], 16)
        exponent = self.b.pure(
            "and.b32 %s, %s, %s;", "r", self.b.pure("sub.s32 %s, %s, %s;", "r", bits, origin), -(1 << 23)
        )
        mantissa = self.b.pure("sub.s32 %s, %s, %s;", "f", bits, exponent)
        units = self.b.pure("cvt.rn.f32.s32 %s, %s;", "f", exponent)
        e = self.fma(units, f32(2.0**-23), self.select(small, f32(-23.0), f32(0.0)))
        return self.add(mantissa, f32(-1.0)), e

    def log(self, x: Register) -> Register:
        f, e = self._split(x)
        square = self.mul(f, f)
        value = self.fma(square, self.horner(P.LOG_F32, f), f)
        return self.logarithm(x, self.fma(e, f32(math.log(2)), value))

    def log2(self, x: Register) -> Register:
        f, e = self._split(x)
        return self.logarithm(x, self.fma(f, self.horner(P.LOG2_F32, f), e))

    # -- trigonometry ----------------------------------------------------------------------------------------

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
        """Near 0 a polynomial, else 1 - 2 / (exp(2|x|) + 1) with the sign of x."""
        square = self.mul(x, x)
        near = self.fma(self.mul(square, x), self.horner(P.TANH_F32, square), x)
        size = self.abs(x)
        power = self.exp2(self.mul(size, f32(2 / math.log(2))))
        reciprocal = self.make("rcp.approx", self.add(power, f32(1.0)))
        far = self.fma(f32(-2.0), reciprocal, f32(1.0))
        return self.with_sign_of(x, self.select(self.holds("gt", size, f32(0.55)), far, near))

    def erf(self, x: Register) -> Register:
        """Up to 1 a polynomial, beyond 1 - 2**p(|x|), where p is the logarithm of 1 - erf; from 4 on the
        result is 1."""
        square = self.mul(x, x)
        near = self.fma(x, self.horner(P.ERF_F32, square), x)
        size = self.abs(x)
        bounded = self.make("min", size, f32(4.0))
        complement = self.exp2(self.horner(P.ERFC_F32, bounded))
        far = self.with_sign_of(x, self.sub(f32(1.0), complement))
        return self.select(self.holds("gt", size, f32(1.0)), far, near)

    def pow(self, x: Register, y: Register) -> Register:
        """In f64, whose logarithm and exponential are accurate far beyond what an f32 needs."""
        wide = [self.b.pure("cvt.f64.f32 %s, %s;", "d", v) for v in (x, y)]
        return self.b.pure("cvt.rn.f32.f64 %s, %s;", "f", Float64(self.b).pow_single(*wide))
