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

from collections.abc import Sequence

COLD_BEGIN, COLD_END, _LOCATION, _LABEL = -4, -5, -1, -3
_HOT = -1

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
    places: dict[object, set[int]] = {}
    moved: dict[int, list[Instruction]] = {}
    result: list[Instruction | int] = []
    here, around, regions = _HOT, [], 0
    for instruction in reversed(code):
        template, operands, kind = instruction
        if kind == COLD_END:
            around.append(here)
            here, regions = regions, regions + 1
        elif kind == COLD_BEGIN:
            result.append(here)
            here = around.pop()
        elif kind in (_LOCATION, _LABEL):
            result.append(instruction)
        elif kind <= 0:
            result.append(instruction)
            _use(places, operands, {here})
        else:
            users = set().union(*(places.get(x, ()) for x in operands[:kind]))
            sinks = here == _HOT and users and _HOT not in users and _may_move(instruction, stable)
            if sinks:
                for region in users:
                    moved.setdefault(region, []).append(instruction)
            elif users:
                result.append(instruction)
                users = {here}
            _use(places, operands[kind:], users)
    return [x for entry in reversed(result) for x in _expanded(entry, moved)]


def _use(places: dict[object, set[int]], operands: tuple, regions: set[int]) -> None:
    for x in operands:
        places.setdefault(x, set()).update(regions)


def _may_move(instruction: Instruction, stable: set[str]) -> bool:
    template, operands, _ = instruction
    if not template.startswith(_CHEAP):
        return False
    return all(x in stable for x in operands if isinstance(x, str) and x[0] == "%")


def _expanded(entry: Instruction | int, moved: dict[int, list[Instruction]]) -> list[Instruction]:
    """An instruction, or what moved to the beginning of a cold region."""
    return moved.get(entry, [])[::-1] if isinstance(entry, int) else [entry]
