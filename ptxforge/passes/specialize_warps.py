"""A loop whose tiles TMA copies gets a warp of its own for the copies.

    first copies                                        (before)
    for %k … {
      barrier_wait %full[%i]; products …
      barrier
      copies for iteration %k + 2 … }

    partition {                                         (after)
      for %k … {
        barrier_wait %full[%i]; products …
        barrier_arrive %empty[%i] … }
    } producer {
      first copies
      for %k … {
        barrier_wait %empty[%j]
        copies for iteration %k + 2 … } }

What was a barrier, behind which a buffer is read no more, is now an arrival of the consumers' warps and a
wait of the producer: both count iterations through a ring of ``empty`` mbarriers. (In a chain of products
these are there already: ``chained_products.py``.)

Rules
-----
ASKED FOR   ``tl.range(…, warp_specialize=True)`` on the loop or on the one around it, over tiles.
CHAIN       Of chains of products some ask unasked (``chained_products.py``, LENT); loops behind the chain
            follow.
RING        TMA copies all tiles of the loop into one ring, whose mbarriers are made before everything.
SCALARS     Where copies begin is computed from parameters, the program's place and loop counters, by the
            producer for itself; nothing that was loaded.
ROOM        In a loop over tiles, the ring and the scratch of what follows lie side by side.
REGISTERS   The threads that compute have enough for the products of the loop (``group_registers.py``).
"""

from __future__ import annotations

from collections.abc import Collection

import attrs

from ptxforge.ir import types as T
from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Block, Function, Operation, Region, Value
from ptxforge.ir.definition import ALLOCATES, COPIES, MEETING, PRODUCTS
from ptxforge.ir.ops.control import For, Structured, Yield
from ptxforge.ir.ops.dot import Product
from ptxforge.ir.ops.mbarrier import BarrierArrive, BarrierExpect, BarrierInit, BarrierWait, TensorLoad
from ptxforge.ir.ops.memory import Barrier
from ptxforge.ir.ops.partition import Partition, allocation_of, users_of
from ptxforge.ir.ops.shared import LocalAlloc, LocalDealloc, NextPhase, NextSlot
from ptxforge.ir.ops.warpgroup import DotAsync, DotWait
from ptxforge.ir.pressure import held_by_products
from ptxforge.passes.dce import Liveness, dce, sweep
from ptxforge.passes.flatten_loops import keep_for_all_iterations, room_side_by_side
from ptxforge.passes.group_registers import consumer_registers, set_registers, suffice
from ptxforge.passes.persistent_programs import stages_of
from ptxforge.passes.stays import StaysError
from ptxforge.passes.tensor_loads import pick, ring_of_barriers
from ptxforge.support import machine
from ptxforge.support.errors import VerificationError
from ptxforge.support.target import Target


def specialize_warps(function: Function, target: Target) -> bool:
    """Split every loop that asks for it and may be split."""
    changed = False
    for top in [op for op in function.body.operations if op.regions]:
        if top.parent is not function.body:
            continue  # it is in a partition by now
        asked = next((loop for loop in top.walk(For) if loop.warp_specialize), None)
        if asked is None and not changed:
            continue
        try:
            plan = _plan(function, target, top)
        except (StaysError, VerificationError) as why:
            if asked is not None:
                text = f"all warps load and compute, as in other loops: {why}"
                function.remarks.add("not-specialized", text, asked.location)
            continue
        _split(function, target, plan)
        changed = True
    return changed


@attrs.frozen
class _Ring:
    """A loop that reads tiles from a ring of ``count`` buffers. ``slot`` counts its iterations through the
    ring; ``barrier`` is where all threads have read the tile before."""

    loop: For
    slot: Value
    count: int
    barrier: Barrier


@attrs.frozen
class _Plan:
    """How ``top``, a loop in the function's body or a branch with one, is split: the ``rings`` in it whose
    tiles a barrier releases (others have mbarriers for it), ``copying`` operations in and before it, and what
    is ``live`` because these need it. ``buffers`` are those that are made in the loop, ``inside`` what the
    consumers do: the loop, and all from the first copy to the last operation on its barriers."""

    top: Operation
    rings: list[_Ring]
    copying: list[Operation]
    live: Liveness
    buffers: list[LocalAlloc]
    inside: list[Operation]

    @property
    def results(self) -> list[Value]:
        """What is used behind the partition."""
        inside = {nested for op in (*self.inside, *self.copying) for nested in op.walk()}
        values = (value for op in self.inside for value in op.results)
        return [value for value in values if not inside.issuperset(value.users)]


