"""A load whose mask or ``other`` is larger than its block of pointers."""

from __future__ import annotations

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.support.errors import TypeMismatchError


@ptxforge.jit
def row_under_a_mask(x, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """One pointer per row; the mask says which columns see what it points at."""
    rows, columns = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None, :]
    found = tl.load(x + rows, mask=columns <= rows, other=7)
    tl.static_assert(found.shape == [ROWS, COLUMNS])
    tl.store(out + rows * COLUMNS + columns, found)


@ptxforge.jit
def row_before_a_block(x, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Pointers of rank 1, a mask of a row each, an ``other`` of both dimensions."""
    rows, columns = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)
    found = tl.load(x + columns, mask=columns % 2 == 0, other=(rows * 100 + columns).to(tl.float32))
    tl.store(out + rows * COLUMNS + columns, found)


@pytest.mark.parametrize("dtype", [np.float32, np.int16, np.uint8, np.float64])
def test_a_mask_widens_the_pointers(execute, dtype):
    x = np.arange(1, 9).astype(dtype)
    rows, columns = np.arange(8)[:, None], np.arange(16)[None, :]
    expected = np.where(columns <= rows, x[:, None], np.array(7, dtype))
    sizes = {"ROWS": 8, "COLUMNS": 16}
    for (out,) in execute(row_under_a_mask, (1,), [x, np.zeros((8, 16), dtype)], sizes, outputs=[1]):
        np.testing.assert_array_equal(out, expected)


def test_what_replaces_widens_the_pointers(execute):
    x = np.arange(1, 17, dtype=np.float32)
    rows, columns = np.arange(4)[:, None], np.arange(16)[None, :]
    expected = np.where(columns % 2 == 0, x, rows * 100 + columns)
    sizes = {"ROWS": 4, "COLUMNS": 16}
    for (out,) in execute(row_before_a_block, (1,), [x, np.zeros((4, 16), np.float32)], sizes, outputs=[1]):
        np.testing.assert_array_equal(out, expected)


@ptxforge.jit
def other_that_does_not_fit(x):
    at = tl.arange(0, 16)
    tl.store(x + at, tl.load(x + at, mask=at < 3, other=tl.zeros([2, 8], tl.float32)))


@ptxforge.jit
def store_under_a_wide_mask(x):
    tl.store(x + tl.arange(0, 16)[:, None], 0.0, mask=tl.arange(0, 8)[None, :] < 3)


@pytest.mark.parametrize(
    ("kernel", "argument"), [(other_that_does_not_fit, "other"), (store_under_a_wide_mask, "mask")]
)
def test_shapes_that_do_not_fit(kernel, argument):
    """A store has no place for what a wider mask would write."""
    with pytest.raises(
        TypeMismatchError, match=f"argument '{argument}' of .* cannot be broadcast to the pointers"
    ):
        kernel.compile({"x": "*fp32"})
