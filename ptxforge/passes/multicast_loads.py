"""Tiles that several CTAs of a cluster need: each copies a share, for all of them.

    barrier                                                          (before: each copies all of A's tile)
    tensor_load %a_map, %tile, %buffer, %row, %k

    barrier_arrive %empty {peers = [0, 1]}                           (after: half of the rows each)
    barrier_wait %empty, %phase {for_copies}
    tensor_load %a_map, %tile, %buffer, %row, %k {multicast = 1}

A buffer is overwritten when the products of *all* CTAs that get the copy have read it: their warps arrive at
the sender's mbarrier. Before the first copy all CTAs meet, so that they run, have made their mbarriers, and
have nothing else in that memory (``insert_barriers.py``). None ends too early: in each iteration a CTA waits
for all arrivals that others make at it.

Rules
-----
SAME      A tile is the same for CTAs whose ranks differ in bits that its coordinates, and the bounds of the
          loops around it, are not computed from.
TOGETHER  All these CTAs run the loop: it stands in no branch.
PLAIN     The loop has one product, and TMA copies all of its tiles.
          Vectors beside them come to each CTA by itself.
ROWS      Each share has eight rows or more, the unit of a swizzle.
"""

from __future__ import annotations

from ptxforge.ir.core import Function, Value
from ptxforge.ir.ops.control import For
from ptxforge.ir.ops.dot import Product
from ptxforge.ir.ops.memory import Load
from ptxforge.passes.ring_layouts import layout_of_boxes
from ptxforge.passes.tensor_loads import TensorLoads, is_vector
from ptxforge.support.worklist import each_once

LEAST_ROWS = 8
"""Of a CTA's share."""


def plan_multicasts(function: Function, loop: For, by_tma: TensorLoads) -> dict[Load, int]:
    """For the loads of ``loop`` that CTAs share: the bits of the rank in which these differ. The others that
    could be shared get a remark."""
    ctas = function.attributes.get("num_ctas", 1)
    if ctas == 1:
        return {}
    found: dict[Load, int] = {}
    for load in loop.body.of(Load):
        if by_tma.rectangle(load) is None or is_vector(load):
            continue
        coordinates = (d.coordinate for d in by_tma.rectangle(load).dimensions)
        values = [value for sums in coordinates for monomial in sums for value in monomial]
        bits = _lowest_run(_alike(loop, values, ctas))
        if not bits:
            continue
        why = _why_alone(loop, by_tma) or _why_whole(load, bits)
        if why:
            text = f"each CTA copies this tile for itself: {why}"
            function.remarks.add("not-multicast", text, load.location)
        else:
            found[load] = bits
    return found


def peers_of(multicasts: dict[Load, int]) -> tuple[int, ...]:
    """The ranks of the CTAs that read what a CTA copies, xor its own, itself (0) included."""
    found = {0}
    for bits in multicasts.values():
        found.update(number for number in range(bits + 1) if number & bits == number)
    return tuple(sorted(found))


def _why_alone(loop: For, by_tma: TensorLoads) -> str:
    """See TOGETHER and PLAIN; empty if the loop may share."""
    around = loop.parent_op
    while around is not None:
        if not around.is_counted:
            return "the loop stands in a branch"
        around = around.parent_op
    if len(loop.body.walk(Product)) != 1:
        return "the loop has several products"
    if not all(by_tma.rectangle(load) for load in loop.body.of(Load) if "stage" in load.attributes):
        return "threads copy another tile of the loop"
    return ""


def _why_whole(load: Load, bits: int) -> str:
    """See ROWS."""
    rows = load.result.type.shape[layout_of_boxes(load).order[1]]
    sharers = 1 << bits.bit_count()
    return f"its {rows} rows are too few for {sharers} CTAs" if rows < LEAST_ROWS * sharers else ""


def _lowest_run(bits: int) -> int:
    """The lowest bits that stand side by side."""
    lowest = bits & -bits
    return bits & (bits ^ (bits + lowest))


def _alike(loop: For, values: list[Value], ctas: int) -> int:
    """The bits of the rank from which neither ``values`` come nor the bounds of ``loop`` and those around."""
    work, bits = list(values), 0
    around = loop
    while around is not None:
        work += around.operands[:3] if around.is_counted else ()
        around = around.parent_op
    for value in each_once(work):
        sources = _sources(value)
        if sources is None:
            return 0
        work += sources
        bits |= value.defining_op.rank_bits if value.defining_op is not None else 0
    return ctas - 1 & ~bits


def _sources(value: Value) -> list[Value] | None:
    """What a scalar is computed from; ``None`` if that is not known."""
    op = value.defining_op
    if op is not None:
        return None if op.regions else list(op.operands)
    loop = value.block.parent_op
    if loop is None:
        return []
    if not loop.is_counted:
        return None
    return [loop.lower, loop.step] if value.index == 0 else [loop.first_of(value), loop.next_of(value)]
