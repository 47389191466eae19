"""Algebra of integers, floats, comparisons, selections and casts.

Values may be scalars or tensors; "0" is also the uniform tensor of zeros. Rules for floats hold for every
input: NaN, infinities and the sign of zero included. (``x + 0.0`` is not ``x``: for -0.0 it is 0.0.)
"""

from __future__ import annotations

import math

from ptxforge.ir import types as T
from ptxforge.ir.core import Operation, Value
from ptxforge.ir.definition import COMMUTATIVE, REGISTRY
from ptxforge.ir.limits import Limits
from ptxforge.ir.ops import arith
from ptxforge.ir.ops.cast import (
    Bitcast,
    ExtF,
    ExtSI,
    ExtUI,
    FPToSI,
    IntToPtr,
    PtrToInt,
    SIToFP,
    TruncF,
    TruncI,
)
from ptxforge.ir.ops.math import AbsF, DivRn
from ptxforge.ir.ops.memory import GetProgramId
from ptxforge.ir.rewriter import PatternSet, Rewriter, constant_of
from ptxforge.passes.analysis.sign import limits

RULES = PatternSet()

_SWAPPED = {
    "eq": "eq", "ne": "ne", "slt": "sgt", "sle": "sge", "sgt": "slt", "sge": "sle",
    "ult": "ugt", "ule": "uge", "ugt": "ult", "uge": "ule",
}  # fmt: skip
_NEGATED = {
    "eq": "ne", "ne": "eq", "slt": "sge", "sle": "sgt", "sgt": "sle", "sge": "slt",
    "ult": "uge", "ule": "ugt", "ugt": "ule", "uge": "ult",
}  # fmt: skip
EXACT_INTEGERS = {T.F32: 1 << 24, T.F64: 1 << 53}
"""Up to which size every integer is a number of the type."""
_HOLDS_FOR_EQUALS = frozenset({"eq", "sle", "sge", "ule", "uge"})


def is_int(value: Value, wanted: int) -> bool:
    """Whether a value is the integer constant ``wanted``; -1 stands for all ones, of ``i1`` too."""
    found = constant_of(value)
    if isinstance(found, bool):
        return found == bool(wanted)
    return type(found) is int and found == wanted


def is_float(value: Value, wanted: float) -> bool:
    """Whether a value is the float constant ``wanted``, with the sign of zero."""
    found = constant_of(value)
    return (
        isinstance(found, float) and found == wanted and math.copysign(1, found) == math.copysign(1, wanted)
    )


def _zero(rewriter: Rewriter, type: T.Type) -> Value:
    return rewriter.constant(False if T.element_type(type) is T.I1 else 0, type)


# -- order and association -----------------------------------------------------------------------------------


@RULES.on(*[kind for kind in REGISTRY.values() if COMMUTATIVE in kind.traits])
def constant_to_the_right(op: Operation, rewriter: Rewriter) -> bool:
    """c ∘ x → x ∘ c"""
    if constant_of(op.lhs) is None or constant_of(op.rhs) is not None:
        return False
    return rewriter.set_operands(op, (op.rhs, op.lhs))


@RULES.on(arith.CmpI)
def compared_constant_to_the_right(op: arith.CmpI, rewriter: Rewriter) -> bool:
    """c < x → x > c"""
    if constant_of(op.lhs) is None or constant_of(op.rhs) is not None:
        return False
    op.predicate = _SWAPPED[op.predicate]
    return rewriter.set_operands(op, (op.rhs, op.lhs))


@RULES.on(arith.AddI, arith.MulI, arith.AndI, arith.OrI, arith.XorI)
def associate_constants(op: Operation, rewriter: Rewriter) -> bool:
    """(x ∘ c) ∘ d → x ∘ (c ∘ d), unless x is a constant, too: then x ∘ c is about to become one"""
    inner = op.lhs.defining_op
    if type(inner) is not type(op) or constant_of(op.rhs) is None or constant_of(inner.rhs) is None:
        return False
    if constant_of(inner.lhs) is not None:
        return False
    return rewriter.replace(
        op, rewriter.value(type(op), inner.lhs, rewriter.value(type(op), inner.rhs, op.rhs))
    )


