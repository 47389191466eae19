"""The shortest road from Python values to ``cuLaunchKernelEx``.

A launch hands the driver three things in memory: the parameters as the kernel expects them, the launch
configuration (``CUlaunchConfig`` of cuda.h: grid, block, shared memory, stream, attributes) and the list
``extra`` that says where the parameters lie. All of it but the values, the grid and the stream is the same in
every launch of a variant, so a *frame* holds it ready, parameters and configuration side by side:

    parameters … | gridDim x y z | blockDim x y z | sharedMemBytes | hStream | attrs | numAttrs
    `------------ one struct.pack_into writes this ------------------------'

What a warm launch costs is therefore one ``pack_into`` and one foreign call of four pointers. The foreign
call gives up the GIL, so a frame belongs to one launch at a time: it is taken from a list and put back, both
atomic; a thread that finds none makes one. A launch with its arguments fixed keeps a packed frame for each
stream, which the driver only reads: one foreign call is left. Of work that is queued again and again a CUDA
graph makes one launch (:class:`CudaGraph`).
"""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import attrs

from ptxforge.driver.cuda_api import bindings, call, describe
from ptxforge.driver.protocol import Checked, parameter_format
from ptxforge.support import programs
from ptxforge.support.errors import DeviceError

if TYPE_CHECKING:
    from ptxforge.driver.cuda import CudaFunction

_COOPERATIVE, _CLUSTER_DIMENSION, _PROGRAMMATIC_SERIALIZATION = 2, 4, 6  # CUlaunchAttributeID
_ATTRIBUTE_BYTES = 72  # CUlaunchAttribute: the id, padding to 8, a union of 64
EX_SINCE = 11080  # the CUDA version that introduced cuLaunchKernelEx

Fire = Callable[[int, int, int, "int | None", tuple, tuple], None]
"""Launches: grid x, y, z; the stream or ``None``; the values to pack; the arguments as they were given."""


@attrs.frozen(slots=True)
class LaunchAttributes:
    """What a launch asks for beside grid and block: all blocks resident at once (``cooperative``), a start
    before the kernel ahead of it has ended (``programmatic``: programmatic dependent launch), blocks in
    clusters of ``cluster`` (x, y, z); grids then count clusters. ``most_programs`` along x are what the
    kernel is for (0: any number)."""

    cooperative: bool = False
    programmatic: bool = False
    cluster: tuple[int, int, int] = (1, 1, 1)
    most_programs: int = 0

    def encoded(self) -> list[bytes]:
        """Each attribute that is set, as a ``CUlaunchAttribute`` of cuda.h."""
        chosen = []
        if self.cooperative:
            chosen.append(struct.pack("<i4xi", _COOPERATIVE, 1))
        if self.cluster != (1, 1, 1):
            chosen.append(struct.pack("<i4x3I", _CLUSTER_DIMENSION, *self.cluster))
        if self.programmatic:
            chosen.append(struct.pack("<i4xi", _PROGRAMMATIC_SERIALIZATION, 1))
        return [attribute.ljust(_ATTRIBUTE_BYTES, b"\0") for attribute in chosen]


@functools.cache
def launch_function(address: int) -> Callable[..., int]:
    """``cuLaunchKernelEx(config, function, kernelParams, extra)`` as a foreign function.

    It declares no parameters: its callers hold the pointers ready as ``byref`` makes them, which ctypes takes
    as they are. With declared parameters each would be looked at again, in every launch.
    """
    return ctypes.CFUNCTYPE(ctypes.c_int)(address)


@attrs.frozen(slots=True)
class CurrentStream:
    """The stream that a library works on now: ``getter(ordinal)``."""

    getter: Callable[[int], int]
    ordinal: int

    def __call__(self, bound: tuple) -> int:
        """The stream's handle, whatever the arguments are."""
        return self.getter(self.ordinal)


def driver_address(name: str, since: int) -> int:
    """Where the driver function ``name`` lies, in the version of CUDA ``since``."""
    return int(call("cuGetProcAddress", name.encode(), since, 0)[0])


Frame = tuple[Any, Any, Any]
"""A buffer, and references to the configuration and to ``extra`` in it, which keep it alive."""

Call = tuple[Callable[..., int], tuple[Any, ...]]
"""A foreign function and its arguments, all there: ``launch(*arguments)`` hands the tuple over as it is,
where ``functools.partial`` would make a new one."""


