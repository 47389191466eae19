"""Why an access to global memory moves fewer bytes at a time than it could, and what helps: asked when it
does."""

from __future__ import annotations

from ptxforge.ir.core import Operation
from ptxforge.ir.facts import AxisInfo
from ptxforge.layouts.banks import register_run
from ptxforge.layouts.encodings import elements_per_thread
from ptxforge.passes.analysis.axis_info import AxisInfoAnalysis
from ptxforge.support import machine


def widest_dimension(info: AxisInfo) -> int:
    """The dimension along which most is consecutive, the last one where nothing is."""
    return max(range(info.rank), key=lambda d: (info.contiguity[d], d))


def why_narrow(op: Operation, facts: AxisInfoAnalysis, size: int, vector: int) -> tuple[str, str]:
    """Why an access is narrower than ``WIDE`` bytes, and the cure; empty where it is not, or where a thread
    has no more elements anyway."""
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
