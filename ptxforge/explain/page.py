"""One HTML page of a report, which needs no other file and no network.

The page is data, a style sheet and a script (``page.css`` and ``page.js`` beside this file). A line of text
is ``[text, keys]``; the keys number places in the source, so that lines of source, IR, PTX and machine code
that belong together have a key in common. ``page.html#L12`` opens with source line 12 lit up.
Drawn are layouts from their bases, shared memory over time, and the schedule of pipelined loops.
"""

from __future__ import annotations

import ast
import html
import json
import linecache
from collections.abc import Iterable
from math import prod
from pathlib import Path
from typing import Any

from ptxforge import __version__
from ptxforge.explain.memory import areas_of, size_of
from ptxforge.explain.report import Report
from ptxforge.explain.resources import machine_code
from ptxforge.explain.trace import Line, Place
from ptxforge.ir import types as T
from ptxforge.ir.core import BlockArgument, Function, Operation
from ptxforge.ir.definition import SAME_MEMORY
from ptxforge.ir.ops.control import For
from ptxforge.ir.ops.dot import Product
from ptxforge.layouts.encodings import Distributed, Encoding
from ptxforge.layouts.linear import LANE, OFFSET, REGISTER, WARP
from ptxforge.layouts.show import has_picture
from ptxforge.passes.analysis.roots import root_of
from ptxforge.passes.properties import is_memory_access, values_of

HERE = Path(__file__).parent
LANGUAGE = HERE.parent / "language"
"""Where functions of the language itself stand: what is inlined from there is not the user's source."""

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
{style}
</style>
</head>
<body>
<script type="application/json" id="data">{data}</script>
<script>
{script}
</script>
</body>
</html>
"""


def page(report: Report) -> str:
    """The page of ``report``."""
    made = report.trace.artifact
    data = json.dumps(_data(report), separators=(",", ":"), ensure_ascii=False)
    return PAGE.format(
        title=html.escape(f"{made.name} for {made.target}"),
        style=(HERE / "page.css").read_text(encoding="utf-8"),
        script=(HERE / "page.js").read_text(encoding="utf-8"),
        data=data.replace("<", "\\u003c"),  # no text of a kernel ends the script
    )


class _Keys:
    """Numbers for places of the user's source."""

    def __init__(self) -> None:
        self.numbers: dict[Place, int] = {}

    def of(self, places: Iterable[Place]) -> list[int]:
        mine = [place for place in places if not Path(place[0]).is_relative_to(LANGUAGE)]
        return [self.numbers.setdefault(place, len(self.numbers)) for place in dict.fromkeys(mine)]

    def lines(self, lines: Iterable[Line]) -> list[list[Any]]:
        """Texts with their keys."""
        return [[line.text, self.of(line.places)] for line in lines]


def _data(report: Report) -> dict[str, Any]:
    trace, keys = report.trace, _Keys()
    stages, previous = [], None
    for stage in trace.stages:
        lines = keys.lines(stage.lines) if stage.lines is not previous else None  # null: as before
        previous = stage.lines
        stages.append({"name": stage.name, "stage": stage.stage, "why": stage.why, "lines": lines})
    code = machine_code(trace.artifact)
    ptx, sass = keys.lines(trace.ptx), keys.lines(code) if code is not None else None
    return {
        "version": __version__,
        "kernel": trace.artifact.name,
        "facts": _facts(report),
        "stages": stages,
        "ptx": ptx,
        "sass": sass,
        "sources": _sources(keys.numbers, trace.kernel.fn.__code__.co_filename),
        "advice": [_advice(advice, keys) for advice in report.advice],
        "findings": _findings(report, keys),
        "counters": _counters(report, keys),
        "layouts": layouts_of(trace.function),
        "shared": shared_map(trace.function),
        "schedules": schedules_of(trace.function),
        "report": str(report),
        "line_keys": _line_keys(keys.numbers, trace.kernel.fn.__code__.co_filename),
    }


