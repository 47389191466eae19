"""Let one thread load what is updated in place.

    %v = load %p                                    (before: every thread that holds the element)
    %w = addf %v, %v
    store %p, %w                                    (the owner alone)

    %v = load %p {owned = true}                     (after: the owner alone)

Threads that hold copies of an element (a scalar, a tile smaller than the threads are many) might load it
when its owner has stored already, so that ``insert_barriers`` has all of them meet before the store, and in a
loop before the load. Where all that is computed from what was loaded is stored, by the same owner, nobody
asks for the copies.

Rules
-----
STORED      The result, and what element-wise operations compute of it, is used by such operations and by
            stores alone, which own as the load does: they have its shape and layout. No address that is
            loaded from and no condition depends on it.
THE SAME    All writes through the parameter are stores of this shape and layout: who stores an element is who
            loads it.
"""

from __future__ import annotations

from ptxforge.ir.core import Function, Operation, Value
from ptxforge.ir.definition import ELEMENTWISE, PURE, READS_GLOBAL, WRITES_GLOBAL, MemoryAccess
from ptxforge.passes.analysis.roots import accesses_in_place, writes_global
from ptxforge.support.target import Target
from ptxforge.support.worklist import each_once


def own_loads(function: Function, target: Target) -> bool:
    """Set ``owned`` of the loads of which only owners need the result."""
    if function.attributes.get("num_ctas", 1) > 1:
        return False
    in_place = accesses_in_place(function)
    found = False
    for load, root in in_place.items():
        if load.get_effects() != READS_GLOBAL or load.guarded > load.width:
            continue
        writes = [op for op, other in in_place.items() if other is root and writes_global(op)]
        if all(_is_store_like(load.result, op) for op in writes) and is_only_stored(load.result):
            load.attributes["owned"] = found = True
    return found


def _is_store_like(value: Value, op: Operation) -> bool:
    """Whether an operation is a store that does each element in the thread that owns it in ``value``."""
    is_store = isinstance(op, MemoryAccess) and op.get_effects() == WRITES_GLOBAL
    return is_store and _layout(op.pointer) == _layout(value)


def _layout(value: Value) -> tuple | None:
    """The shape and layout of a tensor; None of a scalar."""
    shape = getattr(value.type, "shape", None)
    return None if shape is None else (shape, value.type.layout)


def is_only_stored(value: Value) -> bool:
    """Whether only the owners of its elements need ``value``: see STORED."""
    work = [value]
    for computed in each_once(work):
        for user in computed.users:
            if ELEMENTWISE in user.traits and user.get_effects() == PURE and not user.regions:
                work.extend(user.results)
            elif not _is_store_like(value, user):
                return False
    return True
