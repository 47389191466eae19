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
OPERANDS    The operands of a live operation are live. (Those of ``for`` beyond its bounds, and of a
            terminator, only as below.)
CARRIED     A carried value of ``for`` is live when its result or its argument is; then its initial value and
            what the body yields for it are live.
BRANCHES    A live result of ``if`` makes live what both branches yield for it. ``while`` keeps all its
            carried values.
"""

from __future__ import annotations

from ptxforge.ir.core import Block, BlockArgument, Function, Operation, OpResult, Value
from ptxforge.ir.ops.control import For, If
from ptxforge.support.target import Target


def dce(function: Function, target: Target) -> bool:
    """Mark what is live, erase the rest."""
    live = _Liveness()
    for op in function.walk():
        if not op.get_effects().is_removable:
            live.mark_operation(op)
    live.propagate()
    return _sweep(function.body, live)


class _Liveness:
    def __init__(self) -> None:
        self.operations: set[Operation] = set()
        self.values: set[Value] = set()
        self.pending: list[Value] = []

    def mark(self, value: Value) -> None:
        if value not in self.values:
            self.values.add(value)
            self.pending.append(value)

    def mark_operation(self, op: Operation) -> None:
        """``op`` is live, whatever becomes of its results (ROOTS, OPERANDS)."""
        if op in self.operations:
            return
        self.operations.add(op)
        operands = op.operands[:3] if type(op) is For else op.operands
        for value in operands:
            self.mark(value)
        for region in op.regions:
            if type(op) not in (For, If):
                self._mark_region(region.block)
        if op.parent_op is not None:
            self.mark_operation(op.parent_op)

    def _mark_region(self, block: Block) -> None:
        for value in block.last.operands:
            self.mark(value)

    def propagate(self) -> None:
        while self.pending:
            value = self.pending.pop()
            if isinstance(value, OpResult):
                self._of_result(value)
            elif isinstance(value, BlockArgument) and type(value.block.parent_op) is For and value.index > 0:
                self._of_carried(value.block.parent_op, value.index - 1)

    def _of_result(self, value: OpResult) -> None:
        op = value.op
        self.mark_operation(op)
        if type(op) is For:
            self._of_carried(op, value.index)
        elif type(op) is If:
            for block in (op.then_block, op.else_block):
                self.mark(block.last.operands[value.index])

    def _of_carried(self, op: For, index: int) -> None:
        self.mark_operation(op)
        for value in (op.initial[index], op.body.last.operands[index], op.carried[index], op.results[index]):
            self.mark(value)


def _sweep(block: Block, live: _Liveness) -> bool:
    """Erase dead operations of a block, last first, and dead carried values and results of live ones."""
    changed = False
    for op in block.operations_reversed:
        if op.is_terminator:
            continue
        if op not in live.operations:
            op.erase()
            changed = True
            continue
        if type(op) in (For, If):
            changed |= _drop_results(op, live)
        for region in op.regions:
            changed |= _sweep(region.block, live)
    return changed


def _drop_results(op: For | If, live: _Liveness) -> bool:
    dead = [result.index for result in op.results if result not in live.values]
    for index in reversed(dead):
        if type(op) is If:
            op.then_block.last.erase_operand(index)
            op.else_block.last.erase_operand(index)
            op.erase_result(index)
        else:
            _drop_carried(op, index)
    return bool(dead)


def _drop_carried(op: For, index: int) -> None:
    """Take out a carried value, with the dead operations of the body that still use it."""
    argument = op.carried[index]
    argument.replace_all_uses_with(op.initial[index])
    op.erase_carried(index)
