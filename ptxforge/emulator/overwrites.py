"""Stores to what others have written: a race only if they change it.

Threads that all write one value may do so in any order, and programs that set a flag do. So the conflict of a
store with an earlier one waits until the store is done, and is a finding where memory is another afterwards.
"""

from __future__ import annotations

import numpy as np

from ptxforge.emulator.memory import ORIGIN, TABLES


class Overwrites:
    """Conflicts of the store that is under way."""

    def __init__(self) -> None:
        self._waiting: list[tuple[np.ndarray, np.ndarray, tuple]] = []
        """Where, what is there before the store, and the finding."""

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, indices: np.ndarray, nbytes: int, finding: tuple) -> None:
        """A conflict at places ``indices``. ``finding`` has what :meth:`Findings.add` takes, but for the
        addresses; with a lane for each place."""
        self._waiting.append((indices, _bytes_at(indices, nbytes), finding))

    def tell(self, after_store: bool = False) -> None:
        """Report what waits; ``after_store`` only where memory has changed."""
        for indices, before, (machine, kind, message, site, lanes, other) in self._waiting:
            changed = np.ones(len(lanes), bool)
            if after_store:
                changed = (_bytes_at(indices, before.shape[1]) != before).any(axis=1)
            machine.findings.add(
                machine, kind, message, site, lanes[changed], indices[changed] + ORIGIN, other
            )
        self._waiting.clear()


def _bytes_at(indices: np.ndarray, nbytes: int) -> np.ndarray:
    """The bytes ``(accesses, nbytes)`` in host memory."""
    return TABLES[1][indices[:, None] + np.arange(nbytes)]
