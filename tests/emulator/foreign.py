"""The kernels of ``fixtures/`` with inputs: each case runs PTX text on a device and compares with numpy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from . import tma
from .harness import fixture, pack, run


@dataclass(frozen=True)
class Case:
    """``check(device, ptx)`` launches the kernel(s) of ``ptx`` and asserts that the results are right."""

    name: str
    fixture: str
    check: Callable
    entries: tuple[str, ...]

    @property
    def ptx(self) -> str:
        return fixture(self.fixture)


def reduce_sum(device, ptx: str) -> None:
    x = np.random.default_rng(0).random(1000, np.float32)
    out = np.zeros(1, np.float32)
    run(device, ptx, "reduce_sum", 3, 128, x, out, np.int32(len(x)))
    np.testing.assert_allclose(out[0], x.sum(dtype=np.float64), rtol=1e-5)


def reduce_max(device, ptx: str) -> None:
    x = np.random.default_rng(1).integers(-(10**9), 10**9, 500, dtype=np.int32)
    out = np.full(1, -(2**31), np.int32)
    run(device, ptx, "reduce_max", 4, 128, x, out, np.int32(len(x)), shared=512)
    assert out[0] == x.max()


def histogram(device, ptx: str) -> None:
    x = np.random.default_rng(2).integers(0, 256, 2000, dtype=np.uint8)
    bins = np.zeros(256, np.uint32)
    run(device, ptx, "histogram", 3, 128, x, bins, np.int32(len(x)))
    np.testing.assert_array_equal(bins, np.bincount(x, minlength=256))


def scan(device, ptx: str) -> None:
    x = np.random.default_rng(3).integers(-100, 100, 700, dtype=np.int32)
    y, totals = np.zeros_like(x), np.zeros(6, np.int32)
    run(device, ptx, "scan_blocks", 6, 128, x, y, totals, np.int32(len(x)))
    run(device, ptx, "add_totals", 6, 128, y, totals, np.int32(len(x)))
    np.testing.assert_array_equal(y, np.cumsum(x))


def spin_lock(device, ptx: str) -> None:
    blocks = 10
    lock, total, order = np.zeros(1, np.int32), np.zeros(2, np.int32), np.zeros(blocks * 4, np.int32)
    run(device, ptx, "take_turns", blocks, 32, lock, total, order)
    assert total.tolist() == [blocks * (blocks + 1) // 2, blocks]
    assert sorted(order[::4]) == list(range(blocks))


def matmul_mma(device, ptx: str) -> None:
    m, n, k = 128, 64, 192
    rng = np.random.default_rng(4)
    a, b = rng.standard_normal((m, k)).astype(np.float16), rng.standard_normal((k, n)).astype(np.float16)
    c = np.zeros((m, n), np.float32)
    run(device, ptx, "matmul", (n // 64, m // 64), 128, a, b, c, np.int32(m), np.int32(n), np.int32(k))
    np.testing.assert_allclose(c, a.astype(np.float64) @ b.astype(np.float64), rtol=1e-4, atol=1e-3)


def _with_arrays(device, arrays: list[np.ndarray], launch: Callable) -> None:
    """Copy arrays to the device, call ``launch(addresses)``, copy them back."""
    addresses = [device.allocate(array.nbytes) for array in arrays]
    try:
        for address, array in zip(addresses, arrays):
            device.copy_to_device(address, array)
        launch(addresses)
        device.synchronize()
        for address, array in zip(addresses, arrays):
            device.copy_to_host(array, address)
    finally:
        for address in addresses:
            device.free(address)


def matmul_tma(device, ptx: str) -> None:
    m, n, k = 128, 64, 320
    rng = np.random.default_rng(5)
    a, b = rng.standard_normal((m, k)).astype(np.float16), rng.standard_normal((n, k)).astype(np.float16)
    c = np.zeros((m, n), np.float32)

    def launch(at: list[int]) -> None:
        maps = [tma.encode(device, "f16", address, (k, rows), (2 * k,), (64, 64), swizzle=128)
                for address, rows in zip(at, (m, n))]  # fmt: skip
        params = pack([*maps, np.uint64(at[2]), np.int32(n), np.int32(k)])
        function = device.load_module(ptx).function("matmul_tma")
        function.launch((n // 64, m // 64, 1), (128, 1, 1), 3 * 2 * 64 * 64 * 2 + 64, 0, params)

    _with_arrays(device, [a, b, c], launch)
    np.testing.assert_allclose(c, a.astype(np.float64) @ b.astype(np.float64).T, rtol=1e-4, atol=1e-3)


def tma_scale(device, ptx: str) -> None:
    x = np.random.default_rng(6).standard_normal((50, 72)).astype(np.float32)
    y = np.zeros_like(x)

    def launch(at: list[int]) -> None:
        maps = [tma.encode(device, "f32", address, (72, 50), (288,), (32, 32)) for address in at]
        function = device.load_module(ptx).function("scale")
        function.launch((3, 2, 1), (128, 1, 1), 0, 0, pack([*maps, np.float32(2.5)]))

    _with_arrays(device, [x, y], launch)
    np.testing.assert_array_equal(y, x * np.float32(2.5))


CASES = [
    Case("reduce_sum", "reduction", reduce_sum, ("reduce_sum",)),
    Case("reduce_max", "reduction", reduce_max, ("reduce_max",)),
    Case("histogram", "histogram", histogram, ("histogram",)),
    Case("scan", "scan", scan, ("scan_blocks", "add_totals")),
    Case("spin_lock", "spin_lock", spin_lock, ("take_turns",)),
    Case("matmul_mma", "matmul_mma", matmul_mma, ("matmul",)),
    Case("matmul_tma", "matmul_wgmma", matmul_tma, ("matmul_tma",)),
    Case("tma_scale", "tma_scale", tma_scale, ("scale",)),
]
