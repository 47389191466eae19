"""Software pipelining, carried out: loads that a schedule lets run ahead go through buffers in shared memory.

    for %k … iter_args(%p = %base, %acc = %zero) {distance = 2, last_stage = 2} {          (before)
      %x = load (addptr %p, %offsets), %mask {stage = 0}
      %y = convert_layout %x : dot_op
      %d = dot %y, …, %acc
      %q = addptr %p, %step
      yield %q, %d }

    %buffer = local_alloc : memdesc<3x128x64xf16, #shared, mutable>      (after, num_stages = 3)
    prologue: copies of iterations 0 and 1 into buffers 0 and 1, each in a group of its own
    for %k … iter_args(%p, %acc, %in, %out) {
      async_wait {num = 2}                                     iteration k has arrived
      %m = memdesc_index %buffer, %out
      %y = local_load %m : dot_op                              (insert_barriers puts a barrier before it)
      %d = dot %y, …, %acc
      async_copy_global_to_local …, (memdesc_index %buffer, %in)   iteration k + 2, masked off beyond the end
      async_commit_group
      yield … }
    async_wait {num = 0}; local_dealloc %buffer      copies of iterations beyond the end store zeros: they too
                                                     must have landed before the memory serves another purpose

Rules
-----
STAGES      ``schedule_loops`` wrote them on loads. What an operation needs is in its stage at the latest,
            through operands and carried values; all else is in the last stage.
TMA         A load of a rectangle of a tensor (``analysis/rectangles.py``) whose tile is only for ``wgmma`` is
            copied by the tensor memory accelerator, if the function may have ``tensor_maps``
            (``tensor_loads.py``). A barrier in the loop, behind all reads of a step, is in front of its
            copies.
ASYNC       Another pipelined load is copied by ``cp.async`` in pieces of 4, 8 or 16 bytes; what its mask
            leaves out becomes zero, and is replaced by another ``other`` when the buffer is read. Other loads
            stay where they are.
WALKING ON  A ring that TMA alone fills outlives the iterations of a loop directly around: its mbarriers are
            made once, and its place and phase are carried on. (Not yet in chains of products, nor where
            loads depend on loads.)
BUFFERS     One more than the distance, so that the buffer that a step fills is not one that the step reads:
            one barrier per step is enough (the copy follows the barrier that follows the wait).
            ``async_copy.ordered`` tells ``insert_barriers`` so. The prologue's copies are not ordered: in a
            loop around, a warp may still read what the last steps before it had waited for.
"""

from __future__ import annotations

from ptxforge.ir import types as T
from ptxforge.ir.builder import Builder
from ptxforge.ir.core import BlockArgument, Function, Operation, Value
from ptxforge.ir.definition import COPIES, TENSORS
from ptxforge.ir.ops.arith import AndI, CmpI, Select, SubI
from ptxforge.ir.ops.control import For, Loop
from ptxforge.ir.ops.mbarrier import (
    BarrierArrive,
    BarrierExpect,
    BarrierInval,
    TensorLoad,
)
from ptxforge.ir.ops.memory import Barrier, Load
from ptxforge.ir.ops.shape import Broadcast, Splat
from ptxforge.ir.ops.shared import (
    AsyncCopyGlobalToLocal,
    AsyncWait,
    LocalDealloc,
)
from ptxforge.ir.ops.warpgroup import DotWait
from ptxforge.passes.analysis.kept import kept
from ptxforge.passes.chained_products import Chain, chain_of
from ptxforge.passes.expand_loop import Predicate, Schedule, expand_loop
from ptxforge.passes.rings import Rings
from ptxforge.passes.tensor_loads import TensorLoads
from ptxforge.support.target import Target

_STARTS = (AsyncCopyGlobalToLocal, BarrierExpect)
"""What begins copies into rings."""
OUTSIDE = -(1 << 30)
"""A row in front of every tensor."""


def pipeline_loops(function: Function, target: Target) -> bool:
    """Pipeline every loop that has a schedule."""
    loops = [op for op in function.walk(For) if op.last_stage]
    if not loops:
        return False
    loads = {loop: [op for op in loop.body.operations if _is_ahead(op)] for loop in loops}
    by_tma = kept(TensorLoads, function)
    if function.attributes.get("tensor_maps"):
        by_tma.survey(load for ahead in loads.values() for load in ahead)
    for loop in loops:
        _pipeline(loop, loads[loop], by_tma)
    return True


