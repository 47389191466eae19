"""Which parameters of a kernel point at memory that it may write."""

from __future__ import annotations

from ptxforge.ir import types as T
from ptxforge.ir.core import Function, Operation, Value
from ptxforge.ir.definition import SAME_MEMORY
from ptxforge.ir.ops.control import Loop, Structured


def written_parameters(function: Function) -> tuple[str, ...]:
    """The names of the parameters through which the kernel may write global memory, in their order.

    A pointer that was loaded from memory leads to no parameter. Every other value that an address was
    computed from counts, so that a parameter may be named that is never written, but none is left out.
    """
    work = [
        operand
        for op in function.walk()
        if "global" in op.get_effects().writes
        for operand in _addressed(op)
    ]
    seen: set[Value] = set()
    while work:
        value = work.pop()
        if value not in seen:
            seen.add(value)
            work.extend(_sources(value))
    return tuple(argument.name for argument in function.arguments if argument in seen)


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
