"""Make instructions of the sums that addresses are: a base, then an index and its unit for each term.

    sum %q2, %q0, %r1, 4, %r9, 2            (what lowerings leave)
    ld.global.b32 %f0, [%q2+512]
    sum %q3, %q0, %r2, 4, %r9, 2
    ld.global.b32 %f1, [%q3]

    sum %q4, %q0, %r9, 2                    (after share_terms)
    sum %q2, %q4, %r1, 4
    ld.global.b32 %f0, [%q2+512]
    sum %q3, %q4, %r2, 4
    ld.global.b32 %f1, [%q3]

    mad.wide.s32 %q4, %r9, 2, %q0           (after select_addresses)

Terms that more addresses on one base have are added first.

The constant part of an address stands in the instruction that accesses memory. One that does not fit there,
in 32 bits, takes an instruction of its own; accesses behind it, up to the next label, share that.
"""

from __future__ import annotations

from collections.abc import Iterator

from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.codegen_ptx.ptx.instruction import (
    CARRY,
    LABEL,
    PURE,
    Form,
    Instruction,
    form_of,
    places_with,
    rename,
)
from ptxforge.codegen_ptx.ptx.pointers import SUM, sum_of, terms_of
from ptxforge.codegen_ptx.ptx.registers import Register

Key = tuple[Register, Register, int]
"""A base and a term."""

SHARED = "share_terms: several addresses have this in common"
REASON = "select_addresses: a term of an address"
FAR = "select_addresses: a constant that no access takes"
ADD, SUBTRACT, MULTIPLY_AND_ADD = (
    "add.s64 %s, %s, %s;", "sub.s64 %s, %s, %s;", "mad.wide.s32 %s, %s, %s, %s;",
)  # fmt: skip


def select_addresses(code: list[Instruction], b: Builder) -> list[Instruction]:
    """The instructions without sums, and with constants in addresses that fit."""
    reach = 0 if "select_addresses" in b.without else 1 << 31
    result, done = [], 0
    far: dict[tuple[Register, int], Register] = {}
    for place in places_with(code, lambda form: form.addresses or _is_landmark(form)):
        instruction = code[place]
        if instruction.form.opcode == SUM:
            result += code[done:place]
            result += _selected(instruction)
            done = place + 1
        elif instruction.kind is LABEL:
            far.clear()
        for at in instruction.form.addresses:
            if _is_far(*instruction.operands[at : at + 2], reach):
                result += code[done:place]
                result += _bring_near(instruction, at, far, b)
                done = place
    return result + code[done:]


def _is_far(base: object, offset: object, reach: int) -> bool:
    """Whether a constant (not a register of the user's assembly) cannot stay in an address of 64 bits."""
    if not offset or not isinstance(offset, int) or -reach <= offset < reach:
        return False
    return isinstance(base, Register) and base.kind == "q"


def _selected(instruction: Instruction) -> Iterator[Instruction]:
    """The instructions of PTX that a sum is, one for each term."""
    found, base, *terms = instruction.operands
    instruction.why = instruction.why or REASON
    while len(terms) > 2:
        part = found.beside()
        yield Instruction(*_added(part, base, *terms[:2]), PURE, instruction.location, instruction.why)
        base, terms = part, terms[2:]
    syntax, instruction.operands = _added(found, base, *terms)
    instruction.form = form_of(syntax)
    yield instruction


def _added(result: Register, base: Register, index: Register, size: int) -> tuple[str, tuple]:
    """Syntax and operands of the instruction that adds a term."""
    if index.kind == "r":
        return MULTIPLY_AND_ADD, (result, index, size, base)
    return (ADD, (result, *sorted((base, index)))) if size == 1 else (SUBTRACT, (result, base, index))


def _bring_near(
    access: Instruction, at: int, far: dict[tuple[Register, int], Register], b: Builder
) -> list[Instruction]:
    """Let the address at operand ``at`` have no constant. Returns what adds it, if nothing did before."""
    place = base, offset = access.operands[at : at + 2]
    added = []
    if place not in far:
        far[place] = b.new("q")
        added = [Instruction(ADD, (far[place], base, offset), PURE, access.location, access.why or FAR)]
    access.operands = (*access.operands[:at], far[place], 0, *access.operands[at + 2 :])
    return added


def share_terms(code: list[Instruction], b: Builder) -> list[Instruction]:
    """The instructions, with sums of one term each."""
    landmarks = list(places_with(code, _is_landmark))
    counts: dict[Key, int] = {}
    has_several = False
    for at in landmarks:
        if code[at].form.opcode == SUM:
            operands = code[at].operands
            has_several = has_several or len(operands) > 4
            for term in terms_of(code[at]):
                key = (operands[1], *term)
                counts[key] = counts.get(key, 0) + 1
    return _Sharing(counts).rewritten(code, landmarks) if has_several else code


def _is_landmark(form: Form) -> bool:
    """Whether it is a sum, or has to do with the flow of control."""
    return form.target != "" or form.opcode in (SUM, "carry") or form.line[-1:] == ":"


class _Sharing:
    """What is known at a place: sums of a base and a term, in the order in which they were computed."""

    def __init__(self, counts: dict[Key, int]):
        self.counts = counts
        self.known: dict[Key, Register] = {}
        self.leaving: dict[str, int] = {}  # by label: how much was known at every branch to it
        self.tops: dict[Instruction, int] = {}  # by label: how much was known there
        self.same: dict[Register, Register] = {}

    def rewritten(self, code: list[Instruction], landmarks: list[int]) -> list[Instruction]:
        result: list[Instruction] = []
        done = 0
        for at in landmarks:
            instruction = code[at]
            kind = instruction.kind
            if kind is PURE:
                result += code[done:at]
                result += self._cut(instruction)
                done = at + 1
            elif kind is LABEL:
                self._forget(self.leaving.pop(instruction.form.syntax[:-1], None))
                self.tops[instruction] = len(self.known)
            elif kind is CARRY:
                self._forget(self.tops[instruction.top])
            else:
                label, now = instruction.form.target, len(self.known)
                self.leaving[label] = min(now, self.leaving.get(label, now))
        result += code[done:]
        rename(result, self.same)
        return result

    def _forget(self, left: int | None) -> None:
        """Forget all but what was known first: at every branch to the label that is here, or in front of the
        loop that ends here, whose registers change."""
        if left is not None and left < len(self.known):
            for key in list(self.known)[left:]:
                del self.known[key]
            self.leaving = {label: min(left, count) for label, count in self.leaving.items()}

    def _cut(self, instruction: Instruction) -> Iterator[Instruction]:
        """A sum as sums of one term each; those that are known are not repeated."""
        found, base = instruction.operands[:2]
        terms = list(terms_of(instruction))
        if len(terms) > 1:
            terms.sort(key=lambda term: -self.counts[(base, *term)])
        base = self.same.get(base, base)
        for n, (root, size) in enumerate(terms, 1):
            key = (base, root, size)
            known = self.known.get(key)
            is_last = n == len(terms)
            if known is None:
                known = self.known[key] = found if is_last else found.beside()
                why = instruction.why or ("" if is_last else SHARED)
                operands = (known, base, root, size)
                yield Instruction(sum_of(1), operands, PURE, instruction.location, why)
            elif is_last:
                self.same[found] = known
            base = known
