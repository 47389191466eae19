"""Kernels that divide indices which wrap in a large grid: another variant is launched there."""

from __future__ import annotations

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.ir.ops.arith import DivSI, RemSI
from ptxforge.ir.parser import parse_function
from ptxforge.support.errors import JITForbiddenError, LaunchError
from tests.driver.fake_driver import FakeDriver, install
from tests.passes.gpu import operations

MOST = 1 << 24
"""Programs of 128 elements whose indices do not wrap."""
BLOCK = 128


def columns(x, out, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i % 7) + i // 7)


@pytest.fixture
def driver(monkeypatch) -> FakeDriver:
    monkeypatch.setenv("PTXFORGE_DEVICE", "cuda")
    return install(monkeypatch, FakeDriver())


@pytest.fixture
def kernel():
    return ptxforge.compile(columns)


@pytest.fixture
def arrays(driver):
    return [ptxforge.to_device(np.zeros(8, np.float32)) for _ in range(2)]


def _options(kernel) -> list[tuple[bool, int]]:
    return [(v.artifact.options["any_grid"], v.artifact.most_programs) for v in kernel.variants]


def _names(driver: FakeDriver, count: int) -> list:
    return [launch.function for launch in driver.launches[-count:]]


def test_a_large_grid_takes_another_variant(kernel, arrays, driver):
    """At whichever launch it comes: the first, those with a plan, those that are repeated."""
    for grid in (5, MOST, MOST + 1, 5, 7, MOST + 1, MOST + 1, MOST + 1, MOST, 2**31 - 1, 5, MOST + 1):
        kernel[(grid,)](*arrays, BLOCK=BLOCK)
        assert driver.launches[-1].grid[0] == grid
    small, large = driver.launches[0].function, driver.launches[2].function
    assert small != large
    wanted = [small if launch.grid[0] <= MOST else large for launch in driver.launches]
    assert [launch.function for launch in driver.launches] == wanted
    assert _options(kernel) == [(False, MOST), (True, 0)]


def test_it_may_be_the_first_launch(kernel, arrays, driver):
    kernel[(MOST + 1,)](*arrays, BLOCK=BLOCK)
    assert len(driver.launches) == 1 and len(kernel.variants) == 2
    kernel[(5,)](*arrays, BLOCK=BLOCK)
    assert len({launch.function for launch in driver.launches}) == 2


def test_a_bound_launch_chooses_by_its_grid(kernel, arrays, driver):
    bound = kernel.bind((5,), *arrays, BLOCK=BLOCK)
    for grid in (5, MOST + 1, MOST + 1, 5):
        bound.grid = (grid,)
        bound()
        bound()
    small, large = driver.launches[0].function, driver.launches[2].function
    assert small != large
    assert [launch.function for launch in driver.launches] == [small] * 2 + [large] * 4 + [small] * 2


def test_the_other_variant_takes_nothing_for_granted(kernel):
    signature, constants = {"x": "*fp32:16", "out": "*fp32:16"}, {"BLOCK": BLOCK}
    for any_grid in (False, True):
        made = ptxforge.compile(columns, signature, constants, "sm_90a", any_grid=any_grid)
        found = operations(parse_function(made.asm["gpu"]), DivSI, RemSI)
        assert [op.natural for op in found] == [not any_grid] * 2
        assert made.most_programs == (0 if any_grid else MOST)
        assert ("most_programs" in made.asm["gpu"]) == (not any_grid)


def test_kernels_that_divide_nothing_have_one_variant(arrays, driver):
    @ptxforge.jit
    def plain(x, out, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + i, tl.load(x + i))

    plain[(2**31 - 1,)](*arrays, BLOCK=BLOCK)
    assert _options(plain) == [(False, 0)]


def test_where_compiling_is_forbidden_a_large_grid_is_refused(kernel, arrays, driver):
    kernel[(5,)](*arrays, BLOCK=BLOCK)
    with ptxforge.forbid_jit(), pytest.raises(JITForbiddenError):
        kernel[(MOST + 1,)](*arrays, BLOCK=BLOCK)
    assert len(driver.launches) == 1


def test_a_saved_kernel_refuses_a_large_grid(arrays, driver, tmp_path):
    signature = {"x": "*fp32:16", "out": "*fp32:16"}
    for any_grid in (False, True):
        made = ptxforge.compile(columns, signature, {"BLOCK": BLOCK}, "sm_90a", any_grid=any_grid)
        made.save(tmp_path / "columns.ptxf")
        loaded = ptxforge.load(tmp_path / "columns.ptxf")
        loaded[(MOST,)](*arrays)
        if any_grid:
            loaded[(MOST + 1,)](*arrays)
            continue
        with pytest.raises(LaunchError, match=f"compiled for {MOST} programs .* any_grid=True"):
            loaded[(MOST + 1,)](*arrays)
    assert [launch.grid[0] for launch in driver.launches] == [MOST, MOST, MOST + 1]


def test_the_emulator_asks_the_same(kernel, emulator, monkeypatch):
    """(As if indices wrapped for more than four programs: no emulator runs a grid for which they do.)"""
    x = ptxforge.to_device(np.arange(8, dtype=np.float32), emulator)
    out = ptxforge.to_device(np.zeros(6 * BLOCK, np.float32), emulator)
    i = np.arange(6 * BLOCK)
    made = kernel[(4,)](x, out, BLOCK=BLOCK)
    made.artifact.most_programs = 4
    for grid, variants in ((4, 1), (6, 2), (6, 2), (4, 2)):
        kernel[(grid,)](x, out, BLOCK=BLOCK)
        np.testing.assert_array_equal(out.numpy()[: grid * BLOCK], (i % 7 + i // 7)[: grid * BLOCK])
        assert len(kernel.variants) == variants
