"""Counters: what a launch executed and moved, per instruction, so per source line and in total.

Instructions are counted per warp, as a profiler does: a block's execution counts for every warp that has an
active lane in it. Global accesses are counted in 32-byte sectors per request (one instruction of one warp),
shared accesses in wavefronts: a warp's request of 4, 8 or 16 bytes per lane is served in phases of 32, 16 or
8 lanes, and a phase takes as many wavefronts as the most distinct 4-byte words that fall into one of the 32
banks. Wavefronts beyond one per phase are bank conflicts.

Reports: a launch's counters as a readable table and as plain data.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import attrs
import numpy as np

from ptxforge.emulator.access import Locator
from ptxforge.emulator.async_copy import BulkCopies, BulkWork
from ptxforge.emulator.memory import ORIGIN, address_of
from ptxforge.emulator.parser import Instruction, SourceLine
from ptxforge.emulator.program import Program
from ptxforge.emulator.state import Machine
from ptxforge.support.target import DEFAULT_TARGET, Occupancy, parse_target

SECTOR = 32
BANKS = 32


@dataclass(slots=True)
class LineCounts:
    """What one PTX instruction did in a launch. Requests, sectors and wavefronts count per warp."""

    line: int
    source: SourceLine | None
    text: str
    kind: str
    instructions: int = 0
    thread_instructions: int = 0
    divergent: int = 0
    global_requests: int = 0
    global_sectors: int = 0
    global_bytes: int = 0
    shared_requests: int = 0
    shared_phases: int = 0
    shared_wavefronts: int = 0
    shared_bytes: int = 0

    @property
    def bank_conflicts(self) -> int:
        return self.shared_wavefronts - self.shared_phases

    @property
    def sectors_per_request(self) -> float:
        return self.global_sectors / self.global_requests if self.global_requests else 0.0


_KINDS = (
    ("tensor", ("mma", "wgmma", "wmma")),
    ("atomic", ("atom", "red")),
    ("barrier", ("bar", "barrier", "mbarrier", "fence", "membar")),
    ("asynchronous", ("cp",)),
    ("matrix load", ("ldmatrix", "stmatrix", "movmatrix")),
    ("warp", ("shfl", "vote", "match", "redux", "activemask", "elect")),
    ("conversion", ("cvt", "cvta")),
    ("control", ("bra", "brx", "ret", "exit", "call", "trap")),
    ("select and compare", ("setp", "selp", "set", "slct")),
    ("special function", ("ex2", "lg2", "sin", "cos", "tanh", "rcp", "rsqrt", "sqrt")),
    ("move", ("mov", "prmt")),
)
_KIND_OF = {opcode: kind for kind, opcodes in _KINDS for opcode in opcodes}


def kind_of(i: Instruction) -> str:
    """The class of an instruction, as the report groups them."""
    first = i.parts[0]
    if first in ("ld", "ldu", "st"):
        return f"{i.space} {'store' if first == 'st' else 'load'}"
    if first in _KIND_OF:
        return _KIND_OF[first]
    kind = i.types[-1] if i.types else ""
    for name in ("bf16", "f16", "f32", "f64"):
        if kind.startswith(name):
            return f"{name} arithmetic"
    return "integer"


class Counters:
    """Collects the counts of one launch."""

    def __init__(self, program: Program, block: tuple[int, int, int], shared_bytes: int):
        self.program, self.block, self.shared_bytes = program, block, shared_bytes
        self.lines: dict[int, LineCounts] = {}
        self.blocks = [[self._line(item) for item in block.instructions] for block in program.blocks]
        self.warps = np.zeros(len(program.blocks), np.int64)
        self.threads = np.zeros(len(program.blocks), np.int64)
        self.divergent = np.zeros(len(program.blocks), np.int64)

    def _line(self, item: Instruction) -> LineCounts:
        """Instructions of one PTX line share their counts; inlined copies do too."""
        if item.line not in self.lines:
            self.lines[item.line] = LineCounts(
                item.line, item.source, self.program.module.line_text(item.line), kind_of(item)
            )
        return self.lines[item.line]

    def count(self, index: int, machine: Machine, mask: np.ndarray | None) -> None:
        """Block ``index`` is executed by the lanes in ``mask`` (None: all)."""
        if mask is None:
            self.warps[index] += machine.warps
            self.threads[index] += machine.lanes
            return
        active = np.count_nonzero(mask.reshape(-1, 32), axis=1)
        self.warps[index] += np.count_nonzero(active)
        self.threads[index] += active.sum()
        self.divergent[index] += np.count_nonzero((active > 0) & (active < 32))

    def watcher(self, machine: Machine) -> MemoryCounter:
        return MemoryCounter(self, machine)

    def settle(self) -> dict[int, LineCounts]:
        """All lines, with the blocks' counts added to their instructions."""
        for index, lines in enumerate(self.blocks):
            for line in lines:
                line.instructions += int(self.warps[index])
                line.thread_instructions += int(self.threads[index])
                line.divergent += int(self.divergent[index])
        for counts in (self.warps, self.threads, self.divergent):
            counts.fill(0)
        return self.lines


