"""Launches that are made again exactly as they were: same arrays, same numbers, same grid.

A training step, a decoder, a captured function launch a kernel with the same arguments thousands of times,
because memory comes from pools and sizes stay. What such a launch hands to the driver was packed the last
time. A plan therefore keeps the calls of launches by all that decides them: address, element type and device
of each array, every number, the constants, the options, the grid; the stream is asked for each time.

Only what is seen twice is kept, so that arguments that are always new cost a look-up; where hardly anything
ever repeats, a plan stops looking.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from ptxforge.driver.cuda_launch import Frame
from ptxforge.runtime.launcher import PreparedLaunch
from ptxforge.support.tensor_map import TensorMapError

MOST = 256
"""Launches that a plan keeps; then it begins anew."""
_WORTH = MOST // 8
"""So many of them must have been repeated, or the plan stops looking for repetitions."""
_MOST_STREAMS = 64


class Repeats(dict):
    """By all that decides a launch: ``None`` for what was launched once, else a :class:`Repeat`.

    ``is_on`` tells whether to look at all.
    """

    __slots__ = ("is_on",)

    def __init__(self) -> None:
        super().__init__()
        self.is_on = True

    def note(
        self,
        exact: tuple,
        prepared: PreparedLaunch,
        grid: tuple[int, int, int],
        stream: int | None,
        values: tuple,
        bound: tuple,
    ) -> None:
        """Take notice of a launch that was made the ordinary way."""
        if exact not in self:
            if len(self) >= MOST:
                self._begin_anew()
            if self.is_on:
                self[exact] = None
            return
        found = self[exact]
        if found is not None and found.prepared is prepared:
            found.add_stream()
        elif prepared.launcher is not None:
            self[exact] = Repeat(prepared, grid, stream, values, bound)

    def _begin_anew(self) -> None:
        self.is_on = sum(found is not None for found in self.values()) >= _WORTH
        self.clear()


class Repeat:
    """One launch, packed for each stream that it was made on. ``calls`` are by stream; ``stream_now()`` tells
    it; ``call`` is the only one, where the stream is always the same. ``device`` is the default device that
    it follows, ``None`` where its arguments say where they are."""

    __slots__ = ("prepared", "variant", "device", "call", "calls", "stream_now", "is_possible",
                 "_frames", "_grid", "_values", "_is_on_one_stream")  # fmt: skip

    def __init__(
        self,
        prepared: PreparedLaunch,
        grid: tuple[int, int, int],
        stream: int | None,
        values: tuple,
        bound: tuple,
    ):
        self.prepared, self.variant = prepared, prepared.variant
        self.device = prepared.device if prepared.follows_default else None
        self._grid, self._values = grid, values
        self.is_possible = True
        self._frames: dict[int, Frame] = {}
        self.calls: dict[int, Callable[[], int]] = {}
        launcher, self.call = prepared.launcher, None
        self._is_on_one_stream = stream is not None or launcher.has_one_stream
        self.stream_now = launcher.stream_now(bound) if stream is None else functools.partial(int, stream)
        self.add_stream()

    def add_stream(self) -> None:
        """Pack for the present stream."""
        if not self.is_possible:
            return
        if len(self._frames) >= _MOST_STREAMS:
            self._frames.clear()
            self.calls.clear()
        stream, launcher = self.stream_now(), self.prepared.launcher
        frame = launcher.new_frame()
        try:
            launcher.pack(frame, *self._grid, stream, self._values)
        except TensorMapError:  # another variant was launched in this one's place
            self.is_possible = False
            return
        self._frames[stream] = frame
        self.calls[stream] = call = launcher.call_of(frame)
        self.call = call if self._is_on_one_stream else None

    def fail(self, code: int) -> None:
        """Deal with a launch that the driver refused. Raises :class:`DeviceError` where it stays so."""
        self.prepared.launcher.launch(self._frames[self.stream_now()], self._grid, code)
