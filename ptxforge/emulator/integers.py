"""Integer and bit operations of PTX as pure numpy functions of whole arrays (numpy scalars broadcast).

Each takes arrays of the operands' natural dtypes and returns the result's; semantics are those of the PTX
ISA's "Integer Arithmetic", "Extended-Precision" and "Logic and Shift" chapters.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

Array = Any


def mul_hi_u64(a: Array, b: Array) -> Array:
    """High 64 bits of the unsigned 128-bit product, from 32-bit limbs."""
    a, b = np.asarray(a, np.uint64), np.asarray(b, np.uint64)
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    a0, a1, b0, b1 = a & low, a >> half, b & low, b >> half
    middle = a1 * b0 + (a0 * b0 >> half)
    carry = (middle & low) + a0 * b1
    return a1 * b1 + (middle >> half) + (carry >> half)


def mul_hi_s64(a: Array, b: Array) -> Array:
    """High 64 bits of the signed product: the unsigned one less each operand where the other is negative."""
    ua, ub = np.asarray(a).view(np.uint64), np.asarray(b).view(np.uint64)
    zero = np.uint64(0)
    return (mul_hi_u64(ua, ub) - np.where(a < 0, ub, zero) - np.where(b < 0, ua, zero)).view(np.int64)


def _wide(dtype: str) -> str:
    return dtype[0] + str(2 * int(dtype[1]))


def mul_wide(dtype: str) -> Callable[..., Array]:
    wide = np.dtype(_wide(dtype))
    return lambda a, b: np.multiply(a, b, dtype=wide, casting="unsafe")


def mul_hi(dtype: str) -> Callable[..., Array]:
    if dtype == "u8":
        return mul_hi_u64
    if dtype == "i8":
        return mul_hi_s64
    product, bits = mul_wide(dtype), 8 * int(dtype[1])
    return lambda a, b: (product(a, b) >> bits).astype(dtype)


def mul_24(dtype: str, high: bool) -> Callable[..., Array]:
    """mul24: bits 0-31 or 16-47 of the product of the operands' low 24 bits."""

    def run(a: Array, b: Array) -> Array:
        wide = _wide(dtype)
        up = 40
        x = (np.asarray(a).astype(wide) << up) >> up
        y = (np.asarray(b).astype(wide) << up) >> up
        return ((x * y) >> (16 if high else 0)).astype(dtype)

    return run


def divide(dtype: str) -> Callable[..., Array]:
    """Truncating division. By zero: all bits set, which is what the hardware's sequences give."""
    kind = np.dtype(dtype).type
    one, ones = kind(1), np.array(-1, np.int64).astype(dtype)

    def unsigned(a: Array, b: Array) -> Array:
        zero = np.equal(b, 0)
        return np.where(zero, ones, np.floor_divide(a, np.where(zero, one, b)))

    def signed(a: Array, b: Array) -> Array:
        zero = np.equal(b, 0)
        divisor = np.where(zero, one, b)
        quotient = np.floor_divide(a, divisor)
        inexact = np.not_equal(quotient * divisor, a) & ((a < 0) != (divisor < 0))
        return np.where(zero, ones, quotient + inexact.astype(dtype))

    return unsigned if dtype[0] == "u" else signed


def remainder(dtype: str) -> Callable[..., Array]:
    """Remainder with the sign of the dividend; all ones when the divisor is zero, as GPUs have it."""
    one = np.dtype(dtype).type(1)

    def run(a: Array, b: Array) -> Array:
        zero = np.equal(b, 0)
        return np.where(zero, ~np.zeros_like(a), np.fmod(a, np.where(zero, one, b)))

    return run


def saturating(dtype: str, subtract: bool) -> Callable[..., Array]:
    """add.sat / sub.sat of s32."""
    limits = np.iinfo(dtype)

    def run(a: Array, b: Array) -> Array:
        wide = np.subtract(a, b, dtype="i8") if subtract else np.add(a, b, dtype="i8")
        return np.clip(wide, limits.min, limits.max).astype(dtype)

    return run


def mad_hi_sat(a: Array, b: Array, c: Array) -> Array:
    high = np.multiply(a, b, dtype="i8") >> 32
    return np.clip(high + c, -(1 << 31), (1 << 31) - 1).astype(np.int32)