class MemoryCounter:
    """The watcher that counts sectors and bank conflicts of one machine."""

    def __init__(self, counters: Counters, machine: Machine):
        self.counters, self.machine = counters, machine
        self._shared = address_of(machine.shared) - ORIGIN
        machine.family_state(BulkCopies).observers.append(self)

    def start(self) -> None:
        """A batch begins."""

    def finish(self) -> None:
        """A batch has ended."""

    def join(self, watch: object) -> None:
        """Count for another launch."""
        self.counters = watch.counters

    def watches(self, space: str, kind: str) -> bool:
        return space in ("global", "shared", "generic", "const")

    def access(self, locator: Locator, lanes: np.ndarray | None, indices: np.ndarray) -> None:
        counts = self.counters.lines.get(locator.site.line)
        if counts is None:
            return
        times = 1
        if lanes is None and locator.space != "generic" and self._alike(indices, locator.space == "shared"):
            times = self.machine.ctas
            indices = indices[: self.machine.threads]
        lanes = np.arange(indices.size) if lanes is None else lanes
        space = locator.space
        if space == "generic":
            inside = (indices >= self._shared) & (indices < self._shared + self.machine.shared.nbytes)
            self._count_shared(counts, lanes[inside], indices[inside], locator.nbytes, times)
            self._count_global(counts, lanes[~inside], indices[~inside], locator.nbytes, times)
        elif space == "shared":
            self._count_shared(counts, lanes, indices, locator.nbytes, times)
        else:
            self._count_global(counts, lanes, indices, locator.nbytes, times)

    def _alike(self, indices: np.ndarray, shared: bool) -> bool:
        """Whether every CTA's addresses are the first one's plus a constant: its shared base, or a multiple
        of a sector.
        """
        rows = indices.reshape(self.machine.ctas, -1)
        apart = rows - rows[0]
        if not (apart == apart[:, :1]).all():
            return False
        if shared:
            return bool((apart[:, 0] == np.arange(self.machine.ctas) * self.machine.shared_stride).all())
        return not (apart[:, 0] % SECTOR).any()

    def bulk_issued(self, work: BulkWork, store: bool) -> None:
        """A bulk copy moves whole lines between global and shared memory, without bank conflicts."""
        counts = self.counters.lines.get(work.site.line)
        if counts is None:
            return
        moved = work.units.size * work.unit
        counts.shared_bytes += moved
        if work.remote is None:
            return
        counts.global_requests += len(work.lanes)
        counts.global_sectors += -(-moved // SECTOR)
        counts.global_bytes += moved

    def bulk_landed(self, work: BulkWork, store: bool, chosen: np.ndarray | slice) -> None:
        """Counted when issued."""

    @staticmethod
    def _count_global(
        counts: LineCounts, lanes: np.ndarray, indices: np.ndarray, nbytes: int, times: int
    ) -> None:
        if not lanes.size:
            return
        requests, sectors = global_sectors(lanes, indices, nbytes)
        counts.global_requests += requests * times
        counts.global_sectors += sectors * times
        counts.global_bytes += lanes.size * nbytes * times

    @staticmethod
    def _count_shared(
        counts: LineCounts, lanes: np.ndarray, indices: np.ndarray, nbytes: int, times: int
    ) -> None:
        if not lanes.size:
            return
        requests, phases, wavefronts = shared_wavefronts(lanes, indices, nbytes)
        counts.shared_requests += requests * times
        counts.shared_phases += phases * times
        counts.shared_wavefronts += wavefronts * times
        counts.shared_bytes += lanes.size * nbytes * times


def global_sectors(lanes: np.ndarray, addresses: np.ndarray, nbytes: int) -> tuple[int, int]:
    """(requests, sectors) of one instruction; lanes ascending, addresses aligned to the size of the
    access.
    """
    warps = lanes >> 5
    sectors = addresses // SECTOR
    keys = (warps << 46) | sectors
    if nbytes > SECTOR:
        keys = (keys[:, None] + np.arange(nbytes // SECTOR)).reshape(-1)
    return np.unique(warps).size, np.unique(keys).size


def shared_wavefronts(lanes: np.ndarray, addresses: np.ndarray, nbytes: int) -> tuple[int, int, int]:
    """(requests, phases, wavefronts) of one instruction."""
    per_phase = 32 if nbytes <= 4 else max(32 * 4 // nbytes, 4)
    phases = lanes // per_phase
    words = addresses >> 2
    width = max(nbytes // 4, 1)
    keys = ((phases << 46)[:, None] | (words[:, None] + np.arange(width))).reshape(-1)
    keys = np.unique(keys)
    phase, bank = keys >> 46, keys & (BANKS - 1)
    names, first = np.unique(phase, return_inverse=True)
    per_bank = np.bincount(first * BANKS + bank, minlength=names.size * BANKS).reshape(-1, BANKS)
    return np.unique(lanes >> 5).size, names.size, int(per_bank.max(axis=1).sum())


MULTIPROCESSOR = parse_target(DEFAULT_TARGET)
"""What CTAs run on: of an H200, as the rest of the device."""
_SUMS = (
    "instructions thread_instructions divergent global_requests global_sectors global_bytes "
    "shared_requests shared_phases shared_wavefronts shared_bytes".split()
)


class Report:
    """What one launch did. ``str(report)`` is a table by source line; :meth:`data` is plain data."""

    def __init__(
        self,
        name: str,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        counters: Counters,
        registers: int,
    ):
        self.name, self.grid, self.block = name, grid, block
        self.lines: list[LineCounts] = sorted(counters.settle().values(), key=lambda line: line.line)
        self.shared_bytes = counters.shared_bytes
        self.registers = registers

    @property
    def total(self) -> LineCounts:
        """Sums over all instructions."""
        return self._sum(self.lines, LineCounts(0, None, "total", ""))

    @property
    def by_kind(self) -> dict[str, int]:
        """Warp instructions by class, most first."""
        found: dict[str, int] = {}
        for line in self.lines:
            if line.instructions:
                found[line.kind] = found.get(line.kind, 0) + line.instructions
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    @property
    def by_source(self) -> list[LineCounts]:
        """One row per source line (per PTX line where there is no ``.loc``), in order of the PTX."""
        groups: dict[str, LineCounts] = {}
        for line in self.lines:
            key = str(line.source) if line.source else f"PTX line {line.line}"
            row = groups.setdefault(key, LineCounts(line.line, line.source, key, line.kind))
            self._sum([line], row)
        return [row for row in groups.values() if row.instructions]

    def occupancy(self, registers: int | None = None) -> Occupancy:
        """The occupancy estimate for ``registers`` per thread (default: the function's own estimate)."""
        own = self.registers if registers is None else registers
        return MULTIPROCESSOR.occupancy(prod(self.block), own, self.shared_bytes)

    @staticmethod
    def _sum(lines: list[LineCounts], into: LineCounts) -> LineCounts:
        for line in lines:
            for name in _SUMS:
                setattr(into, name, getattr(into, name) + getattr(line, name))
        return into

    def data(self) -> dict:
        """Everything as dicts, lists, strings and numbers."""
        estimate = self.occupancy()
        return {
            "kernel": self.name,
            "grid": list(self.grid),
            "block": list(self.block),
            "shared_bytes": self.shared_bytes,
            "total": self._row(self.total),
            "by_kind": self.by_kind,
            "by_source": [self._row(row) for row in self.by_source],
            "occupancy": attrs.asdict(estimate),
        }

    @staticmethod
    def _row(line: LineCounts) -> dict:
        row = {name: getattr(line, name) for name in _SUMS}
        return {
            "where": line.text,
            **row,
            "bank_conflicts": line.bank_conflicts,
            "sectors_per_request": line.sectors_per_request,
        }

    def __str__(self) -> str:
        estimate = self.occupancy()
        heads = ("where", "warp instr", "divergent", "sectors/req", "global bytes", "shared req", "conflicts")
        rows = [self._cells(row) for row in self.by_source] + [self._cells(self.total)]
        widths = [max(len(cell) for cell in column) for column in zip(heads, *rows)]
        table = [self._line(heads, widths), "  ".join("-" * width for width in widths)]
        table += [self._line(row, widths) for row in rows]
        kinds = ", ".join(f"{kind} {count}" for kind, count in self.by_kind.items())
        return "\n".join(
            [
                f"{self.name}: grid {self.grid}, block {self.block}, {self.shared_bytes} shared bytes",
                *table,
                f"warp instructions by class: {kinds}",
                f"occupancy: {estimate.blocks} CTAs, {estimate.warps} warps per multiprocessor "
                f"({100 * estimate.warps / estimate.most:.0f} %), limited by {estimate.limiter}",
            ]
        )

    @staticmethod
    def _cells(row: LineCounts) -> tuple[str, ...]:
        sectors = f"{row.sectors_per_request:.1f}" if row.global_requests else ""
        conflicts = str(row.bank_conflicts) if row.shared_requests else ""
        counts = (str(n or "") for n in (row.global_bytes, row.shared_requests))
        return row.text, str(row.instructions), str(row.divergent or ""), sectors, *counts, conflicts

    @staticmethod
    def _line(cells: tuple[str, ...], widths: list[int]) -> str:
        return "  ".join(
            cell.ljust(width) if index == 0 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(cells, widths))
        )
