"""Exact results of arithmetic on floats, and how results are compared with them."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from ptxforge.ir import types as T
from tests.ops.references import round_float


def exact(operation, x: float, y: float, type: T.ScalarType) -> float:
    """The rounded exact result; special values by Python's own arithmetic."""
    if not (math.isfinite(x) and math.isfinite(y)) or (operation == "/" and y == 0):
        with np.errstate(all="ignore"):
            a, b = np.float64(x), np.float64(y)
            return float({"+": a + b, "-": a - b, "*": a * b, "/": a / b}[operation])
    a, b = Fraction(x), Fraction(y)
    value = {"+": a + b, "-": a - b, "*": a * b, "/": b and a / b}[operation]
    if value == 0:
        return {"+": x + y, "-": x - y, "*": x * y, "/": math.copysign(0.0, x) * math.copysign(1.0, y)}[
            operation
        ]
    return math.copysign(round_float(value, type), 1 if value > 0 else -1)


def same_floats(actual: np.ndarray, expected: np.ndarray) -> None:
    """Equal values, NaN where NaN is due, and the same sign of zero."""
    with np.errstate(invalid="ignore"):  # signalling NaNs
        actual, expected = np.asarray(actual).astype(np.float64), np.asarray(expected, np.float64)
    np.testing.assert_array_equal(actual, expected)
    zero = expected == 0
    np.testing.assert_array_equal(np.signbit(actual[zero]), np.signbit(expected[zero]))
