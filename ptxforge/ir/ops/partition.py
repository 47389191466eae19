"""Warp specialization: groups of warps of a block that run different code at the same time.

    %sum = partition { … yield %last } producer { … yield }

All warps meet when a partition begins and when it ends; between, mbarriers alone say what one group may do.
A function with partitions has ``extra_warps`` beside its ``num_warps``: the first one runs the producers, the
others only meet the rest. With ``warp_registers = [m, n]`` a thread of the ``num_warps`` has m registers, one
of the others n, from the kernel's entry on (``setmaxnreg``); at launch each has the function's ``maxnreg``.

With ``consumer_groups = n`` there are n groups of ``num_warps`` consumers, which run the same and differ in
``get_consumer_group``; the others of them are the first of the ``extra_warps``. Two groups that multiply take
turns: each waits for an mbarrier at which the other one arrives when it has started its products.
"""

from __future__ import annotations

from collections.abc import Iterator

from ptxforge.ir import definition as D
from ptxforge.ir import types as T
from ptxforge.ir.core import Block, Function, Operation, Region, Value
from ptxforge.ir.ops.convert_layout import ConvertLayout
from ptxforge.ir.ops.mbarrier import BarrierArrive, BarrierExpect, BarrierInit, BarrierWait
from ptxforge.ir.warps import PRODUCER_BARRIER, SplitsWarps, WarpGroup, scratch_of, warps_around, warps_of
from ptxforge.support import machine
from ptxforge.support.errors import VerificationError


@D.define("partition", effects=D.SIDE_EFFECT)
class Partition(SplitsWarps):
    """``consumers`` are run by the function's warps, and give the results; ``producer`` by one more warp.
    Stands in a function's body, not in a loop or branch. The producer sees of what is outside only parameters
    and shared memory, as nobody else computes for it. Several groups of consumers give no results, and of
    what has scratch memory only conversions of layouts have some for each.
    """

    consumers = D.region()
    producer = D.region()

    @property
    def function(self) -> Function:
        """The function in whose body this stands."""
        return self.parent.parent

    def warps_of(self, region: Region) -> WarpGroup:
        everyone = warps_of(self.function)
        if region is self.regions[0]:
            return everyone
        return WarpGroup(1, everyone.end, PRODUCER_BARRIER)

    def check(self):
        if [v.type for v in self.consumers.last.operands] != [r.type for r in self.results]:
            raise VerificationError("the consumers of 'partition' must yield its results")
        if self.producer.last.operands:
            raise VerificationError("the producer of 'partition' yields nothing")
        self._check_place()
        self._check_groups()
        self._check_captures()
        self._check_registers()
        _Arrivals(self).check()

    def _check_place(self) -> None:
        function = self.parent.parent
        if not isinstance(function, Function):
            raise VerificationError("'partition' stands in a function's body only")
        if function.attributes.get("extra_warps", 0) < 1 + self._other_consumers:
            raise VerificationError("the function has no 'extra_warps' for the producer of 'partition'")

    @property
    def _other_consumers(self) -> int:
        """Warps of all groups of consumers but the first."""
        everyone = warps_of(self.function)
        return everyone.count * (everyone.groups - 1)

    def _check_groups(self) -> None:
        if not self._other_consumers:
            return
        if self.results:
            raise VerificationError("several groups of consumers of 'partition' have no results")
        for op in self.consumers.walk():
            if not isinstance(op, ConvertLayout) and scratch_of(op):
                raise VerificationError(f"'{op.name}' has no scratch memory for each group of consumers")

    def _check_captures(self) -> None:
        own = {None, *self.producer.walk()}  # parameters belong to no operation
        for value in (value for op in self.producer.walk() for value in op.operands):
            source = value.defining_op or value.owner_block.parent_op
            if source not in own and not isinstance(value.type, T.MemDescType):
                raise VerificationError(f"the producer of 'partition' uses a {value.type} of other warps")

    def _check_registers(self) -> None:
        """What all threads have together is what the block was launched with: more would be waited for
        for ever."""
        attributes = self.function.attributes
        counts = attributes.get("warp_registers")
        if counts is None:
            return
        low, high = machine.SETTABLE_REGISTERS
        if any(count % 8 or not low <= count <= high for count in counts):
            raise VerificationError(f"registers must be a multiple of 8 from {low} to {high}, not {counts}")
        extra = attributes["extra_warps"] - self._other_consumers
        warps = attributes["num_warps"] + self._other_consumers
        if extra % machine.WARPS_SET_TOGETHER:
            raise VerificationError(f"{extra} extra warps are no whole warpgroups, which 'setmaxnreg' wants")
        launched = (warps + extra) * (attributes.get("maxnreg") or 0)
        wanted = warps * counts[0] + extra * counts[1]
        if wanted > launched:
            raise VerificationError(f"{wanted} registers of 32 threads are wanted, {launched} were launched")


