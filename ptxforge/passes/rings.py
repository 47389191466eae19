"""The buffers of pipelined loads: how a load becomes a copy into one of them and a read of it, some
iterations later, and who says when a tile has come and when a buffer is free.

    %x = load %p; … local_alloc %x …                     (before)

    wait for room; copy %p → buffer (%k + 2) mod 3       (after: stage 0, for iteration k + 2)
    wait for the copy; … buffer %k mod 3 …                                (stage 2, for iteration k)

``cp.async`` (:meth:`Rings._by_threads`): all threads copy, and wait for their own groups; a barrier makes the
tile known to all. TMA (:meth:`Rings._by_tma`): one thread asks for a tile, whose bytes complete on an
mbarrier, one for each group of the schedule. In a chain of products (``chained_products.py``)
other mbarriers say that a tile was read.

In a loop around, over output tiles say, the mbarriers of TMA live on: place in the ring and phase are carried
from one tile to the next, so that the copies of the next one may begin while this one is stored
(``flatten_loops.py``).
"""

from __future__ import annotations

from collections.abc import Iterator

from ptxforge.ir import types as T
from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Block, Operation, Value
from ptxforge.ir.definition import ALLOCATES, PRODUCTS
from ptxforge.ir.ops.arith import Select, XorI
from ptxforge.ir.ops.control import For
from ptxforge.ir.ops.mbarrier import BarrierArrive, BarrierExpect, BarrierInit, BarrierWait
from ptxforge.ir.ops.memory import Barrier, Load
from ptxforge.ir.ops.shared import (
    AsyncCommitGroup,
    AsyncCopyGlobalToLocal,
    AsyncWait,
    InRing,
    LocalAlloc,
    LocalLoad,
    MemDescIndex,
    MemDescTrans,
    NextPhase,
    NextSlot,
)
from ptxforge.ir.warps import warps_around
from ptxforge.layouts.shared import InSharedMemory
from ptxforge.passes.analysis.pipelined_loads import is_zero
from ptxforge.passes.analysis.rectangles import Rectangle
from ptxforge.passes.multicast_loads import peers_of
from ptxforge.passes.ring_layouts import layout_of_boxes, layout_of_ring
from ptxforge.passes.tensor_loads import TensorLoads, pick, ring_of_barriers
from ptxforge.support.errors import IRError


