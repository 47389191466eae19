"""Integer and float arithmetic, comparison, selection.

Rounding is written into every float instruction (``add.rn``), so that nobody contracts behind our back:
``fma.rn`` comes from operations that say so, and every executor computes the same bits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from ptxforge.codegen_ptx.lower.choices import choose, exclusive
from ptxforge.codegen_ptx.lower.divisions import (
    divide,
    narrow_first,
    quotients,
    remainders,
    remainders_by_quotients,
    runs_upwards,
)
from ptxforge.codegen_ptx.lower.elementwise import (
    aligned,
    by_formula,
    elementwise,
    in_two_widths,
    integer_class,
    note_field,
    of_runs,
    once_for_runs,
    sign_extended,
    width_of,
    zero_extended,
)
from ptxforge.codegen_ptx.lower.floats import Product, binary, compare, contract, multiply, to_f32
from ptxforge.codegen_ptx.lower.packing import byte_in_its_word
from ptxforge.codegen_ptx.lower.reals import fmod
from ptxforge.codegen_ptx.lower.small_integers import shifted_float
from ptxforge.codegen_ptx.lowering import Lowering, lowers
from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.codegen_ptx.ptx.pointers import whole
from ptxforge.codegen_ptx.ptx.registers import Register, register_class
from ptxforge.ir import types as T
from ptxforge.ir.core import Operation
from ptxforge.ir.ops import arith as ops
from ptxforge.ir.ops.reduce import Reduce


def _element(op: Operation) -> T.Type:
    return T.element_type(op.operands[0].type)


# -- integers --------------------------------------------------------------------------------------------


@lowers(ops.AddI, ops.SubI, ops.MulI)
def add_sub_mul(ctx: Lowering, op: Operation) -> None:
    b, bits = ctx.b, _element(op).bits
    if bits == 1:
        name = "and" if type(op) is ops.MulI else "xor"
        elementwise(ctx, op, lambda x, y: _logic(b, name, x, y))
        return
    function = {ops.AddI: b.add, ops.SubI: b.sub, ops.MulI: b.mul}[type(op)]
    width = width_of(bits)
    elementwise(ctx, op, lambda x, y: function(x, y, width))


_LOGIC = {ops.AndI: "and", ops.OrI: "or", ops.XorI: "xor"}


@lowers(ops.AndI, ops.OrI, ops.XorI)
def logic(ctx: Lowering, op: Operation) -> None:
    b, bits, name = ctx.b, _element(op).bits, _LOGIC[type(op)]
    if bits == 1:
        elementwise(ctx, op, lambda x, y: _logic(b, name, x, y))
        return
    elementwise(ctx, op, lambda x, y: bitwise(b, name, x, y, width_of(bits)))


def _logic(b: Builder, name: str, x, y):
    """and / or / xor of predicates."""
    if isinstance(x, int):
        x, y = y, x
    if isinstance(y, int):
        if isinstance(x, int):
            return {"and": x & y, "or": x | y, "xor": x ^ y}[name]
        if name == "and":
            return x if y else 0
        if name == "or":
            return 1 if y else x
        return b.negate(x) if y else x
    if x == y:
        return 0 if name == "xor" else x
    return b.either_way(f"{name}.pred %s, %s, %s;", "p", x, y)


def bitwise(b: Builder, name: str, x, y, width: int = 32):
    """and / or / xor of integers."""
    if isinstance(x, int):
        x, y = y, x
    if isinstance(y, int):
        if isinstance(x, int):
            return {"and": x & y, "or": x | y, "xor": x ^ y}[name]
        if y == 0:
            return 0 if name == "and" else x
        if y == -1 and name == "and":
            return x
    x, y = b.plain(x), b.plain(y)
    if name == "xor" and isinstance(y, Register):
        return exclusive(b, x, y, width)
    if isinstance(y, Register) and y < x:
        x, y = y, x
    found = b.pure(f"{name}.b{width} %s, %s, %s;", integer_class(width), x, y)
    if name == "and" and width == 32 and isinstance(y, int) and y >= 0:
        found.within(0, y)
        note_field(b, found, x, 0, y)
    return found


class _Division(NamedTuple):
    """One of the four integer divisions."""

    quotient: bool
    signed: bool


_DIVISIONS = {
    ops.DivSI: _Division(True, True), ops.DivUI: _Division(True, False),
    ops.RemSI: _Division(False, True), ops.RemUI: _Division(False, False),
}  # fmt: skip


@lowers(*_DIVISIONS)
def division(ctx: Lowering, op: Operation) -> None:
    b, bits = ctx.b, _element(op).bits
    kind, natural = _DIVISIONS[type(op)], op.attributes.get("natural", False)
    if bits == 1:
        # Of 0 and 1 (or -1), every quotient by 1 is the dividend; by 0 it is all ones.
        elementwise(ctx, op, lambda x, y: _logic(b, "or", x, b.negate(y)) if kind.quotient
                    else _logic(b, "and", x, b.negate(y)))
        return
    is_plain = not isinstance(op.lhs.type, T.TensorType) or bits < 32
    if kind.quotient or (is_plain and not op.by_quotient):
        found = narrow_first(b, of_runs(ctx, op), kind.quotient, kind.signed) if bits == 64 else {}
        once_for_runs(ctx, op, lambda x, y: found[x, y] if (x, y) in found
                      else divide(b, x, y, bits, kind.quotient, kind.signed, natural))
        return
    dividends, divisors = zip(*aligned(ctx, op))
    starts = runs_upwards(op, dividends)
    pairs = [(dividends[s], divisors[s]) for s in starts]
    found = (remainders_by_quotients(b, pairs, bits, kind.signed) if op.by_quotient
             else remainders(b, pairs, bits, kind.signed, inside=op.mostly_inside, natural=natural))
    steps = [b.split(x)[1] - b.split(dividends[s])[1] for x, s in zip(dividends, starts)]
    ctx.set(op, [b.add(x, step, width_of(bits)) for x, step in zip(found, steps)])


@lowers(ops.ShlI)
def shift_left(ctx: Lowering, op: ops.ShlI) -> None:
    """PTX clamps amounts, which are unsigned, at the width, as the operation does."""
    b, bits = ctx.b, _element(op).bits
    width, register = width_of(bits), integer_class(bits)

    def shifted(x, y):
        amount = _shift_amount(b, y, bits)
        if isinstance(amount, int):
            return b.mul(x, 1 << amount, width) if amount < bits else 0
        return b.pure(f"shl.b{width} %s, %s, %s;", register, b.plain(x), amount)

    if bits == 1:  # the only bit moves out
        elementwise(ctx, op, lambda x, y: _logic(b, "and", x, b.negate(y)))
    else:
        once_for_runs(ctx, op, shifted)


@lowers(ops.ShrSI, ops.ShrUI)
def shift_right(ctx: Lowering, op: Operation) -> None:
    b, bits, signed = ctx.b, _element(op).bits, isinstance(op, ops.ShrSI)
    if bits == 1:  # the only bit moves out, or is the sign, which stays
        elementwise(ctx, op, lambda x, y: x if signed else _logic(b, "and", x, b.negate(y)))
    else:
        once_for_runs(ctx, op, lambda x, y: _shifted_right(b, signed, x, y, bits))


def _shifted_right(b: Builder, signed: bool, x, y, bits: int):
    amount = _shift_amount(b, y, bits)
    width, register = width_of(bits), integer_class(bits)
    x = b.plain(sign_extended(b, x, bits) if signed else zero_extended(b, x, bits))
    if isinstance(x, int) and isinstance(amount, int):
        unsigned = x if signed else x & ((1 << bits) - 1)
        return unsigned >> amount
    found = b.pure(f"shr.{'s' if signed else 'u'}{width} %s, %s, %s;", register, x, amount)
    if isinstance(amount, int) and 0 < amount < 32 and width == 32:
        _note_shift(b, found, x, amount, signed)
    return found


def _note_shift(b: Builder, found: Register, x: Register, amount: int, signed: bool) -> None:
    """State what is known of ``found``, 32 bits shifted to the right."""
    if x.range is not None and (signed or x.range[0] >= 0):
        found.within(x.range[0] >> amount, x.range[1] >> amount)
    elif not signed:
        found.within(0, (1 << (32 - amount)) - 1)
    if found.range is not None and found.range[0] >= 0:
        note_field(b, found, x, amount, (1 << found.range[1].bit_length()) - 1)


def _shift_amount(b: Builder, y, bits: int):
    """The amount as a 32-bit operand of at most 64."""
    if isinstance(y, int):
        return min(y & ((1 << bits) - 1), 64)
    if bits == 64:
        return b.pure("cvt.u32.u64 %s, %s;", "r", b.pure("min.u64 %s, %s, 64;", "q", b.plain(y)))
    return b.plain(zero_extended(b, y, bits))


_EXTREMES = {
    ops.MinSI: ("min", True), ops.MaxSI: ("max", True), ops.MinUI: ("min", False), ops.MaxUI: ("max", False),
}  # fmt: skip


@lowers(*_EXTREMES)
def integer_extreme(ctx: Lowering, op: Operation) -> None:
    b, bits = ctx.b, _element(op).bits
    name, signed = _EXTREMES[type(op)]
    if bits == 1:
        # As numbers True is 1, as a signed bit -1; the operation compares booleans.
        elementwise(ctx, op, lambda x, y: _logic(b, "and" if name == "min" else "or", x, y))
        return
    elementwise(ctx, op, lambda x, y: extreme(b, name, signed, x, y, bits))


def extreme(b: Builder, name: str, signed: bool, x, y, bits: int):
    """Integer minimum or maximum."""
    extend = sign_extended if signed else zero_extended
    x, y = b.plain(extend(b, x, bits)), b.plain(extend(b, y, bits))
    if isinstance(x, int):
        x, y = y, x
    if isinstance(x, int):
        mask = 0 if signed else (1 << bits) - 1
        return (min if name == "min" else max)(x, y, key=lambda v: v if signed else v & mask)
    return b.pure(f"{name}.{'s' if signed else 'u'}{width_of(bits)} %s, %s, %s;", integer_class(bits), x, y)


@lowers(ops.MulHiUI)
def multiply_high(ctx: Lowering, op: Operation) -> None:
    b, bits = ctx.b, _element(op).bits
    template, kind = f"mul.hi.u{bits} %s, %s, %s;", integer_class(bits)
    elementwise(ctx, op, lambda x, y: b.pure(template, kind, b.plain(x), b.plain(y)))


# -- comparison and selection ----------------------------------------------------------------------------


@lowers(ops.CmpI)
def compare_integers(ctx: Lowering, op: ops.CmpI) -> None:
    """Elements that are known to compare alike (``constancy``) are compared once."""
    b, element = ctx.b, _element(op)
    operands = list(zip(*of_runs(ctx, op)))
    if isinstance(element, T.PointerType):
        results = _each(operands, lambda x, y: integer_compare(b, op.predicate, whole(b, x), whole(b, y), 64))
    elif element.bits == 1:
        results = _each(operands, lambda x, y: _compare_bits(b, op.predicate, x, y))
    else:
        fewest = op.differences_from
        compare = _comparison_of_sums(operands, fewest) if fewest else integer_compare
        results = _each(operands, lambda x, y: compare(b, op.predicate, x, y, element.bits))
    ctx.set(op, results)


def _each(operands: list[list], function: Callable) -> list:
    """As :func:`elementwise`, of given entries."""
    count = max(map(len, operands))
    pairs = list(zip(*(x * count if len(x) == 1 else x for x in operands), strict=True))
    found = {pair: function(*pair) for pair in dict.fromkeys(pairs)}
    return [found[pair] for pair in pairs]


_FAR = 1 << 30


def _comparison_of_sums(operands: list[list], fewest: int) -> Callable:
    """``root + constant < bound``, of 32 bits, as ``constant < bound - root``, one instruction each, where a
    thread compares ``fewest`` such sums or more.

    The difference cannot wrap where the root is between 0 and 2^30 and the bound is not less than -2^30;
    less than that it can be taken for -2^30, since no sum is below."""
    counts = Counter((x[0], y) for x, y in set(zip(*operands)) if isinstance(x, tuple))

    def compare(b: Builder, predicate: str, x, y, bits: int):
        root, constant = b.split(x)
        low, high = (root and root.range) or (-1, 0)
        if (
            counts[root, y] < fewest
            or low < 0
            or high > _FAR
            or abs(constant) > _FAR
            or isinstance(y, int)
        ):
            return integer_compare(b, predicate, x, y, bits)
        bound = b.pure("max.s32 %s, %s, %s;", "r", b.plain(y), -_FAR)
        room = b.pure("sub.s32 %s, %s, %s;", "r", bound, root)
        return comparison(b, "gt.s32", room, constant)

    return compare


_FOLDED = {
    "eq": lambda x, y: x == y, "ne": lambda x, y: x != y, "lt": lambda x, y: x < y, "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y, "ge": lambda x, y: x >= y,
}  # fmt: skip
_MIRRORED = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


def integer_compare(b: Builder, predicate: str, x, y, bits: int):
    """A predicate: comparison of integers by one of ``cmpi``'s predicates."""
    unsigned = predicate[0] == "u"
    relation = predicate if predicate in ("eq", "ne") else predicate[1:]
    if bits == 8 and relation in ("eq", "ne") and y == 0 and (byte := byte_in_its_word(b, x)) is not None:
        return b.pure(f"setp.{relation}.b32 %s, %s, 0;", "p", byte)
    extend = sign_extended if not unsigned and relation not in ("eq", "ne") else zero_extended
    x, y = extend(b, x, bits), extend(b, y, bits)
    if isinstance(x, int) and isinstance(y, int):
        mask = (1 << bits) - 1
        return int(_FOLDED[relation](x & mask, y & mask) if unsigned else _FOLDED[relation](x, y))
    if isinstance(x, int):
        x, y, relation = y, x, _MIRRORED[relation]
    known = _decided(b, relation, x, y) if not unsigned and bits <= 32 else None
    if known is not None:
        return known
    kind = "b" if relation in ("eq", "ne") else "u" if unsigned else "s"
    return comparison(b, f"{relation}.{kind}{width_of(bits)}", b.plain(x), b.plain(y))


