"""Conversions between element types. Neighbouring elements are converted in pairs where PTX has a packed
form."""

from __future__ import annotations

from collections.abc import Callable

from ptxforge.codegen_ptx.lower.elementwise import (
    elementwise,
    integer_class,
    sign_extended,
    width_of,
    zero_extended,
)
from ptxforge.codegen_ptx.lower.floats import (
    FP8,
    f64_to_f32_odd,
    fp8_pair_from_f32,
    fp8_pair_to_f16,
    fp8_to_f16,
    from_f32,
    pair_from_f32,
    to_f32,
)
from ptxforge.codegen_ptx.lower.packing import are_bytes_of_words, pack, unpack
from ptxforge.codegen_ptx.lower.small_integers import is_bf16_computed, pair_to_floats
from ptxforge.codegen_ptx.lower.truth_values import bytes_of
from ptxforge.codegen_ptx.lowering import Lowering, lowers
from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.codegen_ptx.ptx.constants import constant, float_value, is_constant, wrap
from ptxforge.codegen_ptx.ptx.pointers import Pointer, whole
from ptxforge.codegen_ptx.ptx.registers import Register, register_class
from ptxforge.ir import types as T
from ptxforge.ir.core import Operation
from ptxforge.ir.ops import cast as ops


def _types(op: Operation) -> tuple[T.Type, T.Type]:
    return T.element_type(op.operands[0].type), T.element_type(op.result.type)


# -- integers --------------------------------------------------------------------------------------------


@lowers(ops.ExtSI)
def extend_signed(ctx: Lowering, op: ops.ExtSI) -> None:
    b, (source, target) = ctx.b, _types(op)
    elementwise(ctx, op, lambda x: _extend(b, x, source.bits, target.bits, signed=True))


@lowers(ops.ExtUI)
def extend_unsigned(ctx: Lowering, op: ops.ExtUI) -> None:
    if op.in_words:
        ctx.set(op, bytes_of(ctx, op.x))
        return
    b, (source, target) = ctx.b, _types(op)
    elementwise(ctx, op, lambda x: _extend(b, x, source.bits, target.bits, signed=False))


def _extend(b: Builder, x, bits: int, target: int, signed: bool):
    if bits == 1:
        return _bit_to_integer(b, x, -1 if signed else 1, target)
    narrow = (sign_extended if signed else zero_extended)(b, x, bits)
    if target < 64:
        return narrow
    if isinstance(narrow, int):
        return narrow if signed else narrow & 0xFFFFFFFF
    known = b.range_of(narrow)
    if signed or (known is not None and known[0] >= 0 and b.fits(narrow)):
        return b.widen(narrow)
    return b.pure("cvt.u64.u32 %s, %s;", "q", b.plain(narrow))


def _bit_to_integer(b: Builder, x, one: int, bits: int):
    """A predicate as a number. With a sign it is a mask: compared once more, so that the predicate is not
    needed until the mask is."""
    if isinstance(x, int):
        return one * x
    compared = b.known(("compared", x)) if one == -1 and bits <= 32 else None
    if compared is not None:
        relation, *operands = compared
        return b.pure(f"set.{relation.replace('.', '.s32.')} %s, %s, %s;", "r", *operands)
    return b.pure(f"selp.b{width_of(bits)} %s, %s, 0, %s;", integer_class(bits), one, x)


@lowers(ops.TruncI)
def truncate_integer(ctx: Lowering, op: ops.TruncI) -> None:
    b, (source, target) = ctx.b, _types(op)
    elementwise(ctx, op, lambda x: truncated(b, x, source.bits, target.bits))


def truncated(b: Builder, x, source: int, target: int):
    """The low ``target`` bits of an integer."""
    if isinstance(x, int):
        return x & 1 if target == 1 else wrap(x, target)
    if source == 64:
        root, offset = b.split(x)
        x = b.affine(b.pure("cvt.u32.u64 %s, %s;", "r", root), offset, 32)
    if target > 1:
        return x
    return b.pure("setp.ne.b32 %s, %s, 0;", "p", b.pure("and.b32 %s, %s, 1;", "r", b.plain(x)))