@RULES.on(arith.SubI)
def subtracted_constant(op: arith.SubI, rewriter: Rewriter) -> bool:
    """x - c → x + (-c)"""
    if constant_of(op.rhs) is None:
        return False
    negative = rewriter.value(arith.SubI, _zero(rewriter, op.rhs.type), op.rhs)
    return rewriter.replace(op, rewriter.value(arith.AddI, op.lhs, negative))


# -- identities of integers
# ------------------------------------------------------------------------------------


@RULES.on(arith.AddI, arith.SubI, arith.OrI, arith.XorI, arith.ShlI, arith.ShrSI, arith.ShrUI)
def right_zero(op: Operation, rewriter: Rewriter) -> bool:
    """x + 0, x - 0, x | 0, x ^ 0, x << 0, x >> 0 → x"""
    return is_int(op.rhs, 0) and rewriter.replace(op, op.lhs)


@RULES.on(arith.MulI, arith.DivSI, arith.DivUI)
def right_one(op: Operation, rewriter: Rewriter) -> bool:
    """x · 1, x / 1 → x"""
    # An i1 holds -1 and not 1 when it is signed: 1 / -1 is not 1.
    is_one = is_int(op.rhs, 1) and not (type(op) is arith.DivSI and T.element_type(op.result.type) is T.I1)
    return is_one and rewriter.replace(op, op.lhs)


@RULES.on(arith.MulI, arith.AndI)
def annihilated(op: Operation, rewriter: Rewriter) -> bool:
    """x · 0, x & 0 → 0"""
    return is_int(op.rhs, 0) and rewriter.replace(op, op.rhs)


@RULES.on(arith.RemSI, arith.RemUI)
def remainder_by_one(op: Operation, rewriter: Rewriter) -> bool:
    """x % 1 → 0"""
    if not is_int(op.rhs, 1):
        return False
    return rewriter.replace(op, _zero(rewriter, op.result.type))


@RULES.on(arith.AndI, arith.OrI)
def all_ones(op: Operation, rewriter: Rewriter) -> bool:
    """x & -1 → x, x | -1 → -1"""
    return is_int(op.rhs, -1) and rewriter.replace(op, op.lhs if type(op) is arith.AndI else op.rhs)


@RULES.on(
    arith.AndI, arith.OrI, arith.MinSI, arith.MaxSI, arith.MinUI, arith.MaxUI, arith.MinNumF, arith.MaxNumF,
    arith.MinimumF, arith.MaximumF,
)  # fmt: skip
def idempotent(op: Operation, rewriter: Rewriter) -> bool:
    """x & x, x | x, min(x, x), max(x, x) → x"""
    return op.lhs is op.rhs and rewriter.replace(op, op.lhs)


@RULES.on(arith.SubI, arith.XorI)
def with_itself(op: Operation, rewriter: Rewriter) -> bool:
    """x - x, x ^ x → 0"""
    return op.lhs is op.rhs and rewriter.replace(op, _zero(rewriter, op.result.type))


# -- identities of floats
# --------------------------------------------------------------------------------------


@RULES.on(arith.MulF, arith.DivF, DivRn)
def float_right_one(op: Operation, rewriter: Rewriter) -> bool:
    """x · 1.0, x / 1.0 → x"""
    return is_float(op.rhs, 1.0) and rewriter.replace(op, op.lhs)


@RULES.on(arith.AddF)
def plus_negative_zero(op: arith.AddF, rewriter: Rewriter) -> bool:
    """x + (-0.0) → x"""
    return is_float(op.rhs, -0.0) and rewriter.replace(op, op.lhs)


@RULES.on(arith.SubF)
def minus_zero(op: arith.SubF, rewriter: Rewriter) -> bool:
    """x - 0.0 → x"""
    return is_float(op.rhs, 0.0) and rewriter.replace(op, op.lhs)


