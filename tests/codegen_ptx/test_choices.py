"""Of two values in each other's place the code generator takes one, where a kernel changes bits."""

from __future__ import annotations

import numpy as np

import ptxforge
import ptxforge.language as tl
from ptxforge.compiler import compile_function


def sort_pairs(x, out):
    """As generated networks do: what both elements of a pair differ in goes to where they change places."""
    i = tl.arange(0, 64)
    mine = tl.load(x + i)
    pairs = tl.reshape(mine, [32, 2])
    second = tl.arange(0, 2)[None, :]
    left = tl.reshape(tl.broadcast_to(tl.sum(pairs * (1 - second), 1)[:, None], [32, 2]), [64])
    right = tl.reshape(tl.broadcast_to(tl.sum(pairs * second, 1)[:, None], [32, 2]), [64])
    tl.store(out + i, mine ^ tl.where(left > right, left ^ right, 0))


def test_a_pair_changes_places_by_choices():
    signature = {"x": "*i32:16", "out": "*i32:16"}
    ptx = compile_function(sort_pairs, signature, {}, "sm_90a", num_warps=2).asm["ptx"]
    assert ptx.count("shfl.") == 1 and ptx.count("selp.") == 3
    assert "xor.b32" not in ptx


def test_pairs_are_sorted():
    x = np.random.default_rng(2).integers(-9, 9, 64).astype(np.int32)
    out = np.zeros_like(x)
    ptxforge.compile(sort_pairs)[(1,)](x, out, num_warps=2)
    np.testing.assert_array_equal(out, np.sort(x.reshape(32, 2), 1).ravel())
