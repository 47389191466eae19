"""A product of f32 by tensor cores, more exact than one of tf32: as several products of parts.

x = x0 + x1 (+ x2) in the narrow format, largest first, and the products of the largest parts are summed,
smallest first (Henry, Tang, Heinecke: *Leveraging bfloat16 …*, ARITH 2019).

    %d = dot %a, %b, %c {input_precision = "tf32x3"}                     (before)

    %d0 = dot %a1, %b0, 0;  %d1 = dot %a0, %b1, %d0;  %d2 = dot %a0, %b0, %d1, or 0 where that is no number
    %d = addf %c, %d2                                                                               (after)

*Exact.* Tensor cores cut off what they add to a sum: over a long k that would be more than the parts save. So
they add the products of one block of k, and %c is added outside of them.

*Not finite.* The rest of an infinity is no number, and neither is the product of one with a rest of 0. The
largest parts have the result that all is to have then, so such sums of small products count as 0.
"""

from __future__ import annotations

from collections.abc import Callable

from ptxforge.ir import types as T
from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Operation, Value
from ptxforge.ir.definition import REARRANGING
from ptxforge.ir.ops.arith import AddF, AndI, CmpF, Select, SubF
from ptxforge.ir.ops.cast import Bitcast, ExtF, TruncF
from ptxforge.ir.ops.dot import Dot
from ptxforge.ir.rewriter import constant_of

TERMS = {
    "tf32x3": ((1, 0), (0, 1), (0, 0)),
    "bf16x3": ((1, 0), (0, 1), (0, 0)),
    "bf16x6": ((2, 0), (0, 2), (1, 1), (1, 0), (0, 1), (0, 0)),
}
"""Which part of a is multiplied with which part of b, smallest products first."""


def terms_of(dot: Dot) -> tuple[tuple[int, int], ...]:
    """The numbers of the parts of both operands that are multiplied for ``dot``, in order; of one product,
    both are the operands themselves."""
    is_split = dot.a.type.element is T.F32 and dot.input_precision in TERMS
    return TERMS[dot.input_precision] if is_split else ((0, 0),)


def sum_of_terms(
    b: Builder, dot: Dot, c: Value, multiply: Callable[[tuple[tuple[int, int], ...], Value], Value]
) -> Value:
    """``c``, to which ``dot`` adds, and the products of its parts: ``multiply(terms, total)`` adds those of
    some to ``total``. See the head of this file."""
    *small, largest = terms_of(dot)
    zero = b.constant(0.0, c.type)
    rest = multiply(tuple(small), zero)
    is_number = b.value(CmpF, rest, rest, predicate="oeq")
    total = multiply((largest,), b.value(Select, is_number, rest, zero))
    return total if is_zero(c) else b.value(AddF, c, total)


def is_zero(value: Value) -> bool:
    """Whether a value is zero everywhere, in whatever layout."""
    op: Operation | None = value.defining_op
    while op is not None and op.operands and REARRANGING in op.traits:
        value = op.operands[0]
        op = value.defining_op
    return constant_of(value) == 0


def narrow_type(dot: Dot) -> T.ScalarType:
    """The type of the parts that are multiplied for ``dot``."""
    is_narrower = dot.a.type.element is T.F32 and dot.input_precision in ("bf16x3", "bf16x6")
    return T.BF16 if is_narrower else dot.a.type.element


def parts_of(b: Builder, x: Value, dot: Dot, as_read: bool = False) -> list[Value]:
    """``x``, an operand of ``dot``, as a sum of values of the narrow format, largest first. ``as_read``: what
    tensor cores do not read of an f32 may be left in it."""
    narrow = _tf32 if dot.input_precision == "tf32x3" else _bf16
    count = 1 + max(part for pair in terms_of(dot) for part in pair)
    parts, rest = [], x
    keeps_rest = as_read and narrow is _tf32
    for index in range(count):
        is_last = index + 1 == count
        part, wide = (rest, rest) if keeps_rest and is_last else narrow(b, rest)
        parts.append(rest if keeps_rest else part)
        if not is_last:
            rest = b.value(SubF, rest, wide)
    return parts


def _bf16(b: Builder, x: Value) -> tuple[Value, Value]:
    part = b.value(TruncF, x, type=T.like(x.type, T.BF16))
    return part, b.value(ExtF, part, type=x.type)


def _tf32(b: Builder, x: Value) -> tuple[Value, Value]:
    """x with its low 13 mantissa bits cleared, which is what the tensor core reads."""
    from_bits = T.like(x.type, T.I32)
    bits = b.value(Bitcast, x, type=from_bits)
    kept = b.value(AndI, bits, b.constant(-0x2000, from_bits))
    part = b.value(Bitcast, kept, type=x.type)
    return part, part
