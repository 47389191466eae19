"""Which memory stores by TMA still read, on whatever path one comes to an operation.

Groups of copies finish in the order in which they were started. So of each buffer that one of them reads it
is enough to know how many newer groups there are at least: its *age*. A wait that leaves ``pending`` of the
newest under way has waited for all that are as old as that, or older.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ptxforge.ir import types as T
from ptxforge.ir.ages import either, started
from ptxforge.ir.core import BlockArgument, Function, Operation, Value
from ptxforge.ir.definition import ALLOCATES, STORES
from ptxforge.ir.ops.control import Loop
from ptxforge.ir.paths import Paths
from ptxforge.ir.views import memory_of
from ptxforge.support.worklist import each_once

Ages = dict[Operation, int]
"""The allocations that are read, each with its age."""


def check_departures(function: Function, fail: Callable[[str, Operation], None]) -> None:
    """Call ``fail`` with what is wrong, and where: a wait that leaves under way what it names, memory that is
    written again or freed, and a kernel that ends, while a copy reads. (Memory that control flow passes on is
    not known.)"""
    left = _Departures(fail).block(function.body, {})
    if left:
        fail("the kernel may end while a copy reads its memory", function.body.last)


class _Departures(Paths[Ages]):
    def __init__(self, fail: Callable[[str, Operation], None]):
        self.fail = fail

    def step(self, op: Operation, state: Ages) -> Ages:
        if op.effects.finishes == STORES:
            return self.wait(op, state)
        if op.effects.starts == STORES:
            return started(memory_of(op.source), state)
        self.check_free(op, state)
        return state

    def join(self, some: Ages, others: Ages) -> Ages:
        return either(some, others)

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
