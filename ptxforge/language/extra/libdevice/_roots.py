"""Roots and lengths."""

from __future__ import annotations

from ptxforge.language import arith, core, math
from ptxforge.language.constexpr import constexpr
from ptxforge.language.extra.libdevice._floats import copysign
from ptxforge.language.extra.libdevice._polynomials import two_product, two_sum
from ptxforge.language.registry import library
from ptxforge.language.types import float32, float64

# -- lengths -----------------------------------------------------------------------------------------------


@library
def _scale(large):
    """The power of two that brings ``large`` to where squares neither overflow nor vanish."""
    wide: constexpr = large.dtype == float64
    huge: constexpr = 1e150 if wide else 1e18
    down: constexpr = 2.0**-600 if wide else 2.0**-80
    return arith.where(large > huge, down, arith.where(large < 1.0 / huge, 1.0 / down, 1.0))


@library
def _sum_of_squares(values):
    """The sum of squares in two parts."""
    total, rest = two_product(values[0], values[0])
    for i in core.static_range(1, len(values)):
        square, lost = two_product(values[i], values[i])
        total, more = two_sum(total, square)
        rest += lost + more
    return total, rest


@library
def _scaled_values(values):
    """The magnitudes of ``values`` scaled by a power of two, that scale, and whether one is infinite."""
    sizes = [math.abs(value) for value in values]
    large = sizes[0]
    is_infinite = sizes[0] == float("inf")
    for i in core.static_range(1, len(values)):
        large = arith.maximum(large, sizes[i])
        is_infinite = is_infinite | (sizes[i] == float("inf"))
    scale = _scale(arith.where(is_infinite, 1.0, large))
    return [arith.where(is_infinite, 1.0, size * scale) for size in sizes], scale, is_infinite


@library
def _length(values):
    """The root of the sum of squares: infinite where one is, even beside a NaN."""
    sizes, scale, is_infinite = _scaled_values(values)
    total, rest = _sum_of_squares(sizes)
    root = math.sqrt_rn(total)
    safe = arith.where(total > 0.0, root, 1.0)
    better = root + math.div_rn(math.fma(-root, root, total) + rest, safe + safe)
    return arith.where(is_infinite, float("inf"), arith.where(total > 0.0, better, total) * (1.0 / scale))


@library
def _inverse_length(values):
    """One over the root of the sum of squares: 0 where one is infinite, even beside a NaN; inf of zeros."""
    sizes, scale, is_infinite = _scaled_values(values)
    total, rest = _sum_of_squares(sizes)
    safe = arith.where(total > 0.0, total, 1.0)
    root = math.div_rn(1.0, math.sqrt_rn(safe))
    # Newton's step with 1 - total · root² in two parts.
    square, lost = two_product(root, root)
    error = math.fma(-safe, square, 1.0) - math.fma(safe, lost, rest * square)
    better = math.fma(root * 0.5, error, root) * scale
    better = arith.where(total > 0.0, better, arith.where(total == 0.0, float("inf"), total))
    return arith.where(is_infinite, 0.0, better)


@library
def hypot(x, y):
    """sqrt(x² + y²) of ``x`` and ``y``, scaled so that squares do not overflow: within 1 ulp.

    Infinite where one of them is, even beside a NaN.
    """
    return _length([x, y])


@library
def rhypot(x, y):
    """``1 / hypot(x, y)``: within 1 ulp. 0 where one of them is infinite, even beside a NaN."""
    return _inverse_length([x, y])


@library
def norm3d(x, y, z):
    """sqrt(x² + y² + z²) of ``x``, ``y`` and ``z`` without overflow of squares: within 1 ulp."""
    return _length([x, y, z])


@library
def norm4d(x, y, z, w):
    """sqrt(x² + y² + z² + w²) of ``x``, ``y``, ``z`` and ``w`` without overflow of squares: within 1 ulp."""
    return _length([x, y, z, w])


@library
def rnorm3d(x, y, z):
    """``1 / norm3d(x, y, z)``: within 1 ulp."""
    return _inverse_length([x, y, z])


@library
def rnorm4d(x, y, z, w):
    """``1 / norm4d(x, y, z, w)``: within 1 ulp."""
    return _inverse_length([x, y, z, w])


# -- roots -------------------------------------------------------------------------------------------------


@library
def rsqrt_rn(x):
    """``1 / sqrt(x)`` of a float32, rounded exactly to nearest even: by way of float64, in which no result is
    so near the middle between two float32 that its own rounding would matter."""
    wide = x.to(float64)
    return math.div_rn(1.0, math.sqrt_rn(wide)).to(float32)


@library
def _cube_root(x):
    """(root, what it lacks of the exact one) for a positive finite ``x``: a power, then Newton's method with
    the cube in two parts."""
    root = math.pow(x, 1.0 / 3.0)
    square, lost = two_product(root, root)
    error = math.fma(-square, root, x) - lost * root
    lack = math.div_rn(error, square * 3.0)
    better = root + lack
    return better, (root - better) + lack


@library
def _usual(x):
    """``x`` scaled by a power of eight where its cube root's cube would lose bits, and the root's scale."""
    is_small = x < (1e-250 if x.dtype == float64 else 1e-30)
    return arith.where(is_small, x * (2.0**150 if x.dtype == float64 else 2.0**60), x), arith.where(
        is_small, 2.0**-50 if x.dtype == float64 else 2.0**-20, 1.0
    )


@library
def cbrt(x):
    """Cube root of ``x``, of negative numbers too: within 1 ulp. cbrt(-0.0) is -0.0, cbrt(±inf) is ±inf."""
    size = math.abs(x)
    is_special = (size == 0.0) | (size == float("inf"))
    usual, scale = _usual(arith.where(is_special, 1.0, size))
    root, _ = _cube_root(usual)
    return copysign(arith.where(is_special, size, root * scale), x)


@library
def rcbrt(x):
    """``1 / cbrt(x)`` of ``x``: within 1 ulp. rcbrt(±0.0) is ±inf, rcbrt(±inf) is ±0.0."""
    size = math.abs(x)
    is_special = (size == 0.0) | (size == float("inf"))
    usual, scale = _usual(arith.where(is_special, 1.0, size))
    root, lack = _cube_root(usual)
    inverse = math.div_rn(1.0, root)
    error = math.fma(-inverse, root, 1.0) - inverse * lack
    value = math.fma(inverse, error, inverse) * (1.0 / scale)
    return copysign(arith.where(is_special, math.div_rn(1.0, size), value), x)
