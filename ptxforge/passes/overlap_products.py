"""Products of warpgroups run on while the next iteration begins, as their schedule says.

    for … iter_args(%acc = %zero) {                          (before)
      async_wait {num = 1}
      %f = dot_begin %acc
      %g = dot_async %a, %b, %f
      %d = dot_wait %g {until = "next"}
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

Which products do, and in how many parts, ``products_in_flight.py`` has decided and written on them. Where
some wait until their ``use``, see ``staggered_products.py``; for ``parts``, ``products_in_parts.py``.

Rules
-----
STORED    A tile with ``buffers`` is stored to one from outside of the loop, when threads have waited for the
          last product. Of two buffers, they store to the other one meanwhile, and wait in front of the next
          product.
COPIES    go into buffers that the last iteration's product has read: a barrier in front of them, behind the
          wait for that.
"""

from __future__ import annotations

from ptxforge.ir import types as T
from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Function, Operation, Value
from ptxforge.ir.definition import COPIES, MEETING, TENSORS
from ptxforge.ir.ops.control import For
from ptxforge.ir.ops.memory import Barrier
from ptxforge.ir.ops.shared import LocalAlloc, LocalStore, MemDescIndex, NextSlot
from ptxforge.ir.ops.warpgroup import DotWait
from ptxforge.ir.views import memory_of
from ptxforge.passes.analysis.flights import Product
from ptxforge.passes.products_in_parts import has_parts, start_in_parts
from ptxforge.passes.staggered_products import carry, stagger
from ptxforge.support.errors import IRError
from ptxforge.support.target import Target


def overlap_products(function: Function, target: Target) -> bool:
    """Move the waits for products to where the schedule of their loop has them."""
    changed = False
    for loop in function.walk(For):
        waits = {_take(wait): wait.attributes.pop("until") for wait in loop.body.of(DotWait) if wait.until}
        if not waits:
            continue
        if all(until == "next" for until in waits.values()):
            _overlap(function, loop, list(waits))
        else:
            stagger(loop, list(waits), {product for product, until in waits.items() if until == "next"})
        changed = True
    return changed


def _take(wait: DotWait) -> Product:
    """The product that ``wait`` is for. Raises :class:`IRError` if it is not for one alone, that has a
    beginning."""
    product = Product.behind(wait)
    if product is None:
        raise IRError("a 'dot_wait' that is to move waits for no product alone")
    return product


def _overlap(function: Function, loop: For, products: list[Product]) -> None:
    """Let all ``products`` of ``loop`` run on."""
    last = products[-1].start
    parts, waits_before = last.attributes.pop("parts", 1), _keep_buffers(loop, products)
    if not has_parts(loop, last, parts):
        text = "the next iteration begins when this one's product has ended: no part of it can be computed"
        function.remarks.add("not-in-flight", text, last.location)
        return
    behind = _last_copy(loop)
    for product in products:
        carry(loop, product, behind)
    op: Operation | None = last
    if waits_before is not None:
        op = Builder.at(waits_before).create(DotWait, pending=0)
    elif parts > 1:
        op = start_in_parts(loop, last, parts)
    else:
        op = Builder.after(last).create(DotWait, pending=sum(len(product.terms) for product in products))
    while op is not None and MEETING not in op.traits and op.effects.fills != COPIES:
        op = op.next
    if op is not None and op.effects.fills:
        Builder.at(op).create(Barrier)


def _keep_buffers(loop: For, products: list[Product]) -> Operation | None:
    """See STORED. What waits for the last product, if there are such tiles: the first store, or the
    product."""
    reads = (memory_of(value) for product in products for value in product.operands)
    tiles = [tile for tile in dict.fromkeys(reads) if tile is not None and "buffers" in tile.attributes]
    if not tiles:
        return None
    count = max(tile.attributes.pop("buffers") for tile in tiles)
    slot = _count_slots(loop, count) if count > 1 else None
    stores = [_store_ahead(loop, products[0], tile, slot, count) for tile in tiles]
    return stores[0] if slot is None else products[0].start


def _count_slots(loop: For, count: int) -> Value:
    """A carried value that is 0, 1, … count - 1, 0, 1 …"""
    slot, _ = loop.add_carried(Builder.at(loop).constant(0, T.I32), "buffer")
    end = loop.body.terminator
    end.set_operand(loop.carried_index(slot), Builder.at(end).value(NextSlot, slot, count=count))
    return slot


def _store_ahead(
    loop: For, product: Product, tile: LocalAlloc, slot: Value | None, count: int
) -> Operation:
    """Keep what ``tile`` has in a buffer from outside of the loop; or in the one of ``count`` that ``slot``
    numbers, to which it may be stored at once. Gives the store."""
    type: T.MemDescType = tile.result.type
    if slot is None:
        place = Builder.at(product.begin)
        buffer = Builder.at(loop).value(LocalAlloc, type=type)
    else:
        several = T.MemDescType((count, *type.shape), type.element, type.layout, mutable=True)
        ring = Builder.at(loop).value(LocalAlloc, type=several)
        place = Builder.at(tile)
        buffer = place.value(MemDescIndex, ring, slot)
    store = place.create(LocalStore, tile.value, buffer)
    tile.replace_with([buffer])
    return store


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
