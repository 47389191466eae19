"""Software pipelining, carried out: loads that a schedule lets run ahead go through buffers in shared memory.

    for %k … iter_args(%p = %base, %acc = %zero) {distance = 2, last_stage = 2} {          (before)
      %x = load (addptr %p, %offsets), %mask {group = 0, stage = 0}
      %y = convert_layout %x : dot_op
      %d = dot %y, …, %acc
      %q = addptr %p, %step
      yield %q, %d }

    %buffer = local_alloc : memdesc<3x128x64xf16, #shared, mutable>      (after, num_stages = 3)
    for %k … iter_args(%p = %base, %acc = %zero, %in = 0, %out = 0) {last_stage = 2} {
      %w = addptr %p, %offsets {stage = 0, turn = 2}
      %c = async_copy_global_to_local %w, …, (memdesc_index %buffer, %in) {stage = 0, turn = 2}
      async_commit_group %c {stage = 0, turn = 2}
      async_wait %c {stage = 2, turn = 0}                        iteration k has arrived
      %m = memdesc_index %buffer, %out {stage = 2, turn = 0}
      %y = local_load %m : dot_op {stage = 2, turn = 0}          (insert_barriers puts a barrier before it)
      %d = dot %y, …, %acc {stage = 2, turn = 0}
      %q = addptr %p, %step {stage = 0, turn = 2}
      yield … }
    async_wait {num = 0}; local_dealloc %buffer      copies of iterations beyond the end store zeros: they too
                                                     must have landed before the memory serves another purpose

``expand_loops`` obeys: in its steady state the copy is that of iteration ``k + 2``, behind the product of
iteration ``k`` (``turn``).

Rules
-----
STAGES      ``schedule_loops`` wrote them on loads, and on what lags behind. What an operation needs is in its
            stage at the latest, through operands and carried values; all else is in the last stage, in a
            ``peeled`` loop in the one before.
GROUPS      ``schedule_loops`` wrote them on loads. What TMA copies for one group completes on one mbarrier;
            what threads copy for it is committed and waited for as one group of ``cp.async``.
SLICES      ``schedule_loops`` wrote on a product how deep its slices are.
TURNS       In a step: late stages first, so that a buffer is read before the next copy is started. Without
            products, which take the copies in between, only the reads come first: the copy is under way while
            the step computes. (Chains of products, and products in slices, have turns of their own:
            ``chained_products.py``, ``sliced_products.py``.)
FLIGHTS     Products of warpgroups start, and are waited for, where ``schedule_loops`` wrote it on them: the
            loop carries sums under way (``running_products.py``). Where products are waited for at their use,
            copies have their turn behind the first wait (``staggered_products.py``), and a barrier.
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
PEELED      Such a loop, a chain of products, has its last step behind it, without a first product for
            nothing. Its tiles are released by warps, on mbarriers, when the products of their stage end.
READING ON  A loop that ``reads_on`` takes its tiles out of the ring of the one before, whose copies go
            ``beyond`` it (``continued_rings.py``).
BUFFERS     One more than the distance, so that the buffer that a step fills is not one that the step reads:
            one barrier per step is enough (the copy follows the barrier that follows the wait).
            ``async_copy.ordered`` tells ``insert_barriers`` so. The prologue's copies are not ordered: in a
            loop around, a warp may still read what the last steps before it had waited for. Nor are those of
            a step whose tiles only products in an ``if`` read: they come first, with no barrier before them.
"""

from __future__ import annotations

