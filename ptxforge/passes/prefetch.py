"""Fragments of the next K slice are loaded while the current one multiplies.

    for … iter_args(%acc, %in, %out) {                                             (before)
      async_wait
      %a = local_load (memdesc_index %A, %out) : tensor<128x64xf16, #dot_op0>
      %b = local_load (memdesc_index %B, %out) : tensor<64x128xf16, #dot_op1>
      %d = dot %a, %b, %acc
      async_copy …; async_commit_group
      yield }

    async_wait; %a0 = local_load (subslice %A[first] [0, 0]); %b0 = …              (after)
    for … iter_args(%acc, %in, %out, %a0, %b0) {
      %a1 = local_load (subslice (memdesc_index %A, %out) [0, 16]); %b1 = …
      async_copy …; async_commit_group
      %d0 = dot %a0, %b0, %acc
      %a2 = …; %d1 = dot %a1, %b1, %d0
      …
      async_wait                                                                   the next tile has arrived
      %a0' = local_load (subslice (memdesc_index %A, %out + 1) [0, 0]); %b0' = …
      %d3 = dot %a3, %b3, %d2
      yield %d3, …, %a0', %b0' }

There is one barrier in a step, right after the wait, and never a moment in which the tensor cores wait for
shared memory: the first fragments of a tile are on their way before the last slice of the tile before it
multiplies. Copies come in between, after the fragments that the next slice needs.

In the last step the fragments of a tile that does not exist are read from a buffer that masked copies filled
with zeros; they are not used.

Rules
-----
PAYS    A tile is at least two slices deep, a slice being what one instruction takes along k. On FMA units it
        is as thin as work behind which a read hides allows, since its fragments take registers: 64 products
        for each thread, but no less than 16 bytes where an operand lies along k.
SHAPE   The loop holds one dot with both operands read from buffers right there, and nothing but the copies
        depends on what it is sliced for; other loops are left alone.
WORK    Between its read and the dot an operand may be cast, scaled by what is the same all along k, and the
        like (``optimize_dot_operands``): that is done slice by slice, right before each product. The loop
        carries what was read.

A product whose operands stay in buffers until it needs them although copies brought them ahead, a remark
names with the reason.
"""

from __future__ import annotations

import attrs

from ptxforge.ir import types as T
from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Function, Operation, Value
from ptxforge.ir.definition import ELEMENTWISE, UNIFORM
from ptxforge.ir.ops.control import For
from ptxforge.ir.ops.dot import Dot
from ptxforge.ir.ops.shape import Broadcast
from ptxforge.ir.ops.shared import (
    AsyncCommitGroup,
    AsyncCopyGlobalToLocal,
    AsyncWait,
    LocalLoad,
    MemDescIndex,
    MemDescTrans,
)
from ptxforge.layouts.encodings import DotOperand, Mma, elements_per_thread
from ptxforge.passes.flatten_loops import StaysError
from ptxforge.passes.products_in_parts import part_of_tile
from ptxforge.support import machine
from ptxforge.support.target import Target


def prefetch(function: Function, target: Target) -> bool:
    """Slice and prefetch the operands of every pipelined dot."""
    changed = False
    for loop in function.walk(For):
        dots = [dot for dot in loop.body.of(Dot) if _is_pipelined(dot, loop)]
        try:
            plan = _match(loop) if dots else None
        except StaysError as why:
            place = (dots[0] if len(dots) == 1 else loop).location
            text = f"operands of products are read where these are done, not a slice of k ahead: {why}"
            function.remarks.add("not-prefetched", text, place)
            continue
        if plan is not None:
            _rewrite(plan)
            changed = True
    return changed


def _is_pipelined(dot: Dot, loop: For) -> bool:
    """Whether copies that run ahead bring an operand of ``dot``, which this iteration waits for."""
    reads = [_read_behind(value, 1 - i, loop, []) for i, value in enumerate((dot.a, dot.b))]
    return any(_is_read_ahead(read, loop) for read in reads)


def _is_read_ahead(read: Operation | None, loop: For) -> bool:
    """Whether it reads in ``loop`` what is waited for."""
    return isinstance(read, LocalLoad) and read.parent is loop.body and read.token is not None


@attrs.define(slots=True)
class _Plan:
    """A loop that matches SHAPE: its dot, the reads of both operands and the WORK on them, in order, their
    common wait, the copies, and the extent of a slice along k."""

    loop: For
    dot: Dot
    reads: tuple[LocalLoad, LocalLoad]
    work: tuple[list[Operation], list[Operation]]
    wait: AsyncWait
    copies: list[Operation]
    width: int

    @property
    def slices(self) -> int:
        return self.dot.a.type.shape[1] // self.width


