"""Tuples, named tuples and ``*args``: as arguments of a launch, and in kernels."""

from __future__ import annotations

import collections

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.support.errors import ArgumentError

Point = collections.namedtuple("Point", "x y")


@pytest.fixture
def launch(devices):
    """``launch(kernel, *arguments, **constants)``: on each device; arrays are numpy's, placed on the device
    and copied back."""

    def placed(value, device, arrays):
        if isinstance(value, tuple):
            parts = [placed(part, device, arrays) for part in value]
            return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
        if isinstance(value, np.ndarray):
            arrays.append((value, ptxforge.to_device(value, device)))
            return arrays[-1][1]
        return value

    def run(kernel, *arguments, **constants):
        for device in devices:
            arrays = []
            kernel[(1,)](*[placed(value, device, arrays) for value in arguments], **constants)
            for host, there in arrays:
                host[...] = there.numpy()

    return run


@ptxforge.jit
def elements(out, values, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    pointer, (scale, nothing), flag, limit = values
    tl.static_assert(nothing is None)
    tl.static_assert(len(values) == 4)
    total = tl.load(pointer + i) * scale
    if flag:
        total += values[1][0]
    tl.store(out + i, tl.minimum(total, limit))


def test_a_tuple(launch):
    x, out = np.arange(16, dtype=np.float32), np.zeros(16, np.float32)
    for flag in (True, False):
        launch(elements, out, (x, (2.5, None), flag, 30), BLOCK=16)
        np.testing.assert_array_equal(out, np.minimum(x * 2.5 + 2.5 * flag, 30))
    launch(elements, out, (x, (1, None), True, 1 << 40), BLOCK=16)
    np.testing.assert_array_equal(out, x + 1)


@ptxforge.jit
def named(out, p: tuple, q=Point(3, 4)):
    tl.static_assert(isinstance(p, Point))
    tl.store(out, p.x * p.y)
    tl.store(out + 1, q.x - q.y)
    moved = Point(p.y, q.x)
    tl.store(out + 2, moved.x + moved.y)


def test_named_tuples(launch):
    out = np.zeros(3, np.int32)
    launch(named, out, Point(5, 7), Point(2, 9))
    assert out.tolist() == [35, -7, 9]
    launch(named, out, Point(5, 7))
    assert out.tolist() == [35, -1, 10]


@ptxforge.jit
def total_of(out, first, *rest):
    total = first
    for value in rest:
        total += value
    tl.store(out, total)
    tl.store(out + 1, len(rest))


def test_any_number_of_arguments(launch):
    out = np.zeros(2, np.int32)
    for count in (0, 1, 3):
        launch(total_of, out, 5, *range(10, 10 + count))
        assert out.tolist() == [5 + sum(range(10, 10 + count)), count]
    launch(total_of, out, 5, 6, num_warps=2)
    assert total_of.metadata.num_warps == 2


@ptxforge.jit
def constants(out, sizes, SHAPE: tl.constexpr, *POWERS: tl.constexpr):
    i = tl.arange(0, sizes[0])
    tl.static_assert(SHAPE == (2, 4))
    tl.static_assert(POWERS == (2, 8))
    tl.store(out + i, sizes[1] + tl.zeros([sizes[0]], tl.int32) + POWERS[1])


def test_constants_in_tuples(launch):
    out = np.zeros(4, np.int32)
    launch(constants, out, (tl.constexpr(4), 5), (2, 4), 2, 8)
    assert out.tolist() == [13] * 4


def test_warmup_and_the_grid_see_the_tuple(emulator):
    seen = {}
    with ptxforge.use_device(emulator):
        variant = elements.warmup(np.float32, (np.float32, (0.5, None), True, 3), BLOCK=16, grid=(1,))
        assert [name for name, _ in variant.artifact.parameters] == [
            "out", "values_0", "values_1_0", "values_2", "values_3",
        ]  # fmt: skip
        x, out = np.ones(16, np.float32), np.zeros(16, np.float32)
        count = len(elements.variants)
        elements[lambda meta: seen.update(meta) or (1,)](out, (x, (0.5, None), True, 3), BLOCK=16)
        assert len(elements.variants) == count
    assert seen["values"][1] == (0.5, None) and seen["BLOCK"] == 16 and out[0] == 1.0


def test_names_do_not_clash(launch):
    @ptxforge.jit
    def clashing(out, a, a_0):
        tl.store(out, a[0] * 100 + a_0)

    out = np.zeros(1, np.int32)
    launch(clashing, out, (2,), 3)
    assert out[0] == 203


def test_ahead_of_time_the_number_is_not_known():
    with pytest.raises(ArgumentError, match="only a launch says how many arguments it stands for"):
        total_of.compile({"out": "*i32", "first": "i32"}, {}, target="sm_90a")


@ptxforge.jit
def in_kernels(out, x, n):
    pair = (n, x + 1)
    both = pair + (n * 2,)
    tl.store(out, both[2] + both[-1] + tl.load(both[1]))
    for i in range(3):
        pair = (pair[0] + i, pair[1] + 1)
        if i == 1:
            pair = (pair[0] * 2, pair[1])
    tl.store(out + 1, pair[0])
    tl.store(out + 2, tl.load(pair[1]))
    if (n, 3) == (n + 0, 3):
        tl.store(out + 3, 1)
    if both[:2] != (n + 1, x + 1):
        tl.store(out + 4, 1)
    same: tl.constexpr = (n, 1) == (n, 1, 2)
    tl.static_assert(not same)


def test_tuples_in_kernels(execute):
    x = np.array([4, 5, 6, 7, 8], np.int32)
    for (out,) in execute(in_kernels, (1,), [np.zeros(5, np.int32), x, 10], {}, outputs=[0]):
        assert out.tolist() == [45, 24, 8, 1, 1]
