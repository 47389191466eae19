"""One compiled variant of a kernel: its texts, its resources, its functions on the devices that loaded it."""

from __future__ import annotations

import functools
import hashlib
import sys
from collections.abc import Callable
from typing import Any

from ptxforge.compiler import Artifact, Assembly
from ptxforge.driver.cuda import CudaDevice
from ptxforge.driver.protocol import Device, Function, FunctionAttributes
from ptxforge.runtime import compiling, hooks, tools
from ptxforge.runtime.assembled import note_driver
from ptxforge.runtime.devices import default_device, device
from ptxforge.runtime.slots import Launcher, raw_launcher
from ptxforge.runtime.variants import GPUTarget, Key, Metadata, metadata_of
from ptxforge.support.errors import DeviceError, OutOfResourcesError
from ptxforge.support.machine import WARP_SIZE
from ptxforge.support.target import parse_target


class CompiledKernel:
    """A kernel compiled for one specialisation.

    ``asm`` has the texts ``tile``, ``gpu``, ``ptx`` and ``sass`` and the bytes ``cubin``; the last two are
    made when asked for. ``n_regs`` (registers per thread), ``n_spills`` (4-byte words of local memory per
    thread) and ``n_max_threads`` load the kernel on the device that it was compiled for, if it is not there
    yet.
    """

    def __init__(
        self, artifact: Artifact, device: Device | None, src: Any = None, target: GPUTarget | None = None
    ):
        self.artifact = artifact
        self.name = artifact.name
        self.src = src
        self._device = device
        self._target = target
        self._functions: dict[int, Function] = {}
        self.launcher: Callable[..., Any] | None = None  # set by the kernel that made this
        self.machine_code: bytes | None = None  # that came with the kernel, for some GPU
        self.prepared: dict[Any, Any] = {}  # launches, by all that decides them beside the variant

    def __repr__(self) -> str:
        return f"<CompiledKernel {self.name} for {self.artifact.target}>"

    def _repr_html_(self) -> str:
        """For notebooks; see :class:`Artifact`."""
        return self.artifact._repr_html_()

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key not in _OF_THIS_PROCESS} | {
            "_device": None, "_functions": {}, "launcher": None, "prepared": {},
            "_target": self._target or GPUTarget("cuda", parse_target(self.artifact.target).sm, WARP_SIZE),
        }  # fmt: skip

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        """``compiled[grid](*args)`` launches exactly this variant; constants need not be given."""
        if self.launcher is not None:
            return lambda *args, **kwargs: self.launcher(self, grid, args, kwargs)
        if self._target is None:
            raise DeviceError(
                f"'{self.name}' was compiled ahead of time; launch the kernel that it came from"
            )
        axes = (*grid, 1, 1)[:3]
        return lambda *args, stream=0: self.run(
            *axes, stream, self.function, self.packed_metadata, None, None, None, *self._complete(args)
        )

    def _complete(self, args: tuple) -> list[Any]:
        """An argument for every parameter, where constants may have been left out."""
        shapes = getattr(self.src, "shapes", None)
        if shapes is None:
            taken = {name for name, _ in self.artifact.parameters}
            shapes = [name not in taken for name in self.artifact.signature]
        if len(args) == len(shapes):
            return list(args)
        given = iter(args)
        return [None if shape is True else next(given, None) for shape in shapes]

    @property
    def key(self) -> Key:
        """What this was compiled for."""
        made = self.artifact
        return Key(made.target, made.signature, made.constants, made.options)

    # Cached, and not properties: programs that rebuild a kernel from its __dict__ put values in their place

    @functools.cached_property
    def asm(self) -> Assembly:
        """The kernel's texts and machine code; see the class."""
        return tools.with_machine_code(self.artifact.asm, self._cubin)

    @property
    def kernel(self) -> bytes:
        """The machine code."""
        return self.asm["cubin"]

    @functools.cached_property
    def hash(self) -> str:
        """Hexadecimal digits that tell this kernel from all others."""
        made = self.artifact
        return hashlib.sha256(f"{made.target} {made.num_warps}\n{made.ptx}".encode()).hexdigest()

    @functools.cached_property
    def metadata(self) -> Metadata:
        """Name, shared memory (bytes), options, target and hash, under Triton's names."""
        return metadata_of(self.artifact, self.hash, self._target)

    @functools.cached_property
    def packed_metadata(self) -> tuple[int, int, int]:
        """Warps, CTAs of a cluster and bytes of shared memory: what Triton's launch function takes."""
        return self.artifact.num_warps, self.artifact.num_ctas, self.artifact.shared_bytes

    @functools.cached_property
    def function(self) -> Any:
        """The kernel's handle on its device: the driver's number for it, where that is CUDA."""
        return _handle(self.function_on(self._loaded_by()))

    @functools.cached_property
    def run(self) -> Launcher:
        """Triton's launch function; see :mod:`ptxforge.runtime.slots`."""
        return raw_launcher(self, self._loaded_by())

    def launch_metadata(self, grid: Any, stream: Any, *args: Any) -> dict[str, Any]:
        """What launch hooks are told about a launch."""
        return {"name": self.name, "function": self.function, "stream": stream, "metadata": self.metadata}

    @property
    def block(self) -> tuple[int, int, int]:
        """Threads of a block."""
        return (self.artifact.threads, 1, 1)

    def function_on(self, device: Device) -> Function:
        """The loaded kernel on ``device``. Raises :class:`OutOfResourcesError` when it does not fit there."""
        function = self._functions.get(id(device))
        if function is None:
            self._check_fits(device)
            for hook in hooks.LOAD:
                hook(self, None)
            function = self._load(device)
            self._check_registers(function)
            self._functions[id(device)] = function
            for hook in hooks.LOAD:
                hook(self, function)
        return function

    def _load(self, device: Device) -> Function:
        if hasattr(device, "load_kernel"):
            return device.load_kernel(self.artifact)
        made = self.artifact
        module = compiling.load_module(device, made.ptx, self.name, made.target, self.machine_code)
        note_driver(made, getattr(module, "log", ""))
        return module.function(self.name)

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
        if self.block[0] <= _ALWAYS_FIT:
            return
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
        if self._device is not None:
            return self._device
        if self._target is None:
            raise DeviceError(
                f"'{self.name}' was compiled for {self.artifact.target} without a device to load it on"
            )
        return device("emulator") if self._target.backend == "cpu" else _current_device()

    def _init_handles(self) -> None:
        """Load the kernel now: Triton's name, which its scripts call between ``warmup`` and ``n_regs``."""
        for name in ("function", "run"):
            if self.__dict__.get(name, True) is None:  # rebuilt from another process's kernel
                del self.__dict__[name]
        self.function, self.run  # noqa: B018

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
        """By the driver when a GPU made this variant, else by an assembler that needs none."""
        if isinstance(self._device, CudaDevice) and not tools.must_use_ptxas(self.artifact.ptx):
            return self._device.cubin(self.artifact.ptx)
        return tools.machine_code(self.artifact.ptx, self.artifact.target)


_ALWAYS_FIT = 256
"""So many threads have room for 255 registers each, the most that a thread can have, in 65536."""
_OF_THIS_PROCESS = ("function", "run")
"""Attributes that hold what was loaded here."""


def _current_device() -> Device:
    """torch's current GPU where torch uses one, else the default device."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return device(f"cuda:{torch.cuda.current_device()}")
    return default_device()


def _handle(function: Function) -> Any:
    handle = getattr(function, "handle", None)
    return function if handle is None else int(handle)
