"""A product whose left operand passes through registers runs on into the next iteration, too: in two parts.

    for … iter_args(%acc = %zero) {                          (before)
      %t = trans %acc
      %f = dot_begin %t
      %x = local_load %a
      %g = dot_async %x, %b, %f
      %d = dot_wait %g {pending = 0}
      copies
      %u = trans %d
      yield %u }

    %f = dot_begin (trans %zero)                             (after)
    for … iter_args(%acc = %f) {
      dot_wait {pending = 1}                                 the last iteration's first part is finished:
      %x0 = local_load (first half of %a along k)            … its registers are free
      %g = dot_async %x0, (first half of %b), %acc
      dot_wait {pending = 1}                                 the last iteration's second part is finished
      %x1 = local_load (second half of %a along k)
      %h = dot_async %x1, (second half of %b), %g
      barrier; copies
      yield %h }
    %d = trans (dot_wait %acc {pending = 0})

Registers may not change while tensor cores read them, and a second set of them would have to be moved from
iteration to iteration. Of two parts one is always multiplying while the registers of the other are filled.

Rules
-----
SUM       The product of the loop, added to a carried value that the loop does nothing with but transpose
          and convert it to and fro: it is carried as accumulators, and brought back behind the loop.
OPERAND   is computed in registers, element by element, from tiles that are read from rings of buffers (as
          they are, cast, two elements taken from each: ``parts_of_operands.py``), from what is the same along
          k (constants, scales of the operand's rows), and from what each half can take from registers: what
          is loaded or added up along k is computed as a whole, while the last iteration's product runs.
ROOM      What is computed as a whole lives beside the registers of both parts: only where there are enough,
          and where no second block is on the multiprocessor, which multiplies while this one waits.
PARTS     Each half is at least one instruction deep along k.
"""

from __future__ import annotations

from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Function, Operation, Value
from ptxforge.ir.definition import ALLOCATES, ANY_LAYOUT, REARRANGING, SAME_MEMORY
from ptxforge.ir.ops.control import For
from ptxforge.ir.ops.shared import LocalAlloc, LocalLoad
from ptxforge.ir.ops.warpgroup import DotAsync, DotWait
from ptxforge.ir.pressure import blocks_with, held_in_front, registers_of, room
from ptxforge.ir.warps import warps_around
from ptxforge.layouts import wgmma
from ptxforge.layouts.encodings import DotOperand
from ptxforge.passes.parts_of_operands import Cutter, Part, part_of_tile
from ptxforge.passes.staggered_products import Product, carried_by, lasts
from ptxforge.support import machine
from ptxforge.support.target import Target

_MOVES = frozenset((ANY_LAYOUT, REARRANGING))
"""The traits of a change of layout."""


def carry_accumulators(loop: For, product: Product) -> None:
    """See SUM: the carried value that ``product`` is added to becomes one of the accumulators' type."""
    before, argument = _behind_moves(product.begin.value)
    if not (before and argument in loop.carried and argument.has_one_use and product.total.has_one_use):
        return
    yielded = loop.next_of(argument)
    after, total = _behind_moves(yielded)
    if total is not product.total or not after or not _is_identity([*before, *after]):
        return
    result = loop.last_of(argument)
    initial = _moved(Builder.at(loop), loop.first_of(argument), before)
    loop.set_operand(loop.first_initial + result.index, initial)
    argument.type = result.type = total.type
    product.begin.set_operand(0, argument)
    terminator = loop.body.terminator
    terminator.set_operands([total if v is yielded else v for v in terminator.operands])
    for op in [*reversed(after), *reversed(before)]:
        op.erase()
    uses = list(result.users)
    moved = _moved(Builder.after(loop), result, after)
    for user in uses:
        user.set_operands([moved if v is result else v for v in user.operands])


