"""Warp-level instructions: shfl, vote, match, redux, activemask, elect; ldmatrix, stmatrix, movmatrix for
8 x 8 matrices of 16-bit elements between shared memory and registers; and setmaxnreg.

Lanes of a warp are 32 neighbours of a register array, so ``view.reshape(warps, 32)`` is the warp's view of a
register. A lane that the mask excludes takes no part; the value that shfl reads from it is what its register
holds, as on hardware.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ptxforge.emulator.access import READ, WRITE, Locator, gather, scatter
from ptxforge.emulator.arithmetic import UFUNCS, dtype_of, unsigned
from ptxforge.emulator.barriers import bind_warp_barrier
from ptxforge.emulator.findings import Site
from ptxforge.emulator.fragments import registers_to_rows, rows_to_registers, transpose_register
from ptxforge.emulator.mma import whole_warps
from ptxforge.emulator.parser import Instruction, Pair, Sink, Vector
from ptxforge.emulator.registry import instruction
from ptxforge.emulator.state import Machine
from ptxforge.emulator.translate import Emitter, merge
from ptxforge.support.machine import WARP_SIZE


def _targets(i: Instruction) -> tuple[object, object]:
    first = i.operands[0]
    return (first.first, first.second) if isinstance(first, Pair) else (first, Sink())


def shuffle_source(mode: str, lane: np.ndarray, b: np.ndarray | int, c: np.ndarray | int) -> tuple:
    """Source lane within the warp and the predicate, by the PTX ISA's pseudo-code for shfl."""
    b, clamp, segment = b & 31, c & 31, c >> 8 & 31
    lowest = lane & segment
    highest = lowest | (clamp & ~segment)
    source = {
        "up": lambda: lane - b,
        "down": lambda: lane + b,
        "bfly": lambda: lane ^ b,
        "idx": lambda: lowest | (b & ~segment),
    }[mode]()
    valid = source >= highest if mode == "up" else source <= highest
    return np.where(valid, source, lane), valid


@instruction("shfl")
def emit_shfl(e: Emitter, i: Instruction) -> None:
    """shfl.sync.mode.b32 d|p, a, b, c, membermask."""
    if not i.has("sync") or len(i.operands) != 5:
        raise e.error("only shfl.sync is supported")
    mode = i.first_of(("up", "down", "bfly", "idx"))
    if mode is None:
        raise e.error("unknown shuffle")
    target, predicate = _targets(i)
    _, a, b, c, members = i.operands
    fixed = (e.constant(b), e.constant(c))
    made = e.view(target, "u4"), e.view(predicate, "?")
    sources = e.view(a, "u4"), e.view(b, "i4"), e.view(c, "i4"), e.view(members, "u4")
    e.call(_bind_shfl, e.site, mode, *made, *sources, None if None in fixed else fixed)


def _bind_shfl(
    machine: Machine, site: Site, mode: str, target: np.ndarray | None, predicate: np.ndarray | None,
    a: np.ndarray, b: np.ndarray, c: np.ndarray, members: np.ndarray, fixed: tuple[int, int] | None,
) -> Callable:  # fmt: skip
    lane = np.tile(np.arange(32), machine.warps)
    first = np.repeat(np.arange(machine.warps) * 32, 32)
    synchronise = bind_warp_barrier(machine, site, members)
    if fixed is not None:
        source, valid = shuffle_source(mode, lane, *fixed)
        fixed_index = first + source

    def run(mask: np.ndarray | None) -> None:
        synchronise(mask)
        if fixed is not None:
            index, ok = fixed_index, valid
        else:
            source, ok = shuffle_source(mode, lane, b.astype(np.int64), c.astype(np.int64))
            index = first + source
        value = a.take(index, out=machine.scratch("u4", 1), mode="clip")
        if target is not None:
            merge(target, value, mask)
        if predicate is not None:
            merge(predicate, ok, mask)

    return run


def _participants(machine: Machine, mask: np.ndarray | None, members: np.ndarray | None = None) -> np.ndarray:
    """bool (warps, 32): lanes that execute and are named by their own member mask."""
    lane = np.arange(32, dtype=np.uint32)
    taking = np.ones((machine.warps, 32), bool) if mask is None else mask.reshape(-1, 32).copy()
    if members is not None:
        taking &= (members.reshape(-1, 32) >> lane & 1).astype(bool)
    return taking


def _ballot(flags: np.ndarray) -> np.ndarray:
    """bool (warps, 32) -> u4 (warps, 1)."""
    return np.packbits(flags, axis=1, bitorder="little").view("<u4")


def _broadcast(target: np.ndarray, per_warp: np.ndarray, mask: np.ndarray | None) -> None:
    """Write one value per warp, (warps, 1), to all its active lanes."""
    value = np.broadcast_to(per_warp, (per_warp.shape[0], 32)).reshape(-1)
    merge(target, value, mask)


