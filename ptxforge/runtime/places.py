"""PTX that was compiled when its functions stood elsewhere.

A cache entry is named after what a kernel means, not after where it stands: the same text in another folder,
or some lines further down because an import was added above it, is the same kernel. But its PTX names files
and lines (``.file``, ``.loc``), which findings, reports and debuggers show. So an entry tells where each
function of the kernel stood, and whoever reads it gets PTX that names the place where the function stands
now, letter by letter as if it had been compiled there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

import attrs

from ptxforge.support.source_text import source_text

_FILE = re.compile(r'^\.file (\d+) "(.*)"\n', re.MULTILINE)
_LOC = re.compile(r"\.loc (\d+) (\d+) (\d+)$", re.MULTILINE)
_PLACES_IN_DATA = "__assertfail"
"""A message with file and line that an assertion prints: data of the program, which is not rewritten."""


@attrs.frozen(slots=True)
class FunctionPlace:
    """Where a function's text stands: its file, the line of its ``def`` (from 1), the number of lines from
    there on, and the columns that it is indented by."""

    file: str
    line: int
    lines: int
    indent: int

    def holds(self, file: str, line: int) -> bool:
        """Whether a line of a file is one of the function's."""
        return file == self.file and self.line <= line < self.line + self.lines


def place_of(fn: Callable) -> FunctionPlace:
    """Where ``fn`` stood when it became a kernel. Raises :class:`CompilationError` for a function whose text
    is nowhere."""
    text = source_text(fn)
    own = text.own_lines()
    decorators = next((n for n, line in enumerate(own) if line.lstrip().startswith(("def ", "async "))), 0)
    head = own[decorators]
    indent = len(head) - len(head.lstrip())
    return FunctionPlace(text.code.co_filename, text.first + decorators, len(own) - decorators, indent)


def moved(ptx: str, before: Sequence[FunctionPlace], now: Sequence[FunctionPlace]) -> str | None:
    """PTX whose functions stood at the places ``before`` as it is when they stand at those of ``now``, one
    for one; ``None`` for text that cannot be rewritten and has to be compiled."""
    if before == now:
        return ptx
    if len(before) != len(now) or _PLACES_IN_DATA in ptx:
        return None
    pairs = list(zip(before, now, strict=True))
    names = {number: _plain(name) for number, name in _FILE.findall(ptx)}
    numbers = _numbers(names.values(), pairs)

    def rewritten(found: re.Match) -> str:
        number, line, column = found[1], int(found[2]), int(found[3])
        for old, new in pairs:
            if old.holds(names[number], line):
                line, column = line - old.line + new.line, column - old.indent + new.indent
                return f".loc {numbers[new.file]} {line} {column}"
        return f".loc {numbers[names[number]]} {line} {column}"

    table = "".join(f'.file {number} "{_escaped(name)}"\n' for name, number in numbers.items())
    first = _FILE.search(ptx)
    if first is None:
        return ptx
    text = ptx[: first.start()] + table + _FILE.sub("", ptx[first.start() :])
    return _LOC.sub(rewritten, text)


def _numbers(names: Iterable[str], pairs: list[tuple[FunctionPlace, FunctionPlace]]) -> dict[str, int]:
    """The number of each file that instructions may come from now, in the order of those before."""
    numbers: dict[str, int] = {}
    for name in names:
        for file in [new.file for old, new in pairs if old.file == name] or [name]:
            numbers.setdefault(file, len(numbers) + 1)
    return numbers


def _escaped(name: str) -> str:
    return name.replace("\\", "\\\\").replace('"', '\\"')


def _plain(name: str) -> str:
    return re.sub(r"\\(.)", r"\1", name)
