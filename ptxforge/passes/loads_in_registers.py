"""Of two tiles that threads load by themselves, one runs ahead in their registers.

    for %k … iter_args(%p = %a, %q = %b, %acc = %zero) {                                       (before)
      %x = load %p;  %m = local_alloc %x
      %y = load %q;  %n = local_alloc %y
      %d = dot_wait (dot_async %m, %n, (dot_begin %acc))
      yield … }

    for %k … iter_args(%p = %a, %q = %b, %acc = %zero) {last_stage = 1} {                      (after)
      %y = load %q {stage = 1, turn = 0}
      %m = local_alloc %x {buffers = 2, stage = 1, turn = 0}
      %x = load %p {stage = 0, turn = 1}                                    the next iteration's
      %n = local_alloc %y {buffers = 2, stage = 1, turn = 2}
      %d = … {stage = 1, turn = 2} }

Elements that no copy takes to shared memory, since each access moves two bytes say, pass through registers.
Were all of them loaded and then stored, nothing would be on its way while threads wait for the last ones,
store, and meet. So the loads of the next iteration's tile stand between the stores, and are under way while
threads meet and the product begins.

Rules
-----
PRODUCT    The loop has one, of two tiles of its own that were loaded and are used for nothing else, and may
           run on into the next iteration (``products_in_flight.py``), for which each tile gets two buffers.
ALONE      No load of the loop runs ahead through shared memory, and the loads' operands may be computed ahead
           (``analysis/pipelined_loads.py``).
REGISTERS  suffice for the sums and what both loads give, one for each element that is loaded by itself.
THE LESS   The smaller tile runs ahead; of two that are as large, the right one.
NARROW     Where the tiles are copied, what a product's operand is computed from beside them, and no copy can
           take to shared memory (a vector of bytes), runs ahead as well, if it takes few registers. (Products
           of a warp's own fragments, by ``mma.sync``, have none to spare.)
"""

from __future__ import annotations

from collections.abc import Collection

import attrs

from ptxforge.ir.core import Function, Operation
from ptxforge.ir.definition import ALLOCATES, READS_GLOBAL
from ptxforge.ir.ops.control import For
from ptxforge.ir.ops.memory import Load
from ptxforge.ir.ops.shared import LocalAlloc
from ptxforge.ir.pressure import registers_of, room
from ptxforge.ir.warps import warps_around
from ptxforge.layouts.encodings import elements_per_thread
from ptxforge.passes.analysis.flights import products_of, sum_of
from ptxforge.passes.analysis.pipelined_loads import may_run_ahead, narrow_loads
from ptxforge.passes.analysis.spare_memory import has_room_twice
from ptxforge.passes.analysis.stages import place_dependencies
from ptxforge.support import machine
from ptxforge.support.target import Target


@attrs.frozen
class _Tile:
    """A tile of the product: its load, and the buffer that it is for."""

    load: Load
    buffer: LocalAlloc


def run_ahead_in_registers(function: Function, loop: For, target: Target) -> list[Load]:
    """Write the schedule of ``loop`` if the rules admit it; gives the load that runs ahead, if one does."""
    tiles = _tiles(loop)
    if tiles is None or not _have_room(function, loop, tiles, target):
        return []
    left, right = tiles
    is_left = left.load.result.type.bytes < right.load.result.type.bytes
    ahead, other = (left, right) if is_left else (right, left)
    if not may_run_ahead(loop, ahead.load):
        return []
    _write(loop, ahead, other)
    return [ahead.load]


def run_narrow_ahead(loop: For, copied: Collection[Load]) -> list[Load]:
    """Write the stages of the loads that NARROW speaks of, in a loop whose other loads have theirs; gives
    these loads."""
    if len(products_of(loop)) != 1:
        return []
    loads = narrow_loads(loop, copied)
    if sum(registers_of(load.result.type) for load in loads) > machine.REGISTERS_OF_NARROW_LOADS:
        return []
    for load in loads:
        load.attributes["stage"] = loop.last_stage - 1
    return loads


def _tiles(loop: For) -> tuple[_Tile, _Tile] | None:
    """The left and the right one: see PRODUCT."""
    products = [] if loop.disallow_acc_multi_buffer else products_of(loop)
    if len(products) != 1 or sum_of(loop, products[0]) is None:
        return None
    start = products[0].start
    tiles = [_tile(value.defining_op, start, loop) for value in (start.a, start.b)]
    return None if None in tiles else tuple(tiles)


def _tile(buffer: Operation | None, start: Operation, loop: For) -> _Tile | None:
    is_own = buffer is not None and ALLOCATES in buffer.traits and buffer.parent is loop.body
    if not is_own or buffer.value is None or buffer.result.users != [start]:
        return None
    load = buffer.value.defining_op
    if load is None or load.get_effects() != READS_GLOBAL:
        return None
    return _Tile(load, buffer) if load.parent is loop.body and load.result.has_one_use else None


def _have_room(function: Function, loop: For, tiles: tuple[_Tile, _Tile], target: Target) -> bool:
    """See REGISTERS, and whether shared memory has room for two buffers of each tile."""
    total = products_of(loop)[0].total.type
    words = registers_of(total) + sum(_words(tile.load) for tile in tiles) + machine.REGISTERS_BESIDE_LOADS
    has_registers = words <= room(warps_around(loop).threads)
    return has_registers and has_room_twice(function, [tile.buffer for tile in tiles], target)


def _words(load: Load) -> int:
    """The registers of a thread that take what it loads: parts of one are loaded to one each."""
    type = load.result.type
    pieces = elements_per_thread(type.layout, type.shape) // load.width
    return max(pieces, registers_of(type))


def _write(loop: For, ahead: _Tile, other: _Tile) -> None:
    """The schedule: the other tile's loads, the store of this one, its next loads, the other's store."""
    if ahead.buffer.is_before_in_block(other.load):
        ahead.buffer.move_after(other.load)
    if other.buffer.is_before_in_block(ahead.buffer):
        other.buffer.move_after(ahead.buffer)
    stage = {ahead.load: 0}
    place_dependencies(loop, stage, 1)
    turn = 0
    for op in [op for op in loop.body.operations if not op.is_terminator]:
        turn = 2 if op is other.buffer else turn
        op.attributes.update(stage=stage[op], turn=turn if stage[op] else 1)
    ahead.buffer.buffers = other.buffer.buffers = 2
    loop.last_stage = 1
