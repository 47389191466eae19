"""The functions of CUDA's device library that kernels use, under its names.

Arguments are blocks, scalars or numbers of float32 or float64 (integers where it says so), and results have
their type and shape; other types are compile-time errors (``TypeMismatchError``), and where a function takes
float32 alone an error says so. Functions that the language has are the language's own
(:mod:`ptxforge.language.math`); the ``fast_`` ones are the ordinary functions, which are fast already.

Accuracies are maximal errors in units in the last place (ulp) over the whole range of arguments, measured
against exact values in the tests for float32 and for float64, and allowing for 2 ulp of each ``ex2.approx``
and ``div.full`` (PTX ISA). Special values are those of C's ``math.h``.

    from ptxforge.language.extra import libdevice

    angle = libdevice.atan2(y, x)
"""

from __future__ import annotations

from ptxforge.language import arith, core, math
from ptxforge.language.constexpr import constexpr
from ptxforge.language.debug import static_assert
from ptxforge.language.math import (
    abs,
    ceil,
    cos,
    div_rn,
    erf,
    exp,
    exp2,
    floor,
    fma,
    log,
    log2,
    pow,
    rint,
    rsqrt,
    sin,
    sqrt,
    sqrt_rn,
    tan,
    tanh,
    trunc,
    umulhi,
)
from ptxforge.language.registry import constexpr_function, library
from ptxforge.language.types import PropagateNan, float32, float64, int32, int64, uint32, uint64

