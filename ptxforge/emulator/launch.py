"""Loading and launching: programs cached by PTX text, grids cut into batches, batches run in turn."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ptxforge.emulator import families, parser, program, registry
from ptxforge.emulator.async_checks import AsyncChecker, uses_async
from ptxforge.emulator.checks import Checker, GlobalShadow
from ptxforge.emulator.cluster import ClusterChecker
from ptxforge.emulator.counters import Counters
from ptxforge.emulator.findings import Findings
from ptxforge.emulator.memory import GlobalMemory
from ptxforge.emulator.registry import unknown_modifier
from ptxforge.emulator.scheduler import Limits, MachinePool, Scheduler, Translation, Watchdog
from ptxforge.emulator.state import Machine
from ptxforge.support.errors import DeviceError, EmulatorError

_LANES = 8192
_LANES_OF_LARGE_KERNELS = 4096
_LARGE_KERNEL = 300
"""Lanes per batch: enough to hide numpy's call overhead, few enough for the registers to stay in cache."""

_IDLE_TURNS = 24
"""Turns in which every batch only polls unchanged memory before the launch is called deadlocked."""

assert families


@dataclass(eq=False)
class LoadedText:
    """A parsed module with the translation of each of its entries."""

    module: parser.Module
    translations: dict[str, Translation]


_TEXTS: OrderedDict[str, LoadedText] = OrderedDict()
_MOST_KEPT = 4 << 20
"""Characters of texts that are kept: a translation has about a hundred bytes for each."""


def load_text(text: str) -> LoadedText:
    """Parse and translate PTX; the result is shared by all devices that load the same text.

    Raises :class:`EmulatorError` with the PTX line for anything that the emulator does not know.
    """
    found = _TEXTS.get(text)
    if found is not None:
        _TEXTS.move_to_end(text)
        return found
    module = parser.parse(text)
    _check_functions(module)
    translations = {
        name: Translation(program.build(module, name))
        for name, function in module.functions.items()
        if function.is_entry
    }
    found = _TEXTS[text] = LoadedText(module, translations)
    while len(_TEXTS) > 1 and sum(map(len, _TEXTS)) > _MOST_KEPT:
        _TEXTS.popitem(last=False)
    return found


def _check_functions(module: parser.Module) -> None:
    """Unknown opcodes and modifiers are errors in device functions too, called or not."""
    for function in module.functions.values():
        for item in function.body or ():
            if not isinstance(item, parser.Instruction):
                continue
            if registry.lookup(item.opcode) is None:
                raise EmulatorError(f"PTX line {item.line}: unknown instruction {item.opcode}")
            word = unknown_modifier(item.opcode)
            if word is not None:
                raise EmulatorError(
                    f"PTX line {item.line}: unknown instruction {item.opcode}: "
                    f"{item.parts[0]} has no modifier .{word}"
                )


def place_variables(module: parser.Module, memory: GlobalMemory) -> dict[str, int]:
    """Allocate and fill the module's global and constant variables (those of functions too); name ->
    address.
    """
    variables = {v.name: v for v in module.variables.values() if v.space in ("global", "const", "tex")}
    for function in module.functions.values():
        for variable in function.variables.values():
            if variable.space in ("global", "const"):
                variables.setdefault(variable.name, variable)
                variables.setdefault(f"{function.name}::{variable.name}", variable)
    addresses: dict[int, int] = {}
    symbols = {}
    for name, variable in variables.items():
        if id(variable) not in addresses:
            addresses[id(variable)] = memory.allocate(variable.nbytes)
        symbols[name] = addresses[id(variable)]
    for name, variable in variables.items():
        if variable.initial is not None:
            _initialise(memory, variable, symbols[name], symbols)
    return symbols


def _initialise(
    memory: GlobalMemory, variable: parser.Variable, address: int, symbols: dict[str, int]
) -> None:
    data = bytearray(variable.initial)
    for position, name, offset, size in variable.relocations:
        if name not in symbols:
            raise EmulatorError(f"{variable.name} refers to {name}, which is not a variable in global memory")
        data[position : position + size] = (symbols[name] + offset).to_bytes(8, "little")[:size]
    memory.array_at(address, len(data))[:] = np.frombuffer(bytes(data), np.uint8)


