"""Elementwise mathematical functions: which instructions or sequence each one is.

*Powers of two of many f32.* ``ex2.approx.f32`` is more than the hardware's instruction, which makes 0 of what
should be denormal: the assembler adds ``x < -126 ? ex2(x / 2)² : ex2(x)``, three instructions for each. Only
arguments from -150 to -126 need that. As unsigned integers, the bits of these numbers are a range, so that
one addition and one minimum for each argument (a single instruction from sm_90 on) tell whether a thread has
any; if it has none, and few threads ever have, the plain instruction does for all (``exp {together = …}``).
Nor is there anything to test where a sum hides such results (``flushes``), as in ``1 / (1 + exp(-x))``.
"""

from __future__ import annotations

from collections.abc import Sequence

from ptxforge.codegen_ptx.lower import math_f32, math_f64
from ptxforge.codegen_ptx.lower.arith import float_division, minimum_or_maximum
from ptxforge.codegen_ptx.lower.elementwise import (
    by_formula,
    elementwise,
    integer_class,
    sign_extended,
    width_of,
)
from ptxforge.codegen_ptx.lower.floats import FP8, contract, from_f32, negate, to_f32
from ptxforge.codegen_ptx.lower.trigonometry import reduce_together
from ptxforge.codegen_ptx.lowering import Lowering, lowers
from ptxforge.codegen_ptx.ptx import formula
from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.codegen_ptx.ptx.constants import f32, is_constant
from ptxforge.codegen_ptx.ptx.registers import Register
from ptxforge.ir import types as T
from ptxforge.ir.core import Operation
from ptxforge.ir.ops import math as ops


@lowers(ops.Log, ops.Log2, ops.Tanh, ops.Erf, ops.Pow, ops.Sqrt, ops.SqrtRn, ops.Rsqrt)
def function(ctx: Lowering, op: Operation) -> None:
    """f64 by its own formula, all narrower types in f32. Formulas have the operations' names."""
    by_formula(ctx, op, getattr(math_f32, op.name), getattr(math_f64, op.name))


@lowers(ops.Floor, ops.Ceil, ops.Trunc, ops.Rint)
def whole(ctx: Lowering, op: Operation) -> None:
    by_formula(ctx, op, getattr(formula, op.name), getattr(formula, op.name))


@lowers(ops.Sin, ops.Cos, ops.Tan)
def periodic_function(ctx: Lowering, op: ops.Periodic) -> None:
    """The arguments of a thread are reduced before anything else, several behind one branch. One by one, each
    element's branch would keep its instructions apart from the others'."""
    b, element, size = ctx.b, T.element_type(op.x.type), op.reduced_together
    if size > 1:
        arguments = list(dict.fromkeys(b.register(to_f32(b, x, element), "f") for x in ctx.get(op.x)))
        for start in range(0, len(arguments), size):
            reduce_together(b, arguments[start : start + size])
    function(ctx, op)


@lowers(ops.Fma)
def fused(ctx: Lowering, op: ops.Fma) -> None:
    b, element, negated = ctx.b, T.element_type(op.result.type), op.negated

    def fuse(x, y, z):
        x = negate(b, x, element) if negated == "product" else x
        z = negate(b, z, element) if negated == "addend" else z
        return contract(b, x, y, z, element)

    elementwise(ctx, op, fuse)


@lowers(ops.DivRn)
def divide_exactly(ctx: Lowering, op: ops.DivRn) -> None:
    float_division(ctx, op, "div.rn.f32")


@lowers(ops.Exp, ops.Exp2)
def power(ctx: Lowering, op: Operation) -> None:
    """f64 by its own sequence; all narrower types in f32. As Triton has it, powers of two that should be
    denormal are 0 unless the launch asks for them, for which the hardware has one instruction; those of e are
    not, which is done for many together."""
    b, element = ctx.b, T.element_type(op.result.type)
    is_natural = isinstance(op, ops.Exp)
    if element is T.F64:
        by_formula(ctx, op, None, getattr(math_f64, op.name))
        return
    arguments = [b.register(to_f32(b, x, element), "f") for x in ctx.get(op.x)]
    if is_natural:
        arguments = [b.pure("mul.rn.f32 %s, %s, %s;", "f", x, f32(math_f32.LOG2_E)) for x in arguments]
    if not op.flushes if is_natural else op.denormals:
        found = _powers_of_two(b, list(dict.fromkeys(arguments)), op.together if is_natural else ())
    else:
        found = {x: b.pure("ex2.approx.ftz.f32 %s, %s;", "f", x) for x in arguments}
    ctx.set(op, [from_f32(b, found[x], element) for x in arguments])


