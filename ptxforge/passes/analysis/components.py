"""Which memory accesses belong together: those whose tensors are connected through the program's values."""

from __future__ import annotations

from ptxforge.ir import types as T
from ptxforge.ir.core import Function, Operation, Value
from ptxforge.ir.ops.control import Loop, Structured
from ptxforge.ir.ops.dot import Product
from ptxforge.support.worklist import each_once


class Components:
    """The connected components of the tensors of a function: two values are connected when one operation uses
    or makes both, or when control flow passes one on as the other.

    With ``data_only`` values that are computed without loading anything (indices, masks, pointers) connect
    nothing, and a dot connects only what it adds to and its result: its operands have layouts of their own.
    """

    def __init__(self, function: Function, data_only: bool = False):
        self._representative: dict[Value, Value] = {}
        self._members: dict[Value, list[Value]] = {}
        loaded = _computed_from_memory(function) if data_only else None
        for op in function.walk():
            is_apart = data_only and isinstance(op, Product)
            together = (op.c, op.result) if is_apart else (*op.operands, *op.results)
            values = [v for v in together if isinstance(v.type, T.TensorType)]
            if len(values) > 1:
                self._connect(values if loaded is None else [v for v in values if v in loaded])
            if op.regions and isinstance(op, Structured):
                self._connect_regions(op)

    def find(self, value: Value) -> Value:
        """The representative of the value's component."""
        return self._representative.get(value, value)

    def _connect(self, values: list[Value]) -> None:
        """The smaller components join the largest."""
        get = self._representative.get
        found = dict.fromkeys(map(get, values, values))
        if len(found) < 2:
            return
        groups = [self._members.setdefault(value, [value]) for value in found]
        largest = max(groups, key=len)
        for group in groups:
            if group is not largest:
                largest += group
                self._representative.update(dict.fromkeys(group, largest[0]))

    def _connect_regions(self, op: Operation) -> None:
        for group in carried_groups(op):
            self._connect([v for v in group if isinstance(v.type, T.TensorType)])


def _computed_from_memory(function: Function) -> set[Value]:
    """Every value that depends on something loaded, or on another operation with effects."""
    found: set[Value] = set()
    work = [value for op in function.acting() if not op.get_effects().is_pure for value in op.results]
    for value in each_once(work):
        found.add(value)
        for user in value.users:
            work += user.results
            if user.is_terminator and user.parent_op is not None:
                work += _members(user.parent_op)
            elif isinstance(user, Loop):
                work += _members(user)
    return found


def _members(op: Operation) -> list[Value]:
    """Results and block arguments of a control flow operation,
    as a coarse answer to what depends on its inputs."""
    return [*op.results, *(a for region in op.regions for a in region.block.arguments)]


def carried_groups(op: Operation) -> list[tuple[Value, ...]]:
    """For every result of a control flow operation: all values that control flow passes on as it, or as which
    it is passed on (initial values, block arguments, yielded values, the result)."""
    if not isinstance(op, Loop):
        return list(zip(op.results, *(region.block.terminator.operands for region in op.regions)))
    return [
        (result, *op.carried_sources(index), *op.carried_names(index)[:-1])
        for index, result in enumerate(op.results)
    ]
