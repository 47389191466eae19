"""How long a launch takes.

On a GPU: events of the driver around each run, on the stream that the work is queued on, and the L2 cache
flushed before each run, because a kernel that finds its input in the cache of the run before looks faster
than it is. On the emulator: the wall clock of a few runs, good for comparing and for nothing else.

What a CUDA graph replays takes the GPU's own time, without the host's.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ptxforge.driver import arrays
from ptxforge.driver.cuda import CudaDevice
from ptxforge.driver.cuda_launch import CudaGraph
from ptxforge.driver.protocol import Device
from ptxforge.runtime import hooks
from ptxforge.runtime.devices import default_device
from ptxforge.support.errors import PtxforgeError

FLUSH_BYTES = 256 << 20  # more than any GPU's L2 cache
_ESTIMATE_RUNS = 5
MAX_RUNS = 2000
_MODES: dict[str, Callable[[np.ndarray], Any]] = {
    "mean": np.mean,
    "median": np.median,
    "min": np.min,
    "max": np.max,
}


def do_bench(
    fn: Callable[[], Any],
    warmup: float = 25,
    rep: float = 100,
    grad_to_none: Iterable[Any] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
) -> Any:
    """Milliseconds that ``fn`` takes, on the default device.

    ``warmup`` and ``rep`` are the milliseconds to spend before and while measuring. With ``quantiles`` the
    result is a list, one figure for each; else ``return_mode`` says what it is: ``mean``, ``median``,
    ``min``, ``max`` or ``all`` (the list of all runs). The gradients of the tensors in ``grad_to_none`` are
    dropped before each run.

    Raises :class:`PtxforgeError` for another ``return_mode``.
    """
    runs = measure(fn, warmup, rep, grad_to_none)
    if quantiles is not None:
        figures = [float(figure) for figure in np.quantile(runs, quantiles)]
        return figures[0] if len(figures) == 1 else figures
    if return_mode == "all":
        return runs
    if return_mode not in _MODES:
        raise PtxforgeError(f"return_mode is one of {', '.join(_MODES)} and all, not '{return_mode}'")
    return float(_MODES[return_mode](runs))


def measure(
    fn: Callable[[], Any], warmup: float = 25, rep: float = 100, grad_to_none: Iterable[Any] | None = None
) -> list[float]:
    """Milliseconds of each of many runs of ``fn``."""
    gradients = tuple(grad_to_none or ())

    def prepare() -> None:
        for tensor in gradients:
            tensor.grad = None

    device = default_device()
    if isinstance(device, CudaDevice):
        return _measure_cuda(device, fn, warmup, rep, prepare)
    return _measure_host(device, fn, warmup, rep, prepare)


class Session:
    """Timing of many functions in turn: one buffer to flush the cache with, one pair of events, one stream.

    Use it in a ``with`` statement. On a device without events the wall clock is read.
    """

    def __init__(self, device: Device):
        self._device = device
        self._is_cuda = isinstance(device, CudaDevice)

    def __enter__(self) -> Session:
        if self._is_cuda:
            self._stream = current_stream(self._device)
            self._scratch = self._device.allocate(FLUSH_BYTES)
            self._events = self._device.event(), self._device.event()
        return self

    def __exit__(self, *error: object) -> None:
        if self._is_cuda:
            self._device.free(self._scratch)

    def time(self, before: Callable[[], Any], fn: Callable[[], Any], after: Callable[[Any], None]) -> float:
        """Milliseconds of one run of ``fn``. ``before()`` and ``after(what before gave)`` prepare and clean
        up, and are not timed."""
        kept = before()
        try:
            return self._by_events(fn) if self._is_cuda else self._by_the_clock(fn)
        finally:
            after(kept)

    def _by_events(self, fn: Callable[[], Any]) -> float:
        start, end = self._events
        self._device.fill_bytes(self._scratch, 0, FLUSH_BYTES, self._stream)
        start.record(self._stream)
        fn()
        end.record(self._stream)
        end.synchronize()
        return end.milliseconds_since(start)

    def _by_the_clock(self, fn: Callable[[], Any]) -> float:
        start = time.perf_counter()
        fn()
        self._device.synchronize()
        return (time.perf_counter() - start) * 1e3


def _measure_cuda(
    device: CudaDevice, fn: Callable, warmup: float, rep: float, prepare: Callable[[], None]
) -> list[float]:
    stream = current_stream(device)
    fn()
    device.synchronize(stream)
    scratch = device.allocate(FLUSH_BYTES)
    try:
        (estimate,) = _timed_by_events(device, stream, 1, lambda: None, lambda: _repeat(fn, _ESTIMATE_RUNS))
        each = max(estimate / _ESTIMATE_RUNS, 1e-3)
        _repeat(fn, max(1, int(warmup / each)))

        def fresh() -> None:
            prepare()
            device.fill_bytes(scratch, 0, FLUSH_BYTES, stream)

        return _timed_by_events(device, stream, min(MAX_RUNS, max(1, int(rep / each))), fresh, fn)
    finally:
        device.free(scratch)


def current_stream(device: CudaDevice) -> int:
    """torch's current stream where torch works on the GPU, else the default stream."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return arrays.torch_stream(device.ordinal)
    return arrays.LEGACY_STREAM


