"""Shared memory: what lies where, while which operations run; and the bank conflicts that follow from
layouts."""

from __future__ import annotations

import attrs

from ptxforge.ir.core import Function, Operation
from ptxforge.ir.definition import ALLOCATES
from ptxforge.ir.ops.convert_layout import ConvertLayout
from ptxforge.layouts.conversion import SharedMemory
from ptxforge.passes.allocate_shared import requests_of
from ptxforge.support.location import Location

_BARRIER = "1 i64"
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
    return sum(1 for _ in function.walk())