def _match(loop: For) -> _Plan:
    """See SHAPE and PAYS. Raises ``StaysError``."""
    dots = list(loop.body.of(Dot))
    if len(dots) != 1:
        raise StaysError(f"the loop has {len(dots)} products; one alone has slices")
    dot = dots[0]
    if len(dot.result.type.shape) != 2:
        raise StaysError("it is a product of batches; one of 2-dimensional blocks has slices")
    work = ([], [])
    reads = tuple(_read_behind(value, 1 - i, loop, work[i]) for i, value in enumerate((dot.a, dot.b)))
    for name, read in zip("ab", reads):
        _check_sliceable(name, read, loop)
    waits = list(loop.body.of(AsyncWait))
    if len(waits) != 1 or any(read.token is not waits[0].result for read in reads):
        raise StaysError("its operands do not arrive together, by one wait for copies of threads")
    if not set(waits[0].result.users) <= set(reads):
        raise StaysError("what arrives with its operands is used elsewhere, too")
    width = _slice_width(dot, reads)
    if (depth := dot.a.type.shape[1]) < 2 * width:
        raise StaysError(f"a slice is {width} deep, and the block only {depth}; a larger one has two")
    copies = list(loop.body.of((AsyncCopyGlobalToLocal, AsyncCommitGroup)))
    plan = _Plan(loop, dot, reads, work, waits[0], copies, width)
    _check_rest_is_independent(plan)
    return plan


def _read_behind(value: Value, k: int, loop: For, work: list[Operation]) -> Operation | None:
    """The operation that makes ``value``, or what the WORK that makes it is done on;
    that goes to ``work``."""
    op = value.defining_op
    if op is None or op.parent is not loop.body or ELEMENTWISE not in op.traits:
        return op
    inputs = [v for v in op.operands if isinstance(v.type, T.TensorType) and not _is_same_along(v, k)]
    if len(inputs) != 1 or not (op.is_pure and value.has_one_use and len(op.results) == 1):
        return None
    read = _read_behind(inputs[0], k, loop, work)
    work.append(op)
    return read


def _is_same_along(value: Value, dim: int) -> bool:
    """Whether a tensor is a broadcast along ``dim``, so that any slice of it is made like the whole."""
    op = value.defining_op
    if isinstance(op, Broadcast):
        return op.x.type.shape[dim] == 1
    return op is not None and UNIFORM in op.traits


def _check_sliceable(name: str, read: Operation | None, loop: For) -> None:
    """Whether operand ``name`` is what ``read`` reads from a ring of buffers. Raises ``StaysError``."""
    if not _is_read_ahead(read, loop):
        raise StaysError(f"operand {name} does not come from copies that run ahead")
    if not read.result.has_one_use:
        raise StaysError(f"operand {name} has other uses; loaded again for these, it has slices")
    view = _slot_of(read)
    is_slot = isinstance(view, MemDescIndex) and view.parent is loop.body
    if not is_slot or view.source.owner_block is loop.body:
        raise StaysError(f"operand {name} is not the whole of a buffer")
    if view.index not in loop.carried:
        raise StaysError(f"operand {name} is read again from the buffer of another iteration")


def _slot_of(read: LocalLoad) -> Operation | None:
    """The choice of the buffer that is read, perhaps through a transposed view."""
    view = read.source.defining_op
    return view.source.defining_op if view is not None and view.is_transpose else view


