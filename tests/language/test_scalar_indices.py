"""A scalar indexed with ``None`` and ``:``."""

from __future__ import annotations

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.support.errors import CompilationError


@ptxforge.jit
def expanded(x, out):
    total = tl.sum(tl.load(x + tl.arange(0, 16)), keep_dims=True)
    at = out[None, :]
    tl.static_assert(at.shape == [1])
    tl.store(at, total)


def test_colons_of_a_scalar_are_nothing(execute):
    x = np.arange(16, dtype=np.float32)
    for (out,) in execute(expanded, (1,), [x, np.zeros(1, np.float32)], {}, outputs=[1]):
        assert out[0] == x.sum()


@ptxforge.jit
def part_of_a_scalar(x):
    tl.store(x[1:], 0)


@ptxforge.jit
def too_many(x):
    tl.store((x + tl.arange(0, 4))[:, :], 0)


@pytest.mark.parametrize("kernel", [part_of_a_scalar, too_many])
def test_indices_of_what_is_not_there(kernel):
    with pytest.raises(CompilationError, match="too many indices"):
        kernel.compile({"x": "*fp32"})
