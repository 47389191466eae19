"""A product that is only ever added to something becomes part of that addition: one instruction, one
rounding.

    %p = mulf %x, %y                                                        (before)
    %s = addf %p, %z
    %d = subf %z, %q                       where  %q = mulf %u, %v

    %s = fma %x, %y, %z                                                     (after)
    %d = fma %u, %v, %z {negated = "product"}

A product whose only use is a sum along an axis is marked there: ``reduce {contracted_sums = 4}`` adds its
terms without rounding the products, in four sums side by side.

Not done where the option ``enable_fp_fusion`` is off, nor across blocks: a product moved into a loop would be
computed many times.
"""

from __future__ import annotations

from collections.abc import Callable

from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Function, Operation, Value
from ptxforge.ir.ops.arith import AddF, MulF, SubF
from ptxforge.ir.ops.math import Fma
from ptxforge.ir.ops.reduce import Reduce
from ptxforge.support import machine
from ptxforge.support.target import Target


def contract_products(function: Function, target: Target) -> bool:
    """Contract every product that qualifies."""
    if not function.attributes.get("enable_fp_fusion", True):
        return False
    changed = False
    for op in function.walk():
        rule = _RULES.get(type(op))
        changed |= rule is not None and rule(op)
    return changed


def _sum(op: AddF) -> bool:
    return _contract(op, 0, "") or _contract(op, 1, "")


def _difference(op: SubF) -> bool:
    return _contract(op, 1, "product") or _contract(op, 0, "addend")


def _reduction(op: Reduce) -> bool:
    if op.combine_name != "addf" or not _is_own_product(op.operands[0], op):
        return False
    op.contracted_sums = machine.SUMS_SIDE_BY_SIDE
    return True


_RULES: dict[type[Operation], Callable[[Operation], bool]] = {
    AddF: _sum, SubF: _difference, Reduce: _reduction,
}  # fmt: skip


def _contract(sum: Operation, index: int, negated: str) -> bool:
    """Make an ``fma`` of a sum or difference whose operand ``index`` is a product of its own."""
    if not _is_own_product(sum.operands[index], sum):
        return False
    product, addend = sum.operands[index].defining_op, sum.operands[1 - index]
    fused = Builder.at(sum).value(Fma, *product.operands, addend, negated=negated)
    sum.replace_with([fused])
    product.erase()
    return True


def _is_own_product(value: Value, user: Operation) -> bool:
    return isinstance(value.defining_op, MulF) and value.has_one_use and value.owner_block is user.parent
