"""The matrix product on the FMA units. (On tensor cores: ``mma.py``.)

Operands have ``dot_op`` layouts of the result's blocked layout: a thread holds all of k for its rows of ``a``
and columns of ``b``. The loop over k is outermost, so that each step needs only one column of ``a`` and one
row of ``b``. A step goes through its rows to and fro: from one instruction to the next only the accumulator
and one operand change. The register file reads one register of odd and one of even number per cycle, and what
stays in its place comes from the reuse cache, so that an instruction of three operands takes one cycle.
Operands narrower than the accumulator are widened where they are first used, and those in shared memory are
loaded one step before.
"""

from __future__ import annotations

from collections.abc import Callable

from ptxforge.codegen_ptx.lower import mma
from ptxforge.codegen_ptx.lower.elementwise import sign_extended, zero_extended
from ptxforge.codegen_ptx.lower.floats import contract, from_f32, to_f32
from ptxforge.codegen_ptx.lowering import Lowering, lowers
from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.ir import types as T
from ptxforge.ir.ops.dot import Dot
from ptxforge.layouts.encodings import Mma


@lowers(Dot)
def dot(ctx: Lowering, op: Dot) -> None:
    if isinstance(op.c.type.layout, Mma):
        mma.multiply(ctx, op)
    else:
        multiply_add(ctx, op)


def multiply_add(ctx: Lowering, op: Dot) -> None:
    """One multiply-add per element of the thread's result and k."""
    b, element = ctx.b, op.c.type.element
    wide = T.F32 if element in (T.F16, T.BF16) else element
    widen_a = _widener(b, op.a.type.element, wide, op.a_unsigned)
    widen_b = _widener(b, op.b.type.element, wide, op.b_unsigned)
    accumulate = _accumulator(b, wide)
    total = [x if wide is element else to_f32(b, x, element) for x in ctx.get(op.c)]
    left, right = ctx.get(op.a), ctx.get(op.b)
    column: dict[int, object] = {}
    row: dict[int, object] = {}
    for register, i, j in op.steps:
        ctx.before_product(op)
        if i not in column:
            column[i] = widen_a(left[i])
        if j not in row:
            row[j] = widen_b(right[j])
        total[register] = accumulate(column[i], row[j], total[register])
    ctx.set(op, total if wide is element else [from_f32(b, x, element) for x in total])


def _widener(b: Builder, element: T.Type, wide: T.Type, unsigned: bool) -> Callable:
    """How an operand becomes the type that is multiplied."""
    if element is wide:
        return lambda x: x
    if wide is T.F64:
        return lambda x: b.pure("cvt.f64.f32 %s, %s;", "d", b.register(to_f32(b, x, element), "f"))
    if wide is T.F32:
        return lambda x: to_f32(b, x, element)
    extend = zero_extended if unsigned else sign_extended
    return lambda x: b.register(extend(b, x, element.bits), "r")


def _accumulator(b: Builder, wide: T.Type) -> Callable:
    """x · y + z in the accumulator's type."""
    if wide.is_float:
        return lambda x, y, z: contract(b, x, y, z, wide)
    bits = 64 if wide.bits == 64 else 32
    kind = "q" if bits == 64 else "r"
    template = f"mad.lo.s{bits} %s, %s, %s, %s;"
    return lambda x, y, z: b.pure(template, kind, x, y, b.plain(z))
