"""Give every buffer and every operation's scratch a place in shared memory.

    %b = local_alloc %x : …                                        (before)
    %y = convert_layout %z : …

    %b = local_alloc %x {offset = 0} : …                           (after)
    %y = convert_layout %z {scratch_offset = 16384} : …            and on the function: shared_bytes = 20480

1. LIFETIMES    Operations are numbered in textual order. A buffer lives from its allocation to the last use
                of any view of it; a use inside a loop that does not contain the allocation keeps it until the
                loop's end, and a buffer that a loop carries lives through all of it. Scratch lives during its
                operation only, mbarriers for ever.
2. SMALL        Scratch of a few bytes (a reduction's) shares with nothing as long as there is plenty: sharing
                would cost a barrier between two such operations.
3. INTERLEAVED  Tiles with equally many buffers that live together (the operands of a pipelined loop) are one
                request, buffer 0 of each, then buffer 1 of each, …: all have one ``pitch``, and one offset
                finds buffer ``i`` of each.
4. PARTS        A conversion that passes in parts gets memory for each of them when the function needs no more
                for it than it needs anyway, or is alone on its multiprocessor anyway: no thread then has to
                wait before the next part for those that still read the last one.
5. PLACES       Biggest first, every request takes the lowest place that overlaps no request which lives at
                the same time (greedy colouring of the interference graph).
"""

from __future__ import annotations

import attrs

from ptxforge.ir import types as T
from ptxforge.ir.core import Block, Function, Operation, Value
from ptxforge.ir.definition import ALLOCATES, SAME_MEMORY, TENSORS
from ptxforge.ir.ops.control import For, Loop
from ptxforge.ir.ops.partition import users_of
from ptxforge.ir.ops.shared import LocalAlloc
from ptxforge.ir.warps import scratch_of, warps_around
from ptxforge.layouts.panels import Panels
from ptxforge.support import machine
from ptxforge.support.errors import OutOfResourcesError
from ptxforge.support.target import Target
from ptxforge.support.worklist import each_once

EVER = 1 << 60


@attrs.define(slots=True, eq=False)
class Request:
    """``size`` bytes for ``op`` while operations ``first`` … ``last`` (numbers) run; ``offset`` is the
    answer. Further allocations are ``interleaved`` with ``op``."""

    op: Operation
    size: int
    alignment: int
    first: int
    last: int
    offset: int = -1
    interleaved: list[LocalAlloc] = attrs.Factory(list)

    def lives_with(self, other: Request) -> bool:
        return self.first <= other.last and other.first <= self.last

    @property
    def end(self) -> int:
        return self.offset + self.size


def allocate_shared(function: Function, target: Target) -> bool:
    """Set ``offset`` / ``scratch_offset`` on what needs shared memory and ``shared_bytes`` on the function.

    Raises:
        OutOfResourcesError: when it is more than a block of ``target`` can have; lists what takes how much.
    """
    requests = _interleave(_requests(function))
    total = _place_all(requests, target)
    if total > target.max_shared_bytes:
        raise OutOfResourcesError(
            "shared memory", total, target.max_shared_bytes, _users(requests),
            hint=_hint(function),
        )  # fmt: skip
    _spread_parts(requests, total, target)
    total = max((request.end for request in requests), default=0)
    for request in requests:
        if ALLOCATES in request.op.traits:
            _set_offsets(request)
        else:
            request.op.attributes["scratch_offset"] = request.offset
    function.attributes["shared_bytes"] = total
    return True


def _interleave(requests: list[Request]) -> list[Request]:
    """Make one of the requests for tiles that INTERLEAVED speaks of."""
    kept: list[Request] = []
    for request in requests:
        partner = next((k for k in kept if _may_interleave(k, request, requests)), None)
        if partner is None:
            kept.append(request)
            continue
        partner.interleaved.append(request.op)
        partner.size += request.size
        partner.alignment = max(partner.alignment, request.alignment)
        partner.first, partner.last = min(partner.first, request.first), max(partner.last, request.last)
    return kept


