"""Floats as what they are made of: classes, signs, bits, exponents, neighbours, remainders; means of
integers; polynomials with tables of coefficients, and sums that keep what is rounded away."""

from __future__ import annotations

from ptxforge.language import arith, core, math
from ptxforge.language.constexpr import constexpr
from ptxforge.language.core import static_assert
from ptxforge.language.registry import device_function, library
from ptxforge.language.types import float32, float64, int32, int64, uint32, uint64


@device_function
def fmin(x, y):
    """The smaller one of ``x`` and ``y``; a NaN loses against a number."""
    return arith.minimum(x, y)


@device_function
def fmax(x, y):
    """The larger one of ``x`` and ``y``; a NaN loses against a number."""
    return arith.maximum(x, y)


@device_function
def fdim(x, y):
    """``x - y`` where that is positive, else 0; NaN where one of them is."""
    return arith.where(x <= y, 0.0, x - y)


@device_function
def fmod(x, y):
    """The remainder of ``x / y``, exact, with the sign of ``x``; NaN for ``y = 0`` and infinite ``x``."""
    return x % y


@device_function
def isnan(x):
    """Whether ``x`` is a NaN, as int1."""
    return x != x


@device_function
def isinf(x):
    """Whether ``x`` is an infinity, as int1."""
    return math.abs(x) == float("inf")


@device_function
def finitef(x):
    """Whether ``x`` is neither infinite nor a NaN, as int1."""
    return math.abs(x) < float("inf")


@device_function
def copysign(x, y):
    """The magnitude of ``x`` with the sign of ``y``."""
    return arith.where(_is_negative(y), -math.abs(x), math.abs(x))


@device_function
def round(x):
    """The integer nearest to ``x``, halves away from zero, as a float. Exact; -0.0, infinities and NaN
    stay."""
    whole = math.trunc(x)
    return arith.where(
        math.abs(x - whole) >= 0.5, whole + copysign(core.full(x.shape, 1.0, x.dtype), x), whole
    )


nearbyint = math.rint
isfinited = finitef


@library
def _is_negative(x):
    """Whether the sign bit of ``x`` is set, as int1."""
    if x.dtype == float64:
        return x.to(int64, bitcast=True) < 0
    else:
        static_assert(x.dtype == float32, "the function takes float32 and float64")
        return x.to(int32, bitcast=True) < 0


@device_function
def signbit(x):
    """1 where the sign bit of ``x`` is set (of -0.0 and of NaNs, too), else 0, as int32."""
    return _is_negative(x).to(int32)


@device_function
def float_as_int(x):
    """The bits of ``x``, a float32, as int32."""
    return x.to(int32, bitcast=True)


@device_function
def float_as_uint(x):
    """The bits of ``x``, a float32, as int32 (as in Triton)."""
    return x.to(int32, bitcast=True)


@device_function
def int_as_float(x):
    """The bits of ``x``, an int32 or uint32, as float32."""
    return x.to(float32, bitcast=True)


uint_as_float = int_as_float


@device_function
def double2hiint(x):
    """The upper half of the bits of ``x``, a float64, as int32."""
    return (x.to(int64, bitcast=True) >> 32).to(int32)


@device_function
def double2loint(x):
    """The lower half of the bits of ``x``, a float64, as int32."""
    return x.to(int64, bitcast=True).to(int32)


@device_function
def hiloint2double(hi, lo):
    """The float64 whose bits are ``hi`` (the upper half) and ``lo``, both int32."""
    low = lo.to(uint32, bitcast=True).to(uint64).to(int64, bitcast=True)
    return ((hi.to(int64) << 32) | low).to(float64, bitcast=True)


@device_function
def double_as_longlong(x):
    """The bits of ``x``, a float64, as int64."""
    return x.to(int64, bitcast=True)


@device_function
def longlong_as_double(x):
    """The bits of ``x``, an int64, as float64."""
    return x.to(float64, bitcast=True)


@device_function
def llround(x):
    """``x`` as int64, halves away from zero; what does not fit becomes the nearest limit, a NaN 0."""
    return round(x).to(int64)


@device_function
def llrint(x):
    """``x`` as int64, to nearest even; what does not fit becomes the nearest limit, a NaN 0."""
    return math.rint(x).to(int64)


@device_function
def hadd(x, y):
    """The mean of the integers ``x`` and ``y``, rounded down, without overflow."""
    return (x & y) + ((x ^ y) >> 1)


