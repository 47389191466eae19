"""Put a barrier wherever one thread could read or overwrite what another has not finished with.

    local_store %x, %b                                             (before)
    %y = local_load %b : …

    local_store %x, %b                                             (after)
    barrier
    %y = local_load %b : …

The equations are those of seed 004. For a statement ``s``, with ``in`` the union over its predecessors'
``out``:

    out_RAW(s) = {} if in_RAW(s) ∩ read(s) ≠ {}  (a barrier goes before s), else in_RAW(s) ∪ write(s)
    out_WAR(s) = {} if in_WAR(s) ∩ write(s) ≠ {} (a barrier goes before s), else in_WAR(s) ∪ read(s)

Here a barrier empties both sets, to which ``s`` then adds its own; a write after a write by another thread is
treated as a write after a read. ``read`` and ``write`` are intervals of bytes, so buffers that share memory
are seen to. A loop's entry is the union of what comes before it and of its own end, iterated until nothing is
added.

Scratch      An operation with scratch writes it, meets in a barrier of its own, and reads it: what was
             pending before is done with after it, and its reads are pending. (Where each warp reads only what
             it wrote itself, there is no such barrier, and its reads and writes join those pending. When
             it comes round again, as at the end of each tile of a persistent program, its warps need not wait
             for each other: the threads of each meet, ``meets_before``.)
Async        An asynchronous copy has written when its group was waited for. An ``async_wait`` makes those
             writes pending that reads take its token for, whatever barrier came between. All other copies may
             have *arrived*, too: a read that takes a token need not mind, anything else does. (When nothing
             takes its token, a wait makes the writes of all copies pending.) A copy that its maker calls
             ``ordered`` needs no barrier for the sake of its own buffer, but does for that of others that lie
             in the same bytes.
Products     A ``dot_async`` reads until a ``dot_wait`` names its group as finished: until then its reads are
             *flying*, which no barrier ends; from there on they are pending reads like any other. Nothing may
             write what flying products read: the pass that starts them takes care of that.
             The same holds for the waits of mbarriers: a tile that TMA copied is seen by all who waited, and
             nothing is pending; a barrier must be in front of each ``tensor_load`` into memory that was read.
Clusters     A copy with ``multicast`` also writes to other CTAs, which may not have come as far. What was
             read or written of that memory is done with when all CTAs have met (``barrier {of_cluster}``); an
             ``ordered`` copy need not mind its own buffer.
Stores       A ``tensor_store`` reads until a ``store_wait`` names its token; one thread waits, so that its
             reads are pending from there on, like those of threads.
Proxies      What threads store, or copy by ``cp.async``, is seen by asynchronous reads, and overwritten by
             TMA, only behind a ``fence_async`` of the storing threads and a barrier. Writes without such a
             fence are kept apart: a fence goes in front of each barrier that is inserted for them.
In place     When several threads load the same element (a scalar, a tile smaller than the threads are many)
             and one of them then stores through the same parameter, a slower one might load what was stored:
             a write after a read in global memory. And when one of them has stored and all load again (in a
             loop), a faster one might load what was there before. (Not across the border of an ``if``:
             threads could disagree on its condition if another program writes what they load. Nor where
             ``own_loads`` left one thread to load.)
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ptxforge.ir import types as T
from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Function, Operation, Value
from ptxforge.ir.definition import ALLOCATES, COPIES, PRODUCTS, SAME_MEMORY, STORES, TENSORS
from ptxforge.ir.departures import copies_behind
from ptxforge.ir.ops.control import For, If, Loop, Structured, While
from ptxforge.ir.ops.memory import Barrier
from ptxforge.ir.ops.partition import Partition
from ptxforge.ir.ops.shared import LocalAlloc
from ptxforge.ir.ops.warpgroup import FenceAsync
from ptxforge.ir.paths import Paths
from ptxforge.ir.warps import scratch_of
from ptxforge.passes.analysis.components import carried_groups
from ptxforge.passes.analysis.roots import accesses_in_place
from ptxforge.support.target import Target


class Buffers:
    """For every memdesc the ``local_alloc`` operations behind it: views share their source's, and values that
    control flow passes on collect those of all that may be passed."""

    def __init__(self, function: Function):
        self.of: dict[Value, set[LocalAlloc]] = {}
        self.allocations: list[LocalAlloc] = []
        flows: list[tuple[Value, ...]] = []
        for op in function.walk():
            if ALLOCATES in op.traits:
                self.of[op.result] = {op}
                self.allocations.append(op)
            elif SAME_MEMORY in op.traits and isinstance(op.operands[0].type, T.MemDescType):
                # A view shares the very set of its source, so that what control flow adds reaches it.
                self.of[op.result] = self.of.setdefault(op.operands[0], set())
            elif isinstance(op, Structured):
                groups = [g for g in carried_groups(op) if isinstance(g[0].type, T.MemDescType)]
                flows += groups
                for group in groups:
                    for value in group:
                        self.of.setdefault(value, set())
        self._flow(flows)

    def _flow(self, groups: list[tuple[Value, ...]]) -> None:
        changed = True
        while changed:
            changed = False
            for group in groups:
                together = set().union(*(self.of[v] for v in group))
                for value in group:
                    if self.of[value] != together:
                        self.of[value] |= together
                        changed = True

    def used_by(self, op: Operation) -> list[LocalAlloc]:
        """The allocations behind the operation's memdesc operands, in order."""
        found: dict[LocalAlloc, None] = {}
        for value in op.operands:
            if isinstance(value.type, T.MemDescType):
                found.update(dict.fromkeys(sorted(self.of[value], key=self.allocations.index)))
        return list(found)


