"""Compute differences that signed extrema read by the complement.

    sub.s32 %r8, 4, %r4;                (before)
    max.s32 %r9, %r6, %r8;
    max.s32 %r10, %r9, %r7;

    not.b32 %r11, %r4;                  (after)
    add.s32 %r8, %r11, 5;
    max.s32 %r9, %r6, %r8;
    max.s32 %r10, %r9, %r7;

For sm_90 and newer the assembler makes one instruction with three operands of such a chain (``VIMNMX3``).
Where the second one is a negated register it drops the sign: the maximum of ``x, y, z`` in place of that of
``x, -y, z`` (``ptxas`` 12.8 and 13.0, and drivers of that time; signed integers of 32 and of 16 bits, minima
too). It does so through copies, and where arithmetic becomes a negation in its hands: ``4 - y`` where ``y``
is ``w + 4``; ``k - y``, or ``k · y``, in the iteration of a loop that it unrolls in which ``k`` is 0, or -1.
A sum that it leaves out there (``+ k``) makes a chain of two extrema, too. Of a complement and a sum it makes
no negation. No target is exempt: a driver assembles PTX for older targets for the GPU that there is.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from functools import cached_property
from itertools import chain

from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.codegen_ptx.ptx.instruction import LABEL, PURE, Form, Instruction, places_of, places_with
from ptxforge.codegen_ptx.ptx.registers import Register

REASON = "spell_out_negations: the assembler drops the sign of what an extremum reads"

_EXTREMA = ("min.s", "max.s")
_ARITHMETIC = (
    "mov.b32", "selp.b32", "cvt.", "prmt.b32", "add.s32", "sub.s32", "mul.lo.", "mad.lo.", "shl.b32", "shr.",
    "and.b32", "or.b32", "xor.b32",
)  # fmt: skip
"""Behind which the assembler may see a negation: each may become a copy, or take back what another does."""
_DIFFERENCE, _PRODUCT = "sub.s32 %s, %s, %s;", "mul.lo.s32 %s, %s, %s;"

Flow = Callable[[Register], Iterable[Register]]
"""Where values go: from a register to those beside it."""


def spell_out_negations(code: list[Instruction], b: Builder) -> list[Instruction]:
    """The instructions, with a complement and a sum for each difference, and for each product, that a chain
    of signed extrema reads and that may be a negation."""
    groups = [group for group in _by_opcode(code) if len(group) > 1 or _is_repeated(code, group[0])]
    if not groups:
        return code
    candidates = [place for place in places_with(code, _may_negate) if _negates(code[place])]
    if not candidates:
        return code
    flows = _Flows([code[place] for place in places_with(code, _computes)], b)
    read = set()
    for group in groups:
        read |= _read_by_chains([code[place] for place in group], flows, b)
    candidates = [x for x in candidates if not read.isdisjoint(map(b.resolved, code[x].definitions))]
    varying = _varying(code, [code[place] for place in candidates], flows, b)
    result, done = [], 0
    for place in candidates:
        if (spelled := _spelled_out(code[place], varying, b)) is not None:
            result += code[done:place] + spelled
            done = place + 1
    return result + code[done:] if done else code


def _by_opcode(code: list[Instruction]) -> Iterable[list[int]]:
    """Where the extrema of each opcode stand."""
    found = defaultdict(list)
    for place in places_with(code, _is_extremum):
        found[code[place].form.opcode].append(place)
    return found.values()


def _is_repeated(code: list[Instruction], place: int) -> bool:
    """Whether an instruction may read what it has computed itself: a branch behind it leads to before it."""
    before = {code[at].form.syntax[:-1] for at in places_of(code[:place], "kind", {LABEL})}
    return any(True for _ in places_with(code[place:], lambda form: form.target in before))


class _Flows:
    """What each register is computed from by ``arithmetic`` (``sources``), and what is computed from it
    (``results``, which is seldom asked)."""

    def __init__(self, arithmetic: list[Instruction], b: Builder):
        self.arithmetic, self.b = arithmetic, b

    def sources(self, register: Register) -> Iterator[Register]:
        for maker in self._makers.get(register, ()):
            yield from self._read(maker)

    def results(self, register: Register) -> Iterable[Register]:
        return self._results.get(register, ())

    @cached_property
    def _makers(self) -> Mapping[Register, list[Instruction]]:
        found, resolved = defaultdict(list), self.b.resolved
        for instruction in self.arithmetic:
            for made in instruction.definitions:
                found[resolved(made)].append(instruction)
        return found

    @cached_property
    def _results(self) -> Mapping[Register, list[Register]]:
        found = defaultdict(list)
        for instruction in self.arithmetic:
            made = [*map(self.b.resolved, instruction.definitions)]
            for read in self._read(instruction):
                found[read] += made
        return found

    def _read(self, instruction: Instruction) -> Iterator[Register]:
        """What it computes with: all operands but the guard and the results."""
        form = instruction.form
        return map(self.b.resolved, instruction.operands[form.guarded + form.results :])


def _ends(instruction: Instruction, b: Builder) -> tuple[list[Register], list[Register]]:
    """What an instruction defines, and the registers that it reads."""
    uses = [b.resolved(x) for x in instruction.uses if isinstance(x, Register)]
    return [*map(b.resolved, instruction.definitions)], uses


def _read_by_chains(extrema: list[Instruction], flows: _Flows, b: Builder) -> Set[Register]:
    """What reaches those that read another one's result, or their own in a loop, or have theirs read by
    one."""
    ends = [_ends(extremum, b) for extremum in extrema]
    read = _reached(chain.from_iterable(uses for _, uses in ends), flows.sources)
    first = {x for made, _ in ends for x in made} & read
    if not first:
        return first
    behind = _reached(first, flows.results)
    chained = [uses for made, uses in ends if not (read.isdisjoint(made) and behind.isdisjoint(uses))]
    return _reached(chain.from_iterable(chained), flows.sources)


def _reached(registers: Iterable[Register], flow: Flow) -> Set[Register]:
    """These registers, and those that lie behind them."""
    known = set(registers)
    waiting = [*known]
    while waiting:
        fresh = [x for x in flow(waiting.pop()) if x not in known]
        known.update(fresh)
        waiting += fresh
    return known


def _varying(
    code: list[Instruction], candidates: list[Instruction], flows: _Flows, b: Builder
) -> Set[Register]:
    """What may be a constant of an iteration: variables of loops, and what is computed from them. Asked for
    products alone."""
    if not any(map(_has_factors, candidates)):
        return frozenset()
    definitions = Counter(b.resolved(x) for instruction in code for x in instruction.definitions)
    return _reached([x for x, count in definitions.items() if count > 1], flows.results)


def _is_extremum(form: Form) -> bool:
    return form.opcode.startswith(_EXTREMA)


def _computes(form: Form) -> bool:
    return form.opcode.startswith(_ARITHMETIC)


def _may_negate(form: Form) -> bool:
    return form.syntax in (_DIFFERENCE, _PRODUCT)


def _negates(instruction: Instruction) -> bool:
    """Whether it may be ``-x`` in the assembler's hands: ``c - x``, ``x · -1``, ``x · y``."""
    _, x, y = instruction.operands
    if instruction.syntax == _DIFFERENCE:
        return isinstance(y, Register)
    return -1 in (x, y) or _has_factors(instruction)


