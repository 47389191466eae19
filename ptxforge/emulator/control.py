"""Control flow: branches, exits, traps, hints, and the calls of built-in functions (``vprintf``,
``__assertfail``).
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from ptxforge.emulator.findings import Site
from ptxforge.emulator.memory import ORIGIN, TABLES, WINDOW_MASK
from ptxforge.emulator.parser import Instruction, Symbol, Vector
from ptxforge.emulator.program import LOCAL_BASE
from ptxforge.emulator.registry import instruction
from ptxforge.emulator.state import EXIT, Machine
from ptxforge.emulator.translate import Emitter
from ptxforge.support.machine import WARP_SIZE


def _branch(e: Emitter, i: Instruction, taken: int) -> None:
    guard = i.predicate
    other = e.next_index
    if guard is None:
        e.line(f"return {taken}")
        return
    predicate = e.register_view(guard, "?")
    if guard.negated:
        taken, other = other, taken
    is_uniform = "uni" in i.parts
    if is_uniform and e.masked:
        e.line(f"{e.bind(_bind_uniform, e.site)}({predicate}, m)")
    if e.masked:
        e.line(f"return split({predicate}, {taken}, {other}, m)")
        return
    e.line(f"n = count_nonzero({predicate})")
    e.line(f"if n == N: return {taken}")
    e.line(f"if n == 0: return {other}")
    if is_uniform:
        e.line(f"{e.bind(_bind_uniform, e.site)}({predicate}, None)")
    e.line(f"return diverge({predicate}, {taken}, {other})")


def _bind_uniform(machine: Machine, site: Site) -> Callable:
    """Report a branch that promises that the threads of a warp go one way, where they do not."""

    def run(guard: np.ndarray, mask: np.ndarray | None) -> None:
        rows = guard.reshape(-1, WARP_SIZE)
        active = np.ones_like(rows) if mask is None else mask.reshape(rows.shape)
        parted = (rows & active).any(axis=1) & (~rows & active).any(axis=1)
        if parted.any():
            text = "threads of a warp go different ways at a branch that says that they do not (.uni)"
            machine.report("barrier", text, site, np.flatnonzero(active & parted[:, None]))

    return run if machine.watchers else lambda guard, mask: None


@instruction("bra", role="branch", defines=0)
def emit_bra(e: Emitter, i: Instruction) -> None:
    _branch(e, i, e.block.targets[i.operands[0].name].index)


@instruction("ret", "exit", role="branch", defines=0)
def emit_exit(e: Emitter, i: Instruction) -> None:
    _branch(e, i, EXIT)


@instruction("brx", role="branch", defines=0)
def emit_brx(e: Emitter, i: Instruction) -> None:
    """brx.idx index, table: an index outside the table is undefined; it is clamped."""
    targets = [e.block.targets[label.name].index for label in i.operands[1].elements]
    guard = None if i.predicate is None else e.register_view(i.predicate, "?")
    negated = i.predicate is not None and i.predicate.negated
    name = e.bind(_bind_brx, e.view(i.operands[0], "u4"), targets)
    active = "m" if e.masked else "None"
    if guard is None:
        e.line(f"return {name}({active}, None, False, {e.next_index})")
    else:
        e.line(f"return {name}({active}, {guard}, {negated}, {e.next_index})")


def _bind_brx(machine: Machine, index: np.ndarray, targets: list[int]) -> Callable:
    table = np.array(targets, np.int64)

    def run(mask: np.ndarray | None, guard: np.ndarray | None, negated: bool, then: int) -> int:
        there = table[np.minimum(index, len(table) - 1)]
        if guard is not None:
            there = np.where(guard ^ negated, there, then)
        np.copyto(machine.pc, there, where=True if mask is None else mask)
        return -1

    return run


def _bind_trap(machine: Machine, site: object) -> Callable:
    def run(mask: np.ndarray | None) -> None:
        lanes = machine.lanes_in(mask)
        machine.report("trap", "the kernel executed trap", site, lanes)

    return run


@instruction("trap", role="branch", defines=0)
def emit_trap(e: Emitter, i: Instruction) -> None:
    """The lanes stop and the launch fails."""
    mask = "m" if e.masked else "None"
    if i.predicate is not None:
        guard = e.register_view(i.predicate, "?")
        mask = f"({'~' if i.predicate.negated else ''}{guard}{' & m' if e.masked else ''})"
    e.line(f"{e.bind(_bind_trap, e.site)}({mask})")
    _branch(e, i, EXIT)


@instruction(
    *"brkpt nanosleep pmevent griddepcontrol discard prefetch prefetchu applypriority".split(),
    defines=0,
)
def emit_hint(e: Emitter, i: Instruction) -> None:
    """No effect on the emulated machine: one grid at a time, sequentially consistent memory, no caches."""


@instruction("fence", "membar", defines=0)
def emit_fence(e: Emitter, i: Instruction) -> None:
    """Memory is sequentially consistent; the checkers see proxy fences."""
    e.call(_bind_fence, i.parts)


def _bind_fence(machine: Machine, parts: tuple[str, ...]) -> Callable:
    hooks = [watcher.fence for watcher in machine.watchers if hasattr(watcher, "fence")]

    def run(mask: np.ndarray | None) -> None:
        for hook in hooks:
            hook(mask, parts)

    return run


# ---- built-in functions ------------------------------------------------------------------------------------
@instruction("call", defines=0)
def emit_call(e: Emitter, i: Instruction) -> None:
    """vprintf and __assertfail; other functions were inlined before."""
    position = next(index for index, operand in enumerate(i.operands) if isinstance(operand, Symbol))
    name = i.operands[position].name
    results = [element.name for element in i.operands[0].elements] if position else []
    lists = [operand for operand in i.operands[position + 1 :] if isinstance(operand, Vector)]
    arguments = [element.name for element in lists[0].elements] if lists else []
    if name == "vprintf":
        e.call(_bind_vprintf, arguments, results)
    elif name == "__assertfail":
        e.call(_bind_assertfail, arguments, e.site)
    else:
        raise e.error(f"{name} is not supported")


def _frame_words(machine: Machine, name: str, dtype: str) -> np.ndarray:
    return machine.frame(name).view(dtype)[:, 0]


def read_string(machine: Machine, address: int) -> str:
    """A zero-terminated string in global memory."""
    out = bytearray()
    while machine.memory.contains(address, address + 1) and len(out) < 4096:
        byte = int(TABLES[1][address - ORIGIN])
        if not byte:
            break
        out.append(byte)
        address += 1
    return out.decode("utf-8", "replace")


def _bind_vprintf(machine: Machine, arguments: list[str], results: list[str]) -> Callable:
    formats, buffers = [_frame_words(machine, name, "u8") for name in arguments]
    result = _frame_words(machine, results[0], "i4") if results else None

    def run(mask: np.ndarray | None) -> None:
        for lane in range(machine.lanes) if mask is None else np.flatnonzero(mask):
            text = format_printf(
                machine, int(lane), read_string(machine, int(formats[lane])), int(buffers[lane])
            )
            machine.output.append(text)
            if result is not None:
                result[lane] = 1

    return run


_CONVERSION = re.compile(r"%([-+ #0]*)(\*|\d+)?(?:\.(\*|\d+))?(hh|h|ll|l|z|j|t|L)?([diouxXeEfFgGaAcsp%])")


def format_printf(machine: Machine, lane: int, template: str, buffer: int) -> str:
    """CUDA's printf: ints of 4 bytes (8 with ll, l, z, j, t), doubles, pointers, each at its natural
    alignment.
    """
    local = buffer & WINDOW_MASK
    start = local - LOCAL_BASE + lane * machine.local_stride
    position = 0

    def take(size: int) -> bytes:
        nonlocal position
        position = -(-position // size) * size
        found = machine.local[start + position : start + position + size].tobytes()
        position += size
        return found

    def convert(match: re.Match) -> str:
        flags, width, precision, length, kind = match.groups()
        if kind == "%":
            return "%"
        width = str(int.from_bytes(take(4), "little", signed=True)) if width == "*" else width or ""
        precision = str(int.from_bytes(take(4), "little", signed=True)) if precision == "*" else precision
        head = f"%{flags}{width}" + ("" if precision is None else f".{precision}")
        if kind in "eEfFgGaA":
            value = float(np.frombuffer(take(8), np.float64)[0])
            return value.hex() if kind in "aA" else (head + kind) % value
        if kind in "sp":
            address = int.from_bytes(take(8), "little")
            return (head + "s") % (read_string(machine, address) if kind == "s" else f"0x{address:x}")
        size = 8 if length in ("l", "ll", "z", "j", "t") else 4
        value = int.from_bytes(take(size), "little", signed=kind in "dic")
        return (head + kind) % (chr(value & 0xFF) if kind == "c" else value)

    return _CONVERSION.sub(convert, template)


def _bind_assertfail(machine: Machine, arguments: list[str], site: object) -> Callable:
    message, file, line = arguments[:3]
    messages, files = _frame_words(machine, message, "u8"), _frame_words(machine, file, "u8")
    lines = _frame_words(machine, line, "u4")

    def run(mask: np.ndarray | None) -> None:
        lanes = machine.lanes_in(mask)
        if not lanes.size:
            return
        first = int(lanes[0])
        text = (
            f"assertion failed: {read_string(machine, int(messages[first]))} "
            f"({read_string(machine, int(files[first]))}:{int(lines[first])})"
        )
        machine.report("assert", text, site, lanes)

    return run
