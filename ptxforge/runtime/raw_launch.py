"""Triton's own launch function of a compiled kernel, which generated code and profilers call.

    kernel.run(grid_x, grid_y, grid_z, stream, kernel.function, kernel.packed_metadata,
               launch_metadata, enter_hook, exit_hook, *arguments)

Every parameter of the kernel has its argument, constants too. Nothing is specialised or checked: the caller
knows that this variant fits.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

from ptxforge.driver import arrays
from ptxforge.driver.protocol import Device
from ptxforge.runtime import findings, slots
from ptxforge.runtime.lending import Loan, describe_arguments
from ptxforge.runtime.tensor_descriptor import parts_of
from ptxforge.support import descriptor
from ptxforge.support.errors import DeviceError

Launcher = Callable[..., None]


def raw_launcher(variant: Any, device: Device) -> Launcher:
    """The launch function of a :class:`~ptxforge.runtime.variant.CompiledKernel` on ``device``."""
    made = variant.artifact
    names = [name for item in made.signature.items() for name in descriptor.parameter_names(*item)]
    sources = slots.sources_in({name: place for place, name in enumerate(names)}, made, device)
    read = slots.selector(sources)
    packer = slots.layout([kind for _, kind in made.parameters])
    if findings.observes(device):
        return _Emulated(variant, device, names, sources, packer)
    launch, block, shared = variant.function_on(device).launch, variant.block, made.shared_bytes
    pack = packer.pack

    def run(x, y, z, stream, handle, packed_metadata, launch_metadata, enter, leave, *arguments) -> None:
        if enter:
            enter(launch_metadata)
        if x > 0 and y > 0 and z > 0:
            values = [_plain(value) for value in _parts(arguments)]
            launch((x, y, z), block, shared, stream, pack(*read(values)))
        if leave:
            leave(launch_metadata)

    return run


class _Emulated:
    """The launch function on the emulator, which borrows the memory of CPU arrays, is done when it returns,
    and has findings."""

    def __init__(
        self,
        variant: Any,
        device: Device,
        names: list[str],
        sources: list[int | slots.Reader],
        packer: struct.Struct,
    ):
        self._variant, self._device, self._packer = variant, device, packer
        self._read = slots.selector(sources)
        self._kept = [source for source in sources if isinstance(source, int)]
        self._names = [names[place] for place in self._kept]
        self._function = variant.function_on(device)

    def __call__(self, x, y, z, stream, handle, packed_metadata, launch_metadata, enter, leave, *arguments):
        if enter:
            enter(launch_metadata)
        if x > 0 and y > 0 and z > 0:
            self._launch((x, y, z), _parts(arguments))
        if leave:
            leave(launch_metadata)

    def _launch(self, grid: tuple[int, int, int], given: Sequence[Any]) -> None:
        device, variant = self._device, self._variant
        on_host = [place for place, value in enumerate(given) if _is_on_host(value)]
        values = [_plain(value) for value in given]
        loan = Loan(device, [given[place] for place in on_host])
        for place, address in zip(on_host, loan.addresses, strict=True):
            values[place] = address
        kept, bound = ([of[place] for place in self._kept] for of in (values, given))
        launched = findings.Launch(variant, device, grid, describe_arguments(self._names, kept, bound))
        try:
            packed = self._packer.pack(*self._read(values))
            ctas = grid[0] * variant.artifact.num_ctas, *grid[1:]
            self._function.launch(ctas, variant.block, variant.artifact.shared_bytes, 0, packed)
        except DeviceError as error:
            raise findings.explained(launched, error) from None
        finally:
            loan.end()
        if device.findings or findings.listeners:
            findings.tell(launched)


def _parts(arguments: Sequence[Any]) -> list[Any]:
    return [part for argument in arguments for part in parts_of(argument)]


def _is_on_host(value: Any) -> bool:
    if isinstance(value, (int, float)):
        return False
    found = arrays.view(value)
    return found is not None and found.device == "cpu"


def _plain(value: Any) -> Any:
    """What is packed for an argument: an array's address, a number."""
    if isinstance(value, (int, float)):
        return value
    found = arrays.view(value)
    return value if found is None else found.address
