"""Divisions of 64-bit integers: those that fit into 32 bits are divided as such."""

from __future__ import annotations

import re

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from tests.kernels.conftest import execute

__all__ = ["execute"]

EDGES = [
    0,
    1,
    2,
    3,
    7,
    255,
    2**16,
    2**31 - 1,
    2**31,
    2**32 - 2,
    2**32 - 1,
    2**32,
    2**32 + 1,
    2**33,
    2**62,
    2**63 - 1,
]


@ptxforge.jit
def both(x, y, quotient, remainder, N: tl.constexpr):
    at = tl.arange(0, N)
    a, b = tl.load(x + at), tl.load(y + at)
    tl.store(quotient + at, a // b)
    tl.store(remainder + at, a % b)


@ptxforge.jit
def by_a_scalar(x, y, quotient, remainder, N: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    a, b = tl.load(x + at), tl.load(y)
    tl.store(quotient + at, a // b)
    tl.store(remainder + at, a % b)


def towards_zero(x, y):
    """C's quotients and remainders of Python's integers."""
    quotients = [abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) for a, b in zip(x, y)]
    return quotients, [a - b * q for a, b, q in zip(x, y, quotients)]


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
@pytest.mark.parametrize("narrow", [True, False])
def test_quotients_and_remainders(execute, dtype, narrow):
    """Every warp by itself takes the short way or the long one: at first all can, then only some."""
    numbers = [e for e in EDGES if e < 2**32] if narrow else EDGES
    numbers = numbers + [-e for e in numbers] if dtype is np.int64 and not narrow else numbers
    pairs = [(a, b) for a in numbers for b in numbers if b] * 4
    pairs = (pairs + [(5, 3)] * 1024)[:1024]
    x, y = (np.array(column, dtype) for column in zip(*pairs))
    expected = towards_zero(*zip(*pairs))
    for found in execute(both, (1,), [x, y, x * 0, x * 0], {"N": 1024}, outputs=[2, 3]):
        for mine, theirs in zip(found, expected):
            np.testing.assert_array_equal(mine, np.array(theirs, dtype))


@pytest.mark.parametrize("divisor", [1, 3, 2053, 2**32 - 1, 2**32, 2**32 + 5, -3, 2**63 - 1])
def test_by_a_scalar(execute, divisor):
    x = np.array([*EDGES, *(-e for e in EDGES)] * 8, np.int64)
    expected = towards_zero(x.tolist(), [divisor] * 256)
    y = np.array([divisor], np.int64)
    for found in execute(by_a_scalar, (2,), [x, y, x * 0, x * 0], {"N": 128}, outputs=[2, 3]):
        for mine, theirs in zip(found, expected):
            np.testing.assert_array_equal(mine, np.array(theirs, np.int64))


def test_by_zero(execute):
    """All ones, in as many bits, where the others of a warp fit into 32 bits, too."""
    x = np.array(EDGES[:4] * 8 + EDGES * 6, np.int64)
    arguments = [x, np.zeros(1, np.int64), x * 0, x * 0]
    for found in execute(by_a_scalar, (1,), arguments, {"N": 128}, outputs=[2, 3]):
        for result in found:
            assert (result == -1).all()


def test_both_take_one_short_division():
    signature = dict.fromkeys(["x", "y", "quotient", "remainder"], "*i64")
    ptx = by_a_scalar.compile(signature, {"N": 256}).asm["ptx"]
    assert ptx.count("div.u32") == ptx.count("div.s64") == 2 and "rem." not in ptx
    assert len(re.findall(r"@!%p\d+ bra", ptx)) == 1


@ptxforge.jit
def of_scalars(x, y, quotient, remainder):
    at = tl.program_id(0)
    a, b = tl.load(x + at), tl.load(y + at)
    tl.store(quotient + at, a // b)
    tl.store(remainder + at, a % b)


def test_scalars(execute):
    pairs = [(a, b) for a in EDGES for b in (*EDGES, -7) if b]
    x, y = (np.array(column, np.int64) for column in zip(*pairs))
    expected = towards_zero(*zip(*pairs))
    for found in execute(of_scalars, (len(pairs),), [x, y, x * 0, x * 0], {}, outputs=[2, 3]):
        for mine, theirs in zip(found, expected):
            np.testing.assert_array_equal(mine, np.array(theirs, np.int64))


@ptxforge.jit
def wrapped(x, y, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.load(x + at) % tl.load(y))


@pytest.mark.parametrize("divisor", [5, 2**20, 2**32 - 1, 2**32, 2**40, -9])
@pytest.mark.parametrize("numbers", [[1, 4, 3], [1, 2**31, 2**32 - 1], EDGES])
def test_remainders_that_are_mostly_the_dividend(execute, divisor, numbers):
    x = np.resize(np.array(numbers, np.int64), 256)
    _, expected = towards_zero(x.tolist(), [divisor] * 256)
    for (out,) in execute(wrapped, (1,), [x, np.array([divisor]), x * 0], {"N": 256}, outputs=[2]):
        np.testing.assert_array_equal(out, np.array(expected, np.int64))


def test_scalars_take_the_short_way():
    ptx = of_scalars.compile(dict.fromkeys(["x", "y", "quotient", "remainder"], "*i64"), {}).asm["ptx"]
    assert ptx.count("div.u32") == len(re.findall(r"@!%p\d+ bra", ptx)) == 1 and "rem." not in ptx


@ptxforge.jit
def tiles(out, columns, rows):
    program = tl.program_id(0).to(tl.int64)
    column, row = program % columns, program // columns % rows
    depth = program // columns // rows
    at = out + 3 * tl.program_id(0)
    tl.store(at, column)
    tl.store(at + 1, row)
    tl.store(at + 2, depth)


@pytest.mark.parametrize(("columns", "rows"), [(7, 3), (1, 5), (-3, 2), (5, -1)])
def test_indices_of_programs_are_divided_with_32_bits(execute, columns, rows):
    expected = []
    for program in range(40):
        (quotient,), (column,) = towards_zero([program], [columns])
        (depth,), (row,) = towards_zero([quotient], [rows])
        expected += [column, row, depth]
    for (found,) in execute(tiles, (40,), [np.zeros(120, np.int64), columns, rows], {}, outputs=[0]):
        assert found.tolist() == expected


def test_no_wide_division_of_programs_remains():
    ptx = tiles.compile({"out": "*i64", "columns": "i32", "rows": "i32"}, {}).asm["ptx"]
    assert not re.search(r"(div|rem)\.[su]64", ptx)
