"""Findings of the tile program: each kernel with its fault, and the same one without."""

from __future__ import annotations

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl


@ptxforge.jit
def row_starts(x, stride, n, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    start = (pid.to(tl.int64) if WIDE else pid) * stride
    i = tl.arange(0, BLOCK)
    tl.store(x + (start + i)[None, :], 1, mask=(i < n)[None, :])


@ptxforge.jit
def masked_wrap(x, n, BLOCK: tl.constexpr):
    """The offsets of elements beyond n wrap around; nobody uses them."""
    i = tl.arange(0, BLOCK)
    tl.store(x + i * 0x8000000, 1, mask=i < n)


@ptxforge.jit
def promises(starts, x, n, BLOCK: tl.constexpr):
    start = tl.multiple_of(tl.load(starts), 16)
    tl.assume(n > 4)
    i = tl.max_contiguous(start + tl.arange(0, BLOCK), BLOCK)
    same = tl.max_constancy((i // n) * n, 4)
    tl.store(x + i, same)


@ptxforge.jit
def makes_nan(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i)
    best = tl.max(tl.where(i < BLOCK // 2, v, float("-inf")), 0)
    tl.store(out + i, tl.exp(v - best) / v)


@ptxforge.jit
def masks(x, out, n, limit, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    tl.store(out + i, v, mask=i < limit)


def found(launch, **options) -> list[tuple[str, str]]:
    """(kind, text of the source line) of each issue."""
    with ptxforge.check(fail_on="never", **options) as report:
        launch()
    lines = [issue.place.shown().splitlines()[0].partition("|")[2].strip() for issue in report.issues]
    return [(issue.kind, line) for issue, line in zip(report.issues, lines, strict=True)]


@pytest.mark.parametrize("wide", [False, True])
def test_an_offset_that_wraps_around(wide):
    x = np.zeros(64, np.int8)
    kinds = found(lambda: row_starts[(3,)](x, 1 << 30, 32, WIDE=wide, BLOCK=32))
    line = "start = (pid.to(tl.int64) if WIDE else pid) * stride"
    assert (("overflow", line) in kinds) == (not wide)
    assert ("out-of-bounds", "tl.store(x + (start + i)[None, :], 1, mask=(i < n)[None, :])") in kinds


def test_an_overflow_names_the_access_too():
    with ptxforge.check(fail_on="never") as report:
        row_starts[(3,)](np.zeros(64, np.int8), 1 << 30, 32, WIDE=False, BLOCK=32)
    issue = next(issue for issue in report.issues if issue.kind == "overflow")
    assert issue.program == (2, 0, 0) and issue.count == 32
    assert issue.other.line == issue.place.line + 2 and "the access is at" in str(issue)


def test_an_offset_that_wraps_where_nobody_looks():
    assert not found(lambda: masked_wrap[(1,)](np.zeros(1, np.int8), 1, BLOCK=64))


def test_promises_that_hold():
    starts, x = np.array([32], np.int32), np.zeros(64, np.int32)
    assert not found(lambda: promises[(1,)](starts, x, 8, BLOCK=32))


@pytest.mark.parametrize(
    ("start", "n", "line"),
    [
        (7, 8, "start = tl.multiple_of(tl.load(starts), 16)"),
        (0, 3, "tl.assume(n > 4)"),
        (0, 6, "same = tl.max_constancy((i // n) * n, 4)"),
    ],
)
def test_promises_that_are_false(start, n, line):
    starts, x = np.array([start], np.int32), np.zeros(64, np.int32)
    assert ("promise", line) in found(lambda: promises[(1,)](starts, x, n, BLOCK=32))


@pytest.mark.parametrize("asked", [False, True])
def test_a_nan_that_is_born(asked):
    x, out = np.ones(64, np.float32), np.zeros(64, np.float32)
    x[3] = 0
    kinds = found(lambda: makes_nan[(1,)](x, out, BLOCK=64), non_finite=asked)
    assert kinds == ([("non-finite", "tl.store(out + i, tl.exp(v - best) / v)")] if asked else [])


def test_an_infinity_that_was_there():
    """An atomic operation gives what the memory held, as a load does."""

    @ptxforge.jit
    def add_to(x, out, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        tl.store(out + i, tl.atomic_add(x + i, 1.0))

    x, out = np.full(64, np.inf, np.float32), np.zeros(64, np.float32)
    assert not found(lambda: add_to[(1,)](x, out, BLOCK=64), non_finite=True)


def test_masks_that_never_matter():
    x, out = np.ones(256, np.float32), np.zeros(256, np.float32)
    lines = "v = tl.load(x + i, mask=i < n)", "tl.store(out + i, v, mask=i < limit)"

    def launch(*sizes):
        return lambda: [masks[(2,)](x, out, n, limit, BLOCK=128) for n, limit in sizes]

    assert found(launch((256, 0))) == [("unused-mask", lines[0]), ("false-mask", lines[1])]
    assert not found(launch((200, 100)))
    assert not found(launch((256, 0), (255, 1)))  # in another launch they do


def test_without_interpreting():
    x = np.ones(256, np.float32)
    assert not found(lambda: masks[(2,)](x, x.copy(), 256, 0, BLOCK=128), tiles=False)


def test_the_arrays_are_as_they_would_be():
    """The interpreter works on copies: an update in place happens once."""
    x = np.zeros(64, np.float32)

    @ptxforge.jit
    def add_one(x, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        tl.store(x + i, tl.load(x + i) + 1)

    assert not found(lambda: add_one[(1,)](x, BLOCK=64))
    assert (x == 1).all()