def _facts(report: Report) -> list[list[str]]:
    """What stands at the top: name and value."""
    made, used, fit = report.trace.artifact, report.resources, report.occupancy
    facts = [
        ["target", made.target], ["warps", str(made.num_warps)], ["stages", str(made.num_stages)],
        ["registers", f"{used.registers} ({used.by})"],
        ["spills", f"{used.spilled} bytes" if used.by == "ptxas" else "unknown"],
        ["shared memory", f"{made.shared_bytes} bytes"],
        ["occupancy", f"{fit.warps}/{fit.most} warps, limited by {fit.limiter}"],
    ]  # fmt: skip
    if report.roofline is not None and report.roofline.bounds:
        estimate = report.roofline
        facts.append(
            ["at least", f"{estimate.seconds * 1e6:.3f} us ({estimate.limiter}, {estimate.card.name})"]
        )
    return facts


def _sources(numbers: dict[Place, int], main: str) -> list[dict[str, Any]]:
    """The functions that the places are in: the kernel's file first."""
    by_file: dict[str, set[int]] = {}
    for file, line in numbers:
        by_file.setdefault(file, set()).add(line)
    found = []
    for file in sorted(by_file, key=lambda file: (file != main, file)):
        text = linecache.getlines(file)
        for first, last in _functions(text, by_file[file]):
            lines = [
                [text[row - 1].rstrip("\n"), [numbers[file, row]] if (file, row) in numbers else [], row]
                for row in range(first, last + 1)
            ]
            found.append({"file": Path(file).name, "lines": lines})
    return found


def _functions(text: list[str], rows: set[int]) -> list[tuple[int, int]]:
    """(first, last row) of the functions that hold the rows, decorators included."""
    found = []
    for node in ast.parse("".join(text)).body if text else ():
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if any(first <= row <= node.end_lineno for row in rows):
                found.append((first, node.end_lineno))
    covered = {row for first, last in found for row in range(first, last + 1)}
    rest = sorted(row for row in rows - covered if row <= len(text))
    return sorted([*found, *((row, row) for row in rest)])


def _line_keys(numbers: dict[Place, int], main: str) -> dict[str, int]:
    """Keys of the lines of the kernel's own file, for addresses of lines and for pictures."""
    return {str(line): number for (file, line), number in numbers.items() if file == main}


def _advice(advice: Any, keys: _Keys) -> dict[str, Any]:
    where = advice.location
    return {
        "severity": advice.severity, "kind": advice.kind, "what": advice.what, "cure": advice.cure,
        "line": where.line if where else None, "keys": keys.of([(where.file, where.line)]) if where else [],
    }  # fmt: skip


def _findings(report: Report, keys: _Keys) -> list[dict[str, Any]]:
    if report.counts is None:
        return []
    return [
        {
            "severity": "error", "kind": finding.kind, "what": finding.message,
            "cure": f"block {finding.cta}, thread {finding.thread}",
            "line": finding.source.line if finding.source else None,
            "keys": keys.of([(finding.source.file, finding.source.line)]) if finding.source else [],
        }
        for finding in report.counts.findings
    ]  # fmt: skip


def _counters(report: Report, keys: _Keys) -> dict[str, dict[str, Any]]:
    """What was counted, by key."""
    if report.counts is None:
        return {}
    rows = [row for row in report.counts.report.by_source if row.source is not None]
    return {
        str(number): {
            "instructions": row.instructions,
            "sectors": round(row.sectors_per_request, 1) if row.global_requests else None,
            "bytes": row.global_bytes,
            "conflicts": row.bank_conflicts if row.shared_requests else None,
            "divergent": row.divergent,
        }
        for row in rows
        for number in keys.of([(row.source.file, row.source.line)])
    }


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
        if op.get_effects().fills:
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
        view = value.defining_op
        if view is None or SAME_MEMORY not in view.traits or not isinstance(value.type, T.MemDescType):
            continue
        whole = view.operands[0].type.shape
        if len(whole) > len(value.type.shape):
            return whole[0]
    return 1


def _is_event(op: Operation) -> bool:
    """Whether it computes a product, touches memory, has to do with asynchronous work, or is there for its
    effect alone."""
    effects = op.get_effects()
    touches = effects.touches("global") or effects.touches("shared")
    return isinstance(op, Product) or touches or bool(effects.queue) or (effects.other and not op.results)


def _event(op: Operation) -> dict[str, Any]:
    waits = op.attributes.get("num")
    return {"name": f"{op.name} {waits}" if waits is not None else op.name, "line": _line(op)}


def _line(op: Operation) -> int | None:
    return op.location.line if op.location else None
