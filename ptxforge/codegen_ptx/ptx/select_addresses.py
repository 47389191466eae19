"""Make instructions of the sums that addresses are.

    sum %q2, %q1, %r3, 4                    (before: base, index, bytes that one unit of the index counts)
    sum %q5, %q2, %q4, 1
    ld.global.b32 %r6, [%q5+512]

    mad.wide.s32 %q2, %r3, 4, %q1           (after)
    add.s64 %q5, %q2, %q4
    ld.global.b32 %r6, [%q5+512]

The constant part of an address stands in the instruction that accesses memory. One that does not fit there,
in 32 bits, takes an instruction of its own; accesses behind it, up to the next label, share that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ptxforge.codegen_ptx.ptx.instruction import EFFECT, LABEL, PURE, Instruction, form_of, places_of
from ptxforge.codegen_ptx.ptx.pointers import SUM
from ptxforge.codegen_ptx.ptx.registers import Register

if TYPE_CHECKING:
    from ptxforge.codegen_ptx.ptx.builder import Builder

REASON = "select_addresses: a term of an address"
FAR = "select_addresses: a constant that no access takes"
ADD, MULTIPLY_AND_ADD = "add.s64 %s, %s, %s;", "mad.wide.s32 %s, %s, %s, %s;"


def select_addresses(code: list[Instruction], b: Builder) -> list[Instruction]:
    """The instructions without sums, and with constants in addresses that fit."""
    reach = 0 if "select_addresses" in b.without else 1 << 31
    result, done = [], 0
    far: dict[tuple[Register, int], Register] = {}
    forms = {instruction.form for instruction in code}
    found = {form for form in forms if form.addresses or form.syntax == SUM or form.line.endswith(":")}
    for place in places_of(code, "form", found):
        instruction = code[place]
        form, kind = instruction.form, instruction.kind
        if form.syntax == SUM:
            _select(instruction)
        elif kind is LABEL:
            far.clear()
        for at in form.addresses if kind is EFFECT else ():
            if _is_far(*instruction.operands[at : at + 2], reach):
                result += code[done:place]
                result += _bring_near(instruction, at, far, b)
                done = place
    return result + code[done:]


def _is_far(base: object, offset: object, reach: int) -> bool:
    """Whether a constant (not a register of the user's assembly) cannot stay in an address of 64 bits."""
    if not isinstance(offset, int) or -reach <= offset < reach or not offset:
        return False
    return isinstance(base, Register) and base.kind == "q"


def _select(instruction: Instruction) -> None:
    """Make the sum an instruction of PTX."""
    found, base, index, size = instruction.operands
    instruction.why = instruction.why or REASON
    if index.kind == "r":
        instruction.form, instruction.operands = form_of(MULTIPLY_AND_ADD), (found, index, size, base)
    else:
        instruction.form, instruction.operands = form_of(ADD), (found, *sorted((base, index)))


def _bring_near(
    access: Instruction, at: int, far: dict[tuple[Register, int], Register], b: Builder
) -> list[Instruction]:
    """Let the address at operand ``at`` have no constant. Returns what adds it, if nothing did before."""
    place = base, offset = access.operands[at : at + 2]
    added = []
    if place not in far:
        far[place] = b.new("q")
        added = [Instruction(ADD, (far[place], base, offset), PURE, access.location, access.why or FAR)]
    access.operands = (*access.operands[:at], far[place], 0, *access.operands[at + 2 :])
    return added