@RULES.on(AbsF)
def absolute_twice(op: AbsF, rewriter: Rewriter) -> bool:
    """||x|| → |x|"""
    return type(op.x.defining_op) is AbsF and rewriter.replace(op, op.x)


# -- comparisons and selections
# --------------------------------------------------------------------------------


@RULES.on(arith.CmpI)
def compared_with_itself(op: arith.CmpI, rewriter: Rewriter) -> bool:
    """x <= x → true, x < x → false"""
    if op.lhs is not op.rhs:
        return False
    return rewriter.replace(op, rewriter.constant(op.predicate in _HOLDS_FOR_EQUALS, op.result.type))


_SIGNED_OF = {"ult": "slt", "ule": "sle", "ugt": "sgt", "uge": "sge"}


@RULES.on(arith.CmpI)
def compared_within_limits(op: arith.CmpI, rewriter: Rewriter) -> bool:
    """x < c → true or false, where the limits of both sides tell"""
    if isinstance(T.element_type(op.lhs.type), T.PointerType):
        return False
    left = limits(op.lhs)
    holds = decided(op.predicate, left, limits(op.rhs) if left is not None else None)
    return holds is not None and rewriter.replace(op, rewriter.constant(holds, op.result.type))


def decided(predicate: str, left: Limits | None, right: Limits | None) -> bool | None:
    """Whether a comparison holds for all numbers within the limits, or for none."""
    if left is None or right is None or (predicate in _SIGNED_OF and min(left[0], right[0]) < 0):
        return None
    return _decided(_SIGNED_OF.get(predicate, predicate), left, right)


def _decided(predicate: str, left: Limits, right: Limits) -> bool | None:
    """Whether a signed comparison holds for all numbers within the limits or for none."""
    if predicate in ("eq", "ne"):
        return predicate == "ne" if left[1] < right[0] or right[1] < left[0] else None
    if predicate in ("sgt", "sge"):
        predicate, left, right = _SWAPPED[predicate], right, left
    slack = 1 if predicate == "slt" else 0
    if left[1] + slack <= right[0]:
        return True
    return False if left[0] + slack > right[1] else None


@RULES.on(arith.CmpI)
def compared_before_extension(op: arith.CmpI, rewriter: Rewriter) -> bool:
    """sext i32 x < c → x < c, where i32 has c; sext x < sext y → x < y: 64-bit comparisons are two each"""
    extension = op.lhs.defining_op
    if type(extension) is not ExtSI or T.element_type(extension.x.type) is not T.I32:
        return False
    other, bound = op.rhs.defining_op, constant_of(op.rhs)
    if type(other) is ExtSI and other.x.type is extension.x.type:
        right = other.x
    elif bound is not None and -(1 << 31) <= bound < 1 << 31:
        right = rewriter.constant(bound, extension.x.type)
    else:
        return False
    return rewriter.replace(op, rewriter.value(arith.CmpI, extension.x, right, predicate=op.predicate))


@RULES.on(arith.CmpI)
def extended_boolean(op: arith.CmpI, rewriter: Rewriter) -> bool:
    """ext i1 x != 0 → x, ext i1 x == 0 → x ^ true"""
    extension = op.lhs.defining_op
    is_boolean = type(extension) in (ExtSI, ExtUI) and T.element_type(extension.x.type) is T.I1
    if not is_boolean or constant_of(op.rhs) != 0 or op.predicate not in ("eq", "ne"):
        return False
    found = extension.x
    if op.predicate == "eq":
        found = rewriter.value(arith.XorI, found, rewriter.constant(True, found.type))
    return rewriter.replace(op, found)


