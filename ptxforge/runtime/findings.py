"""What the emulator found in a launch, told with the kernel's source lines.

A fault that a GPU answers with an error (an access out of bounds, a deadlock) raises. What a GPU may or may
not show (a race, a missing barrier, uninitialised shared memory) is a warning: ``python -W error`` makes it
raise, and ``device.findings`` holds all of them.
"""

from __future__ import annotations

import warnings
from typing import Any

from ptxforge.driver.protocol import Device
from ptxforge.support.errors import DeviceError, EmulatorError
from ptxforge.support.location import Location, snippet


class EmulatorWarning(UserWarning):
    """A kernel does something that is wrong, though this run may have gone well."""


def observes(device: Device) -> bool:
    """Whether launches on a device have findings."""
    return hasattr(device, "findings")


def warn(device: Device, stacklevel: int) -> None:
    """Turn the last launch's findings into warnings at the caller's line."""
    for finding in device.findings:
        warnings.warn(describe(finding), EmulatorWarning, stacklevel=stacklevel + 1)


def explained(device: Device, error: DeviceError) -> DeviceError:
    """The error of a launch that failed, with the source of each finding; ``error`` itself when there are
    none."""
    if not device.findings:
        return error
    return EmulatorError("\n".join(describe(finding) for finding in device.findings))


def describe(finding: Any) -> str:
    """A finding and the kernel's source line that it is about, with a caret."""
    source = finding.source
    shown = snippet(Location(source.file, source.line, max(0, source.column - 1))) if source else ""
    return f"{finding}\n{shown}" if shown else str(finding)
