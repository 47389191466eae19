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
      dot_wait %acc {stays = 1}                              the last iteration's product is finished
      barrier                                                … in all warps
      async_copy …
      yield %g }
    %d = dot_wait %acc

Which products do, ``products_in_flight.py`` has decided and written on them; ``pipeline_loops`` asks for it
when a loop has its rings of buffers, and gives waits their turns with all else. Where some wait until their
``use``, see ``staggered_products.py``.

Rules
-----
STORED    A tile with ``buffers`` is stored to one from outside of the loop, when threads have waited for the
          last product. Of two buffers, they store to the other one meanwhile, and wait in front of the next
          product.
COPIES    go into buffers that the last iteration's product has read: a barrier in front of them, behind the
          wait for that (``pipeline_loops``).
"""

from __future__ import annotations

from collections.abc import Collection

import attrs

from ptxforge.ir import types as T
from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Operation, Value
from ptxforge.ir.ops.control import For
from ptxforge.ir.ops.shared import LocalAlloc, LocalStore, MemDescIndex, NextSlot
from ptxforge.ir.ops.warpgroup import DotWait
from ptxforge.ir.views import memory_of
from ptxforge.passes.analysis.flights import Product
from ptxforge.passes.staggered_products import carry, stagger
from ptxforge.support.errors import IRError


@attrs.frozen
class Running:
    """Products of a loop that are under way while it does something else: whether copies may go in front of
    what waits until its ``use``, and which waits stand where the iteration ``ends``."""

    copies_early: bool = False
    ends: Collection[Operation] = ()


def has_schedule(loop: For) -> bool:
    """Whether it is written on products of ``loop`` when they are waited for."""
    return any(wait.until for wait in loop.body.of(DotWait))


def let_products_run(loop: For) -> Running | None:
    """Put waits for products, and starts, to where the schedule of ``loop`` has them; ``None`` if no product
    is under way elsewhere than between its start and its wait."""
    waits = {_take(wait): wait.attributes.pop("until") for wait in loop.body.of(DotWait) if wait.until}
    if not waits:
        return None
    if all(until == "next" for until in waits.values()):
        return _let_run_on(loop, list(waits))
    sums = {product for product, until in waits.items() if until == "next"}
    ends = stagger(loop, list(waits), sums)
    return Running(len(ends) + len(sums) < len(waits), ends)


def _take(wait: DotWait) -> Product:
    """The product that ``wait`` is for. Raises :class:`IRError` if it is not for one alone, that has a
    beginning."""
    product = Product.behind(wait)
    if product is None:
        raise IRError("a 'dot_wait' that is to move waits for no product alone")
    return product


def _let_run_on(loop: For, products: list[Product]) -> Running:
    """Let all ``products`` of ``loop`` run on."""
    last, waits_before = products[-1].start, _keep_buffers(loop, products)
    for product in products:
        carry(loop, product)
    place = Builder.after(last) if waits_before is None else Builder.at(waits_before)
    begun = [product.terms[0].c for product in products]
    _take_turn(waits_before or last, place.create(DotWait, *begun, stays=len(begun)))
    return Running()


def _take_turn(scheduled: Operation, *ops: Operation) -> None:
    """Let ``ops`` have their turn with what is ``scheduled``, if that has one already."""
    turn = {name: scheduled.attributes[name] for name in ("stage", "turn") if name in scheduled.attributes}
    for op in ops:
        op.attributes.update(turn)


def _keep_buffers(loop: For, products: list[Product]) -> Operation | None:
    """See STORED. What waits for the last product, if there are such tiles: the first store, or the
    product."""
    reads = (memory_of(value) for product in products for value in product.operands)
    tiles = [tile for tile in dict.fromkeys(reads) if tile is not None and "buffers" in tile.attributes]
    if not tiles:
        return None
    count = max(tile.attributes.pop("buffers") for tile in tiles)
    slot = _count_slots(loop, count, products[0]) if count > 1 else None
    stores = [_store_ahead(loop, products[0], tile, slot, count) for tile in tiles]
    return stores[0] if slot is None else products[0].start


def _count_slots(loop: For, count: int, product: Product) -> Value:
    """A carried value that is 0, 1, … count - 1, 0, 1 …, and changes behind ``product``."""
    slot, _ = loop.add_carried(Builder.at(loop).constant(0, T.I32), "buffer")
    end = loop.body.terminator
    following = Builder.at(end).create(NextSlot, slot, count=count)
    _take_turn(product.start, following)
    end.set_operand(loop.carried_index(slot), following.result)
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
        _take_turn(tile, buffer.defining_op)
    store = place.create(LocalStore, tile.value, buffer)
    _take_turn(tile, store)
    tile.replace_with([buffer])
    return store
