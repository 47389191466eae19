"""Instructions that nothing would miss.

    add.s32 %r9, %r1, 4;          nobody reads %r9: dead
    mov.b32 %r3, %r8;             %r8 became %r3 (it is computed in its place): a copy onto itself
    .loc 1 7 3                    followed by .loc 1 8 3: a location of nothing
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ptxforge.codegen_ptx.ptx.instruction import COPY, LOCATION, Instruction

if TYPE_CHECKING:
    from ptxforge.codegen_ptx.ptx.builder import Builder


def drop_dead(code: list[Instruction], b: Builder) -> list[Instruction]:
    """Without pure instructions whose results nobody uses."""
    used: set = set()
    kept = []
    for instruction in reversed(code):
        _, operands, kind = instruction
        if kind > 0:
            if used.isdisjoint(operands[:kind]):
                continue
            used.update(operands[kind:])
        elif kind == COPY:
            used.add(operands[1])
        elif kind != LOCATION:
            used.update(operands)
        kept.append(instruction)
    kept.reverse()
    return kept


def drop_copies(code: list[Instruction], b: Builder) -> list[Instruction]:
    """Without copies of a register onto itself."""
    if not b.aliases:
        return code
    name = b.resolved
    return [i for i in code if i[2] != COPY or name(i[1][0]) != name(i[1][1])]


def drop_locations(code: list[Instruction], b: Builder) -> list[Instruction]:
    """Without source lines of which no instruction is left."""
    following = [*code[1:], ("", (), LOCATION)]
    return [i for i, after in zip(code, following) if i[2] != LOCATION or after[2] != LOCATION]