# -- floats to floats ------------------------------------------------------------------------------------


@lowers(ops.ExtF)
def extend_float(ctx: Lowering, op: ops.ExtF) -> None:
    b, (source, target) = ctx.b, _types(op)
    if source in FP8 and b.target.has_native_fp8_cvt and target is not T.F64:
        _by_groups(ctx, op, 4, lambda group: _extend_fp8_group(b, group, source, target))
        return
    elementwise(ctx, op, lambda x: _extend_float(b, x, source, target))


def _by_groups(ctx: Lowering, op: Operation, size: int, convert: Callable[[tuple], list]) -> None:
    """Convert ``size`` neighbouring registers at a time; a shorter list is padded with its last entry."""
    entries = ctx.get(op.operands[0])
    memo: dict[tuple, list] = {}
    result: list = []
    for i in range(0, len(entries), size):
        group = tuple(entries[i : i + size])
        count = len(group)
        group += group[-1:] * (size - count)
        found = memo.get(group)
        if found is None:
            found = memo[group] = convert(group)
        result += found[:count]
    ctx.set(op, result)


def _extend_fp8_group(b: Builder, group: tuple, source: T.Type, target: T.Type) -> list:
    if any(isinstance(x, int) for x in group):
        return [_extend_float(b, x, source, target) for x in group]
    word = pack(b, group, source)
    halves = b.halves(word)
    parts = [x for half in halves for x in fp8_pair_to_f16(b, half, source)]
    if target is T.F16:
        return parts
    wide = [to_f32(b, x, T.F16) for x in parts]
    return (
        wide
        if target is T.F32
        else [x for i in (0, 2) for x in pair_from_f32(b, wide[i], wide[i + 1], target)]
    )


def _extend_float(b: Builder, x, source: T.Type, target: T.Type):
    if is_constant(x):
        return constant(float_value(x, source), target)
    if source in FP8 and target is T.F16:
        return fp8_to_f16(b, x, source)
    if target is T.F64 and source is T.F16:
        return b.pure("cvt.f64.f16 %s, %s;", "d", x)
    wide = to_f32(b, x, source)
    if target is T.F64:
        return b.pure("cvt.f64.f32 %s, %s;", "d", wide)
    return from_f32(b, wide, target)


@lowers(ops.TruncF)
def truncate_float(ctx: Lowering, op: ops.TruncF) -> None:
    b, (source, target) = ctx.b, _types(op)
    rounding = op.rounding
    if source is T.F32 and target.bits == 16:
        _by_groups(ctx, op, 2, lambda pair: pair_from_f32(b, *pair, target, rounding) if pair[0] != pair[1]
                   else [from_f32(b, b.register(pair[0], "f"), target, rounding)] * 2)
    elif target in FP8 and source is not T.F64 and rounding == "rtne" and b.target.has_native_fp8_cvt:
        _by_groups(
            ctx, op, 4, lambda group: fp8_pair_from_f32(b, [to_f32(b, x, source) for x in group], target)
        )
    else:
        elementwise(ctx, op, lambda x: narrowed(b, x, source, target, rounding))


def narrowed(b: Builder, x, source: T.Type, target: T.Type, rounding: str = "rtne"):
    """A float in a narrower (or equally wide) format, rounded once."""
    if source is T.F64:
        x = b.register(x, "d")
        if target in (T.F32, T.F16):
            mode = "rn" if rounding == "rtne" else "rz"
            return b.pure(f"cvt.{mode}.{target}.f64 %s, %s;", register_class(target), x)
        return from_f32(b, f64_to_f32_odd(b, x), target, rounding)
    return from_f32(b, b.register(to_f32(b, x, source), "f"), target, rounding)


# -- integers to floats ----------------------------------------------------------------------------------


@lowers(ops.SIToFP)
def signed_to_float(ctx: Lowering, op: ops.SIToFP) -> None:
    _to_float(ctx, op, signed=True)


@lowers(ops.UIToFP)
def unsigned_to_float(ctx: Lowering, op: ops.UIToFP) -> None:
    _to_float(ctx, op, signed=False)


