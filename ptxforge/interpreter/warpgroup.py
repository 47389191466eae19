"""Asynchronous matrix products: a product is computed when it starts, and what it reads must still be the
same when it was waited for."""

from __future__ import annotations

import numpy as np

from ptxforge.interpreter.control import results
from ptxforge.interpreter.registry import interprets
from ptxforge.ir.ops.dot import Dot, multiply_matrices
from ptxforge.ir.ops.warpgroup import DotAsync, DotBegin, DotOrZero, DotWait, FenceAsync
from ptxforge.support.errors import InterpreterError


@interprets(DotBegin)
def dot_begin(program, op, value):
    if not op.is_unset:
        return np.array(value)
    return np.full_like(value, np.iinfo(value.dtype).min if value.dtype.kind == "i" else np.nan)


@interprets(DotAsync)
def dot_async(program, op, a, b, c, adds=True):
    program.products.append([(source, np.array(source)) for source in (a, b)])
    left, right = Dot.as_held(a, op.a_unsigned), Dot.as_held(b, op.b_unsigned)
    products = multiply_matrices(left, right, c.dtype)
    return c + products if adds else products


@interprets(DotWait)
def dot_wait(program, op, *flights):
    while len(program.products) > op.pending:
        for source, was in program.products.pop(0):
            if not _is_same(source, was):
                raise InterpreterError("an operand of a matrix product was overwritten before its wait")
    return results(flights) if flights else None


@interprets(DotOrZero)
def dot_or_zero(program, op, value, ran):
    return value if ran else np.zeros_like(value)


@interprets(FenceAsync)
def fence_async(program, op):
    return None


def _is_same(one: np.ndarray, other: np.ndarray) -> bool:
    return np.ascontiguousarray(one).tobytes() == other.tobytes()
