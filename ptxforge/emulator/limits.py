"""Launches that do not end: limits of steps and seconds, and loops that repeat themselves.

A batch looks here every few thousand basic blocks (:data:`scheduler._SLICE`), so that a launch that ends pays
nothing. After :data:`_PATIENCE` looks the registers, shared and local memory are compared with what they were
at an earlier look (Brent's cycle detection): when all are the same, and no global memory was changed in
between, the batch can only go on repeating itself.
"""

from __future__ import annotations

import time
from hashlib import blake2b

import attrs

from ptxforge.emulator.state import Machine

_PATIENCE = 64
"""Looks before the registers are compared."""


@attrs.frozen(slots=True)
class Limits:
    """What a launch may take: ``steps`` (basic blocks, per batch of CTAs) and ``seconds``; 0 for no limit."""

    steps: int = 0
    seconds: float = 0


class Watchdog:
    """Counts the steps of one batch, and tells when it should not go on."""

    def __init__(self, machine: Machine, limits: Limits, deadline: float):
        self.machine, self.limits, self.deadline = machine, limits, deadline
        self.steps = self._looks = 0
        self._compare_until = _PATIENCE
        self._known = b""
        self.saw_change = False
        """Whether memory was written before the last look."""

    def complaint(self, steps: int, at: int) -> tuple[str, str] | None:
        """After ``steps`` more steps, at block ``at``: the kind and text of what is wrong, if anything."""
        self.steps += steps
        self._looks += 1
        if self.limits.steps and self.steps >= self.limits.steps:
            return "limit", f"stopped after {self.steps} basic blocks"
        if self.deadline and time.monotonic() >= self.deadline:
            return "limit", f"stopped after {self.limits.seconds:g} seconds"
        if self._looks >= _PATIENCE and self._repeats(at):
            return "livelock", "the threads go round in a loop that changes nothing any more"
        return None

    def forget(self) -> None:
        """Other batches run now, and may change memory."""
        self._known = b""

    def _repeats(self, at: int) -> bool:
        """Whether everything is as it was at the look that is remembered."""
        if self.machine.changed:
            self.machine.changed, self.saw_change = False, True
            self._known = b""
        state = self.state(at)
        if state == self._known:
            return True
        if not self._known or self._looks >= self._compare_until:
            self._known, self._compare_until = state, 2 * self._looks
        return False

    def state(self, at: int = 0) -> bytes:
        """A digest of all that only the batch sees, at block ``at``."""
        found = blake2b(str(at).encode(), digest_size=16)
        machine = self.machine
        for values in (machine.pc, *machine.registers(), machine.shared, machine.local):
            found.update(values)
        return found.digest()


def deadline(limits: Limits) -> float:
    """The moment (of the monotonic clock) when a launch that begins now has used up its seconds; 0: never."""
    return time.monotonic() + limits.seconds if limits.seconds else 0.0