def _to_float(ctx: Lowering, op: Operation, signed: bool) -> None:
    b, (source, target) = ctx.b, _types(op)

    def convert(x):
        return integer_to_float(b, x, source.bits, target, signed)

    def convert_pair(pair: tuple) -> list:
        return pair_to_floats(b, pair, source.bits, target, signed) or [convert(x) for x in pair]

    def convert_bytes(group: tuple) -> list:
        if not are_bytes_of_words(b, group) or (signed and is_bf16_computed(b, target)):
            return [x for i in (0, 2) for x in convert_pair(group[i : i + 2])]
        return bytes_to_floats(b, pack(b, group, source), target, signed)

    if source.bits == 8 and target is not T.F64:
        _by_groups(ctx, op, 4, convert_bytes)
    elif target.bits == 16 and 1 < source.bits <= 32:
        _by_groups(ctx, op, 2, convert_pair)
    else:
        elementwise(ctx, op, convert)


def bytes_to_floats(b: Builder, word: Register, target: T.Type, signed: bool) -> list:
    """The four bytes of a word as floats.

    A byte in the low bits of a float whose last mantissa bit is worth 1 adds its value to it: 1024 in f16,
    2**23 in f32. Taking that off again is exact, and faster than a conversion (of which there are a quarter
    as many a cycle). Signed bytes are 128 too large when their top bit is flipped.
    """
    if signed:
        word = b.pure("xor.b32 %s, %s, %s;", "r", word, -0x7F7F7F80)
    if target is T.F16:
        one, bias = b.register(0x64646464, "r"), b.register(0x64806480 if signed else 0x64006400, "r")
        halves = [b.pure(f"prmt.b32 %s, %s, %s, {order};", "r", word, one) for order in ("0x4140", "0x4342")]
        sums = [b.pure("sub.f16x2 %s, %s, %s;", "r", half, bias) for half in halves]
        return [x for pair in sums for x in unpack(b, pair, T.F16)]
    bias = "0f4B000080" if signed else "0f4B000000"
    wide = [
        b.pure("sub.f32 %s, %s, %s;", "f", b.pure(f"prmt.b32 %s, %s, 0x4B000000, 0x765{i};", "f", word), bias)
        for i in range(4)
    ]
    if target is T.F32:
        return wide
    if target in FP8:
        native = b.target.has_native_fp8_cvt
        return fp8_pair_from_f32(b, wide, target) if native else [from_f32(b, x, target) for x in wide]
    return [x for i in (0, 2) for x in pair_from_f32(b, wide[i], wide[i + 1], target)]


def integer_to_float(b: Builder, x, bits: int, target: T.Type, signed: bool):
    """An integer as a float, rounded once. True is 1."""
    if bits == 1:
        x, bits = _bit_to_integer(b, x, 1, 32), 32
    x = (sign_extended if signed else zero_extended)(b, x, bits)
    width = width_of(bits)
    if isinstance(x, int) and abs(x) <= 1 << 24 and (signed or x >= 0):
        return constant(float(x), target)
    name, x = f"{'s' if signed else 'u'}{width}", b.register(x, integer_class(width))
    if target in (T.F32, T.F64, T.F16):
        return b.pure(f"cvt.rn.{target}.{name} %s, %s;", register_class(target), x)
    if target is T.BF16 and b.target.has_bf16_cvt:
        b.require(7, 8)
        return b.pure(f"cvt.rn.bf16.{name} %s, %s;", "h", x)
    return from_f32(b, _integer_to_f32_odd(b, x, name, bits), target)


def _integer_to_f32_odd(b: Builder, x: Register, name: str, bits: int) -> Register:
    """An integer as f32 rounded to odd, so that rounding again is right. 16 bits are exact."""
    truncated = b.pure(f"cvt.rz.f32.{name} %s, %s;", "f", x)
    if bits <= 16:
        return truncated
    back = b.pure(f"cvt.rzi.{name}.f32 %s, %s;", integer_class(bits), truncated)
    inexact = b.pure(f"setp.ne.{name} %s, %s, %s;", "p", back, x)
    return b.pure("or.b32 %s, %s, %s;", "f", truncated, b.pure("selp.b32 %s, 1, 0, %s;", "r", inexact))


