"""Mutants of PTX text: one barrier, wait or fence less, or one access moved, a little or out of its array."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

_BARRIER = re.compile(r"\s*(@!?%\w+\s+)?(bar\.sync|barrier\.sync|bar\.warp\.sync)\b")
_FENCE = re.compile(r"\s*(@!?%\w+\s+)?(fence\.\w|membar\.|wgmma\.fence)")
_GROUP_WAIT = re.compile(
    r"(cp\.async\.wait_group|cp\.async\.bulk\.wait_group(?:\.read)?|wgmma\.wait_group\.sync\.aligned)"
    r"(\s+)(\d+)"
)
_WAIT_ALL = re.compile(r"\s*cp\.async\.wait_all")
_TRY_WAIT = re.compile(r"(\s*)mbarrier\.try_wait\S*\s+([\w%$]+),[^;]*;")
_ACCESS = re.compile(
    r"\s*(?:@!?%\w+\s+)?(?:ld|st|atom|red)\.(?:\w+\.)*?(?P<space>global|shared)\S*\.\w*?(?P<bits>\d+)\s"
)
_MATRIX = re.compile(r"\s*(?:@!?%\w+\s+)?(?:ldmatrix|stmatrix)\.")
_COPY = re.compile(r"\s*(?:@!?%\w+\s+)?cp\.async\.c[ag]\.shared\S*\s.*?\]\s*,\s*\[.*?\]\s*,\s*(?P<size>\w+)")
_TENSOR = re.compile(r"\s*(?:@!?%\w+\s+)?cp\.async\.bulk\.tensor\.")
_TENSOR_ALIGNMENT = 128
_ADDRESS = re.compile(r"\[\s*([%\w$.]+)\s*(?:\+\s*(-?\d+))?\s*\]")
_VECTOR = re.compile(r"\.v([248])\.")

MOVED = ("past the end", "next element")


@dataclass(frozen=True)
class Mutant:
    """``kind`` is barrier, wait, fence, or one of `MOVED`; ``line`` the changed line of the PTX; ``shared``:
    the access that moved is one to shared memory.
    """

    kind: str
    line: int
    before: str
    text: str
    shared: bool = False

    def __str__(self) -> str:
        return f"{self.kind} at PTX line {self.line}: {self.before}"


def mutants(ptx: str, entries: tuple[str, ...], room: Callable[[int, str], int | None]) -> Iterator[Mutant]:
    """All mutants of some entries.

    An access moves by its own size, and so far that its highest address lies just past its allocation:
    ``room`` tells for a line and a space how many bytes that is (None: the line accesses nothing there).
    """
    lines = ptx.split("\n")
    inside = False
    for number, line in enumerate(lines, 1):
        if ".entry" in line:
            inside = any(re.search(rf"\b{name}\b", line) for name in entries)
        if not inside:
            continue
        for kind, changed, shared in _changes(line, partial(room, number)):
            text = "\n".join([*lines[: number - 1], changed, *lines[number:]])
            yield Mutant(kind, number, line.strip(), text, shared)


def _changes(line: str, room: Callable[[str], int | None]) -> Iterator[tuple[str, str, bool]]:
    if _BARRIER.match(line):
        yield "barrier", "", False
    if _FENCE.match(line):
        yield "fence", "", False
    if _WAIT_ALL.match(line):
        yield "wait", "", False
    if _GROUP_WAIT.search(line):
        yield "wait", _GROUP_WAIT.sub(lambda found: f"{found[1]}{found[2]}{int(found[3]) + 1}", line), False
    waited = _TRY_WAIT.match(line)
    if waited:
        yield "wait", f"{waited[1]}setp.eq.u32 {waited[2]}, 0, 0;", False
    size = _access_bytes(line)
    for operand, space in enumerate(_spaces(line)):
        free = room(space)
        if free is None:
            continue
        past = -(-free // size) * size
        yield "past the end", _moved(line, operand, past), space == "shared"
        if past != size:
            yield "next element", _moved(line, operand, size), space == "shared"


def _spaces(line: str) -> tuple[str, ...]:
    """The state spaces of a line's address operands, as far as they move (of a tensor copy: the box's)."""
    if _COPY.match(line):
        return "shared", "global"
    if _MATRIX.match(line) or _TENSOR.match(line):
        return ("shared",)
    accessed = _ACCESS.match(line)
    return (accessed["space"],) if accessed else ()


def _access_bytes(line: str) -> int:
    """Bytes per thread of an access to global or shared memory (of a tensor copy: its alignment); 0 for other
    lines.
    """
    if _TENSOR.match(line):
        return _TENSOR_ALIGNMENT
    if _MATRIX.match(line):
        return 16
    copied = _COPY.match(line)
    if copied:
        return int(copied["size"], 0)
    accessed = _ACCESS.match(line)
    if not accessed:
        return 0
    vector = _VECTOR.search(line)
    return int(accessed["bits"]) // 8 * (int(vector[1]) if vector else 1)


def _moved(line: str, operand: int, distance: int) -> str:
    """The line with one of its addresses moved forward by some bytes."""
    found = list(_ADDRESS.finditer(line))[operand]
    return f"{line[: found.start()]}[{found[1]}+{int(found[2] or 0) + distance}]{line[found.end() :]}"
