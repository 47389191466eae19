"""Roots and lengths."""

from __future__ import annotations

from ptxforge.language import arith, math
from ptxforge.language.extra.libdevice._floats import copysign
from ptxforge.language.registry import library
from ptxforge.language.types import PropagateNan


@library
def hypot(x, y):
    """sqrt(x² + y²) of ``x`` and ``y``, scaled so that squares do not overflow: within 4 ulp.

    Infinite where one of them is, even beside a NaN.
    """
    width, height = math.abs(x), math.abs(y)
    large = arith.maximum(width, height, PropagateNan.ALL)
    small = arith.minimum(width, height, PropagateNan.ALL)
    ratio = arith.where(large == 0.0, 0.0, small / large)
    is_infinite = (width == float("inf")) | (height == float("inf"))
    return arith.where(is_infinite, float("inf"), large * math.sqrt(1.0 + ratio * ratio))


@library
def cbrt(x):
    """Cube root of ``x``, of negative numbers too: within 2 ulp. cbrt(-0.0) is -0.0, cbrt(±inf) is ±inf.

    From a power, with one step of Newton's method.
    """
    size = math.abs(x)
    is_special = (size == 0.0) | (size == float("inf"))
    root = math.pow(arith.where(is_special, 1.0, size), 1.0 / 3.0)
    better = root - (root - size / (root * root)) * (1.0 / 3.0)
    return copysign(arith.where(is_special, size, better), x)


@library
def rcbrt(x):
    """``1 / cbrt(x)`` of ``x``: within 3 ulp. rcbrt(±0.0) is ±inf, rcbrt(±inf) is ±0.0."""
    return math.div_rn(1.0, cbrt(x))


@library
def rhypot(x, y):
    """``1 / hypot(x, y)``: within 6 ulp."""
    return math.div_rn(1.0, hypot(x, y))


@library
def norm3d(x, y, z):
    """sqrt(x² + y² + z²) of ``x``, ``y`` and ``z`` without overflow of squares: within 7 ulp."""
    return hypot(hypot(x, y), z)


@library
def norm4d(x, y, z, w):
    """sqrt(x² + y² + z² + w²) of ``x``, ``y``, ``z`` and ``w`` without overflow of squares: within 7 ulp."""
    return hypot(hypot(x, y), hypot(z, w))


@library
def rnorm3d(x, y, z):
    """``1 / norm3d(x, y, z)``: within 9 ulp."""
    return math.div_rn(1.0, norm3d(x, y, z))


@library
def rnorm4d(x, y, z, w):
    """``1 / norm4d(x, y, z, w)``: within 9 ulp."""
    return math.div_rn(1.0, norm4d(x, y, z, w))
