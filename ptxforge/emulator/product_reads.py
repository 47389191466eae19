"""What products by wgmma have read: nobody may write there who does not know that they have finished.

While a product is under way, `AsyncChecker.flight` guards its operands. Behind a wait for it, one thing is
left to see: whether who writes there next has heard of the wait of *any* warp of the warpgroup, through a
barrier or an mbarrier. (In other warpgroups and CTAs, that is; the warpgroup itself has waited.)
"""

from __future__ import annotations

import numpy as np

from ptxforge.emulator.checks import Checker
from ptxforge.emulator.findings import Site
from ptxforge.emulator.memory import ORIGIN, address_of
from ptxforge.emulator.state import Machine
from ptxforge.emulator.wgmma import THREADS

_UNIT, _WARPS = 16, THREADS // 32


class ProductReads:
    """Per unit of 16 bytes of shared memory and warpgroup of its CTA: when that last finished reading it."""

    def __init__(self, machine: Machine, races: Checker):
        self.machine, self.races = machine, races
        self.origin = address_of(machine.shared) - ORIGIN
        groups = machine.warps_per_cta // _WARPS if machine.warps_per_cluster > _WARPS else 0
        self.ended = np.zeros((groups, machine.shared.size // _UNIT if groups else 0), np.int32)
        races.forget_hooks.append(self.start)

    def start(self) -> None:
        """A batch begins, or ticks start again: everything so far counts as ordered."""
        self.ended.fill(0)

    def landed(self, site: Site, warpgroups: np.ndarray, granules: np.ndarray) -> None:
        """Products of warpgroups of the machine have finished; ``granules`` (of 4 bytes) are a row for
        each."""
        if not self.ended.size:
            return
        tick = self.races.tick(site)
        for group in range(len(self.ended)):
            rows = granules[warpgroups % len(self.ended) == group]
            self.ended[group, rows.reshape(-1) >> 2] = tick

    def written(self, site: Site, lanes: np.ndarray | None, indices: np.ndarray, nbytes: int) -> None:
        """Lanes write units of ``nbytes`` at host indices now."""
        if not self.ended.size:
            return
        lanes = self.machine.lanes_in(lanes)
        for offset in range(0, max(nbytes, 1), _UNIT):
            units = indices - self.origin + offset >> 4
            for group, ended in enumerate(self.ended):
                ticks = ended[units]
                if int(ticks.max(initial=0)) > self.races.floor:
                    self._check(site, lanes, units, ticks, group)

    def _check(
        self, site: Site, lanes: np.ndarray, units: np.ndarray, ticks: np.ndarray, group: int
    ) -> None:
        machine = self.machine
        rank = units * _UNIT // machine.shared_stride % machine.cluster_size
        first = rank * machine.warps_per_cta + group * _WARPS
        clock = self.races.seen[machine.cluster_of_lane[lanes], self.races.warp[lanes]]
        known = np.take_along_axis(clock, first[:, None] + np.arange(_WARPS), axis=1).max(axis=1)
        bad = (ticks > known) & (self.races.warp[lanes] // _WARPS != first // _WARPS)
        if bad.any():
            other = self.races.sites[int(ticks[bad][0])]
            text = f"shared write of what is read by a wgmma at {other}, with nothing to order them"
            machine.report("race", text, site, lanes[bad])
