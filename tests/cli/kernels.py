"""Kernels that the command line's tests compile."""

import triton
import triton.language as tl


@triton.jit
def copy(x, out, n, BLOCK: tl.constexpr, KIND: tl.constexpr = tl.float32):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n).to(KIND), mask=i < n)


@triton.autotune(configs=[triton.Config({"BLOCK": 64})], key=[])
@triton.jit
def tuned(x, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), 0)


NOT_A_KERNEL = 3
