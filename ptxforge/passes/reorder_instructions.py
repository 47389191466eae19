"""Shorten live ranges and put shared-memory traffic where it hides best.

    %a = convert_layout %x : #blocked → #dot_op            (before)
    … long …
    %d = dot %a, …

    … long …                                               (after)
    %a = convert_layout %x : #blocked → #dot_op
    %d = dot %a, …

The rules of seed 004, in this order:

1. SINK      What raises the number of live registers (``local_load``, a conversion that gives more registers
             than it takes, one to a dot operand) goes down to its first user, but into no loop and no branch.
2. STORE     ``local_alloc`` of a value goes up to right after the value: its registers are free from there
             on.
3. VIEWS     ``memdesc_trans`` goes up to right after what it views.
4. B AFTER A The operand b of a dot is fetched after its operand a.
5. EARLY     A load from global memory that does not depend on a reduction or conversion through shared memory
             before it goes up before that: else it would be asked for only when all threads have met there.
             Only what differs from program to program, and so comes from far away (a residual to be added,
             but not the weights of a layer norm, which caches hold while early loads would hold registers);
             up to 32 registers per thread; past nothing that writes memory or can be seen.
6. TOGETHER  What is computed from a load, element by element, goes down behind a branch that loads, too, as
             far as its first user: in front of the branch it would wait for the one load, and only then
             would the other begin.
"""

from __future__ import annotations

from ptxforge.ir import types as T
from ptxforge.ir.core import Block, Function, Operation, Value
from ptxforge.ir.definition import ELEMENTWISE, READS_GLOBAL
from ptxforge.ir.ops.control import If
from ptxforge.ir.ops.convert_layout import ConvertLayout
from ptxforge.ir.ops.dot import Dot
from ptxforge.ir.ops.memory import GetProgramId, Load
from ptxforge.ir.ops.shared import LocalAlloc, LocalLoad, MemDescTrans
from ptxforge.ir.pressure import registers_of
from ptxforge.ir.warps import scratch_of, warps_around
from ptxforge.layouts.encodings import DotOperand, elements_per_thread
from ptxforge.support import machine
from ptxforge.support.target import Target
from ptxforge.support.worklist import each_once


def reorder_instructions(function: Function, target: Target) -> bool:
    """Apply the rules above once each."""
    changed = False
    for op in function.walk((LocalLoad, ConvertLayout)):
        if _raises_pressure(op):
            changed |= _sink(op)
    for op in function.walk((LocalAlloc, MemDescTrans)):
        if op.operands:
            changed |= _hoist(op, op.operands[0])
    for op in function.walk(Dot):
        changed |= _fetch_in_order(op)
    for block in dict.fromkeys(op.parent for op in function.walk(Load)):
        changed |= _load_early(block)
    for branch in function.walk(If):
        if branch.walk(Load):
            changed |= _sink_what_waits(branch)
    return changed


def _raises_pressure(op: Operation) -> bool:
    before, after = op.operands[0].type, op.result.type
    if isinstance(before, T.MemDescType) or isinstance(after.layout, DotOperand):
        return True
    return elements_per_thread(after.layout, after.shape) >= elements_per_thread(before.layout, before.shape)


def _sink(op: Operation) -> bool:
    """Move ``op`` to right before its first user in its own block;
    what it reads must not be written in between."""
    users = {op.parent.ancestor_of(user) for user in op.result.users}
    users.discard(None)
    place = op.next
    reads_shared = "shared" in op.effects.reads
    while place is not None and place not in users:
        if reads_shared and _touches_shared(place):
            break
        place = place.next
    if place is None or place is op.next:
        return False
    op.move_before(place)
    return True


def _sink_what_waits(branch: If) -> bool:
    """See TOGETHER."""
    block, awaited, before = branch.parent, set(), []
    for op in block.operations:
        if op is branch:
            break
        if op.get_effects() == READS_GLOBAL:
            awaited.update(op.results)
        elif ELEMENTWISE in op.traits and op.is_pure and not awaited.isdisjoint(op.operands):
            awaited.update(op.results)
            before.append(op)
    return any([_sink_behind(op, branch) for op in reversed(before)])


def _sink_behind(op: Operation, branch: If) -> bool:
    """Move ``op`` to right before its first user, if that stands behind ``branch``."""
    block, place = op.parent, branch.next
    users = {block.ancestor_of(user) for result in op.results for user in result.users}
    here = op.next
    while here is not place:
        if here in users:
            return False
        here = here.next
    while place is not None and place not in users:
        place = place.next
    if place is not None:
        op.move_before(place)
    return place is not None


def _touches_shared(op: Operation) -> bool:
    """Whether a load from shared memory may not pass ``op``: it writes there, waits, or is a barrier."""
    effects = op.get_effects()
    return bool(op.regions) or effects.other or "shared" in effects.writes


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
    if (
        not (isinstance(a, kinds) and isinstance(b, kinds))
        or a.parent is not b.parent
        or a.parent is not dot.parent
    ):
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


def _load_early(block: Block) -> bool:
    """Move loads, with what they need, before the first operation of the block at which threads wait
    (EARLY)."""
    meeting = next((op for op in block.operations if _waits(op)), None)
    if meeting is None:
        return False
    left, changed = machine.REGISTERS_OF_EARLY_READS, False
    later: set[Operation] = {meeting}
    op = meeting.next
    while op is not None and not _acts(op):
        following = op.next
        later.add(op)
        if op.effects == READS_GLOBAL and _differs_by_program(op):
            needed = _needed(op, later)
            if needed is not None and (cost := _cost(op.result.type)) <= left:
                left -= cost
                later.difference_update(needed)
                for piece in needed:
                    piece.move_before(meeting)
                changed = True
        op = following
    return changed


def _waits(op: Operation) -> bool:
    return op.is_pure and scratch_of(op) > 0 and warps_around(op).count > 1


def _acts(op: Operation) -> bool:
    """Whether a load may not pass ``op``."""
    return op.is_terminator or not (op.is_pure or op.get_effects() == READS_GLOBAL)


def _needed(load: Load, later: set[Operation]) -> list[Operation] | None:
    """The operations among ``later`` that ``load`` needs, itself last, in order;
    ``None`` when threads wait in one."""
    found: dict[Operation, None] = {}

    def visit(op: Operation) -> bool:
        if op not in later or op in found:
            return True
        if op.regions or op.changes_layout or _waits(op):
            return False
        ready = all(visit(v.defining_op) for v in op.operands if v.defining_op is not None)
        found[op] = None
        return ready

    return list(found) if visit(load) else None


def _differs_by_program(load: Load) -> bool:
    """Whether the address depends on the program's index."""
    work = [load.pointer]
    for value in each_once(work):
        if isinstance(value.defining_op, GetProgramId):
            return True
        work += value.defining_op.operands if value.defining_op is not None else ()
    return False


def _cost(type: T.Type) -> int:
    """32-bit registers of a thread that a load takes."""
    return registers_of(type) if isinstance(type, T.TensorType) else 1