class FrameLayout:
    """Where everything lies in a frame of one variant."""

    def __init__(
        self,
        codes: list[str],
        places: list[tuple[int, int]],
        block: tuple[int, int, int],
        shared_bytes: int,
        attributes: LaunchAttributes,
    ):
        parameters, self.size = parameter_format(codes, places)
        self.config = self.size + -self.size % 8
        padding = f"{self.config - self.size}x" if self.config > self.size else ""
        self.packer = struct.Struct(f"<{parameters}{padding}III16s4xQ")
        self.fixed = struct.pack("<4I", *block, shared_bytes)
        self.attributes = attributes.encoded()
        self.cluster, self.most_programs = attributes.cluster, attributes.most_programs

    def frame(self) -> Frame:
        """A new frame; its ``extra`` is ``None`` where there are no parameters."""
        driver = bindings()
        extra = self.config + 56 + len(self.attributes) * _ATTRIBUTE_BYTES
        buffer = bytearray(extra + 48)
        first = ctypes.c_char.from_buffer(buffer)  # an array of this size would be a new class of ctypes
        base = ctypes.addressof(first)
        struct.pack_into("<QI4x", buffer, self.config + 40, base + self.config + 56, len(self.attributes))
        for index, attribute in enumerate(self.attributes):
            start = self.config + 56 + index * _ATTRIBUTE_BYTES
            buffer[start : start + _ATTRIBUTE_BYTES] = attribute
        struct.pack_into(
            "<QQQQQQ", buffer, extra,
            int(driver.CU_LAUNCH_PARAM_BUFFER_POINTER), base,
            int(driver.CU_LAUNCH_PARAM_BUFFER_SIZE), base + extra + 40,
            int(driver.CU_LAUNCH_PARAM_END), self.size,
        )  # fmt: skip
        return buffer, ctypes.byref(first, self.config), ctypes.byref(first, extra) if self.size else None


class Launcher:
    """How one variant is launched.

    ``sources`` tell of each parameter its place among the values of a launch (``programs.PLACE``: behind
    them), or make it of these (a tensor map); ``stream`` is the stream of a launch that names none, or tells
    it from the arguments.
    """

    def __init__(
        self,
        function: CudaFunction,
        layout: FrameLayout,
        sources: list[int | Callable[[tuple], Any]],
        stream: int | Callable[[tuple], int],
    ):
        self._layout, self._sources, self._stream = layout, sources, stream
        self._most = function.device.multiprocessors if programs.PLACE in sources else 0
        launch = function.device.launch_kernel
        self._handle = ctypes.c_void_p.from_param(int(function.handle))
        self._again = _Retry(function, launch, self._handle, layout)
        self._launch = launch if function.device.alone else _guarded(function.device, launch)

    def once(self, x: int, y: int, z: int, stream: int | None, values: tuple, bound: tuple) -> None:
        """Launch, without anything made for the launches that may follow."""
        if stream is None:
            stream = self.current_stream(bound)
        frame = self._layout.frame()
        self.pack(frame, x, y, z, stream, values)
        self.launch(frame, (x, y, z))

    def current_stream(self, bound: tuple) -> int:
        """The stream of a launch that names none."""
        return self._stream(bound) if callable(self._stream) else self._stream

    def new_frame(self) -> Frame:
        """A frame to be packed."""
        return self._layout.frame()

    def pack(self, frame: Frame, x: int, y: int, z: int, stream: int, values: tuple) -> None:
        """Write all that a launch decides into a frame. Raises :class:`OtherVariantError` where another
        variant has to be launched."""
        programs.check_count(x, self._layout.most_programs)
        if self._most:
            values = (*values, x)
            x, y, z = programs.blocks((x, y, z), self._most)
        taken = [source(values) if callable(source) else values[source] for source in self._sources]
        along_x, along_y, along_z = self._layout.cluster
        blocks = x * along_x, y * along_y, z * along_z
        self._layout.packer.pack_into(frame[0], 0, *taken, *blocks, self._layout.fixed, stream)

    @property
    def one_stream(self) -> int | None:
        """The stream of all launches that name none, where it is always the same."""
        return self._stream if isinstance(self._stream, int) else None

    def stream_now(self, bound: tuple) -> Callable[[], int]:
        """:meth:`current_stream` for arguments that stay the same, in one call of C where it can be."""
        if isinstance(self._stream, CurrentStream):
            return functools.partial(self._stream.getter, self._stream.ordinal)
        return functools.partial(self.current_stream, bound)

    def call_of(self, frame: Frame) -> Call:
        """What launches a packed frame; it returns the driver's result."""
        return self._launch, (frame[1], self._handle, None, frame[2])

    def launch(self, frame: Frame, grid: tuple[int, int, int], code: int | None = None) -> None:
        """Launch a packed frame, or deal with the ``code`` of a launch that failed. Raises
        :class:`DeviceError` when the driver refuses."""
        _, config, extra = frame
        if code is None:
            code = self._launch(config, self._handle, None, extra)
        if code:
            self._again(code, config, extra, grid)

    def fire(self, on_any_grid: Fire) -> Fire:
        """The function of launches that are many; larger grids than the kernel is for go to ``on_any_grid``.
        For ``sources == [0, encode]``, a :class:`CurrentStream` and up to 2,097,152 programs its text is

            def fire(gx, gy, gz, stream, v, bound):
                if gx > 2097152:
                    return _on_any_grid(gx, gy, gz, stream, v, bound)
                if stream is None:
                    stream = _current(_ordinal)
                try:
                    frame = _pop()
                except IndexError:
                    frame = _frame()
                buffer, config, extra = frame
                _pack(buffer, 0, v[0], _source1(v), gx, gy, gz, _fixed, stream)
                code = _launch(config, _handle, None, extra)
                if code:
                    _again(code, config, extra, (gx, gy, gz))
                _append(frame)
        """
        free: list[Frame] = []
        layout, stream = self._layout, self._stream
        made = {f"_source{n}": source for n, source in enumerate(self._sources) if callable(source)}
        values = "".join(f"{_taken(source, f'_source{n}')}, " for n, source in enumerate(self._sources))
        default = "_stream(bound)" if callable(stream) else "_stream"
        if isinstance(stream, CurrentStream):
            default = "_current(_ordinal)"
            made |= {"_current": stream.getter, "_ordinal": stream.ordinal}
        blocks = ", ".join(
            name if along == 1 else f"{name} * {along}"
            for name, along in zip(("gx", "gy", "gz"), layout.cluster)
        )
        if self._most:
            blocks = f"gx if gx < {self._most} or gy * gz != 1 else {self._most}, gy, gz"
        most = layout.most_programs
        larger = f"    if gx > {most}:\n        return _on_any_grid(gx, gy, gz, stream, v, bound)\n"
        text = (
            "def fire(gx, gy, gz, stream, v, bound):\n"
            f"{larger if most else ''}"
            f"    if stream is None:\n        stream = {default}\n"
            "    try:\n        frame = _pop()\n    except IndexError:\n        frame = _frame()\n"
            "    buffer, config, extra = frame\n"
            f"    _pack(buffer, 0, {values}{blocks}, _fixed, stream)\n"
            "    code = _launch(config, _handle, None, extra)\n"
            "    if code:\n        _again(code, config, extra, (gx, gy, gz))\n"
            "    _append(frame)\n"
        )
        scope = {
            "_stream": stream, "_pop": free.pop, "_append": free.append, "_frame": layout.frame,
            "_pack": layout.packer.pack_into, "_fixed": layout.fixed, "_handle": self._handle,
            "_launch": self._launch, "_again": self._again, "_on_any_grid": on_any_grid, **made,
        }  # fmt: skip
        exec(text, scope)
        return scope["fire"]


