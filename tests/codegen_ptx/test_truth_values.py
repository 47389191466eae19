"""Truth values of bytes: any byte but 0 is true, and logic of them is done four at a time."""

from __future__ import annotations

import re

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl

SIZE = 1024


def logic(x, y, out, KIND: tl.constexpr, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    a, b = tl.load(x + i).to(tl.int1), tl.load(y + i).to(tl.int1)
    if KIND == "and":
        found = a & b
    elif KIND == "or not":
        found = a | (b == 0)
    elif KIND == "xor":
        found = a ^ b
    elif KIND == "not":
        found = ~a
    elif KIND == "one":
        found = a
    else:
        found = (a & b) | (a ^ ~b)
    tl.store(out + i, found)


EXPECTED = {
    "and": lambda a, b: a & b,
    "or not": lambda a, b: a | ~b,
    "xor": lambda a, b: a ^ b,
    "not": lambda a, b: ~a,
    "one": lambda a, b: a,
    "mixed": lambda a, b: (a & b) | (a ^ ~b),
}


def _bytes() -> list[np.ndarray]:
    """Every byte beside every kind of neighbour."""
    rng = np.random.default_rng(3)
    some = rng.choice(np.array([0, 0, 1, 127, -128, -1, 2], np.int8), (2, SIZE))
    some[0, :256] = np.arange(256).astype(np.uint8).view(np.int8)
    return list(some)


@pytest.mark.parametrize("warps", [1, 4, 8])
@pytest.mark.parametrize("kind", EXPECTED)
def test_bytes_that_are_true(kind, warps):
    x, y = _bytes()
    out = np.full(SIZE, 77, np.int8)
    kernel = ptxforge.compile(logic)
    kernel[(1,)](x, y, out.view(np.bool_), KIND=kind, SIZE=SIZE, num_warps=warps)
    np.testing.assert_array_equal(out, EXPECTED[kind](x != 0, y != 0).astype(np.int8))


def test_they_take_no_predicates():
    signature = {"x": "*i8:16", "y": "*i8:16", "out": "*i1:16"}
    made = ptxforge.compile(logic, signature, {"KIND": "mixed", "SIZE": SIZE}, "sm_90a", num_warps=4)
    assert "in_words" in made.asm["gpu"]
    assert not re.search(r"setp|selp|prmt", made.ptx), made.ptx


def chosen(x, y, out, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    a = tl.load(x + i).to(tl.int1) & (tl.load(y + i) > 0.5)
    tl.store(out + i, a)


def test_where_one_is_no_byte_they_stay_predicates():
    x, _ = _bytes()
    y, out = np.linspace(0, 1, SIZE, dtype=np.float32), np.zeros(SIZE, np.bool_)
    kernel = ptxforge.compile(chosen)
    kernel[(1,)](x, y, out, SIZE=SIZE)
    np.testing.assert_array_equal(out, (x != 0) & (y > 0.5))
    assert "in_words" not in kernel.asm["gpu"]
