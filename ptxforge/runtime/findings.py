"""What the emulator found in a launch, told with the kernel's source lines and the caller's arguments.

A fault that a GPU answers with an error (an access out of bounds, a deadlock) raises. What a GPU may or may
not show (a race, a missing barrier, uninitialised shared memory) is a warning: ``python -W error`` makes it
raise, and ``device.findings`` holds all of them. ``ptxforge.check()`` listens to all launches and collects
both instead (:data:`listeners`).
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs

import ptxforge
from ptxforge.driver.protocol import Device
from ptxforge.runtime import lending
from ptxforge.runtime.lending import Argument
from ptxforge.support.errors import DeviceError, EmulatorError
from ptxforge.support.location import Location, snippet

GENERATED = "<ptxforge launch>"
"""The file that functions made for a launch say they are from."""
_PACKAGE = str(Path(ptxforge.__file__).parent)


class EmulatorWarning(UserWarning):
    """A kernel does something that is wrong, though this run may have gone well."""


@attrs.frozen(slots=True, eq=False)
class Launch:
    """One launch: the compiled kernel, where it runs, on which grid, with which arrays, and the values of the
    parameters by name (of an array its address). ``again()`` runs it; only while it has not begun."""

    variant: Any
    device: Device
    grid: tuple[int, int, int]
    arguments: list[Argument]
    values: dict[str, Any] = attrs.field(factory=dict)
    again: Callable[[], None] | None = None

    def argument_at(self, address: int | None) -> Argument | None:
        """The array argument that an address lies in, else the one that it is nearest to (within 1 MiB)."""
        if address is None or not self.arguments:
            return None
        nearest = min(self.arguments, key=lambda argument: argument.distance(address))
        return nearest if nearest.distance(address) <= min(1 << 20, lending.gap_before(address)) else None


listeners: list[Callable[[Launch], None]] = []
"""Called after each launch on the emulator, in place of its warnings."""


before: list[Callable[[Launch], None]] = []
"""Called before each launch on the emulator."""


def observes(device: Device) -> bool:
    """Whether launches on a device have findings."""
    return hasattr(device, "findings")


def tell(launch: Launch) -> None:
    """Give a launch to the listeners; without any, turn its findings into warnings at the line outside
    ptxforge that launched."""
    for listener in listeners:
        listener(launch)
    if listeners:
        return
    for finding in launch.device.findings:
        warnings.warn(describe(finding, launch), EmulatorWarning, stacklevel=_frames_of_ours() + 1)


def _frames_of_ours() -> int:
    """How many frames of ptxforge, generated ones included, lie between the caller and the user's code."""
    frame, count = sys._getframe(1), 0
    while frame is not None and frame.f_code.co_filename.startswith((_PACKAGE, GENERATED)):
        frame, count = frame.f_back, count + 1
    return count


def explained(launch: Launch, error: DeviceError) -> DeviceError:
    """The error of a launch that failed, with the source of each finding; ``error`` itself when there are
    none."""
    if not launch.device.findings:
        return error
    return EmulatorError("\n".join(describe(finding, launch) for finding in launch.device.findings))


def describe(finding: Any, launch: Launch | None = None) -> str:
    """A finding, the element of an argument and the kernel's source line that it is about, with a caret."""
    element = element_of(finding, launch)
    about = f"{finding}; that is {element}" if element else str(finding)
    source = finding.source
    shown = snippet(Location(source.file, source.line, max(0, source.column - 1))) if source else ""
    return f"{about}\n{shown}" if shown else about


def element_of(finding: Any, launch: Launch | None) -> str:
    """``x[32], past the end of 'x', float32[32]`` for a finding about an array argument, else nothing."""
    argument = launch.argument_at(finding.address) if launch is not None else None
    return f"{argument.element_at(finding.address)}, {argument}" if argument is not None else ""
