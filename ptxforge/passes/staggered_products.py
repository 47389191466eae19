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

Which run on into the next iteration, which start early, and which wait until their use is written on them
(``products_in_flight.py``).

Rules
-----
EARLY     A product that is ``early`` starts right behind the one before it, with the views of its tiles and
          the waits for these.
SUMS      What runs on is waited for in the next iteration, by the first wait of that.
LAST      A product that is used goes before a sum that could start at once, if nobody waits between: that
          one is under way while threads work with what they waited for.
COPIES    go into buffers that the last iteration's products have read, so they follow the first wait and a
          barrier.
"""

from __future__ import annotations

from collections.abc import Iterable

from ptxforge.ir import types as T
from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Operation
from ptxforge.ir.definition import COPIES, PRODUCTS, SAME_MEMORY, TENSORS
from ptxforge.ir.ops.control import For
from ptxforge.ir.ops.shared import AsyncCopyGlobalToLocal, AsyncWait, LocalLoad
from ptxforge.ir.ops.warpgroup import DotAsync, DotBegin, DotWait
from ptxforge.ir.views import memory_of
from ptxforge.passes.analysis.flights import Product
from ptxforge.support.errors import IRError
from ptxforge.support.worklist import each_once

_COPIED = (COPIES, TENSORS)
"""The queues of copies."""


def carry(loop: For, product: Product) -> None:
    """Let what ``product`` is added to be under way at the end of an iteration: its wait is behind ``loop``.
    Raises :class:`IRError` if that does not carry it."""
    if product.begin.value not in loop.carried or loop.next_of(product.begin.value) is not product.total:
        raise IRError("a product is to run on into the next iteration, which does not add to its sum")
    index = loop.carried_index(product.begin.value)
    begun = Builder.at(loop).value(DotBegin, loop.initial[index])
    loop.set_operand(loop.first_initial + index, begun)
    argument, result = loop.carried[index], loop.results[index]
    argument.type = result.type = begun.type
    product.begin.replace_with([argument])
    product.total.replace_all_uses_with(product.start.result)
    product.wait.erase()
    total = Builder.after(loop).create(DotWait, result, stays=int(not result.uses))
    for landed in total.results:
        result.replace_all_uses_with(landed, unless=lambda user: user is total)


def stagger(loop: For, products: list[Product], sums: set[Product]) -> list[Operation]:
    """Carry out what is written on the ``products`` of ``loop``, of which ``sums`` run on into the next
    iteration, and the others are used. The waits for what only the next iteration uses."""
    used = [product for product in products if product not in sums]
    _start_early(loop, used)
    ends = [product.wait for product in used if _wait_late(loop, product)]
    for product in products:
        if product in sums:
            carry(loop, product)
    _sums_last([p for p in products if p in sums], {product.start for product in used})
    head = next(loop.body.of(DotWait))
    begun = [product.start.c for product in products if product in sums]
    head.set_operands([*head.flights, *begun])
    head.stays = len(begun)
    return ends


# -- starts and waits --------------------------------------------------------------------------------------


def _start_early(loop: For, products: list[Product]) -> None:
    """See EARLY. Raises :class:`IRError` for a product that needs more than its tiles."""
    rings = _Rings(loop)
    last = products[0].start
    for product in products[1:]:
        if not product.start.attributes.pop("early", False):
            continue
        needed = rings.needed(product.start)
        if needed is None:
            raise IRError("a product is to start early, and needs more than tiles that were copied")
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
        """What must be done before ``start`` in a step, itself included, in order; ``None`` if that is more
        than views of tiles and waits for them. (Their copies have been started in a step before.)"""
        work, found = [start], set()
        for op in each_once(work):
            found.add(op)
            is_light = SAME_MEMORY in op.traits or op.get_effects().finishes in _COPIED
            if not (is_light or op in (start, start.begin)):
                return None
            for value in op.operands:
                inner = value.defining_op
                is_copy = inner is not None and inner.effects.starts in _COPIED
                if inner is not None and inner.parent is self.loop.body and not is_copy:
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


def _wait_late(loop: For, product: Product) -> bool:
    """Wait for a product in front of what uses it first; whether that is the end of the iteration."""
    users = {loop.body.ancestor_of(user) for user in product.total.users}
    first = next((op for op in loop.body.operations if op in users), loop.body.terminator)
    product.wait.move_before(first)
    return first.is_terminator


# -- copies ------------------------------------------------------------------------------------------------


def copy_early(loop: For, turn: dict[Operation, int], barrier: list[Operation]) -> dict[Operation, int]:
    """The turns of a loop whose copies, behind their ``barrier``, may follow the first wait: see COPIES; the
    given ones, by which late stages come first, where they may not."""
    head = next(loop.body.of(DotWait))
    copies = [op for op in loop.body.operations if op.get_effects().starts in _COPIED]
    needed = _addresses(loop, copies, turn)
    if needed is None:
        return turn
    in_front = [op for op in loop.body.operations if not turn.get(op) and op.is_before_in_block(head)]
    late = _late_reads(loop, head, in_front)
    waits = [w for w in loop.body.of(AsyncWait) if not turn[w] and (late is not None or w not in in_front)]
    parts = ((*in_front, head), waits, barrier, needed, late or ())
    part = {op: number for number, ops in enumerate(parts) for op in ops}
    place = {op: (part.get(op, len(parts)), at) for op, at in turn.items()}
    order = sorted(set(place.values()))
    return {op: order.index(at) for op, at in place.items()}


def _late_reads(loop: For, head: Operation, in_front: list[Operation]) -> list[Operation] | None:
    """The reads in front of ``head`` of what threads copied, if all of them serve what is computed behind it,
    so that they and the wait for the copies can stand there; ``None`` if one does not."""
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


def _addresses(loop: For, copies: list[Operation], turn: dict[Operation, int]) -> list[Operation] | None:
    """``copies`` and what their operands are computed from in the same turn, in order; ``None`` if that reads
    memory."""
    work, found = list(copies), set()
    for op in each_once(work):
        if op.regions or not (op.is_pure or op.get_effects().starts in _COPIED):
            return None
        found.add(op)
        inner = (value.defining_op for value in op.operands)
        work += [x for x in inner if x is not None and x.parent is loop.body and turn[x] == turn[op]]
    return [op for op in loop.body.operations if op in found]
