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
ALL       Groups of products finish in order, so this is for loops all of whose products are such sums, and
          are started in every iteration. (Others: ``staggered_products.py``.)
OPERANDS  They must stay as they are for one more iteration: tiles in a ring of buffers (which has one more
          than are under way), or from outside of the loop; no registers.
"""

from __future__ import annotations

from ptxforge.ir import types as T
from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Function, Operation
from ptxforge.ir.definition import COPIES, TENSORS
from ptxforge.ir.ops.control import For
from ptxforge.ir.ops.memory import Barrier
from ptxforge.ir.ops.warpgroup import DotWait
from ptxforge.ir.warps import warps_around
from ptxforge.passes.staggered_products import Product, carried_by, carry, products_of, stagger
from ptxforge.support.target import Target


def overlap_products(function: Function, target: Target) -> bool:
    """Let products of one iteration run into the next one wherever the rules admit it."""
    changed = False
    for loop in list(function.walk(For)):
        sums = _sums(loop)
        if sums:
            _overlap(loop, sums)
            changed = True
        else:
            changed |= stagger(loop, warps_around(loop).threads)
    return changed


def _sums(loop: For) -> dict[Product, int]:
    """All products of the loop, in order, and the carried values that they are added to; none if one of them
    is no SUM with lasting OPERANDS."""
    found: dict[Product, int] = {}
    for product in products_of(loop):
        index = carried_by(loop, product)
        if index is None or not isinstance(product.start.a.type, T.MemDescType):
            return {}
        found[product] = index
    return found


def _last_copy(loop: For) -> Operation:
    """The last of the copies for a next tile that start right behind the loop, or the loop: the last product
    runs on while they are asked for, as it reads none of their buffers (``flatten_loops``)."""
    last: Operation = loop
    op = loop.next
    while op.effects.starts == TENSORS or (op.is_speculatable and _is_scalar(op)):
        if op.effects.fills and op.ordered:
            last = op
        op = op.next
    return last


def _is_scalar(op: Operation) -> bool:
    values = (*op.operands, *op.results)
    return not op.regions and not any(isinstance(v.type, (T.TensorType, T.FlightType)) for v in values)


def _overlap(loop: For, sums: dict[Product, int]) -> None:
    last = list(sums)[-1].start
    behind = _last_copy(loop)
    for product, index in sums.items():
        carry(loop, index, product, behind)
    wait = Builder.after(last).create(DotWait, pending=len(sums))
    op: Operation | None = wait
    while op is not None and not isinstance(op, Barrier) and op.effects.fills != COPIES:
        op = op.next
    if op is not None and op.effects.fills:
        Builder.at(op).create(Barrier)
