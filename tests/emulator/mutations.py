"""Mutants of PTX text: one barrier, wait or fence less, or one address moved past its allocation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_BARRIER = re.compile(r"\s*(@!?%\w+\s+)?(bar\.sync|barrier\.sync|bar\.warp\.sync)\b")
_FENCE = re.compile(r"\s*(@!?%\w+\s+)?(fence\.\w|membar\.|wgmma\.fence)")
_GROUP_WAIT = re.compile(
    r"(cp\.async\.wait_group|cp\.async\.bulk\.wait_group(?:\.read)?|wgmma\.wait_group\.sync\.aligned)"
    r"(\s+)(\d+)"
)
_WAIT_ALL = re.compile(r"\s*cp\.async\.wait_all")
_TRY_WAIT = re.compile(r"(\s*)mbarrier\.try_wait\S*\s+([\w%$]+),[^;]*;")
_GLOBAL = re.compile(r"\s*(?:@!?%\w+\s+)?(?:ld|st|atom|red)\.(?:\w+\.)*?global\S*\.\w?(\d+)\s")
_ADDRESS = re.compile(r"\[\s*(%\w+)\s*(?:\+\s*(-?\d+))?\s*\]")
_VECTOR = re.compile(r"\.v([248])\.")


@dataclass(frozen=True)
class Mutant:
    """``kind`` is barrier, wait, fence, address or next element; ``line`` the changed line of the PTX."""

    kind: str
    line: int
    before: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind} at PTX line {self.line}: {self.before}"


def mutants(ptx: str, entries: tuple[str, ...], past: int) -> Iterator[Mutant]:
    """All mutants of some entries. Addresses move forward by one element and by ``past`` bytes."""
    lines = ptx.split("\n")
    inside = False
    for number, line in enumerate(lines, 1):
        if ".entry" in line:
            inside = any(re.search(rf"\b{name}\b", line) for name in entries)
        if not inside:
            continue
        for kind, changed in _changes(line, past):
            text = "\n".join([*lines[: number - 1], changed, *lines[number:]])
            yield Mutant(kind, number, line.strip(), text)


def _changes(line: str, past: int) -> Iterator[tuple[str, str]]:
    if _BARRIER.match(line):
        yield "barrier", ""
    if _FENCE.match(line):
        yield "fence", ""
    if _WAIT_ALL.match(line):
        yield "wait", ""
    if _GROUP_WAIT.search(line):
        yield "wait", _GROUP_WAIT.sub(lambda found: f"{found[1]}{found[2]}{int(found[3]) + 1}", line)
    waited = _TRY_WAIT.match(line)
    if waited:
        yield "wait", f"{waited[1]}setp.eq.u32 {waited[2]}, 0, 0;"
    moved = _GLOBAL.match(line)
    if moved:
        lanes = int(_VECTOR.search(line)[1]) if _VECTOR.search(line) else 1
        for kind, distance in (("address", past), ("next element", int(moved[1]) // 8 * lanes)):
            yield kind, _moved(line, distance)


def _moved(line: str, distance: int) -> str:
    """The access moved forward by some bytes."""
    return _ADDRESS.sub(lambda found: f"[{found[1]}+{int(found[2] or 0) + distance}]", line, count=1)
