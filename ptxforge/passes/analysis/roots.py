"""Which parameter a pointer points into, which parameters point at memory that a kernel may write, and which
threads hold copies of one element."""

from __future__ import annotations

from ptxforge.ir import types as T
from ptxforge.ir.core import BlockArgument, Function, Operation, Value
from ptxforge.ir.definition import REARRANGING, SAME_MEMORY, MemoryAccess
from ptxforge.ir.ops.control import Loop, Structured
from ptxforge.layouts.linear import LANE, WARP
from ptxforge.support.worklist import each_once


def root_of(pointer: Value) -> Value | None:
    """The parameter that a pointer, or a tensor of them, was computed from; ``None`` when it is not known (a
    pointer that was loaded, or chosen from several) or changes while a loop carries it."""
    roots: set[Value | None] = set()
    work = [pointer]
    for pointer in each_once(work):
        op = pointer.defining_op
        loop = pointer.block.parent_op if isinstance(pointer, BlockArgument) else op
        if op is not None and not op.traits.isdisjoint((SAME_MEMORY, REARRANGING)):
            work.append(op.operands[0])
        elif isinstance(loop, Loop):
            work.extend(loop.carried_sources(loop.carried_index(pointer)))
        else:
            roots.add(pointer if op is None and isinstance(pointer.block.parent, Function) else None)
    return roots.pop() if len(roots) == 1 else None


def root_of_access(op: Operation) -> Value | None:
    """The parameter through which ``op`` accesses global memory: that of its pointer, or of its tensor map;
    ``None`` when it is not known."""
    pointer, map = getattr(op, "pointer", None), getattr(op, "map", None)
    if pointer is not None or map is None:
        return root_of(pointer) if pointer is not None else None
    if not isinstance(map, BlockArgument):
        return root_of(map.defining_op.base)
    return next(x for x in map.block.arguments if x.name == map.attributes["base"])


def is_held_by_several_threads(type: T.Type) -> bool:
    """Whether some element of a value of ``type`` is held by more than one thread, as every scalar is."""
    if not isinstance(type, T.TensorType):
        return True
    free = type.layout.linear(type.shape).free_variables()
    return bool(free.get(LANE, 0) or free.get(WARP, 0))


def accesses_in_place(function: Function) -> dict[MemoryAccess, Value]:
    """The parameters of those accesses to global memory that may conflict: loads of one element by several
    threads, and all writes to what they load."""
    accesses = [op for op in function.walk(MemoryAccess) if _is_done_at_once(op)]
    written = {root_of(op.pointer) for op in accesses if writes_global(op)} - {None}
    loads = [op for op in accesses if not writes_global(op)] if written else []
    loaded = {root_of(op.pointer) for op in loads if _is_held(op)} & written
    if not loaded:
        return {}
    roots = {op: root_of(op.pointer) for op in accesses}
    return {op: root for op, root in roots.items() if root in loaded and (writes_global(op) or _is_held(op))}


def writes_global(op: MemoryAccess) -> bool:
    """Whether an access writes the global memory that its ``pointer`` names."""
    return "global" in op.get_effects().writes


def _is_held(op: MemoryAccess) -> bool:
    return not op.owned and is_held_by_several_threads(op.pointer.type)


def _is_done_at_once(op: MemoryAccess) -> bool:
    """Whether an access is done when the next operation begins."""
    effects = op.get_effects()
    return not effects.starts and bool(effects.reads | effects.writes)


def written_parameters(function: Function) -> tuple[str, ...]:
    """The names of the parameters through which the kernel may write global memory, in their order.

    A pointer that was loaded from memory leads to no parameter. Every other value that an address was
    computed from counts, so that a parameter may be named that is never written, but none is left out.
    """
    work = [
        operand
        for op in function.acting()
        if "global" in op.get_effects().writes
        for operand in _addressed(op)
    ]
    found = set()
    for value in each_once(work):
        found.add(value)
        work += _sources(value)
    return tuple(argument.name for argument in function.arguments if argument in found)


def _addressed(op: Operation) -> list[Value]:
    """The operands that say where an operation writes: its pointers, or without any all of them."""
    pointers = [value for value in op.operands if _is_pointer(value)]
    if op.operands and _is_pointer(op.operands[0]):
        return pointers[:1]  # a pointer that is stored is data
    return pointers or list(op.operands)


def _is_pointer(value: Value) -> bool:
    return isinstance(T.element_type(value.type), T.PointerType)


def _sources(value: Value) -> list[Value]:
    """The values that an address was computed from in one step."""
    op = value.defining_op
    if op is None:
        loop = value.block.parent_op
        if not isinstance(loop, Loop) or loop.carried_index(value) is None:
            return []
        return loop.carried_sources(loop.carried_index(value))
    if isinstance(op, Loop):
        return op.carried_sources(value.index)
    if isinstance(op, Structured):
        return [region.block.terminator.operands[value.index] for region in op.regions]
    if SAME_MEMORY in op.traits:
        return [op.operands[0]]
    if op.get_effects().reads:
        return []
    return [operand for operand in op.operands if T.element_type(operand.type) is not T.I1]
