"""Formulas: what instructions compute, written as one writes it.

A formula is a function of values, on which operators and the functions here are instructions::

    def softsign(x):
        return x / (abs(x) + 1.0)

It is called once for each combination of register kinds, with values that take down what is done to them.
:func:`formula` gives what it took down, which makes the same of registers, as often as they come. So a reader
finds mathematics, and the compiler a list of instructions.

Operands stand in the order of the text; constants are Python's. Floats have the type of the formula's first
argument. To subtract a constant is to add its opposite. A comparison with NaN does not hold, be it ``!=``.

All of a formula is computed: there is no branch. What needs one is a function of the builder and registers,
which a formula calls as a :class:`Step`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.codegen_ptx.ptx.constants import f32, f64
from ptxforge.codegen_ptx.ptx.registers import Register

_TYPES = {"f": "f32", "d": "f64", "r": "s32", "q": "s64"}
_BITS = {"f": "b32", "d": "b64", "r": "b32", "q": "b64", "p": "pred"}
_ROUNDED = {"f": "rn.f32", "d": "rn.f64", "r": "s32"}
_DIVIDED = {"f": "full.f32", "d": "rn.f64"}
_WHOLE = {"f": "f32.f32", "d": "f64.f64"}
_LITERALS = {"f": f32, "d": f64}
_NAN = {"f": "0f7FFFFFFF", "d": "0d7FFFFFFFFFFFFFFF"}


def instruction(name: str, types: dict[str, str] = _TYPES) -> Callable:
    """An instruction, with the suffix for the kind of its operands, as a function of values."""

    def made(*operands):
        x = _value(operands)
        slots = "%s, " * len(operands)
        return x.text.add(Builder.pure, f"{name}.{types[x.kind]} {slots}%s;", x.kind, *operands)

    return made


def _value(operands: Sequence) -> Value:
    """The first operand that is no constant."""
    for x in operands:
        if type(x) is Value:
            return x
    raise TypeError("an instruction of constants alone")


def compare(relation: str, x, y, kind: str = "") -> Value:
    """The predicate of a comparison, of integers of the type ``kind`` if that is given."""
    value = _value((x, y))
    kind = kind or (_BITS if value.kind == "r" and relation in ("eq", "ne") else _TYPES)[value.kind]
    return value.text.add(Builder.pure, f"setp.{relation}.{kind} %s, %s, %s;", "p", x, y)


def _comparison(relation: str) -> Callable:
    return lambda x, y: compare(relation, x, y)


def _reversed(function: Callable) -> Callable:
    return lambda y, x: function(x, y)


_sum, _difference = instruction("add", _ROUNDED), instruction("sub", _ROUNDED)
_quotient = instruction("div", _DIVIDED)


class Value:
    """A register of a formula: an argument, or the result of an instruction."""

    __slots__ = ("register", "text")

    def __init__(self, text: _Text, register: Register):
        self.text, self.register = text, register

    @property
    def kind(self) -> str:
        return self.register.kind

    __add__, __truediv__, __mul__ = _sum, _quotient, instruction("mul", _ROUNDED)
    __radd__, __rsub__, __rtruediv__ = map(_reversed, (_sum, _difference, _quotient))
    __neg__, __abs__, __rshift__ = map(instruction, ("neg", "abs", "shr"))
    __or__, __xor__, __invert__, __lshift__ = (instruction(x, _BITS) for x in ("or", "xor", "not", "shl"))
    __lt__, __le__, __gt__, __ge__, __eq__, __ne__ = map(_comparison, ("lt", "le", "gt", "ge", "eq", "ne"))
    __hash__ = None

    def __sub__(x, y):
        return x + -y if isinstance(y, float) else _difference(x, y)

    def __and__(x, y):
        make = Builder.either_way if x.kind == "p" else Builder.pure
        return x.text.add(make, f"and.{_BITS[x.kind]} %s, %s, %s;", x.kind, x, y)

    def to_integer(x) -> Value:
        """The nearest integer, 32 bits of it."""
        return x.text.add(Builder.pure, f"cvt.rni.s32.{_TYPES[x.kind]} %s, %s;", "r", x)

    def to_float(n) -> Value:
        """A 32-bit integer as a float."""
        kind = n.text.kind
        return n.text.add(Builder.pure, f"cvt.rn.{_TYPES[kind]}.s32 %s, %s;", kind, n)

    def bits(x) -> Value:
        """The bits of a float as an integer."""
        return x.text.add(Builder.pure, f"mov.{_BITS[x.kind]} %s, %s;", {"f": "r", "d": "q"}[x.kind], x)

    def halves(x) -> tuple[Value, Value]:
        """The lower and the upper 32 bits of an f64."""
        return x.text.add(Builder.pure_many, "mov.b64 {%s, %s}, %s;", "rr", x)

    def as_f32(n) -> Value:
        """The f32 of these bits, which no instruction makes: the register has another name, that is all."""
        n.register.kind = "f"
        return n


class _Text:
    """What a formula does, step by step: who makes it of a builder, what it is, its operands, its result or
    results. ``kind`` is that of floats."""

    def __init__(self, kinds: str):
        self.kind = kinds[0]
        self.arguments = [Value(self, Register(kind, 0)) for kind in kinds]
        self.steps: list[tuple] = []

    def add(self, make: Callable, what: object, kinds: str, *operands):
        """The results, a value for each letter of ``kinds``."""
        inputs = tuple([x.register if type(x) is Value else self._constant(x) for x in operands])
        results = tuple([Register(kind, 0) for kind in kinds])
        self.steps.append((make, what, inputs, results if len(results) > 1 else results[0]))
        values = tuple([Value(self, x) for x in results])
        return values if len(values) > 1 else values[0]

    def _constant(self, x: float | str):
        if type(x) is not float:
            return x
        return _LITERALS[self.kind](x) if x == x else _NAN[self.kind]


class Formula:
    """Makes instructions: called with a builder and registers, it gives the formula's results."""

    __slots__ = ("arguments", "results", "steps")

    def __init__(self, function: Callable, kinds: str):
        text = _Text(kinds)
        results = function(*text.arguments)
        self.arguments = [x.register for x in text.arguments]
        self.results = [x.register for x in (results if isinstance(results, tuple) else (results,))]
        self.steps = text.steps

    def __call__(self, b: Builder, *operands: Register):
        registers = dict(zip(self.arguments, operands, strict=True))
        get = registers.get
        for make, what, inputs, result in self.steps:
            if type(result) is Register:
                registers[result] = make(b, what, result.kind, *map(get, inputs, inputs))
            else:
                made = make(b, what, [x.kind for x in result], *map(get, inputs, inputs))
                registers.update(zip(result, made, strict=True))
        found = tuple(map(get, self.results))
        return found if len(found) > 1 else found[0]


