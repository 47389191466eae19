"""CUDA devices: the :class:`~ptxforge.driver.protocol.Device` protocol on the NVIDIA driver.

A device works in its *primary* context, the one that torch, CuPy, Numba and JAX share, so that their arrays
and streams are valid here. A call makes that context current for its own duration only, because the current
context is what those libraries take for "the current device".

The launch is the hot path. It hands the driver one packed buffer (``CU_LAUNCH_PARAM_BUFFER_POINTER``) instead
of an array of pointers to arguments: no Python work per argument. The buffer is kept per thread, because the
driver call gives up the GIL.
"""

from __future__ import annotations

import ctypes
import functools
import re
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from ptxforge.driver import tensor_map
from ptxforge.driver.cuda_api import bindings, call, describe, device_count, driver_build
from ptxforge.driver.cuda_launch import (
    EX_SINCE,
    FrameLayout,
    LaunchAttributes,
    Launcher,
    driver_address,
    launch_function,
)
from ptxforge.driver.jit import host_address, link_cubin, load_cubin, load_module
from ptxforge.driver.protocol import FunctionAttributes, natural_places
from ptxforge.support.dtypes import DType
from ptxforge.support.errors import CompilationError, DeviceError
from ptxforge.support.target import parse_target
from ptxforge.support.tensor_map import BYTES

MAX_PARAMETER_BYTES = 4096  # of a kernel, below PTX ISA 8.1; enough for 500 arguments
_ENTRY = re.compile(r"\.entry\s+([\w$%]+)\s*\(([^)]*)\)")
_DYNAMIC_SHARED = ".extern"  # which declares it, and functions of the driver, for which nothing is lost
_TENSOR_MAP_CODE = f"{BYTES}s"
DEFAULT_SHARED_BYTES = 48 * 1024  # what a block may have without opting in


@functools.cache
def cuda_device(ordinal: int = 0) -> CudaDevice:
    """The CUDA device of that number. Raises :class:`DeviceError` when there is none."""
    return CudaDevice(ordinal)


