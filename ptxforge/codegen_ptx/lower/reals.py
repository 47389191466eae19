"""Formulas (``ptx/formula.py``) that are the same for f32 and f64."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.codegen_ptx.ptx.constants import f32, f64
from ptxforge.codegen_ptx.ptx.formula import Step, Value, fma, where, with_sign_of
from ptxforge.codegen_ptx.ptx.registers import Register

TO_WHOLE = 1.5 * 2.0**23
"""Added to an f32 below 2**22 it rounds that to an integer, which then stands in its lowest bits."""


class Double(NamedTuple):
    """An unevaluated sum of two floats, the second below the first's last place (Dekker, 1971)."""

    high: Value | float
    low: Value | float

    def __add__(self, other):
        total = exact_sum(self.high, other.high)
        return ordered_sum(total.high, total.low + (self.low + other.low))

    def __mul__(self, other):
        product = exact_product(self.high, other.high)
        low = fma(self.high, other.low, fma(self.low, other.high, product.low))
        return ordered_sum(product.high, low)


def ordered_sum(x, y) -> Double:
    """x + y, exact when |x| >= |y|."""
    total = x + y
    return Double(total, y - (total - x))


def exact_sum(x, y) -> Double:
    """x + y, exact (Knuth)."""
    total = x + y
    shadow = total - x
    return Double(total, (x - (total - shadow)) + (y - shadow))


def exact_product(x, y) -> Double:
    """x · y, exact."""
    high = x * y
    return Double(high, fma(x, y, -high))


def horner(x: Value, coefficients: Iterable):
    """The polynomial at ``x``, coefficients of highest degree first."""
    coefficients = iter(coefficients)
    total = next(coefficients)
    for coefficient in coefficients:
        total = fma(x, total, coefficient)
    return total


def logarithm(x: Value, value: Value, is_defined: Value) -> Value:
    """``value`` where it ``is_defined``, for positive finite x (or 0); -inf of 0, NaN of negative numbers;
    inf and NaN stay."""
    found = where(is_defined, value, fma(x, math.inf, math.inf))
    return where(x == 0.0, -math.inf, found)


# -- the remainder -----------------------------------------------------------------------------------------


def fmod(x: Value, y: Value) -> Value:
    """C's remainder x - n · y for the integer n = trunc(x / y), exact; the sign is x's. NaN for an infinite
    or NaN dividend, a zero or NaN divisor; an infinite divisor gives x by itself."""
    size, divisor = abs(x), abs(y)
    usable = (size < math.inf) & (divisor > 0.0)
    rest = _brought_below(size, size * 0.5, divisor, usable)
    return where(usable, with_sign_of(x, rest), math.nan)


def _bring_below(
    b: Builder, size: Register, half: Register, divisor: Register, usable: Register
) -> Register:
    """What is left of ``size``, below ``divisor`` (lanes that are done do nothing).

    The divisor is doubled up to the dividend's size; on the way back down it is subtracted wherever it still
    fits. With s = divisor · 2**k, the largest such number not above rest, rest - s is exact (Sterbenz) and
    below s: one bit per step, so that numbers of like size take few.
    """
    kind = size.kind
    name, factor = ("f32", f32(0.5)) if kind == "f" else ("f64", f64(0.5))
    rest, scaled = b.several(kind * 2)
    b.copy(rest, size)
    b.copy(scaled, divisor)
    top, end = b.label("fmod"), b.skip_unless(usable, "fmod_end")
    fits, takes, more = b.several("ppp")
    b.place(top + "_up")
    b.effect(f"setp.le.{name} %s, %s, %s;", fits, scaled, half)
    b.effect(f"add.rn.{name} %s, %s, %s;", scaled, scaled, scaled, guard=fits)
    b.effect(f"bra {top}_up;", guard=fits)
    b.place(top)
    b.effect(f"setp.ge.{name} %s, %s, %s;", takes, rest, scaled)
    b.effect(f"sub.rn.{name} %s, %s, %s;", rest, rest, scaled, guard=takes)
    b.effect(f"setp.gt.{name} %s, %s, %s;", more, scaled, divisor)
    b.effect(f"mul.rn.{name} %s, %s, %s;", scaled, scaled, factor, guard=more)
    b.effect(f"bra {top};", guard=more)
    b.place(end)
    return rest


_brought_below = Step("x", _bring_below)
