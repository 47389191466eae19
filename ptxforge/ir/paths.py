"""What is known at each operation of a function, on whatever path one comes to it.

A state goes through blocks in order. Where paths meet, behind a branch and where an iteration begins, it is
joined of what each of them brings; through a loop it goes until a further iteration adds nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import reduce
from typing import Generic, TypeVar

from ptxforge.ir.core import Block, Operation, Value
from ptxforge.ir.ops.control import Loop, Structured

State = TypeVar("State")


class Paths(ABC, Generic[State]):
    """One walk. A subclass says what an operation makes of a state, and what two states make where paths
    meet: no less than each of them, or a loop has no end."""

    def step(self, op: Operation, state: State) -> State:
        """The state behind ``op``, which has no regions: the same, unless a subclass says otherwise."""
        return state

    @abstractmethod
    def join(self, some: State, others: State) -> State:
        """What is known behind two paths of which one was taken."""

    def passed(self, state: State, values: Sequence[Value], names: Sequence[Value]) -> State:
        """The state where control flow has passed ``values`` on, which have new ``names`` now."""
        return state

    def block(self, block: Block, state: State) -> State:
        """The state behind ``block`` when ``state`` holds in front of it."""
        for op in block.operations:
            state = self.operation(op, state)
        return state

    def operation(self, op: Operation, state: State) -> State:
        """The same of any operation."""
        if isinstance(op, Loop):
            return self.loop(op, state)
        return self.branch(op, state) if op.regions else self.step(op, state)

    def branch(self, op: Operation, state: State) -> State:
        """The same of one that runs one of its regions; or all, in warps of their own: those of the first one
        go on behind it."""
        blocks = [region.block for region in op.regions]
        ends = [self.passed(self.block(block, state), block.last.operands, op.results) for block in blocks]
        return reduce(self.join, ends) if isinstance(op, Structured) else ends[0]

    def loop(self, op: Loop, state: State) -> State:
        """The same of a loop: its body may run never (``for``), or its first part once (``while``)."""
        count, blocks = len(op.results), [region.block for region in op.regions]
        begin = _last(blocks[0].arguments, count)
        state = self.passed(state, _last(op.operands, count), begin)
        while True:
            after = left = state
            for block, following in zip(blocks, (*blocks[1:], blocks[0])):
                end, values = self.block(block, after), _last(block.last.operands, count)
                left = self.passed(end, values, op.results) if block is blocks[0] else left
                after = self.passed(end, values, _last(following.arguments, count))
            joined = self.join(state, after)
            if joined == state:
                return self.passed(state, begin, op.results) if op.is_counted else left
            state = joined


def _last(values: Sequence[Value], count: int) -> Sequence[Value]:
    return values[len(values) - count :]