def _has_factors(instruction: Instruction) -> bool:
    """Whether it is a product of two registers."""
    return instruction.syntax == _PRODUCT and all(isinstance(x, Register) for x in instruction.operands)


def _spelled_out(instruction: Instruction, varying: Set[Register], b: Builder) -> list[Instruction] | None:
    """The same value by a complement; None of a product whose factors are no constants of an iteration."""
    made, x, y = instruction.operands
    code, place = [], instruction.location

    def computed(syntax: str, *operands) -> Register:
        code.append(Instruction(syntax, (made.beside(), *operands), PURE, place, REASON))
        return code[-1].operands[0]

    if instruction.syntax == _DIFFERENCE:
        first, negated = x, y
    elif not _has_factors(instruction):
        first, negated = 0, x if y == -1 else y
    elif (factor := next((z for z in (x, y) if b.resolved(z) in varying), None)) is None:
        return None
    else:  # x · y = x · (y + 1) - x
        negated = x if factor is y else y
        first = computed(_PRODUCT, negated, computed("add.s32 %s, %s, %s;", factor, 1))
    complement = computed("not.b32 %s, %s;", negated)
    if isinstance(first, Register):
        first, complement = 0, computed("add.s32 %s, %s, %s;", first, complement)
    last = (made, complement, first + 1)
    return [*code, Instruction("add.s32 %s, %s, %s;", last, instruction.kind, place, REASON)]