@RULES.on(arith.DivSI, arith.ShrSI)
def divided_multiple(op: Operation, rewriter: Rewriter) -> bool:
    """(x · (c · d)) / c → x · d, where the product is known not to wrap"""
    inner, by = op.lhs.defining_op, constant_of(op.rhs)
    if type(inner) is not arith.MulI or type(by) is not int or by <= 0 or limits(op.lhs) is None:
        return False
    times = constant_of(inner.rhs)
    if type(op) is arith.ShrSI:
        by = 1 << by
    if type(times) is not int or times % by:
        return False
    factor = rewriter.constant(times // by, op.rhs.type)
    return rewriter.replace(op, rewriter.value(arith.MulI, inner.lhs, factor))


@RULES.on(FPToSI)
def counted_by_float(op: FPToSI, rewriter: Rewriter) -> bool:
    """fptosi (sitofp x) → x, fptosi (sitofp x · 2⁻ⁿ) → x >> n of an x that is not negative; where all that x
    can be is exact as a float"""
    product, shift = op.x.defining_op, 0
    if type(product) is arith.MulF:
        mantissa, exponent = math.frexp(constant_of(product.rhs) or 0.0)
        product, shift = product.lhs.defining_op, 1 - exponent
        if mantissa != 0.5 or not 0 <= shift < 24:
            return False
    if type(product) is not SIToFP or product.x.type is not op.result.type:
        return False
    found, exact = limits(product.x), EXACT_INTEGERS.get(T.element_type(op.x.type))
    if found is None or exact is None or not (-exact if shift == 0 else 0) <= found[0] <= found[1] <= exact:
        return False
    by = rewriter.constant(shift, op.result.type)
    return rewriter.replace(op, rewriter.value(arith.ShrSI, product.x, by) if shift else product.x)


@RULES.on(arith.DivSI, arith.RemSI)
def divided_before_extension(op: Operation, rewriter: Rewriter) -> bool:
    """sext i32 x / sext i32 y → sext (x / y), % too: a wide division is a call of 100 instructions. Not where
    x may be the least number, whose quotient by -1 has no 32 bits"""
    left, right = (side.defining_op for side in op.operands)
    both = type(left) is type(right) is ExtSI and left.x.type is right.x.type
    if not both or T.element_type(left.x.type) is not T.I32 or not _exceeds_the_least(left.x):
        return False
    found = rewriter.value(type(op), left.x, right.x)
    return rewriter.replace(op, rewriter.value(ExtSI, found, type=op.result.type))


def _exceeds_the_least(value: Value) -> bool:
    """Whether a program's index is divided, or what such a division left: their size only falls."""
    op = value.defining_op
    while type(op) in (arith.DivSI, arith.RemSI):
        op = op.lhs.defining_op
    return type(op) is GetProgramId


@RULES.on(arith.XorI)
def negated_comparison(op: arith.XorI, rewriter: Rewriter) -> bool:
    """(x < y) ^ true → x >= y"""
    test = op.lhs.defining_op
    if type(test) is not arith.CmpI or not is_int(op.rhs, -1):
        return False
    negated = rewriter.value(arith.CmpI, *test.operands, predicate=_NEGATED[test.predicate])
    return rewriter.replace(op, negated)


@RULES.on(arith.XorI)
def negated_float_comparison(op: arith.XorI, rewriter: Rewriter) -> bool:
    """(x olt y) ^ true → x uge y"""
    test = op.lhs.defining_op
    if type(test) is not arith.CmpF or not is_int(op.rhs, -1):
        return False
    return rewriter.replace(
        op, rewriter.value(arith.CmpF, *test.operands, predicate=_negated_float(test.predicate))
    )


def _negated_float(predicate: str) -> str:
    if predicate in ("ord", "uno"):
        return "uno" if predicate == "ord" else "ord"
    opposite = {"eq": "ne", "ne": "eq", "lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}[predicate[1:]]
    return ("o" if predicate[0] == "u" else "u") + opposite


@RULES.on(arith.Select)
def select_constant(op: arith.Select, rewriter: Rewriter) -> bool:
    """select true, x, y → x; select false, x, y → y; select c, x, x → x"""
    if op.true_value is op.false_value:
        return rewriter.replace(op, op.true_value)
    condition = constant_of(op.condition)
    return condition is not None and rewriter.replace(op, op.true_value if condition else op.false_value)


@RULES.on(arith.Select)
def select_truth(op: arith.Select, rewriter: Rewriter) -> bool:
    """select c, true, false → c; select c, false, true → c ^ true"""
    values = constant_of(op.true_value), constant_of(op.false_value)
    if values == (True, False) and isinstance(values[0], bool):
        return rewriter.replace(op, op.condition)
    if values == (False, True) and isinstance(values[0], bool):
        return rewriter.replace(op, rewriter.value(arith.XorI, op.condition, op.false_value))
    return False


@RULES.on(arith.Select)
def select_negated(op: arith.Select, rewriter: Rewriter) -> bool:
    """select (c ^ true), x, y → select c, y, x"""
    test = op.condition.defining_op
    if type(test) is not arith.XorI or not is_int(test.rhs, -1):
        return False
    return rewriter.set_operands(op, (test.lhs, op.false_value, op.true_value))


_EXTREMA = {"ogt": arith.MaximumF, "olt": arith.MinimumF}


@RULES.on(arith.Select)
def select_extremum(op: arith.Select, rewriter: Rewriter) -> bool:
    """select (x ogt c | x une x), x, c → maximumf x, c; with olt minimumf (not where zeros may be equal)"""
    either, x, bound = op.condition.defining_op, op.true_value, constant_of(op.false_value)
    if type(either) is not arith.OrI or type(bound) is not float or math.isnan(bound):
        return False
    tests = {test.predicate: test for v in either.operands if type(test := v.defining_op) is arith.CmpF}
    is_nan = tests.pop("une", None)
    if is_nan is None or len(tests) != 1 or tuple(is_nan.operands) != (x, x):
        return False
    (order,) = tests.values()
    kind = _EXTREMA.get(order.predicate)
    if kind is None or tuple(order.operands) != (x, op.false_value):
        return False
    # Of equal values the bound is taken: 0.0 where the other is -0.0, as the maximum has it.
    if bound == 0.0 and not (kind is arith.MaximumF and math.copysign(1.0, bound) > 0):
        return False
    return rewriter.replace(op, rewriter.value(kind, x, op.false_value))


# -- casts
# -----------------------------------------------------------------------------------------------------


@RULES.on(ExtSI, ExtUI, TruncI, Bitcast)
def cast_twice(op: Operation, rewriter: Rewriter) -> bool:
    """ext (ext x) → ext x, trunc (trunc x) → trunc x, bitcast (bitcast x) → bitcast x; sext (zext x) → zext
    x"""
    inner = op.x.defining_op
    # What zext made is not negative.
    same = type(inner) is type(op) or (type(op) is ExtSI and type(inner) is ExtUI)
    if not same:
        return False
    return rewriter.replace(op, rewriter.value(type(inner), inner.x, type=op.result.type))


@RULES.on(Bitcast)
def bitcast_to_the_same(op: Bitcast, rewriter: Rewriter) -> bool:
    """bitcast x : T → T → x"""
    return op.x.type is op.result.type and rewriter.replace(op, op.x)


@RULES.on(TruncI)
def truncated_extension(op: TruncI, rewriter: Rewriter) -> bool:
    """trunc (ext x) → x, when the types are the same again"""
    inner = op.x.defining_op
    is_back = type(inner) in (ExtSI, ExtUI) and inner.x.type is op.result.type
    return is_back and rewriter.replace(op, inner.x)


@RULES.on(TruncF)
def truncated_float_extension(op: TruncF, rewriter: Rewriter) -> bool:
    """truncf (extf x) → x, when the types are the same again; not to 8 bits, where infinity saturates"""
    inner = op.x.defining_op
    is_back = type(inner) is ExtF and inner.x.type is op.result.type and op.target.bits > 8
    return is_back and rewriter.replace(op, inner.x)


@RULES.on(PtrToInt, IntToPtr)
def pointer_there_and_back(op: Operation, rewriter: Rewriter) -> bool:
    """ptr_to_int (int_to_ptr x) → x, and the other way round when the types are the same again"""
    inner = op.x.defining_op
    is_back = (
        type(inner) in (PtrToInt, IntToPtr) and type(inner) is not type(op) and inner.x.type is op.result.type
    )
    return is_back and rewriter.replace(op, inner.x)
