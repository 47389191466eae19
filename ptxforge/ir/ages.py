"""How many newer groups of asynchronous work there are, at each wait, than those that it names.

Groups of copies by threads finish in the order in which they were started: a wait that is to leave as many
as possible under way may leave those that are newer than all that it names, on whatever path one comes to it
(``passes/count_groups.py``). The *age* of a token is how many groups are surely newer than its own. A copy is
of the group that names it, and before that of the one that took it; as long as none has, it has age -1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from ptxforge.ir.core import Block, Function, Operation, Value
from ptxforge.ir.definition import COPIES
from ptxforge.ir.paths import Paths

Started = TypeVar("Started")
"""What stands for something that was started: its token, or the memory that it reads."""
Ages = dict[Value, int]
"""Those of tokens; what is not among them was never started."""


def ages_at_waits(function: Function) -> dict[Operation, int]:
    """For each wait for copies of threads that names what was started, the least age of what it names."""
    if not any(op.effects.finishes == COPIES for op in function.acting()):
        return {}
    walk = _Ages(function)
    walk.block(function.body, {})
    return walk.found


class _Ages(Paths[Ages]):
    def __init__(self, function: Function):
        self.found: dict[Operation, int] = {}
        # What changes a state: few operations of many.
        self.changing: dict[Block, list[Operation]] = {}
        for op in function.walk():
            if op.regions or COPIES in (op.effects.starts, op.effects.finishes):
                self.changing.setdefault(op.parent, []).append(op)

    def block(self, block: Block, state: Ages) -> Ages:
        for op in self.changing.get(block, ()):
            state = self.operation(op, state)
        return state

    def step(self, op: Operation, state: Ages) -> Ages:
        if op.effects.starts == COPIES and op.effects.fills:
            return {**state, op.result: -1}
        if op.effects.starts == COPIES:
            return started(op.result, state) | {token: 0 for token in op.operands if token in state}
        if op.effects.finishes == COPIES and not state.keys().isdisjoint(op.operands):
            self.found[op] = min(state[token] for token in op.operands if token in state)
        return state

    def join(self, some: Ages, others: Ages) -> Ages:
        return either(some, others)

    def passed(self, state: Ages, values: Sequence[Value], names: Sequence[Value]) -> Ages:
        return state | {name: state[value] for value, name in zip(values, names) if value in state}


def started(new: Started, ages: dict[Started, int]) -> dict[Started, int]:
    """The ages behind the start of a ``new`` group."""
    return {one: age + 1 for one, age in ages.items()} | {new: 0}


def either(some: dict[Started, int], others: dict[Started, int]) -> dict[Started, int]:
    """The least ages behind two paths of which one was taken."""
    return {x: min(ages[x] for ages in (some, others) if x in ages) for x in {**some, **others}}
