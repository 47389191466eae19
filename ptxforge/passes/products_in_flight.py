"""When products of warpgroups start and are waited for: decided, and written on them.

    for … iter_args(%acc = %zero) {                                            (before)
      %a = local_alloc (load …);  %b = local_alloc (load …)
      %f = dot_begin %acc
      %g = dot_async %a, %b, %f
      %d = dot_wait %g
      yield %d }

    for … iter_args(%acc = %zero) {                                            (after)
      %a = local_alloc (load …);  %b = local_alloc (load …)
      %f = dot_begin %acc
      %g = dot_async %a, %b, %f
      %d = dot_wait %g {until = "next"}
      yield %d }

A product whose wait has ``until = "next"`` runs on while the next iteration begins, so that the tensor cores
always have the next one at hand: the loop will carry its flight. ``until = "use"`` waits where the iteration
first uses the sum. ``pipeline_loops`` carries that out (``running_products.py``).

Rules
-----
SUM        What runs on is added to a carried value that the loop does nothing with but add products to it.
ALL        Groups of products finish in order: if all products of the loop are such sums, each runs on.
SEVERAL    Else, of two products and more, sums run on, too, and each of the others is waited for where it is
           used.
ALLOWED    Not where the author forbids it (``disallow_acc_multi_buffer``): each product ends in its
           iteration.
OPERANDS   What runs on reads memory that stays as it is for one more iteration: tiles in a ring of buffers
           (which has one more than are under way), or from outside of the loop. Where SEVERAL are, a left
           operand may pass through registers, of which the assembler knows; alone, see PARTS.
STORED     Tiles that threads store themselves, for a product that is alone, stay in buffers in front of the
           loop (``local_alloc {buffers = 1}``): the next stores wait for it. Where loads for one tile run
           ahead in registers, there are two buffers for each (``loads_in_registers.py``).
EARLY      Of SEVERAL, one whose operands are tiles in shared memory, and which begins at zero, starts right
           behind the one before it (``dot_async {early = true}``). Its accumulators take registers from then
           on: only where there are enough.
PARTS      A product that is alone, and whose left operand passes through registers, is started in two
           (``parts = 2``): the registers of one are filled while the other multiplies. Each is at least one
           instruction deep along k, and computed in registers, element by element, from tiles that are read
           from rings of buffers (as they are, cast, two elements taken from each: ``parts_of_operands.py``),
           from what is the same along k (constants, scales of the operand's rows), and from what each half
           can take from registers: what is loaded or added up along k is computed as a whole, while the last
           iteration's product runs.
ROOM       What is computed as a whole lives beside the registers of both parts: only where there are enough,
           and where no second block is on the multiprocessor, which multiplies while this one waits.
CHAINS     have a schedule of their own (``chained_products.py``).

That a product which is added to a carried value does not run on is told in a remark.
"""

from __future__ import annotations

from collections.abc import Iterable

from ptxforge.ir import types as T
from ptxforge.ir.core import Function, Operation, Value
from ptxforge.ir.definition import ALLOCATES, SAME_MEMORY
from ptxforge.ir.ops.control import For
from ptxforge.ir.ops.convert_layout import ConvertLayout
from ptxforge.ir.ops.shared import LocalAlloc
from ptxforge.ir.pressure import blocks_with, held_in_front, registers_of, room
from ptxforge.ir.warps import warps_around
from ptxforge.layouts import wgmma
from ptxforge.layouts.encodings import Distributed, DotOperand
from ptxforge.passes.analysis.flights import (
    Product,
    gets_ring,
    held_for,
    lasts,
    products_of,
    runs_ahead,
    sum_of,
)
from ptxforge.passes.analysis.spare_memory import planned_shared_bytes
from ptxforge.passes.parts_of_operands import Cutter, Part
from ptxforge.passes.products_in_parts import parts_of_left
from ptxforge.passes.reduce_data_duplication import goes_through_shared_memory
from ptxforge.passes.rings import tile_behind, values_read
from ptxforge.passes.stays import StaysError
from ptxforge.support import machine
from ptxforge.support.target import Target
from ptxforge.support.worklist import each_once


