"""Barriers in shared memory (``mbarrier``) and the copies of tiles that complete on them (TMA).

    %bars = local_alloc : memdesc<3x1xmbarrier, #shared<{…}>, mutable>    a barrier for each buffer of a ring
    barrier_init %bars
    barrier
    %bar = memdesc_index %bars, %slot
    %tile = barrier_expect %bar {bytes = 16384} : token<tma>
    tensor_load %map, %tile, %buffer, %row, %column
    …
    %there = barrier_wait %bar, %phase : token<tma>
    %view = memdesc_index %buffers, %slot, %there                        the tile

A barrier counts phases. A phase ends when all arrivals that it waits for, and all bytes that an arrival said
to expect, have come. The token of a ``barrier_expect`` is its phase: the copies that take it complete on its
barrier, and bring the bytes that it expects, no more and no fewer. ``barrier_wait`` waits for the end of the
phase of a parity: 0 for the first, third … use of a barrier, 1 for the second, fourth … Its token says that
this has been waited for: what copies bring is read through views that take it, and in no other way.

Where CTAs of a cluster copy a tile together (``multicast``), a barrier expects the bytes that reach its own
CTA, and readers arrive at those of all CTAs (``peers``) before it is overwritten.
"""

from __future__ import annotations

import math

from ptxforge.ir import definition as D
from ptxforge.ir import types as T
from ptxforge.ir.core import Operation
from ptxforge.ir.ops.tensor_map import check_boxes, described
from ptxforge.ir.warps import check_ranks
from ptxforge.support.errors import VerificationError

_LOAD = D.Effects(reads=frozenset({"global"}), writes=frozenset({"shared"}), other=True, starts=D.TENSORS)


@D.define("barrier_init", effects=D.SIDE_EFFECT)
class BarrierInit(Operation):
    """Make mbarriers of ``count`` arrivals, in their first phase. A ``barrier`` must follow before others use
    them."""

    barriers = D.operand(D.MBARRIERS)
    count = D.attribute(int, 1)

    infer = D.gives()


@D.define("barrier_inval", effects=D.SIDE_EFFECT)
class BarrierInval(Operation):
    """The memory of mbarriers serves other purposes, or new mbarriers, from here on. All threads must have
    waited for the last time, and met in a ``barrier`` since."""

    barriers = D.operand(D.MBARRIERS)

    infer = D.gives()


@D.define("barrier_expect", effects=D.Effects(other=True, starts=D.TENSORS))
class BarrierExpect(Operation):
    """Arrive at an mbarrier, once for the whole block, and tell it how many ``bytes`` copies will bring in
    this phase: those that take the token, which stands for it. Nothing happens where ``flag`` does not
    hold."""

    barrier = D.operand(D.MBARRIERS)
    flag = D.operand(D.SCALAR_BOOL, optional=True)
    bytes = D.attribute(int)

    infer = D.gives(T.TokenType(D.TENSORS))

    def check(self):
        copies = [user for user in self.result.users if isinstance(user, TensorLoad)]
        tiles = [value.type for copy in copies for value in copy.operands if D.MEMDESC.holds(value.type)]
        brought = sum(tile.bytes for tile in tiles)
        if brought != self.bytes:
            raise VerificationError(f"copies bring {brought} of the {self.bytes} bytes that are expected")


@D.define("barrier_arrive", effects=D.Effects(other=True, signals=D.TENSORS))
class BarrierArrive(Operation):
    """Arrive at an mbarrier, once for each warp (which has waited for what it read), unless ``flag`` does not
    hold; and at that of other CTAs of the cluster: ``peers`` are their ranks, xor the own one."""

    barrier = D.operand(D.MBARRIERS)
    flag = D.operand(D.SCALAR_BOOL, optional=True)
    peers = D.attribute(tuple, ())

    infer = D.gives()

    def check(self):
        if self.peers:
            check_ranks(self, self.peers, "peers")


@D.define("barrier_wait", effects=D.Effects(other=True, finishes=D.TENSORS))
class BarrierWait(Operation):
    """Wait until the phase of parity ``phase`` of an mbarrier has ended, unless ``flag`` does not hold.
    With ``for_copies`` only the warp waits that starts copies. Views that take the token show what came."""

    barrier = D.operand(D.MBARRIERS)
    phase = D.operand(D.SCALAR_INT)
    flag = D.operand(D.SCALAR_BOOL, optional=True)
    for_copies = D.attribute(bool, False)

    infer = D.gives(T.TokenType(D.TENSORS))


@D.define("tensor_load", effects=_LOAD, traits=[D.ANCHOR], shows_operand_types=True)
class TensorLoad(Operation):
    """Start a copy of the box of a tensor that begins at ``coordinates`` to ``destination``, by one thread;
    what lies outside of the tensor is zero. Its bytes complete in ``phase``, which a ``barrier_expect``
    of the same block gives. Nothing happens where ``flag`` (given if ``is_flagged``) does not hold.

    ``map`` is a kernel's parameter whose attributes describe the tensor, outermost dimension first; the
    coordinates are in the same order. ``ordered`` promises that nothing reads the destination any more: an
    mbarrier says so. The destination has the box's elements, dimensions of size 1 left out;
    ``tile_dims`` names the destination's dimension along each of the tensor's (-1 where there is none).

    With ``multicast``, bits of a CTA's rank, the CTAs whose ranks differ in these alone do this together,
    with equal coordinates and flags: the map's box is the share of the tile that each of them copies to all.
    """

    map = D.operand(D.TENSOR_MAP)
    phase = D.operand(D.PHASE)
    destination = D.operand(D.MEMDESC)
    rest = D.operands(D.SCALAR_INT)
    tile_dims = D.attribute(tuple)
    is_flagged = D.attribute(bool, False)
    ordered = D.attribute(bool, False)
    multicast = D.attribute(int, 0)

    infer = D.gives()

    @property
    def barrier(self):
        """The mbarrier on which it completes."""
        return self.phase.defining_op.barrier

    @property
    def coordinates(self):
        """Where the box begins, a scalar for each dimension of the tensor."""
        return self.rest[: len(self.tile_dims)]

    @property
    def flag(self):
        """The condition, or ``None``."""
        return self.rest[-1] if self.is_flagged else None

    def check(self):
        expect = self.phase.defining_op
        if not isinstance(expect, BarrierExpect) or expect.parent is not self.parent:
            raise VerificationError("'tensor_load' in a phase that no operation of its block expects")
        if len(self.rest) != len(self.tile_dims) + self.is_flagged:
            raise VerificationError(f"'tensor_load' of {len(self.tile_dims)} dimensions has {len(self.rest)} "
                                    "coordinates and flags")  # fmt: skip
        if self.is_flagged and self.flag.type is not T.I1:
            raise VerificationError(f"the flag of 'tensor_load' is {self.flag.type}")
        if not self.multicast:
            box = described(self.map)["box"]
            check_boxes(self, self.map, self.destination.type, box, self.tile_dims)
            return
        check_ranks(self, (self.multicast,), "multicast")
        rows, order = self.destination.type.shape, self.destination.type.layout.order
        box = described(self.map)["box"]
        if math.prod(box[:-1]) * self.sharers != math.prod(rows) // rows[order[0]]:
            raise VerificationError(f"boxes of {box}, copied by {self.sharers} CTAs, are no tile of {rows}")

    @property
    def sharers(self) -> int:
        """How many CTAs copy the tile together."""
        return 1 << self.multicast.bit_count()
