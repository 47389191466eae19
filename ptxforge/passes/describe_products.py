"""What became of each product, told in a remark: instruction, feed, schedule, registers.

    matmul.py:41:15: product: 128x256x64 by wgmma m64n256k16, 2 warpgroups; left by TMA, 4 stages;
    right by TMA, 4 stages; in flight across iterations; 128 registers of sums in a thread

Why it is not another one stands in the other remarks (``not-by-wgmma``, ``not-by-tma``, ``not-pipelined``,
…). Of the copies of a product (a prologue, a loop) the one in the innermost loop is told of.
"""

from __future__ import annotations

import math

from ptxforge.ir import types as T
from ptxforge.ir.core import Function, Operation, Value
from ptxforge.ir.definition import (
    ALLOCATES,
    COPIES,
    ELEMENTWISE,
    REARRANGING,
    SAME_MEMORY,
    TENSORS,
    TERMINATOR,
)
from ptxforge.ir.ops.control import Loop, loops_around
from ptxforge.ir.ops.dot import Product
from ptxforge.ir.pressure import registers_of
from ptxforge.layouts import wgmma
from ptxforge.layouts.encodings import Mma
from ptxforge.layouts.mma_families import MMA_SYNC, WGMMA, find_family
from ptxforge.support.location import Location
from ptxforge.support.target import Target
from ptxforge.support.worklist import each_once


def describe_products(function: Function, target: Target) -> bool:
    """Make a remark on every product; the function stays as it is."""
    found: dict[Location | None, Product] = {}
    for op in function.walk(Product):
        before = found.setdefault(op.location, op)
        if len(loops_around(op)) > len(loops_around(before)):
            found[op.location] = op
    feeds = _feeds(function) if found else {}
    for location, op in found.items():
        function.remarks.add("product", _description(op, feeds), location)
    return False


def _description(op: Product, feeds: dict[Value, str]) -> str:
    total = op.sums
    sums = registers_of(total)
    size, count = "x".join(map(str, (*total.shape, op.a.type.shape[-1]))), _parts(op)
    number = f"{count} of " if count > 1 else ""
    parts = [f"{number}{size} by {_instruction(op)}", *_operands(op, feeds)]
    if _is_async(op):
        parts.append(_schedule(op))
    return "; ".join([*parts, f"{sums} registers of sums in a thread"])


def _is_async(op: Product) -> bool:
    return isinstance(op.c.type, T.FlightType)


def _parts(op: Product) -> int:
    """How many products became of one: slices along k, or terms of a more precise one."""
    together = (other for other in op.parent.operations if type(other) is type(op))
    return sum(other.location == op.location for other in together)


def _instruction(op: Product) -> str:
    total = op.sums
    layout = total.layout
    if not isinstance(layout, Mma):
        return "FMA units"
    kinds = [str(element) for element in (op.a.type.element, op.b.type.element, total.element)]
    warps = math.prod(layout.warps_per_cta)
    if _is_async(op):
        depth, columns = find_family(WGMMA, *kinds).k, wgmma.columns_of_instruction(layout)
        groups = warps // wgmma.WARPS
        return f"wgmma m{wgmma.ROWS}n{columns}k{depth}, {groups} warpgroup{'s' * (groups > 1)}"
    family = find_family(MMA_SYNC, *kinds)
    return f"mma.sync m{family.m}n{family.n}k{family.k}, {warps} warp{'s' * (warps > 1)}"


# -- feed ------------------------------------------------------------------------------------------------


def _feeds(function: Function) -> dict[Value, str]:
    """Of each buffer in shared memory, what fills it."""
    feeds: dict[Value, str] = {}
    for op in function.walk():
        destination = getattr(op, "destination", None)
        if destination is not None:
            by = _QUEUES.get(op.get_effects().starts, "by threads")
            if op.effects.fills == TENSORS and op.multicast:
                by = f"{by}, multicast to {op.sharers} CTAs"
            feeds |= dict.fromkeys(_buffers(destination)[0], by)
    return feeds


_QUEUES = {TENSORS: "by TMA", COPIES: "by cp.async"}


def _operands(op: Product, feeds: dict[Value, str]) -> list[str]:
    parts = []
    for name, operand in (("left", op.a), ("right", op.b)):
        buffers, is_loaded = _buffers(operand)
        feed = ", ".join(dict.fromkeys(_fed(buffer, feeds) for buffer in buffers))
        passes = _is_async(op) and isinstance(operand.type, T.TensorType)
        feed = feed or ("loaded" if is_loaded else "computed")
        parts.append(f"{name} {feed}" + (", through registers" if passes else ""))
    return parts


def _fed(buffer: Value, feeds: dict[Value, str]) -> str:
    stages = buffer.type.shape[0] if buffer.type.rank > buffer.type.layout.rank else 1
    by = feeds.get(buffer, "by threads")
    return f"{by}, {stages} stages" if stages > 1 else by


def _buffers(value: Value) -> tuple[list[Value], bool]:
    """The buffers in shared memory that a value comes from, and whether it comes from a load straight to
    registers."""
    found: dict[Value, None] = {}
    work, is_loaded = [value], False
    for value in each_once(work):
        op = value.defining_op
        loop = op if isinstance(op, Loop) else value.block.parent_op if op is None else None
        if isinstance(loop, Loop) and loop.carried_index(value) is not None:
            work += loop.carried_sources(loop.carried_index(value))
        elif op is None:
            continue
        elif ALLOCATES in op.traits:
            found[value] = None
        elif "global" in op.get_effects().reads:
            is_loaded = True
        elif "shared" in op.get_effects().reads or not _PASSES.isdisjoint(op.traits):
            work += [v for v in op.operands if isinstance(v.type, (T.TensorType, T.MemDescType))]
    return list(found), is_loaded


_PASSES = frozenset((SAME_MEMORY, REARRANGING, ELEMENTWISE))


# -- schedule --------------------------------------------------------------------------------------------


def _schedule(op: Product) -> str:
    users = _takers(op.result)
    while len(users) == 1 and isinstance(users[0], Product):  # the next of several slices along k
        users = _takers(users[0].result)
    if not loops_around(op):
        return "waited for where it is used"
    if any(TERMINATOR in user.traits for user in users):
        return "in flight across iterations"
    return "together with others" if any(getattr(user, "pending", 0) for user in users) else _ALONE


def _takers(total: Value) -> list[Operation]:
    """The users of a sum, but for waits with which it stays under way."""
    return [user for user in total.users if user.results or TERMINATOR in user.traits]


_ALONE = "waited for in its iteration"
