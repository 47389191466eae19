"""Operations with regions: structured control flow, reductions and scans.

A combining region runs on whole arrays, log2(n) times. The elements' order is kept (an associative region is
enough): a reduction combines neighbours, a scan combines each element with the one 1, 2, 4, … places before
it (Hillis and Steele, 1986).
"""

from __future__ import annotations

import numpy as np

from ptxforge.interpreter.registry import interprets
from ptxforge.ir.ops.control import For, If, Recompute, While
from ptxforge.ir.ops.reduce import Reduce
from ptxforge.support.errors import InterpreterError


@interprets(Recompute)
def recompute(program, op, *values):
    return None


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


@interprets(Reduce)
def reduce(program, op, *inputs):
    arrays = [np.moveaxis(x, op.axis, 0) for x in inputs]
    while len(arrays[0]) > 1:
        arrays = combine(program, op, [x[0::2] for x in arrays], [x[1::2] for x in arrays])
    return results([x[0] for x in arrays])


def scanned(program, op, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """The scan of arrays along their first axis."""
    if op.reverse:
        arrays = [x[::-1] for x in arrays]
    distance, length = 1, len(arrays[0])
    while distance < length:
        later = combine(program, op, [x[:-distance] for x in arrays], [x[distance:] for x in arrays])
        arrays = [np.concatenate([x[:distance], y]) for x, y in zip(arrays, later)]
        distance *= 2
    if op.reverse:
        arrays = [x[::-1] for x in arrays]
    return arrays


def combine(program, op, left: list[np.ndarray], right: list[np.ndarray]) -> list[np.ndarray]:
    """The region on corresponding elements of ``left`` and ``right``."""
    if not any(inner.regions for inner in op.combine.operations):
        found = program.block(op.combine, (*left, *right))
        return [np.broadcast_to(x, y.shape) for x, y in zip(found, left)]
    # Control flow in the region decides for each element alone.
    combined = [np.empty_like(x) for x in left]
    for place in np.ndindex(left[0].shape):
        found = program.block(op.combine, [x[place] for x in (*left, *right)])
        for array, value in zip(combined, found):
            array[place] = value
    return combined
