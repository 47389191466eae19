"""The asynchronous products of a loop, what they add to, and how long what they read stays as it is: also
where it will lie in a ring of buffers that ``schedule_loops`` decided on and nobody has made yet."""

from __future__ import annotations

import attrs

from ptxforge.ir.core import Operation, Value
from ptxforge.ir.definition import ALLOCATES, PRODUCTS
from ptxforge.ir.ops.control import For
from ptxforge.ir.ops.shared import LocalLoad, MemDescIndex, MemDescSubslice, MemDescTrans
from ptxforge.ir.ops.warpgroup import DotAsync, DotBegin, DotWait
from ptxforge.ir.pressure import registers_of
from ptxforge.ir.views import memory_of


@attrs.frozen
class Product:
    """A product with its beginning and its wait. ``start`` starts it, or the last of its ``terms``
    (``split_products.py``)."""

    begin: DotBegin
    start: DotAsync
    wait: DotWait

    @property
    def terms(self) -> list[DotAsync]:
        """The products that are added to one sum, in order."""
        found = [self.start]
        while found[0].is_later_part:
            found.insert(0, found[0].c.defining_op)
        return found

    @property
    def operands(self) -> list[Value]:
        """What its terms multiply."""
        return [value for term in self.terms for value in (term.a, term.b)]

    @classmethod
    def behind(cls, wait: DotWait) -> Product | None:
        """The product that ``wait`` is for; ``None`` if it is not for one alone, that has a beginning."""
        start = wait.flights[0].defining_op if len(wait.flights) == 1 else None
        first = start
        while first is not None and first.is_later_part and first.c.has_one_use:
            first = first.c.defining_op
        begin = first.begin if first is not None else None
        return None if begin is None else cls(begin, start, wait)

    @property
    def total(self) -> Value:
        return self.wait.results[0]


def products_of(loop: For) -> list[Product]:
    """All products of ``loop``, in order; none if one of them is not started in every iteration, or not
    waited for at once."""
    found = []
    for op in loop.body.walk(DotAsync):
        user, *others = op.result.users
        if user.effects.reads_by == PRODUCTS and not others and op.parent is user.parent:
            continue  # one of several terms
        product = Product.behind(user) if user.effects.finishes == PRODUCTS and not others else None
        if product is None or op.parent is not loop.body or product.begin.parent is not loop.body:
            return []
        found.append(product)
    return found


def sum_of(loop: For, product: Product) -> int | None:
    """Which carried value ``product`` is added to, where the loop does nothing else with that."""
    argument, total = product.begin.value, product.total
    if not (argument in loop.carried and argument.has_one_use and total.has_one_use):
        return None
    return loop.carried_index(argument) if loop.next_of(argument) is total else None


def lasts(value: Value, loop: For) -> bool:
    """Whether memory stays as it is for another iteration: a tile in a ring of buffers, which has one more
    than are under way, or from outside of the loop."""
    op = value.defining_op
    while isinstance(op, (MemDescTrans, MemDescSubslice)):
        value, op = op.source, op.source.defining_op
    if value.owner_block is not loop.body:
        return True
    return gets_ring(op) or (isinstance(op, MemDescIndex) and op.source.owner_block is not loop.body)


def gets_ring(op: Operation | None) -> bool:
    """Whether ``op`` puts a tile into a buffer for which there will be a ring, out of which the last stage
    of its loop reads it."""
    if op is None or ALLOCATES not in op.traits or op.value is None:
        return False
    load, loop = op.value.defining_op, op.parent_op
    if load is None or load.parent is not op.parent or not runs_ahead(load):
        return False
    in_memory = next(user for user in load.result.users if ALLOCATES in user.traits)
    is_last = load.attributes["stage"] + loop.distance >= loop.last_stage - loop.peeled
    return is_last and in_memory.result.type == op.result.type


def runs_ahead(op: Operation | None) -> bool:
    """Whether ``op`` is a load whose tile goes through a ring of buffers."""
    return op is not None and "group" in op.attributes


def held_for(read: LocalLoad, loop: For) -> int | None:
    """How many registers of a thread hold the tile that an iteration of ``loop`` reads, in that iteration;
    ``None`` for memory that may have another tile where the iteration's product starts."""
    if lasts(read.source, loop):
        return 0
    op = memory_of(read.source)
    is_own = op is not None and ALLOCATES in op.traits and op.parent is loop.body and op.value is not None
    return 0 if gets_ring(op) else registers_of(op.value.type) if is_own else None
