"""Small integers as f16 and bf16 without instructions that convert, of which there are few a cycle.

In the floats from 128 to 256 (of f16: from 1024 to 2048) the last bit of the mantissa is worth 1, so that an
integer in the low bits of such a number adds its value to it. Taking 128 off again is exact:

    and.b32      %x, %p, 15                                  two nibbles of a byte of 4-bit weights
    shr.u32      %y, %p, 4
    mul.lo.s32   %w, %p, 4097                                 p + (p << 12): %y stands at bit 16
    lop3.b32     %w, %w, 0x000f000f, 0x43004300, 0xEA         128 + x and 128 + y, in bf16
    mov.b32      {%h0, %h1}, %w
    sub.rn.bf16  %h0, %h0, 128.0                              the assembler makes one instruction of both

Nibbles of two words come beside each other before they are masked:

    prmt.b32     %w, %p, %q, 0x5410
    lop3.b32     %w, %w, 0x000f000f, 0x43004300, 0xEA

Larger ones, which are not negative, go by way of f32, where there is room for 23 bits beside 2**23: one more
instruction rounds two of them.

An integer that is taken off next (a zero point: ``x - 8.0``) is taken off together with the 128: the
difference is exact either way.

Signed bytes have 7 bits and a sign: ``(128 + low 7 bits) - (sign ? 256 : 128)``.

Nothing is weighed here: what the registers are known to hold says which of these forms are right. The first
that is, is taken; where none is, numbers are converted.
"""

from __future__ import annotations

from typing import NamedTuple

from ptxforge.codegen_ptx.lower.elementwise import field_of, zero_extended
from ptxforge.codegen_ptx.lower.floats import binary, pair_from_f32
from ptxforge.codegen_ptx.lower.packing import unpack
from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.codegen_ptx.ptx.constants import constant, float_value
from ptxforge.codegen_ptx.ptx.registers import Register
from ptxforge.ir import types as T

_AND_OR = "lop3.b32 %s, %s, %s, %s, 0xEA;"
"""(a & b) | c."""
_ONE = {T.F16: 1024, T.BF16: 128}
"""The powers of two whose last bit is worth 1."""


class _Biased(NamedTuple):
    """A float minus ``bias`` is an integer in ``range``."""

    value: Register
    bias: int
    range: tuple[int, int]


def is_bf16_computed(b: Builder, element: T.Type) -> bool:
    """Whether ``element`` is bf16, and the target adds such numbers."""
    return element is T.BF16 and b.target.has_bf16_arithmetic


# -- integers whose range is known -------------------------------------------------------------------------


def pair_to_floats(b: Builder, pair: tuple, bits: int, target: T.Type, signed: bool) -> list | None:
    """Two integers of ``bits`` bits as f16 or bf16; ``None`` where other ways are as good."""
    if target not in _ONE or any(isinstance(x, int) for x in pair):
        return None
    return _sums_with_one(b, pair, bits, target, signed) or _by_way_of_f32(b, pair, target)


def _sums_with_one(b: Builder, pair: tuple, bits: int, target: T.Type, signed: bool) -> list | None:
    """See above."""
    if target is T.BF16 and not is_bf16_computed(b, target):
        return None
    (x, first), (y, second) = (b.split(entry) for entry in pair)
    if first == second and _are_small(b, pair, bits, target, signed):
        if min(x.range[0], y.range[0]) < 0:
            return _small_signed(b, x, y, first, target)
        return _without_bias(b, _beside_one(b, x, y, target), (x, y), _ONE[target] - first, target)
    if bits == 8 and signed:
        return _signed_bytes(b, pair, target)
    return None


def _by_way_of_f32(b: Builder, pair: tuple, target: T.Type) -> list | None:
    """Up to 23 bits have room beside 2**23, from where one instruction rounds both."""
    ranges = [b.range_of(x) for x in pair]
    if any(known is None or known[0] < 0 or known[1] >= 1 << 23 for known in ranges):
        return None
    found = []
    for x in map(b.plain, pair):
        field = field_of(b, x)
        if field.shift == 0 <= field.mask:
            biased = b.pure(_AND_OR, "f", field.source, field.mask, 0x4B000000)
        else:
            biased = b.pure("or.b32 %s, %s, 0x4B000000;", "f", x)
        found.append(b.pure("sub.f32 %s, %s, 0f4B000000;", "f", biased))
    return pair_from_f32(b, *found, target)


def _are_small(b: Builder, pair: tuple, bits: int, target: T.Type, signed: bool) -> bool:
    """Whether the registers are known to be what they mean, with and without their constants, and fit below
    the last bit of what they are added to: half as many where there are negative ones."""
    one = _ONE[target]
    least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    roots = [b.split(entry) for entry in pair]
    if any(root.range is None or abs(offset) > one for root, offset in roots):
        return False
    low, high = min(root.range[0] for root, _ in roots), max(root.range[1] for root, _ in roots)
    if low < -one // 2 or high >= (one // 2 if low < 0 else one):
        return False
    return all(max(least, -one) <= low + n and high + n <= min(most, one) for _, n in roots)


