"""Loops: what runs ahead in them, and why the rest does not."""

from __future__ import annotations

import attrs

from ptxforge.ir import types as T
from ptxforge.ir.core import BlockArgument, Function, Operation
from ptxforge.ir.ops.control import For, While
from ptxforge.ir.ops.dot import Dot
from ptxforge.ir.ops.memory import Load
from ptxforge.passes.analysis.pipelined_loads import is_zero, pipelined_loads
from ptxforge.passes.analysis.roots import root_of
from ptxforge.support.location import Location

LEAST_COPY = 4
"""Bytes that a thread must copy at once for a load to run ahead (``cp.async`` copies 4, 8 or 16)."""


@attrs.define(slots=True)
class LoopFacts:
    """One loop of the source. ``loads`` are the places of the tensors that its body loads, ``ahead`` how many
    of them run ahead of their iteration, by ``stages`` - 1 iterations. ``reasons`` are (place, why, cure) of
    what does not."""

    location: Location | None
    loads: int
    stages: int
    has_dot: bool
    ahead: int = 0
    reasons: list[tuple[Location | None, str, str]] = attrs.Factory(list)


def loops_of(function: Function) -> list[LoopFacts]:
    """The loops before they are pipelined."""
    default = function.attributes.get("num_stages", 3)
    loops = [op for op in function.walk() if isinstance(op, (For, While))]
    return [_facts(loop, default) for loop in loops]


def finish_loops(loops: list[LoopFacts], function: Function) -> tuple[LoopFacts, ...]:
    """The loops with what became of them in the final IR, where copies to shared memory have replaced the
    loads that run ahead."""
    after = {str(op.location): op for op in function.walk() if isinstance(op, (For, While))}
    for facts in loops:
        loop = after.get(str(facts.location))
        if loop is not None:
            facts.ahead = sum(1 for op in loop.walk() if op.name.startswith("async_copy"))
            if facts.ahead and facts.ahead >= facts.loads:
                facts.reasons.clear()
    return tuple(loops)


def _facts(loop: Operation, default: int) -> LoopFacts:
    own = loop.body if isinstance(loop, For) else loop.regions[-1].block
    loads = [op for op in own.operations if isinstance(op, Load) and isinstance(op.result.type, T.TensorType)]
    stages = loop.num_stages if isinstance(loop, For) and loop.num_stages >= 0 else default
    has_dot = any(isinstance(op, Dot) for op in own.operations)
    facts = LoopFacts(loop.location, len(loads), stages, has_dot)
    if loads:
        facts.reasons = _reasons(loop, loads, stages, has_dot)
    return facts


def _reasons(
    loop: Operation, loads: list[Load], stages: int, has_dot: bool
) -> list[tuple[Location | None, str, str]]:
    """See :class:`LoopFacts`."""
    whole = _whole_loop(loop, stages)
    if whole is not None:
        return [(loop.location, *whole)]
    if not has_dot and loop.num_stages < 0:
        ask = "tl.range(…, num_stages=3) asks for it"
        return [(loop.location, "its loads do not run ahead: it has no dot and does not ask for it", ask)]
    ahead = pipelined_loads(loop)
    return [(load.location, *_one_load(load)) for load in loads if load not in ahead]


def _whole_loop(loop: Operation, stages: int) -> tuple[str, str] | None:
    """Why nothing of a loop runs ahead; ``None`` where something may."""
    if isinstance(loop, While):
        return "its loads do not run ahead: the number of steps of a while is not known", "use a for loop"
    if stages < 2:
        return f"its loads do not run ahead: num_stages is {stages}", "give num_stages of 2 or more"
    for op in loop.body.walk():
        if isinstance(op, For):
            return "its own loads do not run ahead: it holds another loop", "load before the loop, or fuse"
        if op.get_effects().other:
            return f"its loads do not run ahead: it holds '{op.name}'", f"move '{op.name}' out of the loop"
    writes = [op for op in loop.body.walk() if op.get_effects().writes]
    if writes and loop.num_stages < 0:
        line = writes[0].location.line if writes[0].location else "?"
        return (
            f"its loads do not run ahead: line {line} writes memory that they might read",
            "tl.range(…, num_stages=3) promises that they do not",
        )
    if any(isinstance(v, BlockArgument) and v.block is loop.body for v in loop.body.terminator.values):
        return "its loads do not run ahead: it hands a carried value on unchanged", "take it out of the loop"
    return None


def _one_load(load: Load) -> tuple[str, str]:
    root = root_of(load.pointer)
    named = f"the load of '{root.hint}'" if isinstance(root, BlockArgument) else "this load"
    why, cure = _one_reason(load)
    return f"{named} does not run ahead: {why}", cure


def _one_reason(load: Load) -> tuple[str, str]:
    at_once = load.attributes.get("vector", 1) * T.element_type(load.result.type).bytes
    if load.volatile:
        return "it is volatile", "leave volatile out"
    if at_once < LEAST_COPY:
        return (
            f"a thread copies {at_once} bytes at once, {LEAST_COPY} are needed",
            "widen it (see the access)",
        )
    if load.other is not None and not is_zero(load.other):
        return "its mask leaves out something else than zero", "let other be 0"
    return (
        "a dot does not need it, or its address depends on what cannot run early",
        "tl.range(…, num_stages=3) asks for every load",
    )
