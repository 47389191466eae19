"""Asynchronous matrix products: a product is computed when it starts, and what it reads must still be the
same when it was waited for."""

from __future__ import annotations

import numpy as np

from ptxforge.interpreter.control import results
from ptxforge.interpreter.registry import interprets
from ptxforge.ir.ops.dot import Dot, multiply_matrices
from ptxforge.ir.ops.warpgroup import DotAsync, DotBegin, DotWait, FenceAsync
from ptxforge.support.errors import InterpreterError


@interprets(DotBegin)
def dot_begin(program, op, value):
    return np.array(value)


@interprets(DotAsync)
def dot_async(program, op, a, b, c):
    program.products.append([(source, np.array(source)) for source in (a, b)])
    left, right = Dot.as_held(a, op.a_unsigned), Dot.as_held(b, op.b_unsigned)
    return c + multiply_matrices(left, right, c.dtype)


@interprets(DotWait)
def dot_wait(program, op, *flights):
    while len(program.products) > op.pending:
        for source, was in program.products.pop(0):
            if not _is_same(source, was):
                raise InterpreterError("an operand of a matrix product was overwritten before its wait")
    return results(flights) if flights else None


@interprets(FenceAsync)
def fence_async(program, op):
    return None


def _is_same(one: np.ndarray, other: np.ndarray) -> bool:
    return np.ascontiguousarray(one).tobytes() == other.tobytes()
