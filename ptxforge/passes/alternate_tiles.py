"""Two groups of warps take the tiles of a persistent product in turns: one stores while the other multiplies.

    partition {                                                           (before)
      for %tile = %first to %count step %step … {
        for %k … { barrier_wait %full[%i]; products …; barrier_arrive %empty[%i] }
        dot_wait; store } } producer { … }

    partition {                                                           (after; two groups run this)
      %group = get_consumer_group
      for %tile = %first + %group · %step to %count step 2 · %step … {
        barrier_wait %turn[%group]
        for %k … { barrier_wait %full[%i]; products …; barrier_arrive %empty[%i - 1] }
        barrier_arrive %turn[1 - %group]
        dot_wait; barrier_arrive %empty[%i]; store } } producer { … }

Tensor cores are never idle while a tile is stored, and each group has all registers for sums of its own. Both
take their tiles out of one ring: a group goes on behind the other one's tile, and the producer, which knows
nothing of groups, copies tile after tile without a pause between them.

The order matters for more than speed: an mbarrier tells a phase from the next one only, so that a group may
not wait for tiles while the other one is a whole round ahead of it in the ring.

Rules
-----
MARKED      The loop over tiles has ``consumer_groups`` (``deal_out_tiles`` decides, and says what such a loop
            is), and warps were specialized.
BARRIERS    All tiles of a step complete on one mbarrier: the group that is late waits once.
STORES      The groups of a loop that the author wrote store in turns, too: its tiles may lie over each other.
"""

from __future__ import annotations

import attrs

from ptxforge.ir import types as T
from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Function, Operation, Value
from ptxforge.ir.definition import PRODUCTS
from ptxforge.ir.ops.arith import AddI, AndI, CmpI, DivUI, MaxSI, MulI, RemUI, SubI, XorI
from ptxforge.ir.ops.control import For
from ptxforge.ir.ops.mbarrier import BarrierArrive, BarrierExpect, BarrierInit, BarrierWait, TensorLoad
from ptxforge.ir.ops.partition import GetConsumerGroup, Partition, allocation_of, users_of
from ptxforge.ir.ops.shared import MemDescIndex
from ptxforge.ir.rewriter import constant_of
from ptxforge.passes.dce import dce
from ptxforge.passes.deal_out_tiles import is_made
from ptxforge.passes.flatten_loops import hoist_scalars
from ptxforge.passes.group_registers import set_registers
from ptxforge.passes.tensor_loads import pick, ring_of_barriers
from ptxforge.support.machine import GROUPS_THAT_TAKE_TURNS as GROUPS
from ptxforge.support.target import Target


def alternate_tiles(function: Function, target: Target) -> bool:
    """Let two groups of warps run every partition whose loop is MARKED."""
    changed = False
    for partition in function.walk(Partition):
        loops = list(partition.consumers.of(For))
        if len(loops) != 1 or loops[0].consumer_groups != GROUPS:
            continue
        if next(loops[0].body.of(For)).next.effects.finishes != PRODUCTS:
            continue  # its product could not be cut in parts after all: ``products_in_parts`` has said so
        found = _parts(partition, loops[0])
        _consume(found)
        _produce(found)
        _share_barriers(found)
        set_registers(function, GROUPS)
        dce(function, target)
        others = function.attributes["num_warps"] * (GROUPS - 1)
        text = f"{others} more take the tiles in turns with them: one group stores while the other multiplies"
        function.remarks.add("specialized", text, found.tiles.location)
        changed = True
    return changed


@attrs.frozen
class _Parts:
    """The loop over ``tiles`` of the consumers with the loop of the products, ``steps``, where ``arrive``
    says that tile ``slot`` of the ring of ``count`` was read; the same loops of the producer, which ``wait``
    for that."""

    partition: Partition
    tiles: For
    steps: For
    arrive: BarrierArrive
    wait: BarrierWait
    count: int

    @property
    def read(self) -> MemDescIndex:
        """The mbarrier at which consumers arrive."""
        return self.arrive.barrier.defining_op

    @property
    def copying(self) -> For:
        """The producer's inner loop."""
        return self.wait.parent_op


