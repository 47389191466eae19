"""Assertions, printing and promises."""

from __future__ import annotations

from ptxforge.ir import definition as D
from ptxforge.ir.core import Operation


@D.define("assert", effects=D.SIDE_EFFECT, shows_operand_types=True, traits=[D.ANY_LAYOUT])
class Assert(Operation):
    """Stop the kernel with ``message`` (and the source line) unless ``condition`` holds everywhere."""

    condition = D.operand(D.BOOL)
    message = D.attribute(str, "")

    infer = D.gives()


@D.define("print", effects=D.SIDE_EFFECT, shows_operand_types=True, traits=[D.ANY_LAYOUT])
class Print(Operation):
    """Print the values, each element on a line ``pid (0, 0, 0) idx ( 5) x: 3``: program, index, ``prefix``,
    and which of several operands; a scalar once for each thread, and so the program and ``prefix`` alone when
    there are no values. ``hex`` prints in hexadecimal, ``signed`` says of each value whether an integer is
    signed."""

    values = D.operands(D.ANY)
    prefix = D.attribute(str, "")
    hex = D.attribute(bool, False)
    signed = D.attribute(tuple, ())

    infer = D.gives()

    def is_signed(self, number: int) -> bool:
        """Whether value ``number`` is printed with its sign."""
        return bool(self.signed[number]) if number < len(self.signed) else True

    def label(self, number: int) -> str:
        """What stands before an element of value ``number``."""
        return self.prefix + (f"(operand {number}) " if len(self.values) > 1 else "")


def index_widths(shape: tuple[int, ...]) -> list[int]:
    """Digits that an index along each dimension is padded to."""
    return [len(str(size - 1)) for size in shape]


@D.define("breakpoint", effects=D.SIDE_EFFECT, shows_operand_types=True, traits=[D.ANY_LAYOUT])
class Breakpoint(Operation):
    """Where a debugger may stop, and does if ``stops``: ``breakpoint()`` in a kernel, and before each
    statement of a kernel that has one. The values are those of the variables there: ``names`` says for each
    which (``x``, ``pair.0``, ``block.offsets.1``), ``types`` which type of the language it has;
    ``constants`` are those known when compiling, as ``BLOCK = 128``. Only the interpreter can execute it."""

    values = D.operands(D.ANY)
    stops = D.attribute(bool, True)
    names = D.attribute(tuple, ())
    types = D.attribute(tuple, ())
    constants = D.attribute(tuple, ())

    infer = D.gives()


_PROMISE = D.Effects(writes=frozenset({"promises"}))
"""Stays, like a write, but orders no access to memory."""


@D.define(
    "assume", effects=_PROMISE, removed_by="drop_assumptions", shows_operand_types=True, traits=[D.ANY_LAYOUT]
)
class Assume(Operation):
    """A promise of the user that ``condition`` holds; analyses may use it. Removed before codegen."""

    condition = D.operand(D.BOOL)

    infer = D.gives()
