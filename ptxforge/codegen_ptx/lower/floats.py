"""Float instructions by element type, and conversions between float formats.

f16 computes natively. bf16 has ``fma`` from sm_80 on, ``add`` and ``mul`` from sm_90 on; before, they are
spelled as ``fma`` with 1 and -0. 8-bit floats compute in f32. Conversions that the target lacks are integer
arithmetic here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ptxforge.codegen_ptx.lower.packing import unpack
from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.codegen_ptx.ptx.constants import constant, f32, float_value, is_constant
from ptxforge.codegen_ptx.ptx.registers import Register
from ptxforge.ir import types as T

_KIND = {T.F16: "h", T.BF16: "h", T.F32: "f", T.F64: "d"}
FP8 = (T.F8E4M3, T.F8E5M2)


# -- arithmetic ------------------------------------------------------------------------------------------


def binary(b: Builder, name: str, x, y, element: T.Type):
    """x + y or x - y (``add``, ``sub``)."""
    if element in FP8:
        return via_f32(b, lambda p, q: binary(b, name, p, q, T.F32), element, x, y)
    if element is T.BF16 and not b.target.has_bf16_arithmetic:
        one = constant(1.0 if name == "add" else -1.0, T.BF16)
        return contract(b, y, one, x, element)
    return _native(b, name, element, x, y)


def multiply(b: Builder, x, y, element: T.Type):
    """x · y."""
    if element in FP8:
        return via_f32(b, lambda p, q: multiply(b, p, q, T.F32), element, x, y)
    if element is T.BF16 and not b.target.has_bf16_arithmetic:
        return contract(b, x, y, constant(-0.0, T.BF16), element)
    return _native(b, "mul", element, x, y)


def _native(b: Builder, name: str, element: T.Type, x, y):
    kind = _KIND[element]
    if kind == "h":
        x, y = b.register(x, "h"), b.register(y, "h")
        if element is T.BF16:
            b.require(7, 8)
    return b.pure(f"{name}.rn.{element.name} %s, %s, %s;", kind, x, y)


def contract(b: Builder, x, y, z, element: T.Type):
    """x · y + z with one rounding."""
    if element in FP8:
        return via_f32(b, lambda p, q, r: contract(b, p, q, r, T.F32), element, x, y, z)
    kind = _KIND[element]
    if kind == "h":
        x, y, z = b.register(x, "h"), b.register(y, "h"), b.register(z, "h")
    return b.pure(f"fma.rn.{element.name} %s, %s, %s, %s;", kind, x, y, z)


_SIGN = {T.F32: 0x80000000, T.F64: 1 << 63}


def negate(b: Builder, x, element: T.Type):
    """-x."""
    if element in (T.F32, T.F64):
        if is_constant(x):
            digits = 8 if element is T.F32 else 16
            return f"{x[:2]}%0{digits}X" % (int(x[2:], 16) ^ _SIGN[element])
        return b.pure(f"neg.{element.name} %s, %s;", _KIND[element], x)
    if isinstance(x, int):
        return x ^ (1 << (element.bits - 1))
    if element in FP8:
        return b.pure("xor.b32 %s, %s, 128;", "r", b.plain(x))
    return b.pure("xor.b16 %s, %s, 0x8000;", "h", x)


_RELATIONS = {"oeq": "eq", "one": "ne", "olt": "lt", "ole": "le", "ogt": "gt", "oge": "ge", "ueq": "equ",
              "une": "neu",
              "ult": "ltu", "ule": "leu", "ugt": "gtu", "uge": "geu", "ord": "num", "uno": "nan"}  # fmt: skip


def compare(b: Builder, predicate: str, x, y, element: T.Type):
    """A comparison by one of ``cmpf``'s predicates."""
    if element in FP8 or (element is T.BF16 and not b.target.has_bf16_arithmetic):
        x, y, element = to_f32(b, x, element), to_f32(b, y, element), T.F32
    if _KIND[element] == "h":
        x, y = b.register(x, "h"), b.register(y, "h")
        if element is T.BF16:
            b.require(7, 8)
    return b.pure(f"setp.{_RELATIONS[predicate]}.{element} %s, %s, %s;", "p", x, y)


def via_f32(b: Builder, function: Callable, element: T.Type, *operands):
    """A function of f32 applied to another float type (f64 aside): widen, compute, round."""
    if element is T.F32:
        return function(*operands)
    wide = [to_f32(b, x, element) for x in operands]
    return from_f32(b, function(*wide), element)


# -- widening --------------------------------------------------------------------------------------------


