"""The emulator as a device: the same interface as a GPU, plus findings, reports and arrays used in place."""

from __future__ import annotations

import os
from functools import cached_property, lru_cache

import numpy as np

from ptxforge.emulator.counters import MULTIPROCESSOR, Counters, Report
from ptxforge.emulator.findings import Finding, Findings
from ptxforge.emulator.launch import (
    Kernel,
    LoadedText,
    Observers,
    Shape,
    check_shape,
    cluster_of,
    load_text,
    place_variables,
)
from ptxforge.emulator.memory import GlobalMemory
from ptxforge.emulator.parallel import can_spread, run_in_processes
from ptxforge.emulator.registers import pressure
from ptxforge.emulator.scheduler import Limits, MachinePool, deadline
from ptxforge.emulator.tensormap import InvalidTensorMap, encode_tiled
from ptxforge.support import settings
from ptxforge.support.dtypes import DType
from ptxforge.support.errors import DeviceError
from ptxforge.support.target import DEFAULT_TARGET, FunctionAttributes
from ptxforge.support.tensor_map import check_dimensions, kind_of

CHECKS = ("off", "one", "all")


class EmulatorDevice:
    """Executes PTX on the CPU.

    ``check``: ``"off"`` (out-of-bounds and misaligned accesses are found all the same), ``"one"`` (the first
    CTA of every launch also runs under the race and initialisation checkers) or ``"all"`` (every CTA does).
    ``counters=True`` collects :attr:`last_report`. ``processes`` spreads a grid's CTAs over that many
    processes (0: one per core). ``step_limit`` (basic blocks that a batch of CTAs executes) and
    ``time_limit`` (seconds of a launch) stop launches that do not end; 0 for none, by default those of
    ``PTXFORGE_STEP_LIMIT`` and ``PTXFORGE_TIME_LIMIT``. With ``raise_faults=False`` a launch never raises for
    what it finds: look at :attr:`findings`.

    :attr:`findings` holds the last launch's findings; a fault (:data:`findings.FATAL`) raises ``DeviceError``
    after the launch.
    """

    name = "emulator"
    multiprocessors = 132
    max_threads_per_block = 1024
    max_shared_bytes = 232448
    warp_size = 32

    def __init__(
        self,
        check: str = "off",
        counters: bool = False,
        processes: int = 1,
        target: str = DEFAULT_TARGET,
        raise_faults: bool = True,
        step_limit: int | None = None,
        time_limit: float | None = None,
    ):
        if check not in CHECKS:
            raise ValueError(f"check must be one of {', '.join(CHECKS)}, not {check!r}")
        self.check, self.counters = check, counters
        self.processes = processes or os.cpu_count() or 1
        self.target, self.raise_faults = target, raise_faults
        self.step_limit, self.time_limit = step_limit, time_limit
        self.order = ""
        """``"ascending"`` or ``"descending"``: run CTAs one by one in that order; else many at once."""
        self.memory = GlobalMemory()
        self.pool = MachinePool(self.memory)
        self.findings: list[Finding] = []
        self.last_report: Report | None = None
        self.output = ""
        """What the last launch printed with ``printf``."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} for {self.target}, check={self.check!r}>"

    @property
    def limits(self) -> Limits:
        """What a launch may take."""
        steps, seconds = self.step_limit, self.time_limit
        return Limits(
            int(settings.STEP_LIMIT.get()) if steps is None else steps,
            float(settings.TIME_LIMIT.get()) if seconds is None else seconds,
        )

    def allocate(self, nbytes: int) -> int:
        return self.memory.allocate(nbytes)

    def poison(self, address: int) -> None:
        """Mark what :meth:`allocate` gave as never written: the checks report who reads it."""
        self.memory.poison(address)

    def free(self, address: int) -> None:
        self.memory.free(address)

    def copy_to_device(self, address: int, source: np.ndarray, stream: int = 0) -> None:
        source = np.ascontiguousarray(source)
        self.memory.array_at(address, source.nbytes)[:] = source.reshape(-1).view(np.uint8)

    def copy_to_host(self, destination: np.ndarray, address: int, stream: int = 0) -> None:
        if not destination.flags.c_contiguous:
            raise DeviceError("the destination must be C-contiguous")
        destination.reshape(-1).view(np.uint8)[:] = self.memory.array_at(address, destination.nbytes)

    def register_host_array(self, array: np.ndarray) -> int:
        return self.memory.register(array)

    def unregister_host_array(self, address: int) -> None:
        self.memory.unregister(address)

    @property
    def own_check(self) -> str:
        """The checked mode."""
        return self.check

    @staticmethod
    @lru_cache(maxsize=4096)
    def encode_tensor_map(
        dtype: DType,
        address: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        box: tuple[int, ...],
        *,
        swizzle: int = 0,
        padding: str = "zero",
    ) -> bytes:
        """A tensor map by the emulator's own encoder; kept by the values of the arguments. Raises
        :class:`DeviceError` for what the driver would refuse."""
        check_dimensions(shape, strides, box)
        between = [stride * dtype.bytes for stride in reversed(strides[:-1])]
        try:
            encoded = encode_tiled(
                kind_of(dtype), address, shape[::-1], between, box[::-1], swizzle=swizzle,
                fill_nan=padding == "nan",
            )  # fmt: skip
        except InvalidTensorMap as error:
            raise DeviceError(str(error)) from None
        return encoded.tobytes()

    def load_module(self, ptx: str) -> EmulatorModule:
        return EmulatorModule(self, load_text(ptx))

    def synchronize(self, stream: int = 0) -> None:
        """Launches are finished when they return."""


class DefaultEmulator(EmulatorDevice):
    """The emulator that runs kernels when nobody chose a device: checked mode and target are those of
    ``PTXFORGE_CHECK`` and ``PTXFORGE_TARGET``, read at each use, until they are set on the object."""

    def __init__(self) -> None:
        self._check = self._target = ""
        super().__init__(settings.CHECK.get(), target=settings.TARGET.get() or DEFAULT_TARGET)
        self._check = self._target = ""

    @property
    def check(self) -> str:
        return self._check or settings.CHECK.get()

    @check.setter
    def check(self, value: str) -> None:
        self._check = value

    @property
    def own_check(self) -> str:
        """The checked mode that was set on the object, to be set again later; "" if none was."""
        return self._check

    @property
    def target(self) -> str:
        return self._target or settings.TARGET.get() or DEFAULT_TARGET

    @target.setter
    def target(self, value: str) -> None:
        self._target = value


class EmulatorModule:
    """PTX loaded on one device: its variables have addresses."""

    def __init__(self, device: EmulatorDevice, loaded: LoadedText):
        self.device, self.loaded = device, loaded
        self.symbols = place_variables(loaded.module, device.memory)
        self._functions: dict[str, EmulatorFunction] = {}

    def function(self, name: str) -> EmulatorFunction:
        if name not in self.loaded.translations:
            known = ", ".join(sorted(self.loaded.translations)) or "none"
            raise DeviceError(f"no kernel {name} in the module; it has: {known}")
        if name not in self._functions:
            self._functions[name] = EmulatorFunction(self, name)
        return self._functions[name]

    def unload(self) -> None:
        for address in set(self.symbols.values()):
            self.device.memory.free(address)
        for function in self._functions.values():
            self.device.pool.forget(function.kernel)
        self.symbols = {}
        self._functions = {}


class EmulatorFunction:
    """A kernel ready to run."""

    def __init__(self, module: EmulatorModule, name: str):
        self.name, self.device = name, module.device
        self.translation = module.loaded.translations[name]
        self.kernel = Kernel(self.translation, self.device.memory, module.symbols, self.device.pool)

    @cached_property
    def attributes(self) -> FunctionAttributes:
        """As a driver reports them. Nothing is assembled, so ``registers`` is an estimate: how many are live
        at once (:func:`registers.pressure`), at most ``.maxnreg``."""
        program = self.translation.program
        return FunctionAttributes(
            min([pressure(program), *program.entry.directives.get("maxnreg", ())]),
            program.local_bytes,
            self._max_threads(program.entry.directives),
        )

    @staticmethod
    def _max_threads(directives: dict[str, tuple[int, ...]]) -> int:
        bound = directives.get("reqntid") or directives.get("maxntid") or (1024,)
        return min(1024, int(np.prod(bound)))

    def resident_ctas(self, block: tuple[int, int, int], shared_bytes: int) -> int:
        """How many CTAs an H200 holds at once, as threads and shared memory (bytes, the dynamic part) decide:
        registers are the assembler's business."""
        shared = self.translation.program.static_shared + shared_bytes
        return MULTIPROCESSOR.occupancy(int(np.prod(block)), 0, shared).blocks * self.device.multiprocessors

    def launch(
        self,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared_bytes: int,
        stream: int,
        params: bytes,
        cluster: tuple[int, int, int] | None = None,
    ) -> None:
        """Run the whole grid; returns when it is done. Raises ``DeviceError`` for faults (see the device).

        ``cluster``: CTAs per cluster, for kernels that do not say it themselves (``.reqnctapercluster``).
        """
        device, program = self.device, self.translation.program
        together = cluster_of(program.entry, cluster and _triple(cluster))
        shape = Shape(_triple(grid), _triple(block), shared_bytes, together)
        check_shape(
            shape,
            program.entry,
            program.static_shared,
            params,
            program.param_bytes,
            (self._max_threads(program.entry.directives), device.max_shared_bytes),
        )
        findings = Findings()
        counters = (
            Counters(program, shape.block, program.static_shared + shared_bytes) if device.counters else None
        )
        observers = Observers(device.check, counters)
        params = params[: program.param_bytes]
        self.kernel.limits, self.kernel.order = device.limits, device.order
        self.kernel.deadline = deadline(device.limits)
        if self._spreads(shape):
            output = run_in_processes(self.kernel, shape, params, findings, device.processes)
        else:
            output = self.kernel.run(shape, params, findings, observers)
        device.findings, device.output = list(findings), "".join(output)
        if counters is not None:
            device.last_report = Report(
                self.name, shape.grid, shape.block, counters, self.attributes.registers
            )
        if output:
            print(device.output, end="")
        if device.raise_faults and findings.fatal:
            raise DeviceError("\n".join(str(finding) for finding in findings.fatal))

    def _spreads(self, shape: Shape) -> bool:
        """Whether to use several processes: only for unwatched launches whose CTAs do not talk to
        each other.
        """
        device = self.device
        return (
            device.processes > 1
            and not device.order
            and shape.ctas > 1
            and device.check == "off"
            and not device.counters
            and can_spread(self.translation.program)
        )


def _triple(size: object) -> tuple[int, int, int]:
    values = tuple(int(n) for n in size)
    return values + (1,) * (3 - len(values))