@device_function
def rhadd(x, y):
    """The mean of the integers ``x`` and ``y``, rounded up, without overflow."""
    return (x | y) - ((x ^ y) >> 1)


@device_function
def saturatef(x):
    """``x`` limited to [0, 1]; a NaN becomes 0."""
    return arith.clamp(x, 0.0, 1.0)


@device_function
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
    return arith.where(_is_negative(x), -rest, rest)


@device_function
def nextafter(x, y):
    """The float next to ``x`` in the direction of ``y``; ``y`` where they are equal, NaN where one is."""
    wide: constexpr = x.dtype == float64
    bits = x.to(int64, bitcast=True) if wide else x.to(int32, bitcast=True)
    moved = (bits + arith.where((y > x) == (x > 0.0), 1, -1)).to(x.dtype, bitcast=True)
    least = copysign((bits * 0 + 1).to(x.dtype, bitcast=True), y)
    moved = arith.where(x == y, y, arith.where(x == 0.0, least, moved))
    return arith.where((x != x) | (y != y), float("nan"), moved)


# -- exponents -----------------------------------------------------------------------------------------------


@library
def _exponent(x):
    """The exponent of a finite ``x`` other than 0, as int32: ``2**e <= abs(x) < 2**(e + 1)``."""
    if x.dtype == float64:
        is_small = math.abs(x) < 2.2250738585072014e-308
        bits = arith.where(is_small, x * 18014398509481984.0, x).to(int64, bitcast=True)  # 2**54
        return ((bits >> 52) & 0x7FF).to(int32) - arith.where(is_small, 1077, 1023)
    else:
        is_small = math.abs(x) < 1.1754943508222875e-38
        bits = arith.where(is_small, x * 16777216.0, x).to(int32, bitcast=True)  # 2**24
        return ((bits >> 23) & 0xFF) - arith.where(is_small, 151, 127)


@device_function
def ilogb(x):
    """The exponent of ``x`` as int32: ``2**e <= abs(x) < 2**(e + 1)``, exact, of subnormal numbers too.

    Of 0 and NaN it is -2**31, of infinities 2**31 - 1, as in CUDA.
    """
    size = math.abs(x)
    special = arith.where(size == float("inf"), 2147483647, -2147483648)
    special = arith.where((size > 0.0) & (size < float("inf")), _exponent(x), special)
    if x.dtype == float64:
        usual = (size.to(int64, bitcast=True) >> 52).to(int32) - 1023
        return arith.where_rarely((usual == -1023) | (usual == 1024), special, usual)
    else:
        usual = (size.to(int32, bitcast=True) >> 23) - 127
        return arith.where_rarely((usual == -127) | (usual == 128), special, usual)


@device_function
def logb(x):
    """The exponent of ``x`` as a float of its type, exact: :func:`ilogb`; of 0 -inf, of infinities inf."""
    size = math.abs(x)
    special = arith.where(size == 0.0, float("-inf"), size)
    return arith.where((size > 0.0) & (size < float("inf")), _exponent(x).to(x.dtype), special)


@library
def _power_of_two(n, dtype: constexpr):
    """``2**n`` for a ``n`` (int32) from the least normal exponent to the highest."""
    if dtype == float64:
        return ((n + 1023).to(int64) << 52).to(float64, bitcast=True)
    else:
        return ((n + 127) << 23).to(float32, bitcast=True)


@library
def _step(n, lowest: constexpr, highest: constexpr, digits: constexpr):
    """How far one multiplication may scale towards ``2**n``: so far that what is left, when it leads to
    subnormal numbers, does so from a normal one (then there is one rounding)."""
    return arith.where(n > highest, highest, arith.where(n < lowest, lowest + digits, 0))


@device_function
def ldexp(x, n):
    """``x * 2**n`` for an int32 ``n``, rounded once: exact but for subnormal results and overflow."""
    type: constexpr = x.dtype
    lowest: constexpr = -1022 if type == float64 else -126
    highest: constexpr = 1023 if type == float64 else 127
    digits: constexpr = 53 if type == float64 else 24
    first = _step(n, lowest, highest, digits)
    second = _step(n - first, lowest, highest, digits)
    last = arith.minimum(arith.maximum(n - first - second, lowest), highest)
    value = x * _power_of_two(first, type) * _power_of_two(second, type) * _power_of_two(last, type)
    # One factor that is a float: one rounding.
    return arith.where_rarely((n < lowest) | (n > highest), value, x * _power_of_two(n, type))


scalbn = ldexp


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
