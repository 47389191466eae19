"""Integers that are written as the bits of their type."""

from __future__ import annotations

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.support.errors import CompilationError


@ptxforge.jit
def bits(x, y, z):
    tl.store(x + tl.arange(0, 4), 0xFFFFFFFF)
    tl.store(y, 0x80)
    tl.store(z, tl.full((), 0xFFFFFFFFFFFFFFFE, tl.int64))


def test_numbers_that_are_the_bits_of_a_signed_integer(execute):
    arguments = [np.zeros(4, np.int32), np.zeros(1, np.int8), np.zeros(1, np.int64)]
    for x, y, z in execute(bits, (1,), arguments, {}, outputs=[0, 1, 2]):
        assert (x == -1).all() and y[0] == -128 and z[0] == -2


@ptxforge.jit
def too_wide(x):
    tl.store(x, 0x100000000)


def test_numbers_of_more_bits_are_refused():
    with pytest.raises(CompilationError, match="does not fit in int32") as caught:
        too_wide.compile({"x": "*i32"})
    assert caught.value.error_message == "the integer 4294967296 does not fit in int32"
