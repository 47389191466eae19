"""The exact floating-point remainder, C's ``fmod``.

The divisor is doubled up to the dividend's size; on the way back down it is subtracted wherever it still
fits. Every difference is exact, and the number of steps is that of the quotient's bits: numbers of like size
take few.
"""

from __future__ import annotations

from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.codegen_ptx.ptx.constants import f32, f64
from ptxforge.codegen_ptx.ptx.registers import Register
from ptxforge.ir import types as T


def fmod(b: Builder, x, y, element: T.Type) -> Register:
    """x - n · y for the integer n = trunc(x / y), exact; the sign is x's."""
    kind = "f" if element is T.F32 else "d"
    literal = f32 if element is T.F32 else f64
    name = str(element)
    x, y = b.register(x, kind), b.register(y, kind)
    divisor = b.pure(f"abs.{name} %s, %s;", kind, y)
    rest = b.new(kind)
    b.copy(rest, b.pure(f"abs.{name} %s, %s;", kind, x))
    _reduce(b, rest, divisor, name, kind, literal)
    result = b.pure(f"copysign.{name} %s, %s, %s;", kind, x, rest)
    return _special(b, x, divisor, result, name, kind, literal)


def _reduce(b: Builder, rest: Register, divisor: Register, name: str, kind: str, literal) -> None:
    """Bring ``rest`` below ``divisor`` (lanes that are done do nothing).

    With s = divisor · 2**k, the largest such number not above rest, rest - s is exact (Sterbenz) and below s:
    one bit per step. The scale starts at the exponents' difference and halves.
    """
    top, end = b.label("fmod"), b.label("fmod_end")
    scaled = b.new(kind)
    b.copy(scaled, divisor)
    infinity = literal(float("inf"))
    zero = literal(0.0)
    usable = b.pure(f"setp.lt.{name} %s, %s, %s;", "p", rest, infinity)
    usable = b.both(usable, b.pure(f"setp.gt.{name} %s, %s, %s;", "p", divisor, zero))
    b.effect(f"@!%s bra {end};", usable)
    half = b.pure(f"mul.rn.{name} %s, %s, %s;", kind, rest, literal(0.5))
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
    b.effect(f"mul.rn.{name} %s, %s, %s;", scaled, scaled, literal(0.5), guard=more)
    b.effect(f"bra {top};", guard=more)
    b.place(end)


def _special(
    b: Builder, x: Register, divisor: Register, result: Register, name: str, kind: str, literal
) -> Register:
    """NaN for an infinite or NaN dividend, a zero or NaN divisor; an infinite divisor gives x by itself."""
    nan = "0f7FFFFFFF" if kind == "f" else "0d7FFFFFFFFFFFFFFF"
    size = b.pure(f"abs.{name} %s, %s;", kind, x)
    bad = b.pure(f"setp.geu.{name} %s, %s, %s;", "p", size, literal(float("inf")))
    worse = b.pure(f"setp.leu.{name} %s, %s, %s;", "p", divisor, literal(0.0))
    width = 32 if kind == "f" else 64
    result = b.pure(f"selp.b{width} %s, %s, %s, %s;", kind, nan, result, bad)
    return b.pure(f"selp.b{width} %s, %s, %s, %s;", kind, nan, result, worse)
