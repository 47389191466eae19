"""Aggregate classes: fields, methods, operators, and objects in loops, branches and calls."""

from __future__ import annotations

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.runtime import source
from ptxforge.support.errors import CompilationError, PtxforgeError


@tl.aggregate
class Range:
    low: tl.tensor
    high: tl.tensor
    WIDTH: tl.constexpr

    @ptxforge.jit
    def __init__(self, low, high, WIDTH: tl.constexpr = 4):
        self.low, self.high = low, high
        self.WIDTH = WIDTH

    @staticmethod
    @ptxforge.jit
    def around(middle, radius):
        return Range(middle - radius, middle + radius)

    @ptxforge.jit
    def size(self):
        return self.high - self.low

    @ptxforge.jit
    def widened(self, by=1):
        return tl.aggregate_replace(self, low=self.low - by, high=self.high + by)

    @tl.constexpr_function
    def twice_the_width(self):
        return 2 * self.WIDTH

    @ptxforge.jit
    def __add__(self, other):
        return Range(self.low + other, self.high + other, self.WIDTH)

    @ptxforge.jit
    def __radd__(self, other):
        return self + other

    @ptxforge.jit
    def __neg__(self):
        return Range(-self.high, -self.low, self.WIDTH)

    @ptxforge.jit
    def __eq__(self, other):
        return (self.low == other.low) & (self.high == other.high)

    @ptxforge.jit
    def __lt__(self, other):
        return self.high < other.low

    @ptxforge.jit
    def __getitem__(self, index):
        return self.low + index


@tl.aggregate
class Named(Range):
    tag: tl.int32

    @ptxforge.jit
    def __init__(self, low, high, tag):
        self.low = low
        self.high = high
        self.WIDTH = 8
        self.tag = tag

    @ptxforge.jit
    def size(self):
        return (self.high - self.low) * self.tag


@tl.aggregate
class Pair:
    first: Range
    second: tl.tensor
    scale: tl.constexpr = 2


@ptxforge.jit
def members(out, n):
    r = Range(n, n + 5)
    tl.static_assert(r.WIDTH == 4 and r.twice_the_width() == 8)
    tl.static_assert(isinstance(r, Range) and not isinstance(r, Named))
    tl.store(out, r.size())
    tl.store(out + 1, r.widened().widened(by=3).size())
    tl.store(out + 2, Range.around(n, 7).low)
    tl.store(out + 3, (r + 10).low + (10 + r).high + (-r).low)
    tl.store(out + 4, r[3])
    if r == Range(n, n + 5):
        tl.store(out + 5, 1)
    if r < r + 6:
        tl.store(out + 6, 1)
    if r + 6 > r:
        tl.store(out + 7, 1)
    named = Named(n, n + 2, 3)
    tl.store(out + 8, named.size() + named.WIDTH + (named + 1).low)
    pair = Pair(r, n)
    tl.store(out + 9, pair.first.high * pair.scale + pair.second)
    tl.store(out + 10, Pair(second=3, first=r, scale=5).scale)


def test_members_and_operators(execute):
    n = 20
    expected = [5, 13, n - 7, n + 10 + n + 15 - n - 5, n + 3, 1, 1, 1, 6 + 8 + n + 1, 2 * (n + 5) + n, 5]
    for (out,) in execute(members, (1,), [np.zeros(11, np.int32), n], {}, outputs=[0]):
        assert out.tolist() == expected


@ptxforge.jit
def in_control_flow(out, n):
    r = Range(tl.arange(0, 4), n)
    for i in range(n):
        if i % 2 == 0:
            r = r.widened(i)
        else:
            r += 1
        if i == 5:
            break
    best = Pair(r, 0) if n > 3 else Pair(r + 100, 1)
    tl.store(out + tl.arange(0, 4), best.first.low)
    tl.store(out + 4, best.first.high)
    tl.store(out + 5, best.second)


@pytest.mark.parametrize("n", [0, 3, 10])
def test_objects_are_carried_and_joined(execute, n):
    low, high = np.arange(4), n
    for i in range(min(n, 6)):
        low, high = (low - i, high + i) if i % 2 == 0 else (low + 1, high + 1)
    low, high, second = (low, high, 0) if n > 3 else (low + 100, high + 100, 1)
    for (out,) in execute(in_control_flow, (1,), [np.zeros(6, np.int32), n], {}, outputs=[0]):
        assert out.tolist() == [*low.tolist(), high, second]


@tl.aggregate
class Made:
    value: tl.tensor
    size: tl.constexpr
    parts: tl.tuple

    @tl.constexpr_function
    def __init__(self, value, size):
        self.value = value
        self.size = tl.constexpr(size)
        self.parts = (value, size)


@ptxforge.jit
def made_while_compiling(out, n):
    made = Made(n * 2, 4)
    tl.store(out + tl.arange(0, made.size), made.value + made.parts[0] + made.parts[1])


def test_a_constructor_that_runs_while_compiling(execute):
    for (out,) in execute(made_while_compiling, (1,), [np.zeros(4, np.int32), 5], {}, outputs=[0]):
        assert out.tolist() == [24] * 4


@ptxforge.jit
def missing_field(out, n):
    tl.store(out, Pair(Range(n, n)).second)


@ptxforge.jit
def wrong_field(out, n):
    tl.store(out, Range(n, n, n).low)


@ptxforge.jit
def assigned_later(out, n):
    r = Range(n, n)
    r.low = n + 1
    tl.store(out, r.low)


@ptxforge.jit
def unknown_member(out, n):
    tl.store(out, Range(n, n).length())


@ptxforge.jit
def no_operator(out, n):
    tl.store(out, Range(n, n) * 2)


@ptxforge.jit
def two_classes(out, n):
    if n > 2:
        r = Range(n, n)
    else:
        r = Named(n, n, n)
    tl.store(out, r.low)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (missing_field, "the field 'second' of 'Pair' gets no value"),
        (wrong_field, "the field 'WIDTH' of 'Range' is a constexpr, not int32"),
        (assigned_later, "an attribute cannot be assigned(.|\n)*aggregate_replace"),
        (unknown_member, "'Range' has no field or method 'length'"),
        (no_operator, "have no operator '__mul__'"),
        (two_classes, "'r' has different types after the branches"),
    ],
)
def test_mistakes(kernel, message):
    with pytest.raises(CompilationError, match=message):
        kernel.compile({"out": "*i32", "n": "i32"}, {}, target="sm_90a")


def test_objects_are_made_in_kernels_only():
    with pytest.raises(PtxforgeError, match="a 'Range' is made inside a kernel only"):
        Range(1, 2)


def test_the_cache_knows_the_methods():
    text = source.dependencies(members.fn).text
    assert "self.high - self.low" in text and "2 * self.WIDTH" in text and "self.tag" in text
