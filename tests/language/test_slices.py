"""Parts of blocks: ``x[a:b:c]`` with compile-time bounds, on every executor, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.support.errors import CompilationError

SLICES = [
    (slice(None), slice(0, 8)), (slice(16, 32), slice(None)), (slice(None, None, 2), slice(8, 16)),
    (slice(3, 4), slice(None, None, 4)), (slice(-8, None), slice(1, None, 2)), (slice(5, 13), slice(None)),
    (slice(None, None, -1), slice(0, 16)), (slice(30, None, -2), slice(2, 14, 3)), (slice(2), slice(4, 5)),
]  # fmt: skip


@pytest.mark.parametrize("index", SLICES, ids=str)
def test_parts(execute, index):
    x = np.random.default_rng(0).integers(-99, 99, (32, 16)).astype(np.int32)
    expected = x[index]
    m, n = expected.shape
    # A slice has no hash in this Python: the kernel makes it of its bounds.
    rows, columns = ((s.start, s.stop, s.step) for s in index)
    constants = {"ROWS": rows, "COLUMNS": columns, "M": m, "N": n}
    for (out,) in execute(part_of_bounds, (1,), [x, np.zeros((m, n), np.int32)], constants, outputs=[1]):
        np.testing.assert_array_equal(out, expected)


@ptxforge.jit
def part_of_bounds(x, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    i, j = tl.arange(0, 32)[:, None], tl.arange(0, 16)[None, :]
    block = tl.load(x + i * 16 + j)
    part = block[ROWS[0] : ROWS[1] : ROWS[2], COLUMNS[0] : COLUMNS[1] : COLUMNS[2]]
    tl.static_assert(part.shape[0] == M and part.shape[1] == N)
    k, n = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
    tl.store(out + k * N + n, part)


@ptxforge.jit
def with_new_dimensions(x, out, HALF: tl.constexpr):
    block = tl.load(x + tl.arange(0, 16))
    square = block[:HALF, None] * block[None, HALF:]
    tl.store(out + tl.arange(0, 8)[:, None] * 8 + tl.arange(0, 8)[None, :], square)


def test_new_dimensions_beside_parts(execute):
    x = np.arange(16, dtype=np.float32)
    expected = x[:8, None] * x[None, 8:]
    arguments = [x, np.zeros((8, 8), np.float32)]
    for (out,) in execute(with_new_dimensions, (1,), arguments, {"HALF": 8}, outputs=[1]):
        np.testing.assert_array_equal(out, expected)


@ptxforge.jit
def odd_length(x, n):
    tl.store(x, tl.sum(tl.load(x + tl.arange(0, 16))[:3], 0))


@ptxforge.jit
def runtime_bound(x, n):
    tl.store(x, tl.sum(tl.load(x + tl.arange(0, 16))[:n], 0))


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (odd_length, "this slice has 3 elements; the size of a block is a power of two"),
        (runtime_bound, "the bounds of a slice must be known at compile time"),
    ],
)
def test_mistakes(kernel, message):
    with pytest.raises(CompilationError, match=message):
        kernel.compile({"x": "*i32", "n": "i32"}, {}, target="sm_90a")
