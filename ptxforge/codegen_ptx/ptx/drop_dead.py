"""Instructions whose results nobody needs.

    add.s32 %r9, %r1, 4;          nobody reads %r9
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ptxforge.codegen_ptx.ptx.instruction import COPY, PURE, Instruction, form_of

if TYPE_CHECKING:
    from ptxforge.codegen_ptx.ptx.builder import Builder


def drop_dead(code: list[Instruction], b: Builder) -> list[Instruction]:
    """Without pure instructions whose results nobody uses."""
    used: set = set()
    kept = []
    for instruction in reversed(code):
        operands = instruction.operands
        if instruction.kind is PURE:
            results = form_of(instruction.syntax).results
            if used.isdisjoint(operands[:results]):
                continue
            used.update(operands[results:])
        elif instruction.kind is COPY:
            used.add(operands[1])
        else:
            used.update(operands)
        kept.append(instruction)
    kept.reverse()
    return kept