def _may_interleave(one: Request, other: Request, requests: list[Request]) -> bool:
    """Whether two requests that live together are for equally many buffers,
    and nothing else could use the memory of only one of them."""
    if not one.lives_with(other):
        return False
    counts = [_buffers(r.op) for r in (one, other)]
    alignment = max(one.alignment, other.alignment)
    is_strict = alignment > machine.BUFFER_ALIGNMENT or any(_holds_plain_boxes(r.op) for r in (one, other))
    if is_strict and any(r.size // _buffers(r.op) % alignment for r in (one, other)):
        return False
    others = (r for r in requests if r is not one and r is not other and r.op not in one.interleaved)
    return counts[0] == counts[1] > 1 and all(one.lives_with(r) == other.lives_with(r) for r in others)


def _holds_plain_boxes(op: Operation) -> bool:
    """Whether TMA copies vectors, or other boxes without a swizzle, to an allocation: each must begin at a
    multiple of the alignment. Mbarriers in whose phases such boxes come lie as these do."""
    if ALLOCATES not in op.traits:
        return False
    users = [user for user in users_of(op.result) if user.effects.starts == TENSORS]
    completing = [copy for user in users for phase in user.results for copy in phase.users]
    return any(
        copy.effects.fills == TENSORS and not isinstance(copy.destination.type.layout, Panels)
        for copy in (*users, *completing)
    )


def _buffers(op: Operation) -> int:
    """How many buffers an allocation has."""
    if ALLOCATES not in op.traits or op.result.type.rank != op.result.type.layout.rank + 1:
        return 1
    return op.result.type.shape[0]


def _pitch(op: LocalAlloc) -> int:
    """From one buffer of an allocation to the next, in bytes, when no others lie between."""
    return op.pitch or op.result.type.bytes // _buffers(op)


def _hint(function: Function) -> str:
    fewer = "smaller blocks or a smaller num_stages need less"
    loops = function.walk(For)
    is_flattened = any(loop.flatten and not _is_fed_by_tma(loop) for loop in loops)
    return f"{fewer}, and so does a loop without flatten" if is_flattened else fewer


def _is_fed_by_tma(loop: For) -> bool:
    """Whether a flattened loop is one only because there was room: see ``flatten_loops``."""
    return any(op.effects.fills == TENSORS for op in loop.body.walk())


def _set_offsets(request: Request) -> None:
    allocations = [request.op, *request.interleaved]
    count, offset = _buffers(request.op), request.offset
    for op in allocations:
        op.attributes["offset"] = offset
        offset += _pitch(op)
        if request.interleaved:
            op.attributes["pitch"] = request.size // count


def _place_all(requests: list[Request], target: Target) -> int:
    """Place the requests, small scratch apart from everything else if that fits."""
    small = [
        r for r in requests if r.alignment == machine.SCRATCH_ALIGNMENT and r.size <= machine.SMALL_SCRATCH
    ]
    if sum(r.size for r in small) <= machine.ALL_SMALL_SCRATCH:
        lifetimes = [(r.first, r.last) for r in small]
        for request in small:
            request.first, request.last = 0, EVER
        total = place(requests)
        if total <= target.max_shared_bytes:
            return total
        for request, lifetime in zip(small, lifetimes):
            request.first, request.last = lifetime
    return place(requests)


def _spread_parts(requests: list[Request], total: int, target: Target) -> None:
    """Give conversions memory for all of their PARTS where as many blocks have room as with ``total``."""
    most = target.shared_bytes_for_as_many_blocks(total)
    for request in requests:
        op = request.op
        parts = op.scratch_parts
        if parts == 1 or request.size * parts > most:
            continue
        size = request.size
        op.attributes["scratch_pitch"], request.size = size // warps_around(op).groups, size * parts
        if _place_all(requests, target) > most:
            request.size = size
            op.attributes.pop("scratch_pitch")
            _place_all(requests, target)


def place(requests: list[Request]) -> int:
    """Give every request its offset; returns the bytes needed in all."""
    placed: list[Request] = []
    for request in sorted(requests, key=lambda r: (-r.size, r.first)):
        neighbours = sorted((p for p in placed if p.lives_with(request)), key=lambda p: p.offset)
        offset = 0
        for neighbour in neighbours:
            if offset + request.size <= neighbour.offset:
                break
            offset = max(offset, _aligned(neighbour.end, request.alignment))
        request.offset = offset
        placed.append(request)
    return max((r.end for r in placed), default=0)


def _aligned(offset: int, alignment: int) -> int:
    return (offset + alignment - 1) // alignment * alignment


def _requests(function: Function) -> list[Request]:
    needed: list[tuple[Operation, int]] = []
    for op in function.walk():
        size = _buffers(op) * _pitch(op) if ALLOCATES in op.traits else scratch_of(op)
        if size:
            needed.append((op, size))
    if not needed:
        return []
    numbers = _number(function)
    requests = []
    for op, size in needed:
        if ALLOCATES in op.traits:
            type = op.result.type
            lifetime = (0, EVER) if type.element in T.OPAQUE else _lifetime(op, numbers)
            requests.append(Request(op, size, type.layout.alignment, *lifetime))
        else:
            lifetime = (0, EVER) if warps_around(op).groups > 1 else (numbers[op][0],) * 2
            requests.append(Request(op, size, machine.SCRATCH_ALIGNMENT, *lifetime))
    return requests


Numbers = dict[Operation, tuple[int, int]]


def _number(function: Function) -> Numbers:
    """For every operation its number and that of the last operation inside it."""
    numbers: Numbers = {}
    counter = 0

    def visit(block: Block) -> None:
        nonlocal counter
        for op in block.operations:
            first = counter
            counter += 1
            for region in op.regions:
                visit(region.block)
            numbers[op] = first, counter - 1

    visit(function.body)
    return numbers


def _lifetime(alloc: LocalAlloc, numbers: Numbers) -> tuple[int, int]:
    first, last = numbers[alloc]
    work = [alloc.result]
    for value in each_once(work):
        for user, index in value.uses:
            start, end = _span(alloc, user, numbers)
            first, last = min(first, start), max(last, end)
            work += _passed_on(user, index)
    return first, last


def _span(alloc: LocalAlloc, user: Operation, numbers: Numbers) -> tuple[int, int]:
    """From when to when the use needs the buffer: as seen in the innermost block that contains both."""
    place: Operation = alloc
    while (seen := place.parent.ancestor_of(user)) is None:
        place = place.parent_op
    if user.is_terminator and isinstance(user.parent_op, Loop):
        loop = user.parent_op
        seen = place.parent.ancestor_of(loop) or loop
    first = numbers[alloc][0] if place is alloc else min(numbers[place][0], numbers[seen][0])
    return first, numbers[seen][1]


def _passed_on(user: Operation, index: int) -> list[Value]:
    """The values that stand for operand ``index`` of ``user`` from then on."""
    if SAME_MEMORY in user.traits or user.effects.reads_by:
        return [user.result]  # a product or a copy under way reads until it was waited for
    target = user.passes_to(index)
    if target is None:
        return []
    parent = target.op
    return parent.carried_names(target.index) if isinstance(parent, Loop) else [target]


def _users(requests: list[Request]) -> str:
    """Who takes how much, the biggest first, with source lines."""
    needs: list[tuple[int, Operation, object]] = []
    for request in requests:
        if ALLOCATES in request.op.traits:
            tiles = [(op, op.result.type) for op in (request.op, *request.interleaved)]
            needs += [(type.bytes, op, type) for op, type in tiles]
        else:
            needs.append((request.size, request.op, "scratch"))
    lines = []
    for size, op, what in sorted(needs, key=lambda need: -need[0]):
        where = f" at {op.location}" if op.location is not None else ""
        lines.append(f"  {size:>8} bytes: {op.name} ({what}){where}")
    return "\n".join(lines)


def requests_of(function: Function) -> list[Request]:
    """What an allocated function has in shared memory, each with its place and lifetime; for reports."""
    requests = _requests(function)
    for request in requests:
        name = "offset" if ALLOCATES in request.op.traits else "scratch_offset"
        request.offset = request.op.attributes[name]
        if ALLOCATES in request.op.traits:
            request.size = request.op.result.type.bytes  # without what others have of its pitch
    return requests
