"""Registers of wgmma that are touched too early, by data flow over a program's blocks: registers have no
shadow.
"""

from __future__ import annotations

from collections.abc import Iterator

from ptxforge.emulator.findings import Site
from ptxforge.emulator.parser import Instruction, Register
from ptxforge.emulator.program import Block, Program, registers_of

_OLDEST = 16
_UNFENCED = "unfenced"
State = dict[tuple[str, str], int]
"""("D" or "A", register) -> commits since the wgmma that uses it; absent: not in flight.

("unfenced", register) -> 0: touched since the last `wgmma.fence`; ("unfenced", "") -> 0: there was no fence
yet."""


def stale_accumulators(program: Program) -> list[tuple[Site, str]]:
    """Instructions that touch registers of a wgmma before a `wait_group` that completes it, on some path."""
    if not any(
        item.opcode.startswith("wgmma.mma") for block in program.blocks for item in block.instructions
    ):
        return []
    entering: dict[int, State] = {program.blocks[0].index: {(_UNFENCED, ""): 0}}
    operands = _wgmma_registers(program)
    work = [program.blocks[0]]
    while work:
        block = work.pop()
        state = dict(entering[block.index])
        for _ in _faults(block, state, operands):
            pass
        for successor in block.successors:
            if _join(entering, successor, state):
                work.append(successor)
    found = {}
    for block in program.blocks:
        for item, message in _faults(block, dict(entering.get(block.index, {})), operands):
            found[item.line] = (Site(item.line, item.source, program.module.line_text(item.line)), message)
    return list(found.values())


def _join(entering: dict[int, State], block: Block, state: State) -> bool:
    """Merge into the block's entry state, the less complete winning. True when it changed."""
    known = entering.get(block.index)
    if known is None:
        entering[block.index] = dict(state)
        return True
    changed = False
    for key, age in state.items():
        if age < known.get(key, _OLDEST + 1):
            known[key] = age
            changed = True
    return changed


def _wgmma_registers(program: Program) -> set[str]:
    """Accumulators and A registers of all wgmma."""
    return {register.name for block in program.blocks for item in block.instructions
            if item.opcode.startswith("wgmma.mma") for register in _fragments(item)}  # fmt: skip


def _fragments(item: Instruction) -> list[Register]:
    """The registers of D, and of A where it is in registers."""
    a = registers_of(item.operands[1:2])
    return registers_of(item.operands[:1]) + (a if len(a) > 1 else [])


def _faults(block: Block, state: State, operands: set[str]) -> Iterator[tuple[Instruction, str]]:
    """Step through a block, changing `state`; yields instructions that touch what is in flight, or lack a
    fence.
    """
    for item in block.instructions:
        if item.opcode.startswith("wgmma.mma"):
            yield from _unfenced(item, state)
            _issue(item, state)
        elif item.opcode.startswith("wgmma.fence"):
            for key in [key for key in state if key[0] == _UNFENCED]:
                del state[key]
        elif item.opcode.startswith("wgmma.commit"):
            for key in state:
                state[key] = min(state[key] + (key[0] != _UNFENCED), _OLDEST)
        elif item.opcode.startswith("wgmma.wait"):
            pending = getattr(item.operands[0], "value", 0)
            for key in [key for key, age in state.items() if age > pending and key[0] != _UNFENCED]:
                del state[key]
        else:
            touched = [register for register in registers_of(item.operands) if register.name in operands]
            yield from _touched(item, state)
            state.update({(_UNFENCED, register.name): 0 for register in touched})


def _unfenced(item: Instruction, state: State) -> Iterator[tuple[Instruction, str]]:
    if (_UNFENCED, "") in state:
        yield item, "no wgmma.fence before the first wgmma"
        return
    for register in _fragments(item):
        if (_UNFENCED, register.name) in state:
            yield item, f"{register.name} was accessed after the last wgmma.fence"
            return


def _issue(item: Instruction, state: State) -> None:
    for register in registers_of(item.operands[:1]):
        state["D", register.name] = 0
    if len(registers_of(item.operands[1:2])) > 1:
        for register in registers_of(item.operands[1:2]):
            state["A", register.name] = 0


def _touched(item: Instruction, state: State) -> Iterator[tuple[Instruction, str]]:
    defined = {register.name for register in registers_of(item.family.definitions(item))}
    for register in registers_of(item.operands):
        if ("D", register.name) in state:
            yield item, f"{register.name} is an accumulator of a wgmma that was not waited for"
            return
        if register.name in defined and ("A", register.name) in state:
            yield item, f"{register.name} is an operand of a wgmma that was not waited for"
            return