@dataclass(frozen=True)
class Shape:
    """What a machine is built for."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    cluster: tuple[int, int, int] = (1, 1, 1)

    @property
    def cluster_size(self) -> int:
        return self.cluster[0] * self.cluster[1] * self.cluster[2]

    @property
    def ctas(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def threads(self) -> int:
        return self.block[0] * self.block[1] * self.block[2]


class Kernel:
    """One entry on one device: makes machines and runs grids."""

    def __init__(
        self, translation: Translation, memory: GlobalMemory, symbols: dict[str, int], pool: MachinePool
    ):
        self.translation, self.memory, self.symbols, self.pool = translation, memory, symbols, pool
        self.limits, self.deadline = Limits(), 0.0
        self.order = ""

    def batch_size(self, shape: Shape) -> int:
        """CTAs per batch, whole clusters, so that batches are of nearly equal size."""
        registers = len(self.translation.program.registers)
        lanes = _LANES_OF_LARGE_KERNELS if registers > _LARGE_KERNEL else _LANES
        clusters = shape.ctas // shape.cluster_size
        most = max(1, lanes // (-(-shape.threads // 32) * 32 * shape.cluster_size))
        batches = -(-clusters // most)
        return -(-clusters // batches) * shape.cluster_size

    def run(
        self,
        shape: Shape,
        params: bytes,
        findings: Findings,
        observers: Observers,
        first: int = 0,
        last: int | None = None,
    ) -> list[str]:
        """Run CTAs ``first ... last - 1`` of a grid; returns what the kernel printed."""
        last = shape.ctas if last is None else last
        output: list[str] = []
        observers.begin(shape.ctas // shape.cluster_size)
        with np.errstate(all="ignore"):
            waiting: list[_Batch] = []
            for start, count, watch in self._batches(shape, first, last, observers):
                batch = _Batch(self, shape, params, findings, watch, start, count, output)
                if not batch.step():
                    waiting.append(batch)
            self._finish(waiting)
        return output

    def run_part(self, shape: Shape, params: bytes, findings: Findings, first: int, last: int) -> list[str]:
        """Run a part of the grid unwatched."""
        return self.run(shape, params, findings, Observers(), first, last)

    def _batches(
        self, shape: Shape, first: int, last: int, observers: Observers
    ) -> Iterator[tuple[int, int, Watch | None]]:
        """``(first CTA, count, how it is watched)``; with one checked CTA, its cluster stands alone."""
        together = shape.cluster_size
        if self.order:
            ascending = range(first, last, together)
            for cta in ascending if self.order == "ascending" else reversed(ascending):
                yield cta, together, observers.watch(observers.check == "all")
            return
        size = self.batch_size(shape)
        if observers.check == "one" and first == 0 and last > 0:
            yield 0, together, observers.watch(True)
            first = together
        while first < last:
            count = min(size, last - first)
            yield first, count, observers.watch(observers.check == "all")
            first += count

    @staticmethod
    def _finish(waiting: list[_Batch]) -> None:
        """Run the batches that poll memory in turn until all are done or nothing changes any more: all are
        as they were at an earlier turn, or have polled unchanged memory for long."""
        idle, known, known_at = 0, [], 0
        while waiting:
            before = len(waiting)
            changed = False
            for batch in list(waiting):
                watchdog = batch.scheduler.watchdog
                batch.machine.changed = watchdog.saw_change = False
                if batch.step():
                    waiting.remove(batch)
                changed |= batch.machine.changed or watchdog.saw_change
            if changed or len(waiting) < before:
                idle, known = 0, []
                continue
            idle += 1
            states = [batch.scheduler.watchdog.state() for batch in waiting]
            repeats = states == known
            if not known or idle >= 2 * known_at:
                known, known_at = states, idle
            if repeats or idle > _IDLE_TURNS:
                for batch in waiting:
                    batch.give_up()
                return

    def scheduler(self, shape: Shape, count: int, watch: Watch | None) -> Scheduler:
        """A free machine of the right shape, with its scheduler."""
        found = self.pool.take((self, shape, count, watch and watch.kind))
        if found is not None:
            if watch is not None:
                watch.join(found.machine)
            return found
        machine = Machine(
            self.translation.program,
            self.memory,
            self.symbols,
            count,
            shape.grid,
            shape.block,
            shape.shared_bytes,
            shape.cluster,
        )
        self.memory.register(machine.params)
        if watch is not None:
            watch.attach(machine)
        return Scheduler(machine, self.translation)

    def release(self, shape: Shape, count: int, watch: Watch | None, scheduler: Scheduler) -> None:
        """Keep a machine for the next launch of the same shape."""
        self.pool.give((self, shape, count, watch and watch.kind), scheduler)


class Observers:
    """What watches a launch: checkers on ``one`` or ``all`` CTAs, counters on all."""

    def __init__(self, check: str = "off", counters: Counters | None = None):
        self.check, self.counters = check, counters
        self.world: GlobalShadow | None = None

    def begin(self, clusters: int) -> None:
        """A launch begins. Races between clusters can be seen when all are checked."""
        if self.check != "off":
            self.world = GlobalShadow(clusters)

    def watch(self, checked: bool) -> Watch | None:
        """How a batch is watched; None when it is not."""
        if not checked and self.counters is None:
            return None
        return Watch(checked, self.counters, self.world if checked else None)


@dataclass(frozen=True)
class Watch:
    """How one batch is watched."""

    checked: bool
    counters: Counters | None
    world: GlobalShadow | None

    @property
    def kind(self) -> tuple:
        """Machines made for the same kind can be used again."""
        return self.checked, self.counters is not None, self.world is not None

    def attach(self, machine: Machine) -> None:
        """Add the watchers to a new machine."""
        if self.checked:
            races = Checker(machine, self.world)
            machine.watchers.append(races)
            if machine.cluster_size > 1:
                machine.watchers.append(ClusterChecker(machine, races))
            if uses_async(machine.program):
                machine.watchers.append(AsyncChecker(machine, races))
        if self.counters is not None:
            machine.watchers.append(self.counters.watcher(machine))

    def join(self, machine: Machine) -> None:
        """Take over a machine that another launch has used."""
        for watcher in machine.watchers:
            if hasattr(watcher, "join"):
                watcher.join(self)


class _Batch:
    """One batch under way."""

    def __init__(
        self,
        kernel: Kernel,
        shape: Shape,
        params: bytes,
        findings: Findings,
        watch: Watch | None,
        start: int,
        count: int,
        output: list[str],
    ):
        self.kernel, self.shape, self.count, self.watch = kernel, shape, count, watch
        self.scheduler = kernel.scheduler(shape, count, watch)
        self.machine = machine = self.scheduler.machine
        machine.findings, machine.output = findings, output
        self.scheduler.counter = watch.counters if watch is not None else None
        self.scheduler.watchdog = Watchdog(machine, kernel.limits, kernel.deadline)
        machine.start(start, params)
        for watcher in machine.watchers:
            watcher.start()
        self.running = self.scheduler.run()

    def step(self) -> bool:
        """Run until the batch ends (True) or yields (False)."""
        for _ in self.running:
            return False
        for hook in self.machine.finish_hooks:
            hook()
        for watcher in self.machine.watchers:
            watcher.finish()
        self._release()
        return True

    def give_up(self) -> None:
        self.running.close()
        self.scheduler.report_spinning()
        self._release()

    def _release(self) -> None:
        self.machine.output = []
        self.kernel.release(self.shape, self.count, self.watch, self.scheduler)


_MOST_CTAS = 8
"""Of a cluster: the portable maximum (CUDA C++ Programming Guide, "Thread Block Clusters")."""


def cluster_of(entry: parser.Function, asked: tuple[int, int, int] | None) -> tuple[int, int, int]:
    """The shape of a launch's clusters: as the launch asks, else as ``.reqnctapercluster`` has it."""
    required = entry.directives.get("reqnctapercluster")
    if not required:
        if "explicitcluster" in entry.directives and not asked:
            raise DeviceError(f"{entry.name}: .explicitcluster needs a launch in clusters")
        return asked or (1, 1, 1)
    required = tuple(required) + (1,) * (3 - len(required))
    if asked and asked != required:
        raise DeviceError(f"{entry.name}: clusters of {asked} differ from .reqnctapercluster {required}")
    return required


