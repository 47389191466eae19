"""Software pipelining, first half: which loads of a loop run ahead, through which buffers.

    for %k … iter_args(%p = %base, %acc = %zero) {          (before)
      %x = load (addptr %p, %offsets), %mask
      %y = convert_layout %x : dot_op
      %d = dot %y, …, %acc
      %q = addptr %p, %step
      yield %q, %d }

    %buffer = local_alloc : memdesc<3x128x64xf16, #shared, mutable>      (after, num_stages = 3)
    prologue: copies of iterations 0 and 1 into buffers 0 and 1, each in a group of its own
    for %k … iter_args(%p, %acc, %in, %out) {
      async_wait {num = 2}                                     iteration k has arrived
      %m = memdesc_index %buffer, %out
      %y = local_load %m : dot_op                              (insert_barriers puts a barrier before it)
      %d = dot %y, …, %acc
      async_copy_global_to_local …, (memdesc_index %buffer, %in)   iteration k + 2, masked off beyond the end
      async_commit_group
      yield … }
    async_wait {num = 0}; local_dealloc %buffer      copies of iterations beyond the end store zeros: they too
                                                     must have landed before the memory serves another purpose

Rules
-----
LOADS       Those that ``pipelined_loads`` names, with their levels. A load of level ``l`` has its value used
            ``(l + 1) · d`` steps before the last stage, with ``d = (num_stages - 1) / (levels)``; levels for
            which there are no stages stay where they are.
ASYNC       A pipelined load is copied by ``cp.async`` in pieces of 4, 8 or 16 bytes; what its mask leaves out
            becomes zero, and is replaced by another ``other`` when the buffer is read. Other loads stay where
            they are.
BUFFERS     One more than the distance, so that the buffer that a step fills is not one that the step reads:
            one barrier per step is enough (the copy follows the barrier that follows the wait).
            ``async_copy.ordered`` tells ``insert_barriers`` so. The prologue's copies are not ordered: in a
            loop around, a warp may still read what the last steps before it had waited for.
SKIPPED     Loops that contain loops, barriers, assertions or prints; ``num_stages`` below 2; a loop that
            yields another carried value unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator

from ptxforge.ir import types as T
from ptxforge.ir.builder import Builder
from ptxforge.ir.core import BlockArgument, Function, Operation, Value
from ptxforge.ir.ops.arith import AddI, AndI, CmpI, Select
from ptxforge.ir.ops.control import For
from ptxforge.ir.ops.convert_layout import ConvertLayout
from ptxforge.ir.ops.dot import Dot
from ptxforge.ir.ops.memory import Load
from ptxforge.ir.ops.shape import Broadcast, Splat, Trans
from ptxforge.ir.ops.shared import (
    AsyncCommitGroup,
    AsyncCopyGlobalToLocal,
    AsyncWait,
    LocalAlloc,
    LocalDealloc,
    LocalLoad,
    MemDescIndex,
    MemDescTrans,
)
from ptxforge.ir.ops.warpgroup import DotAsync, DotBegin, DotWait
from ptxforge.layouts.encodings import DotOperand, Mma, Shared, infer_trans
from ptxforge.layouts.fma import shared_for_fma_operand
from ptxforge.layouts.swizzle import swizzle_for_dot_operand
from ptxforge.passes.analysis.loop_reasons import why_not_ahead
from ptxforge.passes.analysis.pipelined_loads import is_zero, pipelined_loads
from ptxforge.passes.expand_loop import Schedule, expand_loop
from ptxforge.support.target import Target

_PRODUCTS = (DotBegin, DotAsync, DotWait)


def pipeline_loops(function: Function, target: Target) -> bool:
    """Pipeline every loop for which it is legal and asked for."""
    default = function.attributes.get("num_stages", 3)
    loops = [op for op in function.walk() if isinstance(op, For)]
    changed = False
    for loop in loops:
        stages = loop.num_stages if loop.num_stages >= 0 else default
        if stages < 2:
            continue
        levels = pipelined_loads(loop) if _may_be_pipelined(loop) else {}
        _remark(function, loop, stages, levels)
        if levels:
            _pipeline(loop, stages, levels)
            changed = True
    return changed


def _remark(function: Function, loop: For, stages: int, levels: dict[Load, int]) -> None:
    """Say why loads of the loop do not run ahead."""
    tensors = [
        op for op in loop.body.operations if isinstance(op, Load) and isinstance(op.result.type, T.TensorType)
    ]
    if len(levels) < len(tensors):
        has_dot = any(isinstance(op, (Dot, DotAsync)) for op in loop.body.operations)
        for place, why, cure in why_not_ahead(loop, tensors, stages, has_dot, levels):
            function.remarks.add("not-pipelined", f"{why}; {cure}", place)


def _may_be_pipelined(loop: For) -> bool:
    """See SKIPPED."""
    for op in loop.body.walk():
        effects = op.get_effects()
        if isinstance(op, For) or (effects.other and not isinstance(op, _PRODUCTS)):
            return False
    return not any(isinstance(v, BlockArgument) and v.block is loop.body for v in loop.body.terminator.values)


# -- the schedule -----------------------------------------------------------------------------------------


def _pipeline(loop: For, stages: int, levels: dict[Load, int]) -> None:
    depth = min(max(levels.values()) + 1, stages - 1)
    levels = {load: level for load, level in levels.items() if level < depth}
    distance = (stages - 1) // depth
    last = distance * depth
    stage: dict[Operation, int] = {}
    for load, level in levels.items():
        stage[load] = last - distance * (level + 1)
    buffers = _lower_loads(loop, levels, stage, distance)
    _place_dependencies(loop, stage, last)
    pipelined = expand_loop(loop, Schedule(_steady_order(loop, stage), stage), predicate_access)
    for op in pipelined.body.operations:
        if isinstance(op, AsyncCopyGlobalToLocal):
            op.attributes["ordered"] = True
    behind = Builder.after(pipelined)
    behind.create(AsyncWait, num=0)
    for buffer in buffers:
        behind.create(LocalDealloc, buffer)


def _place_dependencies(loop: For, stage: dict[Operation, int], last: int) -> None:
    """Give every other operation the earliest stage that its users demand: what a stage-s operation needs,
    through operands and carried values, is in stage s at the latest; all else is in the last stage."""
    yielded = loop.body.terminator.values
    work: list[tuple[Value, int]] = []

    def demand(op: Operation, at: int) -> None:
        for nested in op.walk():
            work.extend((value, at) for value in nested.operands)

    for op, at in list(stage.items()):
        demand(op, at)
    fixed = set(stage)
    while work:
        value, at = work.pop()
        if isinstance(value, BlockArgument) and value.block is loop.body:
            if value.index:
                work.append((yielded[value.index - 1], at))
            continue
        op = loop.body.ancestor_of(value.defining_op) if value.defining_op is not None else None
        if op is None or op in fixed or stage.get(op, last + 1) <= at:
            continue
        stage[op] = at
        demand(op, at)
    for op in loop.body.operations:
        if not op.is_terminator:
            stage.setdefault(op, last)


def _steady_order(loop: For, stage: dict[Operation, int]) -> list[Operation]:
    """The steady state: late stages first, so that a buffer is read before the next copy is started."""
    ops = [op for op in loop.body.operations if not op.is_terminator]
    return sorted(ops, key=lambda op: -stage[op])


# -- loads become copies ----------------------------------------------------------------------------------


def _lower_loads(
    loop: For, levels: dict[Load, int], stage: dict[Operation, int], distance: int
) -> list[Value]:
    """Replace each load by a copy into one of ``distance + 1`` buffers and a read of it ``distance`` stages
    later."""
    buffers = distance + 1
    counters: dict[int, Value] = {}
    waits: dict[int, AsyncWait] = {}
    allocated: list[Value] = []
    first: list[AsyncCopyGlobalToLocal] = []
    # In the order of the program, so that the first one's wait comes before all reads.
    for load in [op for op in loop.body.operations if op in levels]:
        at = stage.pop(load)
        copy_index = _counter(loop, at, buffers, counters, stage)
        read_index = _counter(loop, at + distance, buffers, counters, stage)
        buffer, copy = _lower_load(loop, load, at, distance, copy_index, read_index, waits, stage)
        allocated.append(buffer)
        if at == 0:
            first.append(copy)
    # The copies of stage 0 come last in a step: their group takes in those of the other stages.
    commit = Builder.after(first[-1]).create(AsyncCommitGroup, *(copy.result for copy in first))
    stage[commit] = 0
    return allocated


def _counter(
    loop: For, at: int, buffers: int, counters: dict[int, Value], stage: dict[Operation, int]
) -> Value:
    """A carried value that counts 0, 1, …, buffers-1, 0, … with the iterations of stage ``at``."""
    if at in counters:
        return counters[at]
    outside = Builder.at(loop)
    zero, one = outside.constant(0, T.I32), outside.constant(1, T.I32)
    limit = outside.constant(buffers, T.I32)
    argument = loop.body.add_argument(T.I32, "buffer")
    terminator = loop.body.terminator
    inside = Builder.at(terminator)
    following = inside.create(AddI, argument, one)
    wraps = inside.create(CmpI, following.result, limit, predicate="sge")
    wrapped = inside.create(Select, wraps.result, zero, following.result)
    for op in (following, wraps, wrapped):
        stage[op] = at
    loop.set_operands([*loop.operands, zero])
    terminator.set_operands([*terminator.operands, wrapped.result])
    loop.add_result(T.I32)
    counters[at] = argument
    return argument


def _lower_load(
    loop: For, load: Load, at: int, distance: int, copy_index: Value, read_index: Value,
    waits: dict[int, AsyncWait],
    stage: dict[Operation, int],
) -> tuple[Value, AsyncCopyGlobalToLocal]:  # fmt: skip
    """The buffers of one load, and its copy."""
    type = load.result.type
    layout = _shared_layout(load)
    outside = Builder.at(loop)
    described = T.MemDescType((distance + 1, *type.shape), type.element, layout, mutable=True)
    buffer = outside.create(LocalAlloc, result_types=[described]).result
    b = Builder.at(load)
    slot = b.create(MemDescIndex, buffer, copy_index)
    kept = {k: v for k, v in load.attributes.items() if k in ("eviction", "vector")}
    copy = b.create(AsyncCopyGlobalToLocal, load.pointer, slot.result, *load.operands[1:2], **kept)
    stage[slot] = stage[copy] = at
    use = at + distance
    if use not in waits:
        # Groups of later iterations that may still be on their way.
        waits[use] = b.create(AsyncWait, num=distance - 1)
        stage[waits[use]] = use
    wait = waits[use]
    source = b.create(MemDescIndex, buffer, read_index)
    read = b.create(LocalLoad, source.result, wait.result, result_types=[type])
    stage[source] = stage[read] = use
    value = read.result
    if load.other is not None and not is_zero(load.other):
        filled = b.create(Select, load.mask, value, load.other)
        stage[filled] = use
        value = filled.result
    load.replace_with([value])
    _fold_conversions(read, source.result, wait.result, stage)
    return buffer, copy


def _shared_layout(load: Load) -> Shared:
    """The swizzle for whoever reads the buffer."""
    type = load.result.type
    for user in load.result.users:
        if isinstance(user, LocalAlloc):
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
        back = tuple(order.index(d) for d in range(len(order)))
        return infer_trans(layout, back, seen.shape)
    return Shared(1, 1, 1, type.layout.order)


def _views(value: Value) -> Iterator[tuple[Value, tuple[int, ...]]]:
    """``value`` and its transposes, each with the order that makes it of ``value``."""
    yield value, tuple(range(len(value.type.shape)))
    for user in value.users:
        if isinstance(user, Trans):
            yield user.result, user.order


def _dot_operand_of(value: Value) -> DotOperand | None:
    for user in value.users:
        if isinstance(user, ConvertLayout) and isinstance(user.result.type.layout, DotOperand):
            return user.result.type.layout
    return None


def _fold_conversions(read: LocalLoad, source: Value, token: Value, stage: dict[Operation, int]) -> None:
    """A conversion of what was read is a read in the other layout, a transpose a read of another view, and
    what would be put into shared memory lies there already."""
    for user in dict.fromkeys(read.result.users):
        if user.parent is not read.parent:
            continue  # a branch may not be taken: all warps read here, before the barrier that they all reach
        b = Builder.at(user)
        if isinstance(user, LocalAlloc) and user.result.type == source.type:
            stage.pop(user, None)
            user.replace_with([source])
            continue
        if isinstance(user, ConvertLayout):
            folded = b.create(LocalLoad, source, token, result_types=[user.result.type])
        elif isinstance(user, Trans):
            seen = _transposed(source.type, user.order)
            view = b.create(MemDescTrans, source, order=user.order, result_types=[seen])
            folded = b.create(LocalLoad, view.result, token, result_types=[user.result.type])
            stage[view] = stage[read]
        else:
            continue
        stage[folded] = stage[read]
        stage.pop(user, None)
        user.replace_with([folded.result])
        if isinstance(user, Trans):
            _fold_conversions(folded, view.result, token, stage)
    if not read.result.uses:
        stage.pop(read)
        read.erase()


def _transposed(type: T.MemDescType, order: tuple[int, ...]) -> T.MemDescType:
    layout = infer_trans(type.layout, order, type.shape)
    return T.MemDescType(tuple(type.shape[d] for d in order), type.element, layout, type.mutable)


# -- predication ------------------------------------------------------------------------------------------


def predicate_access(op: Operation, flag: Value, b: Builder) -> None:
    """Make a copy or load of an iteration that does not exist do nothing (a copy stores zeros)."""
    if not isinstance(op, (AsyncCopyGlobalToLocal, Load)):
        return
    if op.mask is not None:
        op.set_operand(op.operands.index(op.mask), _gated(op.mask, flag, b))
        return
    pointer = op.operands[0].type
    if isinstance(pointer, T.TensorType):
        flag = b.value(Splat, flag, type=pointer.with_element(T.I1))
    op.set_operands([*op.operands, flag])


def _gated(mask: Value, flag: Value, b: Builder) -> Value:
    """``mask and flag``. A bound that all elements share, ``x < bound``, becomes
    ``x < (flag ? bound : smallest)``: the threads' comparisons stay, and one scalar operation replaces a
    logical one for each of them."""
    compare = mask.defining_op
    if isinstance(compare, Broadcast):
        return b.value(Broadcast, _gated(compare.x, flag, b), type=mask.type)
    if (
        isinstance(compare, CmpI)
        and compare.predicate == "slt"
        and isinstance(compare.rhs.defining_op, Splat)
    ):
        bound = compare.rhs.defining_op.value
        smallest = b.constant(-(1 << bound.type.bits - 1), bound.type)
        limit = b.value(Select, flag, bound, smallest)
        return b.value(CmpI, compare.lhs, b.value(Splat, limit, type=compare.rhs.type), predicate="slt")
    if isinstance(mask.type, T.TensorType):
        flag = b.value(Splat, flag, type=mask.type)
    return b.value(AndI, mask, flag)
