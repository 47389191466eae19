"""Why loads of a loop do not run ahead of their iteration, and what helps: asked when they do not."""

from __future__ import annotations

from collections.abc import Collection

from ptxforge.ir import types as T
from ptxforge.ir.core import BlockArgument, Operation
from ptxforge.ir.definition import PRODUCTS
from ptxforge.ir.ops.memory import Load
from ptxforge.passes.analysis.pipelined_loads import is_zero, pipelined_loads
from ptxforge.passes.analysis.roots import root_of
from ptxforge.support import machine
from ptxforge.support.location import Location


def why_not_ahead(
    loop: Operation, loads: list[Load], stages: int, has_dot: bool, ahead: Collection[Load] | None = None
) -> list[tuple[Location | None, str, str]]:
    """(place, why, cure) of each load of ``loads``, tensors that the body of ``loop`` loads, that does not
    run ahead of its iteration; of the loop itself where that holds for all. ``stages`` is how many the loop
    should have, ``has_dot`` whether its body has a product, ``ahead`` the loads that do run ahead, where that
    is known."""
    whole = _whole_loop(loop, stages)
    if whole is not None:
        return [(loop.location, *whole)]
    if not has_dot and loop.num_stages < 0:
        ask = "tl.range(…, num_stages=3) asks for it"
        return [(loop.location, "its loads do not run ahead: it has no dot and does not ask for it", ask)]
    ahead = pipelined_loads(loop) if ahead is None else ahead
    return [(load.location, *_one_load(load)) for load in loads if load not in ahead]


def _whole_loop(loop: Operation, stages: int) -> tuple[str, str] | None:
    """Why nothing of a loop runs ahead; ``None`` where something may."""
    if not loop.is_counted:
        return "its loads do not run ahead: the number of steps of a while is not known", "use a for loop"
    if stages < 2:
        return f"its loads do not run ahead: num_stages is {stages}", "give num_stages of 2 or more"
    for op in loop.body.walk():
        if op.is_counted:
            return "its own loads do not run ahead: it holds another loop", "load before the loop, or fuse"
        if op.get_effects().other and op.get_effects().queue != PRODUCTS:
            return f"its loads do not run ahead: it holds '{op.name}'", f"move '{op.name}' out of the loop"
    writes = [op for op in loop.body.walk() if "global" in op.get_effects().writes]
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
    at_once = max(1, load.vector) * T.element_type(load.result.type).bytes
    if load.volatile:
        return "it is volatile", "leave volatile out"
    if at_once < machine.ASYNC_COPY_BYTES:
        return (
            f"a thread copies {at_once} bytes at once, {machine.ASYNC_COPY_BYTES} are needed",
            "widen it (see the access)",
        )
    if load.other is not None and not is_zero(load.other):
        return "its mask leaves out something else than zero", "let other be 0"
    return (
        "a dot does not need it, or its address depends on what cannot run early",
        "tl.range(…, num_stages=3) asks for every load",
    )
