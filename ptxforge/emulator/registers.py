"""Registers by data flow: those that are read although no path writes them, where that cannot be meant (as
an address or as a guard), and how many are live at once.

Reading an unwritten register is legal PTX where the value does not matter in the end (compilers leave lanes
of a predicated load undefined and shuffle them along), so data operands are let pass; the emulator gives 0.
An address or a branch condition matters.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from ptxforge.emulator.findings import Site
from ptxforge.emulator.parser import TYPE_BITS, Instruction, Memory, Register, SourceLine
from ptxforge.emulator.program import Block, Program, registers_of

_MOST_REGISTERS = 255
"""What a thread can have (PTX ISA, ".maxnreg"; CUDA C++ Programming Guide, technical specifications)."""


@lru_cache(maxsize=256)
def unwritten(program: Program) -> list[tuple[Site, str]]:
    """Instructions that use a register as address or guard whose value comes from one that nothing has
    written, on any path to them: from that register itself, or by computation from it.
    """
    bit = {name: 1 << index for index, name in enumerate(program.registers)}
    steps = {block: [_step(item, bit) for item in block.instructions] for block in program.blocks}
    known = _known_at_entry(program.blocks, steps)
    found = []
    for block in program.blocks:
        state = known[block]
        for item, step in zip(block.instructions, steps[block], strict=True):
            for register in _critical(item):
                if not state & bit.get(register.name, -1):
                    found.append((_site(program, item), _complaint(program, register.name)))
            state = _after(state, step)
    return found


def _complaint(program: Program, name: str) -> str:
    is_written = any(
        register.name == name
        for block in program.blocks
        for item in block.instructions
        for register in registers_of(item.family.definitions(item))
    )
    if is_written:
        return f"{name} is used, but computed from a register that nothing has written"
    return f"{name} is used, but nothing has written it"


Step = tuple[int, int, bool]
"""Registers that an instruction writes, those that it computes them from, and whether it may not happen."""


def _step(item: Instruction, bit: dict[str, int]) -> Step:
    """What a load gives depends on memory, what ``xor r, a, a`` gives on nothing, and ``selp`` may leave out
    the operand that nobody has written.
    """
    defined = _defined(item, bit)
    sources = item.operands[len(item.family.definitions(item)) :]
    cancels = item.parts[0] in ("xor", "sub") and len(sources) == 2 and sources[0] == sources[1]
    if cancels or item.parts[0] == "selp" or any(isinstance(operand, Memory) for operand in sources):
        sources = ()
    used = _union(bit.get(register.name, 0) for register in registers_of(sources))
    return defined, used, item.predicate is not None


def _after(state: int, step: Step) -> int:
    """Registers with a known value after an instruction."""
    defined, used, is_guarded = step
    if not used & ~state:
        return state | defined
    return state if is_guarded else state & ~defined


def _known_at_entry(blocks: list[Block], steps: dict[Block, list[Step]]) -> dict[Block, int]:
    """Block -> the set (as bits) of registers that some path to it gives a value that is known."""
    entry = dict.fromkeys(blocks, 0)
    changed = True
    while changed:
        changed = False
        for block in blocks:
            out = entry[block]
            for step in steps[block]:
                out = _after(out, step)
            for successor in block.successors:
                if out & ~entry[successor]:
                    entry[successor] |= out
                    changed = True
    return entry


def _defined(item: Instruction, bit: dict[str, int]) -> int:
    found = 0
    for register in registers_of(item.family.definitions(item)):
        found |= bit.get(register.name, 0)
    return found


def _critical(item: Instruction) -> list[Register]:
    """Registers whose value decides where an access or a branch goes."""
    bases = [operand.base for operand in item.operands if isinstance(operand, Memory)]
    guard = [item.predicate] if item.predicate is not None else []
    return [register for register in bases + guard if isinstance(register, Register) and register.bits]


def _site(program: Program, item: Instruction) -> Site:
    return Site(item.line, item.source, program.module.line_text(item.line))


@lru_cache(maxsize=256)
def pressure(program: Program) -> int:
    """The greatest number of 32-bit registers that are live at once, at least 1: an estimate of what an
    assembler needs.

    A 64-bit register counts twice, a narrower one once, a predicate not at all. (ptxas orders instructions
    again and recomputes values, so its number differs.)
    """
    return min(max(1, _peak(program)[0]), _MOST_REGISTERS)


def live_by_line(program: Program) -> list[tuple[SourceLine, int]]:
    """Where the most registers are live at once: how many of them hold what each source line computes, the
    most first. A register that several lines write counts for the last one."""
    _, live = _peak(program)
    lines: dict[str, SourceLine] = {}
    for block in program.blocks:
        for item in block.instructions:
            for register in registers_of(item.family.definitions(item)):
                if item.source is not None:
                    lines[register.name] = item.source
    counts: dict[tuple[str, int], int] = {}
    places: dict[tuple[str, int], SourceLine] = {}
    for name in live:
        if name in lines:
            place = lines[name].file, lines[name].line
            places.setdefault(place, lines[name])
            counts[place] = counts.get(place, 0) + _size(program, name)
    return sorted(((places[place], count) for place, count in counts.items()), key=lambda pair: -pair[1])


def _size(program: Program, name: str) -> int:
    """32-bit registers of one of PTX's."""
    kind = program.registers[name]
    return -(-TYPE_BITS[kind] // 32) if kind != "pred" else 0


@lru_cache(maxsize=256)
def _peak(program: Program) -> tuple[int, list[str]]:
    """How many 32-bit registers are live where the most are, and the names of these."""
    bit = {name: 1 << index for index, name in enumerate(program.registers)}
    weights: dict[int, int] = {}
    for name in program.registers:
        size = _size(program, name)
        weights[size] = weights.get(size, 0) | bit[name]
    effects = {block: [_effect(item, bit) for item in block.instructions] for block in program.blocks}
    live = _live_at_entry(program.blocks, effects)
    most, there = 0, 0
    for block in program.blocks:
        state = _union(live[successor] for successor in block.successors)
        for defined, killed, used in reversed(effects[block]):
            after = state | defined
            count = sum(size * (after & mask).bit_count() for size, mask in weights.items())
            if count > most:
                most, there = count, after
            state = state & ~killed | used
    return most, [name for name, mask in bit.items() if there & mask]


Effect = tuple[int, int, int]
"""Registers that an instruction writes, those whose old value is then lost, and those that it reads."""


def _effect(item: Instruction, bit: dict[str, int]) -> Effect:
    defined = _defined(item, bit)
    guard = [item.predicate] if item.predicate is not None else []
    sources = item.operands[len(item.family.definitions(item)) :]
    used = _union(bit.get(register.name, 0) for register in registers_of(sources) + guard)
    return defined, 0 if guard else defined, used


def _live_at_entry(blocks: list[Block], effects: dict[Block, list[Effect]]) -> dict[Block, int]:
    """Block -> registers whose value at its beginning somebody may read."""
    entry = dict.fromkeys(blocks, 0)
    changed = True
    while changed:
        changed = False
        for block in reversed(blocks):
            state = _union(entry[successor] for successor in block.successors)
            for _, killed, used in reversed(effects[block]):
                state = state & ~killed | used
            if state != entry[block]:
                entry[block] = state
                changed = True
    return entry


def _union(sets: Iterable[int]) -> int:
    found = 0
    for one in sets:
        found |= one
    return found


@lru_cache(maxsize=256)
def exposed(program: Program) -> frozenset[str]:
    """Registers that some path reads before it has written them (a predicated write may not have
    happened).
    """
    bit = {name: 1 << index for index, name in enumerate(program.registers)}
    flows = {block: _flow(block, bit) for block in program.blocks}
    entry = _surely_written_at_entry(program.blocks, flows)
    found = 0
    for block, (_, needed) in flows.items():
        found |= needed & ~entry[block]
    return frozenset(name for name, mask in bit.items() if found & mask)


def _flow(block: Block, bit: dict[str, int]) -> tuple[int, int]:
    """(registers that the block surely writes, registers that it reads before it has surely written them)."""
    written = needed = 0
    for item in block.instructions:
        definitions = item.family.definitions(item)
        guard = [item.predicate] if item.predicate is not None else []
        for register in registers_of(item.operands[len(definitions) :]) + guard:
            needed |= bit.get(register.name, 0) & ~written
        if item.predicate is None:
            written |= _defined(item, bit)
        else:
            needed |= _defined(item, bit) & ~written  # lanes that are guarded off keep the old value
    return written, needed


def _surely_written_at_entry(blocks: list[Block], flows: dict[Block, tuple[int, int]]) -> dict[Block, int]:
    """Block -> registers that every path to it writes."""
    entry = dict.fromkeys(blocks, -1)
    entry[blocks[0]] = 0
    changed = True
    while changed:
        changed = False
        for block in blocks:
            out = entry[block] | flows[block][0]
            for successor in block.successors:
                if entry[successor] & ~out:
                    entry[successor] &= out
                    changed = True
    return entry
