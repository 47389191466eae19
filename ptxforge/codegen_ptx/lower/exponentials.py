"""Powers of two of many f32.

``ex2.approx.f32`` is more than the hardware's instruction, which makes 0 of what should be denormal: the
assembler adds ``x < -126 ? ex2(x / 2)² : ex2(x)``, three instructions for each. Only arguments from -150 to
-126 need that. As unsigned integers, the bits of these numbers are a range, so that one addition and one
minimum for each argument (a single instruction from sm_90 on) tell whether a thread has any; if it has none,
and few threads ever have, the plain instruction does for all.
"""

from __future__ import annotations

from collections.abc import Sequence

from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.codegen_ptx.ptx.constants import is_constant
from ptxforge.codegen_ptx.ptx.registers import Register
from ptxforge.support import machine

_FIRST = 0xC2FC0001
"""The bits of the largest f32 below -126."""
_COUNT = 0xC3160000 - _FIRST + 1
"""How many f32 there are from -150 up to that."""
_CHAINS = 4


def powers_of_two(b: Builder, arguments: Sequence[Register]) -> dict[Register, Register]:
    """2**x by x, for f32 registers and literals."""
    registers = [x for x in arguments if not is_constant(x)]
    if len(registers) < machine.EXPONENTIALS_WORTH_A_BRANCH:
        return {x: b.pure("ex2.approx.f32 %s, %s;", "f", x) for x in arguments}
    rare = b.pure("setp.lt.u32 %s, %s, %s;", "p", _nearest(b, registers), _COUNT)
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


def _nearest(b: Builder, registers: Sequence[Register]) -> Register:
    """The least distance, as unsigned integers, of an argument's bits from ``_FIRST`` upwards."""
    chains = []
    for start in range(min(_CHAINS, len(registers))):
        nearest = None
        for x in registers[start::_CHAINS]:
            distance = b.pure("add.s32 %s, %s, %s;", "r", x, (1 << 32) - _FIRST)
            nearest = distance if nearest is None else b.pure("min.u32 %s, %s, %s;", "r", distance, nearest)
        chains.append(nearest)
    nearest = chains[0]
    for other in chains[1:]:
        nearest = b.pure("min.u32 %s, %s, %s;", "r", nearest, other)
    return nearest
