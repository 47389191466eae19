"""One compiled variant of a kernel: its texts, its resources, its functions on the devices that loaded it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from ptxforge.compiler import Artifact
from ptxforge.driver.cuda import CudaDevice
from ptxforge.driver.protocol import Device, Function, FunctionAttributes
from ptxforge.runtime import tools
from ptxforge.support.errors import DeviceError, OutOfResourcesError

WARP_SIZE = 32


@attrs.frozen(slots=True)
class Metadata:
    """Facts of a variant under Triton's names; ``shared`` is bytes of dynamic shared memory per block."""

    name: str
    shared: int
    num_warps: int
    num_stages: int
    num_ctas: int
    target: str
    maxnreg: int | None
    signature: dict[str, str]
    constants: dict[str, Any]


class CompiledKernel:
    """A kernel compiled for one specialisation.

    ``asm`` has the texts ``tile``, ``gpu``, ``ptx`` and ``sass`` and the bytes ``cubin``; the last two are
    made when asked for. ``n_regs`` (registers per thread), ``n_spills`` (4-byte words of local memory per
    thread) and ``n_max_threads`` load the kernel on the device that it was compiled for, if it is not there
    yet.
    """

    def __init__(self, artifact: Artifact, device: Device | None, src: Any = None):
        self.artifact = artifact
        self.name = artifact.name
        self.src = src
        self._device = device
        self._functions: dict[int, Function] = {}
        self.asm = tools.with_machine_code(artifact.asm, self._cubin)
        self.launcher: Callable[..., Any] | None = None  # set by the kernel that made this

    def __repr__(self) -> str:
        return f"<CompiledKernel {self.name} for {self.artifact.target}>"

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        """``compiled[grid](*args)`` launches exactly this variant; constants need not be given."""
        if self.launcher is None:
            raise DeviceError(
                f"'{self.name}' was compiled ahead of time; launch the kernel that it came from"
            )
        return lambda *args, **kwargs: self.launcher(self, grid, args, kwargs)

    @property
    def metadata(self) -> Metadata:
        """Name, shared memory (bytes), options, target and hash, under Triton's names."""
        made = self.artifact
        return Metadata(
            name=made.name,
            shared=made.shared_bytes,
            num_warps=made.num_warps,
            num_stages=made.num_stages,
            num_ctas=made.num_ctas,
            target=made.target,
            maxnreg=made.options.get("maxnreg"),
            signature=made.signature,
            constants=made.constants,
        )

    @property
    def block(self) -> tuple[int, int, int]:
        """Threads of a block."""
        return (WARP_SIZE * self.artifact.num_warps, 1, 1)

    def function_on(self, device: Device) -> Function:
        """The loaded kernel on ``device``. Raises :class:`OutOfResourcesError` when it does not fit there."""
        function = self._functions.get(id(device))
        if function is None:
            self._check_fits(device)
            module = device.load_module(self.artifact.ptx)
            function = module.function(self.name)
            self._check_registers(function)
            self._functions[id(device)] = function
        return function

    def _check_fits(self, device: Device) -> None:
        made = self.artifact
        if made.shared_bytes > device.max_shared_bytes:
            raise OutOfResourcesError(
                "shared memory",
                made.shared_bytes,
                device.max_shared_bytes,
                hint="smaller blocks or fewer num_stages need less",
            )
        if self.block[0] > device.max_threads_per_block:
            raise OutOfResourcesError(
                "threads", self.block[0], device.max_threads_per_block, hint="use fewer num_warps"
            )

    def _check_registers(self, function: Function) -> None:
        limit = function.attributes.max_threads_per_block
        if self.block[0] > limit:
            used = function.attributes.registers
            raise OutOfResourcesError(
                f"registers ({used} per thread leave room for {limit} threads)",
                self.block[0],
                limit,
                hint="use fewer num_warps, smaller blocks, or maxnreg",
            )

    @property
    def attributes(self) -> FunctionAttributes:
        """What loading the kernel tells about it. Raises :class:`DeviceError` without a device."""
        return self.function_on(self._loaded_by()).attributes

    def _loaded_by(self) -> Device:
        if self._device is None:
            raise DeviceError(
                f"'{self.name}' was compiled for {self.artifact.target} without a device to load it on"
            )
        return self._device

    def _init_handles(self) -> None:
        """Load the kernel now: Triton's name, which its scripts call between ``warmup`` and ``n_regs``."""
        self.function_on(self._loaded_by())

    @property
    def n_regs(self) -> int:
        """Registers that a thread takes."""
        return self.attributes.registers

    @property
    def n_spills(self) -> int:
        """32-bit words of local memory that a thread takes: spilled registers, as a rule."""
        return self.attributes.local_bytes // 4

    @property
    def n_max_threads(self) -> int:
        """Threads that a block of this kernel may have at most."""
        return self.attributes.max_threads_per_block

    def _cubin(self) -> bytes:
        """By the driver when a GPU made this variant, else by ``ptxas``."""
        if isinstance(self._device, CudaDevice):
            return self._device.cubin(self.artifact.ptx)
        return tools.assemble(self.artifact.ptx, self.artifact.target)
