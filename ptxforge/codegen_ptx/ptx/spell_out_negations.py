"""Compute differences that signed extrema read by the complement.

    sub.s32 %r8, 0, %r4;                (before)
    max.s32 %r9, %r6, %r8;
    max.s32 %r10, %r9, %r7;

    not.b32 %r11, %r4;                  (after)
    add.s32 %r8, %r11, 1;
    max.s32 %r9, %r6, %r8;
    max.s32 %r10, %r9, %r7;

For sm_90 and newer the assembler makes one instruction with three operands of such a chain (``VIMNMX3``).
Where the second one is a negated register it drops the sign: the maximum of ``x, y, z`` in place of that of
``x, -y, z`` (``ptxas`` 12.8 and 13.0, and drivers of that time; signed integers of 32 and of 16 bits, minima
too). It does so through copies, and where a difference becomes a negation in its hands, as
``sub.s32 %r8, %k, %r4`` does in the first iteration of a loop that it unrolls. Of a complement and a sum it
makes no negation. No target is exempt: a driver assembles PTX for older targets for the GPU that there is.
"""

from __future__ import annotations

from collections.abc import Set

from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.codegen_ptx.ptx.instruction import PURE, Form, Instruction, places_with
from ptxforge.codegen_ptx.ptx.registers import Register

REASON = "spell_out_negations: the assembler drops the sign of what an extremum reads"

_EXTREMA = ("min.s", "max.s")
_MOVES = ("mov.b32", "selp.b32", "cvt.", "prmt.b32")
"""Behind which the assembler may see a negation."""
_DIFFERENCE, _PRODUCT = "sub.s32 %s, %s, %s;", "mul.lo.s32 %s, %s, %s;"


def spell_out_negations(code: list[Instruction], b: Builder) -> list[Instruction]:
    """The instructions, with a complement and a sum for each difference that a chain of signed extrema reads
    and that may be a negation."""
    extrema = [code[place] for place in places_with(code, _is_extremum)]
    negations = [place for place in places_with(code, _may_negate) if _negates(code[place])]
    if not extrema or not negations:
        return code
    moves = [_ends(code[place], b) for place in places_with(code, _moves)]
    read: set[Register] = set()
    for opcode in {extremum.form.opcode for extremum in extrema}:
        chain = _chained([_ends(x, b) for x in extrema if x.form.opcode == opcode], moves)
        read |= _before(set().union(*(uses for _, uses in chain)), moves)
    result, done = [], 0
    for place in negations:
        if not read.isdisjoint(map(b.resolved, code[place].definitions)):
            result += code[done:place] + _spelled_out(code[place])
            done = place + 1
    return result + code[done:] if done else code


Ends = tuple[Set[Register], Set[Register]]
"""What an instruction defines, and what it reads."""


def _ends(instruction: Instruction, b: Builder) -> Ends:
    return {*map(b.resolved, instruction.definitions)}, {*map(b.resolved, instruction.uses)}


def _chained(extrema: list[Ends], moves: list[Ends]) -> list[Ends]:
    """Those that read another one's result, or their own in a loop, or have theirs read by one."""
    read = _before(set().union(*(uses for _, uses in extrema)), moves)
    made = {x for results, _ in extrema for x in results} & read
    behind = _before(made, [(uses, results) for results, uses in moves])
    return [ends for ends in extrema if not (ends[0].isdisjoint(read) and ends[1].isdisjoint(behind))]


def _before(registers: set[Register], moves: list[Ends]) -> set[Register]:
    """These registers, and those that moves bring to them."""
    known = -1
    while known < len(registers):
        known = len(registers)
        for results, uses in moves:
            if not registers.isdisjoint(results):
                registers |= uses
    return registers


def _is_extremum(form: Form) -> bool:
    return form.opcode.startswith(_EXTREMA)


def _moves(form: Form) -> bool:
    return form.opcode.startswith(_MOVES)


def _may_negate(form: Form) -> bool:
    return form.syntax in (_DIFFERENCE, _PRODUCT)


def _negates(instruction: Instruction) -> bool:
    """Whether it is ``0 - x``, or may become that; ``x · -1``."""
    _, x, y = instruction.operands
    if instruction.syntax == _PRODUCT:
        return -1 in (x, y)
    return not isinstance(y, int) and (x == 0 or not isinstance(x, int))


def _spelled_out(instruction: Instruction) -> list[Instruction]:
    result, x, y = instruction.operands
    if instruction.syntax == _PRODUCT:
        x, y = 0, x if y == -1 else y
    place, complement = instruction.location, result.beside()
    code = [Instruction("not.b32 %s, %s;", (complement, y), PURE, place, REASON)]
    if x != 0:
        total = result.beside()
        code.append(Instruction("add.s32 %s, %s, %s;", (total, x, complement), PURE, place, REASON))
        complement = total
    code.append(Instruction("add.s32 %s, %s, %s;", (result, complement, 1), instruction.kind, place, REASON))
    return code
