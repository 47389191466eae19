"""The functions of CUDA's device library that kernels use, under its names.

They take float32 and float64 (integers where it says so), as there. The ``fast_`` ones are the ordinary functions,
which are fast already. Functions that the language has are the language's own.
"""

from __future__ import annotations

from ptxforge.language import arith, core, math
from ptxforge.language.math import (
    abs, ceil, cos, div_rn, erf, exp, exp2, floor, fma, log, log2, pow, rint, rsqrt, sin, sqrt, sqrt_rn, tan, tanh,
    trunc, umulhi,
)  # fmt: skip
from ptxforge.language.debug import static_assert
from ptxforge.language.registry import library
from ptxforge.language.types import float32, float64, int32, int64, uint32, uint64

__all__ = [
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "copysign", "cos",
    "cosh", "div_rn", "erf", "erfc", "exp", "exp10", "exp2", "fast_cosf", "fast_dividef", "fast_exp10f",
    "fast_expf", "fast_log10f", "fast_log2f", "fast_logf", "fast_powf", "fast_sinf", "fast_tanf", "fdim",
    "finitef", "float2int_rd", "float2int_rn", "float2int_ru", "float2int_rz", "floor", "fma", "fmax", "fmin",
    "fmod", "hypot", "isfinited", "isinf", "isnan", "llrint", "log", "log10", "log1p", "log2", "nearbyint",
    "popc", "pow", "rcp_rn", "rint", "round", "rsqrt", "signbit", "sin", "sinh", "sqrt", "sqrt_rn", "tan",
    "tanh", "trunc", "umulhi",
]  # fmt: skip

fast_expf = exp
fast_logf = log
fast_log2f = log2
fast_sinf = sin
fast_cosf = cos
fast_tanf = tan
fast_powf = pow
nearbyint = rint


@library
def fast_dividef(x, y):
    """x/y."""
    return math.fdiv(x, y)


@library
def rcp_rn(x):
    """1/x, rounded to nearest even."""
    return math.div_rn(1.0, x)


@library
def fmin(x, y):
    """The smaller one; a NaN loses against a number."""
    return arith.minimum(x, y)


@library
def fmax(x, y):
    """The larger one; a NaN loses against a number."""
    return arith.maximum(x, y)


@library
def fdim(x, y):
    """``x - y`` where that is positive, else 0."""
    return arith.where(x <= y, 0.0, x - y)


@library
def fmod(x, y):
    """The remainder of x/y, with x's sign."""
    return x % y


@library
def isnan(x):
    """Whether x is a NaN, as int1."""
    return x != x


@library
def isinf(x):
    """Whether x is an infinity, as int1."""
    return math.abs(x) == float("inf")


@library
def finitef(x):
    """Whether x is neither infinite nor a NaN, as int1."""
    return math.abs(x) < float("inf")


isfinited = finitef


@library
def signbit(x):
    """Whether the sign bit is set (of -0.0 and of NaNs, too), as int1."""
    if x.dtype == float64:
        return x.to(int64, bitcast=True) < 0
    else:
        return x.to(int32, bitcast=True) < 0


@library
def copysign(x, y):
    """|x| with the sign of y."""
    return arith.where(signbit(y), -math.abs(x), math.abs(x))


@library
def round(x):
    """The nearest integer, halves away from zero."""
    whole = math.trunc(x)
    return arith.where(
        math.abs(x - whole) >= 0.5, whole + copysign(core.full(x.shape, 1.0, x.dtype), x), whole
    )


@library
def float2int_rn(x):
    """To int32, to nearest even."""
    return math.rint(x).to(int32)


@library
def float2int_rz(x):
    """To int32, towards zero."""
    return x.to(int32)


@library
def float2int_rd(x):
    """To int32, down."""
    return math.floor(x).to(int32)


@library
def float2int_ru(x):
    """To int32, up."""
    return math.ceil(x).to(int32)


