"""Registers by data flow over a program's blocks: those that are read although no path writes them, where
that cannot be meant (as an address or as a guard); how many are live at once; those of a wgmma that are
touched too early; and loads whose value goes nowhere but into guarded stores.

Reading an unwritten register is legal PTX where the value does not matter in the end (compilers leave lanes
of a predicated load undefined and shuffle them along), so data operands are let pass; the emulator gives 0.
An address or a branch condition matters.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from ptxforge.emulator.findings import Site
from ptxforge.emulator.parser import TYPE_BITS, Instruction, Memory, Register, SourceLine
from ptxforge.emulator.program import Block, Program, registers_of
from ptxforge.support.worklist import each_once

_MOST_REGISTERS = 255
"""What a thread can have (PTX ISA, ".maxnreg"; CUDA C++ Programming Guide, technical specifications)."""
Kept = TypeVar("Kept")


def kept_with_program(analysis: Callable[..., Kept]) -> Callable[..., Kept]:
    """An analysis of a program, done once for each value of its other arguments; forgotten with the
    program."""

    @functools.wraps(analysis)
    def found(program: Program, *rest: Any) -> Kept:
        key = (analysis, *rest)
        if key not in program.kept:
            program.kept[key] = analysis(program, *rest)
        return program.kept[key]

    return found


@kept_with_program
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
        for register in _written(item)
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
    targets = item.family.definitions(item)
    defined = _union(bit.get(register.name, 0) for register in registers_of(targets))
    sources = item.operands[len(targets) :]
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
    return _union(bit.get(register.name, 0) for register in _written(item))


def _critical(item: Instruction) -> list[Register]:
    """Registers whose value decides where an access or a branch goes."""
    bases = [operand.base for operand in item.operands if isinstance(operand, Memory)]
    return [register for register in bases + _guard(item) if isinstance(register, Register) and register.bits]


def _guard(item: Instruction) -> list[Register]:
    return [item.predicate] if item.predicate is not None else []


def _written(item: Instruction) -> list[Register]:
    return registers_of(item.family.definitions(item))


def _read(item: Instruction) -> list[Register]:
    """The registers of the operands that an instruction does not write, and its guard."""
    return registers_of(item.operands[len(item.family.definitions(item)) :]) + _guard(item)


def _site(program: Program, item: Instruction) -> Site:
    return Site(item.line, item.source, program.module.line_text(item.line))


@kept_with_program
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
            for register in _written(item):
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


@kept_with_program
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
    used = _union(bit.get(register.name, 0) for register in _read(item))
    return defined, 0 if item.predicate is not None else defined, used


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


@kept_with_program
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
        needed |= _union(bit.get(register.name, 0) for register in _read(item)) & ~written
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


_OLDEST = 16
_UNFENCED = "unfenced"
State = dict[tuple[str, str], int]
"""("D" or "A", register) -> commits since the wgmma that uses it; absent: not in flight.

("unfenced", register) -> 0: touched since the last `wgmma.fence`; ("unfenced", "") -> 0: there was no fence
yet."""


def stale_accumulators(program: Program) -> list[tuple[Site, str]]:
    """Instructions that touch registers of a wgmma before a `wait_group` that completes it, on some path.
    (Registers have no shadow that would tell while the program runs.)"""
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
            found[item.line] = (_site(program, item), message)
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
            yield from _touched(item, touched, state)
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


def _touched(item: Instruction, registers: list[Register], state: State) -> Iterator[tuple[Instruction, str]]:
    """``registers``: those of its operands that some wgmma has, too."""
    for register in registers:
        if ("D", register.name) in state:
            yield item, f"{register.name} is an accumulator of a wgmma that was not waited for"
            return
        if ("A", register.name) in state and register.name in {one.name for one in _written(item)}:
            yield item, f"{register.name} is an operand of a wgmma that was not waited for"
            return


_ARITHMETIC = frozenset(
    "abs add addc and bfe bfi bfind brev clz cnot copysign cos cvt cvta div dp2a dp4a ex2 fma fns lg2 lop3 "
    "mad mad24 max min mov mul mul24 neg not or popc prmt rcp rem rsqrt sad selp set setp shf shl shr sin "
    "slct sqrt sub subc szext tanh testp xor".split()
)
"""Opcodes whose results depend on the thread's own registers alone."""

_STORES = ("st", "red", "atom")


@kept_with_program
def feeds_guarded_stores_only(program: Program, line: int) -> bool:
    """Whether what the load at a PTX line reads ends as the value of predicated stores, whatever computation
    lies between: no address, no branch, no other thread depends on it.

    Where a tile is smaller than the threads are many, compilers let several threads load, compute and keep
    the same element, and one of them store it. When that one stores where the others have just loaded, in
    place, a slower copy may load the new value instead of the old one: a race that does not matter.
    """
    every = [item for block in program.blocks for item in block.instructions]
    loads = [item for item in every if item.line == line and item.parts[0] in ("ld", "ldu")]
    work = [register.name for item in loads for register in _written(item)]
    for name in each_once(work):
        for item in every:
            if all(register.name != name for register in _read(item)):
                continue
            if not _is_harmless(item, name):
                return False
            work += [register.name for register in _written(item)]
    return bool(loads)


def _is_harmless(item: Instruction, name: str) -> bool:
    if item.predicate is not None and item.predicate.name == name:
        return False
    if item.parts[0] not in _STORES:
        return item.parts[0] in _ARITHMETIC
    addresses = [operand for operand in item.operands if isinstance(operand, Memory)]
    is_address = any(register.name == name for register in registers_of(tuple(addresses)))
    return item.predicate is not None and not is_address
