"""A product whose left operand passes through registers runs on into the next iteration, too: in two parts.

    %f = dot_begin %zero                                     (before)
    for … iter_args(%acc = %f) {
      %x = local_load %a
      %g = dot_async %x, %b, %acc {parts = 2}
      dot_wait %acc {stays = 1}
      barrier; copies
      yield %g }

    for … iter_args(%acc = %f) {                             (after)
      dot_wait %acc {but = 1, stays = 1}                     the last iteration's first part is finished:
      %x0 = local_load (first half of %a along k)            … its registers are free
      %g = dot_async %x0, (first half of %b), %acc
      dot_wait %g {but = 1, stays = 1}                       the last iteration's second part is finished
      %x1 = local_load (second half of %a along k)
      %h = dot_async %x1, (second half of %b), %g
      barrier; copies
      yield %h }

Registers may not change while tensor cores read them, and a second set of them would have to be moved from
iteration to iteration. Of two parts one is always multiplying while the registers of the other are filled.

``products_in_flight.py`` decides (PARTS), and writes on the product how many parts there are; when it starts,
and what waits for it, ``pipeline_loops`` has settled. It is cut here because only now it is known which
operands threads exchange through shared memory (``reduce_data_duplication``), where parts can be read. (If
passes in between have made something of the operand of which no part can be computed, the product ends in its
iteration, and a remark says so.)
"""

from __future__ import annotations

from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Function
from ptxforge.ir.ops.control import For
from ptxforge.ir.ops.warpgroup import DotAsync, DotWait
from ptxforge.passes.analysis.flights import held_for
from ptxforge.passes.parts_of_operands import Cutter, Part, part_of_tile
from ptxforge.support.target import Target


def products_in_parts(function: Function, target: Target) -> bool:
    """Start every product in as many parts as are written on it."""
    starts = [start for start in function.walk(DotAsync) if start.parts > 1]
    for start in starts:
        loop, parts = start.parent_op, start.attributes.pop("parts")
        wait = next(user for user in start.c.users if user.effects.finishes)
        if _has_parts(loop, start, parts):
            wait.erase()
            _start_in_parts(loop, start, parts)
            continue
        wait.set_operands([start.result])
        text = "the next iteration begins when this one's product has ended: no part of it can be computed"
        function.remarks.add("not-in-flight", text, start.location)
    return bool(starts)


def parts_of_left(start: DotAsync, parts: int) -> list[Part]:
    """The left operand in so many ``parts`` along k."""
    rows, depth = start.a.type.shape
    width = depth // parts
    return [Part(start.a, (0, first), (rows, width)) for first in range(0, depth, width)]


def _has_parts(loop: For, start: DotAsync, parts: int) -> bool:
    """Whether the left operand of ``start`` is computed so that ``parts`` of it can be."""
    cutter, layout = _cutter(loop), start.a.type.layout
    return all(cutter.held(piece, layout) is not None for piece in parts_of_left(start, parts))


def _cutter(loop: For) -> Cutter:
    return Cutter(loop.body, lambda read: held_for(read, loop))


def _start_in_parts(loop: For, start: DotAsync, parts: int) -> None:
    """Replace ``start``, whose sum is carried as a flight, by so many ``parts`` with their waits."""
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


def _signs(start: DotAsync) -> dict[str, bool]:
    return {name: start.attributes.get(name, False) for name in ("a_unsigned", "b_unsigned")}
