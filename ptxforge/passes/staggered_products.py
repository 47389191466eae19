"""Several products in an iteration: those that can start at once do, and each is waited for where it is used.

    for … iter_args(%dk = %zero) {                 (before: each product is waited for at once)
      %s = K Qᵀ                    start, wait
      %p = exp2(%s …)
      %dp = V dOᵀ                  start, wait
      %ds = %p · (%dp …)
      %dk += %ds Q                 start, wait
      barrier; copies of later tiles }

    for … iter_args(%dk = flight) {                (after: attention backward)
      start s = K Qᵀ;  start dp = V dOᵀ
      wait for s, and so for the last iteration's dk
      barrier; copies of later tiles
      %p = exp2(%s …)
      wait for dp
      %ds = %p · (%dp …)
      start dk += %ds Q }
    wait for dk

The tensor cores multiply while exponentials are computed, and copies start an iteration's length before
anybody waits for them.

Rules
-----
PRODUCTS  The loop's products are all started in every iteration, and one at least is used in it.
EARLY     A product whose operands are tiles in shared memory, and which begins at zero, starts right behind
          the one before it. Its accumulators take registers from then on: only where there are enough.
SUMS      A carried value that the loop does nothing with but add products to it (``overlap_products``) is
          waited for in the next iteration, by the first wait of that: groups finish in order. What the
          product reads must last as long; of registers the assembler knows.
LAST      A product that is used goes before a sum that could start at once, if nobody waits between: that
          one is under way while threads work with what they waited for.
COPIES    go into buffers that the last iteration's products have read, so they follow the first wait and a
          barrier.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from ptxforge.ir import types as T
from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Operation, Value
from ptxforge.ir.definition import COPIES, PRODUCTS, SAME_MEMORY, TENSORS
from ptxforge.ir.ops.control import For
from ptxforge.ir.ops.memory import Barrier
from ptxforge.ir.ops.shared import (
    AsyncCopyGlobalToLocal,
    AsyncWait,
    LocalLoad,
    MemDescIndex,
    MemDescSubslice,
    MemDescTrans,
)
from ptxforge.ir.ops.warpgroup import DotAsync, DotBegin, DotWait
from ptxforge.ir.pressure import registers_of, room
from ptxforge.ir.views import memory_of
from ptxforge.support import machine
from ptxforge.support.worklist import each_once

_COPIED = (COPIES, TENSORS)
"""The queues of copies."""


@attrs.frozen
class Product:
    """A product with its beginning and its wait."""

    begin: DotBegin
    start: DotAsync
    wait: DotWait

    @property
    def total(self) -> Value:
        return self.wait.results[0]


def products_of(loop: For) -> list[Product]:
    """All products of ``loop``, in order; none if one of them is not started in every iteration, or not
    waited for at once."""
    found = []
    for op in loop.body.walk(DotAsync):
        begin, waits = op.begin, op.result.users
        is_simple = (
            op.parent is loop.body and begin is not None and begin.parent is loop.body
            and len(waits) == 1 and waits[0].effects.finishes == PRODUCTS
            and waits[0].pending == 0 and len(waits[0].flights) == 1
        )  # fmt: skip
        if not is_simple:
            return []
        found.append(Product(begin, op, waits[0]))
    return found


def carried_by(loop: For, product: Product) -> int | None:
    """Which carried value ``product`` is added to, where the loop does nothing else with that, and the
    product's operands last for another iteration: those in shared memory, and registers, which are of this
    iteration (those from outside of the loop may be packed anew for its first product)."""
    a, b = product.start.a, product.start.b
    a_lasts = lasts(a, loop) if isinstance(a.type, T.MemDescType) else a.owner_block is loop.body
    return sum_of(loop, product) if a_lasts and lasts(b, loop) else None


def sum_of(loop: For, product: Product) -> int | None:
    """Which carried value ``product`` is added to, where the loop does nothing else with that."""
    argument, total = product.begin.value, product.total
    if not (argument in loop.carried and argument.has_one_use and total.has_one_use):
        return None
    return loop.carried_index(argument) if loop.next_of(argument) is total else None


def lasts(value: Value, loop: For) -> bool:
    """Whether memory is a tile in a ring of buffers, which has one more than are under way, or from outside
    of the loop."""
    op = value.defining_op
    while isinstance(op, (MemDescTrans, MemDescSubslice)):
        value, op = op.source, op.source.defining_op
    if value.owner_block is not loop.body:
        return True
    return isinstance(op, MemDescIndex) and op.source.owner_block is not loop.body


def carry(loop: For, index: int, product: Product, place: Operation) -> None:
    """Let carried value ``index`` be under way at the end of an iteration: its wait is behind ``place``, the
    loop or what follows it."""
    begun = Builder.at(loop).value(DotBegin, loop.initial[index])
    loop.set_operand(loop.first_initial + index, begun)
    argument, result = loop.carried[index], loop.results[index]
    argument.type = result.type = begun.type
    product.begin.replace_with([argument])
    product.total.replace_all_uses_with(product.start.result)
    product.wait.erase()
    behind = Builder.after(place)
    if result.uses:
        total = behind.create(DotWait, result, pending=0)
        result.replace_all_uses_with(total.results[0], unless=lambda user: user is total)
    else:
        behind.create(DotWait, pending=0)


def stagger(loop: For, threads: int) -> bool:
    """Rewrite ``loop``, a loop of ``threads`` threads, if the rules admit it."""
    products = products_of(loop)
    adding = [] if loop.disallow_acc_multi_buffer else products
    sums = {p: at for p in adding if (at := carried_by(loop, p)) is not None}
    used = [p for p in products if p not in sums]
    if len(products) < 2 or not used:
        return False
    if _have_room(loop, products, sums, threads):
        _start_early(loop, used)
    for product in used:
        _wait_late(loop, product)
    for product, index in sums.items():
        carry(loop, index, product, loop)
    _sums_last(sums, {product.start for product in used})
    _count_pending(loop, used)
    _copy_early(loop)
    return True


def _have_room(loop: For, products: list[Product], sums: Iterable[Product], threads: int) -> bool:
    """See EARLY. What begins when the early ones have been used takes their registers."""
    rings = _Rings(loop)
    early = [p for p in products if p not in sums and p.begin.is_zero and rings.needed(p.start) is not None]
    late = [p for p in products if p not in sums and p not in early]
    words = sum(registers_of(p.total.type) for p in sums)
    words += max(sum(registers_of(p.total.type) for p in some) for some in (early, late))
    words += sum(registers_of(p.start.a.type) for p in products if isinstance(p.start.a.type, T.TensorType))
    return words + machine.REGISTERS_BESIDE_FLIGHTS <= room(threads)


# -- starts and waits --------------------------------------------------------------------------------------


def _start_early(loop: For, products: list[Product]) -> None:
    """See EARLY."""
    rings = _Rings(loop)
    last = products[0].start
    for product in products[1:]:
        needed = rings.needed(product.start)
        if needed is None or not product.begin.is_zero:
            continue
        _move_behind(last, needed)
        last = product.start


def _sums_last(sums: Iterable[Product], used: set[Operation]) -> None:
    """See LAST."""
    for product in sums:
        op = place = product.start
        while op.effects.finishes != PRODUCTS and not op.is_terminator:
            place = op if op in used else place
            op = op.next
        if place is not product.start:
            product.start.move_after(place)


class _Rings:
    """Which waits say that a tile that threads copied has come, by the memory of its ring. (Views of what TMA
    copied name theirs.)"""

    def __init__(self, loop: For):
        self.loop = loop
        copied = {memory_of(op.destination) for op in loop.parent.walk(AsyncCopyGlobalToLocal)}
        self.waits = dict.fromkeys(copied, list(loop.body.of(AsyncWait)))

    def needed(self, start: DotAsync) -> list[Operation] | None:
        """What must be done before ``start`` in an iteration, itself included, in order; ``None`` if that is
        more than views of tiles and waits for them."""
        work, found = [start], set()
        for op in each_once(work):
            found.add(op)
            is_light = SAME_MEMORY in op.traits or op.get_effects().finishes in _COPIED
            if not (is_light or op in (start, start.begin)):
                return None
            for value in op.operands:
                inner = value.defining_op
                if inner is not None and inner.parent is self.loop.body:
                    work.append(inner)
                if isinstance(value.type, T.MemDescType):
                    work += self.waits.get(memory_of(value), ()) if op is start else ()
        return [op for op in self.loop.body.operations if op in found]


def _move_behind(place: Operation, ops: Iterable[Operation]) -> None:
    """Put those of ``ops``, which are in order, that stand behind ``place`` right behind it."""
    for op in ops:
        if op is not place and place.is_before_in_block(op):
            op.move_after(place)
            place = op


def _wait_late(loop: For, product: Product) -> None:
    """Wait for a product in front of what uses it first."""
    users = {loop.body.ancestor_of(user) for user in product.total.users}
    first = next((op for op in loop.body.operations if op in users), loop.body.terminator)
    product.wait.move_before(first)


def _count_pending(loop: For, products: list[Product]) -> None:
    """Each wait leaves those groups unfinished that were started behind its own, and not waited for."""
    unfinished: list[Operation] = []
    by_wait = {product.wait: product.start for product in products}
    for op in loop.body.operations:
        if op.effects.reads_by == PRODUCTS:
            unfinished.append(op)
        if op in by_wait:
            if by_wait[op] in unfinished:
                del unfinished[: unfinished.index(by_wait[op]) + 1]
            op.pending = len(unfinished)


# -- copies ------------------------------------------------------------------------------------------------


def _copy_early(loop: For) -> None:
    """See COPIES: behind the first wait of an iteration, or where they are, a barrier before them."""
    body = list(loop.body.operations)
    head = next(loop.body.of(DotWait))
    copies = [op for op in body if op.get_effects().starts in _COPIED]
    if not copies:
        return
    barrier = next(loop.body.of(Barrier), None)
    if barrier is None:
        barrier = Builder.at(copies[0]).create(Barrier)
    needed = _addresses(loop, copies)
    if needed is None or not all(head.is_before_in_block(op) for op in copies):
        return
    late = _late_reads(loop, head)
    is_late = late is not None
    before = [op for op in loop.body.of(AsyncWait) if op.is_before_in_block(copies[0])]
    waits = [op for op in before if is_late or head.is_before_in_block(op)]
    place = head
    for op in [*waits, barrier]:
        op.remove()
        loop.body.insert_after(place, op)
        place = op
    _move_behind(place, needed)
    place = needed[-1]
    for op in late or ():
        op.move_after(place)
        place = op


def _late_reads(loop: For, head: Operation) -> list[Operation] | None:
    """The reads in front of ``head`` of what threads copied, if all of them serve what is computed behind it,
    so that they and the wait for the copies can stand there; ``None`` if one does not."""
    in_front = [op for op in loop.body.operations if op.is_before_in_block(head)]
    copies = list(loop.body.of(AsyncCopyGlobalToLocal))
    copied = {memory_of(op.destination) for op in copies}
    found = []
    for op in in_front:
        if op.effects.reads_by == PRODUCTS and copied & {memory_of(value) for value in (op.a, op.b)}:
            return None
        if isinstance(op, LocalLoad):
            users = (loop.body.ancestor_of(user) for user in op.result.users)
            if not all(user is not None and head.is_before_in_block(user) for user in users):
                return None
            found.append(op)
    return found


def _addresses(loop: For, copies: list[Operation]) -> list[Operation] | None:
    """``copies`` and what their operands are computed from in the same iteration, in order; ``None`` if that
    reads memory."""
    work, found = list(copies), set()
    for op in each_once(work):
        if op.regions or not (op.is_pure or op.get_effects().starts in _COPIED):
            return None
        found.add(op)
        inner = (value.defining_op for value in op.operands)
        work += [x for x in inner if x is not None and x.parent is loop.body]
    return [op for op in loop.body.operations if op in found]