@D.define("get_consumer_group", nonnegative_if=D.ALWAYS)
class GetConsumerGroup(Operation):
    """Which of the ``consumer_groups`` this one is, as ``i32``, from 0 on. Stands among the consumers."""

    infer = D.gives(T.I32)

    def check(self):
        if warps_around(self).groups < 2:
            raise VerificationError("'get_consumer_group' where there is one group of consumers")


class _Arrivals:
    """Who arrives at and who waits for the mbarriers of a partition."""

    def __init__(self, partition: Partition):
        self.partition = partition
        self.consumers = list(_on_barriers(partition.consumers))
        self.producer = list(_on_barriers(partition.producer))

    def check(self) -> None:
        self._check_users()
        groups = warps_of(self.partition.function).groups
        for ops, others in ((self.consumers, self.producer), (self.producer, self.consumers)):
            for op, ring in ops:
                if isinstance(op, BarrierWait):
                    self._check_wait(ring, self.consumers + self.producer if groups > 1 else others)
                elif _arrives(op):
                    self._check_count(op, ring)

    def _check_users(self) -> None:
        """Outside, nobody can say in which phase such a barrier is."""
        inside = {op for op, _ in (*self.consumers, *self.producer)}
        for ring in {ring: None for _, ring in (*self.consumers, *self.producer)}:
            if any(_barrier_of(op) is not None and op not in inside for op in users_of(ring.result)):
                raise VerificationError("a barrier of 'partition' is used outside of it")

    @staticmethod
    def _check_wait(ring: Operation, others: list[tuple[Operation, Operation]]) -> None:
        if not any(_arrives(op) and other is ring for op, other in others):
            raise VerificationError("a wait in 'partition' for a barrier at which no other group arrives")

    def _check_count(self, op: Operation, ring: Operation) -> None:
        """All arrivals of a phase are those of one operation: one for a block, or one for each warp."""
        own = self.consumers if (op, ring) in self.consumers else self.producer
        others = self.producer if own is self.consumers else self.consumers
        if any(_arrives(other) and its is ring for other, its in others):
            raise VerificationError("two groups of 'partition' arrive at one barrier")
        group = self.partition.warps_of(self.partition.regions[own is self.producer])
        made = 1 if isinstance(op, BarrierExpect) else group.count
        wanted = [user.count for user in ring.result.users if isinstance(user, BarrierInit)]
        if wanted != [made]:
            listed = ", ".join(map(str, wanted)) or "no"
            raise VerificationError(f"a barrier of {listed} arrivals in 'partition' gets {made}")


def _arrives(op: Operation) -> bool:
    return isinstance(op, (BarrierArrive, BarrierExpect))


def _on_barriers(block: Block) -> Iterator[tuple[Operation, Operation]]:
    """The operations on mbarriers, each with the allocation that these are of."""
    for op in block.walk():
        if (barrier := _barrier_of(op)) is not None:
            yield op, allocation_of(barrier)


def _barrier_of(op: Operation) -> Value | None:
    """The mbarrier that an operation arrives at, waits for, or lets a copy complete on."""
    return getattr(op, "barrier", None)


def users_of(buffer: Value) -> Iterator[Operation]:
    """The operations that use a buffer or a view of it, views left out."""
    for user in buffer.users:
        if D.SAME_MEMORY in user.traits:
            yield from users_of(user.result)
        else:
            yield user


def allocation_of(value: Value) -> Operation:
    """The ``local_alloc`` of a buffer or mbarrier. Raises :class:`VerificationError` where views alone do not
    lead there."""
    op = value.defining_op
    while op is not None and D.SAME_MEMORY in op.traits:
        op = op.operands[0].defining_op
    if op is None or D.ALLOCATES not in op.traits:
        raise VerificationError("a partition's shared memory must be known, and not be carried by loops")
    return op
