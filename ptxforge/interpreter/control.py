"""Structured control flow and the program's place in the grid."""

from __future__ import annotations

import numpy as np

from ptxforge.interpreter.registry import interprets
from ptxforge.ir.ops.control import For, If, While
from ptxforge.support.errors import InterpreterError


@interprets(If)
def run_if(program, op, condition):
    values = program.block(op.then_block if condition else op.else_block, ())
    return results(values)


@interprets(For)
def run_for(program, op, lower, upper, step, *carried):
    if step <= 0:
        raise InterpreterError(f"the step of a loop must be positive, it is {step}")
    counter = op.induction.type.numpy.type
    for value in range(int(lower), int(upper), int(step)):
        carried = program.block(op.body, (counter(value), *carried))
    return results(carried)


@interprets(While)
def run_while(program, op, *carried):
    while True:
        proceed, *carried = program.block(op.before, carried)
        if not np.any(proceed):
            return results(carried)
        carried = program.block(op.body, carried)


def results(values):
    """Values as a handler gives them: one alone, several as a tuple."""
    return values[0] if len(values) == 1 else tuple(values)