__all__ = [
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "brev", "cbrt", "ceil", "clz",
    "copysign", "cos", "cosh", "cospi", "div_rn", "double2float_rn", "double2float_rz", "double2int_rd",
    "double2int_rn", "double2int_ru", "double2int_rz", "double2ll_rd", "double2ll_rn", "double2ll_ru",
    "double2ll_rz", "double2uint_rd", "double2uint_rn", "double2uint_ru", "double2uint_rz",
    "double2ull_rd", "double2ull_rn", "double2ull_ru", "double2ull_rz", "double_as_longlong", "erf",
    "erfc", "exp", "exp10", "exp2", "expm1", "fast_cosf", "fast_dividef", "fast_exp10f", "fast_expf",
    "fast_log10f", "fast_log2f", "fast_logf", "fast_powf", "fast_sinf", "fast_tanf", "fdim", "ffs",
    "finitef", "float2int_rd", "float2int_rn", "float2int_ru", "float2int_rz", "float2ll_rd",
    "float2ll_rn", "float2ll_ru", "float2ll_rz", "float2uint_rd", "float2uint_rn", "float2uint_ru",
    "float2uint_rz", "float2ull_rd", "float2ull_rn", "float2ull_ru", "float2ull_rz", "float_as_int",
    "float_as_uint", "floor", "fma", "fmax", "fmin", "fmod", "hadd", "hypot", "int2double_rn",
    "int2float_rn", "int_as_float", "isfinited", "isinf", "isnan", "ll2double_rn", "ll2float_rn",
    "llrint", "llround", "log", "log10", "log1p", "log2", "longlong_as_double", "mul24", "mulhi",
    "nearbyint", "nextafter", "norm3d", "norm4d", "popc", "pow", "rcbrt", "rcp_rn", "remainder", "rhadd",
    "rhypot", "rint", "rnorm3d", "rnorm4d", "round", "rsqrt", "sad", "saturatef", "signbit", "sin",
    "sinh", "sinpi", "sqrt", "sqrt_rn", "tan", "tanh", "trunc", "uint2double_rn", "uint2float_rn",
    "uint_as_float", "ull2double_rn", "ull2float_rn", "umulhi",
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
    """``x / y`` within 2 ulp: :func:`ptxforge.language.fdiv`."""
    return math.fdiv(x, y)


@library
def rcp_rn(x):
    """``1 / x``, rounded to nearest even."""
    return math.div_rn(1.0, x)


@library
def fmin(x, y):
    """The smaller one of ``x`` and ``y``; a NaN loses against a number."""
    return arith.minimum(x, y)


@library
def fmax(x, y):
    """The larger one of ``x`` and ``y``; a NaN loses against a number."""
    return arith.maximum(x, y)


@library
def fdim(x, y):
    """``x - y`` where that is positive, else 0; NaN where one of them is."""
    return arith.where(x <= y, 0.0, x - y)


@library
def fmod(x, y):
    """The remainder of ``x / y``, exact, with the sign of ``x``; NaN for ``y = 0`` and infinite ``x``."""
    return x % y


@library
def isnan(x):
    """Whether ``x`` is a NaN, as int1."""
    return x != x


@library
def isinf(x):
    """Whether ``x`` is an infinity, as int1."""
    return math.abs(x) == float("inf")


@library
def finitef(x):
    """Whether ``x`` is neither infinite nor a NaN, as int1."""
    return math.abs(x) < float("inf")


isfinited = finitef


@library
def signbit(x):
    """Whether the sign bit of ``x`` is set (of -0.0 and of NaNs, too), as int1."""
    if x.dtype == float64:
        return x.to(int64, bitcast=True) < 0
    else:
        return x.to(int32, bitcast=True) < 0


@library
def copysign(x, y):
    """The magnitude of ``x`` with the sign of ``y``."""
    return arith.where(signbit(y), -math.abs(x), math.abs(x))


@library
def round(x):
    """The integer nearest to ``x``, halves away from zero, as a float. Exact; -0.0, infinities and NaN
    stay."""
    whole = math.trunc(x)
    return arith.where(
        math.abs(x - whole) >= 0.5, whole + copysign(core.full(x.shape, 1.0, x.dtype), x), whole
    )


# -- conversions -------------------------------------------------------------------------------------------
# To integers, what does not fit becomes the nearest limit and a NaN 0. As in Triton, unsigned results come as
# the signed type of their width.


@library
def float2int_rn(x):
    """``x`` as int32, to nearest even; what does not fit becomes the nearest limit, a NaN 0."""
    return math.rint(x).to(int32)


@library
def float2int_rz(x):
    """``x`` as int32, towards zero; what does not fit becomes the nearest limit, a NaN 0."""
    return x.to(int32)


@library
def float2int_rd(x):
    """``x`` as int32, down; what does not fit becomes the nearest limit, a NaN 0."""
    return math.floor(x).to(int32)


@library
def float2int_ru(x):
    """``x`` as int32, up; what does not fit becomes the nearest limit, a NaN 0."""
    return math.ceil(x).to(int32)


@library
def float2uint_rn(x):
    """``x`` as uint32, in the bits of an int32, to nearest even; what does not fit becomes the nearest limit,
    a NaN 0."""
    return math.rint(x).to(uint32).to(int32, bitcast=True)


@library
def float2uint_rz(x):
    """``x`` as uint32, in the bits of an int32, towards zero; what does not fit becomes the nearest limit, a
    NaN 0."""
    return x.to(uint32).to(int32, bitcast=True)


@library
def float2uint_rd(x):
    """``x`` as uint32, in the bits of an int32, down; what does not fit becomes the nearest limit, a NaN
    0."""
    return math.floor(x).to(uint32).to(int32, bitcast=True)


@library
def float2uint_ru(x):
    """``x`` as uint32, in the bits of an int32, up; what does not fit becomes the nearest limit, a NaN 0."""
    return math.ceil(x).to(uint32).to(int32, bitcast=True)


@library
def float2ll_rn(x):
    """``x`` as int64, to nearest even; what does not fit becomes the nearest limit, a NaN 0."""
    return math.rint(x).to(int64)


@library
def float2ll_rz(x):
    """``x`` as int64, towards zero; what does not fit becomes the nearest limit, a NaN 0."""
    return x.to(int64)


@library
def float2ll_rd(x):
    """``x`` as int64, down; what does not fit becomes the nearest limit, a NaN 0."""
    return math.floor(x).to(int64)


@library
def float2ll_ru(x):
    """``x`` as int64, up; what does not fit becomes the nearest limit, a NaN 0."""
    return math.ceil(x).to(int64)


@library
def float2ull_rn(x):
    """``x`` as uint64, in the bits of an int64, to nearest even; what does not fit becomes the nearest limit,
    a NaN 0."""
    return math.rint(x).to(uint64).to(int64, bitcast=True)


@library
def float2ull_rz(x):
    """``x`` as uint64, in the bits of an int64, towards zero; what does not fit becomes the nearest limit, a
    NaN 0."""
    return x.to(uint64).to(int64, bitcast=True)


@library
def float2ull_rd(x):
    """``x`` as uint64, in the bits of an int64, down; what does not fit becomes the nearest limit, a NaN
    0."""
    return math.floor(x).to(uint64).to(int64, bitcast=True)


@library
def float2ull_ru(x):
    """``x`` as uint64, in the bits of an int64, up; what does not fit becomes the nearest limit, a NaN 0."""
    return math.ceil(x).to(uint64).to(int64, bitcast=True)


double2int_rn = float2int_rn
double2int_rz = float2int_rz
double2int_rd = float2int_rd
double2int_ru = float2int_ru
double2uint_rn = float2uint_rn
double2uint_rz = float2uint_rz
double2uint_rd = float2uint_rd
double2uint_ru = float2uint_ru
double2ll_rn = float2ll_rn
double2ll_rz = float2ll_rz
double2ll_rd = float2ll_rd
double2ll_ru = float2ll_ru
double2ull_rn = float2ull_rn
double2ull_rz = float2ull_rz
double2ull_rd = float2ull_rd
double2ull_ru = float2ull_ru


@library
def int2float_rn(x):
    """The integer ``x`` as float32, to nearest even."""
    return x.to(float32)


uint2float_rn = ll2float_rn = ull2float_rn = int2float_rn


@library
def int2double_rn(x):
    """The integer ``x`` as float64, to nearest even (of 32 bits: exact)."""
    return x.to(float64)


uint2double_rn = ll2double_rn = ull2double_rn = int2double_rn


@library
def double2float_rn(x):
    """``x``, a float64, as float32, to nearest even."""
    return x.to(float32)


@library
def double2float_rz(x):
    """``x``, a float64, as float32, towards zero."""
    return x.to(float32, fp_downcast_rounding="rtz")


@library
def float_as_int(x):
    """The bits of ``x``, a float32, as int32."""
    return x.to(int32, bitcast=True)


@library
def float_as_uint(x):
    """The bits of ``x``, a float32, as uint32."""
    return x.to(uint32, bitcast=True)


@library
def int_as_float(x):
    """The bits of ``x``, an int32 or uint32, as float32."""
    return x.to(float32, bitcast=True)


uint_as_float = int_as_float


@library
def double_as_longlong(x):
    """The bits of ``x``, a float64, as int64."""
    return x.to(int64, bitcast=True)


@library
def longlong_as_double(x):
    """The bits of ``x``, an int64, as float64."""
    return x.to(float64, bitcast=True)


@library
def llround(x):
    """``x`` as int64, halves away from zero; what does not fit becomes the nearest limit, a NaN 0."""
    return round(x).to(int64)


@library
def llrint(x):
    """``x`` as int64, to nearest even; what does not fit becomes the nearest limit, a NaN 0."""
    return math.rint(x).to(int64)


@library
def popc(x):
    """The number of bits set in ``x``, a 32- or 64-bit integer, as int32 (H. S. Warren, *Hacker's Delight*,
    section 5-1)."""
    if x.dtype.primitive_bitwidth == 64:
        bits = x.to(uint64)
        return popc32((bits & 0xFFFFFFFF).to(uint32)) + popc32((bits >> 32).to(uint32))
    else:
        return popc32(x.to(uint32))


@library
def popc32(x):
    """The number of bits set in ``x``, a uint32, as int32."""
    x = x - ((x >> 1) & 0x55555555)
    x = (x & 0x33333333) + ((x >> 2) & 0x33333333)
    x = (x + (x >> 4)) & 0x0F0F0F0F
    return (x * 0x01010101 >> 24).to(int32)


# -- integers: H. S. Warren, Hacker's Delight ----------------------------------------------------------------


@library
def clz(x):
    """The number of zero bits above the highest set bit of ``x``, a 32- or 64-bit integer, as int32; of 0 all
    bits."""
    bits = x.to(uint64) if x.dtype.primitive_bitwidth == 64 else x.to(uint32)
    for i in core.static_range(6 if x.dtype.primitive_bitwidth == 64 else 5):
        bits = bits | (bits >> (1 << i))
    return x.dtype.primitive_bitwidth - popc(bits)


@library
def ffs(x):
    """The position of the lowest set bit of ``x``, a 32- or 64-bit integer, counted from 1, as int32; 0 for
    0."""
    bits = x.to(uint64) if x.dtype.primitive_bitwidth == 64 else x.to(uint32)
    return arith.where(bits == 0, 0, popc((bits & (~bits + 1)) - 1) + 1)


@library
def brev(x):
    """The bits of ``x``, a 32- or 64-bit integer, in opposite order, as its type."""
    width: constexpr = x.dtype.primitive_bitwidth
    masks: constexpr = _alternating(width)
    bits = x.to(uint64) if width == 64 else x.to(uint32)
    for i in core.static_range(len(masks)):
        bits = ((bits >> (1 << i)) & masks[i]) | ((bits & masks[i]) << (1 << i))
    return bits.to(x.dtype, bitcast=True)


@constexpr_function
def _alternating(width):
    """Masks of every other 1, 2, 4, … bits of a word."""
    full, masks = (1 << width) - 1, []
    run = 1
    while run < width:
        masks.append(full // ((1 << run) + 1))
        run *= 2
    return tuple(masks)


@library
def mulhi(x, y):
    """The upper half of the product of ``x`` and ``y``, 32- or 64-bit integers of one type, with their
    sign."""
    high = math.umulhi(x, y)
    if x.dtype.is_int_signed():
        high = high - arith.where(x < 0, y, 0) - arith.where(y < 0, x, 0)
    return high


@library
def mul24(x, y):
    """The low 32 bits of the product of the low 24 bits of ``x`` and ``y``, both int32 or both uint32."""
    return ((x << 8) >> 8) * ((y << 8) >> 8)


@library
def sad(x, y, z):
    """``abs(x - y) + z`` of 32-bit integers ``x`` and ``y`` of one type and ``z``, without overflow of the
    difference."""
    return (arith.maximum(x, y) - arith.minimum(x, y)) + z.to(x.dtype)


@library
def hadd(x, y):
    """The mean of the integers ``x`` and ``y``, rounded down, without overflow."""
    return (x & y) + ((x ^ y) >> 1)


@library
def rhadd(x, y):
    """The mean of the integers ``x`` and ``y``, rounded up, without overflow."""
    return (x | y) - ((x ^ y) >> 1)


# -- floats ------------------------------------------------------------------------------------------------


@library
def saturatef(x):
    """``x`` limited to [0, 1]; a NaN becomes 0."""
    return arith.clamp(x, 0.0, 1.0)


@library
def remainder(x, y):
    """``x - n · y`` for the integer ``n`` nearest to ``x / y`` (of two the even one): exact, IEEE 754's
    remainder.

    NaN for ``y = 0`` and infinite ``x``; ``x`` for infinite ``y``.
    """
    divisor = math.abs(y)
    rest = math.abs(x) % (divisor + divisor)
    above = rest - divisor
    above = arith.where(above + above >= divisor, above - divisor, above)
    rest = arith.where(rest + rest > divisor, above, rest)
    return arith.where(signbit(x), -rest, rest)


@library
def nextafter(x, y):
    """The float next to ``x`` in the direction of ``y``; ``y`` where they are equal, NaN where one is."""
    wide: constexpr = x.dtype == float64
    bits = x.to(int64, bitcast=True) if wide else x.to(int32, bitcast=True)
    moved = (bits + arith.where((y > x) == (x > 0.0), 1, -1)).to(x.dtype, bitcast=True)
    least = copysign((bits * 0 + 1).to(x.dtype, bitcast=True), y)
    moved = arith.where(x == y, y, arith.where(x == 0.0, least, moved))
    return arith.where((x != x) | (y != y), float("nan"), moved)


# -- trigonometric functions of multiples of π -------------------------------------------------------------


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


# -- inverse trigonometric functions ------------------------------------------------------------------------


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
    return copysign(arith.where(signbit(x), 3.141592653589793 - angle, angle), y)


@library
def asin(x):
    """Arc sine of ``x`` in radians; float32 within 6 ulp, no other type. NaN outside [-1, 1]."""
    return atan2(x, math.sqrt((1.0 - x) * (1.0 + x)))


@library
def acos(x):
    """Arc cosine of ``x`` in radians, in [0, π]; float32 within 6 ulp, no other type. NaN outside [-1, 1]."""
    return atan2(math.sqrt((1.0 - x) * (1.0 + x)), x)


# -- exponentials and logarithms ---------------------------------------------------------------------------


@library
def _exp(high, halvings: constexpr, low=None):
    """e to the power ``high + low``, divided by ``2**halvings``, for a ``low`` below the last place of
    ``high``.

    For float32, where ``exp`` is fast rather than accurate, ``high`` is reduced by multiples of log 2 in two
    parts (W. J. Cody, W. Waite, *Software Manual for the Elementary Functions*, 1980): within 3 ulp.
    """
    if high.dtype == float64:
        half = math.exp(high * 0.5)
        scaled = half * (half * 0.5**halvings)
        if low is None:
            return scaled
        else:
            return scaled + scaled * low
    else:
        bounded = arith.clamp(high, -160.0, 160.0, PropagateNan.ALL)
        turns = math.rint(bounded * 1.4426950408889634)
        rest = math.fma(turns, -0.693145751953125, bounded)  # log 2 to 16 bits, so that the product is exact
        rest = math.fma(turns, -1.428606765330187e-06, rest)
        if low is not None:
            rest += low
        return math.exp2(rest * 1.4426950408889634) * math.exp2(turns - halvings)


@library
def expm1(x):
    """exp(``x``) - 1, accurate near 0: within 4 ulp. expm1(-0.0) is -0.0, expm1(-inf) is -1.

    ``2**n · (exp(r) - 1) + (2**n - 1)`` with ``r`` up to log(2)/2 and the power series of exp(r) - 1.
    """
    wide: constexpr = x.dtype == float64
    bounded = arith.clamp(x, -800.0, 800.0, PropagateNan.ALL)
    turns = math.rint(bounded * 1.4426950408889634)
    high: constexpr = 0.6931471803691238 if wide else 0.693145751953125
    low: constexpr = 1.9082149292705877e-10 if wide else 1.428606765330187e-06
    rest = math.fma(turns, -low, math.fma(turns, -high, bounded))
    series = rest * 0.0 + 1.0
    for k in core.static_range(15 if wide else 8, 2, -1):
        series = math.fma(rest * (1.0 / k), series, 1.0)
    near = math.fma(rest, rest * 0.5 * series, rest)
    half = math.exp2(turns - 1.0)
    value = math.fma(half, near, half - 0.5) * 2.0
    return arith.where(turns == 0.0, arith.where(x == 0.0, x, near), value)


@library
def exp10(x):
    """10 to the power ``x``; float32 within 1 ulp, float64 within 2."""
    return math.pow(10.0, x)


fast_exp10f = exp10


@library
def log10(x):
    """Logarithm of ``x`` to base 10, within 2 ulp. log10(0) is -inf, of negative numbers NaN."""
    return math.log(x) * 0.4342944819032518


fast_log10f = log10


@library
def log1p(x):
    """log(1 + ``x``), accurate near 0: within 4 ulp. log1p(-1) is -inf, below NaN.

    W. Kahan: the rounding error of 1 + x is divided out.
    """
    sum = 1.0 + x
    is_tiny = sum == 1.0
    safe = arith.where(is_tiny, 1.0, sum - 1.0)
    return arith.where(is_tiny, x, arith.where(sum == float("inf"), sum, math.log(sum) * (x / safe)))


_ERFC = {
    32: (
        9.055371e-05, 0.005455713, -0.01649127, 0.03694717, -0.06630044, 0.09376863, -0.10103969, 0.06809487,
        0.015379637, -0.13962108, 1.2329952,
    ),
    64: (
        -1.0476718674668371e-08, -1.2224048303152388e-08, 1.0568025135820959e-07, 6.702452833728971e-08,
        -8.22559563206072e-07, 2.9955790685567077e-07, 5.7086428044048145e-06, -1.12247322473501e-05,
        -2.4398983809134553e-05, 0.00015062249512264785, -0.00019925671345040716, -0.0007577734486762808,
        0.0050319699756138135, -0.01619773403826592, 0.03716751553818893, -0.06633036581360713,
        0.09373283499828751, -0.10103906603625375, 0.0680970542546948, 0.015379652102619027,
        -0.13962111684056253, 1.2329951186255526,
    ),
}  # fmt: skip
"""exp(x²)·erfc(x)·(1 + 2x) as a polynomial in (x - 4)/(x + 4) for x from 0.5, of highest degree first: fitted
at Chebyshev's points in 300 bits, to 2e-9 for x up to 10.1 (float32) and 4e-18 for x up to 28 (float64)."""


@constexpr_function
def _erfc_coefficients(bits):
    return _ERFC[bits]


@library
def erfc(x):
    """1 - erf(``x``) without cancellation: within 6 ulp. erfc(inf) is 0, erfc(-inf) is 2.

    Below 0.5 from :func:`erf`, above as exp(-x²) times a polynomial (M. M. Shepherd, J. G. Laframboise,
    *Chebyshev Approximation of (1 + 2x) exp(x²) erfc x*, 1981).
    """
    coefficients: constexpr = _erfc_coefficients(x.dtype.primitive_bitwidth)
    far = arith.clamp(x, 0.5, 30.0, PropagateNan.ALL)
    t = math.div_rn(far - 4.0, far + 4.0)
    series = core.full(x.shape, coefficients[0], x.dtype)
    for i in core.static_range(1, len(coefficients)):
        series = math.fma(series, t, coefficients[i])
    square = far * far
    power = _exp(-square, 0, -math.fma(far, far, -square))
    return arith.where(x < 0.5, 1.0 - math.erf(x), power * math.div_rn(series, math.fma(far, 2.0, 1.0)))


# -- hyperbolic functions ----------------------------------------------------------------------------------


@library
def sinh(x):
    """Hyperbolic sine of ``x``: within 5 ulp. sinh(-0.0) is -0.0, sinh(±inf) is ±inf.

    Below 1 the power series, above from exp.
    """
    square = x * x
    series = square * 0.0 + 1.0
    for k in core.static_range(9 if x.dtype == float64 else 6, 1, -1):
        series = math.fma(square * (1.0 / (2 * k * (2 * k + 1))), series, 1.0)
    near = math.fma(x, square * (1.0 / 6.0) * series, x)
    size = math.abs(x)
    half = _exp(size, 1)
    return arith.where(size < 1.0, near, copysign(half - 0.25 / half, x))


@library
def cosh(x):
    """Hyperbolic cosine of ``x``: within 5 ulp. cosh(±inf) is inf."""
    half = _exp(math.abs(x), 1)
    return half + 0.25 / half


@library
def asinh(x):
    """Inverse hyperbolic sine of ``x``: within 5 ulp. asinh(-0.0) is -0.0, asinh(±inf) is ±inf."""
    size = math.abs(x)
    near = log1p(size + size * size / (1.0 + math.sqrt(size * size + 1.0)))
    far = math.log(size) + 0.6931471805599453  # log(2x): the rest is 1/(4x²)
    return copysign(arith.where(size > 268435456.0, far, near), x)


@library
def acosh(x):
    """Inverse hyperbolic cosine of ``x``: within 6 ulp. NaN below 1, acosh(inf) is inf."""
    above = x - 1.0
    near = log1p(above + math.sqrt(above * (above + 2.0)))
    far = math.log(x) + 0.6931471805599453  # log(2x): the rest is 1/(4x²)
    return arith.where(x < 1.0, float("nan"), arith.where(x > 268435456.0, far, near))


@library
def atanh(x):
    """Inverse hyperbolic tangent of ``x``: within 5 ulp. atanh(±1) is ±inf, beyond NaN."""
    size = math.abs(x)
    return copysign(0.5 * log1p(2.0 * size / (1.0 - size)), x)


# -- roots -------------------------------------------------------------------------------------------------


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