def _is_ahead(op: Operation) -> bool:
    return isinstance(op, Load) and "stage" in op.attributes


# -- the schedule -----------------------------------------------------------------------------------------


def _pipeline(loop: For, loads: list[Load], by_tma: TensorLoads) -> None:
    stage, distance, last = _take_schedule(loop)
    chain = chain_of(loop, loads) if all(map(by_tma.rectangle, loads)) else None
    if chain is not None:
        stage[chain.second.load] += 1
        stage.update(dict.fromkeys(chain.late, last + 1))
    is_one_level = all(stage[load] == last - distance for load in loads)
    around = _around(loop, by_tma, loads) if chain is None and is_one_level else None
    rings = Rings(loop, stage, distance, by_tma, chain, around)
    rings.lower(loads)
    _place_dependencies(loop, stage, last)
    if chain is None:
        pipelined = expand_loop(loop, Schedule(_steady_order(loop, stage), stage), predicate_access)
    else:
        order = _chain_order(loop, stage, chain)
        pipelined = expand_loop(loop, Schedule(order, stage), _chain_predicate(loop, rings))
    _finish(pipelined, rings)


def _take_schedule(loop: For) -> tuple[dict[Operation, int], int, int]:
    """The stages that are written on operations of the loop, its distance and its last stage. The attributes
    go: the loops that come of this one are not scheduled."""
    found = loop.distance, loop.last_stage
    for name in ("distance", "last_stage"):
        loop.attributes.pop(name)
    stage = {op: op.attributes.pop("stage") for op in loop.body.operations if "stage" in op.attributes}
    return stage, *found


def _around(loop: For, by_tma: TensorLoads, loads: list[Load]) -> For | None:
    """The loop whose iterations the ring of ``loop`` outlives: see WALKING ON."""
    outer = loop.parent_op
    return outer if all(map(by_tma.rectangle, loads)) and outer is not None and outer.is_counted else None


def _finish(loop: For, rings: Rings) -> None:
    """Say which barriers the copies of the steady state can rely on, and free the rings behind the loop."""
    for op in loop.body.operations:
        if op.effects.fills == COPIES:
            op.attributes["ordered"] = True
    behind = Builder.after(loop)
    if rings.copies_by_threads:
        behind.create(AsyncWait, num=0)
    if rings.chain is not None:
        _let_both_run(loop)
    elif rings.barriers:
        first = next(op for op in loop.body.of(_STARTS))
        Builder.at(first).create(Barrier)
    last = loop if rings.around is None else rings.around
    if rings.barriers and isinstance(last.parent_op, Loop):
        end = Builder.after(last)
        end.create(Barrier)
        for barriers in rings.barriers:
            end.create(BarrierInval, barriers)
    for buffer in rings.buffers:
        behind.create(LocalDealloc, buffer)


def _let_both_run(loop: For) -> None:
    """In the steady state of a chain the second product is started before the first is waited for, and
    mbarriers keep copies away from what is still read."""
    next(op for op in loop.body.of(DotWait)).pending = 1
    for op in loop.body.of(TensorLoad):
        op.ordered = True


def _place_dependencies(loop: For, stage: dict[Operation, int], last: int) -> None:
    """Give every other operation the earliest stage that its users demand: what a stage-s operation needs,
    through operands and carried values, is in stage s at the latest; all else is in the last stage."""
    work: list[tuple[Value, int]] = []

    def demand(op: Operation, at: int) -> None:
        for nested in op.walk():
            work.extend((value, at) for value in nested.operands)

    for op, at in list(stage.items()):
        demand(op, at)
    fixed = set(stage)
    while work:
        value, at = work.pop()
        if isinstance(value, BlockArgument) and value.block is loop.body:
            if value.index:
                work.append((loop.next_of(value), at))
            continue
        op = loop.body.ancestor_of(value.defining_op) if value.defining_op is not None else None
        if op is None or op in fixed or stage.get(op, last + 1) <= at:
            continue
        stage[op] = at
        demand(op, at)
    for op in loop.body.operations:
        if not op.is_terminator:
            stage.setdefault(op, last)


def _steady_order(loop: For, stage: dict[Operation, int]) -> list[Operation]:
    """The steady state: late stages first, so that a buffer is read before the next copy is started."""
    ops = [op for op in loop.body.operations if not op.is_terminator]
    return sorted(ops, key=lambda op: -stage[op])


