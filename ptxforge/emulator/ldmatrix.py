"""ldmatrix, stmatrix and movmatrix: 8 x 8 matrices of 16-bit elements between shared memory and registers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ptxforge.emulator.access import READ, WRITE, Locator, gather, scatter
from ptxforge.emulator.findings import Site
from ptxforge.emulator.fragments import registers_to_rows, rows_to_registers, transpose_register
from ptxforge.emulator.mma import whole_warps
from ptxforge.emulator.parser import Instruction, Vector
from ptxforge.emulator.registry import instruction
from ptxforge.emulator.state import Machine
from ptxforge.emulator.translate import Emitter

_COUNTS = {"x1": 1, "x2": 2, "x4": 4}


def _form(e: Emitter, item: Instruction, registers: object) -> tuple[tuple, bool]:
    """The registers and whether the matrices are transposed."""
    if not item.has("m8n8") or not item.has("b16") or not item.has("aligned"):
        raise e.error("only .sync.aligned.m8n8 with .b16 is implemented")
    count = _COUNTS.get(item.first_of(_COUNTS), 0)
    elements = registers.elements if isinstance(registers, Vector) else (registers,)
    if len(elements) != count:
        raise e.error(f"{count} registers expected")
    return elements, item.has("trans")


@instruction("ldmatrix")
def emit_ldmatrix(e: Emitter, item: Instruction) -> None:
    registers, transpose = _form(e, item, item.operands[0])
    locator = e.locator(item.operands[1], item.space, 16, READ)
    e.call(bind_ldmatrix, e.site, locator, e.view(Vector(registers), "u4"), transpose)


@instruction("stmatrix", defines=0)
def emit_stmatrix(e: Emitter, item: Instruction) -> None:
    registers, transpose = _form(e, item, item.operands[1])
    locator = e.locator(item.operands[0], item.space, 16, WRITE)
    e.call(bind_stmatrix, e.site, locator, e.view(Vector(registers), "u4"), transpose)


@instruction("movmatrix")
def emit_movmatrix(e: Emitter, item: Instruction) -> None:
    if not item.has("m8n8") or not item.has("trans") or not item.has("b16"):
        raise e.error("only movmatrix.sync.aligned.m8n8.trans.b16 exists")
    e.call(bind_movmatrix, e.site, e.view(item.operands[0], "u4"), e.view(item.operands[1], "u4"))


class _RowLanes:
    """Which lanes give row addresses: the first 8 * count of each warp."""

    def __init__(self, machine: Machine, count: int):
        self.count, self.lanes = 8 * count, machine.lanes
        self.mask = None if count == 4 else np.tile(np.arange(32) < 8 * count, machine.warps)

    def chosen(self, mask: np.ndarray | None) -> np.ndarray | None:
        if mask is None or self.mask is None:
            return self.mask if mask is None else mask
        return mask & self.mask

    def select(self, rows: np.ndarray, lanes: np.ndarray | None, fill: int = 0) -> np.ndarray:
        """Values of the located lanes -> (W, count); `fill` where a lane had no valid address."""
        if lanes is None:
            return rows.reshape(-1, self.count)
        full = np.full(self.lanes, fill, rows.dtype)
        full[lanes] = rows
        return full.reshape(-1, 32)[:, : self.count]


def bind_ldmatrix(
    machine: Machine, site: Site, locator: Locator, registers: list, transpose: bool
) -> Callable:
    rows_of = _RowLanes(machine, len(registers))
    chunked = [register.view(np.complex128).reshape(-1, 8) for register in registers]

    def run(mask: np.ndarray | None) -> None:
        active = whole_warps(machine, mask, site)
        indices, lanes = locator(rows_of.chosen(mask))
        rows = rows_of.select(gather(indices, 16), lanes)
        rows = rows.reshape(machine.warps, len(registers), 8)
        if active is not None:
            rows = rows[active]
        if transpose:
            rows = np.ascontiguousarray(rows_to_registers(np.ascontiguousarray(rows), True)).view(
                np.complex128
            )
        else:
            rows = rows.transpose(1, 0, 2)
        for register, values in zip(chunked, rows):
            if active is None:
                register[...] = values
            else:
                register[active] = values

    return run


def bind_stmatrix(
    machine: Machine, site: Site, locator: Locator, registers: list, transpose: bool
) -> Callable:
    rows_of = _RowLanes(machine, len(registers))

    def run(mask: np.ndarray | None) -> None:
        whole_warps(machine, mask, site)
        indices, lanes = locator(rows_of.chosen(mask))
        rows = registers_to_rows(registers, transpose)
        if lanes is None:
            scatter(indices, 16, rows.reshape(-1))
        else:
            scatter(indices, 16, rows.reshape(machine.warps, -1)[lanes // 32, lanes % 32])

    return run


def bind_movmatrix(machine: Machine, site: Site, target: np.ndarray, source: np.ndarray) -> Callable:
    def run(mask: np.ndarray | None) -> None:
        active = whole_warps(machine, mask, site)
        moved = transpose_register(source)
        if active is None:
            target[...] = moved
        else:
            target.reshape(-1, 32)[active] = moved.reshape(-1, 32)[active]

    return run