# -- what may be split -----------------------------------------------------------------------------------


def _plan(function: Function, target: Target, top: Operation) -> _Plan:
    if function.attributes.get("num_ctas", 1) > 1:
        raise StaysError("the program is a cluster of CTAs")
    in_top = _copying_in(top)
    if not in_top:
        raise StaysError(f"TMA copies none of its tiles, as {_why_no_copies(function, target, top)}")
    if any(op.get_effects().starts == COPIES for op in top.walk()):
        raise StaysError("threads copy some of its tiles")
    loads = [op for op in in_top if isinstance(op, TensorLoad)]
    if any(op.map.defining_op is not None for op in loads):
        raise StaysError("the kernel makes a tensor map itself")
    _check_registers(function, top)
    barriers = {allocation_of(op.barrier) for op in in_top}
    if any(user.parent is not function.body for made in barriers for user in made.result.users
           if isinstance(user, BarrierInit)):  # fmt: skip
        raise StaysError("its ring is made anew inside of a loop or branch around it")
    copying = [op for op in _copying_in(function) if allocation_of(op.barrier) in barriers]
    around = dict.fromkeys(op.parent_op for op in in_top)
    loops = [op for op in around if not _holds_a_loop(op)]
    rings = [_ring(loop) for loop in loops if not any(map(_waits_for_room, loop.regions[0].block.operations))]
    live = _live(function, top, [*copying, *(ring.barrier for ring in rings)])
    buffers = {allocation_of(op.destination): None for op in loads}
    moved = [made for made in buffers if made.parent is not function.body]
    if any(made.parent is not top.regions[0].block for made in moved):
        raise StaysError("its ring is made anew inside of a loop or branch around it")
    if top.is_counted and _holds_a_loop(top):
        room_side_by_side(function, target)  # see ROOM
    plan = _Plan(top, rings, copying, live, moved, _inside(top, copying, barriers))
    if any(isinstance(value.type, (T.MemDescType, T.FlightType)) for value in plan.results):
        raise StaysError("products that it starts, or tiles that it keeps, are used behind it")
    return plan


def _why_no_copies(function: Function, target: Target, top: Operation) -> str:
    """Why TMA copies no tile in ``top``, and what helps where another remark does not say it."""
    products = top.walk(Product)
    left = [remark for remark in function.remarks if remark.kind == "not-by-wgmma"]
    if not target.has_wgmma:
        return f"it feeds wgmma only, which {target} does not have"
    if not function.attributes.get("tensor_maps"):
        return "tensor_maps=False forbids it; leave that out"
    if not any(op.effects.starts == PRODUCTS for op in products):
        places = {op.location for op in products}
        return next((r.message for r in left if r.location in places), "there is no product by tensor cores")
    stages = [stages_of(function, loop) for loop in top.walk(For) if loop.body.of(DotAsync)]
    if max(stages, default=0) < 2:
        return f"they do not run ahead: num_stages is {max(stages, default=0)}; use 2 or more"
    return "the remarks 'not-by-tma' and 'not-pipelined' say of each"


def _copying_in(place: Function | Operation) -> list[Operation]:
    """What the producer does of it."""
    found = place.walk((BarrierExpect, TensorLoad, BarrierWait))
    return [op for op in found if not isinstance(op, BarrierWait) or op.for_copies]


def _waits_for_room(op: Operation) -> bool:
    return isinstance(op, BarrierWait) and op.for_copies


def _holds_a_loop(op: Operation) -> bool:
    return any(region.block.has(For) for region in op.regions)