def _beside_one(b: Builder, x: Register, y: Register, target: T.Type) -> Register:
    """The word of ``one | x`` and ``one | y``, two floats."""
    one = constant(_ONE[target], target) * 0x10001
    low, high = field_of(b, x), field_of(b, y)
    if low.source == high.source and low.shift == 0 < high.shift and low.mask == high.mask:
        place, width = 16 - high.shift, high.shift + low.mask.bit_length()
        if low.mask > 0 and place >= width:
            whole = b.plain(zero_extended(b, low.source, width))
            return b.pure(_AND_OR, "r", b.mul(whole, 1 + (1 << place)), low.mask * 0x10001, one)
    if low.shift == high.shift == 0 and 0 < low.mask == high.mask < 1 << 16:
        both = b.pure("prmt.b32 %s, %s, %s, 0x5410;", "r", b.plain(low.source), b.plain(high.source))
        return b.pure(_AND_OR, "r", both, low.mask * 0x10001, one)
    return b.pure("or.b32 %s, %s, %s;", "r", b.pure("mad.lo.s32 %s, %s, 65536, %s;", "r", y, one), x)


def _without_bias(b: Builder, word: Register, roots: tuple, bias: int, target: T.Type) -> list:
    found = []
    for half, root in zip(unpack(b, word, target), roots):
        low, high = root.range
        shift = _ONE[target] - bias
        found.append(_subtract(b, _Biased(half, bias, (low + shift, high + shift)), target))
    return found


def _small_signed(b: Builder, x: Register, y: Register, offset: int, target: T.Type) -> list:
    """In the middle between two powers of two there is room below, too."""
    middle = _ONE[target] * 3 // 2
    sums = b.pure("mad.lo.s32 %s, %s, 65536, %s;", "r", y, x)
    word = b.plain((sums, constant(middle, target) * 0x10001))
    found = []
    for half, root in zip(unpack(b, word, target), (x, y)):
        around = (root.range[0] + offset, root.range[1] + offset)
        found.append(_subtract(b, _Biased(half, middle - offset, around), target))
    return found


def _subtract(b: Builder, biased: _Biased, target: T.Type) -> Register:
    found = binary(b, "sub", biased.value, constant(biased.bias, target), target)
    b.remember(("biased", found), biased)
    return found


def shifted_float(b: Builder, name: str, x, y, element: T.Type):
    """``x + y`` or ``x - y`` (``add``, ``sub``), where ``y`` is a constant integer and ``x`` was an integer a
    moment ago; else ``None``."""
    biased = b.known(("biased", x)) if isinstance(x, Register) and isinstance(y, int) else None
    if biased is None:
        return None
    value, most = float_value(y, element), 2 * _ONE[element]
    if value != value or abs(value) > most or value != int(value):
        return None
    step = int(value) if name == "sub" else -int(value)
    low, high = biased.range[0] - step, biased.range[1] - step
    bias = biased.bias + step
    if not (-most <= low and high <= most and abs(bias) <= most):
        return None
    return _subtract(b, _Biased(biased.value, bias, (low, high)), element)


# -- bytes -------------------------------------------------------------------------------------------------


def _signed_bytes(b: Builder, pair: tuple, target: T.Type) -> list:
    """See above. In f16 there is room for 8 bits: with the sign flipped they are 128 too large."""
    spread = _two_bytes(b, pair)
    one = constant(_ONE[target], target) * 0x10001
    if target is T.F16:
        bytes_ = b.pure(_AND_OR, "r", spread, 0x00FF00FF, one)
        word = b.pure("xor.b32 %s, %s, %s;", "r", bytes_, 0x00800080)
        return [binary(b, "sub", x, constant(1024 + 128, target), target) for x in unpack(b, word, target)]
    low = b.pure(_AND_OR, "r", spread, 0x007F007F, one)
    base = b.pure(_AND_OR, "r", spread, 0x00800080, one)
    halves = zip(unpack(b, low, target), unpack(b, base, target))
    return [binary(b, "sub", x, y, target) for x, y in halves]


def _two_bytes(b: Builder, pair: tuple) -> Register:
    """The low bytes of two registers as those of a word's halves; what is above them is anything."""
    places = [b.known(("byte of", x)) or (x, 0) for x in map(b.plain, pair)]
    (first, i), (second, j) = places
    if first == second:
        return b.pure(f"prmt.b32 %s, %s, %s, 0x{j * 17 << 8 | i * 17:04x};", "r", first, first)
    return b.pure(f"prmt.b32 %s, %s, %s, 0x{(j + 4) * 17 << 8 | i * 17:04x};", "r", first, second)
