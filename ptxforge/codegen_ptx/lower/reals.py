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
        zero = self.literal(0.0)
        inside = self.b.both(self.holds("gt", x, zero), self.holds("lt", x, self.literal(math.inf)))
        other = self.select(self.holds("lt", x, zero), self.nan, self.add(x, x))
        other = self.select(self.holds("eq", x, zero), self.literal(-math.inf), other)
        return self.select(inside, value, other)

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
