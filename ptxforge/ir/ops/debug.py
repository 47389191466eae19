"""Assertions, printing and promises."""

from __future__ import annotations

from ptxforge.ir.core import Operation
from ptxforge.ir.definition import (
    ANY,
    ANY_LAYOUT,
    BOOL,
    SIDE_EFFECT,
    Effects,
    attribute,
    define,
    gives,
    operand,
    operands,
)


@define("assert", effects=SIDE_EFFECT, shows_operand_types=True, traits=[ANY_LAYOUT])
class Assert(Operation):
    """Stop the kernel with ``message`` (and the source line) unless ``condition`` holds everywhere."""

    condition = operand(BOOL)
    message = attribute(str, "")

    infer = gives()


@define("print", effects=SIDE_EFFECT, shows_operand_types=True, traits=[ANY_LAYOUT])
class Print(Operation):
    """Print the values, each element on a line ``pid (0, 0, 0) idx ( 5) x: 3``: program, index, ``prefix``,
    and which of several operands; a scalar once for each thread, and so the program and ``prefix`` alone when
    there are no values. ``hex`` prints in hexadecimal, ``signed`` says of each value whether an integer is
    signed."""

    values = operands(ANY)
    prefix = attribute(str, "")
    hex = attribute(bool, False)
    signed = attribute(tuple, ())

    infer = gives()

    def is_signed(self, number: int) -> bool:
        """Whether value ``number`` is printed with its sign."""
        return bool(self.signed[number]) if number < len(self.signed) else True

    def label(self, number: int) -> str:
        """What stands before an element of value ``number``."""
        return self.prefix + (f"(operand {number}) " if len(self.values) > 1 else "")


def index_widths(shape: tuple[int, ...]) -> list[int]:
    """Digits that an index along each dimension is padded to."""
    return [len(str(size - 1)) for size in shape]


@define("breakpoint", effects=SIDE_EFFECT, shows_operand_types=True, traits=[ANY_LAYOUT])
class Breakpoint(Operation):
    """Where a debugger may stop, and does if ``stops``: ``breakpoint()`` in a kernel, and before each
    statement of a kernel that has one. The values are those of the variables there: ``names`` says for each
    which (``x``, ``pair.0``, ``block.offsets.1``), ``types`` which type of the language it has;
    ``constants`` are those known when compiling, as ``BLOCK = 128``. Only the interpreter can execute it."""

    values = operands(ANY)
    stops = attribute(bool, True)
    names = attribute(tuple, ())
    types = attribute(tuple, ())
    constants = attribute(tuple, ())

    infer = gives()


_PROMISE = Effects(writes=frozenset({"promises"}))
"""Stays, like a write, but orders no access to memory."""


@define(
    "assume", effects=_PROMISE, removed_by="drop_assumptions", shows_operand_types=True, traits=[ANY_LAYOUT]
)
class Assume(Operation):
    """A promise of the user that ``condition`` holds; analyses may use it. Removed before codegen."""

    condition = operand(BOOL)

    infer = gives()
