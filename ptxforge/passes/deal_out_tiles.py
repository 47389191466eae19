"""Which loop over tiles is dealt out to two groups of warps, as ``alternate_tiles`` then does:
``schedule_loops`` asks when it has decided on its loads and products.

    for %tile … {                                                          (before)
      … %acc = for %k … { load …; dot_async …; dot_wait … {until = "next"} }; store … }

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
RUNS ON     The product runs on into the next step (``disallow_acc_multi_buffer`` forbids it).
STEPS       A tile has as many steps as the next, known in front of the loop: so each group knows how many
            the other one's tiles take.
PLACES      Where a copy begins is computed from the number of its step, not carried from step to step: the
            producer counts steps from another number on.
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
from ptxforge.ir.ops.warpgroup import DotWait
from ptxforge.ir.rewriter import constant_of
from ptxforge.ir.warps import scratch_of
from ptxforge.passes.analysis.kept import kept
from ptxforge.passes.analysis.roots import root_of_access
from ptxforge.passes.persistent_programs import are_apart, bytes_of_tiles
from ptxforge.passes.tensor_loads import TensorLoads
from ptxforge.support import machine
from ptxforge.support.target import Target
from ptxforge.support.worklist import each_once


def deal_out_tiles(function: Function, target: Target) -> bool:
    """Mark the loop that follows the rules. Of one that WALKS a remark says which other rule it breaks."""
    found = _walking(function)
    if found is None:
        return False
    tiles, steps = found
    reason = _why_not(function, tiles, steps, target)
    if reason:
        text = f"two groups of warps do not take its tiles in turns: {reason}"
        function.remarks.add("not-dealt-out", text, tiles.location)
        return False
    tiles.warp_specialize, tiles.consumer_groups = True, machine.GROUPS_THAT_TAKE_TURNS
    return True


def _walking(function: Function) -> tuple[For, For] | None:
    """The loop over tiles and the one in it; see WALKS."""
    loops = function.walk(Loop)
    if len(loops) != 2 or loops[1].parent_op is not loops[0] or not all(loop.is_counted for loop in loops):
        return None
    tiles, steps = loops
    products = function.walk(Product)
    if len(products) != 1 or products[0].effects.starts != PRODUCTS or products[0].parent is not steps.body:
        return None
    is_asked = tiles.warp_specialize or steps.warp_specialize
    is_given = is_made(tiles) and function.attributes["num_warps"] in machine.WARPS_THAT_TAKE_TURNS
    return (tiles, steps) if tiles.parent is function.body and (is_asked or is_given) else None


def _why_not(function: Function, tiles: For, steps: For, target: Target) -> str:
    """Which rule a loop breaks, or nothing."""
    warps = function.attributes["num_warps"]
    if warps != machine.WARPS_SET_TOGETHER:
        return f"a group has {machine.WARPS_SET_TOGETHER} warps, this program {warps}"
    if function.attributes.get("num_ctas", 1) > 1:
        return "the program is a cluster"
    if steps.disallow_acc_multi_buffer:
        return "no product may run on into the next step, see disallow_acc_multi_buffer"
    if not _has_same_steps(tiles, steps):
        return "that they have equally many steps is not known in front of the loop"
    if not all(wait.until == "next" for wait in steps.body.of(DotWait)):
        return "its product does not run on into the next step"
    return _why_not_apart(function, tiles) or _why_not_single(function, steps, target)


def is_made(tiles: For) -> bool:
    """Whether ``persistent_programs`` made the loop."""
    upper = tiles.upper
    return isinstance(upper, BlockArgument) and bool(upper.attributes.get("programs"))


def _why_not_apart(function: Function, tiles: For) -> str:
    """See APART and SCALARS."""
    if tiles.initial:
        return "values go from one to the next"
    if not are_apart(function):
        return "when they are computed shows, or one may wait for another"
    if function.walk(StoreBox):
        return "a tensor descriptor stores them"
    if any(not isinstance(op.result.type, T.TensorType) for op in function.walk(Load)):
        return "scalars are loaded"
    inside = set(tiles.walk())
    outside = [op for op in function.walk() if op not in inside and not op.is_terminator]
    if not all(op.is_speculatable for op in outside):
        return "what stands outside the loop cannot be done twice"
    accesses = [op for op in inside if op.get_effects().touches("global")]
    written = {root_of_access(op) for op in accesses if "global" in op.get_effects().writes}
    read = {root_of_access(op) for op in accesses if "global" in op.get_effects().reads}
    if None in written | read or written & read:
        return "one may read what another one wrote"
    return ""


def _has_same_steps(tiles: For, steps: For) -> bool:
    """See STEPS."""
    if constant_of(steps.step) is None:
        return False
    return not any(_follows_from(value, tiles) for value in (steps.lower, steps.upper, steps.step))


def _follows_from(value: Value, tiles: For) -> bool:
    """Whether a scalar depends on the tile, or was loaded in the loop."""
    work = [value]
    for value in each_once(work):
        if value.owner_block is not tiles.body:
            continue
        op = value.defining_op
        is_scalar = not isinstance(value.type, T.TensorType)
        if op is None or not (op.is_speculatable and is_scalar) or op.regions:
            return True
        work += op.operands
    return False


def _why_not_single(function: Function, steps: For, target: Target) -> str:
    """See SINGLE."""
    buffers = bytes_of_tiles(function, steps)
    if not buffers:
        return "TMA does not copy what they are made of"
    if 2 * buffers <= target.max_shared_bytes:
        return "a second block has room on the multiprocessor, and multiplies while this one stores"
    if _carries_places(function, steps):
        return "where its copies begin is carried from step to step"
    if not _makes_room(function, buffers, target):
        return "two exchanges of results have no room beside the buffers"
    return ""


def _carries_places(function: Function, steps: For) -> bool:
    """See PLACES."""
    by_tma, loads = kept(TensorLoads, function), list(steps.body.of(Load))
    by_tma.survey(loads)
    sums = [d.coordinate for load in loads for d in by_tma.rectangle(load).dimensions]
    work = [value for each in sums for monomial in each for value in monomial]
    for value in each_once(work):
        if value in steps.carried:
            return True
        if value.owner_block is steps.body and value.defining_op is not None:
            work += value.defining_op.operands
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
