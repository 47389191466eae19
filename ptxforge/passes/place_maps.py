"""Give the tensor maps that a kernel makes their places in global memory.

    %w = map_workspace                                                      (before)
    %m = make_tensor_map %w, %t, %p, … {sizes = …}

    %w = map_workspace {record_bytes = 256, records = 4224}                 (after)
    %m = make_tensor_map %w, %t, %p, … {offset = 128, sizes = …}

The record of a block begins with 128 bytes that say whether it is taken; the maps follow, in the order of
their operations. There are as many records as blocks of the kernel can run at once, at most: by its threads
and its shared memory, on the largest GPU.
"""

from __future__ import annotations

from ptxforge.ir.core import Function
from ptxforge.ir.ops.tensor_map import MakeTensorMap, MapWorkspace
from ptxforge.ir.warps import threads_of
from ptxforge.support import machine
from ptxforge.support.target import Target
from ptxforge.support.tensor_map import BYTES


def place_maps(function: Function, target: Target) -> bool:
    """Set ``offset`` on what makes maps, ``records`` and ``record_bytes`` on what takes memory for them."""
    workspace, *makers = function.walk((MapWorkspace, MakeTensorMap)) or (None,)
    if workspace is None:
        return False
    for number, op in enumerate(makers, 1):
        op.offset = BYTES * number
    workspace.records, workspace.record_bytes = _records(function, target), BYTES * (1 + len(makers))
    return True


def _records(function: Function, target: Target) -> int:
    """How many blocks of the kernel can run at once, at most."""
    shared = function.attributes["shared_bytes"] + machine.SYSTEM_SHARED_BYTES
    on_one = min(
        target.blocks_per_multiprocessor, target.threads_per_multiprocessor // threads_of(function),
        target.shared_bytes_per_multiprocessor // shared,
    )  # fmt: skip
    return machine.MOST_MULTIPROCESSORS * max(on_one, 1)
