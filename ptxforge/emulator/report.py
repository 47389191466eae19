"""Reports: a launch's counters as a readable table and as plain data."""

from __future__ import annotations

from dataclasses import asdict

from ptxforge.emulator.counters import Counters, LineCounts, Occupancy, occupancy

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
        threads = self.block[0] * self.block[1] * self.block[2]
        return occupancy(threads, self.registers if registers is None else registers, self.shared_bytes)

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
            "occupancy": asdict(estimate),
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
        limit = min(estimate.limits, key=estimate.limits.get)
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
                f"occupancy: {estimate.ctas} CTAs, {estimate.warps} warps per multiprocessor "
                f"({100 * estimate.fraction:.0f} %), limited by {limit}",
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