MOST_GROUPS = 8
"""Groups of products that are told apart; older ones count as one."""

Interval = tuple[int, int, Operation]
"""Bytes from … to (not included), and whose they are: an allocation, or the operation whose scratch it is."""


def insert_barriers(function: Function, target: Target) -> bool:
    """Insert ``barrier`` operations by the equations above. Offsets in shared memory must have been given."""
    in_place = accesses_in_place(function)
    if not function.attributes.get("shared_bytes") and not in_place:
        return False
    inserter = _Inserter(function, in_place)
    inserter.block(function.body, _State())
    return inserter.changed


class _State(NamedTuple):
    """Intervals that some thread may still be reading or writing, and parameters that it may still be loading
    from what another is to store to (``loaded``), or that one thread has stored to and others may load from
    (``stored``)."""

    reads: frozenset[Interval] = frozenset()
    writes: frozenset[Interval] = frozenset()
    loaded: frozenset[Value] = frozenset()
    stored: frozenset[Value] = frozenset()
    unfenced: frozenset[Interval] = frozenset()
    leaving: frozenset[Interval] = frozenset()
    arrived: frozenset[Interval] = frozenset()
    touched: frozenset[Interval] = frozenset()  # since the CTAs met; if copies go to several of them
    flying: tuple[frozenset[Interval], ...] = ()

    def join(self, other: _State) -> _State:
        (*first, flying), (*second, others) = self, other
        groups = itertools.zip_longest(flying, others, fillvalue=frozenset())
        return _State(*(a | b for a, b in zip(first, second)), tuple(a | b for a, b in groups))

    def behind_barrier(self, of_cluster: bool = False) -> _State:
        """All threads have met: nothing is pending but what tensor cores and copies are still reading."""
        touched = frozenset() if of_cluster else self.touched
        return _State(unfenced=self.unfenced, leaving=self.leaving, touched=touched, flying=self.flying)

    def started(self, reads: Iterable[Interval]) -> _State:
        """A group of products reads; the newest group stands first."""
        newest, *rest = (frozenset(reads), *self.flying)
        if len(rest) >= MOST_GROUPS:
            rest[MOST_GROUPS - 1 :] = [frozenset().union(*rest[MOST_GROUPS - 1 :])]
        return self._replace(flying=(newest, *rest))

    def waited(self, pending: int) -> _State:
        """All groups but the ``pending`` newest are finished."""
        finished = frozenset().union(*self.flying[pending:])
        return self._replace(reads=self.reads | finished, flying=self.flying[:pending])

    def without(self, owners: Iterable[Operation]) -> _State:
        """What is pending besides accesses to the memory of ``owners``."""
        owners = set(owners)
        names = ("reads", "writes", "arrived", "touched")
        kept = {n: frozenset(i for i in getattr(self, n) if i[2] not in owners) for n in names}
        return self._replace(**kept)

    def conflicts(self, reads: list[Interval], writes: list[Interval]) -> bool:
        written = self.writes | self.arrived
        return _overlap(written, reads) or _overlap(self.reads, writes) or _overlap(written, writes)


def _overlap(some: Iterable[Interval], others: list[Interval]) -> bool:
    return any(a[0] < b[1] and b[0] < a[1] for a in some for b in others)