@instruction("vote")
def emit_vote(e: Emitter, i: Instruction) -> None:
    mode = i.first_of(("all", "any", "uni", "ballot"))
    if mode is None or not i.has("sync"):
        raise e.error("unknown vote")
    target, source, members = i.operands
    made, flag = e.view(target, "u4" if mode == "ballot" else "?"), e.view(source, "?")
    negated = bool(getattr(source, "negated", False))
    e.call(_bind_vote, e.site, mode, made, flag, negated, e.view(members, "u4"))


def _bind_vote(
    machine: Machine, site: Site, mode: str, target: np.ndarray, source: np.ndarray, negated: bool,
    members: np.ndarray,
) -> Callable:  # fmt: skip
    synchronise = bind_warp_barrier(machine, site, members)

    def run(mask: np.ndarray | None) -> None:
        synchronise(mask)
        taking = _participants(machine, mask, members)
        flags = (source ^ negated).reshape(-1, 32)
        true, false = flags & taking, ~flags & taking
        if mode == "ballot":
            _broadcast(target, _ballot(true), mask)
            return
        any_true, any_false = true.any(axis=1, keepdims=True), false.any(axis=1, keepdims=True)
        _broadcast(target, {"all": ~any_false, "any": any_true, "uni": ~(any_true & any_false)}[mode], mask)

    return run


@instruction("activemask")
def emit_activemask(e: Emitter, i: Instruction) -> None:
    e.call(_bind_activemask, e.view(i.operands[0], "u4"))


def _bind_activemask(machine: Machine, target: np.ndarray) -> Callable:
    return lambda mask: _broadcast(target, _ballot(_participants(machine, mask)), mask)


@instruction("elect")
def emit_elect(e: Emitter, i: Instruction) -> None:
    """elect.sync d|p, membermask: the lowest participating lane is elected."""
    target, predicate = _targets(i)
    e.call(_bind_elect, e.view(target, "u4"), e.view(predicate, "?"), e.view(i.operands[1], "u4"))


def _bind_elect(
    machine: Machine, target: np.ndarray | None, predicate: np.ndarray | None, members: np.ndarray
) -> Callable:
    lane = np.arange(32)

    def run(mask: np.ndarray | None) -> None:
        leader = _participants(machine, mask, members).argmax(axis=1)[:, None]
        if target is not None:
            _broadcast(target, leader.astype(np.uint32), mask)
        if predicate is not None:
            merge(predicate, (lane == leader).reshape(-1), mask)

    return run


@instruction("match")
def emit_match(e: Emitter, i: Instruction) -> None:
    """match.any / match.all over b32 or b64."""
    mode = i.first_of(("any", "all"))
    if mode is None or not i.has("sync"):
        raise e.error("unknown match")
    target, predicate = _targets(i)
    sources = e.view(i.operands[1], unsigned(i.type)), e.view(i.operands[2], "u4")
    e.call(_bind_match, mode, e.view(target, "u4"), e.view(predicate, "?"), *sources)


def _bind_match(
    machine: Machine, mode: str, target: np.ndarray | None, predicate: np.ndarray | None,
    source: np.ndarray, members: np.ndarray,
) -> Callable:  # fmt: skip
    bit = np.uint32(1) << np.arange(32, dtype=np.uint32)

    def run(mask: np.ndarray | None) -> None:
        taking = _participants(machine, mask, members)
        values = source.reshape(-1, 32)
        same = (values[:, :, None] == values[:, None, :]) & taking[:, None, :]
        found = (same * bit).sum(axis=2, dtype=np.uint32)
        if mode == "any":
            merge(target, found.reshape(-1), mask)
            return
        everyone = (taking * bit).sum(axis=1, dtype=np.uint32, keepdims=True)
        agreed = ((found == everyone) | ~taking).all(axis=1, keepdims=True)
        if target is not None:
            _broadcast(target, np.where(agreed, everyone, np.uint32(0)), mask)
        if predicate is not None:
            _broadcast(predicate, agreed, mask)

    return run


@instruction("redux")
def emit_redux(e: Emitter, i: Instruction) -> None:
    """redux.sync.op.type: u32, s32, b32, and f32 min/max (with .abs and .NaN)."""
    operation = i.first_of(UFUNCS)
    if operation is None or not i.has("sync"):
        raise e.error("unknown reduction")
    dtype = dtype_of(i.type)
    views = e.view(i.operands[0], dtype), e.view(i.operands[1], dtype), e.view(i.operands[2], "u4")
    e.call(_bind_redux, e.site, operation, i.has("abs"), i.has("NaN"), *views)


