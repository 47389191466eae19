"""Quotients of many f32 by one divisor.

``div.full.f32`` is ``(x · k) · rcp(y · k)`` with a power of two ``k`` that keeps the reciprocal normal: 1/4
for |y| > 2^126, 2^24 for |y| < 2^-126, else 1. (So ptxas expands it, with two conditional multiplications for
every dividend.) With one divisor for many dividends the reciprocal is shared, and multiplying by ``k`` ≠ 1 is
rare code: one multiplication for each dividend remains, with the same bits as result.
"""

from __future__ import annotations

from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.codegen_ptx.ptx.constants import f32, is_constant
from ptxforge.support import machine


def quotients(b: Builder, dividends: list, divisors: list) -> list:
    """The quotients of two lists of f32 operands, entry by entry."""
    groups: dict[object, dict] = {}
    for x, y in zip(dividends, divisors, strict=True):
        groups.setdefault(y, {})[x] = None
    found = {y: _by_one(b, list(xs), y) for y, xs in groups.items()}
    return [found[y][x] for x, y in zip(dividends, divisors)]


def _by_one(b: Builder, dividends: list, divisor) -> dict:
    """Quotients by dividend."""
    registers = [x for x in dividends if not is_constant(x)]
    if len(registers) < machine.QUOTIENTS_WORTH_A_BRANCH or is_constant(divisor):
        return {x: b.pure("div.full.f32 %s, %s, %s;", "f", x, divisor) for x in dividends}
    size = b.pure("abs.f32 %s, %s;", "f", divisor)
    large = b.pure("setp.gt.f32 %s, %s, %s;", "p", size, f32(2.0**126))
    small = b.pure("setp.lt.f32 %s, %s, %s;", "p", size, f32(2.0**-126))
    scale = b.pure("selp.f32 %s, %s, %s, %s;", "f", f32(2.0**24), f32(1.0), small)
    scale = b.pure("selp.f32 %s, %s, %s, %s;", "f", f32(0.25), scale, large)
    moderate = b.pure("mul.rn.f32 %s, %s, %s;", "f", divisor, scale)
    reciprocal = b.pure("rcp.approx.ftz.f32 %s, %s;", "f", moderate)
    scaled = {x: b.new("f") for x in dividends}
    for x, register in scaled.items():
        b.copy(register, x)
    with b.rare(b.pure("or.pred %s, %s, %s;", "p", large, small)):
        for register in scaled.values():
            b.effect("mul.rn.f32 %s, %s, %s;", register, register, scale)
    return {x: b.pure("mul.rn.f32 %s, %s, %s;", "f", register, reciprocal) for x, register in scaled.items()}
