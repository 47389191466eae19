"""A launch with its arguments fixed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ptxforge.driver.cuda_launch import Call, Frame
from ptxforge.runtime import hooks, options
from ptxforge.runtime.launcher import PreparedLaunch, normalize_grid
from ptxforge.runtime.specialize import Keys
from ptxforge.support.errors import ArgumentError, DeviceError
from ptxforge.support.tensor_map import TensorMapError

if TYPE_CHECKING:
    from ptxforge.runtime.jit import JITFunction

_MOST_FRAMES = 64
"""At most so many frames are kept: a program may make a stream for each launch."""


class BoundLaunch:
    """What :meth:`JITFunction.bind` gives. Calling it launches; it keeps its arguments alive.

    ``grid`` (as for a launch, no function) and ``stream`` can be assigned, arguments changed by
    :meth:`update`. Launching from several threads at once is safe, changing it meanwhile is not.
    """

    def __init__(self, kernel: JITFunction, grid: Any, arguments: tuple, given: dict[str, Any]):
        self.kernel = kernel
        self._arguments = arguments
        self.stream = given.pop("stream", None)
        self._given = given
        self._keys = [Keys(parameter) for parameter in kernel.params]
        self._places = {parameter.name: parameter.index for parameter in kernel.params}
        self._globals = kernel._globals
        self._calls: dict[int, Call] = {}  # by stream: what launches as things are
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
        self._stream_now = int if launcher is None else launcher.stream_now(self._arguments)

    def _set_prepared(self, prepared: PreparedLaunch) -> None:
        self._prepared = prepared
        self._launcher = prepared.launcher
        self._frames.clear()

    def _specialized(self) -> tuple[list, tuple]:
        """Of each argument what tells specialisations apart, and the value to pack."""
        made = [keys[type(value)](value) for keys, value in zip(self._keys, self._arguments, strict=True)]
        classes = [(key, type(v)) for (key, _), v in zip(made, self._arguments, strict=True)]
        return classes, tuple(value for _, value in made)

    def __call__(self) -> None:
        """Launch. Raises what a launch raises."""
        prepared = self._prepared
        if self._globals or hooks.LAUNCH or (prepared.volatile and prepared.is_stale()):
            return self._launch()
        stream = self._stream
        if stream is None:
            stream = self._stream_now()
        call = self._calls.get(stream)
        if call is None:
            return self._launch()
        launch, arguments = call
        code = launch(*arguments)
        if code:
            self._launcher.launch(self._frames[stream], self._grid, code)

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
        except TensorMapError:  # these arguments make none
            prepared.fire(*self._grid, self._stream, self._values, self._arguments)
        except (OverflowError, hooks.PackingError, DeviceError) as error:
            raise self.kernel._refused(error, prepared, self._values, self._grid) from None

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
        launcher, stream = self._launcher, self._stream
        if stream is None:
            stream = self._stream_now()
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
