"""An instruction: ``(template, operands, kind)``, a plain tuple, for there are thousands.

The template has a ``%s`` for each operand: registers (``registers.py``), ints, literals of floats. ``kind``
is the number of leading operands that a pure instruction defines, or one of the marks below.
"""

from __future__ import annotations

Instruction = tuple[str, tuple, int]

EFFECT, LOCATION, COPY, LABEL = 0, -1, -2, -3
"""An instruction that stays where it is; a line of the source; an assignment of a register that has several;
a label."""
RARE_BEGIN, RARE_END = -4, -5
"""Around what few threads do. No text comes of these."""


def acts(instruction: Instruction) -> bool:
    """Whether it computes or does something: it is no mark, label or location."""
    kind = instruction[2]
    return kind >= EFFECT or kind == COPY
