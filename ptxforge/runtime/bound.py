"""A launch with its arguments fixed, and launches that are made again exactly as they were.

A training step, a decoder, a captured function launch a kernel with the same arguments thousands of times,
because memory comes from pools and sizes stay. What such a launch hands to the driver was packed the last
time. A plan therefore keeps launches by all that decides them: address, element type and device of each
array, every number, the constants, the options, the stream that torch works on, the grid. Hashing all that
takes longer than comparing it, so the latest one with the same address of the last array is tried first.

Only what is seen twice is kept, so that arguments that are always new cost a look-up; where hardly anything
repeats, a plan stops looking for some thousands of launches.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ptxforge.driver.cuda_launch import Call, Frame
from ptxforge.runtime import hooks, options
from ptxforge.runtime.devices import Following, default_device
from ptxforge.runtime.launcher import PreparedLaunch, normalize_grid
from ptxforge.runtime.specialize import Keys
from ptxforge.support.errors import ArgumentError, DeviceError, OtherVariantError

if TYPE_CHECKING:
    from ptxforge.runtime.jit import JITFunction


MOST = 256
"""Launches that a plan keeps; then it begins again."""
_WORTH = MOST // 8
"""So many of them must have been repeated, or the plan stops looking for repetitions."""
PAUSE = 16 * MOST
"""So many launches later it looks again: a program may have begun to do another thing."""


class Repeats(dict):
    """By all that decides a launch: ``None`` for what was launched once, else a :class:`Repeat`.

    ``is_on`` tells whether to look at all: ``None`` until a launch showed that it goes to a GPU. ``before``
    is the launch that was repeated last, ``by_address`` has that for each address of the last array.
    ``addresses`` are the places of arrays among the values of a launch.
    """

    __slots__ = ("is_on", "before", "by_address", "_addresses", "_impossible", "_passed")

    def __init__(self, addresses: list[int]) -> None:
        super().__init__()
        self._addresses = addresses
        self.is_on: bool | None = None
        self.before: Repeat | type[_Nothing] = _Nothing
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
            if any(values[index] == 0 for index in self._addresses):
                self._impossible.add(exact)  # arrays without elements have no address that tells them apart
                return
            try:
                self[exact] = Repeat(exact, prepared, grid, stream, values, bound)
            except OtherVariantError:  # another variant was launched in this one's place
                self._impossible.add(exact)

    def _begin_anew(self) -> None:
        self.is_on = sum(found is not None for found in self.values()) >= _WORTH
        self.clear()

    def clear(self) -> None:
        """Forget all launches."""
        super().clear()
        self.before = _Nothing
        self.by_address.clear()
        self._impossible.clear()


class _Nothing:
    """Stands for a launch that none is a repetition of."""

    exact = object()  # no grid is that


class Repeat(Following):
    """One launch, packed: ``launch(*arguments)`` is the foreign call, whose result is the driver's code.
    ``exact`` is all that decides it. Without arrays it follows the default device."""

    __slots__ = ("exact", "variant", "launch", "arguments", "_launcher", "_grid", "_frame")

    def __init__(
        self,
        exact: tuple,
        prepared: PreparedLaunch,
        grid: tuple[int, int, int],
        stream: int | None,
        values: tuple,
        bound: tuple,
    ):
        super().__init__(prepared.device if prepared.follows_default else None)
        self.exact, self.variant = exact, prepared.variant
        launcher = self._launcher = prepared.launcher
        self._grid, self._frame = grid, launcher.new_frame()
        launcher.pack(
            self._frame, *grid, launcher.current_stream(bound) if stream is None else stream, values
        )
        self.launch, self.arguments = launcher.call_of(self._frame)

    def fail(self, code: int) -> None:
        """Deal with a launch that the driver refused. Raises :class:`DeviceError` where it stays so."""
        self._launcher.launch(self._frame, self._grid, code)


_MOST_FRAMES = 64
"""At most so many frames are kept: a program may make a stream for each launch."""


class _Now:
    """What a call of a bound launch looks at: ``calls``, by stream, launch as things are; ``stream`` is that
    of every call (``None``: ``current()`` tells it), ``follows`` the device that has to be the default one.
    ``owner`` is weak: GPU memory must not wait for the collector of cycles."""

    __slots__ = ("calls", "stream", "current", "follows", "always_settles", "owner")

    calls: dict[int, Call]
    stream: int | None
    current: Callable[[], int]
    follows: Any
    always_settles: bool
    owner: Callable[[], BoundLaunch | None]


def _caller(now: _Now, compiled_in: list) -> Callable[[], None]:
    """What a bound launch does when it is called."""
    launch_hooks = hooks.LAUNCH

    def call() -> None:
        if compiled_in or launch_hooks or now.always_settles:
            return now.owner()._launch()
        if now.follows is not None and now.follows is not default_device():
            return now.owner()._launch()
        stream = now.stream
        if stream is None:
            stream = now.current()
        known = now.calls.get(stream)
        if known is None:
            return now.owner()._launch()
        launch, arguments = known
        code = launch(*arguments)
        if code:
            now.owner()._fail(stream, code)

    return call


class BoundLaunch(functools.partial):
    """What :meth:`JITFunction.bind` gives. Calling it launches; it keeps its arguments alive.

    ``grid`` (as for a launch, no function) and ``stream`` can be assigned, arguments changed by
    :meth:`update`. Launching from several threads at once is safe, changing it meanwhile is not.

    (It is a ``partial`` because Python calls one without a look at its class, in half the time of a
    ``__call__``.)
    """

    def __new__(cls, kernel: JITFunction, grid: Any, arguments: tuple, given: dict[str, Any]) -> BoundLaunch:
        now = _Now()
        made = super().__new__(cls, _caller(now, kernel._globals))
        made._now, now.owner = now, weakref.ref(made)
        return made

    def __init__(self, kernel: JITFunction, grid: Any, arguments: tuple, given: dict[str, Any]):
        self.kernel = kernel
        self._arguments = arguments
        self._stream = options.stream_handle(given.pop("stream", None))
        self._given = given
        self._keys = [Keys(parameter) for parameter in kernel.params]
        self._places = {parameter.name: parameter.index for parameter in kernel.params}
        self._globals = kernel._globals
        self._calls = self._now.calls = {}
        self._frames: dict[int, Frame] = {}  # by stream: what the driver is handed, perhaps out of date
        self._prepare()
        if callable(grid):
            grid = grid(self.arguments | given)
        self.grid = grid

    def __repr__(self) -> str:
        return f"<BoundLaunch of {self.kernel.__name__} on {self._grid}>"

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments by name, as they were given."""
        return dict(zip(self.kernel.arg_names, self._arguments, strict=True))

    @property
    def variant(self) -> Any:
        """The compiled variant that is launched."""
        return self._prepared.variant

    @property
    def grid(self) -> tuple[int, int, int]:
        """The grid (x, y, z)."""
        return self._grid

    @grid.setter
    def grid(self, grid: Any) -> None:
        self._grid = normalize_grid(grid)
        self._calls.clear()

    @property
    def stream(self) -> int | None:
        """The stream's handle; ``None``: the one that the arguments' owner works on at each launch."""
        return self._stream

    @stream.setter
    def stream(self, stream: Any) -> None:
        self._stream = options.stream_handle(stream)
        self._choose_stream()

    def update(self, **changes: Any) -> BoundLaunch:
        """Change arguments by name. A value of the same specialisation (type, alignment, the value 1) costs
        a few microseconds, with the packing at the next launch; another one compiles what it needs.

        Raises :class:`ArgumentError` for a name that is no parameter and for a value that cannot be passed.
        """
        arguments, classes, values = list(self._arguments), list(self._classes), list(self._values)
        for name, value in changes.items():
            index = self._places.get(name)
            if index is None:
                known = options.nearest(name, tuple(self._places))
                raise ArgumentError(f"'{self.kernel.__name__}' has no such parameter{known}", name)
            kind = type(value)
            key, values[index] = self._keys[index][kind](value)
            arguments[index], classes[index] = value, (key, kind)
        changed = tuple(arguments)
        if classes != self._classes:
            self._set_prepared(self.kernel._miss(changed, self._given))
        self._arguments, self._classes, self._values = changed, classes, tuple(values)
        self._follow_arguments()
        return self

    def _prepare(self) -> None:
        self._set_prepared(self.kernel._miss(self._arguments, self._given))
        self._classes, self._values = self._specialized()
        self._follow_arguments()

    def _follow_arguments(self) -> None:
        self._calls.clear()
        launcher = self._launcher
        self._now.current = int if launcher is None else launcher.stream_now(self._arguments)
        self._choose_stream()

    def _choose_stream(self) -> None:
        """The stream of every launch; ``None`` where that has to be asked each time."""
        always = self._stream
        if always is None and self._launcher is not None:
            always = self._launcher.one_stream
        self._now.stream = always

    def _set_prepared(self, prepared: PreparedLaunch) -> None:
        launcher = self._launcher = prepared.launcher
        self._prepared = prepared
        self._now.follows = prepared.device if prepared.follows_default and launcher is not None else None
        self._now.always_settles = prepared.volatile and launcher is None
        self._frames.clear()

    def _specialized(self) -> tuple[list, tuple]:
        """Of each argument what tells specialisations apart, and the value to pack."""
        made = [keys[type(value)](value) for keys, value in zip(self._keys, self._arguments, strict=True)]
        classes = [(key, type(v)) for (key, _), v in zip(made, self._arguments, strict=True)]
        return classes, tuple(value for _, value in made)

    def _launch(self) -> None:
        """Launch where something has to be looked at or packed first."""
        self._settle()
        if 0 in self._grid:
            return
        prepared, launcher = self._prepared, self._launcher
        try:
            if hooks.LAUNCH:
                hooks.fire(prepared, self._grid, self._stream, self._values, self._arguments)
            elif launcher is None:
                prepared.fire(*self._grid, self._stream, self._values, self._arguments)
            else:
                launcher.launch(self._packed(), self._grid)
        except OtherVariantError:  # these arguments make no tensor map, or the grid is too large
            prepared.fire(*self._grid, self._stream, self._values, self._arguments)
        except (OverflowError, hooks.PackingError, DeviceError) as error:
            raise self.kernel._refused(error, prepared, self._values, self._grid) from None

    def _fail(self, stream: int, code: int) -> None:
        """Deal with a launch that the driver refused."""
        self._launcher.launch(self._frames[stream], self._grid, code)

    def _settle(self) -> None:
        """Prepare again after another device was chosen, or something that was compiled in means another
        thing now."""
        prepared = self._prepared
        if prepared.volatile and prepared.is_stale():
            self._prepare()
        if self._globals:
            self.kernel._check_globals()
            if not self._globals:
                self._prepare()

    def _packed(self) -> Frame:
        """The frame for the stream that is to be launched on."""
        launcher, stream = self._launcher, self._now.stream
        if stream is None:
            stream = self._now.current()
        if stream in self._calls:
            return self._frames[stream]
        if len(self._frames) >= _MOST_FRAMES:
            self._calls.clear()
            self._frames.clear()
        frame = self._frames.get(stream) or launcher.new_frame()
        launcher.pack(frame, *self._grid, stream, self._values)
        self._frames[stream] = frame
        self._calls[stream] = launcher.call_of(frame)
        return frame
