"""Timing what a CUDA graph replays: the GPU's own time, without the host's."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ptxforge.driver.cuda import CudaDevice
from ptxforge.driver.graph import CudaGraph
from ptxforge.runtime import hooks, timing
from ptxforge.runtime.devices import default_device


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
        return timing.do_bench(fn, **options)
    fn()
    stream = timing.current_stream(device)
    device.synchronize(stream)
    with CudaGraph(device) as graph:
        with _working_on(graph.stream), graph.capture():
            fn()
        return timing.do_bench(lambda: graph.replay(stream), **options)


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
