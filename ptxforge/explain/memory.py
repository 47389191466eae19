"""What a kernel does with memory.

Accesses to global memory: how wide, how well coalesced, how often repeated, and why not better. It follows
from the layout of the pointers and from what is known of the addresses
(:mod:`~ptxforge.passes.analysis.axis_info`): nothing is run.

Shared memory: what lies where, while which operations run; and the bank conflicts that follow from
layouts.
"""

from __future__ import annotations

import attrs

from ptxforge.ir import types as T
from ptxforge.ir.core import BlockArgument, Function, Operation
from ptxforge.ir.definition import ALLOCATES
from ptxforge.ir.facts import AxisInfo
from ptxforge.ir.ops.convert_layout import ConvertLayout
from ptxforge.layouts.banks import register_run
from ptxforge.layouts.conversion import SharedMemory
from ptxforge.layouts.encodings import Distributed, elements_per_thread
from ptxforge.layouts.linear import LANE, WARP
from ptxforge.passes.allocate_shared import requests_of
from ptxforge.passes.analysis.axis_info import AxisInfoAnalysis
from ptxforge.passes.analysis.reasons import changing_mask, unknown_start, why_narrow, widest_dimension
from ptxforge.passes.analysis.roots import root_of
from ptxforge.passes.properties import memory_accesses
from ptxforge.support import machine
from ptxforge.support.location import Location


@attrs.frozen(slots=True)
class Access:
    """One load, store or atomic of the source.

    ``vector`` elements are moved by one instruction; ``guarded`` is how many are where the kernel finds at
    run time that it may (1: it does not ask). ``instructions`` is how many a thread executes. ``sectors``
    is an upper bound of the 32-byte sectors that a warp's instruction touches, ``best`` what the same bytes
    need at least. ``copies`` threads hold, and load, each element. ``why`` says what keeps the access
    narrow, ``cure`` what to do about it; empty where it is wide.
    """

    kind: str
    array: str
    location: Location | None
    element: str
    shape: tuple[int, ...]
    layout: Distributed
    vector: int
    guarded: int
    bytes: int
    instructions: int
    sectors: int
    best: int
    copies: int
    why: str
    cure: str


def accesses_of(function: Function) -> list[Access]:
    """The accesses of tensors of pointers, after their widths were decided."""
    facts = AxisInfoAnalysis(function)
    return [_access(op, facts) for op in memory_accesses(function)]


def _access(op: Operation, facts: AxisInfoAnalysis) -> Access:
    type = op.pointer.type
    size, vector = type.element.pointee.bytes, op.width
    guarded = op.guarded
    info = facts[op.pointer]
    if guarded > vector:  # the usual case is the one in which the kernel finds that it may be wide
        sectors, best = sectors_per_request(
            type.layout, type.shape, size, guarded, _as_hoped(info, type.shape)
        )
        why, cure = changing_mask(op, 0, 1, size) if op.aligned else unknown_start(guarded * size)
    else:
        sectors, best = sectors_per_request(type.layout, type.shape, size, vector, info)
        why, cure = why_narrow(op, facts, size, vector)
    root, effects = root_of(op.pointer), op.get_effects()
    return Access(
        kind="load" if not effects.writes else "atomic" if effects.is_atomic else "store",
        array=root.name if isinstance(root, BlockArgument) else "",
        location=op.location, element=str(type.element.pointee), shape=type.shape, layout=type.layout,
        vector=vector, guarded=guarded, bytes=vector * size,
        instructions=elements_per_thread(type.layout, type.shape) // vector,
        sectors=sectors, best=best, copies=replication(type.layout, type.shape), why=why, cure=cure,
    )  # fmt: skip


