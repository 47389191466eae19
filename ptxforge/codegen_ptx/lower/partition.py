"""Groups of warps that run different code.

    @%p1 bra $extra_warps;  setmaxnreg.inc …
    …
    bar.sync 0;  consumers;  bar.sync 0;
    …;  bra $end
    $extra_warps:  setmaxnreg.dec …
    bar.sync 0;  @!%p2 bra $idle_1;  producer
    $idle_1:  bar.sync 0;
    $end:

The producer has a builder of its own, as it starts with nothing but parameters and its thread's number.
"""

from __future__ import annotations

from ptxforge.codegen_ptx.lower.indices import group_number, thread_id
from ptxforge.codegen_ptx.lowering import Lowering, lowers
from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.ir import types as T
from ptxforge.ir.core import Value
from ptxforge.ir.ops.partition import GetConsumerGroup, Partition
from ptxforge.support.machine import WARP_SIZE


@lowers(Partition)
def partition(ctx: Lowering, op: Partition) -> None:
    """The consumers' part stands where the partition does; the producers' follow the kernel."""
    _meet(ctx.b)
    ctx.block(op.consumers)
    _meet(ctx.b)
    ctx.set(op, *(ctx.get(v) for v in op.consumers.terminator.values))
    ctx.partitions.append(op)


@lowers(GetConsumerGroup)
def consumer_group(ctx: Lowering, op: GetConsumerGroup) -> None:
    ctx.set(op, [group_number(ctx.b)])


def _meet(b: Builder) -> None:
    """All threads of the block meet."""
    b.effect("bar.sync 0;")


def add_producers(ctx: Lowering) -> None:
    """Append what the extra warps run of all partitions lowered so far."""
    main, first = ctx.b, ctx.partitions[0]
    b = ctx.b = main.for_others(first.warps_of(first.regions[1]))
    thread_id(b)
    known, ctx.values = ctx.values, {}
    ctx.values.update((argument, [ctx.parameter(argument)]) for argument in ctx.function.arguments)
    for op in ctx.partitions:
        ctx.values.update(_shared_memory(op, known))
        _meet(b)
        end = _skip_if_idle(ctx)
        b.open_scope()
        ctx.block(op.producer)
        b.close_scope()
        if end:
            b.place(end)
        _meet(b)
    registers = ctx.function.attributes.get("warp_registers", ())
    ways = [f"setmaxnreg.{way}.sync.aligned.u32 {n};" for way, n in zip(("inc", "dec"), registers)]
    main.end_with(b, *ways)
    ctx.b = main


def _shared_memory(op: Partition, known: dict[Value, list]) -> dict[Value, list]:
    """The buffers and barriers that the producer uses, which have their places at compile time."""
    used = (value for nested in op.producer.walk() for value in nested.operands)
    return {value: known[value] for value in used if isinstance(value.type, T.MemDescType) and value in known}


def _skip_if_idle(ctx: Lowering) -> str:
    """Branch past what the first of the extra warps does; the label, or nothing where it is the only one."""
    if ctx.function.attributes["extra_warps"] == 1:
        return ""
    b = ctx.b
    works = b.pure("setp.lt.u32 %s, %s, %s;", "p", thread_id(b), WARP_SIZE)
    end = b.label("idle")
    b.effect(f"@!%s bra.uni {end};", works)
    return end
