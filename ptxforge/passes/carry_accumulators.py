"""A loop that adds products to a sum carries that as these have it: accumulators, not their transpose.

    for … iter_args(%acc = %zero) {                          (before)
      %t = trans %acc
      %f = dot_begin %t
      %d = dot_wait (dot_async %x, %b, %f)
      %u = trans %d
      yield %u }

    for … iter_args(%acc = trans %zero) {                    (after)
      %f = dot_begin %acc
      %d = dot_wait (dot_async %x, %b, %f)
      yield %d }
    %u = trans (the loop's result)

Rules
-----
SUM       A carried value with which the loop does nothing but transpose and convert it, add a product, and
          transpose and convert that back.
"""

from __future__ import annotations

from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Function, Operation, Value
from ptxforge.ir.definition import ANY_LAYOUT, REARRANGING
from ptxforge.ir.ops.control import For
from ptxforge.passes.analysis.flights import Product, products_of
from ptxforge.support.target import Target

_MOVES = frozenset((ANY_LAYOUT, REARRANGING))
"""The traits of a change of layout."""


def carry_accumulators(function: Function, target: Target) -> bool:
    """Let loops carry the accumulators of their products wherever the rule admits it."""
    return any([_carry(loop, product) for loop in function.walk(For) for product in products_of(loop)])


def _carry(loop: For, product: Product) -> bool:
    """See SUM: the carried value that ``product`` is added to becomes one of the accumulators' type."""
    before, argument = _behind_moves(product.begin.value)
    if not (before and argument in loop.carried and argument.has_one_use and product.total.has_one_use):
        return False
    yielded = loop.next_of(argument)
    after, total = _behind_moves(yielded)
    if total is not product.total or not after or not _is_identity([*before, *after]):
        return False
    result = loop.last_of(argument)
    initial = _moved(Builder.at(loop), loop.first_of(argument), before)
    loop.set_operand(loop.first_initial + result.index, initial)
    argument.type = result.type = total.type
    product.begin.set_operand(0, argument)
    terminator = loop.body.terminator
    terminator.set_operands([total if v is yielded else v for v in terminator.operands])
    for op in [*reversed(after), *reversed(before)]:
        op.erase()
    uses = list(result.users)
    moved = _moved(Builder.after(loop), result, after)
    for user in uses:
        user.set_operands([moved if v is result else v for v in user.operands])
    return True


def _behind_moves(value: Value) -> tuple[list[Operation], Value]:
    """The transposes and conversions, each for the next alone, that make ``value``, in order, and of what."""
    moves: list[Operation] = []
    op = value.defining_op
    while op is not None and (op.is_transpose or _MOVES <= op.traits) and value.has_one_use:
        moves.insert(0, op)
        value = op.operands[0]
        op = value.defining_op
    return moves, value


def _is_identity(moves: list[Operation]) -> bool:
    """Whether all transposes among ``moves``, one after the other, are none."""
    order: tuple[int, ...] = tuple(range(len(moves[0].operands[0].type.shape)))
    for op in moves:
        order = tuple(order[d] for d in op.order) if op.is_transpose else order
    return order == tuple(sorted(order))


def _moved(b: Builder, value: Value, moves: list[Operation]) -> Value:
    for op in moves:
        copy = op.clone({})
        copy.set_operands([value])
        value = b.insert(copy).result
    return value
