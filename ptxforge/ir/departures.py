"""Which memory stores by TMA still read, on whatever path one comes to an operation.

Groups of copies finish in the order in which they were started. So of each buffer that one of them reads it
is enough to know how many newer groups there are at least: its *age*. A wait that leaves ``pending`` of the
newest under way has waited for all that are as old as that, or older.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce

from ptxforge.ir import types as T
from ptxforge.ir.ages import either
from ptxforge.ir.core import Block, BlockArgument, Function, Operation, Value
from ptxforge.ir.definition import ALLOCATES, STORES
from ptxforge.ir.ops.control import Loop, Structured
from ptxforge.ir.views import memory_of
from ptxforge.support.worklist import each_once

Ages = dict[Operation, int]
"""The allocations that are read, each with its age."""


def check_departures(function: Function, fail: Callable[[str, Operation], None]) -> None:
    """Call ``fail`` with what is wrong, and where: a wait that leaves under way what it names, memory that is
    written again or freed, and a kernel that ends, while a copy reads. (Memory that control flow passes on is
    not known.)"""
    left = _Walk(fail).block(function.body, {})
    if left:
        fail("the kernel may end while a copy reads its memory", function.body.last)


class _Walk:
    def __init__(self, fail: Callable[[str, Operation], None]):
        self.fail = fail

    def block(self, block: Block, ages: Ages) -> Ages:
        """What is read behind ``block``, of what is read in front of it."""
        for op in block.operations:
            ages = self.operation(op, ages)
        return ages

    def operation(self, op: Operation, ages: Ages) -> Ages:
        if isinstance(op, Loop):
            return self.loop(op, ages)
        if op.regions:
            ends = [self.block(region.block, ages) for region in op.regions]
            # The first warps of a partition are those that compute.
            return reduce(either, ends) if isinstance(op, Structured) else ends[0]
        if op.effects.finishes == STORES:
            return self.wait(op, ages)
        if op.effects.starts == STORES:
            return {memory: age + 1 for memory, age in ages.items()} | {memory_of(op.source): 0}
        self.check_free(op, ages)
        return ages

    def loop(self, op: Loop, ages: Ages) -> Ages:
        """Until nothing more is found to be read, or more newly, where an iteration begins."""
        while True:
            after = left = ages
            for region in op.regions:
                after = self.block(region.block, after)
                left = after if region is op.regions[0] else left
            following = either(ages, after)
            if following == ages:
                return ages if op.is_counted else left
            ages = following

    def wait(self, op: Operation, ages: Ages) -> Ages:
        under_way = {memory: age for memory, age in ages.items() if age < op.pending}
        for copy in (copy for token in op.tokens for copy in copies_behind(token)):
            if memory_of(copy.source) in under_way:
                self.fail("it leaves copies under way that it names", op)
        return under_way

    def check_free(self, op: Operation, ages: Ages) -> None:
        if not ages or not ("shared" in op.get_effects().writes or op.effects.follows):
            return
        touched = {memory_of(v) for v in op.operands if isinstance(v.type, T.MemDescType)} - {None}
        if not ages.keys().isdisjoint({*touched, op} if ALLOCATES in op.traits else touched):
            self.fail("a copy that nobody has waited for may still read the memory", op)


def copies_behind(token: Value) -> Iterator[Operation]:
    """The operations that start what a token may stand for, control flow followed back."""
    work = [token]
    for value in each_once(work):
        op = value.owner_block.parent_op if isinstance(value, BlockArgument) else value.defining_op
        if isinstance(op, Loop):
            work += op.carried_sources(op.carried_index(value))
        elif op.regions:
            ends = [region.block.last.operands for region in op.regions]
            work += [operands[value.index] for operands in ends if operands]
        elif op.effects.starts:
            yield op