def _timed_by_events(
    device: CudaDevice, stream: int, count: int, before: Callable[[], None], fn: Callable[[], Any]
) -> list[float]:
    pairs = [(device.event(), device.event()) for _ in range(count)]
    for start, end in pairs:
        before()
        start.record(stream)
        fn()
        end.record(stream)
    device.synchronize(stream)
    return [end.milliseconds_since(start) for start, end in pairs]


def _repeat(fn: Callable[[], Any], count: int) -> None:
    for _ in range(count):
        fn()


def _measure_host(
    device: Device, fn: Callable, warmup: float, rep: float, prepare: Callable[[], None]
) -> list[float]:
    """At least one run to warm up and one to measure; as many as fit in the time."""
    for milliseconds in (warmup, rep):
        runs: list[float] = []
        end = time.perf_counter() + milliseconds / 1e3
        while not runs or (time.perf_counter() < end and len(runs) < MAX_RUNS):
            prepare()
            start = time.perf_counter()
            fn()
            device.synchronize()
            runs.append((time.perf_counter() - start) * 1e3)
    return runs


def do_bench_cudagraph(
    fn: Callable[[], Any],
    rep: float = 20,
    grad_to_none: Iterable[Any] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
) -> Any:
    """Milliseconds that ``fn`` takes when it is replayed from a CUDA graph, told as :func:`ptxforge.do_bench`
    tells them: no time of the host is in it.

    ``fn`` is called once as it is, which compiles and loads what it needs, and once while its launches are
    captured; those that name no stream go into the graph. Where torch works on the GPU its stream is the
    captured one, and its own work is captured too. On the emulator this is ``do_bench``.

    Raises :class:`DeviceError` when something in ``fn`` cannot be captured.
    """
    device = default_device()
    options = {"rep": rep, "grad_to_none": grad_to_none, "quantiles": quantiles, "return_mode": return_mode}
    if not isinstance(device, CudaDevice):
        return do_bench(fn, **options)
    fn()
    stream = current_stream(device)
    device.synchronize(stream)
    with CudaGraph(device) as graph:
        with _working_on(graph.stream), graph.capture():
            fn()
        return do_bench(lambda: graph.replay(stream), **options)


@contextlib.contextmanager
def _working_on(stream: int) -> Iterator[None]:
    """Launches that name no stream go to this one, and torch's work."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        with hooks.on_stream(stream):
            yield
        return
    with torch.cuda.stream(torch.cuda.ExternalStream(stream)), hooks.on_stream(stream):
        yield
