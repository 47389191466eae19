"""CTA barriers: ``bar`` / ``barrier`` with ids, counts and reductions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ptxforge.emulator.findings import Site
from ptxforge.emulator.parser import Immediate, Instruction
from ptxforge.emulator.registry import instruction
from ptxforge.emulator.state import BARRIER, DIVERGED, EXIT, Machine
from ptxforge.emulator.translate import Emitter

BARRIERS = 16
"""Of a CTA; that of its cluster stands in :mod:`cluster`."""


class Barriers:
    """Arrivals per (CTA, barrier id), and which lanes wait where."""

    def __init__(self, machine: Machine):
        self.machine = machine
        self.arrived = np.zeros((machine.ctas, BARRIERS), np.int64)
        self.expected = np.zeros((machine.ctas, BARRIERS), np.int64)
        self.waiting = np.full(machine.lanes, -1, np.int64)
        self.site_line = np.zeros(machine.lanes, np.int64)
        self.reductions: dict[tuple[int, int], list[tuple[np.ndarray, np.ndarray]]] = {}
        self.sites: dict[int, Site] = {}
        self.aligned: dict[int, bool] = {}

    def reset(self) -> None:
        self.arrived.fill(0)
        self.expected.fill(0)
        self.waiting.fill(-1)
        self.reductions.clear()

    def arrive(
        self, lanes: np.ndarray, ids: np.ndarray, counts: np.ndarray | None, site: Site, waits: bool,
        then: int, vote: tuple | None,
    ) -> None:  # fmt: skip
        """``lanes`` arrive (indices); with ``waits`` they stop until their barrier opens, else go on to
        ``then``.
        """
        machine = self.machine
        ctas = machine.cta_of_lane[lanes]
        machine.pc[lanes] = then + BARRIER if waits else then
        if waits:
            self.waiting[lanes] = ids
            self.site_line[lanes] = site.line
        np.add.at(self.arrived, (ctas, ids), 1)
        self.expected[ctas, ids] = 0 if counts is None else counts
        if vote is not None:
            for cta, number in sorted(set(zip(ctas.tolist(), ids.tolist()))):
                arrived = lanes[(ctas == cta) & (ids == number)]
                self.reductions.setdefault((cta, number), []).append((arrived, vote))
        self.open_full()

    def open_full(self) -> bool:
        """Open every barrier that has all its arrivals (lanes that have exited are not waited for)."""
        if not self.arrived.any():
            return False
        live = self._live_threads()
        needed = np.where(self.expected > 0, self.expected, live[:, None])
        ready = (self.arrived > 0) & (self.arrived >= needed)
        for cta, number in zip(*np.nonzero(ready)):
            self._open(int(cta), int(number))
        return bool(ready.any())

    def _live_threads(self) -> np.ndarray:
        machine = self.machine
        return (machine.pc.reshape(machine.ctas, machine.threads) != EXIT).sum(axis=1)

    def _open(self, cta: int, number: int) -> None:
        machine = self.machine
        machine.progressed = True
        self.arrived[cta, number] = 0
        start = cta * machine.threads
        waiting = self.waiting[start : start + machine.threads]
        lanes = start + np.flatnonzero(waiting == number)
        self._check_partial(cta, number, lanes)
        self.waiting[lanes] = -1
        machine.pc[lanes] -= BARRIER
        self._reduce(cta, number)
        if machine.barrier_hooks:
            mask = np.zeros(machine.lanes, bool)
            mask[lanes] = True
            for hook in machine.barrier_hooks:
                hook(np.array([cta]), mask)

    def _reduce(self, cta: int, number: int) -> None:
        votes = self.reductions.pop((cta, number), [])
        if not votes:
            return
        values = np.concatenate([vote[0][lanes] for lanes, vote in votes])
        for lanes, (_, target, kind) in votes:
            if kind == "popc":
                target[lanes] = np.count_nonzero(values)
            else:
                target[lanes] = values.all() if kind == "and" else values.any()

    def _check_partial(self, cta: int, number: int, lanes: np.ndarray) -> None:
        """Report a barrier that a part of a warp or, without a count, a part of the CTA reached."""
        machine = self.machine
        if not machine.watchers or not lanes.size:
            return
        site = self.sites[int(self.site_line[lanes[0]])]
        arrived = np.zeros(machine.threads, bool)
        arrived[lanes - cta * machine.threads] = True
        real = np.arange(machine.threads) < machine.live_threads
        if self.expected[cta, number] == 0 and not arrived[real].all():
            missing = int(np.count_nonzero(~arrived & real))
            text = f"barrier {number} reached by part of the CTA: {missing} threads had exited"
            machine.report("barrier", text, site, lanes[:1])
            return
        per_warp = arrived.reshape(-1, 32).sum(axis=1)
        whole = real.reshape(-1, 32).sum(axis=1)
        lines = self.site_line[lanes]
        if ((per_warp > 0) & (per_warp < whole)).any() or (
            self.aligned.get(site.line) and self._mixed(lanes, lines)
        ):
            machine.report("barrier", f"barrier {number} reached by part of a warp", site, lanes[:1])

    @staticmethod
    def _mixed(lanes: np.ndarray, lines: np.ndarray) -> bool:
        """Whether lanes of one warp wait at different instructions."""
        warp = lanes // 32
        same_warp = warp[1:] == warp[:-1]
        return bool((same_warp & (lines[1:] != lines[:-1])).any())


class _LiveVote:
    """The predicate register of ``bar.red``, read when the barrier opens (its lanes stand still
    until then).
    """

    def __init__(self, source: np.ndarray, negated: bool):
        self.source, self.negated = source, negated

    def __getitem__(self, lanes: np.ndarray) -> np.ndarray:
        return ~self.source[lanes] if self.negated else self.source[lanes]


def _bind_barrier(
    machine: Machine, site: Site, aligned: bool, waits: bool, number: np.ndarray, count: np.ndarray | None,
    fixed_count: int | None, vote: tuple | None, then: int,
) -> Callable:  # fmt: skip
    if vote is not None:
        target, source, negated, kind = vote
        vote = _LiveVote(source, negated), target, kind
    barriers = machine.family_state(Barriers)
    barriers.sites[site.line] = site
    barriers.aligned[site.line] = aligned
    everyone = fixed_count is None and count is None or fixed_count == machine.threads
    plain = waits and vote is None and everyone and machine.padding is None
    every = np.arange(machine.lanes)

    def run(mask: np.ndarray | None) -> int:
        if plain and mask is None and not barriers.arrived.any():
            for hook in machine.barrier_hooks:
                hook(every[: machine.ctas], None)
            return then
        lanes = every if mask is None else np.flatnonzero(mask)
        counts = None if count is None else count[lanes].astype(np.int64)
        barriers.arrive(lanes, number[lanes].astype(np.int64) % BARRIERS, counts, site, waits, then, vote)
        return DIVERGED

    return run


@instruction("bar", "barrier", role="barrier", defines=lambda i: 1 if "red" in i.parts else 0)
def emit_barrier(e: Emitter, i: Instruction) -> None:
    """bar{.cta}.sync/arrive/red a{, b}; barrier is the same without .aligned."""
    operands = list(i.operands)
    if not i.has("sync", "arrive", "red"):
        raise e.error("unknown barrier")
    vote = None
    if i.has("red"):
        kind = i.first_of(("popc", "and", "or"))
        target, *operands, predicate = operands
        negated = bool(getattr(predicate, "negated", False))
        vote = e.view(target, "u4" if kind == "popc" else "?"), e.view(predicate, "?"), negated, kind
    number = operands[0] if operands else Immediate(0)
    count = operands[1] if len(operands) > 1 else None
    aligned = i.parts[0] == "bar" or i.has("aligned")
    fixed = e.constant(count) if count is not None else None
    counted = None if count is None else e.view(count, "u4")
    name = e.bind(
        _bind_barrier, e.site, aligned, not i.has("arrive"), e.view(number, "u4"), counted, fixed, vote,
        e.next_index,
    )  # fmt: skip
    if i.predicate is None:
        e.line(f"return {name}({e.mask})")
        return
    e.line(f"return guarded({name}, {e.mask}, {'m' if e.masked else None}, {e.next_index})")
    e.names["guarded"] = _guarded


def _guarded(machine: Machine) -> Callable:
    def run(barrier: Callable, guard: np.ndarray, mask: np.ndarray | None, then: int) -> int:
        machine.goto(mask, then)
        if guard.any():
            barrier(guard.copy())
        return DIVERGED

    return run


@instruction("bar.warp", defines=0)
def emit_warp_barrier(e: Emitter, i: Instruction) -> None:
    """bar.warp.sync: orders memory among the lanes of a warp; lockstep execution needs nothing, the checkers
    do.
    """
    e.call(bind_warp_barrier, e.site, e.view(i.operands[0], "u4"))


def bind_warp_barrier(machine: Machine, site: Site, members: np.ndarray) -> Callable:
    hooks = [watcher.warp_barrier for watcher in machine.watchers if hasattr(watcher, "warp_barrier")]
    if not hooks:
        return lambda mask: None

    def run(mask: np.ndarray | None) -> None:
        for hook in hooks:
            hook(site, mask, members)

    return run