def schedule_products(function: Function, loop: For, target: Target) -> bool:
    """Write when the products of ``loop``, whose loads are scheduled, start and are waited for."""
    products = products_of(loop)
    if not products:
        return False
    adding = [] if loop.disallow_acc_multi_buffer else [p for p in products if sum_of(loop, p) is not None]
    if len(adding) == len(products):
        try:
            _let_all_run_on(function, loop, products, target)
            return True
        except StaysError as why:
            _remark(function, products, str(why), loop)
    elif len(products) == 1:
        _remark(function, products, _why_no_sum(loop, products[0]), loop)
    sums = [p for p in adding if len(p.terms) == 1 and not _why_changed(loop, p)]
    if len(products) < 2 or len(sums) == len(products):
        return False
    _let_several_run(loop, products, sums)
    return True


def _remark(function: Function, products: list[Product], why: str, loop: For) -> None:
    """Say why ``products``, all those of ``loop``, do not run on; nothing if they may as well not."""
    if why:
        place = (products[0].start if len(products) == 1 else loop).location
        text = f"the next iteration begins when this one's products have ended: {why}"
        function.remarks.add("not-in-flight", text, place)


def _why_no_sum(loop: For, product: Product) -> str:
    """Which use of a carried value keeps ``product`` from being a SUM; empty if it is added to none."""
    if loop.disallow_acc_multi_buffer or product.begin.value not in loop.carried:
        return ""
    return "the loop does more with the sum than adding to it; let it do the rest behind, or with another sum"


def _let_all_run_on(function: Function, loop: For, products: list[Product], target: Target) -> None:
    """See ALL, STORED and PARTS.

    Raises:
        StaysError: when one of ``products``, which are the loop's, has to end in its iteration; without a
            text where it may as well.
    """
    stored = _stored_tiles(loop, products[0]) if len(products) == 1 else []
    for tile in stored:
        tile.buffers = tile.buffers or 1
    for product in products if not stored else ():
        if why := _why_changed(loop, product):
            raise StaysError(why)
        if not all(map(_is_in_memory, product.operands)):
            _cut(function, loop, products, target)
    for product in products:
        product.wait.until = "next"


def _let_several_run(loop: For, products: list[Product], sums: list[Product]) -> None:
    """See SEVERAL and EARLY."""
    used = [product for product in products if product not in sums]
    early = [product for product in used if _starts_at_once(loop, product)]
    if _has_room_for_early(loop, products, sums, early):
        for product in early:
            if product is not used[0]:
                product.start.early = True
    for product in products:
        product.wait.until = "next" if product in sums else "use"


# -- what operands last for -------------------------------------------------------------------------------


def _is_in_memory(value: Value) -> bool:
    return isinstance(value.type, T.MemDescType)


def _why_changed(loop: For, product: Product) -> str:
    """Why what ``product`` reads is not the same for another iteration; empty where it is. (Registers from
    outside of the loop may be packed anew for its first product.)"""
    for number, value in enumerate(product.operands):
        if _is_in_memory(value) and not lasts(value, loop):
            name = ("left", "right")[number % 2]
            return f"threads store its {name} operand in every iteration; what copies bring ahead lasts"
    if _is_in_memory(product.start.a) or product.start.a.owner_block is loop.body:
        return ""
    why = "its left operand, the same in all iterations, is computed, and so in registers"
    return f"{why}; used as it was loaded, it lies in shared memory"


def _stored_tiles(loop: For, product: Product) -> list[LocalAlloc]:
    """The tiles of STORED; none if ``product`` reads something else that does not last."""
    found: dict[LocalAlloc, None] = {}
    for value in product.operands:
        if (tile := _stored(value, loop, product)) is not None:
            found[tile] = None
        elif not (_is_in_memory(value) and lasts(value, loop)):
            return []
    return list(found)


def _stored(value: Value, loop: For, product: Product) -> LocalAlloc | None:
    """The buffer of the loop's own, for the ``product`` alone, that ``value`` is a view of."""
    op = value.defining_op
    is_own = set(product.terms).issuperset(value.users)
    while op is not None and is_own and SAME_MEMORY in op.traits:
        value = op.operands[0]
        op, is_own = value.defining_op, value.has_one_use
    is_new = op is not None and ALLOCATES in op.traits and op.parent is loop.body and bool(op.operands)
    return op if is_new and is_own and not gets_ring(op) else None


# -- several ----------------------------------------------------------------------------------------------


def _starts_at_once(loop: For, product: Product) -> bool:
    """Whether ``product`` begins at zero and needs nothing of its iteration but tiles that copies bring."""
    work: list[Operation] = [product.start]
    for op in each_once(work):
        if gets_ring(op):
            continue
        if SAME_MEMORY not in op.traits and op not in (product.start, product.begin):
            return False
        makers = (value.defining_op for value in op.operands)
        work += [made for made in makers if made is not None and made.parent is loop.body]
    return product.begin.is_zero


