"""Values of rare conditions: a branch, into which ``sink_rare`` moves all that only they need."""

from __future__ import annotations

from functools import reduce

from ptxforge.codegen_ptx.lower.arith import choose
from ptxforge.codegen_ptx.lowering import Lowering, lowers
from ptxforge.codegen_ptx.ptx.registers import register_class
from ptxforge.ir import types as T
from ptxforge.ir.ops.rare import SelectRarely


@lowers(SelectRarely)
def select_rarely(ctx: Lowering, op: SelectRarely) -> None:
    """One branch for all elements of a thread. Where a condition is known, it is a plain selection."""
    b, kind = ctx.b, register_class(T.element_type(op.result.type))
    wanted = list(zip(ctx.get(op.condition), ctx.get(op.true_value), ctx.get(op.false_value), strict=True))
    holds = list(dict.fromkeys(c for c, _, _ in wanted))
    if any(isinstance(c, int) for c in holds):
        ctx.set(op, [choose(b, *entry, kind) for entry in wanted])
        return
    found = {entry: b.new(kind) for entry in dict.fromkeys(wanted)}
    for (_, _, usual), register in found.items():
        b.copy(register, usual)
    with b.rare(reduce(lambda p, q: b.pure("or.pred %s, %s, %s;", "p", p, q), holds)):
        for (condition, x, usual), register in found.items():
            b.copy(register, choose(b, condition, x, usual, kind))
    ctx.set(op, [found[entry] for entry in wanted])
