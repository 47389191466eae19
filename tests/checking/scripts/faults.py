"""Kernels with one fault each, as a user would write them."""

import numpy as np
import triton
import triton.language as tl


@triton.jit
def no_mask(x, out, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i) * 2)


@triton.jit
def zero_then_add(out, x, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.zeros((BLOCK,), tl.float32))
    tl.atomic_add(out + i // 2, tl.load(x + i))


@triton.jit
def running_total(out, x, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.sum(tl.load(x + i), 0)
    before = tl.load(out)
    tl.store(out, before + total)


@triton.jit
def right(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)


def main():
    x, out = np.ones((10, 100), np.float32), np.zeros(1024, np.float32)
    for _ in range(2):
        no_mask[(8,)](x, out, BLOCK=128)
    zero_then_add[(1,)](np.zeros(128, np.float32), np.ones(128, np.float32), BLOCK=128)
    running_total[(2,)](np.zeros(1, np.float32), np.ones(256, np.float32), BLOCK=128)
    right[(8,)](x, out, 1000, BLOCK=128)


if __name__ == "__main__":
    main()
