"""CUDA graphs: work that is captured once and queued as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ptxforge.driver.cuda_api import bindings, call

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
