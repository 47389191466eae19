"""What nothing depends on is erased, values carried around a loop for their own sake included.

    %a = addi %x, %y : i32                                                (before)
    %r, %s = for %i = %lo to %hi step %c iter_args(%k = %x, %m = %y) : i32, i32 {
      %n = muli %k, %k : i32
      %o = addi %m, %i : i32
      yield %n, %o
    }
    store %p, %s : (ptr<i32>, i32)

    %s = for %i = %lo to %hi step %c iter_args(%m = %y) : i32 {           (after)
      %o = addi %m, %i : i32
      yield %o
    }
    store %p, %s : (ptr<i32>, i32)

ROOTS       An operation that acts on the world is live, and so are the operations around it.
OPERANDS    The operands of a live operation are live. (Initial values of a loop, and operands of a terminator
            other than the flag of ``condition``, only as below.)
CARRIED     A carried value of a loop is live when its result or an argument is; then its initial value and
            what the regions pass on for it are live.
BRANCHES    A live result of ``if`` makes live what both branches yield for it.
"""

from __future__ import annotations

from ptxforge.ir.core import Block, Function, Operation, OpResult, Value
from ptxforge.ir.ops.control import Loop, Structured
from ptxforge.ir.ops.debug import Assume
from ptxforge.passes.analysis.assumptions import keep_signs
from ptxforge.support.target import Target


def dce(function: Function, target: Target) -> bool:
    """Mark what is live, erase the rest."""
    live = Liveness()
    for op in function.acting():
        if not op.get_effects().is_removable:
            live.mark_operation(op)
    live.propagate()
    return sweep(function.body, live)


class Liveness:
    """Live operations and values: mark what must be there, then :meth:`propagate`."""

    def __init__(self) -> None:
        self.operations: set[Operation] = set()
        self.values: set[Value] = set()
        self.blocks: set[Block] = set()  # what is around them is live
        self.pending: list[Value] = []

    def mark_operation(self, op: Operation) -> None:
        """``op`` is live, whatever becomes of its results (ROOTS, OPERANDS)."""
        if op in self.operations:
            return
        self.operations.add(op)
        passed_on = len(op.results) if isinstance(op, Structured) else 0
        self._mark_all_but(op, passed_on if isinstance(op, Loop) else 0)
        for region in op.regions:
            self._mark_all_but(region.block.last, passed_on)
        if op.parent not in self.blocks:
            self._mark_around(op.parent)

    def _mark_around(self, block: Block) -> None:
        """What is around a block is live."""
        self.blocks.add(block)
        if block.parent_op is not None:
            self.mark_operation(block.parent_op)

    def _mark_all_but(self, op: Operation, last: int) -> None:
        """The operands of ``op`` are live, except so many at the end."""
        self.pending += op.operands[: len(op.operands) - last] if last else op.operands

    def propagate(self) -> None:
        """Mark all that what is live is made of."""
        pending, values, operations = self.pending, self.values, self.operations
        while pending:
            value = pending.pop()
            if value in values:
                continue
            values.add(value)
            op = value.defining_op
            if op is None:
                if isinstance(value.block.parent_op, Loop):
                    self._of_carried(value.block.parent_op, value)
            elif op.regions:
                self._of_result(op, value)
            elif op not in operations:
                operations.add(op)
                pending += op.operands
                if op.parent not in self.blocks:
                    self._mark_around(op.parent)

    def _of_result(self, op: Operation, value: OpResult) -> None:
        self.mark_operation(op)
        if isinstance(op, Loop):
            self._of_carried(op, value)
        elif isinstance(op, Structured):
            self.pending += [region.block.last.operands[value.index] for region in op.regions]

    def _of_carried(self, loop: Loop, value: Value) -> None:
        self.mark_operation(loop)
        index = loop.carried_index(value)
        if index is not None:
            self.values.update(loop.carried_names(index))
            self.pending += loop.carried_sources(index)


def sweep(block: Block, live: Liveness) -> bool:
    """Erase dead operations of a block, last first, and dead carried values and results of live ones."""
    changed = False
    before = block.last
    while before is not None:
        op, before = before, before.previous
        if op not in live.operations:
            if not op.is_terminator:
                op.discard()
                changed = True
        elif op.regions:
            if isinstance(op, Structured):
                changed |= _drop_results(op, live)
            for region in op.regions:
                changed |= sweep(region.block, live)
    return changed


def _drop_results(op: Structured, live: Liveness) -> bool:
    dead = [result.index for result in op.results if result not in live.values]
    for index in reversed(dead):
        if isinstance(op, Loop):
            _drop_carried(op, index)
            continue
        for region in op.regions:
            region.block.last.erase_operand(index)
        op.erase_result(index)
    return bool(dead)


def _drop_carried(loop: Loop, index: int) -> None:
    """Take out a carried value; the dead operations of the regions that still use it get its initial
    value."""
    initial, *_ = loop.carried_sources(index)
    *arguments, _ = loop.carried_names(index)
    for argument in arguments:
        argument.replace_all_uses_with(initial)
    loop.erase_carried(index)


def drop_assumptions(function: Function, target: Target) -> bool:
    """Erase every ``assume`` when the analyses that may use it have run; what it computed is dead code. What
    it says of signs stays noted: that a box does not begin in front of its tensor is asked later."""
    promises = function.walk(Assume)
    if promises:
        keep_signs(function)
    for op in promises:
        op.erase()
    return bool(promises)
