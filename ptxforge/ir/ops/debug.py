"""Assertions, printing and promises."""

from __future__ import annotations

from ptxforge.ir.core import Operation
from ptxforge.ir.definition import (
    ANY,
    BOOL,
    SIDE_EFFECT,
    Effects,
    attribute,
    define,
    gives,
    operand,
    operands,
)


@define("assert", effects=SIDE_EFFECT, shows_operand_types=True)
class Assert(Operation):
    """Stop the kernel with ``message`` (and the source line) unless ``condition`` holds everywhere."""

    condition = operand(BOOL)
    message = attribute(str, "")

    infer = gives()


@define("print", effects=SIDE_EFFECT, shows_operand_types=True)
class Print(Operation):
    """Print ``prefix`` and the values, each element on a line with its program and index; in hexadecimal with
    ``hex``. ``signed`` says of each value whether an integer is signed."""

    values = operands(ANY)
    prefix = attribute(str, "")
    hex = attribute(bool, False)
    signed = attribute(tuple, ())

    infer = gives()


_PROMISE = Effects(writes=frozenset({"promises"}))
"""Stays, like a write, but orders no access to memory."""


@define("assume", effects=_PROMISE, removed_by="drop_assumptions", shows_operand_types=True)
class Assume(Operation):
    """A promise of the user that ``condition`` holds; analyses may use it. Removed before codegen."""

    condition = operand(BOOL)

    infer = gives()