def _chain_order(loop: For, stage: dict[Operation, int], chain: Chain) -> list[Operation]:
    """The steady state of a chain: see ``chained_products.py``."""
    body = [op for op in loop.body.operations if not op.is_terminator]
    at = stage[chain.first.start]
    head = _needed_by(chain.first.start, [op for op in body if stage[op] == at])
    first, second = (_ending(product.wait) for product in (chain.first, chain.second))
    late = [op for op in body if stage[op] > at and op not in second]
    early = sorted((op for op in body if stage[op] < at), key=lambda op: -stage[op])
    placed = {*head, *late, *early, *first, *second, *chain.packing}
    rest = [op for op in body if op not in placed]
    return [*head, *late, *early, *first, *rest, *second, *chain.packing]


def _ending(wait: DotWait) -> list[Operation]:
    """The wait for a product, and what says then that its tile was read."""
    arrive: BarrierArrive = wait.next
    return [wait, arrive.barrier.defining_op, arrive]


def _needed_by(last: Operation, ops: list[Operation]) -> list[Operation]:
    """Of ``ops``, which are in order: those that ``last`` needs, waits for its tiles included, and itself."""
    needed = {last}
    for op in reversed(ops[: ops.index(last) + 1]):
        is_needed = op in needed or op.effects.finishes == TENSORS
        if is_needed:
            needed.update(v.defining_op for v in op.operands)
            needed.add(op)
    return [op for op in ops if op in needed]


# -- predication ------------------------------------------------------------------------------------------


def predicate_access(op: Operation, flag: Value, b: Builder) -> None:
    """Make a copy or load of an iteration that does not exist do nothing (a copy stores zeros)."""
    if op.effects.queue == TENSORS:
        rest = list(op.operands)
        if op.flag is not None:
            flag = b.value(AndI, rest.pop(), flag)
        op.set_operands([*rest, flag])
        if op.effects.fills:
            op.attributes["is_flagged"] = True
        return
    if not isinstance(op, (AsyncCopyGlobalToLocal, Load)):
        return
    if op.mask is not None:
        op.set_operand(op.operands.index(op.mask), _gated(op.mask, flag, b))
        return
    pointer = op.operands[0].type
    if isinstance(pointer, T.TensorType):
        flag = b.value(Splat, flag, type=pointer.with_element(T.I1))
    op.set_operands([*op.operands, flag])


def _chain_predicate(loop: For, rings: Rings) -> Predicate:
    """In a chain the first product of the iteration behind the last one is computed, of a tile of zeros: its
    copy takes place, outside of the tensor."""

    def predicate(op: Operation, flag: Value, b: Builder) -> None:
        is_on_barrier = op.effects.queue == TENSORS
        if not is_on_barrier or op.barrier.defining_op.source not in rings.of_first_product:
            predicate_access(op, flag, b)
            return
        if op.effects.finishes and not op.for_copies:
            return
        exists: CmpI = flag.defining_op
        if op.effects.fills:
            row = 3 + len(op.tile_dims) - 2
            moved = b.value(Select, flag, op.operands[row], b.constant(OUTSIDE, T.I32))
            op.set_operand(row, moved)
        if exists.lhs is not loop.lower:
            before = b.value(SubI, exists.lhs, loop.step)
            predicate_access(op, b.value(CmpI, before, exists.rhs, predicate="slt"), b)

    return predicate


def _gated(mask: Value, flag: Value, b: Builder) -> Value:
    """``mask and flag``. A bound that all elements share, ``x < bound``, becomes
    ``x < (flag ? bound : smallest)``: the threads' comparisons stay, and one scalar operation replaces a
    logical one for each of them."""
    compare = mask.defining_op
    if isinstance(compare, Broadcast):
        return b.value(Broadcast, _gated(compare.x, flag, b), type=mask.type)
    if (
        isinstance(compare, CmpI)
        and compare.predicate == "slt"
        and isinstance(compare.rhs.defining_op, Splat)
    ):
        bound = compare.rhs.defining_op.value
        smallest = b.constant(-(1 << bound.type.bits - 1), bound.type)
        limit = b.value(Select, flag, bound, smallest)
        return b.value(CmpI, compare.lhs, b.value(Splat, limit, type=compare.rhs.type), predicate="slt")
    if isinstance(mask.type, T.TensorType):
        flag = b.value(Splat, flag, type=mask.type)
    return b.value(AndI, mask, flag)
