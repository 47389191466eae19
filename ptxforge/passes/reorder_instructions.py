"""Shorten live ranges and put shared-memory traffic where it hides best.

    %a = convert_layout %x : #blocked → #dot_op            (before)
    … long …
    %d = dot %a, …

    … long …                                               (after)
    %a = convert_layout %x : #blocked → #dot_op
    %d = dot %a, …

The rules of seed 004, in this order:

1. SINK      What raises the number of live registers (``local_load``, a conversion that gives more registers than it
             takes, one to a dot operand) goes down to its first user, but into no loop and no branch.
2. STORE     ``local_alloc`` of a value goes up to right after the value: its registers are free from there on.
3. VIEWS     ``memdesc_trans`` goes up to right after what it views.
4. B AFTER A The operand b of a dot is fetched after its operand a.
"""

from __future__ import annotations

from ptxforge.ir import types as T
from ptxforge.ir.core import Function, Operation, Value
from ptxforge.ir.ops.convert_layout import ConvertLayout
from ptxforge.ir.ops.dot import Dot
from ptxforge.ir.ops.shared import LocalAlloc, LocalLoad, LocalStore, MemDescTrans
from ptxforge.layouts.encodings import DotOperand, elements_per_thread
from ptxforge.support.target import Target


def reorder_instructions(function: Function, target: Target) -> bool:
    """Apply the rules above once each."""
    ops = list(function.walk())
    changed = False
    for op in ops:
        if _raises_pressure(op):
            changed |= _sink(op)
    for op in ops:
        if isinstance(op, LocalAlloc) and op.value is not None:
            changed |= _hoist(op, op.value)
        elif isinstance(op, MemDescTrans):
            changed |= _hoist(op, op.source)
    for op in ops:
        if isinstance(op, Dot):
            changed |= _fetch_in_order(op)
    return changed


def _raises_pressure(op: Operation) -> bool:
    if isinstance(op, LocalLoad):
        return True
    if not isinstance(op, ConvertLayout):
        return False
    if isinstance(op.result.type.layout, DotOperand):
        return True
    before, after = op.x.type, op.result.type
    return elements_per_thread(after.layout, after.shape) >= elements_per_thread(before.layout, before.shape)


def _sink(op: Operation) -> bool:
    """Move ``op`` to right before its first user in its own block; what it reads must not be written in between."""
    users = {op.parent.ancestor_of(user) for user in op.result.users}
    users.discard(None)
    place = op.next
    reads_shared = isinstance(op, LocalLoad)
    while place is not None and place not in users:
        if reads_shared and _touches_shared(place):
            break
        place = place.next
    if place is None or place is op.next:
        return False
    op.move_before(place)
    return True


def _touches_shared(op: Operation) -> bool:
    """Whether a load from shared memory may not pass ``op``: it writes there, waits, or is a barrier."""
    effects = op.get_effects()
    return bool(op.regions) or effects.other or "shared" in effects.writes or isinstance(op, LocalStore)


def _hoist(op: Operation, value: Value) -> bool:
    """Move ``op`` up to right after ``value``, if that is in the same block."""
    maker = value.defining_op
    if maker is None or maker.parent is not op.parent or op.previous is maker:
        return False
    op.move_after(maker)
    return True


def _fetch_in_order(dot: Dot) -> bool:
    a, b = dot.a.defining_op, dot.b.defining_op
    kinds = (LocalLoad, ConvertLayout)
    if not (isinstance(a, kinds) and isinstance(b, kinds)) or a.parent is not b.parent or a.parent is not dot.parent:
        return False
    if not isinstance(T.layout_of(dot.a.type), DotOperand) or not _comes_right_before(b, a):
        return False
    b.move_after(a)
    return True


def _comes_right_before(first: Operation, second: Operation) -> bool:
    """Whether ``second`` follows ``first`` with nothing in between that matters to either."""
    here = first.next
    while here is not None and here is not second:
        if _touches_shared(here) or any(v in first.results for v in here.operands):
            return False
        here = here.next
    return here is second
