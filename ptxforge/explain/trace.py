"""Compiling with open eyes: the IR after every pass, each line of it with the source lines it came from.

Facts that only hold at one point of the pipeline (how wide accesses are and why, which loops have loads that
could run ahead, and why the rest could not) are collected there: after the pass that decides widths.
"""

from __future__ import annotations

import re
from typing import Any

import attrs

from ptxforge.compiler import Artifact, build_ir
from ptxforge.explain.memory import Access, accesses_of
from ptxforge.explain.roofline import Product, products_of
from ptxforge.ir import types as T
from ptxforge.ir.core import Function, Operation
from ptxforge.ir.definition import COPIES, TENSORS
from ptxforge.ir.ops import dot
from ptxforge.ir.ops.control import Loop
from ptxforge.ir.ops.memory import Load
from ptxforge.ir.printer import print_function
from ptxforge.passes import pipeline
from ptxforge.passes.analysis.reasons import why_not_ahead
from ptxforge.passes.properties import VECTORS
from ptxforge.runtime.jit import JITFunction
from ptxforge.support.location import Location
from ptxforge.support.target import Target, parse_target

_WORKERS = {COPIES: "cp.async", TENSORS: "TMA"}
"""What moves tiles to shared memory while others work, by the queue that it does so in."""


@attrs.define(slots=True)
class LoopFacts:
    """One loop of the source. ``loads`` are the places of the tensors that its body loads, ``ahead`` how many
    of them run ahead of their iteration, by ``stages`` - 1 iterations; ``by`` says whether ``TMA`` or
    ``cp.async`` (or both) copy them. ``reasons`` are (place, why, cure) of
    what does not."""

    location: Location | None
    loads: int
    stages: int
    has_dot: bool
    ahead: int = 0
    by: str = ""
    reasons: list[tuple[Location | None, str, str]] = attrs.Factory(list)


def loops_of(function: Function) -> list[LoopFacts]:
    """The loops before they are pipelined."""
    default = function.attributes.get("num_stages", 3)
    loops = function.walk(Loop)
    return [_facts(loop, default) for loop in loops]


def finish_loops(loops: list[LoopFacts], function: Function) -> tuple[LoopFacts, ...]:
    """The loops with what became of them in the final IR, where copies to shared memory have replaced the
    loads that run ahead."""
    after = {op.location: op for op in function.walk(Loop)}
    for facts in loops:
        loop = after.get(facts.location)
        if loop is not None:
            copies = [queue for op in loop.walk() if (queue := op.get_effects().fills)]
            facts.ahead = len(copies)
            facts.by = " and ".join(_WORKERS[queue] for queue in dict.fromkeys(copies))
            if facts.ahead and facts.ahead >= facts.loads:
                facts.reasons.clear()
    return tuple(loops)


def _facts(loop: Operation, default: int) -> LoopFacts:
    own = loop.regions[-1].block
    loads = [op for op in own.of(Load) if isinstance(op.result.type, T.TensorType)]
    stages = loop.num_stages if loop.is_counted and loop.num_stages >= 0 else default
    has_dot = any(own.of(dot.Product))
    facts = LoopFacts(loop.location, len(loads), stages, has_dot)
    if loads:
        facts.reasons = why_not_ahead(loop, loads, stages, has_dot)
    return facts


Place = tuple[str, int]
"""A source file and a line of it."""

_LOCATION = re.compile(r' loc\(("(?:[^"\\]|\\.)*":.*)\)( \{)?$')
_SPAN = re.compile(r'"((?:[^"\\]|\\.)*)":(\d+):\d+')


@attrs.frozen(slots=True)
class Line:
    """A line of IR, PTX or machine code, and the source lines that it was made of, innermost first."""

    text: str
    places: tuple[Place, ...] = ()


@attrs.frozen(slots=True)
class Stage:
    """The IR after one pass. ``why`` is the reason for which the pipeline has it there; ``changed`` says
    whether it changed the text."""

    name: str
    stage: str
    why: str
    changed: bool
    lines: tuple[Line, ...]


