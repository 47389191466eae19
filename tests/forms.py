"""Instruction forms: what the code generator emits, and what a GPU has run.

A form is an instruction's name with all that stands behind its dots (``cp.async.cg.shared.global``), and, for
those whose operands are lists, how long these are. ``forms.txt`` has the forms that ran on an H200 in the
tests, all of them right: an assembler may encode one form wrong and others right, which no emulator notices.
``pytest --device cuda --forms FILE`` writes what ran.
"""

from __future__ import annotations

import re
from pathlib import Path

from ptxforge.driver.cuda import CudaModule

ran: set[str] = set()
"""The forms of what this session launched on a GPU."""
LIST = Path(__file__).parent / "forms.txt"
_INSTRUCTION = re.compile(r"^(?:@!?%\w+\s+)?([a-z][\w.:]*)\s*(.*);")
_LIST = re.compile(r"\{([^{}]*)\}")


def forms_of(ptx: str) -> set[str]:
    """The forms of all instructions of PTX text that the code generator wrote: one a line."""
    found = set()
    for line in ptx.splitlines():
        instruction = _INSTRUCTION.match(line.strip())
        if instruction:
            lengths = [str(item.count(",") + 1) for item in _LIST.findall(instruction[2])]
            found.add(" ".join([instruction[1], *lengths]))
    return found


def listed() -> set[str]:
    """The forms that ran on a GPU."""
    return set(LIST.read_text().split("\n")) - {""}


def record() -> None:
    """From now on take down the forms of every module of which a GPU gets a kernel."""
    function = CudaModule.function

    def noting(module: CudaModule, name: str):
        ran.update(forms_of(module._ptx))
        return function(module, name)

    CudaModule.function = noting
