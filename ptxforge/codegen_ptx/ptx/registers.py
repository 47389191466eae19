"""Virtual registers: a register is its name, and the name's letters say its class.

======  ===========  =========================================================================
prefix  declared as  holds
======  ===========  =========================================================================
``%p``  ``.pred``    ``i1``
``%h``  ``.b16``     ``f16``, ``bf16``
``%r``  ``.b32``     ``i32``; ``i16``, ``i8`` and 8-bit floats in the low bits (the rest is arbitrary)
``%f``  ``.b32``     ``f32``
``%q``  ``.b64``     ``i64``, pointers
``%d``  ``.b64``     ``f64``
======  ===========  =========================================================================

All but predicates are untyped, so a bitcast costs nothing. One-letter classes let ``name[1]`` tell the class.
"""

from __future__ import annotations

from ptxforge.ir import types as T

DECLARED = {"p": ".pred", "h": ".b16", "r": ".b32", "f": ".b32", "q": ".b64", "d": ".b64"}

_CLASS = {T.I1: "p", T.F16: "h", T.BF16: "h", T.F32: "f", T.F64: "d", T.I64: "q"}
MOVES = {"p": "mov.pred %s, %s;", "h": "mov.b16 %s, %s;", "r": "mov.b32 %s, %s;", "f": "mov.b32 %s, %s;",
         "q": "mov.b64 %s, %s;", "d": "mov.b64 %s, %s;"}  # fmt: skip


def register_class(element: T.Type) -> str:
    """The class of the register that holds an element of this type."""
    if isinstance(element, (T.PointerType, T.TensorMapType)):
        return "q"
    return _CLASS.get(element, "r")


class Names(dict):
    """Maps provisional register names to final ones, numbered by first appearance; other operands to
    themselves.

    ``aliases`` maps a register to the one whose name it takes (a loop-carried value computed in place).
    """

    def __init__(self, aliases: dict[str, str]):
        super().__init__()
        self.aliases = aliases
        self.counts: dict[str, int] = {}

    def __missing__(self, operand):
        if not isinstance(operand, str) or operand[0] != "%":
            self[operand] = operand
            return operand
        root = resolve(self.aliases, operand)
        if root != operand:
            name = self[root]
        else:
            kind = operand[1]
            number = self.counts.get(kind, 0)
            self.counts[kind] = number + 1
            name = f"%{kind}{number}"
        self[operand] = name
        return name

    def declarations(self) -> list[str]:
        """``.reg`` lines of the classes that occur."""
        return [
            f"\t.reg {DECLARED[kind]} %{kind}<{self.counts[kind]}>;"
            for kind in DECLARED
            if kind in self.counts
        ]


def resolve(aliases: dict[str, str], register: str) -> str:
    """Follow aliases to the end."""
    while register in aliases:
        register = aliases[register]
    return register