from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Function, Operation
from ptxforge.ir.definition import COPIES, READS_SHARED, TENSORS
from ptxforge.ir.ops.control import For, Loop
from ptxforge.ir.ops.dot import Product
from ptxforge.ir.ops.mbarrier import BarrierInval
from ptxforge.ir.ops.memory import Barrier, Load
from ptxforge.ir.ops.shared import AsyncWait, LocalDealloc, LocalLoad
from ptxforge.ir.views import memory_of
from ptxforge.passes.analysis.flights import runs_ahead
from ptxforge.passes.analysis.kept import kept
from ptxforge.passes.analysis.stages import place_dependencies
from ptxforge.passes.chained_products import keep_in_registers, turns_around
from ptxforge.passes.continued_rings import reader_behind
from ptxforge.passes.expand_loops import is_of_copy
from ptxforge.passes.multicast_loads import plan_multicasts
from ptxforge.passes.rings import Rings
from ptxforge.passes.running_products import Running, has_schedule, let_products_run
from ptxforge.passes.sliced_products import cut_product
from ptxforge.passes.staggered_products import copy_early
from ptxforge.passes.tensor_loads import TensorLoads
from ptxforge.support.target import Target


def pipeline_loops(function: Function, target: Target) -> bool:
    """Give every loop whose loads have stages its rings of buffers, and the rest of its schedule. (In one
    without such loads, products start and are waited for in the order of its text.)"""
    loops = [op for op in function.walk(For) if op.distance]
    alone = [op for op in function.walk(For) if not op.distance and has_schedule(op)]
    for loop in alone:
        let_products_run(loop)
    if not loops:
        return bool(alone)
    loads = {loop: [op for op in loop.body.operations if runs_ahead(op)] for loop in loops}
    by_tma = kept(TensorLoads, function)
    by_tma.survey(load for ahead in loads.values() for load in ahead)
    for loop in loops:
        if loop.distance:
            _pipeline(function, loop, loads, by_tma)
        else:  # it reads on in another one's ring
            let_products_run(loop)
    return True


# -- the schedule -----------------------------------------------------------------------------------------


def _pipeline(
    function: Function, loop: For, all_loads: dict[For, list[Load]], by_tma: TensorLoads
) -> None:
    loads = all_loads[loop]
    stage, group, turns, beyond = _take_schedule(loop)
    distance, last = loop.attributes.pop("distance"), loop.last_stage - loop.peeled
    is_one_level = all(stage[load] == last - distance for load in loads)
    around = _around(loop, by_tma, loads) if is_one_level and not loop.peeled else None
    multicasts = plan_multicasts(function, loop, by_tma)
    rings = Rings(loop, stage, group, distance, by_tma, around, multicasts)
    rings.lower(loads)
    keep_in_registers(loop)
    end = reader_behind(loop) if beyond else loop
    if beyond:
        rings.read_on(end, dict(zip(loads, all_loads[end])))
        _take_schedule(end)
        for name in ("distance", "last_stage", "reads_on"):
            end.attributes.pop(name)
    slices = cut_product(loop, stage, last)
    if _begins_with_reads(loop, rings, stage, last):
        _promise_order(loop, rings)
    _finish(loop, rings, end)
    running = let_products_run(loop)
    place_dependencies(loop, stage, last)
    if loop.peeled:
        turn = turns_around(loop, turns, stage, last)
    elif slices is not None:
        turn = slices.turns(_late_first(stage, last))
    elif not any(loop.body.of(Product)):
        turn = _copies_behind_reads(loop, stage, last)
    else:
        turn = _late_first(stage, last)
    barrier = _barrier_in_front_of_copies(loop, rings, turn, running, last)
    stage.update(dict.fromkeys(barrier, last))
    if running is not None:
        turn = copy_early(loop, turn, barrier) if running.copies_early and barrier else turn
        turn.update(dict.fromkeys(running.ends, max(turn.values()) + 1))
    _write_schedule(loop, stage, turn, max(beyond.values(), default=0))


def _barrier_in_front_of_copies(
    loop: For, rings: Rings, turn: dict[Operation, int], running: Running | None, last: int
) -> list[Operation]:
    """What keeps copies waiting until all threads have read the tiles of a step: where TMA copies, or
    products run on, which read them, too. It gets its ``turn`` with the first copy. (What several CTAs get
    waits for those of all; only the thread that starts such copies does, which is too little for others.)"""
    starts = [op for op in loop.body.operations if op.effects.starts in (COPIES, TENSORS)]
    if loop.peeled or not (starts if running is not None else rings.barriers):
        return []
    first = min(starts, key=turn.__getitem__)
    barrier = rings.meet(first, last) if rings.barriers else [Builder.at(first).create(Barrier)]
    if rings.multicasts and running is not None and any(op.effects.starts == COPIES for op in starts):
        barrier.append(Builder.at(first).create(Barrier))
    turn.update(dict.fromkeys(barrier, turn[first]))
    return barrier


