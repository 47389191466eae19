"""Threads and programs that write the same value to one place harm nobody, whoever comes first."""

from __future__ import annotations

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl


@ptxforge.jit
def in_one_instruction(out, flag, SAME: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i // 4, i // 4 if SAME else i)
    tl.store(flag, 1 if SAME else tl.program_id(0))


@ptxforge.jit
def one_after_the_other(out, flag, SAME: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.full((BLOCK,), 3, tl.int32))
    tl.store(out + BLOCK - 1 - i, tl.full((BLOCK,), 3 if SAME else 4, tl.int32))
    tl.store(flag, 1)


@pytest.mark.parametrize("kernel", [in_one_instruction, one_after_the_other])
@pytest.mark.parametrize("programs", [1, 3])
@pytest.mark.parametrize("block", [64, 512])
@pytest.mark.parametrize("same", [True, False])
def test_only_different_values_race(kernel, programs, block, same):
    out, flag = np.zeros(block, np.int32), np.zeros(1, np.int32)
    with ptxforge.check("never", tiles=False) as report:
        kernel[(programs,)](out, flag, SAME=same, BLOCK=block)
    kinds = {issue.kind for issue in report.issues}
    if same:
        assert not kinds
    else:
        assert kinds == ({"race"} if programs == 1 else {"race", "global-race"})
