"""Truth values of bytes, and what logic makes of them, as bytes of 0 and 1, four in a word.

Whether a byte is not zero is the highest bit of ``(x & 127) + 127 | x``, and so it is for four of them:

    and.b32 %t, %x, 0x7F7F7F7F
    add.s32 %t, %t, 0x7F7F7F7F
    or.b32  %t, %t, %x
    and.b32 %t, %t, 0x80808080
    shr.u32 %t, %t, 7

A thread has seven predicates, and each byte would take two instructions to become one, and two to become a
byte again.
"""

from __future__ import annotations

from collections.abc import Callable

from ptxforge.codegen_ptx.lower.packing import pack, unpack
from ptxforge.codegen_ptx.lowering import Lowering
from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.codegen_ptx.ptx.registers import Register
from ptxforge.ir import types as T
from ptxforge.ir.core import Operation, Value
from ptxforge.ir.ops.arith import AndI, CmpI, OrI, XorI
from ptxforge.ir.rewriter import constant_of

_ONES = 0x01010101


def bytes_of(ctx: Lowering, value: Value) -> list[Register]:
    """The entries of a tensor of truth values as integers of 8 bits; ``value`` is made of comparisons of
    bytes with zero, and of constants, by logic alone."""
    words = _words(ctx, value, {})
    return [part for word in words for part in unpack(ctx.b, ctx.b.register(word, "r"), T.I8)]


def _words(ctx: Lowering, value: Value, known: dict[Value, list]) -> list:
    if value not in known:
        known[value] = _made(ctx, value, known)
    return known[value]


def _made(ctx: Lowering, value: Value, known: dict[Value, list]) -> list:
    number = constant_of(value)
    if number is not None:
        return [_ONES * bool(number)] * (len(ctx.get(value)) // 4)
    return _MAKERS[type(value.defining_op)](ctx, value.defining_op, known)


def _compared(ctx: Lowering, op: CmpI, known: dict[Value, list]) -> list:
    b, entries = ctx.b, ctx.get(op.lhs)
    found = [_are_not_zero(b, pack(b, entries[i : i + 4], T.I8)) for i in range(0, len(entries), 4)]
    return found if op.predicate == "ne" else [_combined(b, "xor", word, _ONES) for word in found]


def _logic(name: str) -> Callable[[Lowering, Operation, dict[Value, list]], list]:
    def made(ctx: Lowering, op: Operation, known: dict[Value, list]) -> list:
        pairs = zip(*(_words(ctx, operand, known) for operand in op.operands), strict=True)
        return [_combined(ctx.b, name, *pair) for pair in pairs]

    return made


_both, _either, _one = map(_logic, ("and", "or", "xor"))
_MAKERS = {CmpI: _compared, AndI: _both, OrI: _either, XorI: _one}
"""The words of what an operation makes."""


def _combined(b: Builder, name: str, x, y):
    return b.pure(f"{name}.b32 %s, %s, %s;", "r", b.register(x, "r"), y)


def _are_not_zero(b: Builder, word):
    word = b.register(word, "r")
    carried = b.pure("add.s32 %s, %s, %s;", "r", _combined(b, "and", word, 0x7F7F7F7F), 0x7F7F7F7F)
    highest = _combined(b, "and", _combined(b, "or", carried, word), -0x7F7F7F80)
    return b.pure("shr.u32 %s, %s, 7;", "r", highest)
