"""Which loads of a loop may run ahead of their iteration, and how many levels of loads lie behind each.

Rules
-----
ELIGIBLE    A load is chosen when its value reaches a ``dot`` operand (through conversions, casts,
            transposes) or the address or mask of such a load, is not volatile, TMA copies its tile or its
            threads copy at least 4 bytes at once, and what its mask leaves out is zero (or undefined, or NaN
            where TMA copies). In a loop without ``dot`` that asks for it (an explicit ``num_stages``) every
            tensor is eligible, whatever its mask leaves out.
LEVELS      A load that feeds no other is of level 0; one that feeds the address, mask or ``other`` of
            another, in the same iteration or in a later one, is one level above it. A load that feeds itself
            (the next element of a list) is not chosen: where an address needs it, it runs early, as a load.
ADDRESSES   What runs ahead is computed for iterations that do not exist as well. So an address may come from
            speculatable operations and from loads, which can be masked off: not from a ``while``, which need
            not end, not from a ``gather``, which leaves its source, and not from a branch that loads.
MEMORY      Nothing moves over a store, unless it goes through another parameter than all that runs ahead and
            the loop asks for it (the explicit ``num_stages`` is the author's promise that these do not
            overlap; ``version_loops`` gives one where the program has found out), or TMA does it, which has
            no order with what threads read anyway.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable

from ptxforge.ir import types as T
from ptxforge.ir.core import BlockArgument, Operation, Value
from ptxforge.ir.definition import PRODUCTS, UNORDERED
from ptxforge.ir.ops.control import For
from ptxforge.ir.ops.dot import Product
from ptxforge.ir.ops.memory import Load, Store
from ptxforge.ir.rewriter import constant_everywhere
from ptxforge.passes.analysis.roots import root_of
from ptxforge.support import machine

ByTma = Callable[[Load], object]


def pipelined_loads(loop: For, by_tma: ByTma = lambda load: False) -> dict[Load, int]:
    """The loads of ``loop`` that may run ahead, in the order of the program, and the level of each;
    ``by_tma`` is true of those whose tiles TMA copies."""
    return _levels(_pipelined(loop, by_tma, _is_asked_for(loop)))


def loads_behind_stores(loop: For, by_tma: ByTma) -> tuple[Operation, ...]:
    """The loads of ``loop`` that would run ahead, or move with those that do, if its stores through other
    parameters were known to write elsewhere, and cannot without."""
    if _pipelined(loop, by_tma, _is_asked_for(loop)):
        return ()
    found = _pipelined(loop, by_tma, True)
    moved = dict.fromkeys(op for load in found for op in (load, *found[load]))
    return tuple(op for op in moved if "global" in op.get_effects().reads)


def may_run_ahead(loop: For, load: Load) -> bool:
    """Whether ADDRESSES and MEMORY let ``load`` move to the iteration before its own."""
    written = _written(loop, _is_asked_for(loop))
    behind = _behind(loop, load, [load])
    is_free = written is not None and load not in behind and not load.volatile
    return is_free and all(_may_move(op, written) for op in (load, *behind))


def narrow_loads(loop: For, copied: Collection[Load]) -> list[Load]:
    """The loads of ``loop`` beside those that are ``copied`` whose values reach its products, and which may
    run ahead in registers: of a vector of bytes, say."""
    dots = loop.body.of(Product)
    reached = _walk_back(loop, (operand for dot in dots for operand in (dot.a, dot.b)), carried=False)
    return [
        op for op in loop.body.of(Load)
        if op in reached and op not in copied and isinstance(op.result.type, T.TensorType)
        and may_run_ahead(loop, op)
    ]  # fmt: skip


def may_be_pipelined(loop: For) -> bool:
    """Whether nothing else in a loop keeps its loads from running ahead (SKIPPED of ``schedule_loops``)."""
    for op in loop.body.walk():
        effects = op.get_effects()
        if op.is_counted or (effects.other and effects.queue != PRODUCTS):
            return False
    return not loop.hands_on


def _pipelined(loop: For, by_tma: ByTma, is_promised: bool) -> dict[Load, set[Operation]]:
    """The loads that may run ahead, and what the operands of each are computed from (``_behind``);
    ``is_promised``: stores through other parameters write elsewhere."""
    written = _written(loop, is_promised)
    if written is None:
        return {}
    loads = _candidates(loop, by_tma)
    while True:
        behind = {load: _behind(loop, load, loads) for load in loads}
        stuck = {
            load for load, ops in behind.items()
            if load in _feeders(load, behind) or not all(_may_move(op, written) for op in (load, *ops))
        }  # fmt: skip
        if not stuck:
            return behind
        loads = [load for load in loads if load not in stuck]


def _levels(behind: dict[Load, set[Operation]]) -> dict[Load, int]:
    """See LEVELS: the longest chain of loads from each."""
    levels = dict.fromkeys(behind, 0)
    for _ in behind:  # a chain has as many links as there are loads, at most
        for load, ops in behind.items():
            for feeder in levels.keys() & ops:
                levels[feeder] = max(levels[feeder], levels[load] + 1)
    return levels


def is_zero(value: Value) -> bool:
    """Whether a value is the constant zero (+0.0), which is what a masked-off copy stores."""
    number = constant_everywhere(value)
    return number is not None and number == 0 and math.copysign(1.0, number) > 0


def is_nan(value: Value) -> bool:
    """Whether a value is the constant NaN."""
    number = constant_everywhere(value)
    return number is not None and number != number


# -- candidates -------------------------------------------------------------------------------------------


def _is_asked_for(loop: For) -> bool:
    return loop.num_stages >= 0


def _candidates(loop: For, by_tma: Callable[[Load], object]) -> list[Load]:
    """See ELIGIBLE."""
    dots = list(loop.body.of(Product))
    eligible = [op for op in loop.body.operations if _is_eligible(op, by_tma)]
    if not dots:
        return eligible if _is_asked_for(loop) else []
    reached = _walk_back(loop, (operand for dot in dots for operand in (dot.a, dot.b)), carried=False)
    return [op for op in eligible if op in reached and (_leaves_out_zeros(op) or by_tma(op))]


def _is_eligible(op: Operation, by_tma: Callable[[Load], object]) -> bool:
    if not isinstance(op, Load) or op.volatile or not isinstance(op.result.type, T.TensorType):
        return False
    piece = op.width * T.element_type(op.result.type).bytes
    return piece >= machine.ASYNC_COPY_BYTES or bool(by_tma(op))


def _leaves_out_zeros(load: Load) -> bool:
    return load.other is None or is_zero(load.other)


# -- dependences ------------------------------------------------------------------------------------------


def _walk_back(
    loop: For, values: Iterable[Value], carried: bool, stop: Iterable[Operation] = ()
) -> set[Operation]:
    """The operations of the body that ``values`` are computed from. ``carried``: in earlier iterations too.
    Nothing is looked for behind those in ``stop``."""
    body, found = loop.body, set()
    work = list(values)
    while work:
        value = work.pop()
        if isinstance(value, BlockArgument) and value.block is body:
            if carried and value.index:
                work.append(loop.next_of(value))
            continue
        op = body.ancestor_of(value.defining_op) if value.defining_op is not None else None
        if op is None or op in found:
            continue
        found.add(op)
        if op not in stop:
            work.extend(operand for nested in op.walk() for operand in nested.operands)
    return found


def _behind(loop: For, load: Load, loads: list[Load]) -> set[Operation]:
    """What the operands of ``load`` are computed from, up to other pipelined loads."""
    return _walk_back(loop, load.operands, carried=True, stop=loads)


def _feeders(load: Load, behind: dict[Load, set[Operation]]) -> set[Operation]:
    """All pipelined loads that ``load`` depends on."""
    found: set[Operation] = set()
    work = [load]
    while work:
        new = (behind[work.pop()] & behind.keys()) - found
        found |= new
        work.extend(new)
    return found


# -- memory -----------------------------------------------------------------------------------------------


def _written(loop: For, is_promised: bool) -> set[Value] | None:
    """The parameters through which the body writes; ``None`` if that keeps every load from moving."""
    written: set[Value] = set()
    for op in loop.body.acting():
        if "global" not in op.get_effects().writes:
            continue
        may_pass = UNORDERED in op.traits or (is_promised and isinstance(op, Store))
        root = root_of(op.pointer) if may_pass else None
        if root is None:
            return None
        written.add(root)
    return written


def _may_move(op: Operation, written: set[Value]) -> bool:
    """See ADDRESSES and MEMORY."""
    if isinstance(op, Load):
        return not written or root_of(op.pointer) not in written | {None}
    return op.is_speculatable
