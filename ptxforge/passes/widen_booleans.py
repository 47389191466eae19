"""Carry tiles of booleans through loops in registers instead of predicates.

    %any = for … iter_args(%a = false) {                                    (before)
      %x = load %p, %m, %other
      %c = cmpi ne, %x, %zero
      %b = ori %a, %c : tensor<1x1024xi1>
      yield %b
    }

    %words = for … iter_args(%a = 0) {accumulates_booleans = true} {        (after)
      %x = load %p, %m, %other
      %c = cmpi ne, %x, %zero
      %b = select %c, -1, %a : tensor<1x1024xi32>
      yield %b
    }
    %any = cmpi ne, %words, 0 : tensor<1x1024xi1>

A thread has seven predicates. A loop that carries a few of them leaves none for the masks of loads: the
assembler then saves them to registers and back all the time, unrolls less, and waits for each load before it
starts the next. A word that is -1 where the boolean is true takes one instruction for an element and step, as
the predicate did, and a register, of which there are plenty.

The mask of a load that also decides what is kept (``where(mask, any | c, False)``) becomes a word, too, made
beside the comparison that it comes from: the predicate is free again when the load is under way.

Only booleans that a loop accumulates are carried so: from the argument to what the loop passes on there is
nothing but ``andi``, ``ori``, ``xori`` and ``select`` between two of them. One that decides something within
the loop is needed as a predicate.
"""

from __future__ import annotations

from collections.abc import Callable

from ptxforge.ir import types as T
from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Function, Operation, Value
from ptxforge.ir.definition import COMMUTATIVE, REARRANGING
from ptxforge.ir.ops.arith import AndI, CmpI, OrI, Select, XorI
from ptxforge.ir.ops.cast import ExtSI
from ptxforge.ir.ops.control import For
from ptxforge.ir.rewriter import constant_of
from ptxforge.layouts.encodings import elements_per_thread
from ptxforge.support import machine
from ptxforge.support.target import Target

Words = dict[Value, Value]
"""The words of booleans that are accumulated."""


def widen_booleans(function: Function, target: Target) -> bool:
    """Widen what loops carry, where it is many booleans a thread."""
    changed = False
    for loop in function.walk(For):
        chains = {index: chain for index in range(len(loop.results)) if (chain := _chain(loop, index))}
        count = sum(elements_per_thread(t.layout, t.shape) for t in (loop.results[i].type for i in chains))
        if count >= machine.CARRIED_PREDICATES:
            for index in sorted(chains, reverse=True):
                _widen(loop, index, chains[index])
            loop.accumulates_booleans = changed = True
    return changed


def _chain(loop: For, index: int) -> list[Operation]:
    """The operations that make of a carried tile of booleans the one that is passed on, in their order; none
    where other operations use one of its values."""
    argument, last = loop.carried[index], loop.body.last
    if not isinstance(argument.type, T.TensorType) or argument.type.element is not T.I1:
        return []
    chain, work = set(), [argument]
    for value in work:
        for user, place in value.uses:
            if user is last and place == index:
                continue
            rule = _RULES.get(type(user))
            if rule is None or user.parent is not loop.body or (rule is _select and place == 0):
                return []
            if user not in chain:
                chain.add(user)
                work.append(user.result)
    return [op for op in loop.body.operations if op in chain] if last.operands[index] in work[1:] else []


def _widen(loop: For, index: int, chain: list[Operation]) -> None:
    argument, result = loop.carried[index], loop.results[index]
    initial = loop.carried_sources(index)[0]
    wide_argument, wide_result = loop.add_carried(_word(Builder.at(loop), initial))
    words: Words = {argument: wide_argument}
    for op in chain:
        words[op.result] = _RULES[type(op)](op, words)
    last = loop.body.last
    last.set_operand(wide_result.index, words[last.operands[index]])
    last.set_operand(index, argument)
    for op in reversed(chain):
        op.erase()
    after = Builder.after(loop)
    zero = after.constant(0, wide_result.type)
    result.replace_all_uses_with(after.value(CmpI, wide_result, zero, predicate="ne"))
    loop.erase_carried(index)


def _word(builder: Builder, value: Value) -> Value:
    """-1 where a boolean is true, else 0."""
    type, known = T.like(value.type, T.I32), constant_of(value)
    return builder.value(ExtSI, value, type=type) if known is None else builder.constant(-int(known), type)


# -- operations on words -----------------------------------------------------------------------------------


def _and(op: Operation, words: Words) -> Value:
    word, other = _sides(op, words)
    return _both(op, word, words[other]) if other in words else _kept_where(op, other, word)


def _or(op: Operation, words: Words) -> Value:
    word, other = _sides(op, words)
    if other in words:
        return _both(op, word, words[other])
    builder = Builder.at(op)
    return builder.value(Select, other, builder.constant(-1, word.type), word)


def _xor(op: Operation, words: Words) -> Value:
    word, other = _sides(op, words)
    return _both(op, word, words.get(other) or _word(Builder.at(op), other))


def _sides(op: Operation, words: Words) -> tuple[Value, Value]:
    """The word of an operand that has one, and the other operand."""
    x, y = op.operands
    return (words[x], y) if x in words else (words[y], x)


def _both(op: Operation, word: Value, other: Value) -> Value:
    return Builder.at(op).value(type(op), word, other)


def _select(op: Operation, words: Words) -> Value:
    condition, x, y = op.operands
    if x in words and constant_of(y) is False:
        return _kept_where(op, condition, words[x])
    builder = Builder.at(op)
    return builder.value(Select, condition, *[words.get(v) or _word(builder, v) for v in (x, y)])


def _kept_where(op: Operation, predicate: Value, word: Value) -> Value:
    """``word`` where a predicate holds, which is kept as a word as well if loads are masked by it."""
    builder = Builder.at(op)
    if any(user.get_effects().reads for user in predicate.users):
        return builder.value(AndI, word, _word_of_mask(predicate))
    return builder.value(Select, predicate, word, builder.constant(0, word.type))


def _word_of_mask(mask: Value) -> Value:
    """The word of a mask, made of those of the comparisons in it, each beside its comparison."""
    op = mask.defining_op
    if op is None:
        return _word(Builder.at(mask.owner_block.first), mask)
    if REARRANGING in op.traits or (type(op) in _RULES and COMMUTATIVE in op.traits):
        parts = [_word_of_mask(v) for v in op.operands]
        return Builder.after(op).value(type(op), *parts, type=T.like(mask.type, T.I32), **op.attributes)
    return _word(Builder.after(op), mask)


_RULES: dict[type[Operation], Callable[[Operation, Words], Value]] = {
    AndI: _and, OrI: _or, XorI: _xor, Select: _select,
}  # fmt: skip
