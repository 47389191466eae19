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
