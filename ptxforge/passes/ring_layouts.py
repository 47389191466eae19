"""How a tile lies in the buffers of a ring: so that those who read it meet no conflicts of banks.

    who reads                                     threads copy                   TMA copies
    ---------                                     ------------                   ----------
    ``wgmma``, from shared memory                 the panels that it wants       the same
    threads, for an operand of ``mma.sync``       ``swizzle_for_dot_operand``    nothing
    threads, for an operand of FMA instructions   ``shared_for_fma_operand``     nothing
    threads, for a left operand of ``wgmma``      ``swizzle_for_dot_operand``    panels, if reads are as fast
    threads, to store an operand of ``wgmma``     no swizzle                     panels
    threads, a vector                             no swizzle                     the same
    threads, a box for no product                 no swizzle                     the same
"""

from __future__ import annotations

from collections.abc import Iterator

from ptxforge.ir import types as T
from ptxforge.ir.core import Operation, Value
from ptxforge.ir.definition import ALLOCATES, ELEMENTWISE, RELAYOUT
from ptxforge.ir.ops.dot import Product
from ptxforge.ir.ops.memory import Load
from ptxforge.ir.ops.tensor_store import StoreBox
from ptxforge.layouts.cta import permuted_order
from ptxforge.layouts.encodings import DotOperand, Mma
from ptxforge.layouts.panels import SWIZZLES, Panels
from ptxforge.layouts.product_steps import shared_for_fma_operand
from ptxforge.layouts.shared import InSharedMemory, Shared
from ptxforge.layouts.swizzle import panels_for_dot_operand, swizzle_for_dot_operand
from ptxforge.support import machine
from ptxforge.support.worklist import each_once

Order = tuple[int, ...]


def layout_of_ring(load: Load) -> InSharedMemory:
    """Of the buffers to which threads copy what ``load`` reads."""
    type = load.result.type
    for user in load.result.users:
        if ALLOCATES in user.traits:
            return user.result.type.layout
    for view, order in _views(load.result):
        consumer = _dot_operand_of(view)
        if consumer is None:
            continue
        seen = view.type
        if isinstance(consumer.parent, Mma):
            layout = swizzle_for_dot_operand(consumer, seen.shape, seen.layout.order, type.element.bits)
        else:
            layout = shared_for_fma_operand(consumer, seen.layout, seen.shape, type.element.bits)
        return layout.permuted(_inverse(order))
    found = _operand_through_registers(load)
    if found is None:
        return Shared(1, 1, 1, type.layout.order)
    operand, order = found
    if order is None:
        return _swizzle_of_rows(type)
    in_memory = permuted_order(type.layout.order, order)
    layout = swizzle_for_dot_operand(operand.layout, operand.shape, in_memory, type.element.bits)
    return layout.permuted(_inverse(order))


def layout_of_boxes(load: Load) -> InSharedMemory | None:
    """Of the buffers to which TMA copies what ``load`` reads; ``None`` where neither tensor cores read it nor
    threads as a box, or not in an order in which TMA can leave it."""
    type, users = load.result.type, load.result.users
    if not isinstance(type, T.TensorType):
        return None
    if type.rank == 1 or is_box_for_threads(load):
        return Shared(1, 1, 1, type.layout.order)
    layouts = {user.result.type.layout for user in users if ALLOCATES in user.traits}
    is_read = any(ALLOCATES not in user.traits for user in users)
    if is_read and is_for_store(load.result):
        panels = _panels_for_store(type)
        return panels if layouts <= {panels} else None
    if not layouts:
        return _panels_through_registers(load)
    layout = layouts.pop()
    return layout if isinstance(layout, Panels) and not layouts and not is_read else None


def is_for_store(tile: Value) -> bool:
    """Whether all that threads make of a ``tile``, element by element, is operands that they store for
    products of warpgroups."""
    work, is_stored = [tile], False
    for value in each_once(work):
        for user in value.users:
            is_alloc = ALLOCATES in user.traits
            is_stored |= is_alloc and value is not tile
            if is_alloc and isinstance(user.result.type.layout, Panels):
                continue
            moves = user.is_transpose or user.changes_layout or ELEMENTWISE in user.traits
            if is_alloc or not moves or len(user.results) != 1:
                return False
            work.append(user.results[0])
    return is_stored


