"""Groups of warps: who runs an operation together.

All warps of a block run a kernel's body, but for ``extra_warps``, which wait for the operations that give
them something to do (``ops/partition.py``). An operation that hands its regions to some warps
(``SplitsWarps``) says which group runs which. What is inside is for that group alone: layouts cover its
warps, scratch memory is for them, barriers wait for nobody else.

Of a function with ``consumer_groups`` so many groups of ``num_warps`` run the body, each for itself: the
first of its ``extra_warps`` are those of the other groups.
"""

from __future__ import annotations

import attrs

from ptxforge.ir.core import Function, Operation, Region
from ptxforge.ir.interfaces import Interfaces
from ptxforge.support.errors import VerificationError
from ptxforge.support.machine import WARP_SIZE


@attrs.frozen
class WarpGroup:
    """``count`` warps of a block from number ``first`` on, which meet at the hardware's barrier number
    ``barrier``: 0 is that of the whole block. With ``groups`` there are so many of the kind, one behind the
    other, which run the same; each meets at a barrier of its own."""

    count: int
    first: int = 0
    barrier: int = 0
    groups: int = 1

    @property
    def threads(self) -> int:
        return WARP_SIZE * self.count

    @property
    def first_thread(self) -> int:
        """The number in the block of the group's first thread."""
        return WARP_SIZE * self.first

    @property
    def end_thread(self) -> int:
        """The number of the first thread behind all of the kind."""
        return WARP_SIZE * self.end

    @property
    def end(self) -> int:
        """The number of the first warp behind all of the kind."""
        return self.first + self.count * self.groups


class SplitsWarps(Operation):
    """Base of operations whose regions are run by groups of their own."""

    def warps_of(self, region: Region) -> WarpGroup:
        """The group that runs ``region``."""
        raise NotImplementedError


CONSUMER_BARRIER, PRODUCER_BARRIER = 1, 2
"""Where the groups of a block with ``extra_warps`` meet; number 0 is for all of them together. Further groups
of consumers meet at the numbers behind, each ``BARRIERS_APART`` from the last."""
BARRIERS_APART = 2


def warps_of(function: Function) -> WarpGroup:
    """The warps that run a function's body: all of a block but for its ``extra_warps``."""
    barrier = CONSUMER_BARRIER if function.attributes.get("extra_warps") else 0
    groups = function.attributes.get("consumer_groups", 1)
    return WarpGroup(function.attributes["num_warps"], barrier=barrier, groups=groups)


def threads_of(function: Function) -> int:
    """Threads of a block, those of ``extra_warps`` included."""
    return WARP_SIZE * (function.attributes["num_warps"] + function.attributes.get("extra_warps", 0))


def check_ranks(op: Operation, numbers: tuple, name: str) -> None:
    """That ``numbers`` are bits in which the ranks of a program's CTAs may differ."""
    block = op.parent
    while not isinstance(block.parent, Function):
        block = block.parent.parent.parent
    ctas = block.parent.attributes.get("num_ctas", 1)
    if not all(isinstance(number, int) and 0 <= number < ctas for number in numbers):
        raise VerificationError(f"'{name}' of '{op.name}' names ranks beyond the {ctas} of the program")


def warps_around(op: Operation) -> WarpGroup:
    """The group that runs ``op``."""
    block = op.parent
    while not isinstance(block.parent, Function):
        region = block.parent
        if isinstance(region.parent, SplitsWarps):
            return region.parent.warps_of(region)
        block = region.parent.parent
    return warps_of(block.parent)


def scratch_of(op: Operation) -> int:
    """Bytes of shared memory that ``op`` needs while its group runs it, or all groups that do; 0 for most."""
    if type(op).scratch_bytes is Interfaces.scratch_bytes:  # whatever the group: none
        return 0
    group = warps_around(op)
    return op.scratch_bytes(group.count) * group.groups
