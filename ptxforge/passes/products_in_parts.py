"""A product whose left operand passes through registers runs on into the next iteration, too: in two parts.

    for … iter_args(%acc = %zero) {                          (before)
      %f = dot_begin %acc
      %x = local_load %a
      %g = dot_async %x, %b, %f {parts = 2}
      %d = dot_wait %g {until = "next"}
      copies
      yield %d }

    %f = dot_begin %zero                                     (after)
    for … iter_args(%acc = %f) {
      dot_wait %acc {but = 1, stays = 1}                     the last iteration's first part is finished:
      %x0 = local_load (first half of %a along k)            … its registers are free
      %g = dot_async %x0, (first half of %b), %acc
      dot_wait %g {but = 1, stays = 1}                       the last iteration's second part is finished
      %x1 = local_load (second half of %a along k)
      %h = dot_async %x1, (second half of %b), %g
      barrier; copies
      yield %h }
    %d = dot_wait %acc

Registers may not change while tensor cores read them, and a second set of them would have to be moved from
iteration to iteration. Of two parts one is always multiplying while the registers of the other are filled.

``products_in_flight.py`` decides (PARTS), and writes on the product how many parts there are. (If
no part of the operand can be computed where its tiles lie, the product ends in its iteration, and a remark
says so.)
"""

from __future__ import annotations

from ptxforge.ir.builder import Builder
from ptxforge.ir.ops.control import For
from ptxforge.ir.ops.warpgroup import DotAsync, DotWait
from ptxforge.passes.analysis.flights import held_for
from ptxforge.passes.parts_of_operands import Cutter, Part, part_of_tile


def parts_of_left(start: DotAsync, parts: int) -> list[Part]:
    """The left operand in so many ``parts`` along k."""
    rows, depth = start.a.type.shape
    width = depth // parts
    return [Part(start.a, (0, first), (rows, width)) for first in range(0, depth, width)]


def has_parts(loop: For, start: DotAsync, parts: int) -> bool:
    """Whether the left operand of ``start`` is computed so that ``parts`` of it can be."""
    cutter, layout = _cutter(loop), start.a.type.layout
    return parts == 1 or all(cutter.held(piece, layout) is not None for piece in parts_of_left(start, parts))


def _cutter(loop: For) -> Cutter:
    return Cutter(loop.body, lambda read: held_for(read, loop))


def start_in_parts(loop: For, start: DotAsync, parts: int) -> DotAsync:
    """Replace ``start``, whose sum is carried as a flight, by so many ``parts`` with their waits, which
    :func:`has_parts`; the last one."""
    b, layout, signs = Builder.at(start), start.a.type.layout, _signs(start)
    cutter, flight = _cutter(loop), start.c
    pieces = parts_of_left(start, parts)
    copies_left = any(cutter.held(piece, layout) for piece in pieces)
    for piece in pieces:
        b.create(DotWait, flight, but=len(pieces) - 1, stays=1)
        left = cutter.make(b, piece, layout)
        right = part_of_tile(b, start.b, (piece.first[1], 0), (piece.size[1], start.b.type.shape[1]))
        flight = b.value(DotAsync, left, right, flight, copies_left=copies_left, **signs)
    start.replace_with([flight])
    cutter.erase_unused()
    return flight.defining_op


def _signs(start: DotAsync) -> dict[str, bool]:
    return {name: start.attributes.get(name, False) for name in ("a_unsigned", "b_unsigned")}
