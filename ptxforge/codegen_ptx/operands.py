"""When the deferred parts of a dot's operands, and other deferred work, are done between its instructions.

A part of the dot's own operands comes a few instructions before the first one that needs it: its latency is
hidden and few registers are live. Then come the fragments of the next dot, one before each instruction from
the first on; then asynchronous copies, spread evenly over what is left. (For f16 on an H200, all loads in
front of the instructions cost 4 %, all copies in one place 3 %.)

Copies that several dots of tensor cores in a row can take are dealt out evenly if they are few, up to 3 for
32 instructions: 12 copies for 4 dots are 3 each (5, 5, 2, 0 keep the tensor pipe busy for .858 of the time,
not .8605, NN 8192³). Otherwise the first dots take 5 each, and the last, which starts behind a barrier, what
remains: 16 copies are 5, 5, 5, 1 (4, 4, 4, 4: .853, not .858, two blocks a multiprocessor).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ptxforge.codegen_ptx.lowering import Deferred, Lowering, may_be_passed
from ptxforge.ir.core import Value
from ptxforge.ir.ops.dot import Dot
from ptxforge.ir.ops.shared import AsyncCopyGlobalToLocal
from ptxforge.layouts.encodings import Mma, elements_per_thread
from ptxforge.support import machine

Timetable = dict[int, list[Deferred]]
"""What is done before which instruction."""


def timetable(
    ctx: Lowering, dot: Dot, own: Sequence[tuple[Value, Sequence[Iterable[int]]]], count: int, ahead: int
) -> Timetable:
    """The plan for a dot of ``count`` instructions.

    ``own`` pairs each operand with the registers that each instruction needs of it; ``ahead`` says how many
    instructions before its first use a part is done. All deferred work is taken from the queue, but for
    copies that the next dot can take.
    """
    places: Timetable = {}
    for value, needs in own:
        parts = ctx.take(value)
        if not parts:
            ctx.get(value)
            continue
        first: dict[int, int] = {}
        for index, registers in enumerate(needs):
            for register in registers:
                first.setdefault(register, index)
        for work in parts:
            use = min((first[r] for r in work.registers if r in first), default=0)
            places.setdefault(max(0, use - ahead), []).append(work)
    _spread(ctx, places, count, _share(dot, count) if _another_follows(dot) else len(ctx.deferred))
    return places


def _another_follows(dot: Dot) -> bool:
    """Whether one more dot comes before anything for which deferred work must be done."""
    here = dot.next
    while here is not None and may_be_passed(here.get_effects()) and not here.regions:
        if isinstance(here, Dot):
            return True
        here = here.next
    return False


def _share(dot: Dot, count: int) -> int:
    """How many of the block's copies a dot takes that is not the last one."""
    dots, copies = 0, 0
    for op in dot.parent.operations:
        if isinstance(op, Dot):
            dots += 1
        elif isinstance(op, AsyncCopyGlobalToLocal):
            type = op.pointer.type
            copies += elements_per_thread(type.layout, type.shape) // max(1, op.vector)
    evenly = copies // dots
    is_few = isinstance(dot.result.type.layout, Mma) and evenly <= count // machine.PRODUCTS_PER_COPY_EVEN
    return max(1, evenly if is_few else count // machine.PRODUCTS_PER_COPY_EARLY)


def _spread(ctx: Lowering, places: Timetable, count: int, most_copies: int) -> None:
    """Put the remaining queue between the instructions: loads first, then ``most_copies`` copies (or commits)
    at most."""
    later = [work for work in ctx.deferred if work.value is None][most_copies:]
    for work in later:
        ctx.deferred.remove(work)
    loads = sum(work.value is not None for work in ctx.deferred)
    copies = len(ctx.deferred) - loads
    per_place = -(-loads // count)
    spacing = max(1, (count - min(loads, count)) // (copies + 1))
    position, here = 0, 0
    for work in sorted(ctx.deferred, key=lambda work: work.value is None):
        places.setdefault(min(position, count - 1), []).append(work)
        here += 1
        if work.value is None:
            position, here = position + spacing, 0
        elif here >= per_place:
            position, here = position + 1, 0
    ctx.deferred.clear()
    ctx.deferred.extend(later)


def entries_of(ctx: Lowering, value: Value) -> list:
    """The entries of an operand, which the timetable may still have to fill in."""
    return ctx.partial[value] if value in ctx.partial else ctx.get(value)
