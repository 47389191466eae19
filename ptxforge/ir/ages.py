"""How many newer groups of asynchronous work there are, at each wait, than those that it names.

Groups of copies by threads, and those of products, finish in the order in which they were started: a wait
that is to leave as many as possible under way may leave those that are newer than all that it names, on
whatever path one comes to it (``passes/count_groups.py``). The *age* of a token, or of a flight, is how many
groups that may be unfinished are surely newer than its own. A copy is of the group that names it, and before
that of the one that took it; as long as none has, it has age -1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from ptxforge.ir.core import Block, Function, Operation, Value
from ptxforge.ir.definition import PRODUCTS
from ptxforge.ir.paths import Paths

Started = TypeVar("Started")
"""What stands for something that was started: its token, or the memory that it reads."""
Ages = dict[Value, int]
"""Those of tokens and flights; what is not among them was never started."""


def ages_at_waits(top: Function | Operation, queue: str) -> dict[Operation, int]:
    """For each wait for a ``queue`` that names what was started in ``top`` (a function, or a loop), how many
    groups it may leave under way: the least age of what it names, with those that it leaves ``but``."""
    ops = top.walk()
    if not any(op.effects.finishes == queue for op in ops):
        return {}
    walk = _Ages(ops, queue)
    if isinstance(top, Function):
        walk.block(top.body, {})
    else:
        walk.operation(top, {})
    return walk.found


class _Ages(Paths[Ages]):
    def __init__(self, ops: Iterable[Operation], queue: str):
        self.queue = queue
        self.found: dict[Operation, int] = {}
        # What changes a state: few operations of many.
        self.changing: dict[Block, list[Operation]] = {}
        for op in ops:
            if op.regions or queue in (op.effects.starts, op.effects.finishes):
                self.changing.setdefault(op.parent, []).append(op)

    def block(self, block: Block, state: Ages) -> Ages:
        for op in self.changing.get(block, ()):
            state = self.operation(op, state)
        return state

    def step(self, op: Operation, state: Ages) -> Ages:
        if op.effects.finishes:
            return self.wait(op, state)
        if op.effects.fills:
            return {**state, op.result: -1}
        if self.queue == PRODUCTS:
            return started(op.result, state) if op.effects.reads_by else state
        return started(op.result, state) | {token: 0 for token in op.operands if token in state}

    def wait(self, op: Operation, state: Ages) -> Ages:
        """What is older than all that ``op`` leaves under way is finished with it."""
        named = [state[value] for value in op.operands if value in state]
        if not named:
            return state
        left = self.found[op] = min(named) + getattr(op, "but", 0)
        return {value: min(age, left) for value, age in state.items()}

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
