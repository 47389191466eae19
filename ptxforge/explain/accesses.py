"""Accesses to global memory: how wide, how well coalesced, how often repeated, and why not better.

All of it follows from the layout of the pointers and from what is known of the addresses
(:mod:`~ptxforge.passes.analysis.axis_info`): nothing is run.
"""

from __future__ import annotations

import attrs

from ptxforge.ir.core import BlockArgument, Function, Operation
from ptxforge.ir.ops.atomic import AtomicRMW
from ptxforge.ir.ops.memory import Load, Store
from ptxforge.layouts.encodings import Distributed, elements_per_thread
from ptxforge.layouts.linear import LANE, WARP
from ptxforge.passes.analysis.axis_info import AxisInfo, AxisInfoAnalysis
from ptxforge.passes.analysis.roots import root_of
from ptxforge.passes.properties import is_memory_access
from ptxforge.passes.vectorize_memory import register_run
from ptxforge.support.location import Location
from ptxforge.support.target import Target

SECTOR = 32
"""Bytes of the pieces in which global memory is moved (CUDA C++ Programming Guide, "Global Memory")."""
WIDE = 16
"""Bytes of a wide access."""
LANES = 32


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
    size, vector = type.element.pointee.bytes, op.attributes.get("vector", 1)
    guarded = op.attributes.get("guarded", 1)
    info = facts[op.pointer]
    if guarded > vector:  # the usual case is the one in which the kernel finds that it may be wide
        sectors, best = sectors_per_request(
            type.layout, type.shape, size, guarded, _as_hoped(info, type.shape)
        )
        why, cure = _mask(op, 0, 1, size) if op.attributes.get("aligned") else _start(guarded * size)
    else:
        sectors, best = sectors_per_request(type.layout, type.shape, size, vector, info)
        why, cure = _limit(op, facts, size, vector)
    root = root_of(op.pointer)
    return Access(
        kind="load" if isinstance(op, Load) else "store" if isinstance(op, Store) else "atomic",
        array=root.hint if isinstance(root, BlockArgument) else "",
        location=op.location, element=str(type.element.pointee), shape=type.shape, layout=type.layout,
        vector=vector, guarded=guarded, bytes=vector * size,
        instructions=elements_per_thread(type.layout, type.shape) // vector,
        sectors=sectors, best=best, copies=replication(type.layout, type.shape), why=why, cure=cure,
    )  # fmt: skip


def sectors_per_request(
    layout: Distributed, shape: tuple[int, ...], size: int, vector: int, info: AxisInfo
) -> tuple[int, int]:
    """(at most, at least): sectors of ``SECTOR`` bytes that the first instruction of a warp touches.

    What is known to be consecutive is laid out so; every other run of elements counts as memory of its own.
    ``size`` is an element's bytes.
    """
    linear = layout.linear(shape)
    dim = register_run(layout, shape)[0] if vector > 1 else _widest(info)
    found: set[tuple] = set()
    elements: set[tuple[int, ...]] = set()
    for lane in range(LANES):
        at = linear.apply(register=0, lane=lane, warp=0, block=0)
        others = at[:dim] + at[dim + 1 :]
        for step in range(vector):
            index = at[dim] + step
            run, within = divmod(index, info.contiguity[dim])
            if info.contiguity[dim] == 1:
                run, within = index // info.constancy[dim], 0
            elements.add((others, index))
            found.add((others, run, within * size // SECTOR))
    return len(found), max(1, -(-len(elements) * size // SECTOR))


def _as_hoped(info: AxisInfo, shape: tuple[int, ...]) -> AxisInfo:
    """A guarded access: rows are consecutive, though it is not known where in a vector they begin."""
    return AxisInfo((*info.contiguity[:-1], shape[-1]), info.divisibility, info.constancy)


def _widest(info: AxisInfo) -> int:
    """The dimension along which most is consecutive, the last one where nothing is."""
    return max(range(info.rank), key=lambda d: (info.contiguity[d], d))


def _limit(op: Operation, facts: AxisInfoAnalysis, size: int, vector: int) -> tuple[str, str]:
    """Why an access is narrower than ``WIDE`` bytes, and the cure; empty where it is not, or where a thread
    has no more elements anyway."""
    type = op.pointer.type
    held = elements_per_thread(type.layout, type.shape)
    if isinstance(op, AtomicRMW) or vector * size >= WIDE or vector >= held:
        return "", ""
    dim, run = register_run(type.layout, type.shape)
    info = facts[op.pointer]
    if info.contiguity[dim] == 1 < info.contiguity[_widest(info)]:
        return _across(dim, _widest(info))
    limits = {
        _consecutive: info.contiguity[dim],
        _alignment: max(1, info.divisibility[dim] // size),
        _mask: facts[op.mask].constancy[dim] if op.mask is not None else WIDE,
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


def _mask(op: Operation, dim: int, limit: int, size: int) -> tuple[str, str]:
    changes = "with every element" if limit == 1 else f"every {limit} elements"
    return (
        f"the mask may change {changes}",
        "compare with a bound that 16 divides (':16' in a signature), or promise with tl.max_constancy",
    )


def _start(size: int) -> tuple[str, str]:
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


def replication(layout: Distributed, shape: tuple[int, ...]) -> int:
    """How many threads hold each element of a tensor."""
    free = layout.linear(shape).free_variables()
    return 1 << (free.get(LANE, 0).bit_count() + free.get(WARP, 0).bit_count())
