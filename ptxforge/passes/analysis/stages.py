"""In which stage of a pipelined loop an operation has to be done, for those that need it."""

from __future__ import annotations

from ptxforge.ir.core import Operation, Value
from ptxforge.ir.ops.control import For


def place_dependencies(loop: For, stage: dict[Operation, int], last: int) -> None:
    """Give every other operation the earliest stage that its users demand: what a stage-s operation needs,
    through operands and carried values, is in stage s at the latest; all else is in the last stage."""
    work: list[tuple[Value, int]] = []

    def demand(op: Operation, at: int) -> None:
        for nested in op.walk():
            work.extend((value, at) for value in nested.operands)

    for op, at in list(stage.items()):
        demand(op, at)
    fixed = set(stage)
    while work:
        value, at = work.pop()
        if value in loop.carried:
            work.append((loop.next_of(value), at))
        op = loop.body.ancestor_of(value.defining_op) if value.defining_op is not None else None
        if op is None or op in fixed or stage.get(op, last + 1) <= at:
            continue
        stage[op] = at
        demand(op, at)
    for op in loop.body.operations:
        if not op.is_terminator:
            stage.setdefault(op, last)