def sad(dtype: str) -> Callable[..., Array]:
    """c + |a - b|."""
    return lambda a, b, c: (c + np.where(a < b, b - a, a - b)).astype(dtype)


def popc(a: Array) -> Array:
    return np.bitwise_count(a).astype(np.uint32)


def clz(a: Array) -> Array:
    """Leading zeros of u4 or u8; the width for 0."""
    a = np.asarray(a)
    bits = 8 * a.dtype.itemsize
    return (bits - bit_length(a)).astype(np.uint32)


def bit_length(a: Array) -> Array:
    """Position of the highest set bit plus one; 0 for 0."""
    a = np.asarray(a)
    smeared = a.copy()
    shift = 1
    while shift < 8 * a.dtype.itemsize:
        smeared |= smeared >> a.dtype.type(shift)
        shift *= 2
    return np.bitwise_count(smeared).astype(np.int64)


def bfind(dtype: str, shift_amount: bool) -> Callable[..., Array]:
    """Position of the highest set bit (for negative numbers: the highest zero); 0xffffffff when there is
    none.
    """
    bits = 8 * int(dtype[1])
    unsigned = "u" + dtype[1]

    def run(a: Array) -> Array:
        a = np.asarray(a)
        if dtype[0] == "i":
            a = np.where(a < 0, ~a, a)
        length = bit_length(a.view(unsigned))
        found = bits - length if shift_amount else length - 1
        return np.where(length == 0, -1, found).astype(np.int32).view(np.uint32)

    return run


def reverse_bits(a: Array) -> Array:
    a = np.asarray(a).copy()
    bits, kind = 8 * a.dtype.itemsize, a.dtype.type
    shift, ones = bits // 2, (1 << bits) - 1
    mask = ones
    while shift:
        mask ^= (mask << shift) & ones
        a = ((a >> kind(shift)) & kind(mask)) | ((a & kind(mask)) << kind(shift))
        shift //= 2
    return a


def bfe(dtype: str) -> Callable[..., Array]:
    """Bit field extract; position and length are taken modulo 256; the sign is that of the field's
    last bit.
    """
    bits = 8 * int(dtype[1])

    def unsigned(a: Array, b: Array, c: Array) -> Array:
        position, length = np.asarray(b) & 0xFF, np.asarray(c) & 0xFF
        kind = np.dtype("u" + dtype[1]).type
        moved = np.asarray(a) >> position.astype(kind)
        return moved & field_mask(length, bits).astype(kind)

    def signed(a: Array, b: Array, c: Array) -> Array:
        position, length = (np.asarray(x).astype(np.int64) & 0xFF for x in (b, c))
        last = np.minimum(position + length - 1, bits - 1)
        value = unsigned(np.asarray(a).view("u" + dtype[1]), position.astype("u4"), length.astype("u4"))
        negative = ((np.asarray(a) >> np.maximum(last, 0).astype(dtype)) & 1).astype(bool) & (length > 0)
        # Above the field, and above the register's top where the field reaches past it, the sign is repeated.
        filled = ~field_mask(np.minimum(length, np.maximum(bits - position, 0)), bits).astype("u" + dtype[1])
        return np.where(negative, value | filled, value).view(dtype)

    return unsigned if dtype[0] == "u" else signed


def field_mask(length: Array, bits: int) -> Array:
    """``length`` low bits set (all for ``length >= bits``), u8."""
    length = np.asarray(length).astype(np.uint64)
    mask = (np.uint64(1) << np.minimum(length, np.uint64(63))) - np.uint64(1)
    mask = np.where(length >= 64, ~np.uint64(0), mask)
    return mask & np.uint64((1 << bits) - 1)


def bfi(dtype: str) -> Callable[..., Array]:
    """Insert the low ``d`` bits of a into b at ``c``."""
    bits = 8 * int(dtype[1])

    def run(a: Array, b: Array, c: Array, d: Array) -> Array:
        position, length = np.asarray(c) & 0xFF, np.asarray(d) & 0xFF
        kind = np.dtype(dtype).type
        mask = field_mask(length, bits).astype(dtype) << position.astype(dtype)
        return np.where(position >= bits, b, ((a << position.astype(dtype)) & mask) | (b & ~mask)).astype(
            kind
        )

    return run