def _check_cluster(shape: Shape, entry: parser.Function) -> None:
    most = min([_MOST_CTAS, *entry.directives.get("maxclusterrank", ())])
    if min(shape.cluster) < 1 or shape.cluster_size > most:
        raise DeviceError(f"{entry.name}: clusters of {shape.cluster} CTAs, at most {most} are possible")
    if any(ctas % extent for ctas, extent in zip(shape.grid, shape.cluster)):
        raise DeviceError(
            f"{entry.name}: the grid {shape.grid} is no multiple of the cluster {shape.cluster}"
        )


def check_shape(
    shape: Shape,
    entry: parser.Function,
    static_shared: int,
    params: bytes,
    expected: int,
    limits: tuple[int, int],
) -> None:
    """Refuse launches that a driver refuses."""
    max_threads, max_shared = limits
    required = entry.directives.get("reqntid")
    if min(shape.grid) < 1 or min(shape.block) < 1:
        raise DeviceError(f"{entry.name}: grid {shape.grid} and block {shape.block} must be positive")
    if shape.threads > max_threads:
        raise DeviceError(
            f"{entry.name}: {shape.threads} threads per block, at most {max_threads} are possible"
        )
    if required and tuple(required) + (1,) * (3 - len(required)) != tuple(shape.block):
        raise DeviceError(f"{entry.name}: block {shape.block} differs from .reqntid {required}")
    if static_shared + shape.shared_bytes > max_shared:
        raise DeviceError(
            f"{entry.name}: {static_shared + shape.shared_bytes} bytes of shared memory, at most "
            f"{max_shared} are possible"
        )
    _check_cluster(shape, entry)
    if len(params) < expected:
        raise DeviceError(f"{entry.name}: {len(params)} bytes of parameters, {expected} are declared")
