"""Move what only cold code needs into the cold code.

    setp.lt %p3, %r7, %n                    (before: computed by everyone, its register live for long)
    …
    @!%rare bra $L
    // cold: @%p3 ld …
    $L:

    @!%rare bra $L                          (after)
    // cold: setp.lt %p3, %r7, %n; @%p3 ld …
    $L:

A lowering computes the masks and addresses of all elements of a tensor; where vectors are guarded
(``guarded.py``), most of them matter to the rare element-wise path alone. An instruction that several cold
regions need is repeated in each. Only cheap ones move, and only when nothing that they read can have changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

COLD_BEGIN, COLD_END, _LOCATION, _LABEL = -4, -5, -1, -3
_HOT = 1
"""The bit of hot code."""

_CHEAP = (
    "setp.", "selp.", "and.", "or.", "xor.", "not.", "add.", "sub.", "mad.", "mul.", "shl.", "shr.", "min.s",
    "max.s", "cvt.", "mov.b", "prmt.",
)  # fmt: skip

Instruction = tuple[str, tuple, int]


def sink(code: Sequence[Instruction], pinned: set[str]) -> list[Instruction]:
    """The instructions, rearranged, without marks of cold regions and without dead ones.

    Registers in ``pinned`` may be assigned more than once.
    """
    stable = {x for _, operands, kind in code if kind > 0 for x in operands[:kind]} - pinned
    users: dict[object, int] = {}  # where a register is read: a bit for hot code, one for each cold region
    moved: dict[int, list[Instruction]] = {}
    result: list[Instruction | int] = []
    here, around, following = _HOT, [], _HOT << 1
    for instruction in reversed(code):
        _, operands, kind = instruction
        if kind > 0:
            readers = 0
            for x in operands[:kind]:
                readers |= users.get(x, 0)
            if not readers:
                continue
            if here == _HOT and not readers & _HOT and _may_move(instruction, stable):
                for region in _bits(readers):
                    moved.setdefault(region, []).append(instruction)
            else:
                result.append(instruction)
                readers = here
            for x in operands[kind:]:
                users[x] = users.get(x, 0) | readers
        elif kind == COLD_END:
            around.append(here)
            here, following = following, following << 1
        elif kind == COLD_BEGIN:
            result.append(here)
            here = around.pop()
        else:
            result.append(instruction)
            if kind not in (_LOCATION, _LABEL):
                for x in operands:
                    users[x] = users.get(x, 0) | here
    return [x for entry in reversed(result) for x in _expanded(entry, moved)]


def _bits(mask: int) -> Iterator[int]:
    """The bits of a number, lowest first."""
    while mask:
        lowest = mask & -mask
        yield lowest
        mask ^= lowest


def _may_move(instruction: Instruction, stable: set[str]) -> bool:
    template, operands, _ = instruction
    if not template.startswith(_CHEAP):
        return False
    return all(x in stable for x in operands if isinstance(x, str) and x[0] == "%")


def _expanded(entry: Instruction | int, moved: dict[int, list[Instruction]]) -> list[Instruction]:
    """An instruction, or what moved to the beginning of a cold region."""
    return moved.get(entry, [])[::-1] if isinstance(entry, int) else [entry]