class Rings:
    """The buffers of a loop's pipelined loads. ``lower`` replaces each load by a copy into one of
    ``distance + 1`` buffers and a read of it ``distance`` stages later."""

    def __init__(
        self, loop: For, stage: dict[Operation, int], group: dict[Operation, int], distance: int,
        by_tma: TensorLoads, around: For | None, multicasts: dict[Load, int],
    ):  # fmt: skip
        self.loop, self.stage, self.group, self.distance, self.by_tma = loop, stage, group, distance, by_tma
        self.around, self.multicasts = around, multicasts
        self.count = distance + 1
        self.buffers: list[Value] = []
        self.tiles: dict[Load, tuple[Value, Value]] = {}
        self.barriers: list[Value] = []
        self._counters: dict[int, Value] = {}
        self._phases: dict[int, Value] = {}
        self._starts: dict[str, Value] = {}
        # The groups of what threads copy; waits by group and stage; by group, where TMA's bytes are counted,
        # and where they are waited for.
        self._copies: dict[AsyncCopyGlobalToLocal, int] = {}
        self._waits: dict[tuple[int, int], AsyncWait] = {}
        self._expected: dict[int, BarrierExpect] = {}
        self._arrived: dict[int, BarrierWait] = {}

    def lower(self, loads: list[Load]) -> None:
        # In the order of the program, so that the first one's wait comes before all reads.
        for load in loads:
            at = self.stage.pop(load)
            rectangle = self.by_tma.rectangle(load)
            if rectangle is not None:
                self._by_tma(load, rectangle, at)
                continue
            self._by_threads(load, at)
        self._commit()
        if self.multicasts:
            self._make_empty_ring()
        elif self.barriers:
            Builder.at(self._home).create(Barrier)
        if self.around is not None:
            self._hand_on()

    @property
    def copies_by_threads(self) -> bool:
        """Whether threads copy some of the tiles."""
        return bool(self._copies)

    # -- where in the ring -----------------------------------------------------------------------------

    def _counter(self, at: int) -> Value:
        """A carried value that counts 0, 1, …, count - 1, 0, … with the iterations of stage ``at``. (From
        where the last tile stopped, if there is a loop ``around``.)"""
        if at not in self._counters:
            slot = self.loop.body.add_argument(T.I32, "buffer")
            self._counters[at] = self._carry(slot, "buffer", NextSlot, slot, at=at)
        return self._counters[at]

    def _phase(self, at: int) -> Value:
        """A carried value that is 0 the first time round the ring, 1 the second, 0 the third …"""
        if at not in self._phases:
            slot = self._counter(at)
            phase = self.loop.body.add_argument(T.I32, "phase")
            self._phases[at] = self._carry(phase, "phase", NextPhase, phase, slot, at=at)
        return self._phases[at]

    def _carry(self, argument: Value, name: str, kind: type[InRing], *operands: Value, at: int) -> Value:
        """Let ``argument`` become in each iteration what ``kind`` makes of the operands."""
        terminator = self.loop.body.terminator
        following = Builder.at(terminator).create(kind, *operands, count=self.count)
        self.stage[following] = at
        initial = self._start(name, Builder.at(self.loop).constant(0, T.I32))
        self.loop.set_operands([*self.loop.operands, initial])
        terminator.set_operands([*terminator.operands, following.result])
        self.loop.add_result(initial.type)
        return argument

    def _start(self, name: str, zero: Value) -> Value:
        """What a counter of the loop begins with: ``zero``, or what the loop ``around`` carries."""
        if self.around is None:
            return zero
        if name not in self._starts:
            outside = Builder.at(self.around).constant(0, T.I32)
            self.around.set_operands([*self.around.operands, outside])
            self.around.add_result(T.I32)
            self._starts[name] = self.around.body.add_argument(T.I32, name)
        return self._starts[name]

    def _hand_on(self) -> None:
        """Where the reads of this tile stop, those of the next one begin."""
        last = {"buffer": self._counters[self.distance], "phase": self._phases[self.distance]}
        stops = [self.loop.last_of(last[name]) for name in self._starts]
        terminator = self.around.body.terminator
        terminator.set_operands([*terminator.operands, *stops])

    @property
    def _home(self) -> For:
        """The loop in front of which barriers are made."""
        return self.loop if self.around is None else self.around

    def _buffer(self, type: T.TensorType, layout: InSharedMemory, by_tma: bool) -> Value:
        """Memory for the tiles of one load. TMA writes where the alignment of its layout begins."""
        described = T.MemDescType((self.count, *type.shape), type.element, layout, mutable=True)
        short = {"pitch": layout.alignment} if by_tma and type.bytes < layout.alignment else {}
        buffer = Builder.at(self.loop).create(LocalAlloc, result_types=[described], **short).result
        self.buffers.append(buffer)
        return buffer

    def read_on(self, following: For, loads: dict[Load, Load]) -> None:
        """Let the loop behind take its tiles out of this ring, those of ``loads`` where the ones before were
        read (``continued_rings.py``)."""
        slot, phase = (
            self._continue(counted[self.distance], following) for counted in (self._counters, self._phases)
        )
        b = Builder.at(following.body.terminator)
        moved = b.value(NextSlot, slot, count=self.count), b.value(NextPhase, phase, slot, count=self.count)
        following.body.terminator.set_operands([*following.body.terminator.operands, *moved])
        for earlier, load in loads.items():
            buffer, barriers = self.tiles[earlier]
            b = Builder.at(load)
            wait = b.create(BarrierWait, pick(b, barriers, slot).result, phase)
            source = pick(b, buffer, slot, wait.result)
            for user in dict.fromkeys(load.result.users):
                user.replace_with([source.result])
            load.erase()

    def _continue(self, counter: Value, following: For) -> Value:
        """A carried value of ``following`` that begins with what ``counter`` is in the end."""
        following.set_operands([*following.operands, self.loop.last_of(counter)])
        following.add_result(counter.type)
        return following.body.add_argument(counter.type, counter.hint)

    # -- copies ----------------------------------------------------------------------------------------

    def _by_threads(self, load: Load, at: int) -> None:
        """``cp.async``: each thread copies some pieces."""
        type, use, stage = load.result.type, at + self.distance, self.stage
        copy_index, read_index = self._counter(at), self._counter(use)
        buffer = self._buffer(type, layout_of_ring(load), by_tma=False)
        b = Builder.at(load)
        slot = b.create(MemDescIndex, buffer, copy_index)
        kept = {k: v for k, v in load.attributes.items() if k == "vector"}
        copy = b.create(AsyncCopyGlobalToLocal, load.pointer, slot.result, *load.operands[1:2], **kept)
        stage[slot] = stage[copy] = at
        group = self._copies[copy] = self.group[load]
        if (group, use) not in self._waits:
            self._waits[group, use] = b.create(AsyncWait, copy.result)
            stage[self._waits[group, use]] = use
        wait = self._waits[group, use]
        source = b.create(MemDescIndex, buffer, read_index)
        read = b.create(LocalLoad, source.result, wait.result, result_types=[type])
        stage[source] = stage[read] = use
        value = read.result
        if load.other is not None and not is_zero(load.other):
            filled = b.create(Select, load.mask, value, load.other)
            stage[filled] = use
            value = filled.result
        load.replace_with([value])
        _fold_conversions(read, source.result, (wait.result,), stage)

    def _commit(self) -> None:
        """Let what each group has in a step be one of ``cp.async``."""
        # The copies of the first stage come last in a step: their groups take in those of the other stages.
        earliest = min(map(self.stage.__getitem__, self._copies), default=0)
        first = [copy for copy in self._copies if self.stage[copy] == earliest]
        own = {group: [c for c in first if self._copies[c] == group] for group in self._copies.values()}
        for copies in reversed(own.values()):
            end = Builder.after((copies or first)[-1])
            self.stage[end.create(AsyncCommitGroup, *(copy.result for copy in copies))] = earliest

    def _by_tma(self, load: Load, rectangle: Rectangle, at: int) -> None:
        """One thread asks for the whole tile, whose bytes complete on a barrier of its own."""
        use, stage = at + self.distance, self.stage
        copy_index, read_index, phase = self._counter(at), self._counter(use), self._phase(use)
        layout = layout_of_boxes(load)
        buffer = self._buffer(load.result.type, layout, by_tma=True)
        if self.group[load] in self._expected:
            self._beside(load, rectangle, at, buffer)
            return
        barriers = ring_of_barriers(self._home, self.count)
        self.barriers.append(barriers)
        self.tiles[load] = buffer, barriers
        Builder.at(self._home).create(BarrierInit, barriers)
        b = Builder.at(load)
        if self.loop.peeled:
            self._release(load, at)
        slot, arrival = pick(b, buffer, copy_index), pick(b, barriers, copy_index)
        shared_by = self.multicasts.get(load, 0)
        expect = b.create(BarrierExpect, arrival.result, bytes=load.result.type.bytes)
        self._expected[self.group[load]] = expect
        started = self.by_tma.start(load, rectangle, layout, slot.result, expect.result, shared_by)
        stage.update(dict.fromkeys((slot, arrival, expect, *started), at))
        completion = pick(b, barriers, read_index)
        wait = b.create(BarrierWait, completion.result, phase)
        self._arrived[self.group[load]] = wait
        source = pick(b, buffer, read_index, wait.result)
        stage.update(dict.fromkeys((completion, wait, source), use))
        self._read(load, source.result, use)

    def _beside(self, load: Load, rectangle: Rectangle, at: int, buffer: Value) -> None:
        """A tile completes on the barrier of the first one of its group, which has been waited for when it is
        read."""
        use, stage, expect = at + self.distance, self.stage, self._expected[self.group[load]]
        if stage[expect] != at:
            raise IRError("loads of one group that TMA copies are in several stages")
        b = Builder.at(load)
        slot = pick(b, buffer, self._counter(at))
        layout, shared_by = buffer.type.layout, self.multicasts.get(load, 0)
        start = self.by_tma.start(load, rectangle, layout, slot.result, expect.result, shared_by)
        expect.bytes += load.result.type.bytes
        source = pick(b, buffer, self._counter(use), self._arrived[self.group[load]].result)
        stage.update(dict.fromkeys((slot, *start), at))
        stage[source] = use
        self._read(load, source.result, use)

    def _read(self, load: Load, source: Value, use: int) -> None:
        """Products read tiles from shared memory, threads vectors, what they make operands of, and what is
        for no product."""
        if not all(ALLOCATES in user.traits for user in load.result.users):
            read = Builder.at(load).create(LocalLoad, source, result_types=[load.result.type])
            self.stage[read] = use
            load.replace_with([read.result])
            _fold_conversions(read, source, (), self.stage)
            return
        for user in dict.fromkeys(load.result.users):
            user.replace_with([source])
        load.erase()

    def meet(self, place: Operation, at: int) -> list[Operation]:
        """In front of ``place``, behind all reads of an iteration of stage ``at``: what keeps the next copies
        waiting for these, in all CTAs that get the copies."""
        b = Builder.at(place)
        if not self.multicasts:
            return [b.create(Barrier)]
        read = pick(b, self.barriers[-1], self._counter(at))
        arrive = b.create(BarrierArrive, read.result, peers=peers_of(self.multicasts))
        wait = b.create(BarrierWait, read.result, self._phase(at), for_copies=True)
        return [read, arrive, wait]

    def _make_empty_ring(self) -> None:
        """The ring of barriers by which the warps of CTAs that share tiles say that they have read one."""
        ring, b = ring_of_barriers(self._home, self.count), Builder.at(self._home)
        b.create(BarrierInit, ring, count=len(peers_of(self.multicasts)) * warps_around(self.loop).count)
        b.create(Barrier, of_cluster=True)
        self.barriers.append(ring)

    def _release(self, load: Load, at: int) -> None:
        """A ring of barriers by which warps say that they have read a tile, and a wait for that before the
        next copy into its buffer."""
        stage, use = self.stage, at + self.distance
        ring = ring_of_barriers(self.loop, self.count)
        self.barriers.append(ring)
        outside = Builder.at(self.loop)
        outside.create(BarrierInit, ring, count=warps_around(self.loop).count)
        b = Builder.at(load)
        one = outside.constant(1, T.I32)
        # The first time round, the phase before the first is waited for, which is over.
        phase = b.create(XorI, self._phase(at), one)
        slot = pick(b, ring, self._counter(at))
        wait = b.create(BarrierWait, slot.result, phase.result, for_copies=True)
        stage.update(dict.fromkeys((phase, slot, wait), at))
        waits = (op for op in self.loop.body.operations if op.effects.finishes == PRODUCTS)
        behind = Builder.after(next(op for op in waits if stage[op] == use))
        read = pick(behind, ring, self._counter(use))
        arrive = behind.create(BarrierArrive, read.result)
        stage.update(dict.fromkeys((read, arrive), use))


