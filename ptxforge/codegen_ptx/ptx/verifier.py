"""What holds of the instructions between any two passes; ``PTXFORGE_VERIFY=1`` asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ptxforge.codegen_ptx.ptx.instruction import CARRY, PURE, Instruction
from ptxforge.codegen_ptx.ptx.registers import Register
from ptxforge.support.errors import InternalCompilerError

if TYPE_CHECKING:
    from ptxforge.codegen_ptx.ptx.builder import Builder


def check(code: list[Instruction], b: Builder, after: str) -> None:
    """Every register is defined before it is read, in the order of the text; what a pure instruction defines
    nothing else defines, unless it is carried; what is computed at the entry is carried nowhere.

    Raises:
        InternalCompilerError: an instruction for which one of these does not hold; ``after`` names the pass.
    """
    for instruction in b.entry_code():
        for x in instruction.definitions:
            _require(x not in b.aliases, instruction, f"{x} is computed at the entry, and assigned", after)
    carried = {*b.aliases, *b.aliases.values()}
    made: dict[Register, Instruction] = {}
    for instruction in code:
        if not instruction.acts:
            continue
        for x in instruction.operands if instruction.kind is CARRY else instruction.uses:
            if isinstance(x, Register):
                _require(b.resolved(x) in made, instruction, f"nothing defines {x} before", after)
        for x in instruction.definitions:
            _require(isinstance(x, Register), instruction, f"{x} is no register", after)
            is_second = made.setdefault(b.resolved(x), instruction) is not instruction
            is_alone = instruction.kind is PURE and x not in carried
            _require(not (is_second and is_alone), instruction, f"{x} is defined twice", after)


def _require(holds: bool, instruction: Instruction, reason: str, after: str) -> None:
    if not holds:
        raise InternalCompilerError(f"after {after}: {reason}: {instruction}")
