"""Reads of operands and copies are done between the instructions of products.

    async_copy %p, %buffer                             (before: 2 instructions of a thread)
    async_commit_group
    %b = local_load … : dot_op1                        (4 instructions each)
    %a = local_load … : dot_op0
    %d = dot %a, %b, %c                                (32 instructions)

    async_copy %p, %buffer {order = [8, 16]}           (after)
    async_commit_group {order = [24]}
    %a = local_load … {order = [0, 0, 0, 0]}
    %b = local_load … {order = [0, 0, 0, 16]}
    %d = dot %a, %b, %c

``order`` says for each piece how many instructions of the products behind it come first (``Piecewise``). What
no product takes moves to where it must be done at the latest; the code generator keeps the order that it
finds.

Rules
-----
WAITING   A read for a product, a copy or the end of its group may wait until its value is needed, or until an
          operation with other effects, a barrier above all. Copies wait for products alone.
OWN       A piece of the product's own operands is read some instructions before the first one that needs it:
          its latency is hidden, and few registers are live. The left operand comes first.
NEXT      Then what the next product will need, a piece before each instruction from the first on.
COPIES    are spread evenly over what is left. Where several products in a row can take them, those of each
          ``async_copy`` begin with another product, as evenly as can be, but none with the last, which starts
          behind a barrier. Of what has begun, products of tensor cores take equal shares if these are small,
          up to 3 for 32 instructions: 12 copies for 4 products are 3 each. Otherwise the first products take
          5 each, and the last what remains: 16 copies are 5, 5, 5, 1. (What that is worth:
          ``docs/performance.md``.)
STORED    A conversion through shared memory in several parts, for a store alone, is left to that: it stores
          each part when it is there.
"""

from __future__ import annotations

import itertools

import attrs

from ptxforge.ir.core import Block, Function, Operation, Value
from ptxforge.ir.definition import COPIES, Piecewise
from ptxforge.ir.ops.control import Structured
from ptxforge.ir.ops.dot import Dot, Product
from ptxforge.layouts.encodings import Mma, elements_per_thread
from ptxforge.layouts.product_steps import Registers
from ptxforge.support import machine
from ptxforge.support.target import Target


def interleave_products(function: Function, target: Target) -> bool:
    """Write the order of everything that may wait, block by block."""
    blocks = [function.body]
    for op in function.walk():
        if isinstance(op, Structured):
            blocks += [region.block for region in op.regions]
    return any([_Dealer(block).run() for block in blocks])


@attrs.define(slots=True, eq=False)
class _Piece:
    """A piece of ``op`` that waits: when it is done, ``registers`` of what is read, ``value`` (None for a
    copy), are known. ``start`` counts the products' instructions in front of ``op``, ``place`` those in front
    of the piece (-1: not given)."""

    op: Operation
    value: Value | None
    registers: tuple[int, ...]
    start: int
    place: int = -1


