"""Branches and loops whose course is known, and values that they pass on needlessly."""

from __future__ import annotations

from ptxforge.ir import types as T
from ptxforge.ir.core import Block
from ptxforge.ir.ops.arith import Select
from ptxforge.ir.ops.control import For, If, Loop, While
from ptxforge.ir.ops.shape import Splat
from ptxforge.ir.rewriter import PatternSet, Rewriter, constant_of

RULES = PatternSet()


@RULES.on(If)
def known_condition(op: If, rewriter: Rewriter) -> bool:
    """if true { … yield x } else { … } → … x"""
    condition = constant_of(op.condition)
    if condition is None:
        return False
    return rewriter.replace(op, *rewriter.inline_before(op.then_block if condition else op.else_block, op))


@RULES.on(If)
def same_in_both_branches(op: If, rewriter: Rewriter) -> bool:
    """%r = if c { yield x } else { yield x } → x for %r (x from outside)"""
    for result, then_value, else_value in zip(
        op.results, op.then_block.last.operands, op.else_block.last.operands
    ):
        if then_value is else_value and result.uses:
            return rewriter.replace_value(result, then_value)
    return False


@RULES.on(If)
def empty_branches(op: If, rewriter: Rewriter) -> bool:
    """%r = if c { yield x } else { yield y } → select c, x, y"""
    if not (_is_empty(op.then_block) and _is_empty(op.else_block) and op.results):
        return False
    selectable = (T.ScalarType, T.PointerType, T.TensorType)
    if not all(isinstance(result.type, selectable) for result in op.results):
        return False
    pairs = zip(op.then_block.last.operands, op.else_block.last.operands)
    return rewriter.replace(op, *[_select(op.condition, x, y, rewriter) for x, y in pairs])


def _is_empty(block: Block) -> bool:
    return block.first is block.last


def _select(condition, x, y, rewriter: Rewriter):
    if isinstance(x.type, T.TensorType):
        condition = rewriter.value(Splat, condition, type=x.type.with_element(T.I1))
    return rewriter.value(Select, condition, x, y)


@RULES.on(If)
def unused_if_results(op: If, rewriter: Rewriter) -> bool:
    """%r = if c { …; yield x } else { …; yield y } → if c { …; yield } else { …; yield } when %r is unused"""
    for result in op.results:
        if not result.uses:
            for block in (op.then_block, op.else_block):
                _drop_yielded(block, result.index, rewriter)
            op.erase_result(result.index)
            return rewriter.update(op)
    return False


def _drop_yielded(block: Block, index: int, rewriter: Rewriter) -> None:
    operands = block.last.operands
    rewriter.set_operands(block.last, operands[:index] + operands[index + 1 :])


@RULES.on(For)
def known_trip_count(op: For, rewriter: Rewriter) -> bool:
    """for of no iteration → its initial values; for of one iteration → its body"""
    bounds = [constant_of(v) for v in (op.lower, op.upper, op.step)]
    if None in bounds:
        return False
    lower, upper, step = bounds
    if lower >= upper:
        return rewriter.replace(op, *op.initial)
    if step <= 0 or lower + step < upper:
        return False
    for argument, value in zip(op.body.arguments, (op.lower, *op.initial)):
        rewriter.replace_value(argument, value)
    return rewriter.replace(op, *rewriter.inline_before(op.body, op))


@RULES.on(For, While)
def carried_unchanged(op: Loop, rewriter: Rewriter) -> bool:
    """%r = for … iter_args(%a = x) { … yield %a } → x for %a and for %r
    (also when the body yields x itself)"""
    for index in range(len(op.results)):
        (initial, *passed_on), names = op.carried_sources(index), op.carried_names(index)
        if all(value is initial or value in names for value in passed_on):
            for name in names:
                rewriter.replace_value(name, initial)
            return _erase_carried(op, index, rewriter)
    return False


@RULES.on(For, While)
def carried_unused(op: Loop, rewriter: Rewriter) -> bool:
    """for … iter_args(%a = x) { … yield y } → without %a, when neither it nor the result is used"""
    for index in range(len(op.results)):
        places = op.carried_places(index)
        if all(use in places for name in op.carried_names(index) for use in name.uses):
            return _erase_carried(op, index, rewriter)
    return False


def _erase_carried(op: Loop, index: int, rewriter: Rewriter) -> bool:
    for value in op.carried_sources(index):
        if value.defining_op is not None:
            rewriter.push(value.defining_op)
    op.erase_carried(index)
    return rewriter.update(op)
