"""Stores and reductions by TMA: one thread starts them, and waits for them."""

from __future__ import annotations

from ptxforge.codegen_ptx.lower.mbarrier import address, leader
from ptxforge.codegen_ptx.lowering import Lowering, lowers
from ptxforge.ir.ops import tensor_store as ops

_INSTRUCTION = {"fadd": "add", "umax": "max", "umin": "min"}
"""The map's type says what kind of number it is."""


@lowers(ops.TensorStore)
def tensor_store(ctx: Lowering, op: ops.TensorStore) -> None:
    """A copy for each panel of the tile (``tensor_load``)."""
    b, predicate = ctx.b, leader(ctx.b)
    type = op.source.type
    width = op.map.attributes["box"][-1]
    columns = type.shape[type.layout.order[0]]
    panel = type.numel // columns * width * type.element.bytes
    rank = len(op.coordinates)
    what = f"cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.{_INSTRUCTION.get(op.kind, op.kind)}"
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


@lowers(ops.StoreWait)
def store_wait(ctx: Lowering, op: ops.StoreWait) -> None:
    which = "" if op.landed else ".read"
    ctx.b.effect(f"cp.async.bulk.wait_group{which} {op.pending};", guard=leader(ctx.b))