def bmsk(wrap: bool) -> Callable[..., Array]:
    def run(a: Array, b: Array) -> Array:
        position, width = np.asarray(a).astype(np.uint64), np.asarray(b).astype(np.uint64)
        if wrap:
            position, width = position & np.uint64(31), width & np.uint64(31)
        position = np.minimum(position, np.uint64(63))
        return (field_mask(np.minimum(width, np.uint64(32)), 32) << position).astype(np.uint32)

    return run


def szext(dtype: str, wrap: bool) -> Callable[..., Array]:
    """Sign- or zero-extend the low ``b`` bits."""

    def run(a: Array, b: Array) -> Array:
        length = np.asarray(b).astype(np.uint64)
        length = length & np.uint64(31) if wrap else np.minimum(length, np.uint64(32))
        value = np.asarray(a).view(np.uint32) & field_mask(length, 32).astype(np.uint32)
        if dtype == "u4":
            return value
        up = (32 - length.astype(np.int64)).astype(np.int64)
        extended = (value.astype(np.int64) << (up + 32)) >> (up + 32)
        return np.where(length == 0, 0, extended).astype(np.int32)

    return run


def funnel(left: bool, wrap: bool) -> Callable[..., Array]:
    """shf.l / shf.r of the pair {b, a} (b holds the high bits) by c, wrapped or clamped at 32."""

    def run(a: Array, b: Array, c: Array) -> Array:
        pair = np.asarray(a).astype(np.uint64) | np.asarray(b).astype(np.uint64) << np.uint64(32)
        count = np.asarray(c) & np.uint32(31) if wrap else np.minimum(c, np.uint32(32))
        count = np.asarray(count).astype(np.uint64)
        moved = pair << count >> np.uint64(32) if left else pair >> count
        return moved.astype(np.uint32)

    return run


def prmt(mode: str) -> Callable[..., Array]:
    """Byte permute of {b, a}; ``mode`` is "" or one of f4e, b4e, rc8, ecl, ecr, rc16."""

    def run(a: Array, b: Array, c: Array) -> Array:
        a, b, c = np.broadcast_arrays(np.asarray(a), np.asarray(b), np.asarray(c))
        pair = a.astype(np.uint64) | b.astype(np.uint64) << np.uint64(32)
        result = np.zeros(pair.shape, np.uint32)
        for byte in range(4):
            selector = _selector(mode, c, byte).astype(np.uint64)
            value = (pair >> ((selector & np.uint64(7)) * np.uint64(8)) & np.uint64(0xFF)).astype(np.uint32)
            if mode == "":
                sign = np.where(value & np.uint32(0x80), np.uint32(0xFF), np.uint32(0))
                value = np.where(selector & np.uint64(8), sign, value)
            result |= value << np.uint32(8 * byte)
        return result

    return run


def _selector(mode: str, c: Array, byte: int) -> Array:
    if mode == "":
        return (c >> np.uint32(4 * byte)) & np.uint32(15)
    start = (c & np.uint32(3)).astype(np.int64)
    return {
        "f4e": lambda: (start + byte) & 7,
        "b4e": lambda: (start - byte) & 7,
        "rc8": lambda: start,
        "ecl": lambda: np.maximum(start, byte),
        "ecr": lambda: np.minimum(start, byte),
        "rc16": lambda: (start & 1) * 2 + byte % 2,
    }[mode]()


def lop3(table: int) -> Callable[..., Array]:
    """Bitwise function of three inputs by its truth table, for the few common tables in as few steps as
    possible.
    """
    return _lop3(table & 0xFF)


@cache
def _lop3(table: int) -> Callable[..., Array]:
    simple = {
        0x80: lambda a, b, c: a & b & c,
        0xFE: lambda a, b, c: a | b | c,
        0x96: lambda a, b, c: a ^ b ^ c,
        0xEA: lambda a, b, c: (a & b) | c,
        0xE2: lambda a, b, c: (a & b) | (c & ~b),
        0xCA: lambda a, b, c: (a & b) | (~a & c),
        0xC8: lambda a, b, c: (a | c) & b,
        0xF8: lambda a, b, c: a | (b & c),
        0x6A: lambda a, b, c: (a & b) ^ c,
        0x78: lambda a, b, c: a ^ (b & c),
        0xC0: lambda a, b, c: a & b,
        0xFC: lambda a, b, c: a | b,
        0x3C: lambda a, b, c: a ^ b,
    }
    if table in simple:
        return simple[table]

    def run(a: Array, b: Array, c: Array) -> Array:
        result = np.zeros(np.broadcast(a, b, c).shape, np.asarray(a).dtype)
        for row in range(8):
            if table >> row & 1:
                result |= (a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c)
        return result

    return run