def _bind_redux(
    machine: Machine, site: Site, operation: str, absolute: bool, nan: bool, target: np.ndarray,
    source: np.ndarray, members: np.ndarray,
) -> Callable:  # fmt: skip
    dtype, ufunc = source.dtype, UFUNCS[operation]
    if dtype.kind == "f" and not nan:
        ufunc = np.fmin if operation == "min" else np.fmax
    neutral = _neutral(operation, dtype)
    synchronise = bind_warp_barrier(machine, site, members)

    def run(mask: np.ndarray | None) -> None:
        synchronise(mask)
        values = np.abs(source) if absolute else source
        taking = _participants(machine, mask, members)
        chosen = np.where(taking, values.reshape(-1, 32), neutral)
        _broadcast(target, ufunc.reduce(chosen, axis=1, keepdims=True, dtype=dtype), mask)

    return run


def _neutral(operation: str, dtype: np.dtype) -> np.generic:
    """The value that changes nothing."""
    if dtype.kind == "f":
        return dtype.type(np.inf if operation == "min" else -np.inf)
    limits = np.iinfo(dtype)
    ones = np.array(-1, np.int64).astype(dtype)[()]
    return dtype.type({"min": limits.max, "max": limits.min, "and": ones}.get(operation, 0))


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


_ALLOWED = range(24, 257, 8)
"""Registers of a thread (PTX ISA, "setmaxnreg")."""
_UNIT = 8
"""Registers of a thread are dealt out in these."""


class RegisterPool:
    """Registers of each warp's threads, and what their CTAs have left (counted per thread of a warp).

    At launch each thread has what ``.maxnreg`` says, and the pool is empty. ``dec`` gives back at once;
    ``inc`` waits until the pool has what it wants: sums that exceed what was launched wait for ever, as on
    hardware, and are a deadlock here. Without ``.maxnreg`` the instruction "may have no effect" (PTX ISA,
    "setmaxnreg"), and has none.
    """

    def __init__(self, machine: Machine):
        self.machine = machine
        (launched,) = machine.program.entry.directives.get("maxnreg", (0,))
        self.launched = -(-launched // _UNIT) * _UNIT
        self.warps = machine.threads // WARP_SIZE
        self.owned = np.zeros((machine.ctas, self.warps), np.int64)
        self.free = np.zeros(machine.ctas, np.int64)

    def reset(self) -> None:
        self.owned.fill(self.launched)
        self.free.fill(0)

    def give_back(self, warps: np.ndarray, count: int) -> None:
        """``warps`` have ``count`` from now on."""
        np.add.at(self.free, warps // self.warps, self.owned.flat[warps] - count)
        self.owned.flat[warps] = count

    def take(self, warps: np.ndarray, count: int) -> np.ndarray:
        """``warps`` have ``count`` from now on, but for those that are returned: they must wait."""
        waiting = []
        for warp in warps:
            cta, missing = warp // self.warps, count - self.owned.flat[warp]
            if missing > self.free[cta]:
                waiting.append(warp)
                continue
            self.free[cta] -= missing
            self.owned.flat[warp] = count
        return np.array(waiting, np.int64)


@instruction("setmaxnreg", role="blocking", defines=0)
def emit_setmaxnreg(e: Emitter, i: Instruction) -> None:
    """setmaxnreg.action.sync.aligned.u32 count, action: inc or dec"""
    count = e.constant(i.operands[0]) if len(i.operands) == 1 else None
    if count not in _ALLOWED or i.has("inc") == i.has("dec") or not i.has("sync"):
        raise e.error(
            f"'setmaxnreg' wants inc or dec, and a multiple of 8 from {_ALLOWED[0]} to {_ALLOWED[-1]}"
        )
    e.block_on(_bind, e.site, i.has("inc"), count)


def _bind(machine: Machine, site: Site, takes: bool, count: int) -> Callable:
    pool = machine.family_state(RegisterPool)
    every = np.arange(machine.lanes // WARP_SIZE)

    def run(mask: np.ndarray | None) -> np.ndarray | None:
        if not pool.launched:
            return None
        warps = every if mask is None else np.flatnonzero(mask.reshape(-1, WARP_SIZE).any(axis=1))
        had = pool.owned.flat[warps]
        wrong = had > count if takes else had < count
        if wrong.any():
            way = "up" if takes else "down"
            text = f"threads that have {had[wrong][0]} registers cannot go {way} to {count}"
            machine.report("register", text, site, warps[wrong] * WARP_SIZE)
            warps = warps[~wrong]
        if not takes:
            pool.give_back(warps, count)
            return None
        waiting = pool.take(warps, count)
        if not waiting.size:
            return None
        stay = np.zeros(machine.lanes, bool)
        stay.reshape(-1, WARP_SIZE)[waiting] = True
        return stay

    return run
