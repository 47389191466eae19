"""How many registers there are for a thread, and how many tensors take: one of them, what a loop holds, and
all where they take most.

A value lives from where it is made to its last use; to the end of a loop that uses it and does not make it;
what a loop carries lives as long as the loop. That counts every tensor for itself: an accumulator and the
result that takes its registers count once, since the one ends where the other begins. Pointers, constants and
tiles of indices do not count: the code generator keeps them as sums of a few registers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from functools import lru_cache
from itertools import accumulate

import attrs

from ptxforge.ir import types as T
from ptxforge.ir.ages import ages_at_waits
from ptxforge.ir.core import Block, BlockArgument, Function, Operation, Value
from ptxforge.ir.definition import ELEMENTWISE, FREE, PRODUCTS
from ptxforge.ir.ops.control import Loop
from ptxforge.ir.ops.dot import Dot, Product
from ptxforge.ir.ops.warpgroup import DotAsync, DotBegin
from ptxforge.ir.rewriter import constant_of
from ptxforge.layouts.encodings import DotOperand, elements_per_thread
from ptxforge.support import machine


def room(threads: int) -> int:
    """The registers that a thread can have where a multiprocessor holds so many."""
    return min(machine.MOST_REGISTERS, machine.REGISTERS_PER_MULTIPROCESSOR // threads)


def blocks_with(registers: int, threads: int) -> int:
    """How many blocks of so many threads a multiprocessor has the registers for, when each thread takes so
    many."""
    return machine.REGISTERS_PER_MULTIPROCESSOR // (registers * threads)


@attrs.frozen(slots=True)
class Holder:
    """A tensor that is live at the peak: its value and its 32-bit registers in each thread."""

    value: Value
    registers: int


def holders_at_the_peak(function: Function) -> list[Holder]:
    """The tensors that are live where they take most registers, the largest first."""
    return sorted(_at_the_peak(_lives(function)[1]), key=lambda holder: -holder.registers)


def held_in_front(function: Function, op: Operation, without: Collection[Value]) -> int:
    """The registers of the tensors that are live in ``op``'s block in front of it, where these are most;
    values in ``without`` do not count."""
    place, lives = _lives(function)
    first, last = place[op.parent.first], place[op]
    cut = [(max(start, first), min(end, last), holder) for start, end, holder in lives]
    held = _at_the_peak([one for one in cut if one[0] < one[1] and one[2].value not in without])
    return sum(holder.registers for holder in held)


Life = tuple[int, int, Holder]
"""Where a tensor is made, where it is not needed any more, and the tensor."""


def _lives(function: Function) -> tuple[dict[Operation, int], list[Life]]:
    """The places of all operations, and the lives of all tensors."""
    place = {op: at for at, op in enumerate(function.walk())}
    ends = {op: _last_place(op, place) for op in place}
    made = []
    for op in place:
        made += [(place[op] if not op.regions else ends[op], value) for value in op.results]
        for region in op.regions:
            made += [(place[op], value) for value in region.block.arguments]
    return place, [
        (start, max(_end(value, place, ends), start + 1), Holder(value, registers_of(value.type)))
        for start, value in made
        if isinstance(value.type, T.TensorType) and _is_data(value)
    ]


def _at_the_peak(tensors: list[Life]) -> list[Holder]:
    peak = _peak(tensors)
    return [holder for start, end, holder in tensors if start <= peak < end]


def _peak(tensors: list[Life]) -> int:
    """The first place where most registers are live, of tensors by where they are made and not needed any
    more; -1 where there is none."""
    changes: Counter[int] = Counter()
    for start, end, holder in tensors:
        changes[start] += holder.registers
        changes[end] -= holder.registers
    places = sorted(changes)
    live = list(accumulate(changes[place] for place in places))
    return places[live.index(max(live))] if places else -1


def streams_much(function: Function) -> bool:
    """Whether no element of what tensors hold meets another one, or is carried by a loop, so that a thread
    can take one after the other from load to store; and all of them at once would take more registers than
    half of the threads that a multiprocessor has room for can have."""
    most = room(machine.WARPS_PER_MULTIPROCESSOR * machine.WARP_SIZE // 2)
    tensors = [v for op in function.walk() for v in op.results if isinstance(v.type, T.TensorType)]
    if sum(registers_of(v.type) for v in tensors if _is_data(v)) <= most:
        return False  # not even if all of them were live at once
    if not _streams(function):
        return False
    return sum(holder.registers for holder in holders_at_the_peak(function)) > most


def _streams(function: Function) -> bool:
    return not carried_by_loops(function) and all(
        ELEMENTWISE in op.traits or op.is_terminator
        for op in function.walk()
        if any(isinstance(v.type, T.TensorType) and _is_data(v) for v in op.operands)
    )


def _is_data(value: Value) -> bool:
    """Whether a tensor is more than indices: floats that are computed, or integers that come from memory or
    products."""
    op = value.defining_op
    if op is not None and op.cost == FREE:
        return False
    element = value.type.element
    if isinstance(element, T.ScalarType) and element.is_float:
        return True
    return op is not None and (bool(op.get_effects().reads) or isinstance(op, Product))


@lru_cache(maxsize=4096)
def registers_of(type: T.TensorType) -> int:
    """32-bit registers of a thread that a tensor takes, one at least."""
    return max(1, elements_per_thread(type.layout, type.shape) * max(type.element.bits, 8) // 32)


def held_by_loop(loop: Operation) -> int:
    """The registers that a loop of products holds across these: carried tensors (but for fragments on their
    way), operands that it does not change, and products that it does not add to a carried tensor."""
    body = loop.regions[0].block
    dots = list(body.of(Dot))
    kept = {v for dot in dots for v in (dot.a, dot.b) if v.owner_block is not body}
    kept.update(dot.result for dot in dots if constant_of(dot.c) is not None)
    kept.update(v for v in body.arguments if not isinstance(T.layout_of(v.type), DotOperand))
    flights = [v.type.tensor for v in body.arguments if isinstance(v.type, T.FlightType)]
    tensors = [v.type for v in kept if isinstance(v.type, T.TensorType)]
    return sum(map(registers_of, [*tensors, *flights]))


def held_by_products(block: Block) -> int:
    """The registers that the products of a loop's ``block`` take where these are most, in an iteration that
    follows another: carried sums; a sum that begins in the iteration, from its start to the last 32-bit value
    that is computed from it; a left operand until its product is finished."""
    sums = [v.type.tensor for v in block.arguments if isinstance(v.type, T.FlightType)]
    starts = list(block.of(DotAsync))
    started = set(starts)
    lasting = {op.a for op in starts if isinstance(op.a.type, T.TensorType) and _is_lasting(op.a, block)}
    always = sum(map(registers_of, [*sums, *(v.type for v in lasting)]))
    if not starts:
        return always
    running = ages_at_waits(block.parent_op, PRODUCTS)
    place = {op: at for at, op in enumerate(block.operations)}
    begins = {op.result for op in block.of(DotBegin)}
    ends = {op: _last_wide_use(op.result, place) for op in starts if op.c in begins}
    most, flying = 0, []
    for op in [op for op in place if op in started or op.effects.finishes == PRODUCTS] * 2:
        if op not in started:
            flying = flying[max(len(flying) - running.get(op, 0), 0) :]
            continue
        flying.append(op)  # only here it may become more
        begun = [x.result.type.tensor for x, end in ends.items() if place[x] <= place[op] <= end]
        left = [x.a.type for x in flying if isinstance(x.a.type, T.TensorType) and x.a not in lasting]
        most = max(most, sum(map(registers_of, begun + left)))
    return always + most


def _is_lasting(value: Value, block: Block) -> bool:
    return isinstance(value, BlockArgument) or value.owner_block is not block


def _last_wide_use(flight: Value, place: dict[Operation, int]) -> int:
    """The place of the last operation that reads ``flight``, or 32-bit elements computed from it."""
    last, work, seen = -1, [flight], set()
    while work:
        for user in work.pop().users:
            if user in seen or user not in place:
                continue
            seen.add(user)
            last = max(last, place[user])
            wide = (v for v in user.results if isinstance(v.type, T.TensorType) and v.type.element.bits == 32)
            work += [v for v in wide if user.effects.finishes == PRODUCTS or ELEMENTWISE in user.traits]
    return last


def largest_tile(function: Function) -> int:
    """The registers of the largest tile of floats."""
    types = {value.type for op in function.walk() for value in op.results}
    tiles = [t for t in types if isinstance(t, T.TensorType) and t.element.is_float]
    return max(map(registers_of, tiles), default=0)


def carried_by_loops(function: Function) -> int:
    """The registers of the tensors that a loop carries, where these are most."""
    bodies = [region.block for loop in function.walk(Loop) for region in loop.regions]
    carried = [[v.type for v in body.arguments if isinstance(v.type, T.TensorType)] for body in bodies]
    return max((sum(map(registers_of, types)) for types in carried), default=0)


def _last_place(op: Operation, place: dict[Operation, int]) -> int:
    """The place of the last operation inside ``op``, its own without regions."""
    blocks = [region.block for region in op.regions if region.block.last is not None]
    return max((_last_place(block.last, place) for block in blocks), default=place[op])


def _end(value: Value, place: dict[Operation, int], ends: dict[Operation, int]) -> int:
    """The place up to which a value lives."""
    block = value.owner_block
    last = -1
    if isinstance(value, BlockArgument) and isinstance(block.parent_op, Loop):
        last = ends[block.parent_op]
    for user in value.users:
        at, here = place[user], user
        while here is not None and here.parent is not block:
            here = here.parent_op
            if isinstance(here, Loop):
                at = max(at, ends[here])
        last = max(last, at)
    return last