def _parts(partition: Partition, tiles: For) -> _Parts:
    """What there is to change."""
    (steps,), (wait,) = tiles.body.of(For), partition.producer.walk(BarrierWait)
    (arrive,) = steps.body.of(BarrierArrive)
    hoist_scalars(tiles)
    return _Parts(partition, tiles, steps, arrive, wait, arrive.barrier.defining_op.source.type.shape[0])


# -- consumers -------------------------------------------------------------------------------------------


def _consume(parts: _Parts) -> None:
    tiles, steps = parts.tiles, parts.steps
    b = Builder.at(tiles)
    group = b.value(GetConsumerGroup)
    trips = _trips(b, steps)
    _every_other_tile(b, tiles, group)
    _behind_the_others(b, parts, group, trips)
    _release_when_read(parts, trips)
    _take_turns(b, parts, group)
    if not is_made(tiles):
        _store_in_turns(parts, group)


def _trips(b: Builder, loop: For) -> Value:
    """How many steps ``loop`` has."""
    zero = b.constant(0, T.I32)
    length = b.value(MaxSI, b.value(SubI, loop.upper, loop.lower), zero)
    step = constant_of(loop.step)
    if step == 1:
        return length
    return b.value(DivUI, b.value(AddI, length, b.constant(step - 1, T.I32)), loop.step)


def _every_other_tile(b: Builder, tiles: For, group: Value) -> None:
    tiles.set_operand(0, b.value(AddI, tiles.lower, b.value(MulI, group, tiles.step)))
    tiles.set_operand(2, b.value(MulI, tiles.step, b.constant(GROUPS, T.I32)))


def _behind_the_others(b: Builder, parts: _Parts, group: Value, trips: Value) -> None:
    """Place and phase in the ring are behind the tiles of the groups before."""
    tiles, end = parts.tiles, parts.tiles.body.terminator
    slot, phase = (tiles.carried.index(parts.steps.initial[i]) for i in _place_and_phase(parts))
    ahead = b.value(MulI, group, trips)
    for at, value in zip((slot, phase), _advance(b, tiles.initial[slot], tiles.initial[phase], ahead, parts)):
        tiles.set_operand(tiles.first_initial + at, value)
    b = Builder.at(end)
    passed = b.value(MulI, trips, b.constant(GROUPS - 1, T.I32))
    moved = _advance(b, end.values[slot], end.values[phase], passed, parts)
    for at, value in zip((slot, phase), moved):
        end.set_operand(at, value)


def _place_and_phase(parts: _Parts) -> tuple[int, int]:
    """Which of the values that the inner loop carries are its place in the ring and the phase."""
    wait = next(iter(parts.steps.body.of(BarrierWait)))
    carried = parts.steps.carried
    return carried.index(wait.barrier.defining_op.operands[1]), carried.index(wait.phase)


def _advance(b: Builder, slot: Value, phase: Value, by: Value, parts: _Parts) -> tuple[Value, Value]:
    """Place and phase so many steps later."""
    count = b.constant(parts.count, T.I32)
    place = b.value(AddI, slot, by)
    rounds = b.value(AndI, b.value(DivUI, place, count), b.constant(1, T.I32))
    return b.value(RemUI, place, count), b.value(XorI, phase, rounds)


