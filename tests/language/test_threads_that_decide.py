"""Scalars that inline assembly makes for each thread: where conditions depend on them threads go their own
ways, which no branch may deny. (``.uni`` at one that does lets the assembler compute wrong.)"""

from __future__ import annotations

import re

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.emulator import EmulatorDevice
from tests.assembling import assemble_now

COUNT = "{ .reg .b32 old; atom.global.add.u32 old, [$1], 1; mov.u32 $0, old; }"


@ptxforge.jit
def thread():
    return tl.inline_asm_elementwise("mov.u32 $0, %tid.x;", "=r", [], tl.int32, is_pure=True, pack=1)


@ptxforge.jit
def own_ways(counts, out, n, COUNT: tl.constexpr, BLOCK: tl.constexpr):
    """Each thread counts: in a branch, a ``while``, a ``for``, by what a branch made, by what it drew."""
    number = thread()
    place = counts + number
    if number < n:
        tl.inline_asm_elementwise(COUNT, "=r,l", [place], tl.int32, is_pure=False, pack=1)
        left = 2
    else:
        left = number % 3
    while left > 0:
        tl.inline_asm_elementwise(COUNT, "=r,l", [place], tl.int32, is_pure=False, pack=1)
        left -= 1
    for _ in range(number - 60):
        tl.inline_asm_elementwise(COUNT, "=r,l", [place], tl.int32, is_pure=False, pack=1)
    drawn = tl.inline_asm_elementwise(COUNT, "=r,l", [out], tl.int32, is_pure=False, pack=1)
    if drawn % 2 == 0:
        tl.inline_asm_elementwise(COUNT, "=r,l", [out + 1], tl.int32, is_pure=False, pack=1)
    if n > 100:
        tl.store(out + 2 + tl.arange(0, BLOCK), 7)


@pytest.mark.parametrize("n", [2, 5, 40])
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_threads_go_their_own_ways(n, target):
    device = EmulatorDevice(check="all", target=target)
    threads = np.arange(64)
    expected = (threads < n) + np.where(threads < n, 2, threads % 3) + np.maximum(threads - 60, 0)
    with ptxforge.use_device(device):
        counts, out = (ptxforge.to_device(np.zeros(size, np.int32), device) for size in (64, 66))
        kernel = ptxforge.compile(own_ways)
        kernel[(1,)](counts, out, n, COUNT=COUNT, BLOCK=64, num_warps=2)
    np.testing.assert_array_equal(counts.numpy(), expected)
    np.testing.assert_array_equal(out.numpy()[:3], [64, 32, 0])
    assert not device.findings
    ptx = kernel.asm["ptx"]
    assert len(re.findall(r"@\S+\s+bra\.uni", ptx)) == 1, "what n decides is one way for all"
    assemble_now(ptx)
