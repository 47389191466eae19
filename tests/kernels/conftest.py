"""The fixture that runs one kernel on every executor."""

from __future__ import annotations

import inspect

import attrs
import numpy as np
import pytest

import ptxforge
from ptxforge import interpreter
from ptxforge.compiler import OPTIONS, build_ir
from ptxforge.ir.parser import parse_function
from ptxforge.ir.printer import print_function
from ptxforge.passes import chained_products
from ptxforge.passes.manager import run_passes
from ptxforge.passes.pipeline import TILE
from ptxforge.runtime.tensor_descriptor import TensorDescriptor, array_of, parts_of
from ptxforge.support import dtypes
from ptxforge.support.target import DEFAULT_TARGET, parse_target


def _signature(value) -> str:
    if isinstance(value, np.ndarray):
        return f"*{dtypes.from_numpy(value.dtype).short}" + (":16" if value.ctypes.data % 16 == 0 else "")
    if isinstance(value, TensorDescriptor):
        return str(value.type)
    if isinstance(value, float):
        return "fp32"
    return "i32:16" if value % 16 == 0 else "i32"


def specialized(kernel, arguments, constants):
    """(arguments by name, signature, constants) that a launch with these arguments compiles for."""
    parameters = inspect.signature(kernel.fn).parameters
    names = [n for n, p in parameters.items() if n not in constants and p.default is p.empty]
    bound = dict(zip(names, arguments, strict=True))
    fixed = {name: 1 for name, value in bound.items() if isinstance(value, int) and value == 1}
    signature = {name: _signature(value) for name, value in bound.items() if name not in fixed}
    return bound, signature, constants | fixed


def _tile_ir(kernel, signature, constants, options):
    """What ``asm["tile"]`` of the artifact would be; the devices' launches make the rest of it."""
    function = build_ir(kernel, signature, constants, DEFAULT_TARGET, **OPTIONS | options)
    run_passes(function, TILE, parse_target(DEFAULT_TARGET))
    return parse_function(print_function(function))


def _interpret(kernel, grid, arguments, constants, options):
    """The kernel's tile IR, as text, through the interpreter."""
    bound, signature, constants = specialized(kernel, arguments, constants)
    function = _tile_ir(kernel, signature, constants, options)
    interpreter.run(function, grid, [part for name in signature for part in parts_of(bound[name])])


def _mapped(value, change):
    """An argument with ``change`` applied to its array; numbers stay."""
    if isinstance(value, TensorDescriptor):
        return attrs.evolve(value, base=change(value.base))
    return change(value) if isinstance(value, np.ndarray) else value


@pytest.fixture(autouse=True)
def all_warps_copy(request, monkeypatch):
    """Tests of chains of products look at loops in which no warp has the copies to itself."""
    if request.module.__name__.endswith("test_chained_products"):
        monkeypatch.setattr(chained_products, "_lends_a_warp", lambda *_: False)


@pytest.fixture
def execute(devices):
    """``execute(kernel, grid, arguments, constants, outputs=[indices], **options)`` → for each executor, its
    outputs.

    Arrays are numpy's, also those of tensor descriptors, and are not changed; every executor works on
    copies.
    """

    def run(kernel, grid, arguments, constants, outputs, **options):
        grid = tuple(grid) + (1,) * (3 - len(grid))
        results = []
        copies = [_mapped(a, np.copy) for a in arguments]
        _interpret(kernel, grid, copies, constants, options)
        results.append([array_of(copies[i]) for i in outputs])
        compiled = ptxforge.compile(kernel)
        for device in devices:
            placed = [_mapped(a, lambda array: ptxforge.to_device(array, device)) for a in arguments]
            compiled[grid](*placed, **constants, **options)
            results.append([array_of(placed[i]).numpy() for i in outputs])
        return results

    return run


@pytest.fixture
def few(devices, monkeypatch):
    """Two multiprocessors, as far as launches know."""
    for device in devices:
        monkeypatch.setattr(device, "multiprocessors", 2)
    return devices