@attrs.frozen(slots=True)
class Trace:
    """A compiled kernel and the road to it. ``function`` is the IR that code was generated from."""

    kernel: JITFunction
    artifact: Artifact
    target: Target
    function: Function
    stages: tuple[Stage, ...]
    accesses: tuple[Access, ...]
    loops: tuple[LoopFacts, ...]
    products: tuple[Product, ...]

    @property
    def ptx(self) -> tuple[Line, ...]:
        """The PTX text with the lines that its ``.loc`` directives name."""
        return ptx_lines(self.artifact.ptx)


def trace(
    kernel: JITFunction, signature: dict[str, str], constants: dict[str, Any], target: str, **options: Any
) -> Trace:
    """Compile ``kernel`` as :meth:`JITFunction.compile` does and keep what each pass leaves.

    Raises what compiling raises: :class:`ArgumentError` and :class:`CompilationError`.
    """
    artifact = kernel.compile(signature, constants, target, **options)
    function = build_ir(kernel, artifact.signature, artifact.constants, artifact.target, **artifact.options)
    watcher = _Watcher(function, parse_target(artifact.target))
    pipeline.run(function, watcher.target, on_pass=watcher.after)
    return Trace(
        kernel, artifact, watcher.target, function, tuple(watcher.stages), tuple(watcher.accesses),
        finish_loops(watcher.loops, function), tuple(watcher.products),
    )  # fmt: skip


class _Watcher:
    """Is called after each pass."""

    def __init__(self, function: Function, target: Target):
        self.target = target
        self.accesses: list[Access] = []
        self.loops: list[LoopFacts] = []
        self.products: list[Product] = []
        lines = ir_lines(print_function(function, locations=True))
        why = "what the frontend makes of the source"
        self.stages = [Stage("frontend", "tile", why, True, lines)]

    def after(self, row: Any, function: Function, changed: bool) -> None:
        lines = before = self.stages[-1].lines
        if changed:
            lines = ir_lines(print_function(function, locations=True))
            lines = before if _texts(lines) == _texts(before) else lines
        self.stages.append(Stage(row.name, row.stage, row.why, lines is not before, lines))
        if VECTORS in row.establishes:
            self.accesses = accesses_of(function)
            self.loops = loops_of(function)
            self.products = products_of(function)


def _texts(lines: tuple[Line, ...]) -> list[str]:
    return [line.text for line in lines]


def ir_lines(text: str) -> tuple[Line, ...]:
    """Lines of IR without their ``loc(…)``; the head of an operation with regions has the place that stands
    behind its last brace.

    >>> ir_lines('  return loc("k.py":3:5 in "f" at "k.py":9:2)')
    (Line(text='  return', places=(('k.py', 3), ('k.py', 9))),)
    """
    lines: list[Line] = []
    opened: list[int] = []
    for row, raw in enumerate(text.splitlines()):
        found = _LOCATION.search(raw)
        places = tuple((file, int(line)) for file, line in _SPAN.findall(found[1])) if found else ()
        body = raw[: found.start()] + (found[2] or "") if found else raw
        if body.lstrip().startswith("}") and opened:
            head = opened.pop()
            lines[head] = attrs.evolve(lines[head], places=lines[head].places or places)
        if body.endswith("{"):
            opened.append(row)
        lines.append(Line(body, places))
    return tuple(lines)


def ptx_lines(text: str) -> tuple[Line, ...]:
    """Lines of PTX, each with the place that the last ``.loc`` before it names."""
    files = {int(number): name for number, name in re.findall(r'^\s*\.file\s+(\d+)\s+"(.*)"', text, re.M)}
    lines: list[Line] = []
    places: tuple[Place, ...] = ()
    for raw in text.splitlines():
        found = re.match(r"\s*\.loc\s+(\d+)\s+(\d+)", raw)
        if found:
            places = ((files.get(int(found[1]), ""), int(found[2])),)
        lines.append(Line(raw, places if raw.startswith("\t") else ()))
    return tuple(lines)
