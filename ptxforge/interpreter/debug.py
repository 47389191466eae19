"""Assertions, assumptions and printing."""

from __future__ import annotations

import numpy as np

from ptxforge.interpreter.registry import interprets
from ptxforge.ir.ops.debug import Assert, Assume, Print, index_widths
from ptxforge.support.errors import InterpreterError


@interprets(Assert)
def run_assert(program, op, condition):
    _require(condition, f"assertion failed: {op.message}" if op.message else "assertion failed")


@interprets(Assume)
def assume(program, op, condition):
    _require(condition, "what the kernel assumes does not hold")


def _require(condition, message: str) -> None:
    condition = np.asarray(condition)
    if not condition.all():
        place = np.argwhere(~np.atleast_1d(condition))[0]
        raise InterpreterError(
            message if condition.ndim == 0 else f"{message}, at index {tuple(map(int, place))}"
        )


@interprets(Print)
def run_print(program, op, *values):
    program_text = ", ".join(str(i) for i in program.index)
    if not values:
        program.output(f"pid ({program_text}){op.prefix}")
    for number, value in enumerate(values):
        widths = index_widths(np.shape(value))
        for place in np.ndindex(np.shape(value)):
            index = ", ".join(f"{i:{width}}" for i, width in zip(place, widths))
            element = _text(np.asarray(value)[place], op.is_signed(number), op.hex)
            program.output(f"pid ({program_text}) idx ({index}){op.label(number)}{element}")


def _text(value, signed: bool, hexadecimal: bool) -> str:
    if hexadecimal and value.dtype != np.bool_:
        size = value.dtype.itemsize
        return f"0x{int(value.view(np.dtype(f'u{size}'))):0{2 * size}x}"
    if value.dtype.kind == "i" and not signed:
        return str(value.view(np.dtype(f"u{value.dtype.itemsize}")))
    return str(value)
