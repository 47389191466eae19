"""A module of kernels that other processes can import."""

from __future__ import annotations

import numpy as np

import ptxforge
import ptxforge.language as tl


@ptxforge.jit
def double(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i) * 2)


@ptxforge.jit
def limited(x, out, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK <= 16, "at most 16")
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i) * 2)


def plain(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)


compiled = ptxforge.compile(plain)
not_specialized = ptxforge.jit(plain, do_not_specialize=["n"])


@ptxforge.autotune([ptxforge.Config({"BLOCK": 16}, num_warps=1)], key=[])
@ptxforge.heuristics({"EVEN": lambda arguments: True})
@ptxforge.jit
def tuned(x, out, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i) * 2 if EVEN else tl.load(x + i))


class Kernels:
    @ptxforge.jit
    def member(x, out, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        tl.store(out + i, tl.load(x + i) * 2)


def run(kernel, *rest, **options) -> float:
    """The sum of a vector of 16 ones that ``kernel`` doubles."""
    x = np.ones(16, np.float32)
    out = np.zeros_like(x)
    kernel[(1,)](x, out, *rest, **options)
    return float(out.sum())
