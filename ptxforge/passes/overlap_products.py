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

The tensor cores always have the next product at hand.

Rules
-----
SUM       A carried value that the loop does nothing with but add products to it.
ALL       Groups of products finish in order, so this is for loops all of whose products are such sums, and
          are started in every iteration. (Others: ``staggered_products.py``.)
ALLOWED   Not where the author forbids it (``disallow_acc_multi_buffer``): each product ends in its iteration.
OPERANDS  They must stay as they are for one more iteration: tiles in a ring of buffers (which has one more
          than are under way), or from outside of the loop; no registers.
STORED    What threads loaded or computed they store to a buffer from outside of the loop, once they have
          waited for the last product. Where loads for one tile run ahead in registers, there are two
          buffers: threads store to the other one meanwhile, and wait in front of the next product.
"""

from __future__ import annotations

from ptxforge.ir import types as T
from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Function, Operation, Value
from ptxforge.ir.definition import ALLOCATES, COPIES, MEETING, SAME_MEMORY, TENSORS
from ptxforge.ir.ops.control import For
from ptxforge.ir.ops.memory import Barrier
from ptxforge.ir.ops.shared import LocalAlloc, LocalStore, MemDescIndex, NextSlot
from ptxforge.ir.ops.warpgroup import DotWait
from ptxforge.ir.warps import warps_around
from ptxforge.passes.analysis.spare_memory import has_room_twice
from ptxforge.passes.products_in_parts import carry_accumulators, in_parts, start_in_parts
from ptxforge.passes.staggered_products import (
    Product,
    carried_by,
    carry,
    lasts,
    products_of,
    stagger,
    sum_of,
)
from ptxforge.support.target import Target


def overlap_products(function: Function, target: Target) -> bool:
    """Let products of one iteration run into the next one wherever the rules admit it."""
    changed = False
    for loop in function.walk(For):
        products = products_of(loop)
        for product in products:
            carry_accumulators(loop, product)
        may_run_on = not loop.disallow_acc_multi_buffer
        waits_before = _keep_buffers(function, loop, products, target) if may_run_on else None
        sums = _sums(function, loop, target) if may_run_on else {}
        if sums:
            _overlap(loop, sums, waits_before)
            changed = True
        else:
            changed |= stagger(loop, warps_around(loop).threads)
    return changed


def _sums(function: Function, loop: For, target: Target) -> dict[Product, int]:
    """All products of the loop, in order, and the carried values that they are added to; none if one of them
    is no SUM with lasting OPERANDS."""
    found: dict[Product, int] = {}
    products = products_of(loop)
    for product in products:
        index = carried_by(loop, product)
        may_run_on = _is_in_memory(product) or _runs_in_parts(function, loop, products, target)
        if index is None or not may_run_on:
            return {}
        found[product] = index
    return found


def _runs_in_parts(function: Function, loop: For, products: list[Product], target: Target) -> bool:
    return len(products) == 1 and in_parts(function, loop, products[0], target)


def _is_in_memory(product: Product) -> bool:
    return isinstance(product.start.a.type, T.MemDescType)


def _keep_buffers(
    function: Function, loop: For, products: list[Product], target: Target
) -> Operation | None:
    """See STORED: the product's tiles get buffers from outside of the loop, if it can run on then. What waits
    for the last product, if there are such tiles: the first store, or the product."""
    if len(products) != 1 or sum_of(loop, products[0]) is None:
        return None
    (product,) = products
    tiles = {value: _stored(value, loop) for value in (product.start.a, product.start.b)}
    if not all(tile is not None or _is_lasting(value, loop) for value, tile in tiles.items()):
        return None
    allocs = list(dict.fromkeys(tile for tile in tiles.values() if tile is not None))
    if not allocs:
        return None
    is_ahead = any(alloc.value in loop.carried for alloc in allocs)
    slot = _count_slots(loop) if is_ahead and has_room_twice(function, allocs, target) else None
    stores = [_store_ahead(loop, product, alloc, slot) for alloc in allocs]
    return stores[0] if slot is None else product.start


def _count_slots(loop: For) -> Value:
    """A carried value that is 0, 1, 0, 1 …"""
    slot, _ = loop.add_carried(Builder.at(loop).constant(0, T.I32), "buffer")
    end = loop.body.terminator
    end.set_operand(loop.carried_index(slot), Builder.at(end).value(NextSlot, slot, count=2))
    return slot


def _store_ahead(loop: For, product: Product, alloc: LocalAlloc, slot: Value | None) -> Operation:
    """Keep what ``alloc`` has in a buffer from outside of the loop; or in the one that ``slot`` counts, to
    which it may be stored at once. Gives the store."""
    type: T.MemDescType = alloc.result.type
    if slot is None:
        place = Builder.at(product.begin)
        buffer = Builder.at(loop).value(LocalAlloc, type=type)
    else:
        two = T.MemDescType((2, *type.shape), type.element, type.layout, mutable=True)
        ring = Builder.at(loop).value(LocalAlloc, type=two)
        place = Builder.at(alloc)
        buffer = place.value(MemDescIndex, ring, slot)
    store = place.create(LocalStore, alloc.value, buffer)
    alloc.replace_with([buffer])
    return store


def _is_lasting(value: Value, loop: For) -> bool:
    return isinstance(value.type, T.MemDescType) and lasts(value, loop)


def _stored(value: Value, loop: For) -> LocalAlloc | None:
    """The buffer of the loop's own, for the product alone, that ``value`` is a view of."""
    op = value.defining_op
    while op is not None and value.has_one_use and SAME_MEMORY in op.traits:
        value = op.operands[0]
        op = value.defining_op
    is_own = op is not None and ALLOCATES in op.traits and op.parent is loop.body and bool(op.operands)
    return op if is_own and value.has_one_use else None


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


def _overlap(loop: For, sums: dict[Product, int], waits_before: Operation | None) -> None:
    *_, last = sums
    behind = _last_copy(loop)
    for product, index in sums.items():
        carry(loop, index, product, behind)
    op: Operation | None = last.start
    if waits_before is not None:
        op = Builder.at(waits_before).create(DotWait, pending=0)
    elif _is_in_memory(last):
        op = Builder.after(op).create(DotWait, pending=len(sums))
    else:
        op = start_in_parts(loop, op)
    while op is not None and MEETING not in op.traits and op.effects.fills != COPIES:
        op = op.next
    if op is not None and op.effects.fills:
        Builder.at(op).create(Barrier)
