"""What is cheap to compute again is not kept in registers across a loop of matrix products.

    %offsets = muli %rows, %stride          (before)
    for … { dot … }
    store (addptr %out, %offsets), …        its registers would be live in all of the loop: compute them again

Such a loop takes all registers that there are. Index arithmetic that is needed after it but not in it is
therefore lowered a second time right behind it, from a copy of the thread's number that the assembler cannot
see through: it would otherwise merge the two. So are the thread's places in shared memory for what follows.
"""

from __future__ import annotations

from collections.abc import Iterable

from ptxforge.codegen_ptx.lowering import LOWERINGS, Lowering
from ptxforge.ir import types as T
from ptxforge.ir.core import Operation, Value
from ptxforge.ir.definition import ADDRESSING
from ptxforge.ir.ops.dot import Product


def rematerialize_after(ctx: Lowering, loop: Operation) -> None:
    """Lower again what is used after ``loop`` but not in it."""
    if not loop.regions[0].block.has(Product) or "recompute" in ctx.b.without:
        return
    inside = {v for op in loop.walk() for v in op.operands}
    earlier = _operations_before(loop)
    again: set[Operation] = set()
    following = loop.next
    while following is not None:
        for op in following.walk():
            for value in op.operands:
                _collect(value, earlier, inside, again)
        following = following.next
    if loop.parent is ctx.function.body:
        ctx.b.start_anew()
        _lower_again(ctx, earlier, again)
    elif again:
        ctx.b.forget()
        with ctx.b.fresh_thread():
            _lower_again(ctx, earlier, again)


def _lower_again(ctx: Lowering, earlier: Iterable[Operation], again: set[Operation]) -> None:
    with ctx.b.because("recompute: needed only behind the loop, which needs the registers"):
        for op in earlier:
            if op in again:
                LOWERINGS[type(op)](ctx, op)


def _operations_before(loop: Operation) -> dict[Operation, None]:
    """The operations of the same block that come before ``loop``, in order."""
    found = {}
    for op in loop.parent.operations:
        if op is loop:
            break
        found[op] = None
    return found


def _collect(value: Value, earlier: dict[Operation, None], inside: set[Value], again: set[Operation]) -> None:
    """Add the operation that defines ``value`` to ``again``, and what it needs, if it is to be lowered
    again."""
    op = value.defining_op
    if op is None or op in again or value in inside or ADDRESSING not in op.traits:
        return
    if not isinstance(value.type, T.TensorType) or op not in earlier:
        return
    again.add(op)
    for operand in op.operands:
        _collect(operand, earlier, inside, again)

