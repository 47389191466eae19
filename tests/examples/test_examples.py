"""Every script of ``examples/`` runs at small sizes on the emulator, in checked mode, and is right.

Each ``main`` returns its largest absolute error against numpy (attention's is relative to the largest value).
The bounds are half a unit in the last place of the largest result where results are f16, and the rounding of
the sums where they are f32. Attention rounds probabilities to f16 or bf16 on the way.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import ptxforge

EXAMPLES = Path(__file__).parents[2] / "examples"

CASES = {
    "matmul": [((64, 64, 64), 0.016), ((70, 50, 41), 0.008), ((1, 1, 1), 1e-3)],
    "persistent_matmul": [((64, 64, 64), 0.016), ((200, 136, 40, 2), 0.016), ((1, 8, 8), 4e-3)],
    "grouped_gemm": [((((20, 33, 16), (1, 16, 50), (32, 5, 7)),), 0.008)],
    "softmax_matmul": [((18, 40, 20), 5e-4), ((16, 32, 128), 5e-4), ((3, 1, 1), 5e-4)],
    "sgemm_ladder": [((128,), 2e-5)],
    "flash_attention": [
        ((1, 2, 64, 32), 1e-3), ((2, 1, 96, 16, 32), 1e-3), ((1, 1, 16, 64), 1e-3),
        ((1, 2, 64, 32, 32, ml_dtypes.bfloat16), 8e-3),
    ],
}  # fmt: skip


@pytest.fixture
def on_emulator(emulator):
    with ptxforge.use_device(emulator):
        yield emulator


def test_every_example_is_here():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(CASES)


@pytest.mark.parametrize(
    ("name", "sizes", "bound"),
    [(name, sizes, bound) for name, cases in CASES.items() for sizes, bound in cases],
    ids=[f"{name}-{number}" for name, cases in CASES.items() for number in range(len(cases))],
)
def test_is_right(name, sizes, bound, on_emulator):
    assert importlib.import_module(f"examples.{name}").main(*sizes) <= bound


def test_each_rung_of_the_ladder_moves_less(on_emulator):
    ladder = importlib.import_module("examples.sgemm_ladder")
    size, sectors, most = 128, {}, {}
    arrays = [ptxforge.to_device(np.zeros((size, size), np.float32)) for _ in range(3)]
    on_emulator.counters = True
    for name, kernel, grid, options in ladder.rungs(size):
        kernel[grid](*arrays, size, size, size, **options)
        report = on_emulator.last_report
        sectors[name] = report.total.global_sectors
        most[name] = max(line.sectors_per_request for line in report.lines)
    assert sectors["naive"] > 4 * sectors["coalesced"] > 16 * sectors["shared"] > 16 * sectors["blocktiling"]
    assert most["naive"] == 32 and most["coalesced"] == 4
    tile = size * size * 4 // 32
    # B and the result once; of A four times 4 of 16 bytes: copies transpose it.
    assert sectors["blocktiling"] == (4 + 1 + 1) * tile
