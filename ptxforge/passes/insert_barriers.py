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
             it wrote itself, there is no such barrier, and its reads and writes join those pending.)
Async        An asynchronous copy has written when its group was waited for. Each ``async_wait`` therefore
             makes the writes of all copies pending, whatever barrier came between. A copy that its maker
             calls ``ordered`` needs no barrier for the sake of its own buffer, but does for that of others
             that lie in the same bytes.
In place     When several threads load the same element (a scalar, a tile smaller than the threads are many)
             and one of them then stores through the same parameter, a slower one might load what was stored:
             a write after a read in global memory. (Not across the border of an ``if``: threads could
             disagree on its condition if another program writes what they load.)
"""

from __future__ import annotations

from collections.abc import Iterable

from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Block, Function, Operation, Value
from ptxforge.ir.ops.atomic import AtomicCAS, AtomicRMW
from ptxforge.ir.ops.control import For, If, While
from ptxforge.ir.ops.memory import Barrier, Load, Store
from ptxforge.ir.ops.shared import AsyncCopyGlobalToLocal, AsyncWait, LocalAlloc
from ptxforge.passes.analysis.buffers import Buffers
from ptxforge.passes.analysis.roots import is_held_by_several_threads, root_of
from ptxforge.passes.analysis.scratch import is_warp_local, scratch_bytes
from ptxforge.support.target import Target

_WRITES = (Store, AtomicRMW, AtomicCAS)

Interval = tuple[int, int, Operation]
"""Bytes from … to (not included), and whose they are: an allocation, or the operation whose scratch it is."""


def insert_barriers(function: Function, target: Target) -> bool:
    """Insert ``barrier`` operations by the equations above. Offsets in shared memory must have been given."""
    in_place = _accesses_in_place(function)
    if not function.attributes.get("shared_bytes") and not in_place:
        return False
    inserter = _Inserter(function, in_place)
    inserter.block(function.body, _State())
    return inserter.changed


def _accesses_in_place(function: Function) -> dict[Operation, Value]:
    """The parameters of those accesses to global memory that may conflict: loads of one element by several
    threads, and all writes to what they load."""
    accesses = [op for op in function.walk() if isinstance(op, (Load, *_WRITES))]
    written = {root_of(op.pointer) for op in accesses if isinstance(op, _WRITES)} - {None}
    if not written:
        return {}
    roots = {op: root_of(op.pointer) for op in accesses}
    return {
        op: root
        for op, root in roots.items()
        if root in written and (isinstance(op, _WRITES) or is_held_by_several_threads(op.pointer.type))
    }


class _State:
    """Intervals that some thread may still be reading or writing, and parameters that it may still be loading
    from what another is to store to."""

    __slots__ = ("reads", "writes", "loaded")

    def __init__(
        self, reads: Iterable[Interval] = (), writes: Iterable[Interval] = (), loaded: Iterable[Value] = ()
    ):
        self.reads = frozenset(reads)
        self.writes = frozenset(writes)
        self.loaded = frozenset(loaded)

    def join(self, other: _State) -> _State:
        return _State(self.reads | other.reads, self.writes | other.writes, self.loaded | other.loaded)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _State) and (self.reads, self.writes, self.loaded) == (
            other.reads, other.writes, other.loaded)  # fmt: skip

    __hash__ = None

    def without(self, owners: Iterable[Operation]) -> _State:
        """What is pending besides accesses to the memory of ``owners``."""
        owners = set(owners)
        kept = [[i for i in pending if i[2] not in owners] for pending in (self.reads, self.writes)]
        return _State(*kept, self.loaded)

    def conflicts(self, reads: list[Interval], writes: list[Interval]) -> bool:
        return (
            _overlap(self.writes, reads) or _overlap(self.reads, writes) or _overlap(self.writes, writes)
        )


def _overlap(some: Iterable[Interval], others: list[Interval]) -> bool:
    return any(a[0] < b[1] and b[0] < a[1] for a in some for b in others)


class _Inserter:
    def __init__(self, function: Function, in_place: dict[Operation, Value]):
        self.num_warps = function.attributes["num_warps"]
        self.in_place = in_place
        self.buffers = Buffers(function)
        self.changed = False
        copies = [op for op in function.walk() if isinstance(op, AsyncCopyGlobalToLocal)]
        self.copied_to = frozenset(i for op in copies for i in self.intervals(op))

    def intervals(self, op: Operation) -> list[Interval]:
        return [interval for alloc in self.buffers.used_by(op) for interval in _intervals(alloc)]

    def block(self, block: Block, state: _State) -> _State:
        """The state after ``block`` when ``state`` holds before it."""
        for op in block.operations:
            state = self.op(op, state)
        return state

    def op(self, op: Operation, state: _State) -> _State:
        if isinstance(op, (For, While)):
            return self.loop(op, state)
        if isinstance(op, If):
            inside = _State(state.reads, state.writes)
            sides = self.block(op.then_block, inside).join(self.block(op.else_block, inside))
            return sides.join(_State(loaded=state.loaded))
        if isinstance(op, Barrier):
            return _State()
        if isinstance(op, AsyncWait):
            return _State(state.reads, state.writes | self.copied_to, state.loaded)
        if op in self.in_place:
            state = self.access_in_place(op, state)
        if scratch_bytes(op, self.num_warps):
            return self.scratch(op, state)
        return self.access(op, state)

    def loop(self, op: Operation, state: _State) -> _State:
        """The body may run never (``for``), or its first part once (``while``)."""
        while True:
            after = state
            left = state
            for region in op.regions:
                after = self.block(region.block, after)
                if isinstance(op, While) and region is op.regions[0]:
                    left = after
            following = state.join(after)
            if following == state:
                return left if isinstance(op, While) else following
            state = following

    def scratch(self, op: Operation, state: _State) -> _State:
        offset = op.attributes["scratch_offset"]
        own = (offset, offset + scratch_bytes(op, self.num_warps), op)
        if state.conflicts([], [own]):
            self.barrier_before(op)
            state = _State()
        if is_warp_local(op):
            return state.join(_State([own], [own]))
        return _State([own], [])

    def access(self, op: Operation, state: _State) -> _State:
        effects = op.get_effects()
        if "shared" not in effects.reads and "shared" not in effects.writes:
            return state
        touched = _intervals(op) if isinstance(op, LocalAlloc) else self.intervals(op)
        if isinstance(op, LocalAlloc) and op.value is None:
            return state
        reads = touched if "shared" in effects.reads else []
        writes = touched if "shared" in effects.writes else []
        is_copy = isinstance(op, AsyncCopyGlobalToLocal)
        pending = state.without(owner for *_, owner in touched) if is_copy and op.ordered else state
        if pending.conflicts(reads, writes):
            self.barrier_before(op)
            state = _State()
        writes = state.writes if is_copy else state.writes.union(writes)
        return _State(state.reads.union(reads), writes, state.loaded)

    def access_in_place(self, op: Operation, state: _State) -> _State:
        root = self.in_place[op]
        if isinstance(op, Load):
            return _State(state.reads, state.writes, state.loaded | {root})
        if root not in state.loaded:
            return state
        self.barrier_before(op)
        return _State()

    def barrier_before(self, op: Operation) -> None:
        Builder.at(op).create(Barrier)
        self.changed = True


def _intervals(alloc: LocalAlloc) -> list[Interval]:
    """One for each of several buffers: between them may lie those of another allocation."""
    type = alloc.result.type
    count = type.shape[0] if alloc.pitch else 1
    size = type.numel // count * type.element.bytes
    starts = (alloc.offset + number * alloc.pitch for number in range(count))
    return [(start, start + size, alloc) for start in starts]
