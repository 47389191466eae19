"""Copies that loops and branches need, and how they disappear.

    $for:                                   (before)
    add %new, %old, 4
    %old = %new                             what the loop carries

    $for:                                   (after)
    add %old, %old, 4

A copy at the end of a loop's body vanishes when its source may be computed in its destination: when the last
use of the old value does not come after the first definition of the new one. (``wgmma`` uses its operands
until its group is waited for.) What a side of a branch computes
is computed in the register of the result, unless that is another result already.

``order_copies`` makes of what is left, which happens all at once, moves one after another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.codegen_ptx.ptx.instruction import (
    CARRY,
    COPY,
    LABEL,
    MERGE,
    Carry,
    Form,
    Instruction,
    Merge,
    copied,
    places_naming,
    places_of,
    places_with,
)
from ptxforge.codegen_ptx.ptx.registers import Register

Pair = tuple[Register, object]
"""Destination and source of a copy."""

REASON = "coalesce_copies: computed where the next iteration wants it"


def coalesce_copies(code: list[Instruction], b: Builder) -> list[Instruction]:
    """The same instructions; ``b.aliases`` says which registers become others."""
    found = _Coalescing(code, b)
    tops: dict[Instruction, int] = {}
    for position in places_of(code, "kind", {LABEL, MERGE, CARRY}):
        instruction = code[position]
        if instruction.kind is LABEL:
            tops[instruction] = position
        elif instruction.kind is MERGE:
            found.merge(instruction)
        else:
            found.carry(instruction, range(tops[instruction.top], position))
    return code


class _Coalescing:
    """Which registers have become others so far."""

    def __init__(self, code: list[Instruction], b: Builder):
        self.code, self.aliases, self.resolved = code, b.aliases, b.resolved
        self.became: dict[Register, list[Register]] = {}
        self.at_entry = {x for instruction in b.entry_code() for x in instruction.definitions}

    def _is_inside(self, x, born: int) -> bool:
        """Whether it is a register that is made within the region in front of which ``born`` were."""
        return isinstance(x, Register) and x.number > born and x not in self.at_entry

    def _alias(self, register: Register, destination: Register) -> None:
        self.aliases[register] = destination
        became = self.became.setdefault(destination, [])
        became += [register, *self.became.pop(register, ())]

    def merge(self, copy: Merge) -> None:
        """A result of a branch, on one of its sides."""
        destination, source = copy.operands
        root = self.resolved(source)
        if not self._is_inside(root, copy.born) or root.kind != destination.kind:
            return
        if root not in copy.results or root.number > destination.number:
            self._alias(root, destination)

    def carry(self, copies: Carry, body: range) -> None:
        """What the loop around the instructions at ``body`` carries."""
        candidates: dict[Register, Register] = {}
        taken = {self.resolved(x) for x in copies.kept}
        destinations = set(copies.operands[::2])
        needed = {self.resolved(source) for source in copies.operands[1::2]}
        for destination, source in pairs_of(copies):
            root = self.resolved(source)
            if not self._is_inside(root, copies.born) or root in taken or root in destinations:
                continue
            if root.kind == destination.kind and destination not in needed:
                candidates[destination] = root
                taken.add(root)
        if not candidates:
            return
        first, last = self._first_and_last(body, candidates)
        for destination, root in candidates.items():
            if root in first and last.get(destination, -1) <= first[root]:
                self._alias(root, destination)
                made = self.code[first[root]]
                made.why = made.why or REASON

    def _first_and_last(self, body: range, candidates: dict[Register, Register]) -> tuple[dict, dict]:
        """Where each source (under any of its names) first appears, and where each destination last does.

        Of several instructions in one (inline assembly) the first may write a source before the last reads a
        destination: there a source appears earlier.
        """
        early = {name: root for root in candidates.values() for name in self._all_names(root)}
        late = {name: root for root in candidates for name in self._all_names(root)}
        code = self.code[body.start : body.stop]
        named = [*places_naming(code, {*early, *late})]
        first: dict[Register, int] = {}
        for place, name in _met(code, named, {*early}):
            first.setdefault(early[name], body.start + place - code[place].form.several)
        last: dict[Register, int] = {}
        for place, name in _met(code, reversed(named), {*late}):
            last.setdefault(late[name], body.start + place)
        under_way = _UnderWay()
        for place in places_with(code, _is_of_warpgroups):
            for register in under_way.finished_by(code[place], late):
                last[register] = max(last[register], body.start + place)
        return first, last | dict.fromkeys(under_way.names(), body.stop)

    def _all_names(self, register: Register) -> Iterable[Register]:
        return (register, *self.became.get(register, ()))


def _met(
    code: list[Instruction], places: Iterable[int], names: set[Register]
) -> Iterator[tuple[int, Register]]:
    """Each of the ``names``, which are taken out, that some of these instructions have, with the place of the
    first one."""
    for place in places:
        found = names.intersection(code[place].operands)
        names -= found
        for name in found:
            yield place, name


def _is_of_warpgroups(form: Form) -> bool:
    return form.opcode.startswith("wgmma.")


class _UnderWay:
    """What ``wgmma`` reads: group after group, and those that are not committed yet."""

    def __init__(self) -> None:
        self.groups: list[set[Register]] = [set()]

    def finished_by(self, instruction: Instruction, late: dict[Register, Register]) -> set[Register]:
        """Those of ``late`` that are read no more when ``instruction`` is done."""
        name = instruction.form.opcode.split(".")[1]
        if name == "mma_async":
            self.groups[-1] |= {late[x] for x in late.keys() & instruction.operands}
        if name == "commit_group":
            self.groups.append(set())
        if name != "wait_group":
            return set()
        pending = int(instruction.form.syntax.rstrip(";").split()[-1])
        count = max(0, len(self.groups) - 1 - pending)
        finished, self.groups = self.groups[:count], self.groups[count:]
        return set().union(*finished)

    def names(self) -> set[Register]:
        """What is read still."""
        return set().union(*self.groups)


def pairs_of(copies: Carry | Merge) -> Iterator[Pair]:
    """Destinations and sources."""
    return zip(copies.operands[::2], copies.operands[1::2], strict=True)


def order_copies(code: list[Instruction], b: Builder) -> list[Instruction]:
    """With moves in the place of copies that happen at once, and without copies of a register onto itself."""
    result, done = [], 0
    roots = {register: b.resolved(register) for register in b.aliases}
    for place in places_of(code, "kind", {COPY, MERGE, CARRY}):
        instruction, moves = code[place], ()
        if instruction.kind is not COPY:
            moves = _in_order(list(pairs_of(instruction)), roots, b)
        elif roots.keys().isdisjoint(instruction.operands) or not _onto_itself(instruction.operands, roots):
            continue
        result += code[done:place]
        result += [copied(*pair, instruction.location, instruction.why) for pair in moves]
        done = place + 1
    return result + code[done:]


def _onto_itself(copy: Pair, roots: dict[Register, Register]) -> bool:
    destination, source = copy
    return roots.get(destination, destination) is roots.get(source, source)


def _in_order(copies: list[Pair], roots: dict[Register, Register], b: Builder) -> Iterator[Pair]:
    """An order that overwrites nothing still needed; cycles go through a temporary. ``roots`` are the
    registers that others have become."""
    pending = [pair for pair in copies if not _onto_itself(pair, roots)]
    while pending:
        sources = {roots.get(s, s) for _, s in pending}
        ready = [(d, s) for d, s in pending if roots.get(d, d) not in sources]
        if ready:
            yield from ready
            pending = [(d, s) for d, s in pending if roots.get(d, d) in sources]
            continue
        old, _ = pending[0]
        temporary, root = b.new(old.kind), roots.get(old, old)
        yield temporary, old
        pending = [(d, temporary if roots.get(s, s) is root else s) for d, s in pending]
