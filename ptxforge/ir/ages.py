"""How many newer groups of asynchronous work there are, at each wait, than those that it names.

Groups of a queue finish in the order in which they were started: a wait that is to leave as many as possible
under way may leave those that are newer than all that it names, on whatever path one comes to it. The *age*
of a token is how many groups are surely newer than its own; a copy of threads that no group has taken yet
has age -1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from ptxforge.ir.core import Block, Function, Operation, Value
from ptxforge.ir.definition import COPIES
from ptxforge.ir.ops.control import Loop, Structured

Started = TypeVar("Started")
"""What stands for something that was started: its token, or the memory that it reads."""
Ages = dict[Value, int]
"""Those of tokens; what is not among them was never started."""


def ages_at_waits(function: Function, queue: str = COPIES) -> dict[Operation, int]:
    """For each wait for ``queue`` that names what was started, the least age of what it names."""
    if not any(op.effects.finishes == queue for op in function.acting()):
        return {}
    walk = _Walk(queue)
    walk.block(function.body, {})
    return walk.found


class _Walk:
    def __init__(self, queue: str):
        self.queue = queue
        self.found: dict[Operation, int] = {}

    def block(self, block: Block, ages: Ages) -> Ages:
        for op in block.operations:
            ages = self.operation(op, ages)
        return ages

    def operation(self, op: Operation, ages: Ages) -> Ages:
        if isinstance(op, Loop):
            return self.loop(op, ages)
        if op.regions:
            return self.branch(op, ages)
        if op.effects.starts == self.queue and op.effects.fills:
            return {**ages, op.result: -1}
        if op.effects.starts == self.queue:
            return {token: age + 1 for token, age in ages.items()} | {op.result: 0}
        if op.effects.finishes == self.queue and not ages.keys().isdisjoint(op.operands):
            self.found[op] = min(ages[token] for token in op.operands if token in ages)
        return ages

    def branch(self, op: Operation, ages: Ages) -> Ages:
        ends = []
        for block in (region.block for region in op.regions):
            end = self.block(block, ages)
            ends.append(_renamed(end, block.last.operands, op.results))
        if not isinstance(op, Structured):
            return ends[0]
        after = ends[0]
        for end in ends[1:]:
            after = either(after, end)
        return after

    def loop(self, op: Loop, ages: Ages) -> Ages:
        count = len(op.results)
        initial = op.operands[len(op.operands) - count :]
        first = op.regions[0].block
        entry = _renamed(ages, initial, first.arguments[len(first.arguments) - count :])
        while True:
            after, left = entry, entry
            for number, region in enumerate(op.regions):
                end = self.block(region.block, after)
                passed = region.block.last.operands[len(region.block.last.operands) - count :]
                if number == 0:
                    left = _renamed(end, passed, op.results)
                following = op.regions[(number + 1) % len(op.regions)].block.arguments
                after = _renamed(end, passed, following[len(following) - count :])
            joined = either(entry, after)
            if joined == entry:
                break
            entry = joined
        if not op.is_counted:
            return left
        return either(_renamed(ages, initial, op.results), left)


def _renamed(ages: Ages, values: Sequence[Value], names: Sequence[Value]) -> Ages:
    return ages | {name: ages[value] for value, name in zip(values, names) if value in ages}


def either(some: dict[Started, int], others: dict[Started, int]) -> dict[Started, int]:
    """The least ages behind two paths of which one was taken."""
    return {x: min(ages[x] for ages in (some, others) if x in ages) for x in {**some, **others}}