class _Inserter(Paths[_State]):
    def __init__(self, function: Function, in_place: dict[Operation, Value]):
        self.in_place = in_place
        self.buffers = Buffers(function)
        self.changed = False
        queued = [op for op in function.walk() if op.effects.starts and op.effects.touches("shared")]
        copies = [op for op in queued if op.effects.starts == COPIES]
        self.copied_to = frozenset(i for op in copies for i in self.intervals(op))
        others = [op for op in queued if op.effects.starts != COPIES]
        self.asynchronous = [i for op in others for i in self.intervals(op)]
        self.multicasts = any(op.effects.fills and getattr(op, "multicast", 0) for op in others)

    def intervals(self, op: Operation) -> list[Interval]:
        return [interval for alloc in self.buffers.used_by(op) for interval in _intervals(alloc)]

    def join(self, some: _State, others: _State) -> _State:
        return some.join(others)

    def operation(self, op: Operation, state: _State) -> _State:
        if self.multicasts:
            state = self.met_before(op, state)
        rule = _TRANSFER.get(type(op)) or _rule_of_queue(op)
        if rule is not None:
            return rule(self, op, state)
        if op in self.in_place:
            state = self.access_in_place(op, state)
        if scratch_of(op):
            return self.scratch(op, state)
        return self.access(op, state)

    def met_before(self, op: Operation, state: _State) -> _State:
        """See Clusters."""
        effects = op.get_effects()
        if effects.fills == TENSORS:
            own = self.intervals(op)
            before = state.without(owner for *_, owner in own) if op.ordered else state
            is_late = _overlap(before.touched, own) or _overlap(state.unfenced, own)
            return self.barrier_before(op, state, of_cluster=True) if op.multicast and is_late else state
        found = set(self.intervals(op)) if effects.touches("shared") else set()
        if ALLOCATES in op.traits and op.operands:
            found.update(_intervals(op))
        if size := scratch_of(op):
            found.add((op.attributes["scratch_offset"], op.attributes["scratch_offset"] + size, op))
        return state._replace(touched=state.touched | found) if found else state

    def branch(self, op: If, state: _State) -> _State:
        state = self.fenced_before(op, state)
        sides = super().branch(op, state._replace(loaded=frozenset(), stored=frozenset()))
        return sides.join(_State(loaded=state.loaded, stored=state.stored))

    def loop(self, op: Loop, state: _State) -> _State:
        return super().loop(op, self.fenced_before(op, state))

    def partition(self, op: Partition, state: _State) -> _State:
        """All threads meet before and behind it; between, mbarriers order what two groups do."""
        if state.unfenced:
            Builder.at(op).create(FenceAsync)
            self.changed = True
        before = state.behind_barrier()._replace(unfenced=frozenset())
        self.block(op.producer, before)
        return self.block(op.consumers, before).behind_barrier()

    def fenced_before(self, op: Operation, state: _State) -> _State:
        """What products in the regions of ``op`` read of what was stored before is fenced before it, once."""
        inside = op.walk()
        reads = [i for x in inside if x.effects.reads_by == PRODUCTS for i in self.intervals(x)]
        if {owner for *_, owner in reads}.difference(inside).intersection(i[2] for i in state.unfenced):
            return self.barrier_before(op, state)
        return state

    def scratch(self, op: Operation, state: _State) -> _State:
        offset = op.attributes["scratch_offset"]
        own = (offset, offset + scratch_of(op), op)
        if state.conflicts([], [own]):
            if op.scratch_is_warp_local and not state.without([op]).conflicts([], [own]):
                op.attributes["meets_before"] = self.changed = True
            else:
                state = self.barrier_before(op, state)
        state = self.written(state, [own])
        if op.scratch_is_warp_local:
            return state._replace(reads=state.reads | {own})
        return state.behind_barrier()._replace(reads=frozenset([own]))

    def access(self, op: Operation, state: _State) -> _State:
        effects = op.get_effects()
        if "shared" not in effects.reads and "shared" not in effects.writes:
            return state
        is_new = ALLOCATES in op.traits
        if is_new and not op.operands:
            return state
        touched = _intervals(op) if is_new else self.intervals(op)
        reads = touched if "shared" in effects.reads else []
        writes = touched if "shared" in effects.writes else []
        is_copy = bool(effects.starts)
        is_ordered = is_copy and op.ordered
        pending = state.without(owner for *_, owner in touched) if is_ordered else state
        if any(value.type is T.TokenType(COPIES) for value in op.operands):
            pending = pending._replace(arrived=frozenset())
        is_unfenced = effects.starts == TENSORS and _overlap(state.unfenced, writes)
        if is_unfenced or pending.conflicts(reads, writes):
            state = self.barrier_before(op, state)
        state = state._replace(reads=state.reads.union(reads))
        return state if is_copy else self.written(state, writes)

    def arrival(self, op: Operation, state: _State) -> _State:
        """See Async."""
        named = self.copied_to.intersection(i for user in op.result.users for i in self.intervals(user))
        after = self.written(state, self.copied_to)
        if not named:
            return after
        return after._replace(writes=state.writes | named, arrived=state.arrived | (self.copied_to - named))

    def written(self, state: _State, writes: Iterable[Interval]) -> _State:
        """The state after threads stored to ``writes``."""
        through_proxy = [i for i in writes if _overlap(self.asynchronous, [i])]
        return state._replace(writes=state.writes.union(writes), unfenced=state.unfenced.union(through_proxy))

    def product(self, op: Operation, state: _State) -> _State:
        """Operands must have been written before a barrier, behind a fence."""
        reads = self.intervals(op)
        if _overlap(state.writes, reads) or _overlap(state.unfenced, reads):
            state = self.barrier_before(op, state)
        return state.started(reads)

    def departure(self, op: Operation, state: _State) -> _State:
        """The same for a copy to global memory."""
        reads = self.intervals(op)
        if _overlap(state.writes, reads) or _overlap(state.unfenced, reads):
            state = self.barrier_before(op, state)
        return state._replace(leaving=state.leaving.union(reads))

    def access_in_place(self, op: Operation, state: _State) -> _State:
        root = self.in_place[op]
        is_load = not op.get_effects().writes
        if root in (state.stored if is_load else state.loaded):
            state = self.barrier_before(op, state)
        roots = frozenset([root])
        return state.join(_State(loaded=roots) if is_load else _State(stored=roots))

    def barrier_before(self, op: Operation, state: _State, of_cluster: bool = False) -> _State:
        """Let all threads meet, having fenced what they wrote for asynchronous reads."""
        b = Builder.at(op)
        if state.unfenced:
            b.create(FenceAsync)
        b.create(Barrier, **({"of_cluster": True} if of_cluster else {}))
        self.changed = True
        return state.behind_barrier(of_cluster)._replace(unfenced=frozenset())


