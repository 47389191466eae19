"""The arithmetic of PTX in numpy: floating point and conversions, bit for bit.

Everything here is a pure function of whole arrays (one element per lane) and of numpy scalars, which
broadcast. The translator asks `lookup` once per instruction, at load time:

    >>> fma = lookup("fma.rn.f32")
    >>> fma.sources, fma.result
    (('f32', 'f32', 'f32'), 'f32')
    >>> float(fma.function(np.float32(2), np.float32(3), np.float32(1)))
    7.0

An operation's function takes its sources in order as arrays of their natural dtype (`NATURAL`) and an
optional keyword `out` of the result's natural dtype; it returns the result. Common f32 and f64 operations are
the plain numpy ufunc. Callers run under `np.errstate(all="ignore")`: the operations overflow and make NaNs on
purpose.

How the rounding works. A value is first computed in f64, exactly or *rounded to odd* (an inexact result takes
the neighbour whose last bit is one: Boldo and Melquiond, "Emulation of FMA and correctly rounded sums",
2008), and then rounded once to the target. As f64 keeps at least two bits more than any narrower target the
second rounding is right in every mode. `fma.rn.f64` uses error-free transformations (Knuth's TwoSum, Dekker's
product); lanes near the ends of the exponent range, where these fail, and f64 in other roundings, which few
use, are computed with Python's integers.

NaNs: results in f16, bf16, tf32 and fp8 are the canonical NaN of PTX (0x7fff, 0x7fff, 0x7fffffff, 0x7f). In
f32 and f64 a NaN is a NaN; its sign and payload are unspecified.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Array = Any  # np.ndarray, or a numpy scalar that broadcasts

NATURAL: dict[str, np.dtype] = {
    name: np.dtype(code)
    for name, code in {
        "pred": "?", "u8": "u1", "s8": "i1", "b8": "u1", "u16": "u2", "s16": "i2", "b16": "u2",
        "u32": "u4", "s32": "i4", "b32": "u4", "u64": "u8", "s64": "i8", "b64": "u8",
        "f16": "f2", "bf16": "u2", "tf32": "f4", "f32": "f4", "f64": "f8",
        "f16x2": "u4", "bf16x2": "u4", "f32x2": "u8", "e4m3x2": "u2", "e5m2x2": "u2",
        "e2m3x2": "u2", "e3m2x2": "u2", "e2m1x2": "u1", "ue8m0x2": "u2",
    }.items()
}  # fmt: skip
"""PTX type -> the numpy dtype in which the functions take and give it (packed types and bf16 as bits)."""

PACKED = {"f16x2": "f16", "bf16x2": "bf16", "f32x2": "f32"}
ROUNDINGS = {"rn", "rz", "rm", "rp", "rna", "rni", "rzi", "rmi", "rpi"}


class UnknownOperation(ValueError):
    """PTX has no such operation, or this module does not implement it."""


class Operation(NamedTuple):
    """What `lookup` gives: `function(*sources, out=None)` with the PTX types of sources and result."""

    function: Callable[..., Array]
    sources: tuple[str, ...]
    result: str


# ------------------------------------------------------------------------------------------------------------
# Error-free transformations and rounding to odd
# ------------------------------------------------------------------------------------------------------------


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """`(s, e)`: s = fl(a + b) and e = the exact rest, for any a, b whose sum is finite (Knuth)."""
    s = a + b
    rest = s - a
    return s, (a - (s - rest)) + (b - rest)


def two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """`(p, e)`: p = fl(a * b) and e = the exact rest, while nothing over- or underflows (Dekker; f64)."""
    a_high, a_low = _split(a)
    b_high, b_low = _split(b)
    p = a * b
    return p, ((a_high * b_high - p) + a_high * b_low + a_low * b_high) + a_low * b_low


def _split(a: Array) -> tuple[Array, Array]:
    scaled = a * 134217729.0  # 2**27 + 1
    high = scaled - (scaled - a)
    return high, a - high


def odd(s: Array, error: Array) -> Array:
    """The f64 sum `s + error` rounded to odd, where s is the nearest f64 and error the exact rest."""
    bits = np.array(s, np.float64, ndmin=1).view(np.int64)
    even = (error != 0) & ((bits & 1) == 0) & np.isfinite(s)
    away = (error > 0) == (s > 0)
    bits += np.where(even, np.where(away, 1, -1), 0)
    return bits.view(np.float64).reshape(np.shape(s))


def _toward(nearest: Array, error: Array, mode: str) -> Array:
    """A directed rounding of `nearest + error`, from the nearest value and the sign of the exact rest."""
    if mode == "rn":
        return nearest
    infinity = nearest.dtype.type(np.inf)
    down = np.nextafter(nearest, -infinity)
    up = np.nextafter(nearest, infinity)
    if mode == "rm":
        return np.where(error < 0, down, nearest)
    if mode == "rp":
        return np.where(error > 0, up, nearest)
    inward = np.nextafter(nearest, nearest.dtype.type(0))
    outside = ((error < 0) & (nearest > 0)) | ((error > 0) & (nearest < 0))
    return np.where(outside, inward, nearest)


# ------------------------------------------------------------------------------------------------------------
# f64 -> narrower floats, in every rounding
# ------------------------------------------------------------------------------------------------------------


def narrow(x: Array, dtype: Any, mode: str = "rn") -> Array:
    """f64 -> f32 or f16 in a rounding mode; a value that overflows to the largest finite where the mode says
    so.
    """
    x = np.asarray(x, np.float64)
    nearest = x.astype(dtype)
    if mode == "rn":
        return nearest
    back = nearest.astype(np.float64)
    error = np.where(x == back, 0.0, x - back)  # inf - inf
    return _toward(nearest, error, mode)


def narrow_odd(x: Array) -> Array:
    """f64 -> f32 rounded to odd: the way from f64 to formats narrower than f32 by two bits or more."""
    x = np.asarray(x, np.float64)
    nearest = np.array(x.astype(np.float32), ndmin=1)
    back = nearest.astype(np.float64).reshape(x.shape)
    bits = nearest.view(np.int32).reshape(x.shape)
    overflow = np.isinf(back) & np.isfinite(x)
    even = (back != x) & ((bits & 1) == 0) & np.isfinite(back)
    step = np.where(np.abs(x) > np.abs(back), 1, -1).astype(np.int32)
    bits = np.where(overflow, bits - np.int32(1), np.where(even, bits + step, bits))
    return bits.astype(np.int32).view(np.float32)


def f32_to_bf16(x: Array, mode: str = "rn") -> Array:
    """f32 -> the bits of bf16."""
    x = np.asarray(x, np.float32)
    bits = x.view(np.uint32)
    if mode == "rn":
        rounded = bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))
    elif mode == "rna":
        rounded = bits + np.uint32(0x8000)
    elif mode == "rz":
        rounded = bits
    else:
        outward = (bits >> np.uint32(31)) == (1 if mode == "rm" else 0)
        rounded = np.where(outward, bits + np.uint32(0xFFFF), bits)
    result = (rounded >> np.uint32(16)).astype(np.uint16)
    nan = x != x
    return np.where(nan, np.uint16(0x7FFF), result) if nan.any() else result


def f64_to_bf16(x: Array, mode: str = "rn") -> Array:
    """f64 -> the bits of bf16, rounded once."""
    return f32_to_bf16(narrow_odd(x), mode)


def bf16_to_f32(bits: Array) -> Array:
    """The bits of bf16 -> f32, exactly."""
    return (np.asarray(bits).astype(np.uint32) << np.uint32(16)).view(np.float32)


_F16_TO_F32 = np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32)
_F16_TO_F32[np.isnan(_F16_TO_F32)] = np.array(0x7FFFFFFF, np.uint32).view(np.float32)


def f16_to_f32(x: Array) -> Array:
    """f16 -> f32, exactly; a table is faster than the conversion."""
    return _F16_TO_F32.take(np.asarray(x).view(np.uint16), mode="clip")


def f32_to_tf32(x: Array, mode: str = "rna", satfinite: bool = False) -> Array:
    """f32 -> tf32 (an f32 whose 13 last bits are zero)."""
    x = np.asarray(x, np.float32)
    bits = x.view(np.uint32)
    if mode == "rna":
        rounded = bits + np.uint32(0x1000)
    elif mode == "rn":
        rounded = bits + (np.uint32(0x0FFF) + ((bits >> np.uint32(13)) & np.uint32(1)))
    else:
        rounded = bits
    rounded = np.where(np.isinf(x), bits, rounded & np.uint32(0xFFFFE000))
    if satfinite:
        largest = np.uint32(0x7F7FE000)
        rounded = np.where(
            (rounded & np.uint32(0x7FFFFFFF)) > largest, (bits & np.uint32(0x80000000)) | largest, rounded
        )
    return np.where(np.isnan(x), np.uint32(0x7FFFFFFF), rounded).astype(np.uint32).view(np.float32)


class _Minifloat(NamedTuple):
    """A float of 4 to 8 bits: its width, bits of mantissa, smallest normal exponent, largest finite value,
    and what PTX makes of a NaN (the 4- and 6-bit formats have none: it becomes the largest value).
    """

    bits: int
    mantissa: int
    least_exponent: int
    largest: float
    nan: int


_MINIFLOATS = {
    "e4m3": _Minifloat(8, 3, -6, 448.0, 0x7F),
    "e5m2": _Minifloat(8, 2, -14, 57344.0, 0x7F),
    "e2m3": _Minifloat(6, 3, 0, 7.5, 0x1F),
    "e3m2": _Minifloat(6, 2, -2, 28.0, 0x1F),
    "e2m1": _Minifloat(4, 1, 0, 6.0, 0x7),
}
"""PTX ISA, "Alternate Floating-Point Data Formats"; the OCP formats of 8, 6 and 4 bits."""

_NARROW_PAIRS = tuple(f"{name}x2" for name in _MINIFLOATS)


def to_minifloat(x: Array, name: str) -> Array:
    """f32 or f64 -> the bits of a minifloat (u1), nearest even, saturated to the largest finite value
    (`.rn.satfinite`).
    """
    form = _MINIFLOATS[name]
    x = np.asarray(x, np.float64)
    magnitude = np.minimum(np.abs(x), 2 * form.largest)
    exponent = np.frexp(np.maximum(magnitude, 2.0**form.least_exponent))[1] - 1
    steps = np.rint(np.ldexp(magnitude, form.mantissa - exponent))
    # steps counts units of the last place: adding the exponent field above it carries into it by itself.
    code = steps + np.ldexp((exponent - form.least_exponent).astype(np.float64), form.mantissa)
    limit = _code_of_largest(form)
    code = np.where(np.isnan(x), 0, np.minimum(code, limit)).astype(np.uint8)
    signed = code | (np.signbit(x).astype(np.uint8) << np.uint8(form.bits - 1))
    return np.where(np.isnan(x), np.uint8(form.nan), signed)


def _code_of_largest(form: _Minifloat) -> int:
    exponent = math.frexp(form.largest)[1] - 1
    return int(form.largest * 2.0 ** (form.mantissa - exponent)) + (
        (exponent - form.least_exponent) << form.mantissa
    )


def _minifloat_table(name: str) -> np.ndarray:
    """The values of all codes. e4m3 has one NaN per sign and no infinity; e5m2 is IEEE-like; the narrower
    ones are finite throughout.
    """
    form = _MINIFLOATS[name]
    sign = 1 << form.bits - 1
    code = np.arange(2 * sign)
    field = (code & sign - 1) >> form.mantissa
    fraction = code & ((1 << form.mantissa) - 1)
    steps = np.where(field > 0, fraction + (1 << form.mantissa), fraction)
    value = np.ldexp(steps.astype(np.float64), np.maximum(field, 1) - 1 + form.least_exponent - form.mantissa)
    if name == "e4m3":
        value[(code & 0x7F) == 0x7F] = np.nan
    elif name == "e5m2":
        value[(field == 31) & (fraction == 0)] = np.inf
        value[(field == 31) & (fraction != 0)] = np.nan
    return np.where(code & sign, -value, value).astype(np.float32)


MINIFLOAT_TABLES = {name: _minifloat_table(name) for name in _MINIFLOATS}
"""Minifloat -> f32 by code."""

FP8_TABLES = {name: MINIFLOAT_TABLES[name] for name in ("e4m3", "e5m2")}
"""e4m3 and e5m2: the 256 codes -> f32."""


# ------------------------------------------------------------------------------------------------------------
# Flushing, saturating, canonical NaNs
# ------------------------------------------------------------------------------------------------------------

_FIELDS = {  # dtype -> (integer view, exponent mask, sign mask)
    np.dtype("f2"): (np.uint16, np.uint16(0x7C00), np.uint16(0x8000)),
    np.dtype("f4"): (np.uint32, np.uint32(0x7F800000), np.uint32(0x80000000)),
    np.dtype("f8"): (np.uint64, np.uint64(0x7FF0000000000000), np.uint64(0x8000000000000000)),
}


def flush(x: Array) -> Array:
    """`.ftz`: subnormals become zero of the same sign. Gives x itself when it has none."""
    x = np.asarray(x)
    integer, exponent, sign = _FIELDS[x.dtype]
    bits = x.view(integer)
    # Zero wraps around to the largest number: the least of all is below the exponent's unit for a subnormal
    # alone.
    size = np.bitwise_and(bits, ~sign)
    size = np.subtract(size, integer(1), out=size if size.ndim else None)
    if np.minimum.reduce(size, axis=None, initial=sign) >= (exponent & (~exponent + integer(1))) - integer(1):
        return x
    return np.where((bits & exponent) == 0, bits & sign, bits).view(x.dtype)


def saturate(x: Array) -> Array:
    """`.sat`: clamp to [0, 1]; NaN and -0 become +0."""
    one, zero = x.dtype.type(1), x.dtype.type(0)
    return np.where(x > zero, np.minimum(x, one), zero)


def _canonical_f16(x: Array) -> Array:
    nan = x != x
    return np.where(nan, np.uint16(0x7FFF), x.view(np.uint16)).view(np.float16) if nan.any() else x


def _to_f16(x: Array, mode: str = "rn") -> Array:
    """f32 or f64 -> f16 with the canonical NaN."""
    return _canonical_f16(np.asarray(x).astype(np.float16) if mode == "rn" else narrow(x, np.float16, mode))


# ------------------------------------------------------------------------------------------------------------
# f32 arithmetic
# ------------------------------------------------------------------------------------------------------------

_HALF_LOW = np.uint64(0x1FFFFFFF)  # the 29 bits that f64 has below f32's last one
_HALF_TIE = np.uint64(0x10000000)
_F32_EXPONENT = np.uint32(0x7F800000)


def fma_f32(a: Array, b: Array, c: Array, out: Array = None) -> Array:
    """`fma.rn.f32`: the product is exact in f64; the sum's double rounding is mended where it could matter.

    That is where the f64 sum lies on the middle between two f32 values, or the result is subnormal.
    """
    product = np.multiply(a, b, dtype=np.float64)
    total = np.add(product, c, dtype=np.float64)
    total = np.asarray(total)
    result = total.astype(np.float32)
    suspicious = (total.view(np.uint64) & _HALF_LOW) == _HALF_TIE
    suspicious |= (result.view(np.uint32) & _F32_EXPONENT) == 0
    if suspicious.any():
        suspicious &= total != 0
        _mend_fma(product, c, result, suspicious)
    if out is None:
        return result
    np.copyto(out, result)  # last: `out` may be one of the sources
    return out


def _mend_fma(product: Array, c: Array, out: Array, where: Array) -> None:
    out = np.atleast_1d(out)  # a view; constant operands give scalars
    shape = np.shape(out)
    index = np.nonzero(np.atleast_1d(where))
    p = np.broadcast_to(product, shape)[index]
    total, error = two_sum(p, np.broadcast_to(c, shape)[index].astype(np.float64))
    out[index] = odd(total, error).astype(np.float32)


def _wide(x: Array) -> Array:
    return np.asarray(x).astype(np.float64)


def _sum_odd(a: Array, b: Array) -> Array:
    """a + b of f64 arrays, rounded to odd."""
    return odd(*two_sum(a, b))


def _zero_sign(result: Array, negative_zero: Array, mode: str) -> Array:
    """An exact zero sum of opposite signs is -0 in `.rm`, +0 else."""
    if mode != "rm":
        return result
    return np.where((result == 0) & negative_zero, -result.dtype.type(0), result)


def _add_f32(mode: str) -> Callable[..., Array]:
    def add(a: Array, b: Array) -> Array:
        result = narrow(_sum_odd(_wide(a), _wide(b)), np.float32, mode)
        return _zero_sign(result, np.signbit(a) | np.signbit(b), mode)

    return add


def _narrowed(operation: Callable[..., Array]) -> Callable[[str], Callable[..., Array]]:
    """An f32 operation by way of f64: products are exact there, and a quotient or a root of 24-bit numbers
    lies further from every 24-bit number than f64's rounding error, or on it.
    """
    return lambda mode: lambda *sources: narrow(operation(*map(_wide, sources)), np.float32, mode)


def _fma_f32(mode: str) -> Callable[..., Array]:
    def fma(a: Array, b: Array, c: Array) -> Array:
        product = _wide(a) * _wide(b)
        total = _sum_odd(product, _wide(c))
        # Rounding to odd keeps what is not zero from being zero: a small sum that `.rm` rounds to zero is +0.
        exact_zero = (total == 0) & (np.signbit(product) | np.signbit(c))
        return _zero_sign(narrow(total, np.float32, mode), exact_zero, mode)

    return fma


# ------------------------------------------------------------------------------------------------------------
# f64 arithmetic
# ------------------------------------------------------------------------------------------------------------

# Exponents between which the error-free transformations neither overflow nor lose bits to underflow.
_SAFE_LOW, _SAFE_HIGH = 2.0**-400, 2.0**400


def _safe(*arrays: Array) -> Array:
    """Lanes where every operand is zero or of moderate size."""
    result = np.True_
    for x in arrays:
        size = np.abs(x)
        result = result & ((size == 0) | ((size > _SAFE_LOW) & (size < _SAFE_HIGH)))
    return result


def _with_exact_lanes(
    fast: Callable[..., Array], exact: Callable[..., tuple[int, int] | None], mode: str
) -> Callable[..., Array]:
    """`fast`, which rounds to the nearest. Where operands are finite and that will not do (they are extreme,
    or the mode is another), the rational `exact` gives, rounded in `mode`, lane by lane.
    """

    def run(*sources: Array) -> Array:
        arrays = np.broadcast_arrays(*[np.asarray(s, np.float64) for s in sources])
        result = np.array(fast(*arrays), np.float64, ndmin=1)
        hard = np.atleast_1d(np.logical_and.reduce([np.isfinite(x) for x in arrays]))
        if mode == "rn":
            hard &= ~_safe(*arrays)
        for lane in zip(*np.nonzero(hard)):
            values = [float(np.atleast_1d(x)[lane]) for x in arrays]
            rational = exact(*values)
            if rational is not None:
                result[lane] = round_rational(*rational, mode)
        return result.reshape(arrays[0].shape)

    return run


def round_rational(numerator: int, denominator: int, mode: str) -> float:
    """The non-zero rational number rounded to f64 (subnormals and overflow included)."""
    negative = numerator < 0
    numerator = abs(numerator)
    exponent = numerator.bit_length() - denominator.bit_length() - 53
    exponent = max(exponent, -1074)
    mantissa, rest, unit = _divide_scaled(numerator, denominator, exponent)
    if mantissa.bit_length() > 53:
        exponent += 1
        mantissa, rest, unit = _divide_scaled(numerator, denominator, exponent)
    outward = {"rz": False, "rm": negative, "rp": not negative}.get(mode)
    if outward is None:
        outward = 2 * rest > unit or (2 * rest == unit and mantissa & 1 == 1)
    mantissa += bool(outward and rest)
    try:
        size = math.ldexp(mantissa, exponent)
    except OverflowError:
        size = math.inf
    if (
        math.isinf(size)
        and mode != "rn"
        and not (mode == "rm" and negative)
        and not (mode == "rp" and not negative)
    ):
        size = np.finfo(np.float64).max
    return -size if negative else size


def _divide_scaled(numerator: int, denominator: int, exponent: int) -> tuple[int, int, int]:
    """Quotient, rest and divisor of numerator / (denominator * 2**exponent)."""
    if exponent < 0:
        numerator <<= -exponent
    else:
        denominator <<= exponent
    return *divmod(numerator, denominator), denominator


def _rational(x: float) -> tuple[int, int]:
    return x.as_integer_ratio()


def _exact_product(a: float, b: float) -> tuple[int, int] | None:
    return _exact_fma(a, b, 0.0)


def _exact_fma(a: float, b: float, c: float) -> tuple[int, int] | None:
    """a * b + c; None where that is zero (its sign is the fast path's)."""
    (an, ad), (bn, bd), (cn, cd) = _rational(a), _rational(b), _rational(c)
    numerator = an * bn * cd + cn * ad * bd
    return (numerator, ad * bd * cd) if numerator else None


def _exact_quotient(a: float, b: float) -> tuple[int, int] | None:
    if a == 0 or b == 0:
        return None
    (an, ad), (bn, bd) = _rational(a), _rational(b)
    return (an * bd, ad * bn) if bn > 0 else (-an * bd, -ad * bn)


def _exact_root(a: float) -> tuple[int, int] | None:
    """The root with 70 bits and a sticky one: enough for one correct rounding."""
    if a <= 0:
        return None
    numerator, denominator = _rational(a)
    shift = 160 + (denominator.bit_length() - numerator.bit_length())
    shift += shift & 1
    shift = max(shift, 0)
    scaled, rest = divmod(numerator << shift, denominator)
    root = math.isqrt(scaled)
    sticky = int(bool(rest or root * root != scaled))
    return 2 * root + sticky, 2 << (shift // 2)


def _add_f64(mode: str) -> Callable[..., Array]:
    fma = _fma_f64(mode)
    return lambda a, b: fma(a, np.float64(1), b)


def _from_exact(fast: Callable[..., Array], exact: Callable) -> Callable[[str], Callable[..., Array]]:
    """An operation that numpy does in `.rn` in the other modes."""
    return lambda mode: _with_exact_lanes(fast, exact, mode)


def _fma_f64(mode: str) -> Callable[..., Array]:
    """Boldo and Melquiond's algorithm: the low parts of a * b and of the sum meet in one number rounded to
    odd.
    """

    def fma(a: Array, b: Array, c: Array) -> Array:
        product, product_rest = two_product(a, b)
        plain = product + c
        low, lower = two_sum(c, product_rest)
        high, high_rest = two_sum(product, low)
        result = high + odd(*two_sum(high_rest, lower))
        settled = (result != 0) & np.isfinite(result)
        negative = np.signbit(product) | np.signbit(c)
        return np.where(settled, result, _zero_sign(plain, negative, mode))

    return _with_exact_lanes(fma, _exact_fma, mode)


# ------------------------------------------------------------------------------------------------------------
# f16 and bf16 arithmetic
# ------------------------------------------------------------------------------------------------------------


_BY_F32 = {"f16": (f16_to_f32, _to_f16), "bf16": (bf16_to_f32, f32_to_bf16)}


def _through_f32(operation: Callable[..., Array], kind: str) -> Callable[..., Array]:
    """An operation on f16 or bf16 by way of f32 (on other floats itself): for +, -, * of f16 exact, for a
    quotient or a root innocuous (24 >= 2 * 11 + 2)."""
    if kind not in _BY_F32:
        return operation
    widen, narrowed = _BY_F32[kind]
    return lambda *sources: narrowed(operation(*map(widen, sources)))


def _through_f64(operation: Callable[..., Array]) -> Callable[..., Array]:
    """A bf16 operation by way of f64, which holds every bf16 product exactly."""

    def run(*sources: Array) -> Array:
        return f64_to_bf16(operation(*[bf16_to_f32(s).astype(np.float64) for s in sources]))

    return run


def _fma_f16(a: Array, b: Array, c: Array) -> Array:
    """f64 holds a * b + c of f16 exactly unless one term is so small that it cannot matter."""
    a, b, c = (f16_to_f32(x).astype(np.float64) for x in (a, b, c))
    return _to_f16(a * b + c)


def _fma_wide(a: Array, b: Array, c: Array) -> Array:
    return _sum_odd(a * b, c)


# ------------------------------------------------------------------------------------------------------------
# min, max, abs, neg, copysign, comparisons
# ------------------------------------------------------------------------------------------------------------


def _extreme(name: str, dtype: np.dtype, nan: bool) -> Callable[..., Array]:
    """min or max with -0 < +0; a NaN operand gives the other one, or with `.NaN` a NaN."""
    ufunc = {
        ("min", False): np.fmin,
        ("max", False): np.fmax,
        ("min", True): np.minimum,
        ("max", True): np.maximum,
    }[name, nan]
    integer = _FIELDS[dtype][0]
    combine = np.bitwise_or if name == "min" else np.bitwise_and  # of two zeros' sign bits

    def run(a: Array, b: Array, out: Array = None) -> Array:
        result = np.asarray(ufunc(a, b, out=out))
        zero = result == 0
        if np.count_nonzero(zero):
            zero &= np.equal(a, b)
            signs = combine(np.asarray(a).view(integer), np.asarray(b).view(integer))
            if result.ndim == 0:
                return signs.view(dtype) if zero else result
            np.copyto(result.view(integer), signs, where=zero)
        return result

    return run


def _extreme_of(name: str, kind: str, nan: bool, xorsign: bool, count: int) -> Callable[..., Array]:
    dtype = np.dtype("f4") if kind in ("f16", "bf16") else NATURAL[kind]
    pair = _extreme(name, dtype, nan)

    def xorsigned(a: Array, b: Array) -> Array:
        sign = np.signbit(a) ^ np.signbit(b)
        size = np.abs(pair(np.abs(a), np.abs(b)))
        return np.where(sign, -size, size)

    core = xorsigned if xorsign else pair
    if count == 3:
        two = core

        def core(a: Array, b: Array, c: Array) -> Array:
            return two(two(a, b), c)

    if kind == "f16" and xorsign:  # `f16_to_f32` would lose the sign of a NaN, which counts here
        return lambda *sources: _to_f16(core(*[np.asarray(s).astype(np.float32) for s in sources]))
    return _through_f32(core, kind)


def _bit_operation(name: str, kind: str) -> Callable[..., Array]:
    """abs, neg and copysign work on the sign bit alone. copysign(a, b) has a's sign and b's size, as PTX
    orders it.
    """
    if kind == "bf16":
        integer, sign = np.uint16, np.uint16(0x8000)
    else:
        integer, _, sign = _FIELDS[NATURAL[kind]]
    dtype = NATURAL[kind]
    if name == "abs":
        return lambda a: (np.asarray(a).view(integer) & ~sign).view(dtype)
    if name == "neg":
        return lambda a: (np.asarray(a).view(integer) ^ sign).view(dtype)
    return lambda a, b: ((np.asarray(a).view(integer) & sign) | (np.asarray(b).view(integer) & ~sign)).view(
        dtype
    )


_ORDERED = {"lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal}
_UNORDERED = {"ltu": "ge", "leu": "gt", "gtu": "le", "geu": "lt"}


def compare(relation: str, kind: str, ftz: bool = False) -> Callable[..., Array]:
    """`setp`'s comparison of two floats of type `kind`: a function of two arrays (and `out`) that gives
    bools.
    """
    core = _comparison(relation)
    if kind in ("f32", "f64", "f16") and not ftz:
        return core
    if kind == "bf16":
        return _stored(lambda a, b: core(bf16_to_f32(a), bf16_to_f32(b)))
    return _stored(lambda a, b: core(flush(a), flush(b)))


def _comparison(relation: str) -> Callable[..., Array]:
    if relation in _ORDERED:
        return _ORDERED[relation]
    if relation == "neu":
        return np.not_equal
    if relation in _UNORDERED:
        opposite = _ORDERED[_UNORDERED[relation]]
        return _stored(lambda a, b: ~opposite(a, b))
    special = {
        "ne": lambda a, b: (a < b) | (a > b),
        "equ": lambda a, b: ~((a < b) | (a > b)),
        "num": lambda a, b: (a == a) & (b == b),
        "nan": lambda a, b: (a != a) | (b != b),
    }
    if relation not in special:
        raise UnknownOperation(f"no floating-point comparison .{relation}")
    return _stored(special[relation])


def test_property(prop: str, kind: str) -> Callable[[Array], Array]:
    """`testp`: finite, infinite, number, notanumber, normal, subnormal."""
    integer, exponent, sign = _FIELDS[NATURAL[kind]]

    def is_normal(a: Array) -> Array:
        field = np.asarray(a).view(integer) & exponent
        return ((field != 0) & (field != exponent)) | (a == 0)  # the PTX ISA counts both zeros as normal

    tests = {
        "finite": np.isfinite, "infinite": np.isinf, "number": lambda a: a == a,
        "notanumber": lambda a: a != a,
        "normal": is_normal,
        "subnormal": lambda a: ((np.asarray(a).view(integer) & exponent) == 0) & (a != 0),
    }  # fmt: skip
    if prop not in tests:
        raise UnknownOperation(f"no property testp.{prop}")
    return tests[prop]


test_property.__test__ = False  # not a pytest function


# ------------------------------------------------------------------------------------------------------------
# Approximate functions
# ------------------------------------------------------------------------------------------------------------


def _rsqrt(a: Array) -> Array:
    return (1.0 / np.sqrt(_wide(a))).astype(np.float32)


def _log2(a: Array) -> Array:
    return np.log2(_wide(a)).astype(np.float32)


def _division_approx(a: Array, b: Array) -> Array:
    """`div.approx.f32` is a * (1 / b): a divisor above 2**126 has a reciprocal that is flushed to zero."""
    quotient = np.divide(a, b)
    huge = (np.abs(b) > np.float32(2.0**126)) & np.isfinite(b)
    if not huge.any():
        return quotient
    return np.where(
        huge, np.where(np.isinf(a), np.float32(np.nan), np.copysign(np.float32(0), quotient)), quotient
    )


def _high_word(x: Array) -> Array:
    """f64 approximations fill the upper 32 bits alone."""
    return (
        (np.atleast_1d(x).view(np.uint64) & np.uint64(0xFFFFFFFF00000000))
        .view(np.float64)
        .reshape(np.shape(x))
    )


_APPROXIMATE = {
    "ex2": np.exp2, "lg2": _log2, "sin": np.sin, "cos": np.cos, "tanh": np.tanh, "rcp": np.reciprocal,
    "rsqrt": _rsqrt,
    "sqrt": np.sqrt,
}  # fmt: skip


# ------------------------------------------------------------------------------------------------------------
# Finding an arithmetic operation
# ------------------------------------------------------------------------------------------------------------

_PLAIN = {"add": np.add, "sub": np.subtract, "mul": np.multiply}
_NEAREST = {**_PLAIN, "div": np.divide, "sqrt": np.sqrt, "rcp": np.reciprocal}
"""What numpy does as PTX does, in f32 and f64: to the nearest."""
_DIRECTED = {
    "f32": {"add": _add_f32, "mul": _narrowed(np.multiply), "div": _narrowed(np.divide),
            "sqrt": _narrowed(np.sqrt), "fma": _fma_f32},
    "f64": {"add": _add_f64, "mul": _from_exact(np.multiply, _exact_product),
            "div": _from_exact(np.divide, _exact_quotient), "sqrt": _from_exact(np.sqrt, _exact_root),
            "fma": _fma_f64},
}  # fmt: skip
"""In the other roundings (and fma of f64 in every one)."""


def _rounded(name: str, kind: str, mode: str) -> Callable[..., Array] | None:
    """An operation on f32 or f64 in a rounding mode; None when there is none."""
    name = "fma" if name == "mad" else name
    if mode == "rn" and (name in _NEAREST or (name, kind) == ("fma", "f32")):
        return _NEAREST.get(name, fma_f32)
    directed = _DIRECTED[kind]
    if name == "sub":
        add = directed["add"](mode)
        return lambda a, b: add(a, np.negative(b))
    if name == "rcp":
        divide, one = directed["div"](mode), NATURAL[kind].type(1)
        return lambda a: divide(one, a)
    return directed[name](mode) if name in directed else None


_ARITY = {"add": 2, "sub": 2, "mul": 2, "fma": 3, "mad": 3, "div": 2, "min": 2, "max": 2, "copysign": 2}


def _stored(core: Callable[..., Array]) -> Callable[..., Array]:
    """Give a function of the sources alone the keyword `out`."""

    def run(*sources: Array, out: Array = None) -> Array:
        value = core(*sources)
        if out is None:
            return value
        np.copyto(out, value, casting="same_kind")
        return out

    return run


def _on_halves(core: Callable[..., Array], kind: str) -> Callable[..., Array]:
    """A function of one element type on a packed pair: element 0 in the low half."""
    element, packed = NATURAL[kind], np.dtype(f"u{2 * NATURAL[kind].itemsize}")

    def run(*sources: Array) -> Array:
        # A register view may be strided; a lane's halves may not be.
        halves = [np.ascontiguousarray(s, packed).view(element).reshape(-1, 2) for s in sources]
        shape = np.broadcast_shapes(*[np.shape(s) for s in sources])
        return np.ascontiguousarray(core(*halves)).view(packed).reshape(shape)

    return run


@functools.cache
def lookup(opcode: str, count: int = 0) -> Operation:
    """The operation of a full PTX opcode such as "fma.rn.ftz.f32" or "cvt.rn.relu.bf16x2.f32".

    Covers the floating-point forms of add, sub, mul, fma, mad, div, rcp, sqrt, rsqrt, min, max, abs, neg,
    copysign, sin,
    cos, lg2, ex2, tanh and testp, and every form of cvt. `count` is the number of source operands where the
    opcode
    leaves it open (three-operand min and max). Raises `UnknownOperation`.
    """
    name, *modifiers = opcode.split(".")
    if name == "cvt":
        return _lookup_cvt(modifiers)
    kinds = [m for m in modifiers if m in NATURAL]
    flags = frozenset(m for m in modifiers if m not in NATURAL)
    if name in ("add", "sub", "fma") and kinds in (["f32", "f16"], ["f32", "bf16"]):
        return _mixed(name, kinds[1], flags)
    if len(kinds) != 1:
        raise UnknownOperation("one type is expected")
    kind = kinds[0]
    if name == "testp":
        return Operation(_stored(test_property(next(iter(flags)), kind)), (kind,), "pred")
    arity = count or _ARITY.get(name, 1)
    element = PACKED.get(kind, kind)
    core = _arithmetic(name, element, flags, arity)
    if core is None:
        raise UnknownOperation("there is no such operation")
    if kind in PACKED:
        core = _on_halves(core, element)
    takes_out = isinstance(core, np.ufunc) or core is fma_f32
    return Operation(core if takes_out else _stored(core), (kind,) * arity, kind)


def _arithmetic(name: str, kind: str, flags: frozenset[str], arity: int) -> Callable[..., Array] | None:
    core = _core(name, kind, flags, arity)
    if core is None:
        return None
    if "ftz" in flags:
        core = _flushed(core, kind)
    if "relu" in flags:
        core = _relued(core, kind)
    if "sat" in flags:
        core = _saturated(core, kind)
    if "oob" in flags:
        return None
    return core


def _core(name: str, kind: str, flags: frozenset[str], arity: int) -> Callable[..., Array] | None:
    """The operation without .ftz, .sat and .relu."""
    mode = next((m for m in flags if m in ROUNDINGS), "rn")
    if kind not in ("f16", "bf16", "f32", "f64"):
        return None
    if name in ("min", "max"):
        return _extreme_of(name, kind, "NaN" in flags, "xorsign" in flags, arity)
    if name in ("abs", "neg", "copysign"):
        return _bit_operation(name, kind)
    if name in _APPROXIMATE and ("approx" in flags or name in ("sin", "cos", "lg2", "ex2", "tanh", "rsqrt")):
        return _approximate(name, kind)
    if name == "div" and flags & {"approx", "full"}:
        return (_division_approx if "approx" in flags else np.divide) if kind == "f32" else None
    if kind in _DIRECTED:
        return _rounded(name, kind, mode)
    if mode != "rn":
        return None
    if name in ("fma", "mad"):
        return _fma_f16 if kind == "f16" else _through_f64(_fma_wide)
    if name not in _PLAIN:
        return None
    if kind == "f16":
        return _through_f32(_PLAIN[name], kind)
    return _through_f64({"add": _sum_odd, "sub": lambda a, b: _sum_odd(a, -b), "mul": np.multiply}[name])


def _approximate(name: str, kind: str) -> Callable[..., Array]:
    if (name, kind) == ("rcp", "f64"):
        return lambda a: _high_word(1.0 / a)
    if (name, kind) == ("rsqrt", "f64"):
        return lambda a: _high_word(1.0 / np.sqrt(a))
    return _through_f32(_APPROXIMATE[name], kind)


def _flushed(core: Callable[..., Array], kind: str) -> Callable[..., Array]:
    if kind == "bf16":
        return lambda *sources: _flush_bf16(core(*[_flush_bf16(s) for s in sources]))
    return lambda *sources: flush(core(*[flush(s) for s in sources]))


def _flush_bf16(bits: Array) -> Array:
    bits = np.asarray(bits)
    return np.where((bits & np.uint16(0x7F80)) == 0, bits & np.uint16(0x8000), bits)


def _relued(core: Callable[..., Array], kind: str) -> Callable[..., Array]:
    return lambda *sources: relu(core(*sources), kind)


def relu(x: Array, kind: str) -> Array:
    """`.relu`: negative values become +0; a NaN stays the canonical NaN."""
    if kind == "bf16":
        return np.where(((x & np.uint16(0x8000)) != 0) & (bf16_to_f32(x) == bf16_to_f32(x)), np.uint16(0), x)
    return np.where((x > 0) | (x != x), x, x.dtype.type(0))


def _saturated(core: Callable[..., Array], kind: str) -> Callable[..., Array]:
    limited = _through_f32(saturate, "bf16") if kind == "bf16" else saturate
    return lambda *sources: limited(core(*sources))


# ------------------------------------------------------------------------------------------------------------
# cvt
# ------------------------------------------------------------------------------------------------------------

_INTEGERS = {"u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"}
_FLOATS = {"f16", "bf16", "tf32", "f32", "f64"}
_INTEGRAL = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def _lookup_cvt(modifiers: list[str]) -> Operation:
    kinds = [m for m in modifiers if m in NATURAL]
    flags = frozenset(m for m in modifiers if m not in NATURAL)
    if len(kinds) != 2:
        raise UnknownOperation("two types are expected")
    if "pack" in flags:
        raise UnknownOperation("not a plain conversion")
    target, source = kinds
    sources, core = _conversion(target, source, flags)
    if core is None:
        raise UnknownOperation("there is no such conversion")
    return Operation(_stored(core), sources, target)


def _conversion(
    target: str, source: str, flags: frozenset[str]
) -> tuple[tuple[str, ...], Callable[..., Array] | None]:
    mode = next((m for m in flags if m in ROUNDINGS), "rn")
    if target in ("f16x2", "bf16x2") and source == "f32":
        return ("f32", "f32"), _pack_pair(target, mode, flags)
    two = ("f32", "f32") if source == "f32" else (source,)
    if target in _NARROW_PAIRS:
        return two, _to_narrow_pair(target, source, flags) if mode == "rn" else None
    if source in _NARROW_PAIRS:
        return (source,), _from_narrow_pair(target, source, flags)
    if target == "ue8m0x2":
        return two, _to_scale_pair(source, mode, flags)
    if source == "ue8m0x2":
        return (source,), _from_scale_pair if target == "bf16x2" else None
    if source in _INTEGERS and target in _INTEGERS:
        return (source,), _integer_to_integer(target, "sat" in flags)
    if source in _INTEGERS and target in _FLOATS:
        return (source,), _integer_to_float(target, mode, flags)
    if source in _FLOATS and target in _INTEGERS:
        return (source,), _float_to_integer(target, source, mode, flags)
    if source in _FLOATS and target in _FLOATS:
        return (source,), _float_to_float(target, source, mode, flags)
    return (source,), None


def _integer_to_integer(target: str, sat: bool) -> Callable[..., Array]:
    dtype = NATURAL[target]
    if not sat:
        return lambda a: np.asarray(a).astype(dtype)
    limits = np.iinfo(dtype)

    def run(a: Array) -> Array:
        a = np.asarray(a)
        own = np.iinfo(a.dtype)
        low, high = max(limits.min, own.min), min(limits.max, own.max)
        return np.clip(a, a.dtype.type(low), a.dtype.type(high)).astype(dtype)

    return run


def _integer_to_f64_odd(a: Array) -> Array:
    """Any integer -> f64, rounded to odd where 53 bits do not hold it."""
    return odd(*_sum_of_halves(a))


def _sum_of_halves(a: Array) -> tuple[Array, Array]:
    """Any integer -> the nearest f64 and the exact rest."""
    a = np.asarray(a)
    if a.dtype.itemsize < 8:
        return a.astype(np.float64), np.float64(0)
    high = (a >> a.dtype.type(32)).astype(np.float64) * 4294967296.0
    return two_sum(high, (a & a.dtype.type(0xFFFFFFFF)).astype(np.float64))


def _integer_to_float(target: str, mode: str, flags: frozenset[str]) -> Callable[..., Array] | None:
    if target in ("f32", "f64") and mode == "rn":
        core = lambda a: np.asarray(a).astype(NATURAL[target])  # noqa: E731
    elif target == "f64":
        core = lambda a: _toward(*_sum_of_halves(a), mode)  # noqa: E731
    else:
        to_f32 = functools.partial(narrow, dtype=np.float32)
        rounded = {"f32": to_f32, "f16": _to_f16, "bf16": f64_to_bf16}.get(target)
        if rounded is None:
            return None
        core = lambda a: rounded(_integer_to_f64_odd(a), mode=mode)  # noqa: E731
    return _saturated(core, target) if "sat" in flags else core


def _float_to_integer(target: str, source: str, mode: str, flags: frozenset[str]) -> Callable[..., Array]:
    """Round to an integer, clamp to the target's range. The PTX ISA (cvt) fixes what a NaN becomes.

    Zero, unless the source is f64 or the target has 64 bits: then the number whose top bit alone is set.
    """
    dtype = NATURAL[target]
    limits = np.iinfo(dtype)
    integral = _INTEGRAL.get(mode, np.trunc)
    wide = source == "f64" or dtype.itemsize == 8
    nan_value = (
        np.array(1 << (8 * dtype.itemsize - 1), f"u{dtype.itemsize}").view(dtype)[()]
        if wide
        else dtype.type(0)
    )
    # The largest f64 that astype may see: for 64-bit targets the limit itself is not an f64.
    high = float(limits.max) if dtype.itemsize < 8 else float(np.nextafter(float(limits.max), 0))
    single = source in ("f32", "f16", "bf16", "tf32") and dtype.itemsize <= 2

    def run(a: Array) -> Array:
        x = _as_float(a, source, np.float32 if single else np.float64)
        if "ftz" in flags:
            x = flush(np.asarray(a, np.float32)).astype(x.dtype)
        x = integral(x)
        result = np.clip(x, x.dtype.type(limits.min), x.dtype.type(high)).astype(dtype)
        if dtype.itemsize == 8:
            result = np.where(x > high, dtype.type(limits.max), result)
        nan = x != x
        return np.where(nan, nan_value, result) if nan.any() else result

    return run


def _as_float(a: Array, source: str, dtype: Any) -> Array:
    if source == "bf16":
        return bf16_to_f32(a).astype(dtype, copy=False)
    if source == "f16":
        return f16_to_f32(a).astype(dtype, copy=False)
    return np.asarray(a).astype(dtype, copy=False)


def _float_to_float(
    target: str, source: str, mode: str, flags: frozenset[str]
) -> Callable[..., Array] | None:
    core = _float_cast(target, source, mode, flags)
    if core is None:
        return None
    if "ftz" in flags and source == "f32":
        inner = core
        core = lambda a: inner(flush(a))  # noqa: E731
    if "ftz" in flags and target == "f32":
        outer = core
        core = lambda a: flush(outer(a))  # noqa: E731
    if "relu" in flags:
        core = _relued(core, target)
    return _saturated(core, target) if "sat" in flags else core


def _float_cast(target: str, source: str, mode: str, flags: frozenset[str]) -> Callable[..., Array] | None:
    if mode in _INTEGRAL:
        return _through_f32(_INTEGRAL[mode], source) if target == source else None
    if target == "tf32":
        return lambda a: f32_to_tf32(a, mode, "satfinite" in flags)
    if target == source:
        return lambda a: np.asarray(a)
    if target == "f64":
        return lambda a: _as_float(a, source, np.float64)
    if target == "f32":
        if source == "f64":
            return lambda a: narrow(a, np.float32, mode)
        return lambda a: _as_float(a, source, np.float32)
    to_half = {
        ("f16", "f32"): _to_f16, ("f16", "f64"): _to_f16, ("bf16", "f32"): f32_to_bf16,
        ("bf16", "f64"): f64_to_bf16, ("f16", "bf16"): lambda a, mode: _to_f16(bf16_to_f32(a), mode),
        ("bf16", "f16"): lambda a, mode: f32_to_bf16(f16_to_f32(a), mode),
    }.get((target, source))  # fmt: skip
    core = to_half and (lambda a: to_half(a, mode))
    return _satfinite(core, target) if core and "satfinite" in flags else core


def _satfinite(core: Callable[..., Array], target: str) -> Callable[..., Array]:
    """Clamp an infinite result to the largest finite value."""

    def run(a: Array) -> Array:
        bits = np.asarray(core(a)).view(np.uint16)
        infinity, largest = (0x7C00, 0x7BFF) if target == "f16" else (0x7F80, 0x7F7F)
        clamped = np.where(
            (bits & np.uint16(0x7FFF)) == infinity, (bits & np.uint16(0x8000)) | np.uint16(largest), bits
        )
        return clamped.view(NATURAL[target])

    return run


def _pack_pair(target: str, mode: str, flags: frozenset[str]) -> Callable[..., Array]:
    """cvt.rn.f16x2.f32 d, a, b: a becomes the upper half, b the lower."""
    element = PACKED[target]
    one = _float_cast(element, "f32", mode, flags)
    if "relu" in flags:
        one = _relued(one, element)

    def run(a: Array, b: Array) -> Array:
        upper = np.asarray(one(a)).view(np.uint16).astype(np.uint32)
        return (upper << np.uint32(16)) | np.asarray(one(b)).view(np.uint16)

    return run


def _to_narrow_pair(target: str, source: str, flags: frozenset[str]) -> Callable[..., Array] | None:
    """Two minifloats in one register: formats of 8 and 6 bits in a byte each, e2m1 in half a byte."""
    name = target[:-2]
    dtype = NATURAL[target]
    up = dtype.type(4 if name == "e2m1" else 8)

    def one(x: Array) -> Array:
        if "relu" in flags:
            x = relu(np.asarray(x), "f32")
        return to_minifloat(x, name).astype(dtype)

    if "satfinite" not in flags:
        return None
    if source == "f32":
        return lambda a, b: (one(a) << up) | one(b)
    if source == "f16x2":

        def run(a: Array) -> Array:
            a = np.asarray(a)
            upper = f16_to_f32((a >> np.uint32(16)).astype(np.uint16))
            lower = f16_to_f32((a & np.uint32(0xFFFF)).astype(np.uint16))
            return (one(upper) << up) | one(lower)

        return run
    return None


def _from_narrow_pair(target: str, source: str, flags: frozenset[str]) -> Callable[..., Array] | None:
    if target != "f16x2":
        return None
    name = source[:-2]
    # Every value of every format is an f16, so one table of bits does it.
    table = _to_f16(MINIFLOAT_TABLES[name])
    if "relu" in flags:
        table = relu(table, "f16")
    bits = table.view(np.uint16).astype(np.uint32)
    dtype = NATURAL[source]
    up = dtype.type(4 if name == "e2m1" else 8)
    code = dtype.type(bits.size - 1)

    def run(a: Array) -> Array:
        a = np.asarray(a)
        return (bits.take(a >> up & code) << np.uint32(16)) | bits.take(a & code)

    return run


def _to_scale_pair(source: str, mode: str, flags: frozenset[str]) -> Callable[..., Array] | None:
    """cvt.rz/rp{.satfinite}.ue8m0x2: powers of two; the sign is dropped, 0xff is NaN (and infinity)."""
    if mode not in ("rz", "rp"):
        return None

    def one(bits: Array) -> Array:
        magnitude = bits & np.uint32(0x7FFFFFFF)
        code = magnitude >> np.uint32(23)
        if mode == "rp":  # 2^-127 is a subnormal f32, but the least scale
            above = (magnitude & np.uint32(0x7FFFFF) != 0) & (magnitude > 0x400000) & (code < 255)
            code = code + above
        if "satfinite" in flags:
            code = np.where((code == 255) & (magnitude <= 0x7F800000), 254, code)
        return code.astype(np.uint16)

    if source == "f32":
        return lambda a, b: (one(_bits_of_f32(a)) << np.uint16(8)) | one(_bits_of_f32(b))
    if source == "bf16x2":
        return lambda a: (one(np.asarray(a) & np.uint32(0xFFFF0000)) << np.uint16(8)) | one(
            np.asarray(a) << np.uint32(16)
        )
    return None


def _bits_of_f32(x: Array) -> Array:
    return np.asarray(x, np.float32).view(np.uint32)


def _from_scale_pair(a: Array) -> Array:
    """cvt.rn.bf16x2.ue8m0x2."""
    code = np.arange(256)
    bits = np.where(code == 0, 0x40, np.where(code == 255, 0x7FFF, code << 7)).astype(np.uint32)
    a = np.asarray(a)
    return (bits.take(a >> np.uint16(8)) << np.uint32(16)) | bits.take(a & np.uint16(0xFF))


# ------------------------------------------------------------------------------------------------------------
# add, sub and fma of 16-bit operands with an f32
# ------------------------------------------------------------------------------------------------------------


def _mixed(name: str, kind: str, flags: frozenset[str]) -> Operation:
    """add, sub: d = a +- c; fma: d = a * b + c, with a and b of 16 bits, c and d f32 (sm_100 and later)."""
    mode = next((m for m in flags if m in ROUNDINGS), "rn")
    inner = _rounded(name, "f32", mode)
    count = 2 if name == "fma" else 1

    def run(*sources: Array) -> Array:
        return inner(*[_as_float(source, kind, np.float32) for source in sources[:count]], sources[count])

    core = _saturated(run, "f32") if "sat" in flags else run
    return Operation(_stored(core), (kind,) * count + ("f32",), "f32")