def to_f32(b: Builder, x, element: T.Type):
    """A float of at most 32 bits as f32 (exact)."""
    if element is T.F32:
        return x
    if isinstance(x, int):
        return f32(float_value(x, element))
    if element is T.F16:
        return b.pure("cvt.f32.f16 %s, %s;", "f", x)
    if element is T.BF16:
        return _bf16_to_f32(b, x)
    return b.pure("cvt.f32.f16 %s, %s;", "f", fp8_to_f16(b, x, element))


def _bf16_to_f32(b: Builder, x: Register) -> Register:
    """The upper half of an f32. From half a word it is a shift or a mask, which run on different units."""
    word, place = b.known(("half", x)) or (None, 0)
    if word is None:
        return b.pure("mov.b32 %s, {%s, %s};", "f", b.register(0, "h"), x)
    if place == 0:
        return b.pure("shl.b32 %s, %s, 16;", "f", word)
    return b.pure("and.b32 %s, %s, 0xFFFF0000;", "f", word)


def fp8_to_f16(b: Builder, x, element: T.Type) -> Register:
    """An 8-bit float as f16 (exact)."""
    if isinstance(x, int):
        return b.register(constant(float_value(x, element), T.F16), "h")
    if b.target.has_native_fp8_cvt:
        return fp8_pair_to_f16(b, b.pure("cvt.u16.u32 %s, %s;", "h", b.plain(x)), element)[0]
    if element is T.F8E5M2:
        # The upper byte of an f16 is an e5m2.
        return b.pure("cvt.u16.u32 %s, %s;", "h", b.pure("shl.b32 %s, %s, 8;", "r", b.plain(x)))
    return _e4m3_to_f16(b, b.plain(x))


def _e4m3_to_f16(b: Builder, x: Register) -> Register:
    """Exponent and mantissa moved into place are 2**8 too small as f16 (biases 7 and 15), subnormals
    included."""
    magnitude = b.pure("and.b32 %s, %s, 127;", "r", x)
    small = b.pure("cvt.u16.u32 %s, %s;", "h", b.pure("shl.b32 %s, %s, 7;", "r", magnitude))
    scaled = b.pure("mul.rn.f16 %s, %s, %s;", "h", small, b.register(constant(256.0, T.F16), "h"))
    is_nan = b.pure("setp.eq.s32 %s, %s, 127;", "p", magnitude)
    number = b.pure("selp.b16 %s, %s, %s, %s;", "h", b.register(0x7FFF, "h"), scaled, is_nan)
    sign = b.pure("and.b32 %s, %s, 0x8000;", "r", b.pure("shl.b32 %s, %s, 8;", "r", x))
    return b.pure("or.b16 %s, %s, %s;", "h", number, b.pure("cvt.u16.u32 %s, %s;", "h", sign))


_FP8_NAMES = {T.F8E4M3: "e4m3x2", T.F8E5M2: "e5m2x2"}


def fp8_pair_to_f16(b: Builder, pair: Register, element: T.Type) -> tuple[Register, Register]:
    """Two 8-bit floats in a 16-bit register as two f16 (needs the native conversion)."""
    b.require(8, 1) if b.target.sm == 89 else b.require(7, 8)
    word = b.pure(f"cvt.rn.f16x2.{_FP8_NAMES[element]} %s, %s;", "r", pair)
    return unpack(b, word, T.F16)


# -- narrowing -------------------------------------------------------------------------------------------


def from_f32(b: Builder, x, element: T.Type, rounding: str = "rtne"):
    """An f32 in a narrower format, rounded once; 8-bit formats saturate."""
    if element is T.F32:
        return x
    if element in FP8:
        return f32_to_fp8(b, x, element, rounding)
    return b.pure(f"cvt.{_ROUND[rounding]}.{element}.f32 %s, %s;", "h", x)


_ROUND = {"rtne": "rn", "rtz": "rz"}


def pair_from_f32(b: Builder, low, high, element: T.Type, rounding: str = "rtne") -> Sequence[Register]:
    """Two f32 as two f16 or bf16 in one instruction."""
    low, high = b.register(low, "f"), b.register(high, "f")
    word = b.pure(f"cvt.{_ROUND[rounding]}.{element.name}x2.f32 %s, %s, %s;", "r", high, low)
    return unpack(b, word, element)


