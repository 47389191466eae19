"""Runs one batch: a scalar program counter while all lanes agree, "lowest program counter first" when they do
not.

Blocks are numbered so that the lowest-first rule makes lanes meet again (:mod:`program`). A lane that cannot
go on has a constant added to its program counter, which takes it out of the minimum: ``WAITING`` (an event),
``BARRIER``, or ``FROZEN`` (it has been polling memory while others could run). When nothing is left to run,
in this order: barriers are looked at again, frozen lanes thaw, late asynchronous work lands, waiting lanes
try again; if none of that helps, the batch is deadlocked.

The run of a batch is a generator: it yields when it has polled memory for long, so that CTAs of other
batches, which may be the ones it waits for, get their turn.

*Launches that do not end.* There are limits of steps and seconds, and loops that repeat themselves are found.
A batch looks every few thousand basic blocks (:data:`_SLICE`), so that a launch that ends pays
nothing. After :data:`_PATIENCE` looks the registers, shared and local memory are compared with what they were
at an earlier look (Brent's cycle detection): when all are the same, and no global memory was changed in
between, the batch can only go on repeating itself.

Machines wait in a pool for their next launch: a device's register files, within a budget of bytes.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from hashlib import blake2b

import attrs
import numpy as np

from ptxforge.emulator.barriers import Barriers
from ptxforge.emulator.findings import Site
from ptxforge.emulator.memory import GlobalMemory, address_of
from ptxforge.emulator.program import Program
from ptxforge.emulator.state import BARRIER, DIVERGED, EXIT, FROZEN, WAITING, Machine
from ptxforge.emulator.translate import Code, translate
from ptxforge.support.errors import LaunchInterrupt

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


_SLICE = 2048
"""Blocks executed, or polls made, between two looks at whether to yield."""

_SPINS = 16
"""Executions of polling blocks before the lanes that poll are frozen for the others."""

_THAW = 1024
"""Steps for which frozen lanes stay frozen at most."""


class Translation:
    """All block codes of one program, shared by its machines. Masked variants are made on demand."""

    def __init__(self, program: Program):
        self.program = program
        self.full = [translate(program, block, False) for block in program.blocks]
        self.masked: list[Code | None] = [None] * len(program.blocks)
        for block in program.unreachable:
            translate(program, block, False)  # raises for what is not known

    def masked_code(self, index: int) -> Code:
        found = self.masked[index]
        if found is None:
            found = self.masked[index] = translate(self.program, self.program.blocks[index], True)
        return found


class Scheduler:
    """Executes a :class:`Machine` with a :class:`Translation`."""

    def __init__(self, machine: Machine, translation: Translation):
        self.machine, self.translation = machine, translation
        count = len(translation.full)
        self.full = [self._stub(index, False) for index in range(count)]
        self.masked = [self._stub(index, True) for index in range(count)]
        self.polls = [block.polls for block in translation.program.blocks]
        self.barriers = machine.family_state(Barriers)
        self.counter = None
        self._steps = self._spins = self._thaw_at = self._looked_at = 0
        self._frozen = False
        self.watchdog = Watchdog(machine, Limits(), 0.0)

    def _stub(self, index: int, masked: bool) -> Callable:
        """Compiles on the first call, then takes its own place."""

        def first(*mask: np.ndarray) -> int:
            code = self.translation.masked_code(index) if masked else self.translation.full[index]
            function = code.bind(self.machine)
            if self.counter is not None:
                function = self._counted(index, function)
            (self.masked if masked else self.full)[index] = function
            return function(*mask)

        return first

    def _counted(self, index: int, function: Callable) -> Callable:
        def run(*mask: np.ndarray) -> int:
            self.counter.count(index, self.machine, mask[0] if mask else None)
            return function(*mask)

        return run

    def run(self) -> Iterator[None]:
        """Run the batch from its first block to the end of every lane. An interrupt says where it came."""
        self._steps = self._spins = self._looked_at = 0
        self._frozen = False
        self.machine.polls, self.machine.progressed = 0, True
        index = 0 if self.machine.padding is None else DIVERGED
        try:
            while index != EXIT:
                if index >= 0:
                    index = yield from self._together(index)
                else:
                    index = yield from self._diverged()
        except KeyboardInterrupt:
            raise LaunchInterrupt(f"in {self._place()}") from None

    def _together(self, index: int) -> Iterator[None]:
        """While all lanes are at one block; returns what the last one returned."""
        machine, full = self.machine, self.full
        budget = _SLICE
        try:
            while index >= 0:
                if index == EXIT:
                    return EXIT
                index = full[index]()
                budget -= 1
                if not budget:
                    budget = _SLICE
                    if self._should_stop(_SLICE, index):
                        return EXIT
                    if machine.polls > _SLICE:
                        machine.polls = 0
                        self.watchdog.forget()
                        yield
        except KeyboardInterrupt:
            machine.goto(None, index)  # for `_place`
            raise
        return index

    def _diverged(self) -> Iterator[None]:
        """Until all lanes are at one block; returns its number."""
        machine = self.machine
        pcs, masked, polls = machine.pc, self.masked, self.polls
        mask = np.empty(machine.lanes, bool)
        while True:
            current = int(pcs.min())
            if current >= WAITING:
                if current == EXIT:
                    return EXIT
                if not self._wake():
                    self._report_deadlock()
                    return EXIT
                continue
            np.equal(pcs, current, out=mask)
            if mask.all():
                return current
            next_index = masked[current](mask)
            if next_index != DIVERGED:
                np.copyto(pcs, next_index, where=mask)
            self._steps += 1
            if self._frozen and self._steps >= self._thaw_at:
                self._thaw()
            if self._steps - self._looked_at >= _SLICE:
                self._looked_at = self._steps
                if self._should_stop(_SLICE, DIVERGED):
                    return EXIT
            if polls[current]:
                self._spins += 1
                if self._spins >= _SPINS:
                    self._freeze(mask)
                if machine.polls > _SLICE:
                    machine.polls = 0
                    self.watchdog.forget()
                    yield

    # ---- launches that do not end --------------------------------------------------------------------------
    def _should_stop(self, steps: int, at: int) -> bool:
        """Ask the watchdog; what it complains about is reported for the threads that run."""
        if at == EXIT:
            return False
        complaint = self.watchdog.complaint(steps, at)
        if complaint is None:
            return False
        machine = self.machine
        if at >= 0:
            machine.goto(None, at)
            if machine.padding is not None:
                machine.pc[machine.padding] = EXIT
        kind, text = complaint
        current = int(machine.pc.min())
        site = self._site_of_block(current & (WAITING - 1))
        machine.report(kind, text, site, np.flatnonzero(machine.pc == current))
        machine.pc.fill(EXIT)
        return True

    def _place(self) -> str:
        """Words for where the batch is: kernel, source line, the first program and the last."""
        machine = self.machine
        current = min(int(machine.pc.min()) & (WAITING - 1), len(self.full) - 1)
        site = self._site_of_block(current)
        where = site.source or f"PTX line {site.line}"
        first, last = machine.cta_index(0), machine.cta_index(machine.ctas - 1)
        programs = f"program {first}" if first == last else f"programs {first} to {last}"
        return f"kernel '{self.translation.program.name}' at {where}, {programs}"

    # ---- fairness ------------------------------------------------------------------------------------------
    def _freeze(self, mask: np.ndarray) -> None:
        """Take the polling lanes out of the race while others can run."""
        self._spins = 0
        pcs = self.machine.pc
        runnable = pcs < WAITING
        pollers = runnable & mask
        if np.count_nonzero(pollers) == np.count_nonzero(runnable):
            if self._frozen:
                self._thaw()
            return
        np.add(pcs, FROZEN, out=pcs, where=pollers)
        self._frozen = True
        self._thaw_at = self._steps + _THAW

    def _thaw(self) -> None:
        pcs = self.machine.pc
        np.subtract(pcs, FROZEN, out=pcs, where=(pcs >= FROZEN) & (pcs < EXIT))
        self._frozen = False

    def _wake(self) -> bool:
        """Nothing can run: find something. False when the batch is deadlocked."""
        machine = self.machine
        if self.barriers.open_full():
            return True
        if self._frozen:
            self._thaw()
            return True
        landed = [hook() for hook in machine.idle_hooks]
        if not any(landed) and not machine.progressed:
            return False
        machine.progressed = False
        pcs = machine.pc
        waiting = (pcs >= WAITING) & (pcs < BARRIER)
        if not waiting.any():
            return False
        np.subtract(pcs, WAITING, out=pcs, where=waiting)
        return True

    # ---- deadlock ------------------------------------------------------------------------------------------
    def _report_deadlock(self) -> None:
        """One finding per place where threads wait."""
        machine = self.machine
        pcs = machine.pc
        for value in np.unique(pcs[pcs != EXIT]):
            lanes = np.flatnonzero(pcs == value)
            self._report_group(int(value), lanes)
        pcs.fill(EXIT)

    def _report_group(self, value: int, lanes: np.ndarray) -> None:
        machine = self.machine
        ctas = np.unique(machine.cta_of_lane[lanes])
        where = f"{lanes.size} threads of {ctas.size} CTAs"
        if value & BARRIER:
            site = self.barriers.sites[int(self.barriers.site_line[lanes[0]])]
            number = int(self.barriers.waiting[lanes[0]])
            arrived = int(self.barriers.arrived[ctas[0], number])
            text = f"{where} wait at barrier {number}, which {arrived} threads of the first CTA have reached"
        else:
            site = self._site_of_block(value & (WAITING - 1))
            text = f"{where} wait here for something that never happens"
        machine.report("deadlock", text, site, lanes)

    def _site_of_block(self, index: int) -> Site:
        program = self.translation.program
        items = program.blocks[index].instructions
        if not items:
            return Site(program.entry.line, None, program.name)
        item = next((item for item in items if item.source is not None), items[0])
        return Site(item.line, item.source, program.module.line_text(item.line))

    def report_spinning(self) -> None:
        """The batch polls memory that nobody will change any more."""
        self._thaw()
        self._report_deadlock()


BUDGET = 256 << 20
"""Bytes of idle machines that a device keeps; the ones that were used longest ago go first."""


class MachinePool:
    """Idle machines by (kernel, shape of the launch, number of CTAs, how it is watched)."""

    def __init__(self, memory: GlobalMemory):
        self.memory = memory
        self._idle: OrderedDict[tuple, list[Scheduler]] = OrderedDict()
        self._nbytes = 0

    def take(self, key: tuple) -> Scheduler | None:
        """An idle machine of this kind, which then belongs to the caller."""
        found = self._idle.get(key)
        if not found:
            return None
        scheduler = found.pop()
        self._nbytes -= scheduler.machine.nbytes
        if not found:
            del self._idle[key]
        return scheduler

    def give(self, key: tuple, scheduler: Scheduler) -> None:
        """Put a machine back; the oldest ones are dropped when there are too many."""
        self._idle.setdefault(key, []).append(scheduler)
        self._idle.move_to_end(key)
        self._nbytes += scheduler.machine.nbytes
        while self._nbytes > BUDGET and len(self._idle) > 1:
            _, dropped = self._idle.popitem(last=False)
            self._drop(dropped)

    def forget(self, kernel: object) -> None:
        """Drop the machines of one kernel."""
        for key in [key for key in self._idle if key[0] is kernel]:
            self._drop(self._idle.pop(key))

    def _drop(self, schedulers: list[Scheduler]) -> None:
        for scheduler in schedulers:
            self._nbytes -= scheduler.machine.nbytes
            self.memory.unregister(address_of(scheduler.machine.params))
