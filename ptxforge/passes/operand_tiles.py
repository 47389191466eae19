"""Tiles in shared memory that ``wgmma`` reads: as they were loaded, kept for all iterations, or transposed.

See MEMORY, LEFT, KEPT, TRANSPOSED and PLACE of ``warpgroup_dots.py``.
"""

from __future__ import annotations

from itertools import takewhile

from ptxforge.ir import types as T
from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Operation, Value
from ptxforge.ir.definition import ALLOCATES
from ptxforge.ir.ops.control import Loop, ancestors, loops_around
from ptxforge.ir.ops.dot import Dot, Product
from ptxforge.ir.ops.memory import Load
from ptxforge.ir.ops.shape import Trans
from ptxforge.ir.ops.shared import LocalAlloc, MemDescTrans
from ptxforge.layouts import wgmma
from ptxforge.layouts.cta import permuted_order
from ptxforge.layouts.encodings import Mma
from ptxforge.support import machine
from ptxforge.support.worklist import each_once


def loaded_tile(value: Value) -> tuple[Load, list[Trans]] | None:
    """The load whose elements ``value`` has, and the transposes on the way, the load's user first."""
    op, transposes = _origin(value)
    return (op, transposes) if isinstance(op, Load) else None


def order_in_memory(load: Load, transposes: list[Trans]) -> tuple[int, ...]:
    """The dimensions of what the ``transposes`` make of a tile, fastest in memory first."""
    order = load.result.type.layout.order
    for transpose in transposes:
        order = permuted_order(order, transpose.order)
    return order


def _origin(value: Value) -> tuple[Operation | None, list[Trans]]:
    """What makes the elements of ``value``, and the transposes on the way, the first one first."""
    transposes: list[Trans] = []
    op = value.defining_op
    while op is not None and (op.is_transpose or op.changes_layout):
        if op.is_transpose:
            transposes.insert(0, op)
        op = op.operands[0].defining_op
    return op, transposes


class Tile:
    """An operand that may lie in shared memory: what was loaded, or computed, the transposes behind that, and
    its layout there (that of ``value``)."""

    def __init__(self, value: Value, transposes: list[Trans], layout):
        self.value, self.transposes, self.layout = value, transposes, layout

    def allocate(self) -> Value:
        """Put the tile into shared memory as soon as it is there, unless an earlier dot has done so; the view
        that the dot takes."""
        type, op = self.value.type, self.value.defining_op
        described = T.MemDescType(type.shape, type.element, self.layout, mutable=True)
        users = self.value.users
        there = next((u for u in users if ALLOCATES in u.traits and u.result.type is described), op)
        b = Builder.at(self.value.owner_block.first) if there is None else Builder.after(there)
        view = b.value(LocalAlloc, self.value, type=described) if there is op else there.result
        for transpose in self.transposes:
            view = b.value(MemDescTrans, view, order=transpose.order)
        return view


def in_memory(value: Value, k_dim: int, layout: Mma, is_transposed: bool = False) -> Tile | None:
    """See MEMORY. ``is_transposed``: of the transpose of ``value``, whether there is one."""
    found = loaded_tile(value)
    if found is None:
        return None
    load, transposes = found
    order = order_in_memory(load, transposes)
    columns = wgmma.ROWS if k_dim == 1 else wgmma.columns_of_instruction(layout)
    shape = value.type.shape
    if is_transposed:
        order, shape = tuple(1 - d for d in order), shape[::-1]
    shared = wgmma.panels_for_operand(shape, order, value.type.element.bits, k_dim, columns)
    if shared is None or is_transposed:
        return None if shared is None else Tile(load.result, transposes, shared)
    for transpose in reversed(transposes):
        back = tuple(transpose.order.index(d) for d in range(len(transpose.order)))
        shared = shared.permuted(back)
    return Tile(load.result, transposes, shared)


def kept_in_memory(dot: Dot) -> Tile | None:
    """See KEPT."""
    value = dot.a
    while value.defining_op is not None and value.defining_op.changes_layout:
        value = value.defining_op.operands[0]
    loops = [loop for loop in loops_around(dot) if len(loop.walk(Product)) >= machine.PRODUCTS_THAT_KEEP]
    if not any(_is_invariant(value, dot, loop) for loop in loops):
        return None
    bits = dot.a.type.element.bits
    layout = wgmma.panels_for_operand(dot.a.type.shape, (1, 0), bits, 1, wgmma.ROWS)
    return None if layout is None else Tile(value, [], layout)


def _is_invariant(value: Value, dot: Dot, loop: Loop) -> bool:
    """Whether ``value``, an operand of ``dot`` in ``loop``, is the same in all of its iterations. It may be
    computed there: the assembler moves that in front of the loop."""
    inside = {dot.parent} | {around.parent for around in takewhile(lambda op: op is not loop, ancestors(dot))}
    work = [value]
    for each in each_once(work):
        if each.owner_block in inside:
            if each.defining_op is None or not each.defining_op.is_pure:
                return False
            work += each.defining_op.operands
    return True


def has_transposed_left(dot: Dot) -> bool:
    """Whether A is the transpose of what a product gave, of elements that may lie along m; see TRANSPOSED."""
    is_transposed = [transpose.order for transpose in _origin(dot.a)[1]] == [(1, 0)]
    return is_transposed and dot.a.type.element.bits == 16 and comes_from_dot(dot)


def comes_from_dot(dot: Dot, index: int = 0) -> bool:
    """Whether operand A, or that of ``index``, is computed from another product of the same block."""
    work = [dot.operands[index]]
    for value in each_once(work):
        op = value.defining_op
        if op is None or op.parent is not dot.parent:
            continue
        if isinstance(op, Product):
            return True
        work += op.operands
    return False


def transposed_in_memory(dot: Dot) -> Tile | None:
    """See TRANSPOSED."""
    if not has_transposed_left(dot):
        return None
    op, transposes = _origin(dot.a)
    shape, bits = dot.a.type.shape, dot.a.type.element.bits
    layout = wgmma.panels_for_operand(shape, (0, 1), bits, 1, wgmma.ROWS)
    return None if layout is None else Tile(op.result, transposes, layout.permuted((1, 0)))