formula = lru_cache(maxsize=None)(Formula)
"""The formula that a function is for registers of these kinds."""


def evaluate(b: Builder, function: Callable, *operands: Register):
    """The results of a formula."""
    return formula(function, "".join([x.kind for x in operands]))(b, *operands)


class Step:
    """As part of a formula, a function of a builder and registers that gives registers of these ``kinds``
    (``x``: that of floats)."""

    def __init__(self, kinds: str, function: Callable):
        self.kinds, self.function = kinds, function

    def __call__(self, *operands):
        text = operands[0].text
        return text.add(_done, self.function, self.kinds.replace("x", text.kind), *operands)


def _done(b: Builder, function: Callable, kinds: Sequence[str], *operands):
    return function(b, *operands)


# -- functions of values -----------------------------------------------------------------------------------

is_nan = _comparison("nan")
"""Whether one of two values is NaN."""


def where(condition: Value, x, y) -> Value:
    """x where the condition holds, else y."""
    kind = next((v.kind for v in (x, y) if type(v) is Value), condition.text.kind)
    return condition.text.add(Builder.pure, f"selp.{_BITS[kind]} %s, %s, %s, %s;", kind, x, y, condition)


fma, minimum, maximum = map(instruction, ("fma.rn", "min", "max"))
with_sign_of = instruction("copysign")
"""Of two values, the second with the sign of the first."""
floor, ceil, trunc, rint = (instruction(f"cvt.{mode}", _WHOLE) for mode in ("rmi", "rpi", "rzi", "rni"))


def of_halves(low, high: Value) -> Value:
    """The f64 whose lower and upper 32 bits these are."""
    return high.text.add(Builder.pure, "mov.b64 %s, {%s, %s};", "d", low, high)
