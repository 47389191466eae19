"""The environment variables that ptxforge reads, the device that kernels run on, and the tools it finds."""

from __future__ import annotations

import argparse

from rich.console import Console
from rich.table import Table

from ptxforge import __version__
from ptxforge.driver.cuda import CudaDevice
from ptxforge.driver.cuda_api import driver_version
from ptxforge.runtime import cache, tools
from ptxforge.runtime.devices import default_device
from ptxforge.support import settings
from ptxforge.support.errors import DeviceError, SettingError


def configure(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults()


def run(options: argparse.Namespace) -> int:
    console = Console()
    table = Table("variable", "value", "meaning")
    for setting in settings.ALL:
        table.add_row(setting.name, _value(setting), setting.meaning)
    console.print(table)
    for sentence in settings.unknown():
        console.print(f"warning: {sentence}")
    facts = Table.grid(padding=(0, 2))
    for name, value in _facts():
        facts.add_row(name, value)
    console.print(facts)
    return 0


def _value(setting: settings.Setting) -> str:
    try:
        return setting.get()
    except SettingError as error:
        return f"wrong: {error}"


def _facts() -> list[tuple[str, str]]:
    return [
        ("ptxforge", __version__),
        ("default device", _device()),
        ("disk cache", str(cache.folder() or "off")),
        *((name, tools.find(name) or "not found") for name in ("ptxas", "nvdisasm", "cuobjdump")),
    ]


def _device() -> str:
    try:
        device = default_device()
    except (DeviceError, SettingError) as error:
        return f"none: {error}"
    if isinstance(device, CudaDevice):
        return (
            f"{device.name}, {device.product}, {device.target}, CUDA {'.'.join(map(str, driver_version()))}"
        )
    return f"{device.name}, {device.target}"
