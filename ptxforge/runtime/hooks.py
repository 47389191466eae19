"""Functions that are called around every launch of every kernel, for profilers and loggers.

    handle = ptxforge.hooks.add(enter=lambda launch: print(launch.name, launch.grid))
    ...
    handle.remove()

As long as there is none, a launch pays for one look at an empty list. Two more lists tell of kernels that are
new: :data:`COMPILE` and :data:`LOAD`.
"""

from __future__ import annotations

import contextlib
import functools
import struct
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import attrs

from ptxforge.support.errors import LaunchError

if TYPE_CHECKING:
    from ptxforge.driver.protocol import Function
    from ptxforge.runtime.jit import JITFunction
    from ptxforge.runtime.launcher import PreparedLaunch
    from ptxforge.runtime.variant import CompiledKernel
    from ptxforge.runtime.variants import Key

PackingError = struct.error
LAUNCH: list[Hook] = []
"""The hooks in force, oldest first."""
COMPILE: list[Callable[[Compilation], Any]] = []
"""Called before a variant is compiled or found on disk, and once more when it is there."""
LOAD: list[Callable[[CompiledKernel, Function | None], Any]] = []
"""Called before a variant is loaded onto a device, and with the loaded function after it."""
TUNE: list[Callable[..., Any]] = []
"""Called with each choice of an autotuner, by name."""


@attrs.define(slots=False, eq=False)
class Launch:
    """One launch, as hooks see it: the kernel's ``name``, the ``grid`` (x, y, z), the ``block`` (threads x,
    y, z), bytes of dynamic ``shared`` memory, the ``stream`` that was asked for (``None``: the arguments'
    owner's), the ``variant`` and the ``arguments`` by name."""

    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    stream: int | None
    variant: CompiledKernel
    arguments: dict[str, Any]

    @functools.cached_property
    def metadata(self) -> dict[str, Any]:
        """What the kernel's own ``launch_metadata(grid, metadata, arguments)`` says of this launch, such as
        its floating-point operations; empty without one."""
        tell = getattr(self.variant.src, "launch_metadata", None)
        return dict(tell(self.grid, self.variant.metadata, self.arguments)) if tell else {}


@attrs.frozen(eq=False)
class Hook:
    """``enter`` is called with the :class:`Launch` before it is queued, ``exit`` after it."""

    enter: Callable[[Launch], Any] | None = None
    exit: Callable[[Launch], Any] | None = None

    def remove(self) -> None:
        """Call these functions no more."""
        if self in LAUNCH:
            LAUNCH.remove(self)

    def __enter__(self) -> Hook:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


def add(enter: Callable[[Launch], Any] | None = None, exit: Callable[[Launch], Any] | None = None) -> Hook:
    """Call functions before and after every launch, until the result is removed or its ``with`` block
    ends."""
    hook = Hook(enter, exit)
    LAUNCH.append(hook)
    return hook


@attrs.define(slots=True, eq=False)
class Compilation:
    """A variant that is new to this process: of which ``kernel``, the ``key`` that it is for, and whether it
    is made for a launch. Afterwards also the ``variant``, whether it was ``found`` on disk, and the
    ``seconds`` that looking it up, compiling it and storing it took. A hook that sets ``declined`` before
    keeps it from being made: launches and warm-ups of it do nothing, and are ``None``."""

    kernel: JITFunction
    key: Key
    at_launch: bool
    variant: CompiledKernel | None = None
    found: bool = False
    seconds: dict[str, float] = attrs.field(factory=dict)
    declined: bool = False


class DeclinedError(LaunchError):
    """A hook keeps a kernel from being compiled; see :class:`Compilation`."""


@contextlib.contextmanager
def compiling(kernel: JITFunction, key: Key, at_launch: bool) -> Iterator[Compilation]:
    """Around the making of a variant, which goes into the result. Raises :class:`DeclinedError`."""
    told = Compilation(kernel, key, at_launch)
    for hook in COMPILE:
        hook(told)
    if told.declined:
        raise DeclinedError(f"a hook keeps '{kernel.__name__}' from being compiled for {key}")
    yield told
    for hook in COMPILE:
        hook(told)


@contextlib.contextmanager
def on_stream(stream: int) -> Iterator[None]:
    """Inside, launches that name no stream go to this one, whatever stream the owners of their arrays work
    on."""
    _streams.append(stream)
    with add():  # every launch takes the road of those with hooks
        try:
            yield
        finally:
            _streams.pop()


_streams: list[int] = []


def fire(
    prepared: PreparedLaunch,
    grid: tuple[int, int, int],
    stream: int | None,
    values: tuple,
    bound: tuple,
) -> None:
    """Launch with the hooks around it."""
    if stream is None and _streams:
        stream = _streams[-1]
    variant = prepared.variant
    names = variant.src.arg_names
    arguments = dict(zip(names, bound, strict=True))
    launch = Launch(
        variant.name, grid, variant.block, variant.artifact.shared_bytes, stream, variant, arguments
    )
    hooks = list(LAUNCH)
    for hook in hooks:
        if hook.enter is not None:
            hook.enter(launch)
    prepared.fire(*grid, stream, values, bound)
    for hook in hooks:
        if hook.exit is not None:
            hook.exit(launch)
