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
from ptxforge.ir.core import Function, Operation
from ptxforge.ir.definition import ALLOCATES
from ptxforge.ir.ops.shared import MemDescIndex, NextSlot
from ptxforge.ir.rewriter import constant_of
from ptxforge.support.target import Target


def scale_indices(function: Function, target: Target) -> bool:
    """Make every SLOT with the right USES count bytes."""
    changed = False
    for step in function.walk(NextSlot):
        pitch = _common_pitch(step.choices) if _is_carried(step, step.parent_op) else 0
        if pitch:
            _scale(step, pitch)
            changed = True
    return changed


def _is_carried(step: NextSlot, loop: Operation | None) -> bool:
    """See SLOT; and nobody behind the loop uses it."""
    if loop is None or not loop.is_counted or step.slot not in loop.carried:
        return False
    begins_at = constant_of(loop.first_of(step.slot))
    is_next = loop.next_of(step.slot) is step.result
    return is_next and begins_at is not None and not loop.last_of(step.slot).uses


def _common_pitch(views: list[MemDescIndex]) -> int:
    """The pitch of all buffers that the views are of; 0 if there is none, or they count bytes already."""
    pitches = {0 if view.pitch else _pitch(view) for view in views}
    return pitches.pop() if len(pitches) == 1 else 0


def _pitch(view: MemDescIndex) -> int:
    allocation = view.source.defining_op
    if allocation is None or ALLOCATES not in allocation.traits:
        return 0
    return allocation.pitch or view.result.type.bytes


def _scale(step: NextSlot, pitch: int) -> None:
    for view in step.choices:
        view.pitch = pitch
    step.step = pitch
    loop = step.parent_op
    initial = loop.first_of(step.slot)
    scaled = Builder.at(loop).constant(initial.defining_op.value * pitch, initial.type)
    loop.set_operand(loop.first_initial + loop.carried_index(step.slot), scaled)
