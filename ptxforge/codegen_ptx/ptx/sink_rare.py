"""Move what only rare code needs into the rare code (and drop what none needs, before).

    setp.lt %p3, %r7, %n                    (before: computed by everyone, its register live for long)
    …
    @!%rare bra $L
    // rare: @%p3 ld …
    $L:

    @!%rare bra $L                          (after)
    // rare: setp.lt %p3, %r7, %n; @%p3 ld …
    $L:

A lowering computes the masks and addresses of all elements of a tensor; where vectors are guarded
(``lower/guarded.py``), most of them matter to the rare element-wise path alone. An instruction that several
rare regions need is repeated in each, if it is cheap. Only arithmetic moves, and only when nothing that it
reads can have changed. So what reads a result of rare code moves into the next rare code, no further.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.codegen_ptx.ptx.instruction import (
    CARRY,
    COPY,
    EFFECT,
    LABEL,
    MERGE,
    PURE,
    RARE_BEGIN,
    RARE_END,
    Instruction,
    places_naming,
    places_of,
)
from ptxforge.codegen_ptx.ptx.registers import Register

_CHEAP = (
    "setp.", "selp.", "and.", "or.", "xor.", "not.", "add.", "sub.", "mad.", "mul.", "shl.", "shr.", "min.s",
    "max.s", "cvt.", "mov.b", "prmt.",
)  # fmt: skip
_COSTLY = (
    "fma.", "div.", "rcp.", "sqrt.", "rsqrt.", "ex2.", "lg2.", "neg.", "abs.", "min.", "max.", "copysign.",
)  # fmt: skip
"""What moves where one rare region alone needs it."""

REASON = "sink_rare: only rare code needs it"


def sink_rare(code: list[Instruction], b: Builder) -> list[Instruction]:
    """The rearranged instructions, where rare code reads what it alone needs."""
    if not b.has_rare_code:
        return code
    pinned = {*b.aliases, *b.aliases.values()}
    if _needed_rarely(code, pinned):
        return sink(code, pinned)
    return [instruction for instruction in code if instruction.form.line]  # without marks


def _needed_rarely(code: Sequence[Instruction], pinned: set[Register]) -> set[Register]:
    """What is computed in hot code, and read in rare code alone."""
    hot, rare, depth, done = [], [], 0, 0
    for place in places_of(code, "kind", {RARE_BEGIN, RARE_END}):
        part = rare if depth else hot
        part += code[done:place]
        depth += 1 if code[place].kind is RARE_BEGIN else -1
        done = place
    hot += code[done:]
    read = {x for instruction in rare for x in instruction.operands} - pinned
    named = [hot[place] for place in places_naming(hot, read)]
    made = {x for instruction in named if instruction.kind is PURE for x in instruction.definitions}
    for instruction in named:
        made.difference_update(instruction.uses if instruction.kind is PURE else instruction.operands)
    return made & read


def sink(code: Sequence[Instruction], pinned: set[Register]) -> list[Instruction]:
    """The instructions, rearranged, without marks of rare regions and without dead ones.

    Registers in ``pinned`` may be assigned more than once, and are needed.
    """
    hot: set = set(pinned)  # what hot code reads
    rare: dict[object, int] = {}  # where else a register is read: a bit for each rare region
    moved: dict[int, list[Instruction]] = {}
    begins: dict[int, int] = {}  # by a rare region's bit, how much follows its begin
    result: list[Instruction] = []  # last first
    moves = _Moves(code, pinned, begins, result)
    here, around, following = 0, [], 1
    are_rare, are_read, keep = hot.isdisjoint, hot.update, result.append
    for instruction in reversed(code):
        kind, read = instruction.kind, instruction.operands
        if kind is PURE:
            results = instruction.form.results
            made, read = read[:results], read[results:]
            readers = here
            if are_rare(made):
                regions = 0
                for x in made:
                    regions |= rare.get(x, 0)
                if not regions:
                    continue
                if not here and moves.allow(instruction, regions):
                    readers = regions
                    instruction.why = REASON
                    for region in _bits(regions):
                        moved.setdefault(region, []).append(instruction)
            if readers == here:
                keep(instruction)
        elif kind is RARE_END:
            around.append(here)
            here, following = following, following << 1
            continue
        elif kind is RARE_BEGIN:
            begins[here] = len(result)
            here = around.pop()
            continue
        else:
            readers = here
            keep(instruction)
        if readers:
            for x in read:
                rare[x] = rare.get(x, 0) | readers
        else:
            are_read(read)
    for region, length in reversed(begins.items()):
        result[length:length] = moved.get(region, ())
    result.reverse()
    return result


class _Moves:
    """Which instructions may move. ``begins`` and ``result`` are what :func:`sink` has found so far."""

    def __init__(
        self, code: Sequence[Instruction], pinned: set[Register], begins: dict[int, int],
        result: list[Instruction],
    ):  # fmt: skip
        self._code, self._pinned = code, pinned
        self._begins, self._result = begins, result
        self._stable: set[Register] | None = None  # gathered when something may move
        self._copied: set[Register] = set()

    def allow(self, instruction: Instruction, regions: int) -> bool:
        """Whether an instruction that stands in front of all of ``result`` may move to the begin of the
        regions that need it."""
        is_only_one = regions & (regions - 1) == 0
        syntax = instruction.syntax.removeprefix("%.0s")  # of inline assembly
        if not syntax.startswith(_CHEAP + _COSTLY if is_only_one else _CHEAP):
            return False
        if self._stable is None:
            self._stable, self._copied = _assigned_once(self._code), _assigned_by_copies(self._code)
            self._stable -= self._pinned
            self._copied -= self._pinned
        changing = {x for x in instruction.uses if isinstance(x, Register) and x not in self._stable}
        return not changing or (changing <= self._copied and self._last(changing, regions))

    def _last(self, registers: set[Register], regions: int) -> bool:
        """Whether these have got their last value on the way to the begins of the regions."""
        first = min(self._begins[region] for region in _bits(regions))
        between = self._result[first:]
        return not any(x.kind is LABEL or (x.kind is COPY and x.operands[0] in registers) for x in between)


def _assigned_once(code: Sequence[Instruction]) -> set[Register]:
    """What is computed, and what one load reads without a guard (with one, there is another value)."""
    once: set = set()
    read: set = set()
    again: set = set()
    for instruction in code:
        kind = instruction.kind
        if kind is PURE:
            once.update(instruction.operands[: instruction.form.results])
        elif kind is COPY:
            again.add(instruction.operands[0])
        elif kind is EFFECT and instruction.syntax.startswith("ld."):
            made = instruction.operands[: instruction.form.results]
            again.update(read.intersection(made))
            read.update(made)
        elif kind is CARRY:
            again.update(instruction.operands[::2])
        elif instruction.operands:
            again.update(instruction.operands[:1] if kind is MERGE else instruction.definitions)
    return once | (read - again)


def _assigned_by_copies(code: Sequence[Instruction]) -> set[Register]:
    """What nothing but copies assigns."""
    copied = {x.operands[0] for x in code if x.kind is COPY}
    for instruction in code:
        if instruction.kind is CARRY:
            copied.difference_update(instruction.operands[::2])
        elif instruction.kind is not COPY and instruction.operands:
            copied.difference_update(instruction.definitions)
    return copied


def _bits(mask: int) -> Iterator[int]:
    """The bits of a number, lowest first."""
    while mask:
        lowest = mask & -mask
        yield lowest
        mask ^= lowest


def drop_dead(code: list[Instruction], b: Builder) -> list[Instruction]:
    """Without pure instructions whose results nobody uses; what became another register is used as that."""
    used: set = set(b.aliases)
    kept = []
    are_unused, use, keep = used.isdisjoint, used.update, kept.append
    for instruction in reversed(code):
        operands = instruction.operands
        if instruction.kind is PURE and are_unused(operands[: instruction.form.results]):
            continue
        use(operands)
        keep(instruction)
    kept.reverse()
    return kept
