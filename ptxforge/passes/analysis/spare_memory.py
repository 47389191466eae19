"""How much more shared memory a function may take at no cost."""

from __future__ import annotations

from collections.abc import Iterable

from ptxforge.ir.core import Function
from ptxforge.ir.ops.control import For
from ptxforge.ir.ops.shared import LocalAlloc
from ptxforge.ir.pressure import blocks_with, held_by_products
from ptxforge.passes.analysis.flights import gets_ring, runs_ahead
from ptxforge.support import machine
from ptxforge.support.target import Target


def planned_shared_bytes(function: Function) -> int:
    """Bytes of all buffers, with those that the schedules of loops ask for."""
    tiles = (op for op in function.walk(LocalAlloc) if not gets_ring(op))
    rings = (
        (loop.distance + 1) * op.result.type.bytes
        for loop in function.walk(For) if loop.distance
        for op in loop.body.operations if runs_ahead(op)
    )  # fmt: skip
    return sum(op.result.type.bytes * max(op.buffers, 1) for op in tiles) + sum(rings)


def spare_shared_bytes(function: Function, target: Target) -> int:
    """Bytes beside all of these that cost no block on the multiprocessor."""
    taken = planned_shared_bytes(function)
    warps = function.attributes["num_warps"]
    by_threads = machine.WARPS_PER_MULTIPROCESSOR // warps
    by_registers = blocks_with(machine.REGISTERS_BESIDE_FLIGHTS + _held(function), machine.WARP_SIZE * warps)
    blocks = min(target.max_shared_bytes // max(taken, 1), by_threads, by_registers)
    return target.max_shared_bytes // max(blocks, 1) - taken


def has_room_twice(function: Function, buffers: Iterable[LocalAlloc], target: Target) -> bool:
    """Whether each of ``buffers`` may be there twice at no cost."""
    return sum(op.result.type.bytes for op in buffers) <= spare_shared_bytes(function, target)


def _held(function: Function) -> int:
    """The registers that products of loops take in a thread."""
    blocks = (region.block for loop in function.walk(For) for region in loop.regions)
    return max(map(held_by_products, blocks), default=0)
