"""Loops that accumulate booleans, on every executor: they are words between the iterations."""

from __future__ import annotations

import re

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl


@ptxforge.jit
def accumulated(x, flags, out, n, BLOCK: tl.constexpr):
    """Of each column of rows of BLOCK numbers: any, all and parity of x > 0, what the last rows say, any
    flag."""
    i = tl.arange(0, BLOCK)
    some = tl.zeros((BLOCK,), tl.int1)
    every = tl.full((BLOCK,), 1, tl.int1)
    odd = tl.zeros((BLOCK,), tl.int1)
    last = tl.zeros((BLOCK,), tl.int1)
    marked = tl.zeros((BLOCK,), tl.int1)
    for start in range(0, n, BLOCK):
        mask = start + i < n
        number = tl.load(x + start + i, mask=mask, other=-1)
        hit = number > 0
        some = some | hit
        every = every & (hit | (number < -2))
        odd = odd ^ hit
        last = tl.where(mask, last | (number == 3), False)
        marked = marked | (tl.load(flags + start + i, mask=mask, other=0) != 0)
    tl.store(out + i, some)
    tl.store(out + BLOCK + i, every)
    tl.store(out + 2 * BLOCK + i, odd)
    tl.store(out + 3 * BLOCK + i, last)
    tl.store(out + 4 * BLOCK + i, marked)


def expected(x, flags, block):
    rows = -(-len(x) // block)
    numbers, marks = np.full(rows * block, -1), np.zeros(rows * block, bool)
    numbers[: len(x)], marks[: len(x)] = x, flags
    numbers, marks = numbers.reshape(rows, block), marks.reshape(rows, block)
    hits, inside = numbers > 0, (np.arange(rows * block) < len(x)).reshape(rows, block)
    last = np.zeros(block, bool)
    for row, known in zip(numbers, inside):
        last = (last | (row == 3)) & known
    return np.stack([hits.any(0), (hits | (numbers < -2)).all(0), hits.sum(0) % 2 == 1, last, marks.any(0)])


@pytest.mark.parametrize("n", [1, 512, 1500, 4096])
@pytest.mark.parametrize("block", [128, 512, 1024])
def test_booleans_of_columns(execute, n, block):
    rng = np.random.default_rng(n)
    x, flags = rng.integers(-5, 5, n).astype(np.int32), rng.integers(0, 9, n) == 0
    arguments = [x, flags, np.zeros((5, block), bool), n]
    for (out,) in execute(accumulated, (1,), arguments, {"BLOCK": block}, outputs=[2]):
        np.testing.assert_array_equal(out, expected(x, flags, block))


@ptxforge.jit
def any_of_rows(flags, out, n, BLOCK: tl.constexpr):
    """Whether a row of flags has one."""
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    found = tl.zeros((BLOCK,), tl.int1)
    for start in range(0, n, BLOCK):
        found = found | (tl.load(flags + row * n + start + i, mask=start + i < n, other=0) != 0)
    tl.store(out + row, tl.max(found.to(tl.int32), 0) != 0)


def test_bytes_are_tested_where_they_are():
    """One instruction masks a byte of a word and compares it, and one keeps what was found: no shift, no
    predicate that lives through an iteration."""
    signature = {"flags": "*i1:16", "out": "*i1:16", "n": "i32:16"}
    options = {"constants": {"BLOCK": 1024}, "target": "sm_90a"}
    artifact = ptxforge.compile(any_of_rows, signature=signature, **options)
    (loop,) = re.findall(r"^\$for_\d+:\n(.*?)bra", artifact.asm["ptx"], re.S | re.M)
    assert loop.count("selp.b32") == 8 and loop.count("setp.ne.b32") == 8
    assert "shr" not in loop and "or.pred" not in loop


@ptxforge.jit
def is_among(x, found, out, n, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Which of some numbers x are among n numbers, by comparing all with all."""
    rows, columns = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None], tl.arange(0, BLOCK)[None, :]
    number = tl.load(x + rows + tl.zeros((ROWS, BLOCK), tl.int32))
    hits = tl.zeros((ROWS, BLOCK), tl.int1)
    for start in range(0, n, BLOCK):
        mask = (start + columns < n) & (rows >= 0)
        other = tl.load(found + start + columns + tl.zeros((ROWS, BLOCK), tl.int32), mask=mask, other=0)
        hits = tl.where(mask, hits | (number == other), False)
    tl.store(out + rows, tl.max(hits.to(tl.int32), 1)[:, None])


@pytest.mark.parametrize("n", [128, 1024])
def test_all_are_compared_with_all(execute, n):
    rng = np.random.default_rng(n)
    x, found = rng.integers(0, 999, 16), rng.integers(0, 999, n)
    found[n // 2] = x[3]
    arguments = [x, found, np.zeros(16, np.int32), n]
    for (out,) in execute(is_among, (4,), arguments, {"ROWS": 4, "BLOCK": 128}, outputs=[2]):
        np.testing.assert_array_equal(out, np.isin(x, found))


def test_loads_of_several_iterations_are_on_their_way():
    """No predicate lives longer than a load takes to start, and there are registers for 16 bytes of each of
    eight loads."""
    signature = {"x": "*i64:16", "found": "*i64:16", "out": "*i32:16", "n": "i32:16"}
    artifact = ptxforge.compile(
        is_among, signature=signature, constants={"ROWS": 4, "BLOCK": 128}, target="sm_90a"
    )
    (loop,) = re.findall(r"^\$for_\d+:\n(.*?)bra", artifact.asm["ptx"], re.S | re.M)
    before, after = loop.rsplit("ld.global", 1)
    assert before.count("ld.global") == 1 and before.count("set.lt.s32.s32") == 2
    guards = re.findall(r"@(%p\d+) ld", loop)
    assert len(set(guards)) == 2 and not any(re.search(rf"{guard}\b", after[5:]) for guard in guards)
    assert ".minnctapersm 8" in artifact.asm["ptx"]


@ptxforge.jit
def before_zero(x, out, rows, BLOCK: tl.constexpr):
    """Of each column: what follows its fives, until its first zero."""
    i = tl.arange(0, BLOCK)
    inside = i < BLOCK - 3
    found = tl.zeros((BLOCK,), tl.int1)
    for row in range(rows):
        number = tl.load(x + row * BLOCK + i, mask=inside, other=0)
        five = tl.where(inside, number == 5, False)
        found = tl.where(inside, (found & (number == 0)) | five, False)
        inside = inside & (number != 0)
    tl.store(out + i, found)
    tl.store(out + BLOCK + i, inside)


@pytest.mark.parametrize("block", [128, 512])
def test_masks_that_the_loop_carries_too(execute, block):
    """What decides which element is loaded stays a predicate; the word that goes with it begins where the
    body does."""
    x = np.random.default_rng(block).integers(0, 7, (6, block)).astype(np.int32)
    inside, found = np.arange(block) < block - 3, np.zeros(block, bool)
    for row in x:
        row = np.where(inside, row, 0)
        found = np.where(inside, (found & (row == 0)) | (row == 5), False)
        inside = inside & (row != 0)
    wanted = np.stack([found, inside])
    for (out,) in execute(before_zero, (1,), [x, np.zeros_like(wanted), 6], {"BLOCK": block}, outputs=[1]):
        np.testing.assert_array_equal(out, wanted)