class CudaDevice:
    """GPU number ``ordinal`` through the CUDA driver; see :func:`cuda_device`, which keeps one object for
    each.

    It has the members of :class:`ptxforge.driver.protocol.Device`. Failures of the driver raise
    :class:`DeviceError` with its name for them and, of the JIT, its log.
    """

    warp_size = 32

    def __init__(self, ordinal: int):
        bindings()
        if not 0 <= ordinal < device_count():
            raise DeviceError(f"there is no CUDA device {ordinal}; this machine has {device_count()}")
        self.ordinal = ordinal
        self.name = f"cuda:{ordinal}"
        self._handle = call("cuDeviceGet", ordinal)
        self._context = call("cuDevicePrimaryCtxRetain", self._handle)
        self._context_address = int(self._context)
        self.alone = device_count() == 1  # no library of this process can switch to another device
        self._thread = threading.local()
        self._lost = False
        self.target = self._newest_target()
        self.multiprocessors = self.attribute("MULTIPROCESSOR_COUNT")
        self.max_threads_per_block = self.attribute("MAX_THREADS_PER_BLOCK")
        self.max_shared_bytes = self.attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")
        # Better now, beside the context, than in the first launch:
        driver_build()  # reads a file
        self.launch_kernel = launch_function(driver_address("cuLaunchKernelEx", EX_SINCE))

    def __repr__(self) -> str:
        return f"<CudaDevice {self.name} {self.product} {self.target}>"

    def attribute(self, name: str) -> int:
        """A device attribute by the driver's name without its prefix, such as ``L2_CACHE_SIZE`` (bytes)."""
        key = getattr(bindings().CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return call("cuDeviceGetAttribute", key, self._handle)

    @property
    def product(self) -> str:
        """The marketing name, such as ``NVIDIA H200``."""
        return call("cuDeviceGetName", 128, self._handle).split(b"\0", 1)[0].decode()

    @property
    def compute_capability(self) -> tuple[int, int]:
        """Major and minor version, such as ``(9, 0)``."""
        return self.attribute("COMPUTE_CAPABILITY_MAJOR"), self.attribute("COMPUTE_CAPABILITY_MINOR")

    def _newest_target(self) -> str:
        """What PTX is made for: the device's own architecture with its own features, else the newest known
        older one."""
        major, minor = self.compute_capability
        own = major * 10 + minor
        older = (
            f"sm_{number}" for number in range(own, 79, -1)
        )  # these run here too: PTX is forward-compatible
        for name in (f"sm_{own}a", *older):
            try:
                return str(parse_target(name))
            except CompilationError:
                continue
        raise DeviceError(f"{self.name} has compute capability {major}.{minor}; ptxforge needs 8.0 or newer")

    @contextmanager
    def current(self) -> Iterator[None]:
        """This device's context is current inside; what was current before is current again afterwards."""
        if self.settle_thread():
            yield
            return
        call("cuCtxPushCurrent", self._context)
        try:
            yield
        finally:
            call("cuCtxPopCurrent")

    def settle_thread(self) -> bool:
        """True when this device's context is, and stays, current in this thread, so that nothing need be
        done.

        That is the case on a machine with one GPU once the primary context has been made current: no library
        has another device to switch to. A foreign context that is current already is left alone.

        Raises :class:`DeviceError` when the device was reset.
        """
        thread = self._thread
        try:
            return thread.settled
        except AttributeError:
            pass
        if self._lost:
            raise DeviceError(f"{self.name} was reset; get it again")
        if self.alone and int(call("cuCtxGetCurrent")) == 0:
            call("cuCtxSetCurrent", self._context)
        thread.settled = self.alone and int(call("cuCtxGetCurrent")) == self._context_address
        return thread.settled

    def allocate(self, nbytes: int) -> int:
        """Device memory; zero bytes give an address too."""
        with self.current():
            return int(call("cuMemAlloc", max(1, nbytes)))

    def free(self, address: int) -> None:
        """Release memory, after the work that may still use it."""
        if self._lost:  # it went with the context, and the address may be another's by now
            return
        with self.current():
            call("cuMemFree", address)

    def copy_to_device(self, address: int, source: np.ndarray, stream: int = 0) -> None:
        """Copy a host array; waits, because pageable memory may be changed as soon as this returns."""
        if source.nbytes == 0:
            return
        with self.current():
            call("cuMemcpyHtoDAsync", address, host_address(source), source.nbytes, stream)
            call("cuStreamSynchronize", stream)

    def copy_to_host(self, destination: np.ndarray, address: int, stream: int = 0) -> None:
        """Fill a host array; waits."""
        if destination.nbytes == 0:
            return
        with self.current():
            call("cuMemcpyDtoHAsync", host_address(destination), address, destination.nbytes, stream)
            call("cuStreamSynchronize", stream)

    def fill_bytes(self, address: int, value: int, nbytes: int, stream: int = 0) -> None:
        """Set ``nbytes`` bytes to ``value``; does not wait."""
        with self.current():
            call("cuMemsetD8Async", address, value, nbytes, stream)

    def register_host_array(self, array: np.ndarray) -> int:
        """A GPU cannot use a host array in place: raises :class:`DeviceError`."""
        raise DeviceError(
            "a CUDA device cannot use a numpy array in place; copy it with ptxforge.to_device(array)"
        )

    def encode_tensor_map(
        self,
        dtype: DType,
        address: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        box: tuple[int, ...],
        *,
        swizzle: int = 0,
        padding: str = "zero",
    ) -> bytes:
        """A tensor map by the driver's encoder. Raises :class:`DeviceError` when that refuses."""
        with self.current():
            return tensor_map.encode(dtype, address, shape, strides, box, swizzle, padding)

    def load_module(self, ptx: str) -> CudaModule:
        """Assemble and load PTX text with the driver's JIT."""
        with self.current(), relaxed_capture():
            module, log = load_module(ptx)
            return CudaModule(self, module, ptx, log)

    def load_machine_code(self, cubin: bytes, ptx: str) -> CudaModule:
        """Load what :meth:`cubin`, or another assembler, made of ``ptx``. Raises :class:`DeviceError` for
        code of another architecture, or of an assembler that is newer than the driver."""
        with self.current(), relaxed_capture():
            return CudaModule(self, load_cubin(cubin), ptx)

    @property
    def architecture(self) -> str:
        """The GPU's own architecture, such as ``sm_90``: what machine code is for."""
        major, minor = self.compute_capability
        return f"sm_{major}{minor}"

    @property
    def assembler(self) -> str:
        """The driver's assembler and its version, for the names of what it makes."""
        return f"driver {driver_build()}"

    def cubin(self, ptx: str, logs: list[str] | None = None) -> bytes:
        """The machine code that the driver makes of ``ptx`` for this device; its log is appended to
        ``logs``."""
        with self.current():
            return link_cubin(ptx, logs)

    def synchronize(self, stream: int = 0) -> None:
        """Wait for a stream; with 0, for the default stream."""
        with self.current():
            call("cuStreamSynchronize", stream)

    def is_capturing(self, stream: int = 0) -> bool:
        """Whether the work queued on a stream goes into a CUDA graph at this moment."""
        with self.current():
            status = call("cuStreamIsCapturing", stream)
        return status != bindings().CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE

    def reset(self) -> None:
        """Destroy the primary context, for everyone in the process: after a fault in a kernel every call in
        it fails.

        Memory, modules and events of this object are gone, and the object is of no more use:
        ``cuda_device.cache_clear()`` and ``cuda_device(...)`` give the device again. Raises
        :class:`DeviceError` when the driver refuses.
        """
        call("cuCtxSetCurrent", 0)
        call("cuDevicePrimaryCtxReset", self._handle)
        call("cuDevicePrimaryCtxRelease", self._handle)
        self._lost = True
        self._thread = threading.local()

    def event(self) -> CudaEvent:
        """A new timing event."""
        with self.current():
            return CudaEvent(self, call("cuEventCreate", 0))


@contextmanager
def relaxed_capture() -> Iterator[None]:
    """What this thread asks of the driver inside does not break the capture of a CUDA graph that is under
    way: loading a kernel is no part of the work that is captured."""
    relaxed = bindings().CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    before = call("cuThreadExchangeStreamCaptureMode", relaxed)
    try:
        yield
    finally:
        call("cuThreadExchangeStreamCaptureMode", before)


class CudaModule:
    """A module in a device's primary context. ``log`` is what the assembler said of it, as far as known."""

    def __init__(self, device: CudaDevice, handle: object, ptx: str, log: str = ""):
        self.log = log
        self._device = device
        self._handle = handle
        self._ptx = ptx

    def function(self, name: str) -> CudaFunction:
        """The kernel ``name``; allowed all the dynamic shared memory that the device has, if it uses any."""
        with self._device.current():
            handle = call("cuModuleGetFunction", self._handle, name.encode())
            made = CudaFunction(self._device, name, handle, self._ptx)
            if _DYNAMIC_SHARED in self._ptx:
                made.allow_all_shared_memory()
            return made

    def unload(self) -> None:
        """Give the module's memory back; its functions must not be launched any more."""
        with self._device.current():
            call("cuModuleUnload", self._handle)


class ParameterBuffer(threading.local):
    """One thread's buffer for packed parameters and the ``extra`` list that tells the driver about it."""

    def __init__(self) -> None:
        driver = bindings()
        buffer = ctypes.create_string_buffer(MAX_PARAMETER_BYTES)
        self.size = ctypes.c_size_t(0)
        self._extra = (ctypes.c_void_p * 5)(
            int(driver.CU_LAUNCH_PARAM_BUFFER_POINTER),
            ctypes.addressof(buffer),
            int(driver.CU_LAUNCH_PARAM_BUFFER_SIZE),
            ctypes.addressof(self.size),
            int(driver.CU_LAUNCH_PARAM_END),
        )
        self.extra = ctypes.addressof(self._extra)
        self.bytes = memoryview(buffer).cast("B")


def parameter_count(ptx: str, entry: str) -> int:
    """How many parameters a kernel declares. (The driver of CUDA 13.0 tells about each, but not how many
    there are; asking for one too many is an error that ``compute-sanitizer`` reports.)

    >>> parameter_count(".visible .entry add(.param .u64 x, .param .b32 n) {", "add")
    2
    """
    found = _ENTRY.finditer(ptx)  # one pattern for all names: compiling one costs more than looking
    return next((match[2].count(".param") for match in found if match[1] == entry), 0)


Moves = list[tuple[int, int, int]]
"""(offset among packed parameters, offset where the kernel expects it, bytes) of each parameter."""


def parameter_moves(places: list[tuple[int, int]]) -> Moves:
    """How packed parameters must be moved for a kernel whose parameters lie at ``places`` (offset, bytes);
    empty when they are where PTX's alignment rules put them.

    A tensor map is aligned to 64 bytes by its *address*, and the bank of parameters does not begin at such an
    address (on Hopper at 0x210), so the assembler shifts it and all that follow.

    >>> parameter_moves([(0, 8), (8, 4)])
    []
    >>> parameter_moves([(48, 128), (176, 8)])
    [(0, 48, 128), (128, 176, 8)]
    """
    packed = natural_places(size for _, size in places)
    moves = [(source, offset, size) for (source, _), (offset, size) in zip(packed, places)]
    return moves if any(source != target for source, target, _ in moves) else []


def moved_parameters(params: bytes, moves: Moves) -> bytes:
    """The parameters where the kernel expects them."""
    _, last, size = moves[-1]
    result = bytearray(last + size)
    for source, target, size in moves:
        result[target : target + size] = params[source : source + size]
    return bytes(result)


class CudaFunction:
    """A kernel on a device. What its first launch does not need is asked of the driver when somebody does: in
    the first launch of a process each question costs about a hundredth of the whole."""

    def __init__(self, device: CudaDevice, name: str, handle: object, ptx: str):
        self.name = name
        self.device = device
        self.handle = handle
        self._ptx = ptx
        self._launch = bindings().cuLaunchKernel
        self._success = bindings().CUresult.CUDA_SUCCESS

    @functools.cached_property
    def attributes(self) -> FunctionAttributes:
        """What loading the kernel told about it."""
        with self.device.current():
            return FunctionAttributes(
                registers=self._attribute("NUM_REGS"),
                local_bytes=self._attribute("LOCAL_SIZE_BYTES"),
                max_threads_per_block=self._attribute("MAX_THREADS_PER_BLOCK"),
            )

    @functools.cached_property
    def _parameters(self) -> ParameterBuffer:
        return ParameterBuffer()

    @functools.cached_property
    def _places(self) -> list[tuple[int, int]]:
        """(offset, bytes) of each parameter where the kernel expects it."""
        with self.device.current():
            count = parameter_count(self._ptx, self.name)
            return [call("cuFuncGetParamInfo", self.handle, index) for index in range(count)]

    @functools.cached_property
    def _moves(self) -> Moves:
        return parameter_moves(self._places)

    def _attribute(self, name: str) -> int:
        key = getattr(bindings().CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
        return call("cuFuncGetAttribute", key, self.handle)

    def allow_all_shared_memory(self) -> None:
        """Opt in to dynamic shared memory above 48 KiB, once, so that a launch need not."""
        dynamic = self.device.max_shared_bytes - self._attribute("SHARED_SIZE_BYTES")
        if dynamic <= DEFAULT_SHARED_BYTES:
            return
        key = bindings().CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        call("cuFuncSetAttribute", self.handle, key, dynamic)

    def launch(
        self,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared_bytes: int,
        stream: int,
        params: bytes,
    ) -> None:
        """Queue the kernel on ``stream``. Raises :class:`DeviceError` when the driver refuses."""
        if not self.device.settle_thread():
            with self.device.current():
                self._queue(grid, block, shared_bytes, stream, params)
            return
        self._queue(grid, block, shared_bytes, stream, params)

    def launcher(
        self,
        codes: list[str],
        sources: list[int | Callable[[tuple], object]],
        block: tuple[int, int, int],
        shared_bytes: int,
        stream: int | Callable[[tuple], int],
        attributes: LaunchAttributes,
    ) -> Launcher:
        """The fast way to launch this kernel many times.

        ``codes`` are the parameters' codes for ``struct``.
        """
        has_maps = _TENSOR_MAP_CODE in codes
        places = self._places if has_maps else natural_places(map(struct.calcsize, codes))
        layout = FrameLayout(codes, places, block, shared_bytes, attributes)
        return Launcher(self, layout, sources, stream)

    def _queue(self, grid, block, shared_bytes, stream, params) -> None:
        parameters = self._parameters
        if self._moves:
            params = moved_parameters(params, self._moves)
        count = len(params)
        parameters.bytes[:count] = params
        parameters.size.value = count
        (code,) = self._launch(self.handle, *grid, *block, shared_bytes, stream, 0, parameters.extra)
        if code != self._success:
            raise DeviceError(
                f"launching '{self.name}' failed: {describe(bindings(), code)}\n"
                f"grid {grid}, block {block}, {shared_bytes} bytes of dynamic shared memory"
            )


class CudaEvent:
    """A point in a stream, for timing."""

    def __init__(self, device: CudaDevice, handle: object):
        self._device = device
        self._handle = handle

    def record(self, stream: int = 0) -> None:
        """Put the event behind the work that is queued on ``stream`` now."""
        with self._device.current():
            call("cuEventRecord", self._handle, stream)

    def synchronize(self) -> None:
        """Wait on the host until the event has happened."""
        with self._device.current():
            call("cuEventSynchronize", self._handle)

    def milliseconds_since(self, start: CudaEvent) -> float:
        """Milliseconds of device time between ``start`` and this event; both must have happened."""
        with self._device.current():
            return call("cuEventElapsedTime", start._handle, self._handle)

    def __del__(self) -> None:
        try:
            with self._device.current():
                call("cuEventDestroy", self._handle)
        except Exception:  # the interpreter is shutting down, and the driver with it
            return
