"""Which parameter a pointer points into, and which threads hold copies of one element."""

from __future__ import annotations

from ptxforge.ir import types as T
from ptxforge.ir.core import BlockArgument, Function, Operation, Value
from ptxforge.ir.definition import REARRANGING, SAME_MEMORY
from ptxforge.ir.ops.control import Loop
from ptxforge.layouts.linear import LANE, WARP


def root_of(pointer: Value) -> Value | None:
    """The parameter that a pointer, or a tensor of them, was computed from; ``None`` when it is not known (a
    pointer that was loaded, or chosen from several) or changes while a loop carries it."""
    roots: set[Value | None] = set()
    seen: set[Value] = set()
    work = [pointer]
    while work:
        pointer = work.pop()
        if pointer in seen:
            continue
        seen.add(pointer)
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
    return next(x for x in map.block.arguments if x.name == map.attributes["base"])


def is_held_by_several_threads(type: T.Type) -> bool:
    """Whether some element of a value of ``type`` is held by more than one thread, as every scalar is."""
    if not isinstance(type, T.TensorType):
        return True
    free = type.layout.linear(type.shape).free_variables()
    return bool(free.get(LANE, 0) or free.get(WARP, 0))