@lowers(ops.AbsF)
def absolute_float(ctx: Lowering, op: ops.AbsF) -> None:
    b, element = ctx.b, T.element_type(op.result.type)
    elementwise(ctx, op, lambda x: absolute(b, x, element))


def absolute(b: Builder, x, element: T.Type):
    """|x|."""
    if element in (T.F32, T.F64):
        kind = "f" if element is T.F32 else "d"
        return b.pure(f"abs.{element} %s, %s;", kind, b.register(x, kind) if is_constant(x) else x)
    if isinstance(x, int):
        return x & ((1 << (element.bits - 1)) - 1)
    if element in FP8:
        return b.pure("and.b32 %s, %s, 127;", "r", b.plain(x))
    return b.pure("and.b16 %s, %s, 0x7FFF;", "h", x)


@lowers(ops.AbsI)
def absolute_integer(ctx: Lowering, op: ops.AbsI) -> None:
    b, bits = ctx.b, T.element_type(op.result.type).bits
    if bits == 1:
        ctx.set(op, ctx.get(op.x))
        return
    template, kind = f"abs.s{width_of(bits)} %s, %s;", integer_class(bits)
    elementwise(ctx, op, lambda x: b.pure(template, kind, b.register(sign_extended(b, x, bits), kind)))


@lowers(ops.ClampF)
def clamp(ctx: Lowering, op: ops.ClampF) -> None:
    b, element, propagate = ctx.b, T.element_type(op.result.type), op.propagate_nan

    def limited(x, low, high):
        above = minimum_or_maximum(b, "max", propagate, x, low, element)
        return minimum_or_maximum(b, "min", propagate, above, high, element)

    elementwise(ctx, op, limited)


_FIRST = 0xC2FC0001
"""The bits of the largest f32 below -126."""
_COUNT = 0xC3160000 - _FIRST + 1
"""How many f32 there are from -150 up to that."""


def _powers_of_two(
    b: Builder, arguments: Sequence[Register], together: tuple[int, ...]
) -> dict[Register, Register]:
    """2**x by x, for f32 registers and literals; ``together`` as ``exp`` has it."""
    fewest, most, ways = together or (len(arguments) + 1, len(arguments) + 1, 1)
    results = {}
    for start in range(0, len(arguments), most):
        some = arguments[start : start + most]
        registers = [x for x in some if not is_constant(x)]
        if len(registers) < fewest:
            results |= {x: b.pure("ex2.approx.f32 %s, %s;", "f", x) for x in some}
        else:
            results |= _powers_together(b, some, registers, ways)
    return results


def _powers_together(
    b: Builder, arguments: Sequence[Register], registers: Sequence[Register], ways: int
) -> dict[Register, Register]:
    """2**x by x, with one test for all ``registers`` among the arguments."""
    rare = b.pure("setp.lt.u32 %s, %s, %s;", "p", _nearest(b, registers, ways), _COUNT)
    results = {x: b.new("f") for x in arguments}
    otherwise, end = b.label("denormal"), b.label("powers")
    b.effect(f"bra {otherwise};", guard=rare)
    for x, result in results.items():
        b.effect("ex2.approx.ftz.f32 %s, %s;", result, x)
    b.effect(f"bra {end};")
    b.place(otherwise)
    for x, result in results.items():
        b.effect("ex2.approx.f32 %s, %s;", result, x)
    b.place(end)
    return results


def _nearest(b: Builder, registers: Sequence[Register], ways: int) -> Register:
    """The least distance, as unsigned integers, of an argument's bits from ``_FIRST`` upwards."""
    chains = []
    for start in range(min(ways, len(registers))):
        nearest = None
        for x in registers[start::ways]:
            distance = b.pure("add.s32 %s, %s, %s;", "r", x, (1 << 32) - _FIRST)
            nearest = distance if nearest is None else b.pure("min.u32 %s, %s, %s;", "r", distance, nearest)
        chains.append(nearest)
    nearest = chains[0]
    for other in chains[1:]:
        nearest = b.pure("min.u32 %s, %s, %s;", "r", nearest, other)
    return nearest