def _taken(source: int | Callable[[tuple], Any], name: str) -> str:
    """The expression of a parameter's value among those of a launch, ``v``; ``source`` is called ``name``."""
    if isinstance(source, Checked):
        return source.text(name)
    return f"{name}(v)" if callable(source) else "gx" if source == programs.PLACE else f"v[{source}]"


def _guarded(device: Any, launch: Callable[..., int]) -> Callable[..., int]:
    """The launch with the device's context current, on a machine where another device's may be."""

    def guarded(*arguments: Any) -> int:
        with device.current():
            return launch(*arguments)

    return guarded


class _Retry:
    """What follows a refused launch: once more in the device's context, if this thread was in none or in a
    foreign one; then the error."""

    def __init__(self, function: CudaFunction, launch: Callable[..., int], handle: Any, layout: FrameLayout):
        self._function, self._launch, self._handle, self._layout = function, launch, handle, layout

    def __call__(self, code: int, config: Any, extra: Any, grid: tuple[int, int, int]) -> None:
        device = self._function.device
        if device.alone:
            with device.current():
                code = self._launch(config, self._handle, None, extra)
        if not code:
            return
        *block, shared = struct.unpack("<4I", self._layout.fixed)
        driver = bindings()
        raise DeviceError(
            f"launching '{self._function.name}' failed: {describe(driver, driver.CUresult(code))}\n"
            f"grid {grid}, block {tuple(block)}, {shared} bytes of dynamic shared memory"
        )


if TYPE_CHECKING:
    from ptxforge.driver.cuda import CudaDevice


class CudaGraph:
    """What was queued on ``stream`` inside :meth:`capture`. Use it in a ``with`` statement.

    Raises :class:`DeviceError` when the driver refuses, for instance to capture what waits or allocates.
    """

    def __init__(self, device: CudaDevice):
        self._device = device
        self._graph = self._ready = None

    def __enter__(self) -> CudaGraph:
        with self._device.current():
            self._stream = call("cuStreamCreate", 0)
        self.stream = int(self._stream)
        return self

    def __exit__(self, *error: object) -> None:
        with self._device.current():
            if self._ready is not None:
                call("cuGraphExecDestroy", self._ready)
            if self._graph is not None:
                call("cuGraphDestroy", self._graph)
            call("cuStreamDestroy", self._stream)

    @contextmanager
    def capture(self) -> Iterator[None]:
        """What is queued on :attr:`stream` inside goes into the graph, and does not run."""
        mode = bindings().CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        with self._device.current():
            call("cuStreamBeginCapture", self._stream, mode)
            try:
                yield
            finally:
                self._graph = call("cuStreamEndCapture", self._stream)
            self._ready = call("cuGraphInstantiate", self._graph, 0)

    def replay(self, stream: int = 0) -> None:
        """Queue all that was captured on a stream."""
        with self._device.current():
            call("cuGraphLaunch", self._ready, stream)
