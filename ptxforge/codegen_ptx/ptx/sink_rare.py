"""Move what only rare code needs into the rare code.

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
rare regions need is repeated in each. Only cheap ones move, and only when nothing that they read can have
changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ptxforge.codegen_ptx.ptx.instruction import LABEL, LOCATION, RARE_BEGIN, RARE_END, Instruction

if TYPE_CHECKING:
    from ptxforge.codegen_ptx.ptx.builder import Builder

_HOT = 1
"""The bit of hot code."""

_CHEAP = (
    "setp.", "selp.", "and.", "or.", "xor.", "not.", "add.", "sub.", "mad.", "mul.", "shl.", "shr.", "min.s",
    "max.s", "cvt.", "mov.b", "prmt.",
)  # fmt: skip

REASON = "sink_rare: only rare code needs it"


def sink_rare(code: list[Instruction], b: Builder) -> list[Instruction]:
    """The rearranged instructions, where there is rare code."""
    return sink(code, b.reassigned(), b.reasons) if b.has_rare_code else code


def sink(code: Sequence[Instruction], pinned: set[str], reasons: dict[str, str]) -> list[Instruction]:
    """The instructions, rearranged, without marks of rare regions and without dead ones.

    Registers in ``pinned`` may be assigned more than once. ``reasons`` is told of the registers that move.
    """
    stable = {x for _, operands, kind in code if kind > 0 for x in operands[:kind]} - pinned
    users: dict[object, int] = {}  # where a register is read: a bit for hot code, one for each rare region
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
                reasons[operands[0]] = REASON
                for region in _bits(readers):
                    moved.setdefault(region, []).append(instruction)
            else:
                result.append(instruction)
                readers = here
            for x in operands[kind:]:
                users[x] = users.get(x, 0) | readers
        elif kind == RARE_END:
            around.append(here)
            here, following = following, following << 1
        elif kind == RARE_BEGIN:
            result.append(here)
            here = around.pop()
        else:
            result.append(instruction)
            if kind not in (LOCATION, LABEL):
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
    """An instruction, or what moved to the beginning of a rare region."""
    return moved.get(entry, [])[::-1] if isinstance(entry, int) else [entry]