def comparison(b: Builder, relation: str, x, y) -> Register:
    """The predicate of a comparison; what is compared stays known of it (``lower/cast.py`` makes a word of
    it)."""
    found = b.pure(f"setp.{relation} %s, %s, %s;", "p", x, y)
    b.remember(("compared", found), (relation, x, y))
    return found


def _decided(b: Builder, relation: str, x, y) -> int | None:
    """The outcome of a signed comparison that the operands' ranges decide, else None."""
    if relation not in ("lt", "ge", "le", "gt") or not (b.fits(x) and b.fits(y)):
        return None
    (xl, xh), (yl, yh) = b.range_of(x), b.range_of(y)
    # A relation of this kind is monotonic in both operands: the two extreme pairs decide.
    extremes = {_FOLDED[relation](xl, yh), _FOLDED[relation](xh, yl)}
    return int(extremes.pop()) if len(extremes) == 1 else None


def _compare_bits(b: Builder, predicate: str, x, y):
    """Comparison of booleans, False < True."""
    relation = predicate if predicate in ("eq", "ne") else predicate[1:]
    if relation in ("gt", "ge"):
        x, y, relation = y, x, _MIRRORED[relation]
    if relation == "ne":
        return _logic(b, "xor", x, y)
    if relation == "eq":
        return b.negate(_logic(b, "xor", x, y))
    if relation == "lt":
        return _logic(b, "and", b.negate(x), y)
    return _logic(b, "or", b.negate(x), y)


