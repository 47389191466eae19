"""Functions that are called around every launch of every kernel, for profilers and loggers.

    handle = ptxforge.hooks.add(enter=lambda launch: print(launch.name, launch.grid))
    ...
    handle.remove()

As long as there is none, a launch pays for one look at an empty list.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from ptxforge.runtime.launcher import PreparedLaunch
    from ptxforge.runtime.variant import CompiledKernel

PackingError = struct.error
LAUNCH: list[Hook] = []
"""The hooks in force, oldest first."""


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


def fire(
    prepared: PreparedLaunch,
    grid: tuple[int, int, int],
    stream: int | None,
    values: tuple,
    bound: tuple,
) -> None:
    """Launch with the hooks around it."""
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