class _Dealer:
    """What waits in a block while its operations are gone through."""

    def __init__(self, block: Block):
        self.block = block
        self.waiting: list[_Piece] = []
        self.placed: list[_Piece] = []
        self.products = 0
        self.changed = False
        self.has_products = any(block.of(Product))

    def run(self) -> bool:
        for op in list(self.block.operations):
            if self.waiting and not self._may_wait_behind(op):
                self._do_before(op)
            if isinstance(op, Dot):
                self._deal(op)
            elif op.stored is not None:
                self._leave_parts_to_store()
            elif _is_stored_in_parts(op):
                self.waiting.append(_Piece(op, op.result, (), self.products))
            elif isinstance(op, Piecewise) and op.may_wait:
                value = None if op.get_effects().starts == COPIES else op.result
                if self.has_products or value is not None:
                    self.waiting += [_Piece(op, value, part, self.products) for part in op.pieces()]
        self._write()
        return self.changed

    def _may_wait_behind(self, op: Operation) -> bool:
        """See WAITING. (A barrier in ``op`` may be the one that ends what was read before it.)"""
        values = {piece.value for piece in self.waiting}
        if op.stored is not None:
            return values == {op.stored} and not isinstance(self.waiting[0].op, Piecewise)
        if op.attributes.get("scratch_offset", -1) >= 0 and values != {None}:
            return False
        if isinstance(op, Piecewise) and not op.may_wait:
            return False
        if op.is_terminator or op.regions or not op.get_effects().lets_pieces_pass:
            return False
        if isinstance(op, Dot):
            return all(isinstance(piece.op, Piecewise) for piece in self.waiting)
        return values.isdisjoint(op.operands)

    def _do_before(self, op: Operation) -> None:
        """Nothing waits any longer: operations none of whose pieces have a place move in front of ``op``."""
        begun = {piece.op for piece in self.placed}
        for piece in self.waiting:
            if piece.op in begun:
                self._place(piece, 0)
        for other in dict.fromkeys(piece.op for piece in self.waiting if piece.op not in begun):
            if other.next is not op:
                other.move_before(op)
                self.changed = True
        self.waiting = []

    def _leave_parts_to_store(self) -> None:
        """See STORED: what still waits is the store's value."""
        for piece in self.waiting:
            piece.op.with_store = self.changed = True
        self.waiting = []

    # -- products --------------------------------------------------------------------------------------

    def _deal(self, dot: Dot) -> None:
        """Give everything that waits a place among the product's instructions, but for copies that the next
        product can take: see OWN, NEXT and COPIES."""
        if not self.waiting:
            return
        count = len(dot.steps)
        for side in (0, 1):
            self._place_own(dot, side)
        reads = [piece for piece in self.waiting if piece.value is not None]
        copies = [piece for piece in self.waiting if piece.value is None]
        now = _first(copies, dot, count) if _another_follows(dot) else copies
        self.waiting = copies[len(now) :]
        self._spread(reads, now, count)
        self._move_to(dot, reads)
        self.products += count

    def _place_own(self, dot: Dot, side: int) -> None:
        value = dot.operands[side]
        own = [piece for piece in self.waiting if piece.value is value]
        if not own:
            return
        first, lead = _first_uses(dot, side), _lead(dot)
        for piece in own:
            use = min((first[r] for r in piece.registers if r in first), default=0)
            self._place(piece, max(0, use - lead))
        self.waiting = [piece for piece in self.waiting if piece.value is not value]
        self._move_to(dot, own)

    def _spread(self, reads: list[_Piece], copies: list[_Piece], count: int) -> None:
        """Reads first, as few before each instruction as can be; then copies."""
        per_place = -(-len(reads) // count)
        for number, piece in enumerate(reads):
            self._place(piece, number // per_place)
        begin = len(reads) // per_place if reads else 0
        spacing = max(1, (count - min(len(reads), count)) // (len(copies) + 1))
        for number, piece in enumerate(copies):
            self._place(piece, min(begin + number * spacing, count - 1))

    def _place(self, piece: _Piece, index: int) -> None:
        """Before instruction ``index`` of the next product."""
        piece.place = self.products + index
        self.placed.append(piece)

    def _move_to(self, dot: Dot, reads: list[_Piece]) -> None:
        """Reads stand right before their product, in the order in which they are done."""
        for piece in reads:
            piece.start = self.products
        for op in dict.fromkeys(piece.op for piece in reads):
            op.move_before(dot)

    def _write(self) -> None:
        orders: dict[Operation, list[int]] = {}
        for piece in self.placed:
            orders.setdefault(piece.op, []).append(piece.place - piece.start)
        for op, order in orders.items():
            op.order = tuple(order)
            self.changed = True


def _is_stored_in_parts(op: Operation) -> bool:
    if op.scratch_parts == 1 or not op.result.has_one_use:
        return False
    return op.result.users[0].stored is op.result


def _first_uses(dot: Dot, side: int) -> dict[int, int]:
    """For each register of A (0) or B (1), the product's first instruction that needs it."""
    if not isinstance(dot.c.type.layout, Mma):
        return {step[1 + side]: index for index, step in reversed([*enumerate(dot.steps)])}
    words: dict[Registers, int] = {}
    for index, step in enumerate(dot.steps):
        for word in step[side]:
            words.setdefault(word, index)
    return {register: index for word, index in words.items() for register in word or ()}


def _lead(dot: Dot) -> int:
    """How many instructions before its first use a piece is read: on FMA units one step along k."""
    is_on_tensor_cores = isinstance(dot.c.type.layout, Mma)
    return machine.FRAGMENT_LEAD if is_on_tensor_cores else len(dot.steps) // dot.a.type.shape[-1]


def _another_follows(dot: Dot) -> bool:
    """Whether one more product comes before anything for which nothing may wait."""
    here = dot.next
    while here is not None and here.get_effects().lets_pieces_pass and not here.regions:
        if isinstance(here, Dot):
            return True
        here = here.next
    return False


def _first(copies: list[_Piece], dot: Dot, count: int) -> list[_Piece]:
    """Of ``copies`` that wait, those that ``dot`` takes, which has ``count`` instructions and is not the last
    product: see COPIES."""
    dots, ops, pieces = [], [], 0
    for op in dot.parent.operations:
        if isinstance(op, Dot):
            dots.append(op)
        elif op.effects.fills == COPIES:
            ops.append(op)
            type = op.pointer.type
            pieces += elements_per_thread(type.layout, type.shape) // op.width
    evenly, early = pieces // len(dots), count // machine.PRODUCTS_PER_COPY_EARLY
    is_few = isinstance(dot.result.type.layout, Mma) and evenly <= count // machine.PRODUCTS_PER_COPY_EVEN
    before_last, at = len(dots) - 1, dots.index(dot)
    begins = {op: number * before_last // max(len(ops), before_last) for number, op in enumerate(ops)}
    begun = itertools.takewhile(lambda piece: begins.get(piece.op, 0) <= at, copies)
    return list(itertools.islice(begun, max(1, evenly if is_few else early)))
