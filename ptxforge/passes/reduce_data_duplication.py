"""Operands of tensor cores wait in shared memory: once for all dots that want them, and not in registers
where these are short.

    %a = convert_layout %x : #blocked → #dot_op0                       (before)
    for … {
      %d = dot %a, …                                                   %a takes registers in the whole loop
      … }

    %m = local_alloc %x : memdesc<128x128xf16, #shared>                (after)
    for … {
      %a = local_load %m : #dot_op0
      %d = dot %a, …
      … }

Rules
-----
DECOMPOSE   A conversion to an operand's layout that goes through shared memory anyway becomes a
            ``local_alloc`` and a ``local_load``: ``ldmatrix`` reads four times as much at once as a
            conversion's exchange does.
SHARE       Conversions of one value, or of its transpose (a view), share one ``local_alloc``.
ROOM        Only as long as all tiles together fit the memory of a block.
PRESSURE    A thread has 255 registers. Some 75 go for addresses, scalars and fragments on their way; what a
            loop carries, the results of its dots and the operands that it does not change share the rest.
            When that is not enough, operands are read in every iteration, the largest first.
"""

from __future__ import annotations

from ptxforge.ir import types as T
from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Function, Value
from ptxforge.ir.definition import ALLOCATES, READS_SHARED
from ptxforge.ir.ops.control import For
from ptxforge.ir.ops.convert_layout import ConvertLayout
from ptxforge.ir.ops.dot import Dot
from ptxforge.ir.ops.shared import LocalAlloc, LocalDealloc, LocalLoad, MemDescTrans
from ptxforge.ir.pressure import held_by_loop, registers_of
from ptxforge.layouts.conversion import SharedMemory
from ptxforge.layouts.encodings import DotOperand, Mma
from ptxforge.layouts.swizzle import swizzle_for_dot_operand
from ptxforge.passes.conversions import builder_after
from ptxforge.support import machine
from ptxforge.support.target import Target


def reduce_data_duplication(function: Function, target: Target) -> bool:
    """Apply the rules above."""
    room = target.max_shared_bytes - _most_bytes(function)
    tiles: dict[tuple, Value] = {}
    changed = False
    for op in function.walk(ConvertLayout):
        if goes_through_shared_memory(op):
            size = op.x.type.bytes
            if size <= room:
                room -= size * _decompose(op, tiles)
                changed = True
    for loop in function.walk(For):
        changed |= _relieve(loop)
    return changed


def _most_bytes(function: Function) -> int:
    """The most bytes of shared memory that are allocated at a time."""
    now = most = 0
    for op in function.walk((LocalAlloc, LocalDealloc)):
        if ALLOCATES in op.traits:
            now += op.result.type.bytes
            most = max(most, now)
        else:
            now -= op.source.type.bytes
    return most


# -- DECOMPOSE and SHARE ----------------------------------------------------------------------------------


def goes_through_shared_memory(op: ConvertLayout) -> bool:
    """See DECOMPOSE."""
    layout = op.result.type.layout
    is_operand = isinstance(layout, DotOperand) and isinstance(layout.parent, Mma)
    return is_operand and op.x.type.element is not T.I1 and isinstance(op.plan, SharedMemory)


def _decompose(op: ConvertLayout, tiles: dict[tuple, Value]) -> bool:
    """Replace one conversion; whether that took a new tile."""
    seen = op.x.type
    layout = swizzle_for_dot_operand(op.result.type.layout, seen.shape, seen.layout.order, seen.element.bits)
    view = op.x.defining_op
    value = op.x
    kept = layout
    is_transposed = view is not None and view.is_transpose
    if is_transposed:
        value = view.x
        kept = layout.permuted(tuple(view.order.index(d) for d in range(len(view.order))))
    key = value, kept
    is_new = key not in tiles
    if is_new:
        type = T.MemDescType(value.type.shape, value.type.element, kept, mutable=False)
        tiles[key] = builder_after(value).value(LocalAlloc, value, type=type)
    b = Builder.at(op)
    tile = tiles[key]
    if is_transposed:
        tile = b.value(MemDescTrans, tile, order=view.order)
    read = b.value(LocalLoad, tile, type=op.result.type)
    op.replace_with([read])
    return is_new


# -- PRESSURE ---------------------------------------------------------------------------------------------


def _is_read(value: Value) -> bool:
    """Whether ``value`` was read from shared memory."""
    op = value.defining_op
    return op is not None and op.get_effects() == READS_SHARED


def _relieve(loop: For) -> bool:
    """Move reads of operands into an innermost loop until its tensors fit the registers."""
    if not any(loop.body.of(Dot)) or loop.body.walk(For):
        return False
    needed, changed = held_by_loop(loop), False
    for value in sorted(_invariant_operands(loop), key=lambda value: registers_of(value.type), reverse=True):
        if needed > machine.TENSOR_REGISTERS and _is_read(value):
            _read_inside(loop, value)
            needed -= registers_of(value.type)
            changed = True
    return changed


def _invariant_operands(loop: For) -> list[Value]:
    """The operands of the loop's dots that are made outside of it, each once."""
    found: dict[Value, None] = {}
    for dot in loop.body.of(Dot):
        for value in (dot.a, dot.b):
            if value.owner_block is not loop.body:
                found[value] = None
    return list(found)


def _read_inside(loop: For, value: Value) -> None:
    """Read an operand right before the first dot of the loop that wants it."""
    inside = [user for user in value.users if loop.body.ancestor_of(user) is not None]
    first = min((loop.body.ancestor_of(user) for user in inside), key=list(loop.body.operations).index)
    source = value.defining_op.source
    copy = Builder.at(first).value(LocalLoad, source, type=value.type)
    value.replace_all_uses_with(copy, unless=lambda user: user not in inside)
    if not value.uses:
        value.defining_op.erase()
