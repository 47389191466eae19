"""No benchmark configuration of matrix products and attention spills registers to local memory, and none
takes many more than it did."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.configurations import products
from tests.kernels.assembly import assembler_version, spills_and_registers
from tests.kernels.configured import compiled

TARGET = "sm_90a"
TABLE = Path(__file__).parent / "facts" / "registers.json"
"""Registers of a thread by configuration, as the assembler of ``version`` counts them."""
TOLERANCE = 4


@pytest.mark.parametrize("one", products(), ids=lambda one: one.name)
def test_nothing_spills(one, tmp_path, request):
    spilled, registers = spills_and_registers(compiled(one.name, TARGET).ptx, tmp_path, TARGET)
    assert spilled == 0
    table = json.loads(TABLE.read_text())
    if request.config.getoption("--update-golden"):
        table = {"version": assembler_version(), "registers": table["registers"] | {one.name: registers}}
        TABLE.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n")
    if table["version"] == assembler_version():
        assert abs(registers - table["registers"][one.name]) <= TOLERANCE
