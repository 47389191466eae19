"""Virtual registers.

======  ===========  =========================================================================
kind    declared as  holds
======  ===========  =========================================================================
``p``   ``.pred``    ``i1``
``h``   ``.b16``     ``f16``, ``bf16``
``r``   ``.b32``     ``i32``; ``i16``, ``i8`` and 8-bit floats in the low bits (the rest is arbitrary)
``f``   ``.b32``     ``f32``
``q``   ``.b64``     ``i64``, pointers
``d``   ``.b64``     ``f64``
======  ===========  =========================================================================

All but predicates are untyped, so a bitcast costs nothing.
"""

from __future__ import annotations

from functools import cache

from ptxforge.ir import types as T

DECLARED = {"p": ".pred", "h": ".b16", "r": ".b32", "f": ".b32", "q": ".b64", "d": ".b64"}

_CLASS = {T.I1: "p", T.F16: "h", T.BF16: "h", T.F32: "f", T.F64: "d", T.I64: "q"}
MOVES = {"p": "mov.pred %s, %s;", "h": "mov.b16 %s, %s;", "r": "mov.b32 %s, %s;", "f": "mov.b32 %s, %s;",
         "q": "mov.b64 %s, %s;", "d": "mov.b64 %s, %s;"}  # fmt: skip


class Register:
    """A virtual register: its ``kind`` (a letter of the table above), the ``number`` of registers that were
    made before it and itself (what passes make has that of a register beside it), and the ``range`` (least,
    greatest) of a 32-bit integer in it, where known."""

    __slots__ = ("kind", "number", "range")

    def __init__(self, kind: str, number: int):
        self.kind, self.number = kind, number
        self.range: tuple[int, int] | None = None

    def within(self, least: int, greatest: int) -> Register:
        """This register, of which the range is known now unless it was before."""
        if self.range is None:
            self.range = (least, greatest)
        return self

    def beside(self) -> Register:
        """A fresh register of the same kind, which counts as made where this one was."""
        return Register(self.kind, self.number)

    def __repr__(self) -> str:
        return f"%{self.kind}_{self.number}"

    def __lt__(self, other: Register) -> bool:
        """The order in which they are made, so that ``x + y`` and ``y + x`` are one instruction."""
        return self.number < other.number


@cache
def register_class(element: T.Type) -> str:
    """The kind of the register that holds an element of this type."""
    if isinstance(element, (T.PointerType, T.TensorMapType)):
        return "q"
    return _CLASS.get(element, "r")


class Names(dict):
    """Maps registers to their names, numbered by first appearance; other operands to themselves.

    ``aliases`` maps a register to the one whose name it takes (a loop-carried value computed in place).
    """

    def __init__(self, aliases: dict[Register, Register]):
        super().__init__()
        self.aliases = aliases
        self.counts = dict.fromkeys(DECLARED, 0)

    def __missing__(self, operand):
        if type(operand) is not Register:
            name = operand
        elif operand in self.aliases:
            name = self[resolve(self.aliases, operand)]
        else:
            kind, counts = operand.kind, self.counts
            number = counts[kind]
            counts[kind] = number + 1
            name = f"%{kind}{number}"
        self[operand] = name
        return name

    def declarations(self) -> list[str]:
        """``.reg`` lines of the classes that occur."""
        return [f"\t.reg {DECLARED[kind]} %{kind}<{n}>;" for kind, n in self.counts.items() if n]


def resolve(aliases: dict[Register, Register], register: Register) -> Register:
    """Follow aliases to the end."""
    while register in aliases:
        register = aliases[register]
    return register