def _release_when_read(parts: _Parts, trips: Value) -> None:
    """Each tile's buffer is released when its own products are finished: that of the last one behind the
    loop, as nobody else knows when that is."""
    steps, ring = parts.steps, parts.read.source
    slot = parts.read.operands[1]
    last = steps.add_carried(steps.initial[steps.carried.index(slot)], "last")
    b = Builder.at(parts.arrive)
    later = b.value(CmpI, steps.induction, steps.lower, predicate="sgt")
    b.create(BarrierArrive, pick(b, ring, last[0]).result, later)
    parts.arrive.erase()
    end = steps.body.terminator
    end.set_operands([*end.operands[:-1], slot])
    b = Builder.after(steps.next)
    some = b.value(CmpI, trips, b.constant(0, T.I32), predicate="sgt")
    b.create(BarrierArrive, pick(b, ring, last[-1]).result, some)


def _take_turns(b: Builder, parts: _Parts, group: Value) -> None:
    """The first group begins: it waits for the phase before the first, which is over."""
    tiles, steps = parts.tiles, parts.steps
    one = b.constant(1, T.I32)
    other = b.value(SubI, one, group)
    phase = tiles.add_carried(other, "turn")[0]
    _in_turn(parts, steps, steps, group, other, phase)
    end = tiles.body.terminator
    end.set_operands([*end.operands[:-1], Builder.at(end).value(XorI, phase, one)])


def _store_in_turns(parts: _Parts, group: Value) -> None:
    """See STORES."""
    body = parts.tiles.body
    around = [op for op in body.operations if any("global" in x.get_effects().writes for x in op.walk())]
    b = Builder.at(parts.tiles)
    other = b.value(SubI, b.constant(1, T.I32), group)
    _in_turn(parts, around[0], around[-1], group, other, body.arguments[-1])


def _in_turn(
    parts: _Parts, first: Operation, last: Operation, group: Value, other: Value, phase: Value
) -> None:
    """From ``first`` to ``last`` one group is at work, then the ``other``."""
    turns = ring_of_barriers(parts.partition, GROUPS)
    count = parts.partition.function.attributes["num_warps"]
    Builder.at(parts.partition).create(BarrierInit, turns, count=count)
    b = Builder.at(first)
    b.create(BarrierWait, pick(b, turns, group).result, phase)
    b = Builder.after(last)
    b.create(BarrierArrive, pick(b, turns, other).result)


# -- the producer ----------------------------------------------------------------------------------------


def _produce(parts: _Parts) -> None:
    """Copies run ahead as far as there is room, over the ends of tiles: the steps of the inner loop are those
    of the tiles that it copies, and what stood in front of it goes."""
    loop, wait = parts.copying, parts.wait
    tiles = loop.parent_op
    for op in reversed(list(tiles.body.of((BarrierExpect, TensorLoad)))):
        op.erase()
    slot, phase = wait.barrier.defining_op.operands[1], wait.phase
    for op in list(loop.body.of((BarrierExpect, TensorLoad))):
        for value in (op.barrier, getattr(op, "destination", None)):
            if value is not None:
                value.defining_op.set_operand(1, slot)
    at = tiles.carried.index(loop.initial[loop.carried.index(phase)])  # what was never filled has room
    tiles.set_operand(tiles.first_initial + at, Builder.at(tiles).constant(1, T.I32))
    b = Builder.at(loop)
    ahead = b.constant((parts.count - 1) * constant_of(parts.steps.step), T.I32)
    loop.set_operand(0, b.value(SubI, loop.lower, ahead))
    loop.set_operand(1, b.value(SubI, loop.upper, ahead))


def _share_barriers(parts: _Parts) -> None:
    """All tiles of a step complete on the mbarrier of the first, as they are waited for together."""
    first, *others = [op for op in parts.steps.body.of(BarrierWait)]
    body = parts.copying.body
    expects = {allocation_of(op.barrier): op for op in body.of(BarrierExpect)}
    kept = expects[allocation_of(first.barrier)]
    for wait in others:
        ring = allocation_of(wait.barrier)
        kept.bytes += expects[ring].bytes
        expects[ring].replace_with([kept.result])
        wait.replace_with([first.result])
        for user in (*users_of(ring.result), *ring.result.users, ring):
            user.erase()
