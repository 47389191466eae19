"""A PTX emulator in numpy: a device that runs PTX text without a GPU and says what is wrong with it.

>>> device = EmulatorDevice(check="all")                      # doctest: +SKIP
>>> kernel = device.load_module(ptx).function("add")          # doctest: +SKIP
>>> kernel.launch((4, 1, 1), (128, 1, 1), 0, 0, params)       # doctest: +SKIP
>>> device.findings                                           # doctest: +SKIP
"""

from __future__ import annotations

from ptxforge.emulator.device import DefaultEmulator, EmulatorDevice
from ptxforge.emulator.findings import Finding

__all__ = ["DefaultEmulator", "EmulatorDevice", "Finding"]