@lowers(ops.Select)
def select(ctx: Lowering, op: ops.Select) -> None:
    b = ctx.b
    element = T.element_type(op.result.type)
    if element is T.I1:
        elementwise(ctx, op, lambda c, x, y: _select_predicate(b, c, x, y))
        return
    kind = register_class(element)
    elementwise(ctx, op, lambda c, x, y: choose(b, c, x, y, kind))


def _select_predicate(b: Builder, condition, x, y):
    if isinstance(condition, int):
        return x if condition else y
    taken = _logic(b, "and", condition, x)
    return _logic(b, "or", taken, _logic(b, "and", b.negate(condition), y))


# -- floats ----------------------------------------------------------------------------------------------


@lowers(ops.MulF)
def multiply_floats(ctx: Lowering, op: ops.MulF) -> None:
    b, element = ctx.b, _element(op)
    if any(isinstance(user, Reduce) and user.contracted_sums for user in op.result.users):
        elementwise(ctx, op, Product)
        return
    elementwise(ctx, op, lambda x, y: multiply(b, x, y, element))


@lowers(ops.AddF)
def add_floats(ctx: Lowering, op: ops.AddF) -> None:
    b, element = ctx.b, _element(op)

    def add(x, y):
        if isinstance(y, Product):  # in a sum along an axis
            return contract(b, y.x, y.y, x, element)
        return shifted_float(b, "add", x, y, element) or binary(b, "add", x, y, element)

    elementwise(ctx, op, add)