def _store_wait(self: _Inserter, op: Operation, state: _State) -> _State:
    copies = (copy for token in op.tokens for copy in copies_behind(token))
    done = state.leaving.intersection(i for copy in copies for i in self.intervals(copy))
    return state._replace(reads=state.reads | done, leaving=state.leaving - done)


Rule = Callable[[_Inserter, Operation, _State], _State]
_TRANSFER: dict[type[Operation], Rule] = {
    For: _Inserter.loop,
    While: _Inserter.loop,
    If: _Inserter.branch,
    Barrier: lambda self, op, state: state.behind_barrier(op.of_cluster),
    Partition: _Inserter.partition,
    FenceAsync: lambda self, op, state: state._replace(unfenced=frozenset()),
}
"""The state behind an operation that has a rule of its own."""

_READ_LATER: dict[str, Rule] = {PRODUCTS: _Inserter.product, STORES: _Inserter.departure}
"""The state behind what starts work of a queue that reads shared memory."""
_WAITED: dict[str, Rule] = {
    COPIES: _Inserter.arrival,
    PRODUCTS: lambda self, op, state: state.waited(op.pending),
    STORES: _store_wait,
}
"""The state behind a wait for a queue."""


def _rule_of_queue(op: Operation) -> Rule | None:
    """That of work which is done later, or was waited for; see Async, Products and Stores."""
    effects = op.effects
    if effects.finishes:
        return _WAITED.get(effects.finishes)
    return _READ_LATER.get(effects.reads_by)


def _intervals(alloc: LocalAlloc) -> list[Interval]:
    """One for each of several buffers: between them may lie those of another allocation."""
    type = alloc.result.type
    first, pitch = alloc.offset, alloc.pitch
    count = type.shape[0] if pitch else 1
    size = type.numel // count * type.element.bytes
    starts = [first + number * pitch for number in range(count)]
    return [(start, start + size, alloc) for start in starts]
