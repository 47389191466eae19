"""PTX text onto a device, by way of the machine code that an earlier process made of it.

The driver's assembler takes tens of milliseconds for a matrix product, again in every process, so what it
makes is kept on disk. The rule of which assembler works is in docs/caching.md: for a kernel that is loaded it
is the driver's own, which knows the very GPU that is there, unless ``PTXFORGE_ASSEMBLER`` names another; what
a newer one made and this driver refuses is made again by the driver, once.
"""

from __future__ import annotations

import logging

from ptxforge.driver.protocol import Device, Module
from ptxforge.runtime import cache, store, tools, variants
from ptxforge.support import settings
from ptxforge.support.errors import DeviceError

log = logging.getLogger("ptxforge.cache")


def load_module(device: Device, ptx: str, kernel: str, target: str, given: bytes | None = None) -> Module:
    """The module of ``ptx`` on a device; machine code that is ``given`` is tried first. Raises
    :class:`DeviceError` with the assembler's log when the text is refused."""
    if not hasattr(device, "load_machine_code"):
        return device.load_module(ptx)
    if given is not None:
        try:
            return device.load_machine_code(given, ptx)
        except DeviceError as error:
            log.warning(
                "the machine code that came with '%s' is refused, assembling its PTX: %s", kernel, error
            )
    chosen = settings.ASSEMBLER.get() or "driver"
    if store.folder() is None and chosen == "driver":
        variants.check_assembling(kernel)
        cache.counters.assembled += 1
        return device.load_module(ptx)
    architecture = device.architecture if chosen == "driver" else target
    version = device.assembler if chosen == "driver" else tools.assembler_version(chosen)
    name = cache.machine_name(ptx, architecture, version)
    cubin = cache.load_machine_code(name)
    if cubin is not None:
        try:
            module = device.load_machine_code(cubin, ptx)
        except DeviceError as error:
            log.warning("the machine code of '%s' on disk is refused, assembling it again: %s", kernel, error)
        else:
            cache.counters.loaded += 1
            return module
    return _assembled(device, ptx, kernel, target, chosen, (name, architecture, version))


def _assembled(
    device: Device, ptx: str, kernel: str, target: str, chosen: str, entry: tuple[str, str, str]
) -> Module:
    variants.check_assembling(kernel)
    cache.counters.assembled += 1
    try:
        cubin = device.cubin(ptx) if chosen == "driver" else tools.assemble_with(chosen, ptx, target)
        module = device.load_machine_code(cubin, ptx)
    except DeviceError as error:
        module = device.load_module(ptx)  # the driver's short way has the last word, and its own error
        log.warning("the machine code of '%s' cannot be kept: %s", kernel, error)
        return module
    name, architecture, version = entry
    cache.store_machine_code(name, cubin, kernel, architecture, version)
    return module