@lowers(ops.SubF)
def subtract_floats(ctx: Lowering, op: ops.SubF) -> None:
    b, element = ctx.b, _element(op)

    def subtract(x, y):
        return shifted_float(b, "sub", x, y, element) or binary(b, "sub", x, y, element)

    elementwise(ctx, op, subtract)


@lowers(ops.DivF)
def divide_floats(ctx: Lowering, op: ops.DivF) -> None:
    if _element(op) is T.F32:
        dividends, divisors = (ctx.get(v) for v in op.operands)
        ctx.set(op, quotients(ctx.b, dividends, divisors, op.reciprocal_from))
        return
    float_division(ctx, op, "div.full.f32")


def float_division(ctx: Lowering, op: Operation, single: str) -> None:
    """f64 exactly, all narrower types by the instruction ``single``."""
    b = ctx.b
    double = lambda x, y: b.pure("div.rn.f64 %s, %s, %s;", "d", x, y)  # noqa: E731
    in_two_widths(ctx, op, double, lambda x, y: b.pure(f"{single} %s, %s, %s;", "f", x, y))


@lowers(ops.RemF)
def remainder(ctx: Lowering, op: ops.RemF) -> None:
    by_formula(ctx, op, fmod, fmod)


_FLOAT_EXTREMES = {
    ops.MinNumF: ("min", False), ops.MaxNumF: ("max", False),
    ops.MinimumF: ("min", True), ops.MaximumF: ("max", True),
}  # fmt: skip