def _slice_width(dot: Dot, reads: tuple[LocalLoad, LocalLoad]) -> int:
    """Elements along k of a slice: what one ``mma`` takes, 8 or 4 threads' worth of ``k_width``; on FMA units
    see PAYS."""
    operand: DotOperand = dot.a.type.layout
    if isinstance(operand.parent, Mma):
        return operand.depth_of_instruction
    type = dot.result.type
    hidden = max(1, machine.MULTIPLY_ADDS_PER_SLICE // elements_per_thread(type.layout, type.shape))
    wide = max(_elements_along_k(read, 1 - operand) for operand, read in enumerate(reads))
    return max(wide, min(hidden, dot.a.type.shape[1] // 2))


def _elements_along_k(read: LocalLoad, k: int) -> int:
    """How many elements one read of shared memory takes along ``k``."""
    memory: T.MemDescType = read.source.type
    return max(1, 16 // memory.element.bytes) if memory.layout.order[0] == k else 1


def _check_rest_is_independent(plan: _Plan) -> None:
    """Nothing that must come first depends on the dot or its reads. Raises ``StaysError``."""
    late = set(plan.reads) | {plan.dot}
    for op in plan.loop.body.operations:
        if op in late or op is plan.wait:
            continue
        if any(v.defining_op in late for nested in op.walk() for v in nested.operands):
            if op in plan.copies:
                raise StaysError("what a copy brings for a later iteration depends on it")
            late.add(op)


# -- rewriting --------------------------------------------------------------------------------------------


def _rewrite(plan: _Plan) -> None:
    loop, dot = plan.loop, plan.dot
    yielded = loop.body.terminator
    outside = Builder.at(loop)
    token = outside.create(AsyncWait, num=plan.wait.num)
    first = []
    for operand, read in enumerate(plan.reads):
        initial = loop.first_of(_slot_of(read).index)
        first.append(_read_slice(outside, plan, operand, _tile(outside, read, initial), 0, token.result))
    carried = [loop.add_carried(value, name)[0] for value, name in zip(first, ("a0", "b0"))]
    _move_late_operations_behind(plan)
    fragments = list(carried)
    total = dot.c
    groups = _spread(plan.copies, plan.slices - 1)
    b = Builder.at(dot)
    for k in range(plan.slices):
        if k + 1 < plan.slices:
            following = [_read_slice(b, plan, i, plan.reads[i].source, k + 1, None) for i in (0, 1)]
            for op in groups[k]:
                op.move_before(dot)
        else:
            following = _read_next_tile(b, plan)
        operands = [_worked(b, plan, i, fragments[i]) for i in (0, 1)]
        total = b.value(Dot, *operands, total, **dot.attributes)
        fragments = following
    dot.replace_with([total])
    for work, read in zip(plan.work, plan.reads):
        for op in reversed(work):
            op.erase()
        read.erase()
    plan.wait.erase()
    yielded.set_operands([*yielded.operands[:-2], *fragments])


def _read_slice(
    b: Builder, plan: _Plan, operand: int, tile: Value, number: int, token: Value | None
) -> Value:
    """Slice ``number`` along k of a tile in shared memory, as fragments."""
    type = plan.reads[operand].result.type
    view = part_of_tile(b, tile, 1 - operand, number * plan.width, plan.width)
    operands = [view] if token is None else [view, token]
    return b.value(LocalLoad, *operands, type=T.TensorType(view.type.shape, type.element, type.layout))


def _tile(b: Builder, read: LocalLoad, index: Value) -> Value:
    """What ``read`` reads, of buffer ``index``."""
    tile, view = b.value(MemDescIndex, _slot_of(read).source, index), read.source.defining_op
    return b.value(MemDescTrans, tile, order=view.order) if view.is_transpose else tile


def _worked(b: Builder, plan: _Plan, operand: int, fragment: Value) -> Value:
    """The WORK on a slice of an operand."""
    k, shape = 1 - operand, fragment.type.shape
    for op in plan.work[operand]:
        values = []
        for value in op.operands:
            if not isinstance(value.type, T.TensorType):
                values.append(value)
            else:
                values.append(_cut(b, value, shape) if _is_same_along(value, k) else fragment)
        copy = op.clone({})
        copy.set_operands(values)
        copy.result.type = T.TensorType(shape, op.result.type.element, op.result.type.layout)
        fragment = b.insert(copy).result
    return fragment


def _cut(b: Builder, value: Value, shape: tuple[int, ...]) -> Value:
    """A tensor that is the same along k, in the ``shape`` of a slice."""
    copy = value.defining_op.clone({})
    copy.result.type = T.TensorType(shape, value.type.element, value.type.layout)
    return b.insert(copy).result


def _read_next_tile(b: Builder, plan: _Plan) -> list[Value]:
    """Wait for the next tile and read its first slice."""
    token = b.create(AsyncWait, num=plan.wait.num).result
    tiles = [_tile(b, read, plan.loop.next_of(_slot_of(read).index)) for read in plan.reads]
    return [_read_slice(b, plan, operand, tile, 0, token) for operand, tile in enumerate(tiles)]


def _move_late_operations_behind(plan: _Plan) -> None:
    """Everything but the reads, the copies and what uses the dot goes before the dot."""
    uses_dot = {plan.dot}
    for op in list(plan.loop.body.operations):
        if op.is_terminator or op is plan.dot:
            continue
        if any(v.defining_op in uses_dot for nested in op.walk() for v in nested.operands):
            uses_dot.add(op)
    seen_dot = False
    for op in list(plan.loop.body.operations):
        if op is plan.dot:
            seen_dot = True
        elif seen_dot and not op.is_terminator and op not in uses_dot and op not in plan.copies:
            op.move_before(plan.dot)


def _spread(copies: list[Operation], places: int) -> list[list[Operation]]:
    """Distribute the copies, each with the commit that follows it, over the slices."""
    units: list[list[Operation]] = []
    for op in copies:
        if op.effects.fills or not units:
            units.append([op])
        else:
            units[-1].append(op)
    result: list[list[Operation]] = [[] for _ in range(places)]
    for number, unit in enumerate(units):
        result[number * places // max(len(units), places)].extend(unit)
    return result
