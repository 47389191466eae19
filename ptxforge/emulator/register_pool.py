"""``setmaxnreg``: warps give registers back to their CTA's pool, and take more out of it.

At launch each thread has what ``.maxnreg`` says, and the pool is empty. ``dec`` gives back at once; ``inc``
waits until the pool has what it wants: sums that exceed what was launched wait for ever, as on hardware,
and are a deadlock here. Without ``.maxnreg`` the instruction "may have no effect" (PTX ISA, "setmaxnreg"),
and has none.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ptxforge.emulator.findings import Site
from ptxforge.emulator.parser import Instruction
from ptxforge.emulator.registry import instruction
from ptxforge.emulator.state import Machine
from ptxforge.emulator.translate import Emitter
from ptxforge.support.machine import WARP_SIZE

_ALLOWED = range(24, 257, 8)
"""Registers of a thread (PTX ISA, "setmaxnreg")."""
_UNIT = 8
"""Registers of a thread are dealt out in these."""


class RegisterPool:
    """Registers of each warp's threads, and what their CTAs have left (counted per thread of a warp)."""

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