def _check_registers(function: Function, top: Operation) -> None:
    """See REGISTERS."""
    warps = function.attributes["num_warps"]
    is_limited = function.attributes.get("maxnreg") and not function.attributes.get("extra_warps")
    if is_limited and warps != machine.WARPS_SET_TOGETHER:
        raise StaysError("'maxnreg' says how many registers all threads have")
    blocks = [region.block for op in top.walk() for region in op.regions]
    if warps != machine.WARPS_SET_TOGETHER and not all(suffice(held_by_products(b), warps) for b in blocks):
        raise StaysError(_why_few_registers(warps, max(map(held_by_products, blocks))))


def _why_few_registers(warps: int, taken: int) -> str:
    few = f"beside {warps} warps there are not enough registers for others"
    if warps + machine.WARPS_SET_TOGETHER > machine.MAX_WARPS:
        return f"{few}; use fewer num_warps"
    left = consumer_registers(warps) - machine.REGISTERS_BESIDE_FLIGHTS
    return f"{few}: products hold {taken} in a thread, {left} are left for them; use smaller blocks"


def _ring(loop: Operation) -> _Ring:
    if not loop.is_counted or not (loop.parent_op is None or loop.parent_op.is_counted):
        raise StaysError("its tiles are copied in a branch")
    barriers = list(loop.body.of(Barrier))
    waits = list(loop.body.of(BarrierWait))
    slots = {op.barrier.defining_op.operands[1] for op in waits}
    counts = {allocation_of(op.barrier).result.type.shape[0] for op in waits}
    if len(slots) != 1 or len(counts) != 1 or len(barriers) != 1:
        raise StaysError("its tiles are in rings of several lengths")
    (slot,), (count,) = slots, counts
    return _Ring(loop, slot, count, barriers[0])


def _live(function: Function, top: Operation, roots: list[Operation]) -> Liveness:
    """What the ``roots`` are computed from. See SCALARS."""
    live = Liveness()
    for op in roots:
        live.mark_operation(op)
    live.propagate()
    places = (function.body, top.regions[0].block)
    for op in function.walk():
        if op not in live.operations or op in roots or isinstance(op, Structured):
            continue
        is_buffer = ALLOCATES in op.traits and op.parent in places and not op.operands
        if not is_buffer and (_takes_tensors(op) or not op.is_speculatable):
            raise StaysError(f"where its copies begin depends on '{op.name}'")
    return live


def _inside(top: Operation, copying: list[Operation], barriers: set[Operation]) -> list[Operation]:
    """What becomes the consumers' part, in order: from the first copy to the last operation on the ring's
    ``barriers``, and waits for products. Scalars stay outside, where other loops find them, and buffers."""
    body = top.parent
    using = {body.ancestor_of(op) for ring in barriers for op in users_of(ring.result)
             if getattr(op, "barrier", None) is not None}  # fmt: skip
    op, last = next(op for op in body.operations if op in using), top
    for other in body.operations:
        last = other if other in using else last
    while isinstance(last.next, (DotWait, LocalDealloc)):
        last = last.next
    found: dict[Operation, None] = {}
    while op is not last.next:
        if op not in copying and not _stays_outside(op, found, last):
            found[op] = None
        op = op.next
    return list(found)


def _stays_outside(op: Operation, inside: Collection[Operation], last: Operation) -> bool:
    if isinstance(op, (LocalAlloc, BarrierInit)):
        readers = [op.parent.ancestor_of(user) for result in op.results for user in result.users]
        from_before = not any(value.defining_op in inside for value in op.operands)
        return not _takes_tensors(op) or (from_before and any(map(last.is_before_in_block, readers)))
    if isinstance(op, LocalDealloc):
        return op.operands[0].defining_op not in inside
    if MEETING in op.traits:
        return isinstance(op.previous, BarrierInit)
    is_scalar = op.is_speculatable and not _takes_tensors(op)
    return is_scalar and not any(value.defining_op in inside for value in op.operands)


def _takes_tensors(op: Operation) -> bool:
    """Whether it is about elements that threads hold."""
    return any(isinstance(value.type, (T.TensorType, T.FlightType)) for value in (*op.operands, *op.results))


# -- splitting -------------------------------------------------------------------------------------------


