"""Between which numbers the results of operations lie.

Limits are the least and the greatest number that an element can be, of integers as signed ones, of floats as
finite ones: what has limits is no NaN. Operations say what follows for their results
(``Operation.limits``), by the functions here, as if nothing could wrap; whoever asks looks whether what comes
out fits the type (``fit``).
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from typing import Any

from ptxforge.ir import types as T

Limits = tuple[int, int] | tuple[float, float]
"""The least and the greatest that a value can be."""

_SLACK = {T.F32: 2.0**-21, T.F64: 2.0**-50}
"""What a rounding of an element type moves a number at most, by its size, and some more: whether a product is
rounded before it is added to something is decided later."""
_GREATEST = 2.0**100


def fit(found: Limits, element: T.Type) -> bool:
    """Whether an element type holds all numbers within the limits."""
    if element.is_float:
        return element in _SLACK and -_GREATEST <= found[0] and found[1] <= _GREATEST
    half = 1 << (element.bits - 1)
    return -half <= found[0] and found[1] < half


def of_type(type: T.Type) -> Limits | None:
    """Of all integers of an element type, signed; floats and pointers have none."""
    element = T.element_type(type)
    if not isinstance(element, T.ScalarType) or element.is_float:
        return None
    half = 1 << (element.bits - 1)
    return -half, half - 1


def hull(left: Limits | None, right: Limits | None) -> Limits | None:
    """Of what is one of two values."""
    if left is None or right is None:
        return None
    return min(left[0], right[0]), max(left[1], right[1])


def of_corners(function: Callable[[Any, Any], Any], left: Limits | None, right: Limits | None):
    """Of a function that is monotonic in either argument."""
    if left is None or right is None:
        return None
    found = list(itertools.starmap(function, itertools.product(left, right)))
    return min(found), max(found)


def rounded(found: Limits | None, type: T.Type) -> Limits | None:
    """Of numbers within the limits that are rounded to a float."""
    slack = _SLACK.get(T.element_type(type))
    if found is None or slack is None:
        return None
    margin = max(abs(found[0]), abs(found[1])) * slack
    return found[0] - margin, found[1] + margin


def product(left: Limits | None, right: Limits | None) -> Limits | None:
    """Of a product."""
    return of_corners(operator.mul, left, right)


def least(left: Limits | None, right: Limits | None) -> Limits | None:
    """Of a minimum."""
    return of_corners(min, left, right)


def greatest(left: Limits | None, right: Limits | None) -> Limits | None:
    """Of a maximum."""
    return of_corners(max, left, right)


def quotient(left: Limits | None, right: Limits | None) -> Limits | None:
    """Of a quotient by what is greater than 0, truncated."""
    if right is None or right[0] <= 0:
        return None
    return of_corners(lambda x, y: -(-x // y) if x < 0 else x // y, left, right)


def remainder(left: Limits | None, right: Limits | None) -> Limits | None:
    """Of a remainder by what is greater than 0, with the dividend's sign."""
    if right is None or right[0] <= 0:
        return None
    most = right[1] - 1
    low, high = left or (-most, most)
    return max(-most, min(0, low)), min(most, max(0, high))


def conjunction(left: Limits | None, right: Limits | None) -> Limits | None:
    """Of bits that both of two numbers have."""
    most = [found[1] for found in (left, right) if found is not None and found[0] >= 0]
    return (0, min(most)) if most else None


def either(left: Limits | None, right: Limits | None) -> Limits | None:
    """Of bits that either of two numbers has, or one of them."""
    if left is None or right is None or min(left[0], right[0]) < 0:
        return None
    return 0, (1 << max(left[1], right[1]).bit_length()) - 1


def shifted_left(number: Limits | None, by: Limits | None) -> Limits | None:
    """Of a shift to the left by a constant from 0 to 31."""
    return _shifted(operator.lshift, number, by)


def shifted_right(number: Limits | None, by: Limits | None) -> Limits | None:
    """Of a shift to the right, with the sign, by a constant from 0 to 31."""
    return _shifted(operator.rshift, number, by)


def _shifted(shift: Callable[[int, int], int], number: Limits | None, by: Limits | None) -> Limits | None:
    if number is None or by is None or by[0] != by[1] or not 0 <= by[0] < 32:
        return None
    return shift(number[0], by[0]), shift(number[1], by[0])