@lowers(*_FLOAT_EXTREMES)
def float_extreme(ctx: Lowering, op: Operation) -> None:
    b, element = ctx.b, _element(op)
    name, propagate = _FLOAT_EXTREMES[type(op)]
    elementwise(ctx, op, lambda x, y: minimum_or_maximum(b, name, propagate, x, y, element))


def minimum_or_maximum(b: Builder, name: str, propagate: bool, x, y, element: T.Type):
    """Float minimum or maximum; with ``propagate`` a NaN wins, else it loses."""
    if element is T.F64:
        found = b.pure(f"{name}.f64 %s, %s, %s;", "d", x, y)
        if not propagate:
            return found
        unordered = b.pure("setp.nan.f64 %s, %s, %s;", "p", x, y)
        return choose(b, unordered, b.pure("add.rn.f64 %s, %s, %s;", "d", x, y), found, "d")
    suffix = ".NaN" if propagate else ""
    if element is T.F32:
        return b.pure(f"{name}{suffix}.f32 %s, %s, %s;", "f", x, y)
    if element in (T.F16, T.BF16):
        template = f"{name}{suffix}.{element} %s, %s, %s;"
        return b.pure(template, "h", b.register(x, "h"), b.register(y, "h"))
    return _fp8_extreme(b, name, propagate, x, y, element)


def _fp8_extreme(b: Builder, name: str, propagate: bool, x, y, element: T.Type):
    """One of the two 8-bit floats as it is: a conversion back would turn an infinity into the largest
    number."""
    p, q = b.register(to_f32(b, x, element), "f"), b.register(to_f32(b, y, element), "f")
    first = b.pure(f"setp.{'lt' if name == 'min' else 'gt'}.f32 %s, %s, %s;", "p", p, q)
    stays = p if propagate else q
    first = _logic(b, "or", first, b.pure("setp.nan.f32 %s, %s, %s;", "p", stays, stays))
    return choose(b, first, x, y, "r")


@lowers(ops.CmpF)
def compare_floats(ctx: Lowering, op: ops.CmpF) -> None:
    b, element = ctx.b, _element(op)
    elementwise(ctx, op, lambda x, y: compare(b, op.predicate, x, y, element))
