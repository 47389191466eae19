"""Blocks that wait for each other."""

from __future__ import annotations

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.support.errors import LaunchError


@ptxforge.jit
def exchange(x, out, arrived, BLOCK: tl.constexpr):
    """Each program writes, waits until all have, and reads what the next one wrote."""
    here, count = tl.program_id(0), tl.num_programs(0)
    i = tl.arange(0, BLOCK)
    tl.store(x + here * BLOCK + i, here + i)
    tl.debug_barrier()
    tl.atomic_add(arrived, 1, sem="release")
    while tl.atomic_add(arrived, 0, sem="acquire") < count:
        pass
    there = (here + 1) % count
    tl.store(out + here * BLOCK + i, tl.load(x + there * BLOCK + i, volatile=True))


def launch(device, programs: int) -> np.ndarray:
    with ptxforge.use_device(device):
        x, out = (ptxforge.to_device(np.zeros(programs * 32, np.int32)) for _ in range(2))
        arrived = ptxforge.to_device(np.zeros(1, np.int32))
        exchange[(programs,)](x, out, arrived, BLOCK=32, num_warps=1, launch_cooperative_grid=True)
        return out.numpy().reshape(programs, 32)


@pytest.mark.parametrize("programs", [2, 300])
def test_all_blocks_wait_for_all(devices, programs):
    expected = (np.arange(programs) + 1)[:, None] % programs + np.arange(32)
    for device in devices:
        np.testing.assert_array_equal(launch(device, programs), expected)


def test_a_grid_that_no_gpu_holds_at_once():
    message = r"all its blocks on the machine at once: 4224 fit, and \(5000, 1, 1\) are 5000"
    with pytest.raises(LaunchError, match=message):
        launch("emulator", 5000)
