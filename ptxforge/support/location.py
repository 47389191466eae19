"""Source locations and the text that shows them.

A :class:`Location` names a span in a user's file. A location inside an inlined function carries the
location of its call, so that a message can show the whole chain from the kernel down to the fault.
"""

from __future__ import annotations

import linecache
import unicodedata

import attrs


@attrs.frozen(slots=True)
class Location:
    """A span of source text.

    ``line`` and ``end_line`` count from 1, ``column`` and ``end_column`` from 0 in *characters* (Python's
    ``ast`` counts UTF-8 bytes; the frontend converts). ``call_site`` is where the function that contains
    this span was called when it was inlined into its caller.
    """

    file: str
    line: int
    column: int = 0
    end_line: int | None = None
    end_column: int | None = None
    function: str = ""
    call_site: Location | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column + 1}"

    def chain(self) -> list[Location]:
        """This location and its call sites, innermost first."""
        result, here = [], self
        while here is not None:
            result.append(here)
            here = here.call_site
        return result


def display_width(text: str) -> int:
    """Columns that ``text`` takes in a terminal: wide East Asian characters count twice."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


_shown: dict[str, list[str]] = {}


def show_from(file: str, lines: list[str]) -> None:
    """Let messages about ``file`` quote these lines, and not what an editor has made of it since."""
    _shown[file] = lines


def source_lines(file: str) -> list[str]:
    """The lines of a file as messages quote them; none where it cannot be read."""
    return _shown.get(file) or linecache.getlines(file)


def snippet(location: Location, context: int = 2) -> str:
    """The source lines that end at ``location``, with a caret line under the span.

    ``context`` is the number of lines shown before it. The text is empty when the file cannot be read
    (a kernel typed at a prompt).
    """
    lines = source_lines(location.file)
    if not 1 <= location.line <= len(lines):
        return ""
    first = max(1, location.line - context)
    gutter = len(str(location.line))
    shown = []
    for number in range(first, location.line + 1):
        shown.append(f"{number:>{gutter}} | {lines[number - 1].rstrip()}".rstrip())
    text = lines[location.line - 1].rstrip("\n")
    end = location.end_column if location.end_line in (None, location.line) else len(text)
    end = max(location.column + 1, end if end is not None else location.column + 1)
    before = display_width(text[: location.column].expandtabs())
    carets = max(1, display_width(text[location.column : end]))
    shown.append(f"{'':>{gutter}} | {' ' * before}{'^' * carets}")
    return "\n".join(shown)


def describe(location: Location) -> str:
    """The whole chain of a location as text: the innermost span first, then each call."""
    parts = []
    for depth, here in enumerate(location.chain()):
        where = f"{here.file}:{here.line}"
        inside = f" in {here.function}" if here.function else ""
        lead = "at" if depth == 0 else "called from"
        body = snippet(here, context=2 if depth == 0 else 0)
        parts.append(f"{lead} {where}{inside}" + (f"\n{body}" if body else ""))
    return "\n".join(parts)


def escaped(name: str) -> str:
    """A file's name as it stands between the quotes of a directive of PTX."""
    return name.replace("\\", "\\\\").replace('"', '\\"')