def _write_schedule(loop: For, stage: dict[Operation, int], turn: dict[Operation, int], beyond: int) -> None:
    """Write on all operations of the loop when they are done; copies for iterations ``beyond`` it, too."""
    loop.last_stage = max(stage.values())
    for op in loop.body.operations:
        if not op.is_terminator:
            op.attributes.update(stage=stage[op], turn=turn[op])
        if beyond and is_of_copy(op):
            op.attributes["beyond"] = beyond


def _take_schedule(loop: For) -> tuple[dict[Operation, int], ...]:
    """What is written on operations of the loop: stages, groups, turns, and how far beyond it they go. The
    attributes go: stages and turns are written anew for all operations."""
    scheduled = [op for op in loop.body.operations if "stage" in op.attributes]
    names = ("stage", "group", "turn", "beyond")
    return tuple({op: op.attributes.pop(name) for op in scheduled if name in op.attributes} for name in names)


def _around(loop: For, by_tma: TensorLoads, loads: list[Load]) -> For | None:
    """The loop whose iterations the ring of ``loop`` outlives: see WALKING ON."""
    outer = loop.parent_op
    return outer if all(map(by_tma.rectangle, loads)) and outer is not None and outer.is_counted else None


def _begins_with_reads(loop: For, rings: Rings, stage: dict[Operation, int], last: int) -> bool:
    """Whether a step reads some of its tiles, behind the barrier that this takes, before it copies others:
    see BUFFERS. (So it does for products of its own, which all copies follow.)"""
    if any(loop.body.of(Product)):
        return True
    tiles = {memory_of(buffer) for buffer in rings.buffers}
    reads = (read for read in loop.body.of(LocalLoad) if stage.get(read) == last)
    return any(memory_of(read.source) in tiles for read in reads)


def _promise_order(loop: For, rings: Rings) -> None:
    """Say which copies of the steady state need no barrier."""
    # mbarriers keep copies away in a chain, and in a cluster
    queues = (COPIES, TENSORS) if loop.peeled or rings.multicasts else (COPIES,)
    for op in loop.body.operations:
        if op.effects.fills in queues:
            op.attributes["ordered"] = True


def _finish(loop: For, rings: Rings, last: For) -> None:
    """Free the rings behind the ``last`` loop that reads there."""
    behind = Builder.after(last)
    if rings.copies_by_threads:
        behind.create(AsyncWait, num=0)
    last = last if rings.around is None else rings.around
    if rings.barriers and isinstance(last.parent_op, Loop):
        end = Builder.after(last)
        end.create(Barrier)
        for barriers in rings.barriers:
            end.create(BarrierInval, barriers)
    for buffer in rings.buffers:
        behind.create(LocalDealloc, buffer)


def _late_first(stage: dict[Operation, int], last: int) -> dict[Operation, int]:
    """The steady state: late stages first, so that a buffer is read before the next copy is started."""
    return {op: last - at for op, at in stage.items()}


def _copies_behind_reads(loop: For, stage: dict[Operation, int], last: int) -> dict[Operation, int]:
    """The steady state of a loop without products: as :func:`_late_first`, but what the last stage does with
    the tiles that it has read comes last of all, so that the next copies are under way meanwhile."""
    turn = _late_first(stage, last)
    late = [op for op in loop.body.operations if turn.get(op) == 0]
    reads = [number for number, op in enumerate(late) if op.effects == READS_SHARED]
    head = set(late[: max(reads, default=-1) + 1])
    return {op: at if at or op in head else last + 1 for op, at in turn.items()}
