"""Let a loop's pointers take in what its accesses add.

    %p = %start                             (before)
    $for:
    sum %q1, %p, %column, 2, %row0, 2       and so for each row

    sum %q2, %start, %column, 2             (after: the column is in the pointer)
    %p = %q2
    $for:
    sum %q1, %p, %row0, 2

What is left for each row costs two instructions and a register. Where lanes have different rows, a pointer of
its own that walks takes a register more, and its instructions need no offset to be scaled and extended. Rows
that a warp shares stay: a uniform register holds them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from itertools import chain
from operator import or_

from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.codegen_ptx.ptx.instruction import COPY, LABEL, PURE, Carry, Instruction, places_naming, rename
from ptxforge.codegen_ptx.ptx.pointers import SUM, Term, sum_of, terms_of
from ptxforge.codegen_ptx.ptx.registers import MOVES, Register
from ptxforge.codegen_ptx.ptx.sink_rare import drop_dead
from ptxforge.support import machine

Terms = tuple[Term, ...]
FEWEST, MOST = machine.LOOP_POINTER_ACCESSES
ADD = "add.s64 %s, %s, %s;"
COMMON = "walk_pointers: all accesses of the loop's pointer add it"
OWN = "walk_pointers: its rows differ within a warp, so it has a register of its own"

_BITS: dict[str, Callable[..., int]] = {
    "and": lambda bits, mask: bits & mask,
    "shr": lambda bits, count: bits >> count,
    "shl": lambda bits, count: bits << count,
    "bfe": lambda bits, start, count: bits >> start & (1 << count) - 1,
}


def walk_pointers(code: list[Instruction], b: Builder) -> list[Instruction]:
    """The instructions, with other pointers in the loops."""
    behind: dict[Register, tuple[Register, Terms]] = {}
    for carry in b.loops:
        if carry.held is not None and any(x.kind == "q" for x in carry.operands[::2]):
            code = _Loop(code, carry, behind).walked()
    return drop_dead(code, b) if behind else code


class _Loop:
    """A loop. ``taken``: which pointer of an earlier loop a register is, without which terms."""

    def __init__(self, code: list[Instruction], carry: Carry, taken: dict):
        self.code, self.carry, self.taken = code, carry, taken
        self.top = code.index(carry.top)
        self.end = code.index(carry, self.top)
        # Of addresses: the pointer, terms and bytes that they are; where they are made; who else reads them.
        self.places: dict[Register, tuple[Register, Terms, int]] = {}
        self.made_at: dict[Register, int] = {}
        self.used: dict[Register, list[Instruction]] = {}
        self._read()
        self.roots = {root for _, terms, _ in self.places.values() for root, _ in terms}
        self.changing = self._changing()
        self.made: dict[object, list[Instruction]] = {}
        self.bits: dict[object, int] = {}
        self.starts: list[Instruction] = []
        self.needed = set(self.roots)
        self.front: list[Instruction] = []
        self.copies: list[Instruction] = []
        self.instead: dict[int, list[Instruction]] = {}
        self.same: dict[Register, Register] = {}
        self.ends: list[Instruction] = []
        self.next: dict[Register, Register] = {}
        self.behind: list[Instruction] = []

    def _read(self) -> None:
        carried = list(zip(self.carry.operands[::2], self.carry.operands[1::2], strict=True))
        places, used = self.places, self.used
        places |= {pointer: (pointer, (), 0) for pointer, _ in carried if pointer.kind == "q"}
        disjoint = places.keys().isdisjoint
        for at, instruction in enumerate(self.code[self.top : self.end], self.top):
            operands = instruction.operands
            if disjoint(operands):
                continue
            more = _addition(instruction)
            base = places.get(operands[1]) if more else None
            for x in operands[2:] if base else operands:
                if x in places:
                    used.setdefault(x, []).append(instruction)
            if base:
                places[operands[0]] = base[0], base[1] + more[0], base[2] + more[1]
                self.made_at[operands[0]] = at
        self.following: dict[Register, Register] = {}
        self.others: dict[Register, Register] = {}  # what else becomes an address
        for register, x in carried:
            if x in places:
                is_own = x in self.made_at and places[x][0] is register
                (self.following if is_own else self.others)[register] = x

    def _changing(self) -> set[Register]:
        """Of the registers that addresses add, those that the loop assigns."""
        found = list(self.carry.operands[::2])
        body = self.code[self.top : self.end] if self.roots else ()
        for place in places_naming(body, self.roots):
            found += body[place].definitions
        return self.roots.intersection(found)

    def walked(self) -> list[Instruction]:
        """The instructions of the kernel."""
        for pointer, x in self.following.items():
            self._walk(pointer, x)
        return self._rewritten() if self.starts else self.code

    def _walk(self, pointer: Register, following: Register) -> None:
        """Let a pointer walk with what its accesses add to it."""
        places = [self.places[x] for x in self.used]
        found = list(dict.fromkeys(_sorted(terms) for x, terms, _ in places if x is pointer))
        if not any(found):
            return
        common = _in_all(found, self.changing)
        rests = [_left(terms, common) for terms in found]
        own = {rest: pointer.beside() for rest in self._differing(rests)} if len(rests) >= FEWEST else {}
        front = reversed(self.code[: self.top])
        start = next(i for i in front if i.kind is COPY and i.operands[0] is pointer)
        if not (common or own) or not isinstance(start.operands[1], Register):
            return
        self.starts.append(start)
        self.needed.add(start.operands[1])
        taken = common
        if own and len(own) == len(rests):
            # All accesses have their own: the carried pointer is the first of them.
            first = next(iter(own))
            own[first], taken = pointer, _sorted(common + first)
        self._begin(start, common, own)
        self._middle(pointer, common, taken, own)
        self._end(pointer, following, taken, own)

    def _differing(self, rests: list[Terms]) -> list[Terms]:
        """Sums that iterations have the same, and lanes of a warp different ones of."""
        if self.carry.held > machine.TENSOR_REGISTERS_BESIDE_POINTERS:
            return []
        if not self.made:
            for i in self.code[: self.top]:
                for x in i.definitions:
                    self.made.setdefault(x, []).append(i)
        fixed = [rest for rest in rests if self.changing.isdisjoint([root for root, _ in rest])]
        found = sorted(rest for rest in fixed if any(self._bits(root) for root, _ in rest))
        return found if FEWEST <= len(found) <= MOST else []

    def _bits(self, x: object) -> int:
        """The bits in which lanes may differ."""
        if x not in self.bits:
            self.bits[x] = 0
            for instruction in self.made.get(x, ()):
                uses, name = instruction.uses, instruction.form.opcode.split(".")[0]
                first, *others = [self._bits(y) for y in uses] or [31 * ("%%tid" in instruction.syntax)]
                number = uses[1] if others and isinstance(uses[1], int) else -1
                if any(others) or number < 0 or name not in _BITS:
                    is_bitwise = name in ("mov", "or", "xor") or not any([first, *others])
                    self.bits[x] |= reduce(or_, others, first) if is_bitwise else -1
                else:
                    self.bits[x] |= _BITS[name](first, *uses[1:])
        return self.bits[x]

    def _begin(self, start: Instruction, common: Terms, own: dict[Terms, Register]) -> None:
        """In front of the loop: the pointers' first values."""
        pointer, initial = start.operands
        firsts = {register: _sorted(common + rest) for rest, register in own.items()}
        firsts.setdefault(pointer, common)
        for register, terms in firsts.items():
            why = COMMON if terms is common else OWN
            before, taken = self.taken.get(initial, (initial, ()))
            x = initial
            if not _left(taken, terms):
                x, terms = before, _left(terms, taken)
            if terms:
                base, x = x, pointer.beside()
                self.front += self._sum(x, base, terms, 0, why)
            if register is pointer:
                start.operands = (pointer, x)
            else:
                self.copies.append(Instruction(MOVES["q"], (register, x), COPY, start.location, OWN))

    def _middle(self, pointer: Register, common: Terms, taken: Terms, own: dict[Terms, Register]) -> None:
        """In the loop: addresses without what the pointer has taken in."""
        for x, at in self.made_at.items():
            base, terms, offset = self.places[x]
            if base is not pointer:
                continue
            old, made = self.code[at], []
            self.instead[at] = made
            is_next, is_used = x is self.following[pointer], x in self.used
            if is_used:
                left: Terms = ()
                if own:
                    base = own.get(_left(_sorted(terms), common))
                if base is None or not own:
                    base, left = pointer, _without(_sorted(terms), taken)
                if left or offset:
                    made += self._sum(x, base, left, offset, old.why, old)
                else:
                    self.same[x] = base
            if is_next:
                following = self.next[pointer] = x.beside() if is_used else x
                made += self._sum(following, pointer, terms, offset, old.why, old)

    def _end(self, pointer: Register, x: Register, taken: Terms, own: dict[Terms, Register]) -> None:
        """Where an iteration ends, and behind the loop."""
        _, terms, offset = self.places[x]
        for register in own.values():
            if register is not pointer:
                self.next[register] = x.beside()
                self.ends += self._sum(self.next[register], register, terms, offset, OWN)
        for register, other in self.others.items():
            base, terms, offset = self.places[other]
            if base is pointer and other not in self.used:
                left = _without(terms, taken)
                self.next[register] = x.beside() if left or offset else pointer
                self.ends += self._sum(self.next[register], pointer, left, offset, COMMON)
        if taken and next(places_naming(self.code[self.end + 1 :], {pointer}), None) is not None:
            whole = pointer.beside()
            self.taken[whole] = pointer, taken
            self.behind += self._sum(whole, pointer, _without((), taken), 0, COMMON)

    def _rewritten(self) -> list[Instruction]:
        code = self.code
        places = list(map(code.index, self.starts))
        first, copied = min(places), max(places) + 1
        while code[first - 1].kind is COPY and code[first - 1].operands[0] not in self.needed:
            first -= 1
        while code[copied].kind is COPY:
            copied += 1
        body, done = [], self.top
        for at in sorted(self.instead):
            body += code[done:at] + self.instead[at]
            done = at + 1
        for x, base in self.same.items():
            rename(self.used[x], {x: base})
        pairs = dict(zip(self.carry.operands[::2], self.carry.operands[1::2], strict=True)) | self.next
        self.carry.set_pairs([(x, self.same.get(y, y)) for x, y in pairs.items()])
        out = next(at for at in range(self.end, len(code)) if code[at].kind is LABEL) + 1
        rest = code[out:]
        rename(rest, {i.operands[1]: i.operands[0] for i in self.behind})
        return [
            *code[:first], *self.front, *code[first:copied], *self.copies, *code[copied : self.top], *body,
            *code[done : self.end], *self.ends, *code[self.end : out], *self.behind, *rest,
        ]  # fmt: skip

    def _sum(
        self, found: Register, base: Register, terms: Terms, offset: int, why: str,
        at: Instruction | None = None,
    ) -> list[Instruction]:  # fmt: skip
        """Instructions that add terms and bytes."""
        made, last = [], found.beside() if offset else found
        location = (at or self.carry).location
        if terms:
            operands = (last, base, *chain.from_iterable(terms))
            made.append(Instruction(sum_of(len(terms)), operands, PURE, location, why))
            base = last
        if offset:
            made.append(Instruction(ADD, (found, base, offset), PURE, location, why))
        return made


def _addition(instruction: Instruction) -> tuple[Terms, int] | None:
    """What an instruction adds to its first operand: terms and bytes."""
    if instruction.kind is PURE:
        if instruction.form.opcode == SUM:
            return tuple(terms_of(instruction)), 0
        if instruction.form.syntax == ADD and isinstance(instruction.operands[2], int):
            return (), instruction.operands[2]
    return None


def _in_all(found: list[Terms], but: set[Register]) -> Terms:
    """The terms that all sums have, without those of some registers."""
    common = [term for term in found[0] if term[0] not in but]
    for terms in found[1:]:
        common = _left(common, _left(common, terms))
    return tuple(common)


def _left(terms: Iterable[Term], taken: Iterable[Term]) -> Terms:
    """The terms but for those that were taken."""
    left = list(terms)
    for term in taken:
        if term in left:
            left.remove(term)
    return tuple(left)


def _without(terms: Terms, taken: Terms) -> Terms:
    """What is to be added where some terms have been added already."""
    return _left(terms, taken) + tuple([(root, -size) for root, size in _left(taken, terms)])


def _sorted(terms: Terms) -> Terms:
    return tuple(sorted(terms)) if len(terms) > 1 else terms