def sectors_per_request(
    layout: Distributed, shape: tuple[int, ...], size: int, vector: int, info: AxisInfo
) -> tuple[int, int]:
    """(at most, at least): sectors that the first instruction of a warp touches.

    What is known to be consecutive is laid out so; every other run of elements counts as memory of its own.
    ``size`` is an element's bytes.
    """
    linear = layout.linear(shape)
    dim = register_run(layout, shape)[0] if vector > 1 else widest_dimension(info)
    found: set[tuple] = set()
    elements: set[tuple[int, ...]] = set()
    for lane in range(machine.WARP_SIZE):
        at = linear.apply(register=0, lane=lane, warp=0, block=0)
        others = at[:dim] + at[dim + 1 :]
        for step in range(vector):
            index = at[dim] + step
            run, within = divmod(index, info.contiguity[dim])
            if info.contiguity[dim] == 1:
                run, within = index // info.constancy[dim], 0
            elements.add((others, index))
            found.add((others, run, within * size // machine.SECTOR_BYTES))
    return len(found), max(1, -(-len(elements) * size // machine.SECTOR_BYTES))


def _as_hoped(info: AxisInfo, shape: tuple[int, ...]) -> AxisInfo:
    """A guarded access: rows are consecutive, though it is not known where in a vector they begin."""
    return AxisInfo((*info.contiguity[:-1], shape[-1]), info.divisibility, info.constancy)


def replication(layout: Distributed, shape: tuple[int, ...]) -> int:
    """How many threads hold each element of a tensor."""
    free = layout.linear(shape).free_variables()
    return 1 << (free.get(LANE, 0).bit_count() + free.get(WARP, 0).bit_count())


_BARRIER = f"1 {T.MBARRIER}"
"""The tile that an mbarrier is."""


@attrs.frozen(slots=True)
class Area:
    """``size`` bytes from ``offset`` on, in use while operations number ``first`` to ``last`` run (in the
    order of the text). ``what`` says for what."""

    what: str
    location: Location | None
    offset: int
    size: int
    first: int
    last: int


@attrs.frozen(slots=True)
class Conflict:
    """A conversion through shared memory whose busiest bank delivers ``store`` (``load``) words one after the
    other."""

    location: Location | None
    store: int
    load: int


def areas_of(function: Function) -> list[Area]:
    """Every buffer and scratch area, by offset. Tiles with several buffers are one area for each."""
    found, end = [], size_of(function) - 1
    for request in requests_of(function):
        op, pitch, count = request.op, request.op.attributes.get("pitch", 0), 1
        if ALLOCATES in op.traits and op.result.type.rank > op.result.type.layout.rank:
            count = op.result.type.shape[0]
        size = request.size // count
        for number in range(count):
            offset = request.offset + number * (pitch or size)
            what = f"{_what(op)}, buffer {number}" if count > 1 else _what(op)
            found.append(Area(what, op.location, offset, size, request.first, min(request.last, end)))
    found.sort(key=lambda area: (area.offset, area.first))
    return _with_barriers_together(found)


def _with_barriers_together(areas: list[Area]) -> list[Area]:
    """Mbarriers that lie side by side as one area: there are many, of eight bytes each."""
    kept: list[Area] = []
    for area in areas:
        before = kept[-1] if kept else None
        if area.what.startswith(_BARRIER):
            area = attrs.evolve(area, what="mbarriers")
            if before and before.what == area.what and before.offset + before.size == area.offset:
                first, last = min(before.first, area.first), max(before.last, area.last)
                kept[-1] = attrs.evolve(before, size=before.size + area.size, first=first, last=last)
                continue
        kept.append(area)
    return kept


def _what(op: Operation) -> str:
    if ALLOCATES in op.traits:
        type = op.result.type
        shape = type.shape[-type.layout.rank :]
        return f"{'x'.join(map(str, shape))} {type.element}"
    return f"scratch of {op.name}"


def conflicts_of(function: Function) -> list[Conflict]:
    """Conversions of layouts with bank conflicts."""
    found = []
    for op in function.walk(ConvertLayout):
        plan = op.plan
        if isinstance(plan, SharedMemory) and max(plan.store.degree, plan.load.degree) > 1:
            found.append(Conflict(op.location, plan.store.degree, plan.load.degree))
    return found


def size_of(function: Function) -> int:
    """Operations of a function, those inside of loops and branches included: the length of the time axis."""
    return len(function.walk())
