"""PTX that nvcc made from our own CUDA C (``fixtures/*.cu``) against numpy."""

from __future__ import annotations

import numpy as np

from .harness import fixture, run


def test_reduce_sum(machine):
    x = np.random.default_rng(0).random(5000, np.float32)
    out = np.zeros(1, np.float32)
    run(machine, fixture("reduction"), "reduce_sum", 8, 256, x, out, np.int32(len(x)))
    np.testing.assert_allclose(out[0], x.sum(dtype=np.float64), rtol=1e-5)


def test_reduce_max(machine):
    x = np.random.default_rng(1).integers(-(10**9), 10**9, 3000, dtype=np.int32)
    out = np.full(1, -(2**31), np.int32)
    run(machine, fixture("reduction"), "reduce_max", 12, 256, x, out, np.int32(len(x)), shared=1024)
    assert out[0] == x.max()


def test_histogram(machine):
    x = np.random.default_rng(2).integers(0, 256, 20000, dtype=np.uint8)
    bins = np.zeros(256, np.uint32)
    run(machine, fixture("histogram"), "histogram", 10, 128, x, bins, np.int32(len(x)))
    np.testing.assert_array_equal(bins, np.bincount(x, minlength=256))


def test_scan(machine):
    x = np.random.default_rng(3).integers(-100, 100, 3001, dtype=np.int32)
    y, totals = np.zeros_like(x), np.zeros(12, np.int32)
    run(machine, fixture("scan"), "scan_blocks", 12, 256, x, y, totals, np.int32(len(x)))
    run(machine, fixture("scan"), "add_totals", 12, 256, y, totals, np.int32(len(x)))
    np.testing.assert_array_equal(y, np.cumsum(x))


def test_spin_lock(machine):
    blocks = 40
    lock, total, order = np.zeros(1, np.int32), np.zeros(2, np.int32), np.zeros(blocks * 4, np.int32)
    run(machine, fixture("spin_lock"), "take_turns", blocks, 32, lock, total, order)
    assert total.tolist() == [blocks * (blocks + 1) // 2, blocks]
    assert lock[0] == 0
    assert sorted(order[::4]) == list(range(blocks))
    np.testing.assert_array_equal(order.reshape(-1, 4), np.repeat(order[::4, None], 4, axis=1))
