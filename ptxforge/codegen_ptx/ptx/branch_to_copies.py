"""Put what one thread does to copy tiles by TMA behind one branch.

    @%p mbarrier.arrive.expect_tx …, [%r8], 49152;             (before)
    @%p cp.async.bulk.tensor … [%r9], [%q1, {%r4, %r5}], …;
    add.s32 %r6, %r5, 64;
    @%p cp.async.bulk.tensor … [%r10], [%q1, {%r4, %r6}], …;

    add.s32 %r6, %r5, 64;                                      (after)
    @!%p bra $copies_1;
    mbarrier.arrive.expect_tx …, [%r8], 49152;
    cp.async.bulk.tensor … [%r9], [%q1, {%r4, %r5}], …;
    cp.async.bulk.tensor … [%r10], [%q1, {%r4, %r6}], …;
    $copies_1:

The operands of such a copy are uniform registers. Under a guard the assembler takes them for the thread's
own: every warp computes them in vector registers and moves them, some twice. Behind a branch it computes them
where they are needed, and the other warps jump.

Done where the function's attribute ``branch_to_copies`` says so (``passes/advise_assembler.py``).
"""

from __future__ import annotations

from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.codegen_ptx.ptx.instruction import EFFECT, LABEL, PURE, Instruction
from ptxforge.codegen_ptx.ptx.registers import Register

_COPIES = ("@%s cp.async.bulk.tensor.", "@%s cp.reduce.async.bulk.tensor.")
_RUNS = (*_COPIES, "@%s mbarrier.arrive.expect_tx.", "@%s cp.async.bulk.commit_group")
"""What a run consists of, with arithmetic in between."""


def branch_to_copies(code: list[Instruction], b: Builder) -> list[Instruction]:
    """The instructions, with a branch around each run of copies under one guard."""
    if not b.branches_to_copies:
        return code
    reassigned = {*b.aliases, *b.aliases.values()}
    result: list[Instruction] = []
    done = 0
    for place in [p for p, instruction in enumerate(code) if instruction.form.syntax.startswith(_RUNS)]:
        length = _length(code, place, reassigned) if place >= done else 0
        if length:
            result += code[done:place] + _behind_branch(code[place : place + length], b)
            done = place + length
    return result + code[done:] if done else code


def _length(code: list[Instruction], place: int, reassigned: set[Register]) -> int:
    """Of the run that begins at ``place`` and ends with a copy or what belongs to one; 0 where none does.
    Arithmetic in between moves in front of it, so nothing that the run reads may change there."""
    guard, end, has_copies = code[place].guard, place, False
    for index in range(place, len(code)):
        instruction = code[index]
        if instruction.syntax.startswith(_RUNS) and instruction.guard is guard:
            has_copies = has_copies or instruction.syntax.startswith(_COPIES)
            end = index + 1
        elif instruction.kind is not PURE or not reassigned.isdisjoint(instruction.definitions):
            break
    return end - place if has_copies else 0


def _behind_branch(run: list[Instruction], b: Builder) -> list[Instruction]:
    first, end = run[0], b.label("copies")
    arithmetic = [i for i in run if i.kind is PURE]
    copies = [
        Instruction(i.syntax.removeprefix("@%s "), i.operands[1:], EFFECT, i.location, i.why)
        for i in run
        if i.kind is not PURE
    ]
    branch = Instruction(f"@!%s bra {end};", (first.guard,), EFFECT, first.location)
    return [*arithmetic, branch, *copies, Instruction(end + ":", (), LABEL)]
