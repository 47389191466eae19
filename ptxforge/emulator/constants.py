"""Constant expressions of PTX ("Constant Expressions" of the PTX ISA): C's operators on 64-bit integers and
doubles.

Integers are signed unless they have the suffix ``U`` or do not fit; an operation with an unsigned operand is
unsigned. Comparisons, ``!``, ``&&`` and ``||`` give 0 or 1.
"""

from __future__ import annotations

import math
import operator
import re
import struct
from collections.abc import Callable

_TOKEN = re.compile(
    r"\s*(?:(?P<float>\d+\.\d*(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+|0[dD][0-9a-fA-F]{16})"
    r"|(?P<integer>0[xX][0-9a-fA-F]+U?|0[bB][01]+U?|\d+U?)|(?P<word>WARP_SZ)"
    r"|(?P<cast>\(\s*\.[su]64\s*\))|(?P<operator><<|>>|<=|>=|==|!=|&&|\|\||[-+*/%<>&^|!~?:()]))"
)
_LEVELS = ("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", "<=", ">", ">="), ("<<", ">>"), (
    "+", "-"), ("*", "/", "%")  # fmt: skip
"""Binary operators, loosest first."""

_SPAN = 1 << 64
_COMPARISONS: dict[str, Callable] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt,
    ">=": operator.ge, "&&": lambda a, b: bool(a) and bool(b), "||": lambda a, b: bool(a) or bool(b),
}  # fmt: skip
_ARITHMETIC: dict[str, Callable] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "&": operator.and_, "|": operator.or_,
    "^": operator.xor, "<<": lambda a, b: a << (b & 63), ">>": lambda a, b: a >> (b & 63),
}  # fmt: skip


class _Unsigned(int):
    """A .u64 value."""


def evaluate(text: str) -> int | float:
    """The value of a constant expression. Raises ``ValueError`` when the text is none."""
    return _Expression(text).value()


class _Expression:
    """Recursive descent over the tokens of one expression."""

    def __init__(self, text: str):
        self.tokens: list[tuple[str, str]] = []
        position, text = 0, text.strip()
        while position < len(text):
            match = _TOKEN.match(text, position)
            if not match:
                raise ValueError(f"'{text}' is no constant expression")
            self.tokens.append((match.lastgroup, match.group().strip()))
            position = match.end()
        self.text, self.position = text, 0

    def value(self) -> int | float:
        found = self.choice()
        if self.position != len(self.tokens):
            raise self.error()
        return found if isinstance(found, float) else int(found)

    def error(self) -> ValueError:
        return ValueError(f"'{self.text}' is no constant expression")

    def accept(self, *operators: str) -> str | None:
        """The next token, moving past it, when it is one of these operators."""
        if self.position == len(self.tokens) or self.tokens[self.position][1] not in operators:
            return None
        self.position += 1
        return self.tokens[self.position - 1][1]

    def expect(self, text: str) -> None:
        if self.accept(text) is None:
            raise self.error()

    def choice(self) -> int | float:
        condition = self.binary(0)
        if not self.accept("?"):
            return condition
        first = self.choice()
        self.expect(":")
        second = self.choice()
        return first if condition else second

    def binary(self, level: int) -> int | float:
        if level == len(_LEVELS):
            return self.unary()
        left = self.binary(level + 1)
        while True:
            sign = self.accept(*_LEVELS[level])
            if sign is None:
                return left
            left = self.combine(sign, left, self.binary(level + 1))

    def combine(self, sign: str, a: int | float, b: int | float) -> int | float:
        if sign in _COMPARISONS:
            return int(_COMPARISONS[sign](a, b))
        if isinstance(a, float) and isinstance(b, float):
            return self.combine_floats(sign, a, b)
        if isinstance(a, float) or isinstance(b, float):
            raise ValueError(f"'{self.text}' mixes integers and floats")
        unsigned = isinstance(a, _Unsigned) or isinstance(b, _Unsigned) and sign not in ("<<", ">>")
        if sign in ("/", "%"):
            if not b:
                raise ValueError(f"'{self.text}' divides by zero")
            quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
            result = quotient if sign == "/" else a - b * quotient
        else:
            result = _ARITHMETIC[sign](a, b)
        return _wrap(result, unsigned)

    def combine_floats(self, sign: str, a: float, b: float) -> float:
        if sign == "/":
            return a / b if b else math.nan if not a or a != a else math.copysign(math.inf, a) * (
                math.copysign(1, b)
            )
        if sign not in ("+", "-", "*"):
            raise self.error()
        return _ARITHMETIC[sign](a, b)

    def unary(self) -> int | float:
        sign = self.accept("-", "+", "~", "!")
        if sign == "!":
            return int(not self.unary())
        if sign is not None:
            value = self.unary()
            if isinstance(value, float):
                if sign == "~":
                    raise self.error()
                return -value if sign == "-" else value
            result = {"-": operator.neg, "+": operator.pos, "~": operator.invert}[sign](int(value))
            return _wrap(result, isinstance(value, _Unsigned))
        return self.primary()

    def primary(self) -> int | float:
        if self.position == len(self.tokens):
            raise self.error()
        kind, text = self.tokens[self.position]
        self.position += 1
        if kind == "cast":
            return _wrap(int(self.unary()), "u" in text)
        if text == "(":
            inner = self.choice()
            self.expect(")")
            return inner
        if kind == "word":
            return 32
        if kind == "float":
            return _double(text)
        if kind == "integer":
            return integer(text)
        raise self.error()


def integer(text: str) -> int:
    """An unsigned integer literal: hexadecimal, octal (leading 0), binary or decimal, ``U`` for unsigned."""
    digits = text.rstrip("U")
    base = {"x": 16, "b": 2}.get(digits[1:2].lower(), 8 if len(digits) > 1 and digits[0] == "0" else 10)
    value = int(digits[2:] if base in (16, 2) else digits, base)
    return _wrap(value, text.endswith("U") or value >= _SPAN // 2)


def _double(text: str) -> float:
    if text[:2] in ("0d", "0D"):
        return struct.unpack(">d", bytes.fromhex(text[2:]))[0]
    return float(text)


def _wrap(value: int, unsigned: bool) -> int:
    value %= _SPAN
    if unsigned:
        return _Unsigned(value)
    return value - _SPAN if value >= _SPAN // 2 else value
