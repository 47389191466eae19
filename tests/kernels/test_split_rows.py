"""Indices taken apart by sizes that are no powers of two: accesses stay as wide as the parts allow."""

from __future__ import annotations

import re

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl


@ptxforge.jit
def take_queries(qkv, out, n, HEADS: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    """The first third of rows that hold queries, keys and values of ``HEADS`` heads."""
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = index < n
    column = index % SIZE
    head = (index // SIZE) % HEADS
    row = index // (SIZE * HEADS)
    x = tl.load(qkv + column + SIZE * head + 3 * SIZE * HEADS * row, mask=inside)
    tl.store(out + index, x, mask=inside)


@ptxforge.jit
def sum_of_groups(x, out, n, COLUMNS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """``out[g, c]``: the sum of a group's rows, along the dimension that does not lie together."""
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    column, group = index % COLUMNS, index // COLUMNS
    total = tl.zeros((BLOCK,), tl.float32)
    for row in range(ROWS):
        total += tl.load(x + column + COLUMNS * row + COLUMNS * ROWS * group, mask=index < n, other=0.0)
    tl.store(out + index, total, mask=index < n)


def accesses(kernel, constants):
    signature = {kernel.arg_names[0]: "*fp32:16", "out": "*fp32:16", "n": "i32:16"}
    ptx = kernel.compile(signature, constants, target="sm_90a").asm["ptx"]
    return set(re.findall(r"(?:ld|st)\.global[\w.]*", ptx))


WIDE = {"ld.global.v4.b32", "st.global.v4.b32"}


@pytest.mark.parametrize(("heads", "size"), [(12, 64), (3, 1024), (5, 16)])
def test_queries_are_loaded_in_vectors(execute, heads, size):
    constants = {"HEADS": heads, "SIZE": size, "BLOCK": 1024}
    assert accesses(take_queries, constants) == WIDE
    rows = 3
    qkv = np.arange(rows * 3 * heads * size, dtype=np.float32)
    expected = qkv.reshape(rows, 3, heads * size)[:, 0].ravel()
    n = expected.size
    for (out,) in execute(
        take_queries, (-(-n // 1024),), [qkv, np.zeros(n, np.float32), n], constants, outputs=[1]
    ):
        np.testing.assert_array_equal(out, expected)


def test_rows_of_a_group_are_loaded_in_vectors(execute):
    constants = {"COLUMNS": 384, "ROWS": 5, "BLOCK": 512}
    assert accesses(sum_of_groups, constants) == WIDE
    x = np.random.default_rng(0).integers(-9, 9, (3, 5, 384)).astype(np.float32)
    expected = x.sum(1)
    arguments = [x, np.zeros_like(expected), expected.size]
    for (out,) in execute(sum_of_groups, (3,), arguments, constants, outputs=[1]):
        np.testing.assert_array_equal(out, expected)


def test_columns_of_no_common_power_stay_single():
    found = accesses(take_queries, {"HEADS": 5, "SIZE": 15, "BLOCK": 1024})
    assert found == {"ld.global.b32", "st.global.v4.b32"}