def f32_to_fp8(b: Builder, x, element: T.Type, rounding: str = "rtne"):
    """An f32 as an 8-bit float in the low byte of a 32-bit register."""
    if rounding == "rtne" and b.target.has_native_fp8_cvt:
        pair = _native_fp8_pair(b, x, x, element)
        return b.pure("cvt.u32.u16 %s, %s;", "r", pair)
    return _f32_to_fp8_by_integers(b, x, element, rounding)


def fp8_pair_from_f32(b: Builder, elements: Sequence, element: T.Type) -> Sequence[Register]:
    """Four f32 as four 8-bit floats by two native conversions."""
    low = _native_fp8_pair(b, elements[0], elements[1], element)
    high = _native_fp8_pair(b, elements[2], elements[3], element)
    return unpack(b, b.pure("mov.b32 %s, {%s, %s};", "r", low, high), element)


def _native_fp8_pair(b: Builder, low, high, element: T.Type) -> Register:
    b.require(8, 1) if b.target.sm == 89 else b.require(7, 8)
    low, high = b.register(low, "f"), b.register(high, "f")
    return b.pure(f"cvt.rn.satfinite.{_FP8_NAMES[element]}.f32 %s, %s, %s;", "h", high, low)


_FP8_FORMATS = {T.F8E4M3: (3, 7, 448.0, 0x7F), T.F8E5M2: (2, 15, 57344.0, 0x7F)}


def _f32_to_fp8_by_integers(b: Builder, x, element: T.Type, rounding: str) -> Register:
    """Normal results: round the f32's bits at the new last place. Subnormal ones: adding a power of two whose
    last place is the subnormals' unit makes the adder round."""
    mantissa, bias, largest, nan = _FP8_FORMATS[element]
    nearest = rounding == "rtne"
    cut = 23 - mantissa
    source = b.register(x, "f")
    bits = b.pure("mov.b32 %s, %s;", "r", source)
    magnitude = b.pure("min.f32 %s, %s, %s;", "f", b.pure("abs.f32 %s, %s;", "f", source), f32(largest))
    raw = b.pure("mov.b32 %s, %s;", "r", magnitude)
    rounded = raw
    if nearest:
        last = b.pure("bfe.u32 %s, %s, %s, 1;", "r", raw, cut)
        below_half = b.pure("add.s32 %s, %s, %s;", "r", raw, (1 << (cut - 1)) - 1)
        rounded = b.pure("add.s32 %s, %s, %s;", "r", below_half, last)
    shortened = b.pure("shr.u32 %s, %s, %s;", "r", rounded, cut)
    normal = b.pure("sub.s32 %s, %s, %s;", "r", shortened, (127 - bias) << mantissa)
    magic = 2.0 ** (23 - mantissa + 1 - bias)
    shifted = b.pure(f"add.{'rn' if nearest else 'rz'}.f32 %s, %s, %s;", "f", magnitude, f32(magic))
    shifted_bits = b.pure("mov.b32 %s, %s;", "r", shifted)
    subnormal = b.pure("sub.s32 %s, %s, %s;", "r", shifted_bits, int(f32(magic)[2:], 16))
    is_small = b.pure("setp.lt.f32 %s, %s, %s;", "p", magnitude, f32(2.0 ** (1 - bias)))
    number = b.pure("selp.b32 %s, %s, %s, %s;", "r", subnormal, normal, is_small)
    is_nan = b.pure("setp.nan.f32 %s, %s, %s;", "p", source, source)
    number = b.pure("selp.b32 %s, %s, %s, %s;", "r", nan, number, is_nan)
    sign = b.pure("and.b32 %s, %s, 128;", "r", b.pure("shr.u32 %s, %s, 24;", "r", bits))
    return b.pure("or.b32 %s, %s, %s;", "r", number, sign)


def f64_to_f32_odd(b: Builder, x) -> Register:
    """An f64 as f32 rounded to odd (towards zero, the last bit set when inexact), so that rounding it again
    to a narrower format is right (Boldo & Melquiond, 2008)."""
    truncated = b.pure("cvt.rz.f32.f64 %s, %s;", "f", x)
    back = b.pure("cvt.f64.f32 %s, %s;", "d", truncated)
    inexact = b.pure("setp.ne.f64 %s, %s, %s;", "p", back, x)
    return b.pure("or.b32 %s, %s, %s;", "f", truncated, b.pure("selp.b32 %s, 1, 0, %s;", "r", inexact))


class Product(NamedTuple):
    """A product that its only user may contract into an ``fma``."""

    x: object
    y: object


def evaluated(b: Builder, x, element: T.Type):
    """The value of an entry that may be a postponed product."""
    return multiply(b, x.x, x.y, element) if isinstance(x, Product) else x