def _split(function: Function, target: Target, plan: _Plan) -> None:
    keep_for_all_iterations(plan.top, plan.buffers)
    set_registers(function)
    empties = {ring.loop: _empties(plan.top, ring) for ring in plan.rings}
    producer = _producer(function, plan, empties)
    for op in reversed(plan.copying):
        op.erase()
    for ring in plan.rings:
        b = Builder.at(ring.barrier)
        b.create(BarrierArrive, pick(b, empties[ring.loop], ring.slot).result)
        ring.barrier.erase()
    _put_together(plan, producer)
    dce(function, target)
    computing, others = (function.attributes[name] for name in ("num_warps", "extra_warps"))
    text = f"one of {others} more warps copies the tiles" if others > 1 else "one more warp copies the tiles"
    function.remarks.add("specialized", f"{text}, {computing} compute", plan.top.location)


def _empties(top: Operation, ring: _Ring) -> Value:
    """A ring of mbarriers at which the warps that compute arrive, once in an iteration."""
    made = ring_of_barriers(top, ring.count)
    count = top.parent.parent.attributes["num_warps"]
    b = Builder.at(top)
    b.create(BarrierInit, made, count=count)
    return made


def _producer(function: Function, plan: _Plan, empties: dict[For, Value]) -> Block:
    """The producer's part: what is live of everything up to the loop."""
    block, mapping = Block(), {}
    live, copies, kept = Liveness(), {}, plan.live.operations
    for op in function.body.operations:
        if op in kept and ALLOCATES not in op.traits:
            clone = block.append(op.clone(mapping, kept))
            cloned = [x for x in op.walk() if x in kept or (x.is_terminator and x.parent_op in kept)]
            copies.update(zip(cloned, clone.walk(), strict=True))
        if op is plan.top:
            break
    live.operations = {copies[op] for op in kept if op in copies}
    live.values = {mapping[value] for value in plan.live.values if value in mapping}
    sweep(block, live)
    Builder(block).create(Yield)
    for op in block.walk(BarrierWait):
        op.attributes.pop("for_copies", None)
    for op in block.walk(TensorLoad):
        op.ordered = True
    for ring in plan.rings:
        _wait_for_room(copies[ring.loop], copies[ring.barrier], empties[ring.loop], ring.count)
    return block


def _wait_for_room(loop: For, place: Barrier, empties: Value, count: int) -> None:
    """In each iteration of the producer's ``loop``, wait until the consumers have come as far."""
    around = loop.parent_op
    initial = [Builder.at(around or loop).constant(0, T.I32) for _ in range(2)]
    names = ("turn", "phase")
    outer = [around.add_carried(value, name) for value, name in zip(initial, names)] if around else []
    starts = [carried[0] for carried in outer] or initial
    inner = [loop.add_carried(value, name) for value, name in zip(starts, names)]
    turn, phase = (carried[0] for carried in inner)
    b = Builder.at(place)
    b.create(BarrierWait, pick(b, empties, turn).result, phase)
    end = loop.body.terminator
    b = Builder.at(end)
    following = [b.value(NextSlot, turn, count=count), b.value(NextPhase, phase, turn, count=count)]
    end.set_operands([*end.operands[:-2], *following])
    if around:
        end = around.body.terminator
        end.set_operands([*end.operands[:-2], *(carried[-1] for carried in inner)])
    place.erase()


def _put_together(plan: _Plan, producer: Block) -> None:
    """Put what is ``inside`` into a partition with the ``producer``."""
    results, inside = plan.results, {nested for op in plan.inside for nested in op.walk()}
    consumers = Block()
    behind = plan.inside[-1].next
    made = Builder.at(behind).create(
        Partition, result_types=[value.type for value in results],
        regions=[Region(consumers), Region(producer)], location=plan.top.location,
    )  # fmt: skip
    for value, result in zip(results, made.results, strict=True):
        result.hint = value.hint
        for user, index in list(value.uses):
            if user not in inside:
                user.set_operand(index, result)
    here = plan.inside[0]
    while here is not made:
        here, op = here.next, here
        if isinstance(op, LocalDealloc) and op not in plan.inside:
            op.move_after(made)
    for op in plan.inside:
        consumers.append(op.remove())
    Builder(consumers, location=plan.top.location).create(Yield, *results)
