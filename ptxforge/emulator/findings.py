"""What the emulator has to say about a kernel: findings, deduplicated per instruction."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ptxforge.emulator.parser import SourceLine
from ptxforge.support import markup


@dataclass(frozen=True, slots=True)
class Site:
    """An instruction as findings name it."""

    line: int
    source: SourceLine | None
    text: str

    def __str__(self) -> str:
        where = f"PTX line {self.line}"
        return f"{where} ({self.source})" if self.source else where


@dataclass(slots=True, repr=False)
class Finding:
    """One fault. ``count`` lanes had it at this instruction; ``cta``, ``thread`` and ``address`` are the
    first's.

    ``kind`` is one of :data:`KINDS`. ``other`` is the second instruction of a race, where it is known.
    """

    kind: str
    message: str
    line: int
    source: SourceLine | None
    instruction: str
    cta: tuple[int, int, int]
    thread: tuple[int, int, int]
    address: int | None
    count: int = 1
    other: Site | None = None

    def __repr__(self) -> str:
        where = f" at {self.source}" if self.source else ""
        return f"<{self.kind}{where}: {self.message}>"

    def _repr_html_(self) -> str:
        """For notebooks: the facts beside their names."""
        facts = [
            ("finding", self.kind), ("what", self.message), ("where", self.source), ("CTA", self.cta),
            ("thread", self.thread), ("times", self.count), ("PTX", self.instruction),
        ]  # fmt: skip
        return markup.table((name, value) for name, value in facts if value is not None)

    def __str__(self) -> str:
        where = f"{self.source}: " if self.source else ""
        times = f" ({self.count} times)" if self.count > 1 else ""
        address = f", address 0x{self.address:x}" if self.address is not None else ""
        return (
            f"{where}{self.kind}: {self.message}; CTA {self.cta}, thread {self.thread}{address}; "
            f"PTX line {self.line}: {self.instruction}{times}"
        )


KINDS = tuple(
    "out-of-bounds misaligned race uninitialised barrier global-race async proxy copy-proxy cluster register "
    "deadlock livelock limit trap assert".split()
)
"""What a finding can be; docs/emulator.md says what each means."""

FATAL = ("out-of-bounds", "misaligned", "deadlock", "livelock", "limit", "trap", "assert")
"""Kinds that a GPU answers with an error, and that raise after the launch."""


class Findings:
    """Collects findings, one per (kind, instruction, second instruction)."""

    def __init__(self) -> None:
        self._by_key: dict[tuple, Finding] = {}

    def add(
        self,
        machine: object,
        kind: str,
        message: str,
        site: Site,
        lanes: np.ndarray,
        addresses: np.ndarray | None = None,
        other: Site | None = None,
    ) -> None:
        assert kind in KINDS
        if len(lanes) == 0:
            return
        key = (kind, site.line, other.line if other else None)
        found = self._by_key.get(key)
        if found is not None:
            found.count += len(lanes)
            return
        cta, thread = divmod(int(lanes[0]), machine.threads)
        where = machine.cta_index(cta), machine.thread_index(thread)
        address = None if addresses is None else int(addresses[0])
        self._by_key[key] = Finding(
            kind, message, site.line, site.source, site.text, *where, address, len(lanes), other
        )

    def include(self, others: Findings) -> None:
        """Add what another collection has found."""
        for key, finding in others._by_key.items():
            if key in self._by_key:
                self._by_key[key].count += finding.count
            else:
                self._by_key[key] = finding

    def __iter__(self):
        return iter(self._by_key.values())

    def __len__(self) -> int:
        return len(self._by_key)

    @property
    def fatal(self) -> list[Finding]:
        return [finding for finding in self if finding.kind in FATAL]
