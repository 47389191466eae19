"""mbarriers, and copies of tiles by TMA, in and out.

One thread does for the block what need not be done by all: it makes the barriers, arrives at them, and asks
for the tiles. Warp 0 elects it once, at the kernel's entry. A tile is copied panel by panel, as ``wgmma``
reads it: an instruction's innermost extent is at most the width of the swizzle.
"""

from __future__ import annotations

from ptxforge.codegen_ptx.lower.exchange import cta_rank, shared_base, shared_base_at
from ptxforge.codegen_ptx.lower.indices import is_in_first_group, lane_id, thread_id
from ptxforge.codegen_ptx.lowering import Lowering, lowers
from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.codegen_ptx.ptx.registers import Register
from ptxforge.ir.core import Value
from ptxforge.ir.ops import mbarrier as ops
from ptxforge.ir.ops import tensor_store as stores
from ptxforge.ir.ops.tensor_map import described


def leader(b: Builder):
    """The predicate of the one thread that acts for its block."""
    found = b.thread_values.get("leader")
    if found is None:
        with b.at_entry():
            elected = b.pure_many("elect.sync %s|%s, -1;", "rp")[1]
            found = b.thread_values["leader"] = b.both(elected, is_in_first_warp(b))
    return found


def block_leader(b: Builder):
    """That of the thread that acts for all groups which run the same."""
    return leader(b) if b.group.groups == 1 else b.both(leader(b), is_in_first_group(b))


def is_in_first_warp(b: Builder):
    """The predicate of the threads of warp 0."""
    with b.at_entry():
        return b.pure("setp.lt.u32 %s, %s, 32;", "p", thread_id(b))


def address(ctx: Lowering, value: Value):
    """The affine address of a barrier or buffer, which is the same in all threads."""
    b, tile = ctx.b, ctx.scalar(value)
    start = b.add(shared_base(b), tile.start)
    return start if tile.dynamic is None else b.add(start, tile.dynamic)


@lowers(ops.BarrierInit)
def init(ctx: Lowering, op: ops.BarrierInit) -> None:
    b, predicate = ctx.b, block_leader(ctx.b)
    for root, offset in _each(ctx, op.barriers):
        b.effect(f"mbarrier.init.shared::cta.b64 [%s+%s], {op.count};", root, offset, guard=predicate)
    b.effect("fence.mbarrier_init.release.cluster;", guard=predicate)


@lowers(ops.BarrierInval)
def inval(ctx: Lowering, op: ops.BarrierInval) -> None:
    b, predicate = ctx.b, leader(ctx.b)
    for root, offset in _each(ctx, op.barriers):
        b.effect("mbarrier.inval.shared::cta.b64 [%s+%s];", root, offset, guard=predicate)


def _each(ctx: Lowering, barriers: Value) -> list[tuple[Register, int]]:
    """The addresses of all barriers of a ring: a register and a displacement each."""
    root, offset = ctx.b.split(address(ctx, barriers))
    pitch = ctx.scalar(barriers).pitch
    return [(root, offset + number * pitch) for number in range(barriers.type.shape[0])]


@lowers(ops.BarrierExpect)
def expect(ctx: Lowering, op: ops.BarrierExpect) -> None:
    b = ctx.b
    predicate = leader(b) if op.flag is None else b.both(leader(b), ctx.scalar(op.flag))
    if predicate == 0:
        return
    root, offset = b.split(address(ctx, op.barrier))
    template = f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%s+%s], {op.bytes};"
    b.effect(template, root, offset, guard=predicate)


@lowers(ops.BarrierWait)
def wait(ctx: Lowering, op: ops.BarrierWait) -> None:
    b = ctx.b
    root, offset = b.split(address(ctx, op.barrier))
    phase = b.register(ctx.scalar(op.phase))
    wanted = None if op.flag is None else ctx.scalar(op.flag)
    if op.for_copies:
        wanted = b.both(wanted, is_in_first_warp(b))
    if wanted == 0:
        return
    end = ""
    if wanted is not None and wanted != 1:
        end = b.label("waited")
        b.effect(f"@!%s bra.uni {end};", wanted)
    again, done = b.label("wait"), b.new("p")
    b.place(again)
    b.effect("mbarrier.try_wait.parity.shared::cta.b64 %s, [%s+%s], %s;", done, root, offset, phase)
    b.effect(f"@!%s bra {again};", done)
    if end:
        b.place(end)


@lowers(ops.BarrierArrive)
def arrive(ctx: Lowering, op: ops.BarrierArrive) -> None:
    b = ctx.b
    root, offset = b.split(address(ctx, op.barrier))
    first = b.pure("setp.eq.s32 %s, %s, 0;", "p", lane_id(b))
    if op.flag is not None:
        first = b.both(first, ctx.scalar(op.flag))
    if not op.peers:
        b.effect("mbarrier.arrive.shared::cta.b64 _, [%s+%s];", root, offset, guard=first)
    # No release for the cluster: it would flush memory first, and what is told of, reads by tensor cores, has
    # been waited for.
    for peer in op.peers:
        there = b.split(_address_at(ctx, op.barrier, peer))
        b.effect("mbarrier.arrive.shared::cluster.b64 _, [%s+%s];", *there, guard=first)


