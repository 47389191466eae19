"""Trigonometric functions of multiples of π, and inverse ones."""

from __future__ import annotations

from ptxforge.language import arith, math
from ptxforge.language.debug import static_assert
from ptxforge.language.extra.libdevice._floats import _is_negative, copysign
from ptxforge.language.registry import library
from ptxforge.language.types import float32


@library
def _quadrant(x):
    """(q, r) with ``x = q / 2 + r`` modulo 2, ``r`` in [-1/4, 1/4] and ``q`` in -2 … 2."""
    turn = x - 2.0 * math.rint(0.5 * x)
    quadrant = math.rint(2.0 * turn)
    return quadrant, turn - 0.5 * quadrant


@library
def sinpi(x):
    """sin(π · ``x``), within 3 ulp; exact zeros at integers, with the sign of ``x``. Of infinities NaN."""
    quadrant, rest = _quadrant(x)
    is_odd = math.abs(quadrant) == 1.0
    angle = 3.141592653589793 * rest
    value = arith.where(is_odd, math.cos(angle) * quadrant, math.sin(angle))
    value = arith.where(math.abs(quadrant) == 2.0, -value, value)
    return arith.where(value == 0.0, copysign(value, x), value)


@library
def cospi(x):
    """cos(π · ``x``), within 3 ulp; exact zeros at halves. Of infinities NaN."""
    quadrant, rest = _quadrant(x)
    is_odd = math.abs(quadrant) == 1.0
    angle = 3.141592653589793 * rest
    value = arith.where(is_odd, -math.sin(angle) * quadrant, math.cos(angle))
    value = arith.where(math.abs(quadrant) == 2.0, -value, value)
    return arith.where(value == 0.0, 0.0, value)


@library
def atan(x):
    """Arc tangent of ``x`` in radians; float32 within 5 ulp, no other type.

    S. L. Moshier, *Cephes mathematical library*, atanf: two reductions, then a polynomial of degree 9.
    atan(±inf) is ±π/2.
    """
    static_assert(x.dtype == float32, "atan() takes float32")
    size = math.abs(x)
    is_large = size > 2.414213562373095  # tan(3π/8)
    is_middle = (size > 0.4142135623730950) & (size <= 2.414213562373095)  # tan(π/8)
    start = arith.where(is_large, 1.5707963267948966, arith.where(is_middle, 0.7853981633974483, 0.0))
    top = arith.where(is_large, -1.0, arith.where(is_middle, size - 1.0, size))
    bottom = arith.where(is_large, size, arith.where(is_middle, size + 1.0, 1.0))
    t = top / bottom
    z = t * t
    series = ((8.05374449538e-2 * z - 1.38776856032e-1) * z + 1.99777106478e-1) * z - 3.33329491539e-1
    return copysign(start + (series * z * t + t), x)


@library
def atan2(y, x):
    """The angle of the point (``x``, ``y``) in radians, in [-π, π]; float32 within 5 ulp, no other type.

    Zeros and infinities as C's ``atan2``: the signs of zeros count, and of two infinities the angle is ±π/4
    or ±3π/4.
    """
    width, height = math.abs(x), math.abs(y)
    angle = atan(arith.where(width == height, 1.0, height / arith.where(width == 0.0, 1.0, width)))
    angle = arith.where(width == 0.0, arith.where(height > 0.0, 1.5707963267948966, height), angle)
    return copysign(arith.where(_is_negative(x), 3.141592653589793 - angle, angle), y)


@library
def asin(x):
    """Arc sine of ``x`` in radians; float32 within 6 ulp, no other type. NaN outside [-1, 1]."""
    return atan2(x, math.sqrt((1.0 - x) * (1.0 + x)))


@library
def acos(x):
    """Arc cosine of ``x`` in radians, in [0, π]; float32 within 6 ulp, no other type. NaN outside [-1, 1]."""
    return atan2(math.sqrt((1.0 - x) * (1.0 + x)), x)
