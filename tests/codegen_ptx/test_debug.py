"""Assertions and printing."""

from __future__ import annotations

import numpy as np
import pytest

from ptxforge.emulator import EmulatorDevice
from ptxforge.ir import types as T
from ptxforge.ir.ops import arith, debug
from ptxforge.support.errors import PtxforgeError
from tests.codegen_ptx.harness import TARGETS, Kernel, assemble, blocked, pack_parameters, pointer


def _launch(kernel, *arguments):
    for target in TARGETS:
        assemble(kernel.ptx(target))
    device = EmulatorDevice()
    entry = device.load_module(kernel.ptx()).function("kernel")
    packed = pack_parameters(device.register_host_array, kernel.function, arguments)
    entry.launch((1, 1, 1), (128, 1, 1), 0, 0, packed)
    return device.output


def test_print_shows_program_index_and_value():
    kernel = Kernel(pointer(T.F32), T.I32)
    x = kernel.load(0, (8,), blocked(1))
    kernel.b.create(debug.Print, x, kernel.function.arguments[1], prefix=" x: ", signed=(True, True))
    output = _launch(kernel, np.arange(8, dtype=np.float32) / 2, -3)
    lines = output.splitlines()
    assert sorted(lines[:8]) == [f"pid (0, 0, 0) idx ({i}) x: (operand 0) {i / 2:.6f}" for i in range(8)]
    # Every thread has the scalar.
    assert lines[8:] == ["pid (0, 0, 0) idx () x: (operand 1) -3"] * 128


def test_indices_are_padded():
    kernel = Kernel(pointer(T.I32))
    kernel.b.create(debug.Print, kernel.load(0, (16,), blocked(1)), prefix=" x: ", signed=(True,))
    lines = _launch(kernel, np.arange(16, dtype=np.int32)).splitlines()
    assert sorted(lines) == [f"pid (0, 0, 0) idx ({i:2}) x: {i}" for i in range(16)]


def test_a_print_without_values():
    kernel = Kernel(T.I32)
    kernel.b.create(debug.Print, prefix=" here")
    assert _launch(kernel, 1) == "pid (0, 0, 0) here\n" * 128


def test_print_in_hexadecimal():
    kernel = Kernel(T.I32)
    kernel.b.create(debug.Print, kernel.function.arguments[0], prefix="", hex=True, signed=(True,))
    assert _launch(kernel, 255) == "pid (0, 0, 0) idx ()0x000000ff\n" * 128


@pytest.mark.parametrize("limit", [512, 100])
def test_assertion(limit):
    kernel = Kernel(T.I32)
    b = kernel.b
    index = kernel.coordinate((512,), 0, blocked(4))
    inside = b.value(
        arith.CmpI, index, kernel.splat(kernel.function.arguments[0], (512,), blocked(4)), predicate="slt"
    )
    b.create(debug.Assert, inside, message="index too large")
    if limit == 512:
        _launch(kernel, limit)
        return
    with pytest.raises(PtxforgeError, match="index too large"):
        _launch(kernel, limit)
    # As nvcc's assert: a trap behind the call would race with the driver that ends the grid.
    assert "trap" not in kernel.ptx()
