"""What would fit, when a kernel needs more than the device has: found by compiling it."""

from __future__ import annotations

import contextlib
import importlib
import linecache
from collections.abc import Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import attrs

from ptxforge.driver.protocol import Device
from ptxforge.runtime import compiling
from ptxforge.runtime.variant import CompiledKernel
from ptxforge.runtime.variants import Key, forbid_jit, is_forbidden
from ptxforge.support.errors import OutOfResourcesError, PtxforgeError

if TYPE_CHECKING:
    from ptxforge.runtime.jit import JITFunction

_silent: ContextVar[bool] = ContextVar("ptxforge_silent", default=False)
_SMALLEST_TILE = 32
_MOST_TRIED = 8
_MOST_LINES = 8


@contextlib.contextmanager
def without_advice() -> Iterator[None]:
    """Inside, nothing is compiled to find out what would fit: a tuner tries the next configuration anyway."""
    token = _silent.set(True)
    try:
        yield
    finally:
        _silent.reset(token)


def with_advice(
    kernel: JITFunction, key: Key, device: Device, error: OutOfResourcesError
) -> OutOfResourcesError:
    """The error of a kernel that does not fit, with the nearest configuration that does: first fewer stages,
    then other warps, then one constant that is half as large. Of registers it says which source lines hold
    the most."""
    if _silent.get() or is_forbidden():
        return error
    variant = kernel._compiled.get(key.identity())
    if error.resource.startswith("registers") and variant is not None:
        error.args = (f"{error}\n{_registers_by_line(variant)}",)
    for changes in list(_neighbours(key))[:_MOST_TRIED]:
        found = _fitting(kernel, _changed(key, changes), device)
        if found is not None:
            text = ", ".join(f"{name}={value}" for name, value in changes.items())
            needs = f"{found.shared_bytes} bytes of shared memory"
            error.args = (f"{error}\nnearest that fits: {text} ({needs}; checked by compiling it)",)
            break
    return error


def _registers_by_line(variant: CompiledKernel) -> str:
    """Where the registers are, as far as the PTX tells: the assembler, which knows them, tells no lines."""
    load = importlib.import_module("ptxforge.emulator.launch").load_text
    live_by_line = importlib.import_module("ptxforge.emulator.registers").live_by_line
    lines = live_by_line(load(variant.artifact.ptx).translations[variant.name].program)
    rows = [f"  {count:>5}: {line}{_text_of(line)}" for line, count in lines[:_MOST_LINES]]
    left = sum(count for _, count in lines[_MOST_LINES:])
    rows += [f"  {left:>5}: other lines"] if left else []
    return "\n".join(["registers where the most are live at once, by the line that computes them:", *rows])


def _text_of(line: Any) -> str:
    """The source of a line, where it can be read."""
    text = linecache.getline(line.file, line.line).strip()
    return f"  {text}" if text else ""


def _neighbours(key: Key) -> Iterator[dict[str, Any]]:
    """Changes of options and constants, the smaller ones first."""
    stages, warps = key.options["num_stages"], key.options["num_warps"]
    yield from ({"num_stages": fewer} for fewer in range(stages - 1, 0, -1))
    yield from ({"num_warps": other} for other in (warps // 2, warps * 2) if 1 <= other <= 32)
    for name, value in key.constants.items():
        is_tile = type(value) is int and value >= _SMALLEST_TILE and value & (value - 1) == 0
        if is_tile and name in key.signature:
            yield {name: value // 2}


def _changed(key: Key, changes: dict[str, Any]) -> Key:
    options = {name: changes.get(name, value) for name, value in key.options.items()}
    constants = {name: changes.get(name, value) for name, value in key.constants.items()}
    return attrs.evolve(key, options=options, constants=constants)


def _fitting(kernel: JITFunction, key: Key, device: Device) -> Any:
    """The artifact for ``key`` if it compiles and fits, else ``None``."""
    try:
        made = compiling.compiled(kernel, key)
        with forbid_jit(False):
            CompiledKernel(made, device, src=kernel).function_on(device)
    except PtxforgeError:
        return None
    return made
