"""Accesses to global memory: how wide, how well coalesced, how often repeated, and why not better.

All of it follows from the layout of the pointers and from what is known of the addresses
(:mod:`~ptxforge.passes.analysis.axis_info`): nothing is run.
"""

from __future__ import annotations

import attrs

from ptxforge.ir.core import BlockArgument, Function, Operation
from ptxforge.ir.facts import AxisInfo
from ptxforge.layouts.encodings import Distributed, elements_per_thread
from ptxforge.layouts.linear import LANE, WARP
from ptxforge.layouts.vectors import register_run
from ptxforge.passes.analysis.access_reasons import changing_mask, unknown_start, why_narrow, widest_dimension
from ptxforge.passes.analysis.axis_info import AxisInfoAnalysis
from ptxforge.passes.analysis.roots import root_of
from ptxforge.passes.properties import is_memory_access
from ptxforge.support import machine
from ptxforge.support.location import Location
from ptxforge.support.target import Target


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


def accesses_of(function: Function, target: Target) -> list[Access]:
    """The accesses of tensors of pointers, after their widths were decided."""
    facts = AxisInfoAnalysis(function)
    return [_access(op, facts) for op in function.walk() if is_memory_access(op)]


def _access(op: Operation, facts: AxisInfoAnalysis) -> Access:
    type = op.pointer.type
    size, vector = type.element.pointee.bytes, max(1, op.vector)
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
