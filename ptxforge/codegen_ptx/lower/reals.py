"""What mathematical functions are made of: arithmetic on floats of one type, and functions that are written
alike for f32 and f64."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ptxforge.codegen_ptx.lower.trigonometry import reduce
from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.codegen_ptx.ptx.registers import Register

_SLOTS = tuple(", ".join(["%s"] * (1 + operands)) for operands in range(4))
"""The places of a result and of up to three operands."""


class Double(NamedTuple):
    """An unevaluated sum of two floats, the second below the first's last place (Dekker, 1971)."""

    high: Register
    low: Register


class Reals:
    """Arithmetic on floats of one type, rounded to nearest. Operands are registers or literals.

    ``kind`` is the class of their registers, ``bits`` their width, ``literal`` writes a number; ``quotient``
    is the instruction that divides.
    """

    kind: str
    bits: int
    quotient: str
    nan: str
    literal: Callable[[float], str]

    def __init__(self, b: Builder):
        self.b = b

    def make(self, name: str, *operands) -> Register:
        """The result of the instruction ``name`` for this type."""
        return self.b.pure(f"{name}.f{self.bits} {_SLOTS[len(operands)]};", self.kind, *operands)

    def fma(self, x, y, z) -> Register:
        return self.make("fma.rn", x, y, z)

    def mul(self, x, y) -> Register:
        return self.make("mul.rn", x, y)

    def add(self, x, y) -> Register:
        return self.make("add.rn", x, y)

    def sub(self, x, y) -> Register:
        return self.make("sub.rn", x, y)

    def div(self, x, y) -> Register:
        return self.make(self.quotient, x, y)

    def neg(self, x) -> Register:
        return self.make("neg", x)

    def abs(self, x) -> Register:
        return self.make("abs", x)

    def with_sign_of(self, x, size) -> Register:
        return self.make("copysign", x, size)

    def select(self, condition, x, y) -> Register:
        return self.b.pure(f"selp.b{self.bits} %s, %s, %s, %s;", self.kind, x, y, condition)

    def holds(self, relation: str, x, y) -> Register:
        """The predicate of a comparison."""
        return self.b.pure(f"setp.{relation}.f{self.bits} %s, %s, %s;", "p", x, y)

    def bit(self, number: Register, value: int) -> Register:
        """Whether an integer has a bit set."""
        masked = self.b.pure(f"and.b32 %s, %s, {value};", "r", number)
        return self.b.pure("setp.ne.b32 %s, %s, 0;", "p", masked)

    def sum_ordered(self, x, y) -> Double:
        """x + y, exact when |x| >= |y|."""
        total = self.add(x, y)
        return Double(total, self.sub(y, self.sub(total, x)))

    def horner(self, coefficients: Sequence[float], x: Register) -> Register:
        """The polynomial at ``x``, coefficients of lowest degree first."""
        total = self.literal(coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            total = self.fma(x, total, self.literal(coefficient))
        return total

    def horner_selected(
        self, condition, one: Sequence[float], other: Sequence[float], x: Register
    ) -> Register:
        """The polynomial ``one`` where ``condition`` holds, else ``other`` (of the same degree)."""
        total = None
        for p, q in zip(reversed(one), reversed(other), strict=True):
            c = self.select(condition, self.literal(p), self.literal(q))
            total = c if total is None else self.fma(x, total, c)
        return total

    # -- to an integer -----------------------------------------------------------------------------------

    def rounded(self, mode: str, x: Register) -> Register:
        """``rmi`` down, ``rpi`` up, ``rzi`` towards zero, ``rni`` to nearest even."""
        return self.make(f"cvt.{mode}.f{self.bits}", x)

    def floor(self, x: Register) -> Register:
        return self.rounded("rmi", x)

    def ceil(self, x: Register) -> Register:
        return self.rounded("rpi", x)

    def trunc(self, x: Register) -> Register:
        return self.rounded("rzi", x)

    def rint(self, x: Register) -> Register:
        return self.rounded("rni", x)

    def nearest_multiple(self, x: Register, factor: float) -> tuple[Register, Register]:
        """``x · factor`` rounded to an integer, as a float and as an integer (whose low bits count)."""
        whole = self.rint(self.mul(x, self.literal(factor)))
        return whole, self.b.pure(f"cvt.rni.s32.f{self.bits} %s, %s;", "r", whole)

    # -- the remainder -----------------------------------------------------------------------------------

    def fmod(self, x, y) -> Register:
        """C's remainder x - n · y for the integer n = trunc(x / y), exact; the sign is x's. NaN for an
        infinite or NaN dividend, a zero or NaN divisor; an infinite divisor gives x by itself."""
        x, y = self.b.register(x, self.kind), self.b.register(y, self.kind)
        divisor = self.abs(y)
        rest = self.b.new(self.kind)
        self.b.copy(rest, self.abs(x))
        self._bring_below(rest, divisor)
        result = self.with_sign_of(x, rest)
        bad = self.holds("geu", self.abs(x), self.literal(math.inf))
        worse = self.holds("leu", divisor, self.literal(0.0))
        return self.select(worse, self.nan, self.select(bad, self.nan, result))

    def _bring_below(self, rest: Register, divisor: Register) -> None:
        """Bring ``rest`` below ``divisor`` (lanes that are done do nothing).

        The divisor is doubled up to the dividend's size; on the way back down it is subtracted wherever it
        still fits. With s = divisor · 2**k, the largest such number not above rest, rest - s is exact
        (Sterbenz) and below s: one bit per step, so that numbers of like size take few.
        """
        b, name = self.b, f"f{self.bits}"
        top, end = b.label("fmod"), b.label("fmod_end")
        scaled = b.new(self.kind)
        b.copy(scaled, divisor)
        usable = self.holds("lt", rest, self.literal(math.inf))
        usable = b.both(usable, self.holds("gt", divisor, self.literal(0.0)))
        b.effect(f"@!%s bra {end};", usable)
        half = self.mul(rest, self.literal(0.5))
        b.place(top + "_up")
        fits = b.new("p")
        b.effect(f"setp.le.{name} %s, %s, %s;", fits, scaled, half)
        b.effect(f"add.rn.{name} %s, %s, %s;", scaled, scaled, scaled, guard=fits)
        b.effect(f"bra {top}_up;", guard=fits)
        b.place(top)
        takes, more = b.new("p"), b.new("p")
        b.effect(f"setp.ge.{name} %s, %s, %s;", takes, rest, scaled)
        b.effect(f"sub.rn.{name} %s, %s, %s;", rest, rest, scaled, guard=takes)
        b.effect(f"setp.gt.{name} %s, %s, %s;", more, scaled, divisor)
        b.effect(f"mul.rn.{name} %s, %s, %s;", scaled, scaled, self.literal(0.5), guard=more)
        b.effect(f"bra {top};", guard=more)
        b.place(end)

    # -- logarithms --------------------------------------------------------------------------------------

    def logarithm(self, x: Register, value: Register) -> Register:
        """``value`` for positive finite x; -inf of 0, NaN of negative numbers; inf and NaN stay."""
        infinite = self.literal(math.inf)
        found = self.select(self.has_logarithm(x), value, self.fma(x, infinite, infinite))
        return self.select(self.holds("eq", x, self.literal(0.0)), self.literal(-math.inf), found)

    def has_logarithm(self, x: Register) -> Register:
        """Whether x is positive and finite; or 0."""
        zero, infinite = self.literal(0.0), self.literal(math.inf)
        return self.b.both(self.holds("ge", x, zero), self.holds("lt", x, infinite))

    # -- trigonometry ------------------------------------------------------------------------------------

    sine: Sequence[float]
    cosine: Sequence[float]

    def wave(self, r: Register, turns: Register) -> Register:
        """sin(r + turns · π/2): sine or cosine of r by the quadrant's parity, with its sign."""
        raise NotImplementedError

    def sin(self, x: Register) -> Register:
        # sin(-0) is -0.
        zero = self.holds("eq", x, self.literal(0.0))
        return self.select(zero, x, self.wave(*reduce(self, x)))

    def cos(self, x: Register) -> Register:
        r, turns = reduce(self, x)
        return self.wave(r, self.b.pure("add.s32 %s, %s, 1;", "r", turns))

    def tan(self, x: Register) -> Register:
        """sin / cos (or -cos / sin). Both are kept in two parts, so that only r and the quotient are
        rounded."""
        r, turns = reduce(self, x)
        square = self.mul(r, r)
        sine = self.sum_ordered(r, self.mul(self.mul(r, square), self.horner(self.sine, square)))
        tail = self.fma(square, self.horner(self.cosine, square), self.literal(-0.5))
        cosine = self.sum_ordered(self.literal(1.0), self.mul(square, tail))
        odd = self.bit(turns, 1)
        over, over_low = (self.select(odd, self.neg(c), s) for s, c in zip(sine, cosine))
        under, under_low = (self.select(odd, s, c) for s, c in zip(sine, cosine))
        quotient = self.div(over, under)
        negative = self.neg(quotient)
        rest = self.fma(negative, under, over)
        rest = self.fma(negative, under_low, self.add(rest, over_low))
        corrected = self.add(quotient, self.div(rest, under))
        # tan(-0) is -0.
        return self.select(self.holds("eq", x, self.literal(0.0)), x, corrected)


# -- polynomials -------------------------------------------------------------------------------------------

# For :meth:`Reals.horner`: coefficients from the constant up, of the near-minimax polynomial (Chebyshev
# interpolation at 50 digits: mpmath's ``chebyfit``) of the function in the comment, with the interval and the
# maximal absolute error.
# fmt: off
# (log(1 + f) - f) / f**2 on [-1/3, 1/3], 3e-8
LOG_F32 = (-0.5, 0.33333272, -0.24999945, 0.20007233, -0.16673316, 0.14055812, -0.12288722, 0.13748309,
           -0.124222)
# log2(1 + f) / f on [-1/3, 1/3], 8e-9
LOG2_F32 = (1.442695, -0.7213475, 0.48089585, -0.36067146, 0.28871644, -0.2406123, 0.20172597,
            -0.17631695, 0.20311543, -0.18360154)
# (artanh(s) - s - s**3/3) / s**5 in s**2 for s up to (sqrt(2) - 1) / (sqrt(2) + 1), 8e-8
ARTANH_F32 = (0.20000008, 0.1428112, 0.11524077)
# (sin(r) - r) / r**3 in r**2 on [0, (pi/4)**2], 2e-8
SIN_F32 = (-0.16666664, 0.008332748, -0.00019587841)
# (cos(r) - 1 + r**2 / 2) / r**4 in r**2 on [0, (pi/4)**2], 2e-9
COS_F32 = (0.041666664, -0.0013888302, 2.4547891e-05)
# (tan(r) - r) / r**3 in r**2 on [0, (pi/4)**2], 9e-9
TAN_F32 = (0.33333334, 0.13333231, 0.053994466, 0.021621127, 0.009962152, 0.0011853146, 0.003843144)
# (tanh(x) - x) / x**3 in x**2 on [0, 0.55**2], 1.3e-8
TANH_F32 = (-0.3333333, 0.13333113, -0.05390943, 0.021309389, -0.0066102277)
# erf(x) / x - 1 in x**2 on [0, 1], 1.2e-9
ERF_F32 = (0.12837917, -0.37612626, 0.11283594, -0.026854211, 0.0051890872, -0.00080168643,
           7.875875e-05)
# log2(1 - erf(a)) on [1, 4], 1.2e-8
ERFC_F32 = (0.0006006361, -1.6312194, -0.91027284, -0.16021852, 0.039096348, -0.0073071737,
            0.0009894532, -8.9877525e-05, 4.792178e-06, -1.09394975e-07)
# (exp(r) - 1 - r) / r**2 on [-log(2)/2, log(2)/2], 1.4e-18
EXP_F64 = (0.5, 0.1666666666666667, 0.04166666666666667, 0.008333333333326084, 0.0013888888888883711,
           0.0001984126987500228, 2.480158732567746e-05, 2.755725517000089e-06, 2.755727347871858e-07,
           2.5105312729622103e-08, 2.09147553258932e-09)
# (log((1 + s) / (1 - s)) - 2 s) / s**3 in s**2 for s up to (sqrt(2) - 1) / (sqrt(2) + 1), 2e-18
LOG_F64 = (0.6666666666666666, 0.4000000000000089, 0.28571428570795937, 0.2222222239345263, 0.181817954545265,
           0.15386249788196105, 0.1326850331279476, 0.13089445145246312)
# (sin(r) - r) / r**3 in r**2 on [0, (pi/4)**2], 2e-17
SIN_F64 = (-0.16666666666666666, 0.008333333333330946, -0.0001984126983675497, 2.755731610068303e-06,
           -2.5051131455427946e-08, 1.591810123027412e-10)
# (cos(r) - 1 + r**2 / 2) / r**4 in r**2 on [0, (pi/4)**2], 1.3e-18
COS_F64 = (0.041666666666666664, -0.0013888888888887395, 2.4801587298763433e-05, -2.7557317270560326e-07,
           2.0876146024689747e-09, -1.1382614868556325e-11)
# (tanh(x) - x) / x**3 in x**2 on [0, 0.55**2], 2e-19
TANH_F64 = (-0.3333333333333333, 0.1333333333333331, -0.05396825396822037, 0.021869488534073906,
            -0.0088632354631468, 0.0035921267699626346, -0.001455819097151351, 0.0005899052969492733,
            -0.0002384727248015252, 9.455133052924858e-05, -3.372080112046316e-05, 7.874274345344419e-06)
# erf(x) / x - 1 in x**2 on [0, 1], 1.3e-19
ERF_F64 = (0.12837916709551257, -0.3761263890318375, 0.11283791670954879, -0.026866170645076792,
           0.0052239776248180145, -0.000854832698083379, 0.0001205533111164271, -1.4925595266831182e-05,
           1.6461000484121368e-06, -1.6350312701054695e-07, 1.4659775274047436e-08, -1.1372848856791674e-09,
           5.957176147748911e-11)
# exp(a**2) (1 - erf(a)) (1 + 2 a) in t = (a - 4) / (a + 4) for a on [1, 6], 8e-17
ERFC_F64 = (1.2329951186255526, -0.13962111684056236, 0.01537965210257007, 0.0680970542544652,
            -0.1010390660290445,
            0.0937328350448936, -0.06633036611671828, 0.037167512486740814, -0.016197734350641032,
            0.005032040312285165, -0.0007575424899723285, -0.00019943791115473986, 0.00014780980824831742,
            -3.1982217080725404e-05, -2.0987219091222924e-05)
# (log((1 + s) / (1 - s)) - 2 s - 2 s**3 / 3) / s**5 in s**2, same interval as LOG_F64, 2e-18
LOG_TAIL_F64 = (0.4, 0.28571428571429375, 0.22222222221649277, 0.18181818336889324, 0.15384594802772,
                0.13334813373687013, 0.11706004128016817, 0.11725604536475413)
# fmt: on
