"""mbarriers: phases that complete when enough threads have arrived and all announced bytes have come.

An mbarrier is eight bytes of shared memory whose content PTX leaves opaque; here its state stands in arrays
indexed by the 8-byte slot. `state` tokens hold the phase and, in 20 bits below it, the pending count. A
`try_wait` that would fail makes its lanes wait; work that announces itself on the mbarrier
(`MBarriers.sources`) lands only then. When nothing else can run, waiting `try_wait`s time out once and give
false, as hardware's do; a second time without progress is a deadlock.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ptxforge.emulator.access import ATOMIC, WRITE, Locator
from ptxforge.emulator.findings import Site
from ptxforge.emulator.memory import ORIGIN, address_of
from ptxforge.emulator.parser import Immediate, Instruction, Memory, Register, Sink
from ptxforge.emulator.registry import instruction
from ptxforge.emulator.state import Machine
from ptxforge.emulator.translate import Emitter

_COUNT_BITS = 20
MAX_COUNT = (1 << _COUNT_BITS) - 1


class MBarriers:
    """All mbarriers of one machine's shared memory."""

    def __init__(self, machine: Machine):
        self.machine = machine
        slots = machine.shared.size // 8
        self.initialised = np.zeros(slots, bool)
        self.expected = np.zeros(slots, np.int64)
        self.pending = np.zeros(slots, np.int64)
        self.transactions = np.zeros(slots, np.int64)
        self.phase = np.zeros(slots, np.int64)
        self.origin = address_of(machine.shared) - ORIGIN
        self.sources: list[Callable[[np.ndarray | None], bool]] = []
        """Called with slots on which lanes wait (None: any); land what belongs to them; return whether
        anything did.
        """
        self.observers: list[object] = []
        """Checkers: `initialised(lanes, slots)`, `used(site, lanes, slots)`, `arrived(lanes, slots)`,
        `waited(lanes, slots)`.
        """
        self._flips = 0
        self._flips_at_timeout = -1
        self.timed_out = False
        self.waiters = np.zeros(machine.lanes, bool)
        """Lanes that wait in a `try_wait`."""
        machine.idle_hooks.append(self._idle)

    def reset(self) -> None:
        for array in (self.initialised, self.expected, self.pending, self.transactions, self.phase):
            array.fill(0)
        self._flips, self._flips_at_timeout = 0, -1
        self.timed_out = False
        self.waiters.fill(False)

    def in_shared(self, site: Site, lanes: np.ndarray, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The lanes whose mbarrier lies in shared memory, and its slot; the others are reported."""
        inside = (slots >= 0) & (slots < self.expected.size)
        if inside.all():
            return lanes, slots
        self.machine.report("out-of-bounds", "the mbarrier is not in shared memory", site, lanes[~inside])
        return lanes[inside], slots[inside]

    def slots(self, indices: np.ndarray) -> np.ndarray:
        """Slots of host addresses (minus ORIGIN)."""
        return (indices - self.origin) >> 3

    def initialise(self, slots: np.ndarray, counts: np.ndarray) -> None:
        self.initialised[slots] = counts > 0
        self.expected[slots] = counts
        self.pending[slots] = counts
        self.transactions[slots] = 0
        self.phase[slots] = 0

    def arrive(self, slots: np.ndarray, counts: np.ndarray | int, site: Site, lanes: np.ndarray) -> None:
        """Subtract arrivals; complete phases."""
        for observer in self.observers:
            observer.arrived(lanes, slots)
        np.subtract.at(self.pending, slots, counts)
        self.settle(slots, site, lanes)

    def expect(self, slots: np.ndarray, nbytes: np.ndarray) -> None:
        np.add.at(self.transactions, slots, nbytes)

    def complete(self, slots: np.ndarray, nbytes: np.ndarray | int) -> None:
        """Announced bytes have come."""
        np.subtract.at(self.transactions, slots, nbytes)
        self._flip(np.unique(slots))

    def settle(self, slots: np.ndarray, site: Site, lanes: np.ndarray) -> None:
        unique = np.unique(slots)
        over = self.pending[unique] < 0
        if over.any():
            first = lanes[np.isin(slots, unique[over])]
            self.machine.report("async", "more arrivals on the mbarrier than its count", site, first)
            self.pending[unique[over]] = 0
        self._flip(unique)

    def _flip(self, slots: np.ndarray) -> None:
        ready = slots[
            (self.pending[slots] == 0) & (self.transactions[slots] == 0) & self.initialised[slots]
        ]
        if not ready.size:
            return
        self.phase[ready] += 1
        self.pending[ready] = self.expected[ready]
        self._flips += ready.size
        self.timed_out = False
        self.machine.progressed = True

    def land(self, slots: np.ndarray | None) -> bool:
        """Let asynchronous work land for lanes that wait on `slots`."""
        return any([source(slots) for source in self.sources])

    def _idle(self) -> bool:
        """Nothing can run. Land whatever is under way; else let the waiting `try_wait`s time out, once per
        progress.
        """
        self.timed_out = False
        if not self.waiters.any():
            return False
        if self.land(None):
            return True
        if self._flips == self._flips_at_timeout:
            return False
        self._flips_at_timeout = self._flips
        self.timed_out = True
        return True


def _require_b64(e: Emitter, i: Instruction) -> None:
    if not i.has("b64"):
        raise e.error("an mbarrier is a .b64 object")


class _Access:
    """The mbarrier operand of one instruction: lanes and their slots."""

    def __init__(self, machine: Machine, locator: Locator, site: Site):
        self.state: MBarriers = machine.family_state(MBarriers)
        self.machine, self.locator, self.site = machine, locator, site
        self.every = np.arange(machine.lanes)

    def __call__(self, mask: np.ndarray | None, initialised: bool = True) -> tuple[np.ndarray, np.ndarray]:
        indices, lanes = self.locator(mask)
        lanes = self.every if lanes is None else lanes
        lanes, slots = self.state.in_shared(self.site, lanes, self.state.slots(indices))
        if initialised and lanes.size:
            good = self.state.initialised[slots]
            if not good.all():
                self.machine.report("async", "the mbarrier is not initialised", self.site, lanes[~good])
                lanes, slots = lanes[good], slots[good]
            for observer in self.state.observers:
                observer.used(self.site, lanes, slots)
        return lanes, slots


@instruction("mbarrier.init", "mbarrier.inval", defines=0)
def emit_init(e: Emitter, i: Instruction) -> None:
    _require_b64(e, i)
    count = i.operands[1] if i.has("init") else Immediate(0)
    e.call(bind_init, e.site, e.locator(i.operands[0], i.space, 8, WRITE), e.view(count, "u4"))


def bind_init(machine: Machine, site: Site, locator: Locator, counts: np.ndarray) -> Callable:
    access = _Access(machine, locator, site)

    def run(mask: np.ndarray | None) -> None:
        lanes, slots = access(mask, initialised=False)
        access.state.initialise(slots, counts[lanes].astype(np.int64))
        for observer in access.state.observers:
            observer.initialised(lanes, slots)

    return run


@instruction("mbarrier.expect_tx", "mbarrier.complete_tx", defines=0)
def emit_transactions(e: Emitter, i: Instruction) -> None:
    _require_b64(e, i)
    locator = e.locator(i.operands[0], i.space, 8, ATOMIC)
    e.call(bind_transactions, e.site, locator, e.view(i.operands[1], "u4"), i.has("expect_tx"))


def bind_transactions(
    machine: Machine, site: Site, locator: Locator, nbytes: np.ndarray, expects: bool
) -> Callable:
    access = _Access(machine, locator, site)
    count = access.state.expect if expects else access.state.complete

    def run(mask: np.ndarray | None) -> None:
        lanes, slots = access(mask)
        count(slots, nbytes[lanes].astype(np.int64))

    return run


def _arrive_defines(i: Instruction) -> int:
    return 0 if isinstance(i.operands[0], Memory) else 1


@instruction("mbarrier.arrive", "mbarrier.arrive_drop", defines=_arrive_defines)
def emit_arrive(e: Emitter, i: Instruction) -> None:
    """mbarrier.arrive{.noComplete,.expect_tx} {state,} [addr]{, count or bytes}."""
    _require_b64(e, i)
    operands = list(i.operands)
    target = Sink() if isinstance(operands[0], Memory) else operands.pop(0)
    amount = operands[1] if len(operands) > 1 else Immediate(1)
    locator = e.locator(operands[0], i.space, 8, ATOMIC)
    views = e.view(target, "u8"), e.view(amount, "u4")
    e.call(bind_arrive, e.site, locator, *views, i.has("expect_tx"), i.has("arrive_drop"))


def bind_arrive(
    machine: Machine, site: Site, locator: Locator, token: np.ndarray | None, amount: np.ndarray,
    expects: bool, drops: bool,
) -> Callable:  # fmt: skip
    access = _Access(machine, locator, site)
    state = access.state

    def run(mask: np.ndarray | None) -> None:
        lanes, slots = access(mask)
        if token is not None:
            token[lanes] = state.phase[slots] << _COUNT_BITS | state.pending[slots]
        counts = amount[lanes].astype(np.int64)
        if expects:
            state.expect(slots, counts)
            counts = np.ones_like(counts)
        if drops:
            np.subtract.at(state.expected, slots, counts)
        state.arrive(slots, counts, site, lanes)

    return run


def _wait_arguments(e: Emitter, i: Instruction) -> tuple:
    """What :func:`bind_wait` takes of an instruction."""
    _require_b64(e, i)
    if len(i.operands) < 3 or not isinstance(i.operands[0], (Register, Sink)):
        raise e.error("a predicate, an address and a phase are expected")
    done, memory, phase = i.operands[:3]
    locator, parity = e.locator(memory, i.space, 8, ATOMIC), i.has("parity")
    return e.site, locator, e.view(done, "?"), e.view(phase, "u4" if parity else "u8"), parity


@instruction("mbarrier.try_wait", role="blocking")
def emit_try_wait(e: Emitter, i: Instruction) -> None:
    e.block_on(bind_wait, *_wait_arguments(e, i), True)


@instruction("mbarrier.test_wait", polls=True)
def emit_test_wait(e: Emitter, i: Instruction) -> None:
    e.call(bind_wait, *_wait_arguments(e, i), False)


def bind_wait(
    machine: Machine, site: Site, locator: Locator, done: np.ndarray | None, phase: np.ndarray, parity: bool,
    blocks: bool,
) -> Callable:  # fmt: skip
    access = _Access(machine, locator, site)
    state = access.state

    def complete(lanes: np.ndarray, slots: np.ndarray) -> np.ndarray:
        if parity:
            return (state.phase[slots] & 1) != (phase[lanes] & 1)
        return state.phase[slots] > phase[lanes].astype(np.int64) >> _COUNT_BITS

    def run(mask: np.ndarray | None) -> np.ndarray | None:
        lanes, slots = access(mask)
        ready = complete(lanes, slots)
        if not ready.all():
            ready = retry(lanes, slots, ready)
        for observer in state.observers:
            observer.waited(lanes[ready], slots[ready])
        if done is not None:
            done[lanes] = ready
        return waiting(lanes, ready) if blocks else None

    def waiting(lanes: np.ndarray, ready: np.ndarray) -> np.ndarray | None:
        """The lanes that stay: not ready, and not released by a time-out."""
        stay = ~ready
        if state.timed_out:
            stay &= ~state.waiters[lanes]
        state.waiters[lanes] = stay
        if not stay.any():
            return None
        mask = np.zeros(machine.lanes, bool)
        mask[lanes[stay]] = True
        return mask

    def retry(lanes: np.ndarray, slots: np.ndarray, ready: np.ndarray) -> np.ndarray:
        landed = state.land(slots[~ready])
        # A failed test says so this time; what it waits for has come by the next one.
        return complete(lanes, slots) if landed and blocks else ready

    return run


@instruction("mbarrier.pending_count")
def emit_pending_count(e: Emitter, i: Instruction) -> None:
    _require_b64(e, i)
    token, mask = e.read(i.operands[1], "u8"), e.constant_object(np.uint64(MAX_COUNT))
    e.line(f"copyto({e.write(i.operands[0], 'u4')}, bitwise_and({token}, {mask}), casting='unsafe')")
