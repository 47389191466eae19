"""Instruction forms: what the code generator emits, and what a GPU has run.

A form is an instruction's name with all that stands behind its dots (``cp.async.cg.shared.global``), and, for
those whose operands are lists, how long these are. An assembler may encode one form wrong and others right,
which no emulator notices: so ``forms.txt`` lists the forms of all benchmark configurations for sm_80 and
sm_90a (``tests/kernels/test_facts.py`` fails for one that is not there, and adds it with
``--update-golden``), and a session on a GPU tells which of them it ran:

    python -m pytest --device cuda --forms FILE
    python -m tests.forms FILE          # prints the forms of the list that FILE has not
"""

from __future__ import annotations

import functools
import re
import sys
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
    """The forms of the list."""
    return set(LIST.read_text().splitlines())


def add(forms: set[str]) -> None:
    """Put forms on the list."""
    LIST.write_text("\n".join(sorted(listed() | forms)) + "\n")


def not_run(file: Path) -> list[str]:
    """The forms of the list that a session on a GPU, which wrote ``file``, did not run."""
    return sorted(listed() - set(file.read_text().splitlines()))


def record() -> None:
    """From now on take down the forms of every module of which a GPU gets a kernel."""
    function = CudaModule.function

    @functools.wraps(function)
    def noting(module: CudaModule, name: str):
        ran.update(forms_of(module._ptx))
        return function(module, name)

    CudaModule.function = noting


if __name__ == "__main__":
    print("\n".join(not_run(Path(sys.argv[1]))))
