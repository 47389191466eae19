"""A stand-in for ``cuda.bindings.driver`` that keeps memory on the host and records what it is asked.

It answers as the driver's documentation says the driver does, so that the CUDA device can be tested on a
machine without a GPU: result codes, the packed parameter buffer behind ``extra``, the JIT's log buffers,
contexts.
"""

from __future__ import annotations

import ctypes
import enum
import functools
import re
import struct
from types import SimpleNamespace

from ptxforge.driver import cuda, cuda_api, cuda_launch, jit, tensor_map
from ptxforge.driver.cuda import CudaDevice
from ptxforge.runtime import devices, launcher


class CUresult(enum.IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_INVALID_CONTEXT = 201
    CUDA_ERROR_NO_BINARY_FOR_GPU = 209
    CUDA_ERROR_INVALID_PTX = 218
    CUDA_ERROR_NOT_FOUND = 500


CUBIN = b"\x7fELF of "
"""What the fake's machine code begins with; the text that it was made of follows."""
_OK = CUresult.CUDA_SUCCESS
_PRIMARY = 0x1000


class _Names:
    """An enumeration whose members are their own names."""

    def __getattr__(self, name: str) -> str:
        return name


def natural_places(ptx: str, entry: str) -> list[tuple[int, int]]:
    """(offset, bytes) of each parameter, scalars and tensor maps, in a kernel's signature."""
    signature = ptx.split(f".entry {entry}")[1].split(")")[0]
    places: list[tuple[int, int]] = []
    parameter = r"\.param (?:\.align (\d+) )?\.[a-z](\d+) [^,\[]*(?:\[(\d+)\])?"
    for alignment, bits, count in re.findall(parameter, signature):
        size = int(bits) // 8 * int(count or 1)
        step = int(alignment or size)
        end = sum(places[-1]) if places else 0
        places.append((-(-end // step) * step, size))
    return places


class FakeDriver:
    CUresult = CUresult
    CUdevice_attribute = CUfunction_attribute = CUjit_option = CUjitInputType = CUpointer_attribute = _Names()
    CUstreamCaptureMode = CUstreamCaptureStatus = _Names()
    CU_LAUNCH_PARAM_END, CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE = 0, 1, 2

    def __init__(self, devices: int = 1, capability: tuple[int, int] = (9, 0)):
        self.devices, self.capability = devices, capability
        self.current = 0
        self._outer: list[int] = []
        self.memory: dict[int, ctypes.Array] = {}
        self.launches: list[SimpleNamespace] = []
        self.tensor_maps: list[SimpleNamespace] = []
        self.calls: list[str] = []
        self.function_attributes: dict[str, int] = {}
        self.max_dynamic_shared = None
        self.parameter_places: list[tuple[int, int]] = []
        self.functions: dict[int, bytes] = {}
        self.captured: set[int] = set()
        self.loaded: list[str] = []
        """What was assembled, and what modules were loaded from."""
        self.notes = b""
        """What the assembler says of texts that it takes."""
        self.refuses_machine_code = False
        self.version = 13000
        self.streams: list[int] = []
        self.replays: list[tuple[int, list[bytes]]] = []
        """Of graphs: the stream, and the parameters of each launch."""
        self.capture_mode = "CU_STREAM_CAPTURE_MODE_GLOBAL"
        self.capture_mode_of_loading = ""
        self.refuse: list[int] = []
        """Result codes of the next launches."""
        self._launch_ex = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)(self._launched)

    def cuInit(self, flags):
        return (_OK,)

    def cuGetErrorString(self, code):
        return _OK, {218: b"a PTX JIT compilation failed"}.get(code, b"some failure")

    def cuDeviceGetCount(self):
        return _OK, self.devices

    def cuDeviceGet(self, ordinal):
        return _OK, ordinal

    def cuDeviceGetName(self, length, device):
        return _OK, b"Fake H200\0".ljust(length, b"\0")

    def cuDeviceGetAttribute(self, name, device):
        major, minor = self.capability
        values = {
            "COMPUTE_CAPABILITY_MAJOR": major,
            "COMPUTE_CAPABILITY_MINOR": minor,
            "MULTIPROCESSOR_COUNT": 132,
            "MAX_THREADS_PER_BLOCK": 1024,
            "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 232448,
        }
        return _OK, values[name.removeprefix("CU_DEVICE_ATTRIBUTE_")]

    def cuDevicePrimaryCtxRetain(self, device):
        return _OK, _PRIMARY + device

    def cuDevicePrimaryCtxReset(self, device):
        self.calls.append("reset")
        self.memory.clear()
        return (_OK,)

    def cuDevicePrimaryCtxRelease(self, device):
        self.calls.append("release")
        return (_OK,)

    def cuGetProcAddress(self, symbol, version, flags):
        if symbol == b"cuLaunchKernelEx":
            assert (version, flags) == (11080, 0)
            return _OK, ctypes.cast(self._launch_ex, ctypes.c_void_p).value, 0
        assert symbol == b"cuTensorMapEncodeTiled"
        number, pointer = ctypes.c_int, ctypes.c_void_p
        kind = ctypes.CFUNCTYPE(number, pointer, number, ctypes.c_uint32, *[pointer] * 5, *[number] * 4)
        self._encoder = kind(self._encode_tiled)  # kept alive with the driver
        return _OK, ctypes.cast(self._encoder, pointer).value, "SYMBOL_STATUS"

    def _encode_tiled(self, room, dtype, rank, address, sizes, strides, box, steps, *modes):
        """Records what it is asked for; the map's bytes are the address, and all others the element type's
        number."""

        def numbers(kind, at, count):
            return list((kind * count).from_address(at)) if count else []

        assert room % 64 == 0
        self.tensor_maps.append(
            SimpleNamespace(
                dtype=dtype, address=address, sizes=numbers(ctypes.c_uint64, sizes, rank),
                strides=numbers(ctypes.c_uint64, strides, rank - 1),
                box=numbers(ctypes.c_uint32, box, rank), steps=numbers(ctypes.c_uint32, steps, rank),
                modes=modes, context=self.current,
            )
        )  # fmt: skip
        ctypes.memmove(room, struct.pack("<Q", address) + bytes([dtype]) * 120, 128)
        return _OK if address % 16 == 0 else CUresult.CUDA_ERROR_INVALID_VALUE

    def cuCtxGetCurrent(self):
        return _OK, self.current

    def cuCtxSetCurrent(self, context):
        self.current = context
        return (_OK,)

    def cuCtxPushCurrent(self, context):
        self.calls.append("push")
        self._outer.append(self.current)
        self.current = context
        return (_OK,)

    def cuCtxPopCurrent(self):
        self.calls.append("pop")
        popped, self.current = self.current, self._outer.pop()
        return _OK, popped

    def cuMemAlloc(self, nbytes):
        buffer = ctypes.create_string_buffer(nbytes)
        address = ctypes.addressof(buffer)
        self.memory[address] = buffer
        return _OK, address

    def cuMemFree(self, address):
        del self.memory[address]
        return (_OK,)

    def cuMemcpyHtoDAsync(self, destination, source, count, stream):
        ctypes.memmove(destination, source, count)
        return (_OK,)

    cuMemcpyDtoHAsync = cuMemcpyHtoDAsync

    def cuMemsetD8Async(self, address, value, count, stream):
        ctypes.memset(address, value, count)
        return (_OK,)

    def cuStreamSynchronize(self, stream):
        self.calls.append(f"synchronize {stream}")
        return (_OK,)

    def cuModuleLoadDataEx(self, image, count, options, values):
        assert count == len(options) == len(values)
        self.loaded.append("machine code" if image.startswith(CUBIN) else "text")
        if image.startswith(CUBIN):
            if self.refuses_machine_code:
                return CUresult.CUDA_ERROR_NO_BINARY_FOR_GPU, None
            image = image[len(CUBIN) :] + b"\0"
        assert image.endswith(b"\0")
        if b"wrong" in image:
            if options:
                values[options.index("CU_JIT_ERROR_LOG_BUFFER")][:19] = b"line 3: wrong token"
            return CUresult.CUDA_ERROR_INVALID_PTX, None
        self.image, self.capture_mode_of_loading = image, self.capture_mode
        if options:
            self._note(options, values)
        return _OK, image

    def _note(self, options, values):
        """Write what the assembler notes into the buffer for it."""
        values[options.index("CU_JIT_INFO_LOG_BUFFER")][: len(self.notes)] = self.notes

    def cuDriverGetVersion(self):
        return _OK, self.version

    def cuLinkCreate(self, count, options, values):
        return _OK, SimpleNamespace(buffers=(options, values))

    def cuLinkAddData(self, state, kind, image, size, name, count, options, values):
        assert kind == "CU_JIT_INPUT_PTX" and size == len(image)
        if b"wrong" in image:
            return (CUresult.CUDA_ERROR_INVALID_PTX,)
        state.memory = ctypes.create_string_buffer(CUBIN + image[:-1])
        self._note(*state.buffers)
        return (_OK,)

    def cuLinkComplete(self, state):
        self.loaded.append("assembled")
        return _OK, ctypes.addressof(state.memory), len(state.memory) - 1

    def cuLinkDestroy(self, state):
        return (_OK,)

    def cuThreadExchangeStreamCaptureMode(self, mode):
        before, self.capture_mode = self.capture_mode, mode
        return _OK, before

    def cuStreamIsCapturing(self, stream):
        return _OK, f"CU_STREAM_CAPTURE_STATUS_{'ACTIVE' if stream in self.captured else 'NONE'}"

    def cuModuleUnload(self, module):
        self.calls.append("unload")
        return (_OK,)

    def cuModuleGetFunction(self, module, name):
        if name not in module:
            return CUresult.CUDA_ERROR_NOT_FOUND, None
        handle = 0x7000 + 16 * len(self.functions)
        self.functions[handle] = name
        return _OK, handle

    def cuFuncGetAttribute(self, name, function):
        values = {
            "NUM_REGS": 40,
            "SHARED_SIZE_BYTES": 0,
            "LOCAL_SIZE_BYTES": 8,
            "MAX_THREADS_PER_BLOCK": 1024,
        }
        values |= self.function_attributes
        return _OK, values[name.removeprefix("CU_FUNC_ATTRIBUTE_")]

    def cuFuncGetParamInfo(self, function, index):
        name = self.functions[function].decode()
        places = self.parameter_places or natural_places(self.image.decode(), name)
        return (_OK, *places[index])  # asking for one too many is an error

    def cuFuncSetAttribute(self, function, name, value):
        self.max_dynamic_shared = value
        return (_OK,)

    def cuLaunchKernel(self, function, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra):
        packed = b""  # of a kernel without parameters, neither list is needed
        if extra:
            words = (ctypes.c_void_p * 5).from_address(extra)
            assert list(words[0::2]) == [1, 2, None]  # pointer, size, end
            size = ctypes.c_size_t.from_address(words[3]).value
            packed = ctypes.string_at(words[1], size)
        assert not parameters  # no array of arguments
        self.launches.append(
            SimpleNamespace(
                function=function, grid=(gx, gy, gz), block=(bx, by, bz), shared=shared, stream=stream,
                params=packed, context=self.current,
            )
        )  # fmt: skip
        return (_OK if gx else CUresult.CUDA_ERROR_INVALID_VALUE,)

    def _launched(self, config, function, parameters, extra):
        """``cuLaunchKernelEx``, called through its address as C calls it."""
        if self.refuse:
            return self.refuse.pop(0)
        *sizes, stream, attributes, count = struct.unpack("<7I4xQQI", ctypes.string_at(config, 52))
        self.cuLaunchKernel(function, *sizes, stream, parameters, extra)
        self.launches[-1].attributes = [
            ctypes.string_at(attributes + 72 * index, 72) for index in range(count)
        ]
        return 0 if sizes[0] else CUresult.CUDA_ERROR_INVALID_VALUE.value

    def cuStreamCreate(self, flags):
        self.streams.append(0x900 + len(self.streams))
        return _OK, self.streams[-1]

    def cuStreamDestroy(self, stream):
        self.calls.append(f"destroy {stream}")
        return (_OK,)

    def cuStreamBeginCapture(self, stream, mode):
        self.calls.append(f"capture {stream} {mode}")
        self.captured.add(stream)
        self._before_capture = len(self.launches)
        return (_OK,)

    def cuStreamEndCapture(self, stream):
        self.captured.discard(stream)
        taken = self.launches[self._before_capture :]
        if any(launch.stream != stream for launch in taken):
            return CUresult.CUDA_ERROR_INVALID_VALUE, None
        del self.launches[self._before_capture :]
        return _OK, SimpleNamespace(launches=taken)

    def cuGraphInstantiate(self, graph, flags):
        return _OK, graph

    def cuGraphLaunch(self, graph, stream):
        self.replays.append((stream, [launch.params for launch in graph.launches]))
        return (_OK,)

    def cuGraphExecDestroy(self, graph):
        return (_OK,)

    cuGraphDestroy = cuGraphExecDestroy

    def cuEventCreate(self, flags):
        return _OK, SimpleNamespace(stream=None)

    def cuEventRecord(self, event, stream):
        event.stream = stream
        return (_OK,)

    def cuEventSynchronize(self, event):
        return (_OK,)

    def cuEventElapsedTime(self, start, end):
        assert start.stream == end.stream
        return _OK, 0.5

    def cuEventDestroy(self, event):
        return (_OK,)


class Nothing(FakeDriver):
    """A driver whose launch is a foreign function that does nothing: ``memcmp`` of zero bytes (the third
    pointer is null). What is left of a launch is Python's share and the foreign call."""

    def cuGetProcAddress(self, name, version, flags):
        return CUresult.CUDA_SUCCESS, ctypes.cast(ctypes.CDLL(None).memcmp, ctypes.c_void_p).value, 0


def install(monkeypatch, fake: FakeDriver) -> FakeDriver:
    """Put a fake in the driver's place until the test ends.

    What is kept of a driver is kept apart meanwhile: a GPU's tests that follow in the process must not call
    an encoder of the fake.
    """
    for module, name in ((tensor_map, "encode"), (tensor_map, "_encoder"), (cuda, "driver_build")):
        monkeypatch.setattr(module, name, functools.cache(getattr(module, name).__wrapped__))
    for module in (cuda_api, cuda, cuda_launch, jit, tensor_map):
        monkeypatch.setattr(module, "bindings", lambda: fake)
    for module in (cuda_api, cuda, devices):
        monkeypatch.setattr(module, "device_count", lambda: fake.devices)
    made = functools.cache(CudaDevice)  # devices of the fake must not outlive it
    monkeypatch.setattr(devices, "cuda_device", made)
    monkeypatch.setattr(devices, "device", functools.cache(devices.device.__wrapped__))
    monkeypatch.setattr(launcher, "device", devices.device)
    monkeypatch.setattr(devices, "_default", devices._unknown())
    return fake
