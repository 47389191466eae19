"""Functions that are single PTX instructions (or a few), chosen by the types of their arguments.

    add_rd = Instruction("add_rd", "x, y", FLOATS, "add.rm.{t} $0, $1, $2;", "``x + y``, rounded down.")

Arguments of types that none of the forms has take their common type; where that has no form either, it is an
error that lists the forms.
In assembly, constraints, texts and types that do not fit together are compile-time errors.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any, NamedTuple

from ptxforge.language import types as L
from ptxforge.language.registry import KernelFunction, builtin

_LETTERS = {"float": {32: "f", 64: "d"}, "int": {32: "r", 64: "l"}}


class Form(NamedTuple):
    """One way to call an instruction: the arguments' types, the result's, the PTX text with ``$0`` for the
    result."""

    arguments: tuple[L.dtype, ...]
    result: L.dtype
    text: str

    @property
    def constraints(self) -> str:
        """The registers, as inline assembly wants them."""
        return "=" + ",".join(map(_letter, (self.result, *self.arguments)))


def _letter(dtype: L.dtype) -> str:
    return _LETTERS["float" if dtype.is_floating() else "int"][dtype.primitive_bitwidth]


class Instruction(KernelFunction):
    """A function of the language that is PTX text in one of several ``forms``; ``parameters`` are the names
    of its arguments, comma-separated."""

    __ptxforge_builtin__ = True

    def __init__(self, name: str, parameters: str, forms: Iterable[Form], doc: str):
        self.__name__ = self.__qualname__ = name
        self.__doc__ = doc
        self.forms = tuple(forms)
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        names = [name.strip() for name in parameters.split(",")]
        self.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])


@builtin
def inline_asm_elementwise(
    asm: str, constraints: str, args: Any, dtype: Any, is_pure: bool, pack: int
) -> Any:
    """The results of PTX instructions for each element of ``args``: a block of ``dtype``, or a tuple of
    blocks for a tuple of types.

    ``asm`` has ``$0``, ``$1`` … for its operands, results first. ``constraints`` say what registers these
    are: ``=r`` a 32-bit result, then the inputs; ``h`` 16 bits, ``r`` 32, ``l`` 64, ``f`` float32, ``d``
    float64, ``b`` a predicate, ``n`` a constant, a number the register of that result. ``args`` are blocks,
    scalars, numbers and pointers of any types, broadcast to a common shape; without any the results are
    scalars. Bits of a register above an element are zeros.

    ``pack`` elements at a time are computed: those of 8 and 16 bits come four and two to a 32-bit register,
    lowest first, others in as many registers; which elements come together is not defined. With a true
    ``is_pure`` the text may run any number of times, and not at all where nobody needs its results;
    otherwise it runs in every thread that has the elements (a scalar's: all). Where threads get different
    scalars (of ``%tid.x``, of an atomic), a condition on one is each thread's own. Exact as the instructions
    are.

    As in Triton the text is not checked: an error in it is one of the assembler, and names that it declares
    (``.reg``, labels) are its own. It sees the registers of one thread: the interpreter, which has none,
    refuses texts that ask for the thread or exchange values.

        # four int8 in one register: each one's upper and lower half, as two blocks of int8
        high, low = tl.inline_asm_elementwise(
            "shr.b32 $0, $2, 4; and.b32 $0, $0, 0x0F0F0F0F; and.b32 $1, $2, 0x0F0F0F0F;",
            "=r,=r,r", [x], dtype=(tl.int8, tl.int8), is_pure=True, pack=4)
    """
