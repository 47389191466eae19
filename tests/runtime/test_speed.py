"""Budgets that users feel: the Python share of a warm launch, and the import."""

from __future__ import annotations

import itertools
import struct
import subprocess
import sys
import timeit

import numpy as np

import ptxforge
from ptxforge.cli.demo_kernels import matmul
from tests.calls import calls_of
from tests.driver.fake_driver import FakeDriver, install


def _reference() -> int:
    """A fixed piece of Python that does what a launch consists of: calls, a dictionary, packing. A launch
    is measured in multiples of it, so that the machine, and what else it does, cancel out."""
    table = {(int, str, 8): 1}
    buffer = bytearray(64)
    total = 0
    for value in range(10):
        total += table.get((type(value), str, 8), 0)
        struct.pack_into("<QI", buffer, 0, value, total)
        total += max(value, 3)
    return total


def _in_references(launch, calls: int = 300, rounds: int = 30) -> float:
    """How many references a launch costs: each timed in turn, the quietest round of each."""
    launch()
    times = [
        (timeit.timeit(launch, number=calls) / calls, timeit.timeit(_reference, number=calls) / calls)
        for _ in range(rounds)
    ]
    launches, references = zip(*times, strict=True)
    return min(launches) / min(references)


def test_a_warm_launch(kernel, arrays):
    """The same again: 0.23 references."""
    x, y, out = arrays
    assert _in_references(lambda: kernel[(8,)](x, y, out, 1000)) < 0.5


def test_a_warm_launch_with_a_function_as_grid(kernel, arrays):
    """0.32 references, of which calling the function is 0.06."""
    x, y, out = arrays
    assert _in_references(lambda: kernel[lambda meta: (8,)](x, y, out, 1000)) < 0.65


def test_a_warm_launch_with_new_numbers(kernel, arrays):
    """0.6 references, of which the foreign call is 0.1."""
    x, y, out = arrays
    numbers = itertools.count(2)
    assert _in_references(lambda: kernel[(8,)](x, y, out, next(numbers))) < 1.1


def test_a_launch_without_arrays(arrays, monkeypatch):
    """0.16 references: which device is the default one is asked each time."""
    monkeypatch.delenv("PTXFORGE_DEVICE")

    @ptxforge.jit
    def nothing():
        pass

    assert _in_references(lambda: nothing[(8,)]()) < 0.35


def test_a_warm_launch_with_options(kernel, arrays):
    """0.34 references."""
    x, y, out = arrays
    assert _in_references(lambda: kernel[(8,)](x, y, out, 1000, num_warps=4)) < 0.7


def test_a_bound_launch(kernel, arrays):
    """0.13 references."""
    assert _in_references(kernel.bind((8,), *arrays, 1000)) < 0.25


def test_a_bound_launch_with_a_new_number(kernel, arrays):
    """1.1 references: the change, packing, the launch."""
    bound, numbers = kernel.bind((8,), *arrays, 1000), itertools.count(2)
    assert _in_references(lambda: bound.update(n=next(numbers))()) < 1.9


def test_launches_with_tensor_maps(monkeypatch):
    """Maps of arguments that were given before, here in turn, are not made again: at most three calls find
    one, and none does where the launch itself is known."""
    monkeypatch.setenv("PTXFORGE_DEVICE", "cuda")
    driver = install(monkeypatch, FakeDriver())
    arrays = [ptxforge.to_device(np.zeros((128, 128), np.float16)) for _ in range(3)]
    out, blocks = ptxforge.empty((128, 128), np.float32), {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64}

    def launch(maps, first=0):
        a, b = arrays[first : first + 2]
        return matmul[(2, 2)](a, b, out, 128, 128, 128, **blocks, tensor_maps=maps)

    assert len(launch(True).artifact.tensor_maps) == 2
    assert not launch(False).artifact.tensor_maps
    for first in (1, 0, 1, 0):
        launch(True, first), launch(False, first)
    with_maps, without = (
        calls_of(lambda: launch(maps, 1), without="fake_driver") for maps in (True, False)
    )
    assert len(driver.tensor_maps) == 3
    assert with_maps - without <= 2 * 3


def _seconds(statement: str) -> float:
    script = f"import time; start = time.process_time(); {statement}; print(time.process_time() - start)"
    runs = [
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        for _ in range(3)
    ]
    return min(float(run.stdout) for run in runs)


def test_the_import_is_cheap():
    """A fraction of numpy's own."""
    assert _seconds("import numpy; import ptxforge") < 2 * _seconds("import numpy")


def test_the_import_loads_nothing_heavy():
    heavy = ("cuda", "rich", "torch", "platformdirs", "ml_dtypes")
    script = f"import sys, ptxforge; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
