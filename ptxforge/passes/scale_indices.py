"""Loops count their buffers in bytes.

    for … iter_args(%i = 0) {                                          (before)
      %x = memdesc_index %A, %i              address: A + 49152 · i
      %y = memdesc_index %B, %i              address: B + 49152 · i
      %next = next_slot %i {count = 4}
      yield %next }

    for … iter_args(%i = 0) {                                          (after)
      %x = memdesc_index %A, %i {pitch = 49152}
      %y = memdesc_index %B, %i {pitch = 49152}
      %next = next_slot %i {count = 4, step = 49152}
      yield %next }

What the loop carries is then a uniform register that the instructions of shared memory add to the thread's
address themselves: otherwise every such address costs a multiply-add per iteration (``docs/performance.md``).

Rules
-----
SLOT      A carried value that begins at a constant and becomes the next slot.
USES      It and the next slot do nothing but choose buffers, all of one ``pitch``; the loop's result is not
          used.
"""

from __future__ import annotations

from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Function
from ptxforge.ir.definition import ALLOCATES, SAME_MEMORY
from ptxforge.ir.ops.control import For
from ptxforge.ir.ops.shared import MemDescIndex, NextSlot
from ptxforge.ir.rewriter import constant_of
from ptxforge.support.target import Target


def scale_indices(function: Function, target: Target) -> bool:
    """Make every SLOT with the right USES count bytes."""
    changed = False
    for loop in function.walk(For):
        for index in range(len(loop.carried)):
            step = _next_slot(loop, index)
            pitch = _common_pitch(step) if step is not None else 0
            if pitch:
                _scale(loop, index, step, pitch)
                changed = True
    return changed


def _next_slot(loop: For, index: int) -> NextSlot | None:
    """What makes the SLOT that is carried value ``index``."""
    step = loop.body.terminator.values[index].defining_op
    if not isinstance(step, NextSlot) or loop.results[index].uses or step.slot is not loop.carried[index]:
        return None
    return step if constant_of(loop.initial[index]) is not None else None


def _common_pitch(step: NextSlot) -> int:
    """The pitch of all buffers that the slot chooses; 0 if it has other USES."""
    pitches, others = set(), []
    for user, _ in (*step.slot.uses, *step.result.uses):
        if isinstance(user, MemDescIndex) and not user.pitch:
            pitches.add(_pitch(user))
        elif user is not step:
            others.append(user)
    return pitches.pop() if len(pitches) == 1 and others == [step.parent.terminator] else 0


def _pitch(op: MemDescIndex) -> int:
    allocation = op.source.defining_op
    if allocation is None or ALLOCATES not in allocation.traits:
        return 0
    type = op.result.type
    return allocation.pitch or type.bytes


def _scale(loop: For, index: int, step: NextSlot, pitch: int) -> None:
    for user in (*step.slot.users, *step.result.users):
        if SAME_MEMORY in user.traits:
            user.pitch = pitch
    step.step = pitch
    initial = loop.initial[index]
    scaled = Builder.at(loop).constant(initial.defining_op.value * pitch, initial.type)
    loop.set_operand(loop.first_initial + index, scaled)
