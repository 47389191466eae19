"""``tl.assume``: what it promises makes accesses wide, on every executor."""

from __future__ import annotations

import re

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl


@ptxforge.jit(do_not_specialize=["n", "stride"])
def copy_rows(x, out, n, stride, ASSUME: tl.constexpr, BLOCK: tl.constexpr):
    if ASSUME:
        tl.assume((n % 4 == 0) & (stride % 4 == 0))
    i = tl.arange(0, BLOCK)
    row = tl.program_id(0) * stride
    tl.store(out + row + i, tl.load(x + row + i, mask=i < n), mask=i < n)


@pytest.mark.parametrize(("assume", "widths"), [(True, {"v4."}), (False, {"v4.", ""})])
def test_multiples_of_four(execute, assume, widths):
    """Without the promise, every vector is tested, and there is code for single elements."""
    x = np.arange(3 * 512, dtype=np.float32).reshape(3, 512)
    constants = {"ASSUME": assume, "BLOCK": 512}
    for (out,) in execute(copy_rows, (3,), [x, np.zeros_like(x), 508, 512], constants, outputs=[1]):
        np.testing.assert_array_equal(out[:, :508], x[:, :508])
        assert not out[:, 508:].any()
    ptx = copy_rows.compile({"x": "*fp32:16", "out": "*fp32:16", "n": "i32", "stride": "i32"}, constants).ptx
    assert set(re.findall(r"(?:ld|st)\.global\.(v\d\.)?b32", ptx)) == widths


@pytest.mark.parametrize("shift", [0, 3])
def test_a_wrong_promise_is_found_by_the_interpreter(shift):
    function = ptxforge.frontend.build(
        copy_rows.fn,
        {"x": "*fp32", "out": "*fp32", "n": "i32", "stride": "i32"},
        {"ASSUME": True, "BLOCK": 16},
        target="sm_90a",
        num_warps=1,
        num_stages=1,
    )
    arrays = [np.zeros(64, np.float32), np.zeros(64, np.float32)]
    if shift:
        with pytest.raises(ptxforge.support.errors.InterpreterError, match="assumes does not hold"):
            ptxforge.interpreter.run(function, 1, [*arrays, 16 + shift, 16])
    else:
        ptxforge.interpreter.run(function, 1, [*arrays, 16, 16])


@ptxforge.jit
def wrapped_rows(x, out, rows, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = tl.max_contiguous(tl.multiple_of(i % rows, BLOCK), BLOCK)
    k = tl.arange(0, WIDTH)[None, :]
    tl.store(out + i[:, None] * WIDTH + k, tl.load(x + row[:, None] * WIDTH + k), mask=i[:, None] < rows)


def test_a_promise_that_the_last_block_breaks_reads_nothing_else(execute):
    """Matrix kernels wrap rows around so as to need no mask, and promise contiguous ones nevertheless."""
    x = np.arange(33 * 16, dtype=np.float32).reshape(33, 16)
    for (out,) in execute(
        wrapped_rows, (2,), [x, np.zeros_like(x), 33], {"BLOCK": 32, "WIDTH": 16}, outputs=[1]
    ):
        np.testing.assert_array_equal(out, x)
