"""Products of warpgroups run on while the next iteration begins.

    for … iter_args(%acc = %zero) {                          (before)
      async_wait {num = 1}
      %f = dot_begin %acc
      %g = dot_async %a, %b, %f
      %d = dot_wait %g {pending = 0}
      async_copy … (into the buffers that the last iteration read)
      yield %d }

    %f = dot_begin %zero                                     (after)
    for … iter_args(%acc = %f) {
      async_wait {num = 1}
      %g = dot_async %a, %b, %acc
      dot_wait {pending = 1}                                 the last iteration's product is finished
      barrier                                                … in all warps
      async_copy …
      yield %g }
    %d = dot_wait %acc {pending = 0}

The tensor cores always have the next product at hand: on an H200 waiting for each product at once costs a
sixth of the speed of a matrix product.

Rules
-----
SUM       A carried value that the loop does nothing with but add products to it.
ALL       Groups of products finish in order, so a loop is rewritten only if all of its products are such
          sums, and are started in every iteration.
OPERANDS  They must stay as they are for one more iteration: tiles in a ring of buffers (which has one more
          than are under way), or from outside of the loop; no registers.
"""

from __future__ import annotations

import attrs

from ptxforge.ir import types as T
from ptxforge.ir.builder import Builder
from ptxforge.ir.core import BlockArgument, Function, Operation, Value
from ptxforge.ir.ops.control import For
from ptxforge.ir.ops.mbarrier import BarrierExpect, TensorLoad
from ptxforge.ir.ops.memory import Barrier
from ptxforge.ir.ops.shared import AsyncCopyGlobalToLocal, MemDescIndex, MemDescSubslice, MemDescTrans
from ptxforge.ir.ops.warpgroup import DotAsync, DotBegin, DotWait
from ptxforge.support.target import Target


def overlap_products(function: Function, target: Target) -> bool:
    """Let products of one iteration run into the next one wherever the rules admit it."""
    changed = False
    for loop in [op for op in function.walk() if isinstance(op, For)]:
        sums = _sums(loop)
        if sums:
            _overlap(loop, sums)
            changed = True
    return changed


@attrs.frozen
class _Sum:
    """Carried value number ``index`` and the operations on it, in order."""

    index: int
    begin: DotBegin
    start: DotAsync
    wait: DotWait


def _sums(loop: For) -> list[_Sum]:
    """All products of the loop, in order; none if one of them is no SUM with lasting OPERANDS."""
    found = []
    for op in loop.body.walk():
        if isinstance(op, DotAsync):
            one = _sum(loop, op) if op.parent is loop.body else None
            if one is None:
                return []
            found.append(one)
    return found


def _sum(loop: For, start: DotAsync) -> _Sum | None:
    begin = start.c.defining_op
    waits = [user for user in start.result.users if isinstance(user, DotWait)]
    if not isinstance(begin, DotBegin) or len(waits) != 1 or len(waits[0].flights) != 1:
        return None
    argument, total = begin.value, waits[0].results[0]
    is_carried = isinstance(argument, BlockArgument) and argument.block is loop.body and argument.index > 0
    if not (is_carried and argument.has_one_use and total.has_one_use):
        return None
    if loop.body.terminator.values[argument.index - 1] is not total:
        return None
    if not all(_lasts(value, loop) for value in (start.a, start.b)):
        return None
    return _Sum(argument.index - 1, begin, start, waits[0])


def _lasts(value: Value, loop: For) -> bool:
    """See OPERANDS."""
    if not isinstance(value.type, T.MemDescType):
        return False
    op = value.defining_op
    while isinstance(op, (MemDescTrans, MemDescSubslice)):
        value, op = op.source, op.source.defining_op
    if value.owner_block is not loop.body:
        return True
    return isinstance(op, MemDescIndex) and op.source.owner_block is not loop.body


def _last_copy(loop: For) -> Operation:
    """The last of the copies for a next tile that start right behind the loop, or the loop: the last product
    runs on while they are asked for, as it reads none of their buffers (``flatten_loops``)."""
    last: Operation = loop
    op = loop.next
    while isinstance(op, (BarrierExpect, TensorLoad)) or (op.is_speculatable and _is_scalar(op)):
        if isinstance(op, TensorLoad) and op.ordered:
            last = op
        op = op.next
    return last


def _is_scalar(op: Operation) -> bool:
    values = (*op.operands, *op.results)
    return not op.regions and not any(isinstance(v.type, (T.TensorType, T.FlightType)) for v in values)


def _overlap(loop: For, sums: list[_Sum]) -> None:
    outside, behind = Builder.at(loop), Builder.after(_last_copy(loop))
    for one in sums:
        begun = outside.value(DotBegin, loop.initial[one.index])
        loop.set_operand(3 + one.index, begun)
        argument, result = loop.carried[one.index], loop.results[one.index]
        argument.type = result.type = begun.type
        one.begin.replace_with([argument])
        one.wait.results[0].replace_all_uses_with(one.start.result)
        one.wait.erase()
        users = result.users
        if users:
            total = behind.create(DotWait, result, pending=0)
            result.replace_all_uses_with(total.results[0], unless=lambda user, wait=total: user is wait)
        else:
            behind.create(DotWait, pending=0)
    last = sums[-1].start
    wait = Builder.after(last).create(DotWait, pending=len(sums))
    op: Operation | None = wait
    while op is not None and not isinstance(op, (Barrier, AsyncCopyGlobalToLocal)):
        op = op.next
    if isinstance(op, AsyncCopyGlobalToLocal):
        Builder.at(op).create(Barrier)
