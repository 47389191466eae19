"""Dimensions of a tensor of which a tile has one index: masks say so by conditions that are alike for all of
its elements.

    load (%b + %e·%K·%N + …), mask … and (%e < %E) and (%e >= 0)

is of a tensor of ``%E`` matrices, ``%K·%N`` elements apart, and of matrix ``%e`` in it: a box of one along
that dimension reads zeros where there is no such matrix, whatever ``%e`` turns out to be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import attrs

from ptxforge.ir import types as T
from ptxforge.ir.core import Value
from ptxforge.passes.analysis.linear_forms import Monomial, NotLinear, Polynomial, add, constant, multiply
from ptxforge.passes.analysis.sign import is_nonnegative

IsKnown = Callable[[Value], bool]


@attrs.frozen
class Dropped:
    """``stride``, of one term, times ``coordinate`` is a part of the address; there is something from 0 to
    ``size``."""

    stride: Polynomial
    coordinate: Polynomial
    size: Polynomial


def dropped_dimensions(
    start: Polynomial, conditions: list[Polynomial], is_known: IsKnown
) -> tuple[Polynomial, list[Dropped]]:
    """What is left of the address ``start``, and the dimensions that ``conditions`` bound, each that a
    polynomial is above 0; ``is_known``: strides and sizes may be made of it. Raises :class:`NotLinear`."""
    left, found = list(conditions), []
    while left:
        used, dropped = next(_found_in(start, left, is_known), (None, None))
        if dropped is None:
            raise NotLinear("the mask asks what is no index of a row, a column, or another dimension")
        start = add(start, multiply(dropped.coordinate, dropped.stride), -1)
        left = [condition for condition in left if not any(condition is one for one in used)]
        found.append(dropped)
    return start, found


def _found_in(
    start: Polynomial, conditions: list[Polynomial], is_known: IsKnown
) -> Iterator[tuple[tuple[Polynomial, ...], Dropped]]:
    """Pairs of conditions ``size - coordinate`` and ``coordinate + 1``; the former alone where the coordinate
    is not negative anyway."""
    pairs = [
        (upper, (upper, low), add(low, constant(1), -1))
        for upper in conditions for low in conditions if low is not upper
    ]  # fmt: skip
    alone = [(upper, (upper,), {m: -c for m, c in upper.items() if m and c < 0}) for upper in conditions]
    alone = [one for one in alone if all(is_nonnegative(v) for monomial in one[2] for v in monomial)]
    for upper, used, coordinate in (*pairs, *alone):
        stride = _stride(coordinate, start, is_known)
        if stride is None:
            continue
        if len(used) == 1:
            coordinate = add(coordinate, _constant_part(start, stride))
        size = add(upper, coordinate)
        is_bound = all(is_known(v) for monomial in size for v in monomial)
        is_short = not any(v.type is T.I64 for monomial in coordinate for v in monomial)
        if is_bound and is_short and (set(size) - {()} or size.get((), 0) > 0):
            yield used, Dropped(stride, coordinate, size)


def _constant_part(start: Polynomial, stride: Polynomial) -> Polynomial:
    """How often ``start`` has ``stride`` alone: with ``%k·stride``, of index ``%k + 1``."""
    ((factors, number),) = stride.items()
    count, rest = divmod(start.get(factors, 0), number)
    return constant(count) if factors and count > 0 == rest else {}


def _stride(coordinate: Polynomial, start: Polynomial, is_known: IsKnown) -> Polynomial | None:
    """What ``start`` has ``coordinate`` times."""
    first = max(coordinate, key=len, default=())
    for monomial, coefficient in sorted(start.items(), key=lambda item: -len(item[0])) if first else ():
        factors = _without(monomial, first)
        if factors is None or not all(map(is_known, factors)):
            continue
        number, rest = divmod(coefficient, coordinate[first])
        product = multiply(coordinate, {factors: number})
        if number > 0 == rest and product.keys().isdisjoint(add(start, product, -1)):
            return {factors: number}
    return None


def _without(monomial: Monomial, factors: Monomial) -> Monomial | None:
    """A product without some of its factors; ``None`` if it does not have them."""
    left = list(monomial)
    for factor in factors:
        if factor not in left:
            return None
        left.remove(factor)
    return tuple(left)
