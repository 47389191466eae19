"""ld and st in all spaces and vector shapes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ptxforge.emulator.access import OF_THE_BATCH, READ, WRITE, Locator, gather, scatter
from ptxforge.emulator.arithmetic import dtype_of
from ptxforge.emulator.findings import Site
from ptxforge.emulator.memory import CODES
from ptxforge.emulator.parser import TYPE_BITS, Immediate, Instruction, Memory, Register, Sink, Symbol, Vector
from ptxforge.emulator.registry import instruction
from ptxforge.emulator.state import Machine
from ptxforge.emulator.translate import Emitter, scalar


def _elements(e: Emitter, operand: object, count: int) -> list:
    elements = list(operand.elements) if isinstance(operand, Vector) else [operand]
    if len(elements) != count:
        raise e.error(f"{count} elements are expected")
    return elements


def _parameter(e: Emitter, operand: object) -> tuple[str, str] | None:
    """``("kernel" | "frame", name)`` for a memory operand that names a parameter."""
    if not isinstance(operand, Memory) or not isinstance(operand.base, Symbol):
        return None
    name = operand.base.name
    if name in e.program.params:
        return "kernel", name
    if e.program.locations.get(name, ("",))[0] == "frame":
        return "frame", name
    return None


@instruction("ld", "ldu")
def emit_ld(e: Emitter, i: Instruction) -> None:
    memory = i.operands[1]
    count, kind = i.vector_width, i.types[-1]
    targets = _elements(e, i.operands[0], count)
    space = i.space
    parameter = _parameter(e, memory) if space == "param" else None
    if parameter is not None:
        _emit_ld_parameter(e, parameter, memory, targets, kind)
        return
    size = TYPE_BITS[kind] // 8
    views = [_destination(e, target, kind) for target in targets]
    e.call(_bind_load, e.locator(memory, space, size * count, READ), views, size, count)


def _destination(e: Emitter, target: object, kind: str) -> object:
    """The register's view that a loaded element is copied to; a wider register is extended by the type's
    sign.
    """
    if isinstance(target, Sink):
        return None
    if not isinstance(target, Register) or target.bits < TYPE_BITS[kind]:
        raise e.error("a destination register as wide as the type is expected")
    if target.bits == 128:
        return e.view(target, "c16")
    return e.view(target, ("i" if kind[0] == "s" else "u") + str(target.bits // 8))


def _bind_load(machine: Machine, locator: Locator, targets: list, size: int, count: int) -> Callable:
    total = size * count
    piece = min(total, 16)
    pieces = total // piece
    signed = any(target is not None and target.dtype.kind == "i" for target in targets)
    element = "c16" if size == 16 else ("i" if signed else "u") + str(size)
    direct = targets[0] if count == 1 and targets[0] is not None and targets[0].itemsize == size else None
    if direct is not None:
        direct = direct.view(CODES[piece])
    columns = range(count)

    def run(mask: np.ndarray | None) -> None:
        indices, lanes = locator(mask)
        if lanes is None and direct is not None:
            gather(indices, piece, direct)
            return
        if lanes is None:
            raw = machine.scratch(CODES[piece], 6, pieces)
            grid = raw.reshape(machine.lanes, pieces)
        else:
            grid = np.empty((len(lanes), pieces), CODES[piece])
        for index in range(pieces):
            grid[:, index] = gather(indices + 16 * index if index else indices, piece)
        values = grid.view(element)
        for column in columns:
            target = targets[column]
            if target is None:
                continue
            if lanes is None:
                np.copyto(target, values[:, column], casting="unsafe")
            else:
                target[lanes] = values[:, column]

    return run


def _emit_ld_parameter(
    e: Emitter, parameter: tuple[str, str], memory: Memory, targets: list, kind: str
) -> None:
    where, name = parameter
    size = TYPE_BITS[kind] // 8
    dtype = dtype_of(kind) if kind[0] in "us" else f"u{size}"
    for index, target in enumerate(targets):
        if isinstance(target, Sink):
            continue
        offset = memory.offset + index * size
        made = e.write(target, dtype)
        e.line(f"copyto({made}, {_parameter_view(e, where, name, offset, dtype)})")


def _parameter_view(e: Emitter, where: str, name: str, offset: int, dtype: str) -> str:
    """A kernel parameter as a 0-d array, or a call parameter as ``(lanes,)``."""
    size = np.dtype(dtype).itemsize
    if where == "kernel":
        start = e.program.params[name][0] + offset
        if start < 0 or start + size > max(e.program.param_bytes, 1):
            raise e.error("outside the parameter")
        return e.bind(lambda machine: machine.params[start : start + size].view(dtype)[0:1].reshape(()))
    return e.bind(lambda machine: machine.frame(name)[:, offset : offset + size].view(dtype)[:, 0])


@instruction("st", defines=0)
def emit_st(e: Emitter, i: Instruction) -> None:
    memory, value = i.operands[:2]
    count, kind = i.vector_width, i.types[-1]
    sources = _elements(e, value, count)
    size = TYPE_BITS[kind] // 8
    space = i.space
    parameter = _parameter(e, memory) if space == "param" else None
    if parameter is not None:
        for index, source in enumerate(sources):
            view = _parameter_view(e, *parameter, memory.offset + index * size, f"u{size}")
            e.copy(view, e.read(source, f"u{size}"))
        return
    views = [_source(e, source, size) for source in sources]
    e.call(_bind_store, e.locator(memory, space, size * count, WRITE), views, size, count)


def _source(e: Emitter, source: object, size: int) -> object:
    dtype = "c16" if size == 16 else f"u{size}"
    if isinstance(source, Immediate):
        return scalar(source, dtype)
    return e.view(source, dtype)


def _bind_store(machine: Machine, locator: Locator, sources: list, size: int, count: int) -> Callable:
    total = size * count
    piece = min(total, 16)
    pieces = total // piece
    element = "c16" if size == 16 else f"u{size}"
    checkers = [watcher.stored for watcher in locator.watchers if hasattr(watcher, "stored")]
    is_own = locator.space in OF_THE_BATCH

    def values(lanes: np.ndarray | None) -> np.ndarray:
        if count == 1:
            source = sources[0]
            return source if np.ndim(source) == 0 or lanes is None else source[lanes]
        rows = machine.lanes if lanes is None else len(lanes)
        kind = CODES[piece]
        grid = machine.scratch(kind, 6, pieces) if lanes is None else np.empty(rows * pieces, kind)
        columns = grid.view(element).reshape(rows, count)
        for column, source in enumerate(sources):
            columns[:, column] = source if np.ndim(source) == 0 or lanes is None else source[lanes]
        return grid.reshape(rows, pieces)

    def run(mask: np.ndarray | None) -> None:
        if not is_own:
            machine.changed = True
        indices, lanes = locator(mask)
        grid = values(lanes)
        if pieces == 1 and count > 1:
            grid = grid[:, 0]
        if pieces == 1:
            scatter(indices, piece, grid)
        else:
            for index in range(pieces):
                scatter(indices + 16 * index, piece, grid[:, index])
        for checker in checkers:
            checker(locator, lanes, indices, grid, piece)

    return run


@instruction("st.bulk", defines=0)
def emit_st_bulk(e: Emitter, i: Instruction) -> None:
    """st.bulk{.weak}{.shared::cta} [a], size, 0: zeros, size a multiple of 8 bytes."""
    memory, size, initial = i.operands
    if e.constant(initial) != 0:
        raise e.error("only 0 is stored in bulk")
    e.call(_bind_st_bulk, e.locator(memory, i.space, 8, WRITE), e.view(size, "u8"), e.site)


def _bind_st_bulk(machine: Machine, locator: Locator, size: np.ndarray, site: Site) -> Callable:
    first = locator.offset

    def run(mask: np.ndarray | None) -> None:
        left = size.astype(np.int64) if mask is None else np.where(mask, size, 0).astype(np.int64)
        odd = np.flatnonzero(left % 8)
        if odd.size:
            machine.report("misaligned", "the size of a bulk store must be a multiple of 8", site, odd)
        try:
            while (left >= 8).any():
                indices, _ = locator(left >= 8)
                scatter(indices, 8, np.uint64(0))
                locator.offset += 8
                left -= 8
        finally:
            locator.offset = first

    return run
