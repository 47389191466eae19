"""The lines of instructions."""

from __future__ import annotations

from collections.abc import Sequence

from ptxforge.codegen_ptx.ptx.instruction import LABEL, RARE_BEGIN, RARE_END, Instruction
from ptxforge.codegen_ptx.ptx.registers import Names


def lines_of(
    code: Sequence[Instruction], names: Names, reasons: dict[str, str] | None = None
) -> list[str]:
    """A line for each instruction, its registers called by ``names``. ``reasons`` are the rules that made
    registers what they are: comments say them behind the instructions that compute these."""
    lines = []
    for template, operands, kind in code:
        if kind == LABEL:
            lines.append(template)
        elif operands:
            line = "\t" + (template % tuple([names[x] for x in operands])).replace("+0]", "]")
            if reasons and kind and operands[0] in reasons:
                line += f"  // {reasons[operands[0]]}"
            lines.append(line)
        elif kind not in (RARE_BEGIN, RARE_END):
            lines.append("\t" + template)
    return lines
