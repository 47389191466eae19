"""Loops: what runs ahead in them, and why the rest does not."""

from __future__ import annotations

import attrs

from ptxforge.ir import types as T
from ptxforge.ir.core import Function, Operation
from ptxforge.ir.ops.control import Loop
from ptxforge.ir.ops.dot import Product
from ptxforge.ir.ops.memory import Load
from ptxforge.passes.analysis.reasons import why_not_ahead
from ptxforge.support.location import Location

COPIES = {"async_copy_global_to_local": "cp.async", "tensor_load": "TMA"}
"""Operations that move a tile to shared memory while others work, and what does it."""


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
    loops = list(function.walk(Loop))
    return [_facts(loop, default) for loop in loops]


def finish_loops(loops: list[LoopFacts], function: Function) -> tuple[LoopFacts, ...]:
    """The loops with what became of them in the final IR, where copies to shared memory have replaced the
    loads that run ahead."""
    after = {op.location: op for op in function.walk(Loop)}
    for facts in loops:
        loop = after.get(facts.location)
        if loop is not None:
            copies = [op.name for op in loop.walk() if op.name in COPIES]
            facts.ahead = len(copies)
            facts.by = " and ".join(COPIES[name] for name in dict.fromkeys(copies))
            if facts.ahead and facts.ahead >= facts.loads:
                facts.reasons.clear()
    return tuple(loops)


def _facts(loop: Operation, default: int) -> LoopFacts:
    own = loop.regions[-1].block
    loads = [op for op in own.of(Load) if isinstance(op.result.type, T.TensorType)]
    stages = loop.num_stages if loop.is_counted and loop.num_stages >= 0 else default
    has_dot = any(own.of(Product))
    facts = LoopFacts(loop.location, len(loads), stages, has_dot)
    if loads:
        facts.reasons = why_not_ahead(loop, loads, stages, has_dot)
    return facts
