"""Which loops over tiles are dealt out to two groups of warps, as ``alternate_tiles`` then does.

    for %tile … {                                                          (before)
      … %acc = for %k … { load …; dot_async … }; store … }

    for %tile … { … } {warp_specialize = true, consumer_groups = 2}        (after)

Rules
-----
WALKS       A loop over tiles with one loop in it, of products: that which ``persistent_programs`` made, for
            as many warps as ``machine.WARPS_THAT_TAKE_TURNS`` names; or one that asks for warps that copy.
FOUR        Warps, of which there are then twice as many beside a producer: eight would leave too few
            registers for tiles worth it.
SINGLE      TMA copies its tiles, which leave no room for a second block on the multiprocessor: that would
            multiply while this one stores. They and two exchanges of results have room side by side; these
            may pass in smaller parts for it.
SCALARS     None is loaded: the producer computes for itself where copies begin.
STEPS       A tile has as many steps as the next, known in front of the loop: so each group knows how many
            the other one's tiles take.
APART       No tile reads what another one wrote, waits for it, or shows when it is computed, and nothing but
            buffers goes from one to the next. All else in the function is computed by both groups: it writes
            nothing.
"""

from __future__ import annotations

from ptxforge.ir import types as T
from ptxforge.ir.core import BlockArgument, Function, Value
from ptxforge.ir.definition import PRODUCTS
from ptxforge.ir.ops.control import For, Loop
from ptxforge.ir.ops.dot import Product
from ptxforge.ir.ops.memory import Load
from ptxforge.ir.ops.tensor_store import StoreBox
from ptxforge.ir.warps import scratch_of
from ptxforge.passes.analysis.roots import root_of_access
from ptxforge.passes.persistent_programs import are_apart, bytes_of_tiles
from ptxforge.support import machine
from ptxforge.support.target import Target
from ptxforge.support.worklist import each_once


def deal_out_tiles(function: Function, target: Target) -> bool:
    """Mark the loop that follows the rules, if there is one."""
    attributes = function.attributes
    if attributes["num_warps"] != machine.WARPS_SET_TOGETHER or attributes.get("num_ctas", 1) > 1:
        return False
    loops = function.walk(Loop)
    if len(loops) != 2 or loops[1].parent_op is not loops[0] or not all(loop.is_counted for loop in loops):
        return False
    tiles, steps = loops
    follows = _walks(function, tiles, steps) and _is_apart(function, tiles)
    if not follows or not _has_same_steps(tiles, steps):
        return False
    buffers = bytes_of_tiles(function, steps)
    if 2 * buffers <= target.max_shared_bytes or not _makes_room(function, buffers, target):
        return False
    tiles.warp_specialize, tiles.consumer_groups = True, machine.GROUPS_THAT_TAKE_TURNS
    return True


def _walks(function: Function, tiles: For, steps: For) -> bool:
    """See WALKS."""
    products = function.walk(Product)
    if len(products) != 1 or products[0].effects.starts != PRODUCTS or products[0].parent is not steps.body:
        return False
    if tiles.parent is not function.body:
        return False
    is_asked = tiles.warp_specialize or steps.warp_specialize
    return is_asked or (is_made(tiles) and function.attributes["num_warps"] in machine.WARPS_THAT_TAKE_TURNS)


def is_made(tiles: For) -> bool:
    """Whether ``persistent_programs`` made the loop."""
    upper = tiles.upper
    return isinstance(upper, BlockArgument) and bool(upper.attributes.get("programs"))


def _is_apart(function: Function, tiles: For) -> bool:
    """See APART and SCALARS."""
    if tiles.initial or not are_apart(function) or function.walk(StoreBox):
        return False
    if any(not isinstance(op.result.type, T.TensorType) for op in function.walk(Load)):
        return False
    inside = set(tiles.walk())
    outside = [op for op in function.walk() if op not in inside and not op.is_terminator]
    if not all(op.is_speculatable for op in outside):
        return False
    accesses = [op for op in inside if op.get_effects().touches("global")]
    written = {root_of_access(op) for op in accesses if "global" in op.get_effects().writes}
    read = {root_of_access(op) for op in accesses if "global" in op.get_effects().reads}
    return None not in written | read and not written & read


def _has_same_steps(tiles: For, steps: For) -> bool:
    """See STEPS."""
    return not any(_follows_from(value, tiles) for value in (steps.lower, steps.upper, steps.step))


def _follows_from(value: Value, tiles: For) -> bool:
    """Whether a scalar depends on the tile, or was loaded in the loop."""
    work = [value]
    for value in each_once(work):
        if value.owner_block is not tiles.body:
            continue
        op = value.defining_op
        if op is None or not op.is_speculatable or op.regions:
            return True
        work += op.operands
    return False


def _makes_room(function: Function, buffers: int, target: Target) -> bool:
    """See SINGLE."""
    exchanges = [op for op in function.walk() if scratch_of(op)]
    if not all(op.changes_layout for op in exchanges):
        return False
    groups = machine.GROUPS_THAT_TAKE_TURNS
    barriers = (machine.BUFFER_ALIGNMENT + T.MBARRIER.bytes) * groups
    limits = {op: op.scratch_limit for op in exchanges}
    while buffers + groups * sum(map(scratch_of, exchanges)) + barriers > target.max_shared_bytes:
        largest = max(exchanges, key=scratch_of)
        size = scratch_of(largest)
        largest.scratch_limit = size - 1
        if scratch_of(largest) == size:
            for op, limit in limits.items():
                op.scratch_limit = limit
            return False
    return True