def _has_room_for_early(
    loop: For, products: list[Product], sums: list[Product], early: list[Product]
) -> bool:
    """See EARLY. What begins when the early ones have been used takes their registers."""
    late = [product for product in products if product not in sums and product not in early]
    words = _registers(product.total for product in sums)
    words += max(_registers(product.total for product in some) for some in (early, late))
    words += _registers(p.start.a for p in products if not _is_in_memory(p.start.a))
    return words + machine.REGISTERS_BESIDE_FLIGHTS <= room(warps_around(loop).threads)


def _registers(values: Iterable[Value]) -> int:
    return sum(registers_of(value.type) for value in values)


# -- parts ------------------------------------------------------------------------------------------------


def _cut(function: Function, loop: For, products: list[Product], target: Target) -> None:
    """See PARTS and ROOM. Raises :class:`StaysError` where they do not admit it."""
    if len(products) > 1 or len(products[0].terms) > 1:
        raise StaysError("one has a left operand in registers, and there are others; alone it has parts")
    (product,), parts = products, machine.PARTS_THROUGH_REGISTERS
    start, layout = product.start, product.start.a.type.layout
    depth, least = start.b.type.shape[0], parts * wgmma.K_BYTES * 8 // start.b.type.element.bits
    if depth % least:
        raise StaysError(f"{depth} elements along k make no {parts} parts; a block of {least} does")
    cutter = _PlannedCutter(function, loop, target)
    is_own = isinstance(layout, DotOperand) and start.a.has_one_use
    held = [cutter.held(part, layout) for part in parts_of_left(start, parts)] if is_own else [None]
    if None in held:
        raise StaysError("no half of its left operand can be computed; of elements that are loaded it can")
    if any(held):
        _check_room(function, loop, product, target)
    start.parts = parts


def _check_room(function: Function, loop: For, product: Product, target: Target) -> None:
    """See ROOM."""
    threads, start = warps_around(loop).threads, product.start
    tiles = (op.result for op in loop.body.operations if runs_ahead(op))
    in_memory = {tile for tile in tiles if tile not in values_read(tile, loop.body)}
    held = held_in_front(function, start, without={product.begin.value, *in_memory})
    words = _registers([product.total, start.a]) + held + machine.REGISTERS_BESIDE_FLIGHTS
    if words > room(threads):
        few = f"it takes {words} registers of a thread's {room(threads)} with what is computed meanwhile"
        raise StaysError(f"{few}; a smaller block takes fewer")
    shared = planned_shared_bytes(function)
    shared += sum(op.x.type.bytes for op in function.walk(ConvertLayout) if _is_exchanged(op))
    blocks = min(target.max_shared_bytes // max(shared, 1), blocks_with(words, threads))
    if blocks >= machine.BLOCKS_THAT_HIDE_A_WAIT:
        raise StaysError


def _is_exchanged(op: ConvertLayout) -> bool:
    """Whether threads will store a tile to shared memory and read an operand there."""
    return goes_through_shared_memory(op) and not runs_ahead(tile_behind(op, op.parent))


class _PlannedCutter(Cutter):
    """Says what parts of values hold when tiles have gone through rings of buffers, and conversions that
    threads do through shared memory are reads of it (``reduce_data_duplication``)."""

    def __init__(self, function: Function, loop: For, target: Target):
        super().__init__(loop.body, lambda read: held_for(read, loop))
        self.room = target.max_shared_bytes - planned_shared_bytes(function)

    def _held_by_read(self, part: Part) -> int | None:
        """How many registers hold the tile that will be read for ``part``; ``None`` if none is."""
        op = self._source(part)
        if op is None:
            return None
        if runs_ahead(tile_behind(op, self.body)):
            return 0
        is_exchange = op.changes_layout and op.parent is self.body and goes_through_shared_memory(op)
        if not is_exchange or op.x.type.bytes > self.room or op.x.owner_block is not self.body:
            return None
        return registers_of(op.x.type)

    def _held_in_slices(self, part: Part, layout: Distributed) -> int | None:
        return super()._held_in_slices(part, layout) if self._held_by_read(part) is None else None

    def _held_below(self, part: Part, layout: Distributed) -> int | None:
        held = self._held_by_read(part)
        return super()._held_below(part, layout) if held is None else held
