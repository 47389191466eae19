"""A launch with its arguments fixed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ptxforge.runtime import hooks, options
from ptxforge.runtime.launcher import PreparedLaunch, normalize_grid
from ptxforge.runtime.specialize import Keys
from ptxforge.support.errors import ArgumentError, DeviceError

if TYPE_CHECKING:
    from ptxforge.runtime.jit import JITFunction


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

    @property
    def stream(self) -> int | None:
        """The stream's handle; ``None``: the one that the arguments' owner works on at each launch."""
        return self._stream

    @stream.setter
    def stream(self, stream: Any) -> None:
        self._stream = options.stream_handle(stream)

    def update(self, **changes: Any) -> BoundLaunch:
        """Change arguments by name. A value of the same specialisation (type, alignment, the value 1) costs
        a microsecond; another one compiles what it needs.

        Raises :class:`ArgumentError` for a name that is no parameter and for a value that cannot be passed.
        """
        names = self.kernel.arg_names
        before = self._state()
        arguments = list(self._arguments)
        for name, value in changes.items():
            if name not in names:
                known = options.nearest(name, names)
                raise ArgumentError(f"'{self.kernel.__name__}' has no such parameter{known}", name)
            arguments[names.index(name)] = value
        self._arguments = tuple(arguments)
        try:
            self._refresh()
        except BaseException:
            self._arguments, self._classes, self._values, self._prepared = before
            raise
        return self

    def _state(self) -> tuple:
        return self._arguments, self._classes, self._values, self._prepared

    def _refresh(self) -> None:
        classes, values = self._specialized()
        if classes != self._classes:
            self._prepared = self.kernel._miss(self._arguments, self._given)
        self._classes, self._values = classes, values

    def _prepare(self) -> None:
        self._prepared: PreparedLaunch = self.kernel._miss(self._arguments, self._given)
        self._classes, self._values = self._specialized()

    def _specialized(self) -> tuple[tuple, tuple]:
        """What tells specialisations apart, and the values to pack."""
        made = [keys[type(value)](value) for keys, value in zip(self._keys, self._arguments, strict=True)]
        return tuple((key, type(v)) for (key, _), v in zip(made, self._arguments, strict=True)), tuple(
            value for _, value in made
        )

    def __call__(self) -> None:
        """Launch. Raises what a launch raises."""
        prepared = self._prepared
        if prepared.volatile and prepared.is_stale():
            self._prepare()
            prepared = self._prepared
        if self.kernel._globals:
            self.kernel._check_globals()
            if not self.kernel._globals:  # something that was compiled in means another thing now
                self._prepare()
                prepared = self._prepared
        if 0 in self._grid:
            return
        x, y, z = self._grid
        try:
            if hooks.LAUNCH:
                hooks.fire(prepared, self._grid, self._stream, self._values, self._arguments)
            else:
                prepared.fire(x, y, z, self._stream, self._values, self._arguments)
        except (OverflowError, hooks.PackingError, DeviceError) as error:
            raise self.kernel._refused(error, prepared, self._values, self._grid) from None
