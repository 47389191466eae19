"""Instructions: what is done (:class:`Form`), to what, where it comes from, and why it is as it is; their
text."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Collection, Iterator, Sequence, Set
from functools import lru_cache
from itertools import chain, compress, count, pairwise
from operator import attrgetter, is_not, not_

from ptxforge.codegen_ptx.ptx.registers import MOVES, Names, Register

Location = tuple[int, int, int]
"""The number of a file, a line, a column, as ``.loc`` has them."""


class Kind(enum.Enum):
    """What passes may do to an instruction."""

    PURE = "it computes its results from its operands, and does nothing else"
    EFFECT = "it stays where it is"
    COPY = "it assigns a register that is assigned elsewhere, too"
    MERGE = "a copy at the end of a side of a branch"
    CARRY = "copies at the end of a loop's body, all at once"
    LABEL = "a label"
    RARE_BEGIN = "in front of what few threads do; no text"
    RARE_END = "behind what few threads do; no text"

    __hash__ = object.__hash__  # not that of the name


PURE, EFFECT, COPY, MERGE, CARRY, LABEL, RARE_BEGIN, RARE_END = Kind


class Form:
    """What instructions of one syntax have in common: the ``opcode`` with its suffixes, the number of
    ``results`` (the operands that it defines, first behind the guard), whether it is ``guarded``, whether it
    is ``several`` instructions (of inline assembly), whether it ``repeats`` its results among the other
    operands, which operands are the registers of its ``addresses`` (a constant follows each), the ``target``
    that it may branch to, and its ``line`` with a place for each operand (of marks none).

    In PTX the first operand is what an instruction defines, unless it is a place in memory or a barrier.
    """

    __slots__ = ("addresses", "guarded", "line", "opcode", "repeats", "results", "several", "syntax",
                 "target")  # fmt: skip

    def __init__(self, syntax: str):
        self.syntax = syntax
        self.several = syntax.count(";") > 1
        self.guarded = syntax.startswith("@")
        self.line = syntax if syntax.endswith(":") else syntax and "\t" + syntax
        unnamed = _UNNAMED.match(syntax)[0]
        self.repeats = bool(unnamed)
        guard, self.opcode, first = _PARTS.match(syntax[len(unnamed):]).groups()
        if unnamed or self.opcode.startswith(("bar", "{")):
            self.results = unnamed.count("%")
        else:
            self.results = first.count("%s")
        self.target = syntax[:-1].split()[-1] if self.opcode.startswith("bra") else ""
        around = list(pairwise(syntax.split("%s")))
        self.addresses = tuple(
            [unnamed.count("%") + n for n, (before, behind) in enumerate(around)
             if before.endswith("[") and behind == "+"]
        )  # fmt: skip


_UNNAMED = re.compile(r"(%\.0s)*")
_PARTS = re.compile(r"(@!?%s )?(\S*) ?(%s\|%s|%s|{[^}]*}|)", re.DOTALL)

form_of = lru_cache(maxsize=4096)(Form)
"""The form of a syntax: PTX text with a ``%s`` for each operand, ``%.0s`` for results that do not show."""


class Instruction:
    """``operands`` are registers, ints and literals of floats, in the order of the form's ``syntax``, which
    is PTX with a ``%s`` for each. ``why`` says which rule made it what it is (``pipeline.py``)."""

    __slots__ = ("form", "kind", "location", "operands", "why")

    def __init__(
        self, syntax: str, operands: tuple = (), kind: Kind = EFFECT, location: Location | None = None,
        why: str = "",
    ):  # fmt: skip
        self.form = form_of(syntax)
        self.operands, self.kind = operands, kind
        self.location, self.why = location, why

    @property
    def syntax(self) -> str:
        return self.form.syntax

    @property
    def guard(self) -> Register | None:
        """The predicate under which it is executed."""
        return self.operands[0] if self.form.guarded else None

    @property
    def definitions(self) -> tuple[Register, ...]:
        """What it defines, all of it or (under a guard) perhaps."""
        first = int(self.form.guarded)
        return self.operands[first : first + self.form.results]

    @property
    def uses(self) -> tuple:
        """What it reads."""
        form, results = self.form, self.definitions
        first = int(form.guarded)
        read = self.operands[:first] + self.operands[first + form.results :]
        return tuple([x for x in read if x not in results]) if form.repeats else read

    def replace(self, same: dict[Register, Register]) -> None:
        """Put other registers in the place of some."""
        self.operands = tuple([same.get(x, x) for x in self.operands])

    @property
    def acts(self) -> bool:
        """Whether it computes or does something: it is no mark and no label."""
        return self.kind not in (LABEL, RARE_BEGIN, RARE_END)

    def __repr__(self) -> str:
        return f"<{self.kind.name} {self.syntax % self.operands}>"


class Merge(Instruction):
    """What a value is behind a branch: a copy (destination, source) at the end of a side. ``born`` registers
    were made before the branch; ``results`` are the destinations of its copies, their numbers in order."""

    __slots__ = ("born", "results")


class Carry(Instruction):
    """What a loop carries to the next iteration: destinations and sources in turn. ``top`` is the label of
    the loop, ``born`` the number of registers made before it, ``kept`` what is needed behind it, ``held``
    how many registers its tensors take (None where there are no pointers, or where they stay as they are)."""

    __slots__ = ("born", "held", "kept", "top")

    def set_pairs(self, pairs: Collection[tuple[Register, object]]) -> None:
        """Say anew what becomes what."""
        self.form = form_of(f"carry ({', '.join(['%s = %s'] * len(pairs))});")
        self.operands = tuple(chain.from_iterable(pairs))

    def replace(self, same: dict[Register, Register]) -> None:
        super().replace(same)
        self.kept = frozenset([same.get(x, x) for x in self.kept])


def copied(destination: Register, source, location: Location | None = None, why: str = "") -> Instruction:
    """A copy of ``source`` in ``destination``."""
    if destination.kind == "p" and isinstance(source, int):
        # No immediate predicates: compare constants.
        return Instruction("setp.ne.b32 %s, %s, 0;", (destination, source), EFFECT, location, why)
    return Instruction(MOVES[destination.kind], (destination, source), COPY, location, why)


def rename(code: Sequence[Instruction], same: dict[Register, Register]) -> None:
    """Put other registers in the place of some."""
    for place in places_naming(code, same.keys()) if same else ():
        code[place].replace(same)


def places_of(code: Sequence[Instruction], name: str, chosen: Set) -> Iterator[int]:
    """Where instructions stand whose attribute of this name is ``chosen``; the others take no step."""
    return compress(count(), map(chosen.__contains__, map(attrgetter(name), code)))


def places_naming(code: Sequence[Instruction], registers: Set) -> Iterator[int]:
    """Those that have one of these registers among their operands."""
    return compress(count(), map(not_, map(registers.isdisjoint, map(attrgetter("operands"), code))))


def places_with(code: Sequence[Instruction], chosen: Callable[[Form], object]) -> Iterator[int]:
    """Those of a ``chosen`` form."""
    forms = [*map(attrgetter("form"), code)]
    wanted = set(filter(chosen, set(forms)))
    return compress(count(), map(wanted.__contains__, forms)) if wanted else iter(())


def text_of(code: Sequence[Instruction], names: Names, why: bool = False) -> str:
    """A line for each instruction, its registers called by ``names``, and a ``.loc`` where the place in the
    source changes. With ``why``, comments say which rule made an instruction what it is."""
    code = [*compress(code, map(attrgetter("form.line"), code))]  # without marks
    lines, places = [*map(attrgetter("form.line"), code)], [*map(attrgetter("location"), code)]
    if why:
        lines = [f"{line}  // {_verbatim(x.why)}" if x.why else line for line, x in zip(lines, code)]
    here = None
    for place in compress(count(), map(is_not, places, chain((None,), places))):
        if places[place] is not None and places[place] != here:
            here = places[place]
            lines[place] = "\t.loc %d %d %d\n" % here + lines[place]
    # One formatting of all lines: that of each would take twice the time.
    operands = chain.from_iterable(map(attrgetter("operands"), code))
    text = "\n".join(lines) % tuple(map(names.__getitem__, operands))
    return text.replace("+0]", "]")


def _verbatim(text: str) -> str:
    """As part of a template."""
    return text.replace("%", "%%")