@library
def llrint(x):
    """To int64, to nearest even."""
    return math.rint(x).to(int64)


@library
def popc(x):
    """The number of bits set in a 32- or 64-bit integer, int32 (Warren, Hacker's Delight, section 5-1)."""
    if x.dtype.primitive_bitwidth == 64:
        bits = x.to(uint64)
        return popc32((bits & 0xFFFFFFFF).to(uint32)) + popc32((bits >> 32).to(uint32))
    else:
        return popc32(x.to(uint32))


@library
def popc32(x):
    """The number of bits set in a uint32, int32."""
    x = x - ((x >> 1) & 0x55555555)
    x = (x & 0x33333333) + ((x >> 2) & 0x33333333)
    x = (x + (x >> 4)) & 0x0F0F0F0F
    return (x * 0x01010101 >> 24).to(int32)


# -- inverse trigonometric functions ------------------------------------------------------------------------


@library
def atan(x):
    """Arc tangent of float32 (S. L. Moshier, Cephes mathematical library, atanf: two reductions, degree 9)."""
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
    """The angle of the point (x, y), in [-π, π]; float32."""
    angle = atan(math.abs(y) / arith.where(x == 0.0, 1.0, math.abs(x)))
    angle = arith.where(x == 0.0, arith.where(y == 0.0, 0.0, 1.5707963267948966), angle)
    return copysign(arith.where(signbit(x), 3.141592653589793 - angle, angle), y)


@library
def asin(x):
    """Arc sine of float32."""
    return atan2(x, math.sqrt((1.0 - x) * (1.0 + x)))


@library
def acos(x):
    """Arc cosine of float32."""
    return atan2(math.sqrt((1.0 - x) * (1.0 + x)), x)


# -- built from exponentials and logarithms ----------------------------------------------------------------


@library
def exp10(x):
    """10**x."""
    return math.pow(10.0, x)


fast_exp10f = exp10


@library
def log10(x):
    """Logarithm to base 10."""
    return math.log(x) * 0.4342944819032518


fast_log10f = log10


@library
def log1p(x):
    """log(1 + x), accurate near 0 (W. Kahan: the rounding error of 1 + x is divided out)."""
    sum = 1.0 + x
    is_tiny = sum == 1.0
    safe = arith.where(is_tiny, 1.0, sum - 1.0)
    return arith.where(is_tiny, x, arith.where(sum == float("inf"), sum, math.log(sum) * (x / safe)))


@library
def erfc(x):
    """1 - erf(x); relative accuracy is lost for large x."""
    return 1.0 - math.erf(x)


@library
def sinh(x):
    """Hyperbolic sine; absolute accuracy near 0 is that of exp."""
    power = math.exp(x)
    return 0.5 * (power - 1.0 / power)


@library
def cosh(x):
    """Hyperbolic cosine."""
    power = math.exp(x)
    return 0.5 * (power + 1.0 / power)


@library
def asinh(x):
    """Inverse hyperbolic sine."""
    size = math.abs(x)
    return copysign(log1p(size + size * size / (1.0 + math.sqrt(size * size + 1.0))), x)


@library
def acosh(x):
    """Inverse hyperbolic cosine of x ≥ 1."""
    above = x - 1.0
    return log1p(above + math.sqrt(above * (above + 2.0)))


@library
def atanh(x):
    """Inverse hyperbolic tangent."""
    return 0.5 * log1p(2.0 * x / (1.0 - x))


@library
def hypot(x, y):
    """sqrt(x² + y²), scaled so that squares do not overflow."""
    large = arith.maximum(math.abs(x), math.abs(y))
    small = arith.minimum(math.abs(x), math.abs(y))
    ratio = arith.where(large == 0.0, 0.0, small / large)
    return large * math.sqrt(1.0 + ratio * ratio)


@library
def cbrt(x):
    """Cube root."""
    return copysign(arith.where(x == 0.0, 0.0, math.pow(math.abs(x), 1.0 / 3.0)), x)