def _panels_for_store(type: T.TensorType) -> Panels | None:
    row = type.shape[type.layout.order[0]] * type.element.bits // 8
    if row < SWIZZLES[-1]:
        return None
    return Panels(min(row, SWIZZLES[0]), type.element.bits, type.layout.order)


def is_box_for_threads(load: Load) -> bool:
    """Whether ``load`` reads, through a descriptor, what threads want in a loop without products, and TMA is
    to copy that: where results leave by TMA, too, or threads would copy few bytes at once."""
    loop, type = load.parent_op, load.result.type
    if not (load.boxed and loop is not None and loop.is_counted):
        return False
    is_narrow = load.width * type.element.bits < 8 * machine.THREADS_COPY_BOXES_FROM
    if not (is_narrow and type.rank > 1 or any(loop.body.of(StoreBox))):
        return False
    is_for_threads = not any(ALLOCATES in user.traits for user in load.result.users)
    is_number = isinstance(type.element, T.ScalarType) and type.element is not T.I1
    return is_for_threads and is_number and not any(loop.body.of(Product))


def _panels_through_registers(load: Load) -> Panels | None:
    type, found = load.result.type, _operand_through_registers(load)
    if found is None:
        return None
    operand, order = found
    if order is None:
        row = type.shape[type.layout.order[0]] * type.element.bits // 8
        return Panels(row, type.element.bits, type.layout.order) if row in SWIZZLES else None
    in_memory = permuted_order(type.layout.order, order)
    layout = panels_for_dot_operand(operand.layout, operand.shape, in_memory, type.element.bits)
    return layout and layout.permuted(_inverse(order))


def _inverse(order: Order) -> Order:
    return permuted_order(range(len(order)), order)


def _operand_through_registers(load: Load) -> tuple[T.TensorType, Order | None] | None:
    """The left operand of ``wgmma`` that is made of the tile in registers, by operations on elements and
    transposes, with the order that makes its dimensions of the tile's; no order for one of two tiles that are
    put together."""
    type = load.result.type
    work: list[tuple[Value, Order | None]] = [(load.result, tuple(range(len(type.shape))))]
    seen = set()
    while work:
        value, order = work.pop()
        layout = value.type.layout
        parent = layout.parent if isinstance(layout, DotOperand) else None
        if isinstance(parent, Mma) and parent.version[0] == 3:
            return value.type, order
        if value in seen:
            continue
        seen.add(value)
        for user in value.users:
            if user.is_transpose:
                work.append((user.result, order and tuple(order[d] for d in user.order)))
            elif user.changes_layout or (ELEMENTWISE in user.traits and len(user.results) == 1):
                work.append((user.results[0], order))
            elif RELAYOUT in user.traits and _is_put_together(user, value):
                work.append((user.results[0], None))
    return None


def _is_put_together(op: Operation, tile: Value) -> bool:
    """Whether the result of ``op`` has all elements of ``tile``, perhaps beside those of another one."""
    return len(op.results) == 1 < tile.type.rank and op.results[0].type.numel >= tile.type.numel


def _swizzle_of_rows(type: T.TensorType) -> Shared:
    """Pieces of 16 bytes change places so that 8 rows, of which a warp reads a few bytes each, lie in all
    banks."""
    order, size = type.layout.order, type.element.bytes
    row = type.shape[order[0]] * size
    per_phase = max(1, 128 // row)
    return Shared(max(1, 16 // size), per_phase, max(1, min(8 // per_phase, row // 16)), order)


def _views(value: Value) -> Iterator[tuple[Value, Order]]:
    """``value`` and its transposes, each with the order that makes it of ``value``."""
    yield value, tuple(range(len(value.type.shape)))
    for user in value.users:
        if user.is_transpose:
            yield user.result, user.order


def _dot_operand_of(value: Value) -> DotOperand | None:
    for user in value.users:
        if user.changes_layout and isinstance(user.result.type.layout, DotOperand):
            return user.result.type.layout
    return None
