"""A script without a fault; it uses its arguments."""

import sys

import numpy as np

import ptxforge
import ptxforge.language as tl


@ptxforge.jit
def scale(x, out, factor, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i) * factor)


x, out = np.ones(128, np.float32), np.zeros(128, np.float32)
scale[(1,)](x, out, float(sys.argv[1]), BLOCK=128)
print("sum", out.sum())
