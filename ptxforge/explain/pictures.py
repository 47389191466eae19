"""What a page draws: layouts as their bases, shared memory over time, the schedule of pipelined loops."""

from __future__ import annotations

from math import prod
from typing import Any

from ptxforge.explain.memory import areas_of, size_of
from ptxforge.explain.trace import COPIES
from ptxforge.ir import types as T
from ptxforge.ir.core import BlockArgument, Function, Operation
from ptxforge.ir.ops.control import For
from ptxforge.ir.ops.dot import Product
from ptxforge.layouts.encodings import Distributed, Encoding
from ptxforge.layouts.linear import LANE, OFFSET, REGISTER, WARP
from ptxforge.layouts.show import has_picture
from ptxforge.passes.analysis.roots import root_of
from ptxforge.passes.properties import is_memory_access, values_of

STEPS = 6
"""Steps of a loop that its timeline shows, after those in front of it."""
NAMES = 12
"""Values that a picture of a layout names."""


def layouts_of(function: Function) -> list[dict[str, Any]]:
    """The layouts of a function's values that have a picture, the largest first: text, shape, values, and the
    bases: for each input bit the flat index (row-major) of the element that it moves to."""
    found: dict[tuple[Encoding, tuple[int, ...]], dict[str, Any]] = {}
    for value in values_of(function):
        layout, shape, element = _layout(value.type)
        if layout is None or not has_picture(layout, shape):
            continue
        if (layout, shape) not in found:
            found[layout, shape] = {
                "text": str(layout), "shape": shape, "bytes": element.bytes, "values": [],
                **_bases(layout, shape),
            }  # fmt: skip
        named = found[layout, shape]["values"]
        if value.hint and value.hint not in named and len(named) < NAMES:
            named.append(value.hint)
    return sorted(found.values(), key=lambda picture: -prod(picture["shape"]))


def _layout(type: T.Type) -> tuple[Encoding | None, tuple[int, ...], Any]:
    """(layout, shape of what it lays out, element type); no layout for scalars."""
    layout = T.layout_of(type) if isinstance(type, (T.TensorType, T.MemDescType)) else None
    if layout is None:
        return None, (), None
    element = type.element.pointee if isinstance(type.element, T.PointerType) else type.element
    return layout, tuple(type.shape[-layout.rank :]), element


def _bases(layout: Encoding, shape: tuple[int, ...]) -> dict[str, Any]:
    linear = layout.linear(shape)
    if isinstance(layout, Distributed):
        return {"kind": "threads", "register": linear.columns_of(REGISTER), "lane": linear.columns_of(LANE),
                "warp": linear.columns_of(WARP)}  # fmt: skip
    return {"kind": "memory", "offset": linear.columns_of(OFFSET)}


def shared_map(function: Function) -> dict[str, Any]:
    """The areas of shared memory, and how many operations the time axis has."""
    areas = [
        {
            "what": area.what, "offset": area.offset, "size": area.size, "first": area.first,
            "last": area.last, "line": area.location.line if area.location else None,
        }
        for area in areas_of(function)
    ]  # fmt: skip
    total = function.attributes.get("shared_bytes", 0)
    return {"areas": areas, "bytes": total, "operations": size_of(function)}


def schedules_of(function: Function) -> list[dict[str, Any]]:
    """For each loop with copies that run ahead: who works on which step when.

    ``rows`` are (label, source line, steps ahead); ``order`` is what one step does, in the order of the code.
    """
    found = []
    for loop in function.walk(For):
        rows = _rows(loop)
        if any(row["ahead"] for row in rows):
            line = loop.location.line if loop.location else None
            order = [_event(op) for op in loop.body.walk() if _is_event(op)]
            found.append({"line": line, "steps": STEPS, "rows": rows, "order": order})
    return found


def _rows(loop: For) -> list[dict[str, Any]]:
    rows = []
    for op in loop.body.walk():
        if op.name in COPIES:
            rows.append(_row("copy", op, _buffers(op) - 1))
        elif is_memory_access(op) and not op.get_effects().is_atomic:
            rows.append(_row(op.name, op, 0))
        elif isinstance(op, Product):
            rows.append({"label": "dot", "line": _line(op), "ahead": 0})
    return [row for number, row in enumerate(rows) if row not in rows[:number]]


def _row(label: str, op: Operation, ahead: int) -> dict[str, Any]:
    root = root_of(op.operands[0])
    name = f" {root.name.removesuffix('_map')}" if isinstance(root, BlockArgument) else ""
    return {"label": f"{label}{name}", "line": _line(op), "ahead": ahead}


def _buffers(op: Operation) -> int:
    """How many buffers the tile has that a copy writes one of; 1 where it is not one of several."""
    for value in op.operands:
        index = value.defining_op
        if index is not None and index.name == "memdesc_index":
            return index.operands[0].type.shape[0]
    return 1


def _is_event(op: Operation) -> bool:
    return op.name.startswith((*COPIES, "async_", "dot", "barrier", "local_", "load", "store", "fence"))


def _event(op: Operation) -> dict[str, Any]:
    waits = op.attributes.get("num")
    return {"name": f"{op.name} {waits}" if waits is not None else op.name, "line": _line(op)}


def _line(op: Operation) -> int | None:
    return op.location.line if op.location else None