def _address_at(ctx: Lowering, value: Value, peer: int):
    """The address of a barrier in the CTA whose rank is the own one xor ``peer``."""
    b, tile = ctx.b, ctx.scalar(value)
    with b.at_entry():
        base = shared_base_at(b, b.pure("xor.b32 %s, %s, %s;", "r", cta_rank(b), peer))
    start = b.add(base, tile.start)
    return start if tile.dynamic is None else b.add(start, tile.dynamic)


@lowers(ops.TensorLoad)
def tensor_load(ctx: Lowering, op: ops.TensorLoad) -> None:
    b = ctx.b
    predicate = leader(b) if op.flag is None else b.both(leader(b), ctx.scalar(op.flag))
    if predicate == 0:
        return
    type = op.destination.type
    columns, width = type.shape[type.layout.order[0]], described(op.map)["box"][-1]
    panel = type.numel // columns * width * type.element.bytes
    rank = len(op.tile_dims)
    kind, mask = "mbarrier::complete_tx::bytes", ()
    target, barrier = address(ctx, op.destination), b.split(address(ctx, op.barrier))
    map, corner = ctx.scalar(op.map), [ctx.scalar(c) for c in op.coordinates]
    if op.multicast:
        kind, mask = f"{kind}.multicast::cluster", (_mask_of_sharers(ctx, op),)
        share, rows = _share(b, op), type.numel // columns // op.sharers
        at = op.tile_dims.index(type.layout.order[1])
        corner[at] = b.add(corner[at], b.mul(share, rows))
        target = b.add(target, b.mul(share, panel // op.sharers))
    template = (
        f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.{kind} "
        f"[%s+%s], [%s, {{{', '.join(['%s'] * rank)}}}], [%s+%s]{', %s' * len(mask)};"
    )
    for number in range(columns // width):
        inner = b.register(b.add(corner[-1], number * width))
        outer = [b.register(c) for c in reversed(corner[:-1])]
        place = b.split(b.add(target, number * panel))
        b.effect(template, *place, map, inner, *outer, *barrier, *mask, guard=predicate)


def _share(b: Builder, op: ops.TensorLoad) -> Register:
    """Which of the shares of a tile this CTA copies: its rank's bits of ``multicast``, which are in a row."""
    with b.at_entry():
        first = (op.multicast & -op.multicast).bit_length() - 1
        share = b.pure("bfe.u32 %s, %s, %s, %s;", "r", cta_rank(b), first, op.multicast.bit_count())
    return share.within(0, op.sharers - 1)


def _mask_of_sharers(ctx: Lowering, op: ops.TensorLoad) -> Register:
    """The CTAs that copy a tile together, a bit for each."""
    b, others = ctx.b, ctx.function.attributes["num_ctas"] - 1 & ~op.multicast
    together = sum(1 << share * (op.multicast & -op.multicast) for share in range(op.sharers))
    with b.at_entry():
        first = b.pure("and.b32 %s, %s, %s;", "r", cta_rank(b), others)
        mask = b.pure("shl.b32 %s, %s, %s;", "r", together, first)
        return b.pure("cvt.u16.u32 %s, %s;", "h", mask)


_REDUCTIONS = {"fadd": "add", "umax": "max", "umin": "min"}
"""The map's type says what kind of number it is."""


@lowers(stores.TensorStore)
def tensor_store(ctx: Lowering, op: stores.TensorStore) -> None:
    """A copy for each panel of the tile (``tensor_load``)."""
    b, predicate = ctx.b, leader(ctx.b)
    type = op.source.type
    width = op.map.attributes["box"][-1]
    columns = type.shape[type.layout.order[0]]
    panel = type.numel // columns * width * type.element.bytes
    rank = len(op.coordinates)
    what = f"cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.{_REDUCTIONS.get(op.kind, op.kind)}"
    if not op.kind:
        what = f"cp.async.bulk.tensor.{rank}d.global.shared::cta"
    template = f"{what}.bulk_group [%s, {{{', '.join(['%s'] * rank)}}}], [%s+%s];"
    map, corner = ctx.scalar(op.map), [ctx.scalar(c) for c in op.coordinates]
    source = address(ctx, op.source)
    outer = [b.register(c) for c in reversed(corner[:-1])]
    for number in range(columns // width):
        inner = b.register(b.add(corner[-1], number * width))
        b.effect(template, map, inner, *outer, *b.split(b.add(source, number * panel)), guard=predicate)
    b.effect("cp.async.bulk.commit_group;", guard=predicate)
    ctx.set(op, [])


@lowers(stores.NoWork)
def no_work(ctx: Lowering, op: stores.NoWork) -> None:
    ctx.set(op, [])


@lowers(stores.StoreWait)
def store_wait(ctx: Lowering, op: stores.StoreWait) -> None:
    which = "" if op.landed else ".read"
    ctx.b.effect(f"cp.async.bulk.wait_group{which} {op.pending};", guard=leader(ctx.b))
