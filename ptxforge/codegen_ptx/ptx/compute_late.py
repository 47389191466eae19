"""Compute what an element needs on its way to memory behind that of the elements stored before.

    ld.global.v2.b32 {%f0, %f1}, [%q0];       (before)
    mul.rn.f32 %f2, %f0, %f0;
    mul.rn.f32 %f3, %f1, %f1;
    add.rn.f32 %f4, %f2, 1.0;
    add.rn.f32 %f5, %f3, 1.0;
    st.global.b32 [%q1], %f4;
    st.global.b32 [%q1+128], %f5;

    ld.global.v2.b32 {%f0, %f1}, [%q0];       (after)
    mul.rn.f32 %f2, %f0, %f0;
    add.rn.f32 %f4, %f2, 1.0;
    st.global.b32 [%q1], %f4;
    mul.rn.f32 %f3, %f1, %f1;
    add.rn.f32 %f5, %f3, 1.0;
    st.global.b32 [%q1+128], %f5;

An operation is lowered for all elements of a thread, so that each value waits for all the others in a
register. Where elements never meet, that many registers are not needed; the assembler mends the order of a
few elements, not that of many. Here every pure instruction waits until one that stays in its place reads its
result, or one that waits for the same. What stays: loads, stores, branches, copies to registers that are
assigned elsewhere, too.

REGIONS     What a loop's body or the code behind a branch reads is computed in front of it, and inside
            instructions wait as outside. Where a region has a way out into another one, nothing waits across
            its ends.

Done where the function's attribute ``compute_late`` says so (``passes/advise_assembler.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.codegen_ptx.ptx.instruction import LABEL, PURE, Instruction
from ptxforge.codegen_ptx.ptx.registers import Register

REASON = "compute_late: its result is needed here first"


def compute_late(code: list[Instruction], b: Builder) -> list[Instruction]:
    """The instructions, with pure ones where their results are needed first."""
    if not b.computes_late:
        return code
    order = _Order(code, b)
    order.arrange(0, len(code))
    return order.arranged


class _Order:
    """The instructions in their new order, as far as they are ``arranged``."""

    def __init__(self, code: list[Instruction], b: Builder):
        self.arranged: list[Instruction] = []
        self._kept = 0  # how many of them stay where they are
        self._kept_before: dict[Instruction, int] = {}  # how many were in front of one that waits
        self._code, self._resolved = code, b.resolved
        self._pinned = {*b.aliases, *b.aliases.values()}
        self._labels = {x.syntax[:-1]: place for place, x in enumerate(code) if x.kind is LABEL}
        self._jumps = {place: self._labels[x.form.target] for place, x in enumerate(code) if x.form.target}
        self._ends = {label: place for place, label in self._jumps.items() if label < place}

    def arrange(self, start: int, end: int) -> None:
        """The instructions from ``start`` to ``end``, behind which nothing waits any more."""
        waiting, place = _Waiting(), start
        while place < end:
            instruction = self._code[place]
            last = self._last_of_region(place, end)
            if last:
                self._keep(instruction, self._code[place : last + 1], waiting)
                self.arrange(place + 1, last)
                place = last
                self._keep(self._code[last], (), waiting)
            elif instruction.kind is PURE and self._pinned.isdisjoint(instruction.definitions):
                self._kept_before[instruction] = self._kept
                waiting.add(instruction, self._registers(instruction.uses))
            else:
                if instruction.kind is LABEL or place in self._jumps:
                    self._emit(waiting.all())
                self._keep(instruction, [instruction], waiting)
            place += 1
        self._emit(waiting.all())

    def _keep(self, instruction: Instruction, region: Sequence[Instruction], waiting: _Waiting) -> None:
        """``instruction`` is next; in front of it what the ``region`` reads, and what reads registers that
        get other values in it."""
        self._emit(waiting.needed_by(self._registers(x for i in region for x in i.uses)))
        self._emit(waiting.reading(self._registers(x for i in region for x in i.definitions)))
        self.arranged.append(instruction)
        self._kept += 1

    def _emit(self, instructions: Iterable[Instruction]) -> None:
        for instruction in instructions:
            if self._kept_before[instruction] < self._kept:
                instruction.why = instruction.why or REASON
            self.arranged.append(instruction)

    def _registers(self, operands: Iterable) -> list[Register]:
        return [self._resolved(x) for x in operands if isinstance(x, Register)]

    def _last_of_region(self, place: int, end: int) -> int:
        """Where a region that begins here ends, if its only way in is here and its only way out is there: at
        a loop's last branch back to its label, or at the label that a branch goes to. 0 where none begins."""
        is_loop = self._code[place].kind is LABEL
        last = (self._ends if is_loop else self._jumps).get(place, 0)
        if not place < last < end:
            return 0
        for jump, label in self._jumps.items():
            is_inside, enters = place <= jump <= last, place < label < last + is_loop
            if (enters and not is_inside) or (is_inside and not place <= label <= last):
                return 0
        return last


class _Waiting:
    """Instructions that wait for somebody to need their results."""

    def __init__(self) -> None:
        self._makers: dict[Register, Instruction] = {}
        self._readers: dict[Register, list[Instruction]] = {}
        self._uses: dict[Instruction, list[Register]] = {}

    def add(self, instruction: Instruction, uses: list[Register]) -> None:
        """``instruction`` waits; it reads ``uses``."""
        self._uses[instruction] = uses
        for x in uses:
            self._readers.setdefault(x, []).append(instruction)
        for x in instruction.definitions:
            self._makers[x] = instruction

    def needed_by(self, registers: Iterable[Register]) -> list[Instruction]:
        """Those that these registers come from, each behind those that it reads from. They wait no more."""
        found: list[Instruction] = []
        for register in registers:
            stack = [register]
            while stack:
                maker = self._makers.get(stack[-1])
                if maker not in self._uses:
                    stack.pop()
                    continue
                before = [x for x in self._uses[maker] if self._makers.get(x) in self._uses]
                if before:
                    stack += reversed(before)
                    continue
                del self._uses[maker]
                found.append(maker)
        return found

    def reading(self, registers: Iterable[Register]) -> list[Instruction]:
        """Those that read one of these registers, which are about to get other values."""
        late = [x for register in registers for x in self._readers.get(register, ()) if x in self._uses]
        return self.needed_by([x for instruction in late for x in instruction.definitions])

    def all(self) -> list[Instruction]:
        """All of them, in the order in which they came."""
        return self.needed_by([x for instruction in [*self._uses] for x in instruction.definitions])