def dp4a(first: str, second: str) -> Callable[..., Array]:
    """Dot product of four bytes plus c; ``first`` and ``second`` are "u1" or "i1"."""

    def run(a: Array, b: Array, c: Array) -> Array:
        x, y = (_bytes(value, kind) for value, kind in ((a, first), (b, second)))
        return ((x * y).sum(axis=-1) + np.asarray(c).astype(np.int64)).astype(np.uint32)

    return run


def dp2a(first: str, second: str, high: bool) -> Callable[..., Array]:
    """Dot product of two 16-bit halves of a with two bytes of b, plus c."""

    def run(a: Array, b: Array, c: Array) -> Array:
        x = np.ascontiguousarray(a).view(first.replace("1", "2")).reshape(np.shape(a) + (2,)).astype(np.int64)
        y = _bytes(b, second)[..., 2:4] if high else _bytes(b, second)[..., 0:2]
        return ((x * y).sum(axis=-1) + np.asarray(c).astype(np.int64)).astype(np.uint32)

    return run


def _bytes(value: Array, kind: str) -> Array:
    return np.ascontiguousarray(value).view(kind).reshape(np.shape(value) + (4,)).astype(np.int64)


def fns(mask: Array, base: Array, offset: Array) -> Array:
    """Find the n-th set bit from ``base``, upwards for a positive offset, downwards for a negative one."""
    mask, base, offset = np.broadcast_arrays(np.asarray(mask), np.asarray(base), np.asarray(offset))
    out = np.full(mask.shape, 0xFFFFFFFF, np.uint32)
    for index in range(mask.size):
        out.flat[index] = _nth_set(int(mask.flat[index]), int(base.flat[index]), int(offset.flat[index]))
    return out


def _nth_set(mask: int, base: int, offset: int) -> int:
    if offset == 0:
        return base if base < 32 and mask >> base & 1 else 0xFFFFFFFF
    step = 1 if offset > 0 else -1
    left, position = abs(offset), base
    while 0 <= position < 32:
        left -= mask >> position & 1
        if not left:
            return position
        position += step
    return 0xFFFFFFFF


def add_carry(a: Array, b: Array, carry: Array | int) -> tuple[Array, Array]:
    """a + b + carry and its carry out, unsigned."""
    partial = a + b
    total = partial + np.asarray(carry).astype(partial.dtype)
    return total, (partial < a) | (total < partial)


def sub_borrow(a: Array, b: Array, borrow: Array | int) -> tuple[Array, Array]:
    """a - b - borrow and its borrow out, unsigned."""
    partial = a - b
    total = partial - np.asarray(borrow).astype(partial.dtype)
    return total, (a < b) | (partial < total)


def pack_saturated(signed: bool, bits: int) -> Callable[..., Array]:
    """cvt.pack: {c moved up by two fields, a, b}, a and b saturated to ``bits``; 16-bit fields leave no room
    for c.
    """
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    mask = (1 << bits) - 1

    def run(a: Array, b: Array, c: Array) -> Array:
        x, y = (np.clip(np.asarray(value).astype(np.int64), low, high) & mask for value in (a, b))
        above = np.asarray(c).astype(np.int64) << 2 * bits if bits < 16 else 0
        return ((above | x << bits | y) & 0xFFFFFFFF).astype(np.uint32)

    return run


def packed16(function: Callable[..., Array], dtype: str) -> Callable[..., Array]:
    """A 16-bit operation on both halves of u4 operands."""

    def run(*sources: Array) -> Array:
        halves = [
            np.ascontiguousarray(np.atleast_1d(source)).view(dtype)
            for source in np.broadcast_arrays(*sources)
        ]
        return np.ascontiguousarray(function(*halves).astype(dtype)).view(np.uint32)

    return run
