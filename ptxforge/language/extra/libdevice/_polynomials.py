"""Polynomials with tables of coefficients, and sums that keep what is rounded away."""

from __future__ import annotations

from ptxforge.language import arith, core, math
from ptxforge.language.constexpr import constexpr
from ptxforge.language.debug import static_assert
from ptxforge.language.registry import library
from ptxforge.language.types import float32, float64


@library
def check_type(x):
    """Refuse what is neither float32 nor float64."""
    static_assert((x.dtype == float32) | (x.dtype == float64), "the function takes float32 and float64")


@library
def polynomial(x, coefficients: constexpr):
    """The polynomial of these coefficients, of highest degree first, by Horner's rule."""
    check_type(x)
    value = core.full(x.shape, coefficients[0], x.dtype)
    for i in core.static_range(1, len(coefficients)):
        value = math.fma(value, x, coefficients[i])
    return value


@library
def polynomial_between(x, low: constexpr, high: constexpr, coefficients: constexpr):
    """A polynomial in ``x`` from ``low`` to ``high``, mapped to [-1, 1]."""
    return polynomial((x - (low + high) * 0.5) * (2.0 / (high - low)), coefficients)


@library
def _choice(x, values: constexpr, edges: constexpr):
    """The value of the piece that ``x`` is in: ``values[i]`` from ``edges[i]`` on."""
    chosen = core.full(x.shape, values[0], x.dtype)
    for i in core.static_range(1, len(values)):
        chosen = arith.where(x >= edges[i], values[i], chosen)
    return chosen


@library
def polynomials_between(x, edges: constexpr, rows: constexpr):
    """A polynomial for each piece of ``x`` between neighbouring ``edges``, mapped to [-1, 1]."""
    count: constexpr = len(rows)
    centre = _choice(x, [(edges[i] + edges[i + 1]) * 0.5 for i in range(count)], edges)
    scale = _choice(x, [2.0 / (edges[i + 1] - edges[i]) for i in range(count)], edges)
    z = (x - centre) * scale
    value = _choice(x, [row[0] for row in rows], edges)
    for i in core.static_range(1, len(rows[0])):
        value = math.fma(value, z, _choice(x, [row[i] for row in rows], edges))
    return value


@library
def two_sum(x, y):
    """``x + y`` rounded, and what that lost (D. E. Knuth, *The Art of Computer Programming*, volume 2)."""
    total = x + y
    shadow = total - x
    return total, (x - (total - shadow)) + (y - shadow)


@library
def two_product(x, y):
    """``x * y`` rounded, and what that lost."""
    check_type(x)
    product = x * y
    return product, math.fma(x, y, -product)
