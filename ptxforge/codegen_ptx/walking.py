"""Pointers that walk through a loop.

    for … iter_args(%p = %a) {                                             (the loop)
      … (addptr (addptr (splat %p), %rows), %columns) …
      yield (addptr %p, %step) }

A thread's addresses are ``p + row · stride + column``, the column being the same in all of its accesses.
Added in every iteration it costs two instructions (64 bits); so what is carried is ``p + column``, and ``p``
itself, should anyone ask, is that minus ``column``: the two terms cancel where the loop adds it again.

What is left for each row costs two instructions, too, and a register. Where the lanes of a warp have
different rows, a pointer of its own that walks takes one register more, and its two instructions need no
offset to be scaled and extended to 64 bits. Rows that a warp shares stay: a uniform register holds them.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from ptxforge.codegen_ptx.lower.indices import linear_of
from ptxforge.codegen_ptx.lower.memory import vector_width
from ptxforge.codegen_ptx.lowering import LOWERINGS, Lowering
from ptxforge.codegen_ptx.ptx.pointers import Pointer, Term, address, as_pointer, moved_by
from ptxforge.codegen_ptx.ptx.registers import Register
from ptxforge.ir import types as T
from ptxforge.ir.core import BlockArgument, Operation, Value
from ptxforge.ir.definition import ADDRESSING, REARRANGING, MemoryAccess
from ptxforge.ir.ops.shape import Broadcast
from ptxforge.ir.pressure import held_by_loop
from ptxforge.layouts.linear import LANE
from ptxforge.support import machine

FEWEST, MOST = machine.LOOP_POINTER_ACCESSES


class LoopPointers(NamedTuple):
    """How a carried scalar pointer starts. Accesses with certain terms have pointers of their own: those
    terms, and where these pointers start."""

    start: Pointer
    own: tuple[tuple[tuple[Term, ...], Pointer], ...] = ()


def plan_loop_pointers(ctx: Lowering, argument: BlockArgument, entry) -> LoopPointers:
    """The plan for a scalar pointer that a loop carries and advances; it starts as ``entry``."""
    p = as_pointer(entry)
    found = _Accesses()
    if "walk_pointers" in ctx.b.without or not found.collect(ctx, argument) or not found.terms:
        return LoopPointers(p)
    common = Counter(found.terms[0])
    for terms in found.terms:
        common &= Counter(terms)
    rest = {_sorted(Counter(terms) - common) for terms in found.terms}
    own = sorted(terms for terms in rest if any(term in found.varying for term in terms))
    if (
        not FEWEST <= len(own) <= MOST
        or held_by_loop(argument.block.parent_op) > machine.TENSOR_REGISTERS_BESIDE_POINTERS
    ):
        own = []
    starts = {terms: _sum(ctx, p, common, terms) for terms in own}
    first = own.pop(0) if own and len(own) == len(rest) else ()
    if not common and not first:
        return LoopPointers(p, tuple(starts.items()))
    # What is carried has taken in the common terms, and is the first of the pointers if all accesses have
    # their own.
    base = starts[first] if first else _sum(ctx, p, common, ())
    without = [(root, -size) for root, size in (*common.elements(), *first)]
    start = Pointer(base.base, tuple(sorted((*p.terms, *without))), base.offset)
    key = [(root, -size) for root, size in first]
    return LoopPointers(start, tuple((tuple(sorted((*terms, *key))), starts[terms]) for terms in own))


def _sum(ctx: Lowering, p: Pointer, common: Counter, terms: tuple[Term, ...]) -> Pointer:
    """A pointer without terms: ``p`` and the terms, the common ones first."""
    base, offset = address(ctx.b, Pointer(p.base, _sorted(common + Counter(terms))), dict.fromkeys(common, 2))
    return Pointer(base, (), p.offset + offset)


def _sorted(terms: Counter) -> tuple[Term, ...]:
    return tuple(sorted(terms.elements()))


class _Accesses:
    """The accesses through one pointer: the ``terms`` of each,
    and which terms are ``varying`` within a warp."""

    def __init__(self) -> None:
        self.terms: list[tuple[Term, ...]] = []
        self.varying: set[Term] = set()

    def collect(self, ctx: Lowering, argument: BlockArgument) -> bool:
        """Follow the pointer through the loop; False when something about it is not known before the loop."""
        seen = {argument: [Pointer(Register("q", 0))]}
        for op in argument.block.operations:
            pointer = op.operands[0] if op.operands else None
            if pointer not in seen:
                if any(v in seen for nested in op.walk() for v in nested.operands) and not op.is_terminator:
                    return False
                continue
            if isinstance(op, MemoryAccess) and not op.get_effects().is_atomic:
                width = vector_width(ctx, op, op.elements)
                self.terms += [as_pointer(entry).terms for entry in seen[pointer][::width]]
            elif not self._follow(ctx, op, seen):
                return False
        return True

    def _follow(self, ctx: Lowering, op: Operation, seen: dict) -> bool:
        """Add what ``op`` makes of a pointer to ``seen``."""
        pointer = op.operands[0]
        if REARRANGING in op.traits and ADDRESSING in op.traits:
            # These only rearrange entries: no instruction comes of it.
            ctx.values[pointer] = seen[pointer]
            LOWERINGS[type(op)](ctx, op)
            seen[op.result] = ctx.values.pop(op.result)
            del ctx.values[pointer]
            return True
        if not op.addends:
            return False
        if all(user.is_terminator for user in op.result.users):
            return True
        if op.offset not in ctx.values:
            return False
        size = T.element_type(pointer.type).pointee.bytes
        offsets = ctx.values[op.offset]
        if _varies_within_warp(op.offset):
            roots = {ctx.b.split(x)[0] for x in offsets}
            self.varying |= {(root, size) for root in roots if root is not None}
        pairs = zip(seen[pointer], offsets, strict=True)
        seen[op.result] = [moved_by(ctx.b, as_pointer(p), x, size) for p, x in pairs]
        return True


def _varies_within_warp(offset: Value) -> bool:
    """Whether the lanes of a warp may hold different elements."""
    op = offset.defining_op
    source = op.x if isinstance(op, Broadcast) else offset
    return isinstance(source.type, T.TensorType) and any(linear_of(source.type).columns_of(LANE))