# -- floats to integers ----------------------------------------------------------------------------------


@lowers(ops.FPToSI)
def float_to_signed(ctx: Lowering, op: ops.FPToSI) -> None:
    b, (source, target) = ctx.b, _types(op)
    elementwise(ctx, op, lambda x: float_to_integer(b, x, source, target.bits, signed=True))


@lowers(ops.FPToUI)
def float_to_unsigned(ctx: Lowering, op: ops.FPToUI) -> None:
    b, (source, target) = ctx.b, _types(op)
    elementwise(ctx, op, lambda x: float_to_integer(b, x, source, target.bits, signed=False))


def float_to_integer(b: Builder, x, source: T.Type, bits: int, signed: bool):
    """A float as an integer: towards zero, saturating, NaN gives 0."""
    if source not in (T.F64, T.F32, T.F16):
        x, source = to_f32(b, x, source), T.F32
    x = b.register(x, register_class(source))
    if bits == 1:
        # As the narrowest integer, saturated: not zero means true.
        whole_number = float_to_integer(b, x, source, 8, signed)
        return b.pure("setp.ne.b32 %s, %s, 0;", "p", whole_number)
    found = b.pure(f"cvt.rzi.{'s' if signed else 'u'}{bits}.{source} %s, %s;", integer_class(bits), x)
    if bits < 64 and source is not T.F64:
        return found
    # With 64 bits on either side the hardware turns NaN into the top bit.
    is_number = b.pure(f"setp.num.{source} %s, %s, %s;", "p", x, x)
    return b.pure(f"selp.b{width_of(bits)} %s, %s, 0, %s;", integer_class(bits), found, is_number)


# -- bits ------------------------------------------------------------------------------------------------


@lowers(ops.Bitcast)
def bitcast(ctx: Lowering, op: ops.Bitcast) -> None:
    b, (source, target) = ctx.b, _types(op)
    if isinstance(source, T.PointerType) and isinstance(target, T.PointerType):
        ctx.set(op, ctx.get(op.x))
        return
    elementwise(ctx, op, lambda x: reinterpreted(b, x, source, target))


def reinterpreted(b: Builder, x, source: T.Type, target: T.Type):
    """The same bits in a register (or constant) of the target's class."""
    if isinstance(x, Pointer):
        x = whole(b, x)
    old, new = register_class(source), register_class(target)
    if is_constant(x):
        return _constant_of_bits(_bits_of_constant(x), target)
    if old == new:
        return x
    x = b.plain(x)
    if {old, new} == {"h", "r"}:
        return b.pure("cvt.u32.u16 %s, %s;" if new == "r" else "cvt.u16.u32 %s, %s;", new, x)
    found = b.known(("bits", x, new)) or b.pure(f"mov.b{64 if new in 'qd' else 32} %s, %s;", new, x)
    b.remember(("bits", found, old), x)
    return found


def _bits_of_constant(x) -> int:
    return x if isinstance(x, int) else int(x[2:], 16)


def _constant_of_bits(bits: int, target: T.Type):
    if target is T.F32:
        return "0f%08X" % (bits & 0xFFFFFFFF)
    if target is T.F64:
        return "0d%016X" % (bits & 0xFFFFFFFFFFFFFFFF)
    if isinstance(target, T.PointerType) or target.is_int:
        return wrap(bits, target.bits)
    return bits & ((1 << target.bits) - 1)


@lowers(ops.PtrToInt)
def pointer_to_integer(ctx: Lowering, op: ops.PtrToInt) -> None:
    elementwise(ctx, op, lambda x: whole(ctx.b, x))


@lowers(ops.IntToPtr)
def integer_to_pointer(ctx: Lowering, op: ops.IntToPtr) -> None:
    b = ctx.b

    def convert(x):
        root, offset = b.split(x)
        return Pointer(b.register(0, "q") if root is None else root, (), offset)

    elementwise(ctx, op, convert)
