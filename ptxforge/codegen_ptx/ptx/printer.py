"""Instructions as text."""

from __future__ import annotations

from collections.abc import Sequence

from ptxforge.codegen_ptx.ptx.instruction import LABEL, RARE_BEGIN, RARE_END, Instruction, form_of
from ptxforge.codegen_ptx.ptx.registers import Names


def lines_of(code: Sequence[Instruction], names: Names, why: bool = False) -> list[str]:
    """A line for each instruction, its registers called by ``names``, and a ``.loc`` where the place in the
    source changes. With ``why``, comments say which rule made an instruction what it is."""
    lines: list[str] = []
    name = names.__getitem__
    here = None
    for instruction in code:
        kind = instruction.kind
        if kind is LABEL:
            lines.append(instruction.syntax)
            continue
        if kind is RARE_BEGIN or kind is RARE_END:
            continue
        if instruction.location is not here and instruction.location not in (None, here):
            here = instruction.location
            lines.append("\t.loc %d %d %d" % here)
        form = form_of(instruction.syntax)
        line = form.line % tuple(map(name, instruction.operands))
        if form.has_address:
            line = line.replace("+0]", "]")
        lines.append(f"{line}  // {instruction.why}" if why and instruction.why else line)
    return lines