def _behind_moves(value: Value) -> tuple[list[Operation], Value]:
    """The transposes and conversions, each for the next alone, that make ``value``, in order, and of what."""
    moves: list[Operation] = []
    op = value.defining_op
    while op is not None and (op.is_transpose or _MOVES <= op.traits) and value.has_one_use:
        moves.insert(0, op)
        value = op.operands[0]
        op = value.defining_op
    return moves, value


def _is_identity(moves: list[Operation]) -> bool:
    """Whether all transposes among ``moves``, one after the other, are none."""
    order: tuple[int, ...] = tuple(range(len(moves[0].operands[0].type.shape)))
    for op in moves:
        order = tuple(order[d] for d in op.order) if op.is_transpose else order
    return order == tuple(sorted(order))


def _moved(b: Builder, value: Value, moves: list[Operation]) -> Value:
    for op in moves:
        copy = op.clone({})
        copy.set_operands([value])
        value = b.insert(copy).result
    return value


def in_parts(function: Function, loop: For, product: Product, target: Target) -> bool:
    """Whether ``product``, the only one of ``loop``, is one for the rules above."""
    start = product.start
    depth = wgmma.K_BYTES * 8 // start.b.type.element.bits
    if carried_by(loop, product) is None or start.b.type.shape[0] % (machine.PARTS_THROUGH_REGISTERS * depth):
        return False
    layout = start.a.type.layout
    if not isinstance(layout, DotOperand) or not start.a.has_one_use:
        return False
    cutter = _cutter(loop)
    held = [cutter.held(part, layout) for part in _parts_of_left(start)]
    return None not in held and (not any(held) or _has_room(function, loop, product, target))


def _cutter(loop: For) -> Cutter:
    return Cutter(loop.body, lambda read: _held_for(read, loop))


def _held_for(read: LocalLoad, loop: For) -> int | None:
    """How many registers of a thread hold the tile that an iteration of ``loop`` reads, in that iteration;
    ``None`` for memory that may have another tile where the product starts."""
    if lasts(read.source, loop):
        return 0
    op = read.source.defining_op
    while op is not None and SAME_MEMORY in op.traits:
        op = op.operands[0].defining_op
    is_own = op is not None and ALLOCATES in op.traits and op.parent is loop.body and op.value is not None
    return registers_of(op.value.type) if is_own else None


def _has_room(function: Function, loop: For, product: Product, target: Target) -> bool:
    """See ROOM."""
    threads, start = warps_around(loop).threads, product.start
    fragments = registers_of(start.a.type)
    live = registers_of(product.total.type) + held_in_front(function, start, without=product.begin.value)
    words = live + fragments + machine.REGISTERS_BESIDE_FLIGHTS
    shared = sum(op.result.type.bytes for op in function.walk(LocalAlloc))
    blocks = min(target.max_shared_bytes // max(shared, 1), blocks_with(words, threads))
    return words <= room(threads) and blocks < machine.BLOCKS_THAT_HIDE_A_WAIT


def _parts_of_left(start: DotAsync) -> list[Part]:
    """The left operand in PARTS."""
    rows, depth = start.a.type.shape
    width = depth // machine.PARTS_THROUGH_REGISTERS
    return [Part(start.a, (0, first), (rows, width)) for first in range(0, depth, width)]


def start_in_parts(loop: For, start: DotAsync) -> DotAsync:
    """Replace ``start``, whose sum is carried as a flight, by its PARTS with their waits; the last one."""
    b, cutter, parts = Builder.at(start), _cutter(loop), _parts_of_left(start)
    signs = {name: start.attributes.get(name, False) for name in ("a_unsigned", "b_unsigned")}
    flight, layout = start.c, start.a.type.layout
    copies_left = any(cutter.held(part, layout) for part in parts)
    for part in parts:
        b.create(DotWait, pending=len(parts) - 1)
        left = cutter.make(b, part, layout)
        right = part_of_tile(b, start.b, (part.first[1], 0), (part.size[1], start.b.type.shape[1]))
        flight = b.value(DotAsync, left, right, flight, copies_left=copies_left, **signs)
    start.replace_with([flight])
    cutter.erase_unused()
    return flight.defining_op