def _fold_conversions(
    read: LocalLoad, source: Value, token: tuple[Value, ...], stage: dict[Operation, int]
) -> None:
    """A conversion of what was read is a read in the other layout, a transpose a read of another view, and
    what would be put into shared memory lies there already."""
    for user in dict.fromkeys(read.result.users):
        if user.parent is not read.parent:
            continue  # a branch may not be taken: all warps read here, before the barrier that they all reach
        b = Builder.at(user)
        if ALLOCATES in user.traits and user.result.type == source.type:
            stage.pop(user, None)
            user.replace_with([source])
            continue
        if user.changes_layout:
            folded = b.create(LocalLoad, source, *token, result_types=[user.result.type])
        elif user.is_transpose:
            view = b.create(MemDescTrans, source, order=user.order)
            folded = b.create(LocalLoad, view.result, *token, result_types=[user.result.type])
            stage[view] = stage[read]
        else:
            continue
        stage[folded] = stage[read]
        stage.pop(user, None)
        user.replace_with([folded.result])
        if user.is_transpose:
            _fold_conversions(folded, view.result, token, stage)
    if not read.result.uses:
        stage.pop(read)
        read.erase()


# -- what will be read ------------------------------------------------------------------------------------


def values_read(tile: Value, body: Block) -> Iterator[Value]:
    """What reads of shared memory will make of a ``tile`` that is loaded in ``body``: itself, its transposes,
    and their conversions. (See ``_fold_conversions``.)"""
    is_read = False
    for user in dict.fromkeys(tile.users):
        if user.parent is body and user.changes_layout:
            yield user.result
        elif user.parent is body and user.is_transpose:
            yield from values_read(user.result, body)
        elif user.parent is not body or ALLOCATES not in user.traits:
            is_read = True
    if is_read:
        yield tile


def tile_behind(op: Operation | None, body: Block) -> Operation | None:
    """What makes the tile of which ``op`` makes one of the :func:`values_read`, if that is a load."""
    if op is not None and op.parent is body and op.changes_layout:
        op = op.operands[0].defining_op
    while op is not None and op.parent is body and op.is_transpose:
        op = op.operands[0].defining_op
    return op


def layout_behind(op: Operation, body: Block) -> InSharedMemory:
    """The layout of the ring out of which the value that ``op`` makes will be read, as that read sees it."""
    if op is tile_behind(op, body):
        return layout_of_ring(op)
    layout = layout_behind(op.operands[0].defining_op, body)
    return layout.permuted(op.order) if op.is_transpose else layout
