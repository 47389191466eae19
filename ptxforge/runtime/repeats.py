"""Launches that are made again exactly as they were: same arrays, same numbers, same grid, same stream.

A training step, a decoder, a captured function launch a kernel with the same arguments thousands of times,
because memory comes from pools and sizes stay. What such a launch hands to the driver was packed the last
time. A plan therefore keeps launches by all that decides them: address, element type and device of each
array, every number, the constants, the options, the stream that torch works on, the grid. Hashing all that
takes longer than comparing it, so the latest one with the same address of the last array is tried first.

Only what is seen twice is kept, so that arguments that are always new cost a look-up; where hardly anything
repeats, a plan stops looking for some thousands of launches.
"""

from __future__ import annotations

from ptxforge.runtime.launcher import PreparedLaunch
from ptxforge.support.tensor_map import TensorMapError

MOST = 256
"""Launches that a plan keeps; then it begins again."""
_WORTH = MOST // 8
"""So many of them must have been repeated, or the plan stops looking for repetitions."""
PAUSE = 16 * MOST
"""So many launches later it looks again: a program may have begun to do another thing."""


class Repeats(dict):
    """By all that decides a launch: ``None`` for what was launched once, else a :class:`Repeat`.

    ``is_on`` tells whether to look at all: ``None`` until a launch showed that it goes to a GPU.
    ``by_address`` has the launch that was repeated last for each address of the last array.
    """

    __slots__ = ("is_on", "by_address", "_impossible", "_passed")

    def __init__(self) -> None:
        super().__init__()
        self.is_on: bool | None = None
        self.by_address: dict[int, Repeat] = {}
        self._impossible: set[tuple] = set()
        self._passed = 0

    def pass_over(self, prepared: PreparedLaunch) -> None:
        """Take notice of a launch that was not looked for: begin to look after the first one on a GPU, and
        again after a pause."""
        if self.is_on is None and prepared.launcher is not None:
            self.is_on = True
        elif self.is_on is False:
            self._passed += 1
            if self._passed >= PAUSE:
                self._passed, self.is_on = 0, True

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
        elif prepared.launcher is not None and exact not in self._impossible:
            try:
                self[exact] = Repeat(exact, prepared, grid, stream, values, bound)
            except TensorMapError:  # another variant was launched in this one's place
                self._impossible.add(exact)

    def _begin_anew(self) -> None:
        self.is_on = sum(found is not None for found in self.values()) >= _WORTH
        self.clear()

    def clear(self) -> None:
        """Forget all launches."""
        super().clear()
        self.by_address.clear()
        self._impossible.clear()


class Repeat:
    """One launch, packed: ``launch(*arguments)`` is the foreign call, whose result is the driver's code.
    ``exact`` is all that decides it. ``device`` is the default device that it follows, ``None`` where its
    arguments say where they are."""

    __slots__ = ("exact", "variant", "device", "launch", "arguments", "_launcher", "_grid", "_frame")

    def __init__(
        self,
        exact: tuple,
        prepared: PreparedLaunch,
        grid: tuple[int, int, int],
        stream: int | None,
        values: tuple,
        bound: tuple,
    ):
        self.exact, self.variant = exact, prepared.variant
        self.device = prepared.device if prepared.follows_default else None
        launcher = self._launcher = prepared.launcher
        self._grid, self._frame = grid, launcher.new_frame()
        launcher.pack(
            self._frame, *grid, launcher.current_stream(bound) if stream is None else stream, values
        )
        self.launch, self.arguments = launcher.call_of(self._frame)

    def fail(self, code: int) -> None:
        """Deal with a launch that the driver refused. Raises :class:`DeviceError` where it stays so."""
        self._launcher.launch(self._frame, self._grid, code)
