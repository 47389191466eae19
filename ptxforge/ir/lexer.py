"""A cursor over IR text: skips blanks and ``// comments``, matches tokens, reports errors with line and
column."""

from __future__ import annotations

import json
import re
from typing import NoReturn

from ptxforge.support.errors import ParseError

_BLANK = re.compile(r"(?:\s|//[^\n]*)*")
_VALUE = re.compile(r"%[\w.$]+")
_WORD = re.compile(r"[^\W\d][\w.]*")
_NUMBER = re.compile(r"-?(?:inf\b|\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)")
_INTEGER = re.compile(r"-?\d+")
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_LAYOUT_NAME = re.compile(r"#[\w.]+")
_DIMENSIONS = re.compile(r"(?:\d+x)*")


class Lexer:
    """``position`` always stands at the next token, ``behind`` right behind the last one."""

    def __init__(self, text: str):
        self.text = text
        self.behind = 0
        self.position = _BLANK.match(text).end()

    def fail(self, message: str, position: int | None = None) -> NoReturn:
        """Raise a :class:`ParseError` at ``position`` (default: the next token)."""
        position = self.position if position is None else position
        line = self.text.count("\n", 0, position) + 1
        column = position - self.text.rfind("\n", 0, position)
        raise ParseError(message, line, column, self.text)

    def advance(self, end: int) -> None:
        """Go on with the token at or after ``end``."""
        self.behind = end
        self.position = _BLANK.match(self.text, end).end()

    def match(self, pattern: re.Pattern) -> str | None:
        """The text that ``pattern`` matches here, consumed; ``None`` (and nothing consumed) when it does
        not."""
        found = pattern.match(self.text, self.position)
        if found is None:
            return None
        self.advance(found.end())
        return found[0]

    def need(self, pattern: re.Pattern, what: str) -> str:
        found = self.match(pattern)
        if found is None:
            self.fail(f"expected {what}")
        return found

    @property
    def at_end(self) -> bool:
        return self.position >= len(self.text)

    @property
    def at_line_end(self) -> bool:
        """Whether the next token is on another line than the last one."""
        return "\n" in self.text[self.behind : self.position]

    def sees(self, mark: str) -> bool:
        return self.text.startswith(mark, self.position)

    def accept(self, mark: str) -> bool:
        """Consume ``mark`` (punctuation) if it stands here."""
        if not self.text.startswith(mark, self.position):
            return False
        self.advance(self.position + len(mark))
        return True

    def expect(self, mark: str) -> None:
        if not self.accept(mark):
            self.fail(f"expected '{mark}'")

    def accept_word(self, word: str) -> bool:
        """Consume the word ``word``, not a longer one that begins so."""
        found = _WORD.match(self.text, self.position)
        if found is None or found[0] != word:
            return False
        self.advance(found.end())
        return True

    def expect_word(self, word: str) -> None:
        if not self.accept_word(word):
            self.fail(f"expected '{word}'")

    def word(self, what: str) -> str:
        return self.need(_WORD, what)

    def value_name(self) -> str:
        """The name in ``%name``."""
        return self.need(_VALUE, "a value such as '%x'")[1:]

    def number(self) -> int | float | None:
        """An int or, with a point, an exponent or as ``inf``, a float; ``None`` when no number stands
        here."""
        text = self.match(_NUMBER)
        if text is None:
            return None
        return int(text) if _INTEGER.fullmatch(text) else float(text)

    def integer(self, what: str = "an integer") -> int:
        return int(self.need(_INTEGER, what))

    def string(self) -> str:
        start = self.position
        text = self.need(_STRING, "a string in double quotes")
        try:
            return json.loads(text)
        except ValueError:
            self.fail("malformed string", start)

    def layout_name(self) -> str:
        """The name ``#blocked1``."""
        return self.need(_LAYOUT_NAME, "a layout's name such as '#blocked'")

    def dimensions(self) -> tuple[int, ...]:
        """``128x64x`` as (128, 64)."""
        text = self.match(_DIMENSIONS) or ""
        return tuple(int(size) for size in text.split("x") if size)
