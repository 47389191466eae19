"""Why code is not as fast as it could be, and what helps; each is asked where it is the case: loads of a loop
do not run ahead of their iteration, a product is done without tensor cores, an access to global memory moves
fewer bytes at a time than it could."""

from __future__ import annotations

from collections.abc import Collection

from ptxforge.ir import types as T
from ptxforge.ir.core import BlockArgument, Operation
from ptxforge.ir.definition import PRODUCTS, UNORDERED
from ptxforge.ir.facts import AxisInfo
from ptxforge.ir.ops.dot import Dot
from ptxforge.ir.ops.memory import Load
from ptxforge.layouts.banks import register_run
from ptxforge.layouts.encodings import elements_per_thread
from ptxforge.passes.analysis.axis_info import AxisInfoAnalysis
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
        return (
            "its loads do not run ahead: how many steps it takes is not known before it",
            "use a for loop that no break or return leaves",
        )
    if stages < 2:
        return f"its loads do not run ahead: num_stages is {stages}", "give num_stages of 2 or more"
    for op in loop.body.walk():
        if op.is_counted:
            return "its own loads do not run ahead: it holds another loop", "load before the loop, or fuse"
        if op.get_effects().other and op.get_effects().queue != PRODUCTS:
            return f"its loads do not run ahead: it holds '{op.name}'", f"move '{op.name}' out of the loop"
    writes = [op for op in loop.body.walk()
              if "global" in op.get_effects().writes and UNORDERED not in op.traits]  # fmt: skip
    if writes and loop.num_stages < 0:
        line = writes[0].location.line if writes[0].location else "?"
        return (
            f"its loads do not run ahead: line {line} writes memory that they might read",
            "tl.range(…, num_stages=3) promises that they do not",
        )
    if loop.hands_on:
        return "its loads do not run ahead: it hands a carried value on unchanged", "take it out of the loop"
    return None


def _one_load(load: Load) -> tuple[str, str]:
    root = root_of(load.pointer)
    named = f"the load of '{root.hint}'" if isinstance(root, BlockArgument) else "this load"
    why, cure = _one_reason(load)
    return f"{named} does not run ahead: {why}", cure


def _one_reason(load: Load) -> tuple[str, str]:
    at_once = load.width * T.element_type(load.result.type).bytes
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


def why_no_tensor_core(op: Dot) -> tuple[str, str]:
    """(why, cure) of a product that is done on the FMA units."""
    m, n, k = *op.c.type.shape[-2:], op.a.type.shape[-1]
    element = str(op.a.type.element)
    if element == "f32" and op.input_precision == "ieee":
        return (
            "f32 operands with input_precision 'ieee' are multiplied without tensor cores",
            "'tf32' or 'tf32x3' uses them, where that is exact enough",
        )
    if min(m, n, k) < 8:
        return f"a product of {m}x{n}x{k} is too small for tensor cores", "let each extent be 16 or more"
    return (
        f"tensor cores do not take {element} with {op.c.type.element} here",
        "use f16, bf16 or int8 operands",
    )


def widest_dimension(info: AxisInfo) -> int:
    """The dimension along which most is consecutive, the last one where nothing is."""
    return max(range(info.rank), key=lambda d: (info.contiguity[d], d))


def why_narrow(op: Operation, facts: AxisInfoAnalysis, size: int, vector: int) -> tuple[str, str]:
    """Why an access moves no more than ``vector`` elements of ``size`` bytes at once, and the cure; empty
    where that is much, or all that a thread has."""
    type = op.pointer.type
    held = elements_per_thread(type.layout, type.shape)
    if op.get_effects().is_atomic or vector * size >= machine.VECTOR_BYTES or vector >= held:
        return "", ""
    dim, run = register_run(type.layout, type.shape)
    info = facts[op.pointer]
    if info.contiguity[dim] == 1 < info.contiguity[widest_dimension(info)]:
        return _across(dim, widest_dimension(info))
    limits = {
        _consecutive: info.contiguity[dim],
        _alignment: max(1, info.divisibility[dim] // size),
        changing_mask: facts[op.mask].constancy[dim] if op.mask is not None else machine.VECTOR_BYTES,
        _layout: run,
    }
    reason = min(limits, key=limits.__getitem__)
    return reason(op, dim, limits[reason], size)


def _consecutive(op: Operation, dim: int, limit: int, size: int) -> tuple[str, str]:
    known = "not known to be consecutive" if limit == 1 else f"known to be consecutive {limit} at a time only"
    where = f" along dimension {dim}" if limit > 1 and len(op.pointer.type.shape) > 1 else ""
    return (
        f"its addresses are {known}{where}",
        "let the stride be 1 where the compiler sees it (leave it out, or make it a constexpr), or promise "
        "with tl.max_contiguous what a remainder or division hides",
    )


def _alignment(op: Operation, dim: int, limit: int, size: int) -> tuple[str, str]:
    return (
        f"its addresses are known to be multiples of {limit * size} bytes only",
        "pass aligned pointers and strides that 16 divides (':16' in a signature), or promise with "
        "tl.multiple_of",
    )


def changing_mask(op: Operation, dim: int, limit: int, size: int) -> tuple[str, str]:
    changes = "with every element" if limit == 1 else f"every {limit} elements"
    return (
        f"the mask may change {changes}",
        "compare with a bound that 16 divides (':16' in a signature), or promise with tl.max_constancy",
    )


def unknown_start(size: int) -> tuple[str, str]:
    return (
        f"where its rows begin is not known to be a multiple of {size} bytes",
        "pass row lengths and strides that 16 divides (':16' in a signature), or promise with tl.multiple_of",
    )


def _across(held: int, consecutive: int) -> tuple[str, str]:
    return (
        f"a thread holds neighbours along dimension {held}, memory has them along dimension {consecutive}",
        "let accesses that share a block agree on the order of its dimensions",
    )


def _layout(op: Operation, dim: int, limit: int, size: int) -> tuple[str, str]:
    few = "one element" if limit == 1 else f"{limit} neighbours"
    return (
        f"a thread holds {few} of the block",
        "a larger block or fewer warps give each thread more neighbours",
    )
