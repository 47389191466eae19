"""A script of Triton kernels, with numpy in torch's place: run by ``python -m ptxforge run``."""

import sys

import numpy as np
import triton
import triton.language as tl
from triton.testing import do_bench


@triton.jit
def scaled(x, factor):
    return x * factor


@triton.autotune(
    configs=[triton.Config({"BLOCK": 256}, num_warps=2), triton.Config({"BLOCK": 512}, num_warps=4)],
    key=["n"],
)
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, factor, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    pid = tl.program_id(axis=0)
    offsets = pid * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        x, y = tl.load(x_ptr + offsets), tl.load(y_ptr + offsets)
        tl.store(out_ptr + offsets, x + scaled(y, factor))
    else:
        mask = offsets < n
        x, y = tl.load(x_ptr + offsets, mask=mask), tl.load(y_ptr + offsets, mask=mask)
        tl.store(out_ptr + offsets, x + scaled(y, factor), mask=mask)


def add(x, y):
    out = np.empty_like(x)
    n = x.size
    add_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n, 2.0)
    return out


if __name__ == "__main__":
    for n in (1000, 2048):
        x, y = np.arange(n, dtype=np.float32), np.ones(n, dtype=np.float32)
        np.testing.assert_array_equal(add(x, y), x + 2)
    assert do_bench(lambda: None, warmup=1, rep=1) >= 0
    print("passed", sys.argv[1:])
