"""The text of encodings: ``#blocked<{sizePerThread = [1, 8], ...}>``, printed and parsed.

    encoding := '#' ('triton_gpu.' | 'ttg.')? name '<{' field (','? field)* '}>'  |  '#' alias
    field    := key '=' value
    value    := integer | 'true' | 'false' | list | encoding
    list     := '[' value (',' value)* ']'  |  '{' value (',' value)* '}'

Besides what we print ourselves this reads the spellings of Triton's history: ``blocked_layout``, braces for
lists and no commas between fields, ``nvidia_mma``, ``mma<{version = 2, ...}>``, ``hasLeadingOffset = false``,
dialect prefixes.

>>> mma = parse_encoding("#triton_gpu.mma<{version = 2, warpsPerCTA = [2, 2]}>")
>>> print(mma)
#mma<{versionMajor = 2, versionMinor = 0, warpsPerCTA = [2, 2], instrShape = [16, 8]}>
>>> parse_encoding("#slice<{dim = 1, parent = #m}>", {"#m": mma}).text({mma: "#mma"})
'#slice<{dim = 1, parent = #mma}>'
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from ptxforge.layouts.encodings import (
    Blocked,
    CTALayout,
    DotOperand,
    Encoding,
    Linear,
    Mma,
    Slice,
    row_major,
)
from ptxforge.layouts.linear import BLOCK, LANE, REGISTER, WARP, LayoutError, LinearLayout, dim_names
from ptxforge.layouts.panels import Panels
from ptxforge.layouts.shared import Shared
from ptxforge.support.errors import ParseError

_TOKEN = re.compile(r"\s*(?:(#[A-Za-z_][\w.$]*)|(-?\d+)|([A-Za-z_]\w*)|([<>{}\[\]=,]))")

Aliases = Mapping[str, Encoding]


def parse_encoding(text: str, aliases: Aliases | None = None) -> Encoding:
    """The encoding that ``text`` spells; ``aliases`` maps names with their ``#`` to encodings.

    Raises:
        ParseError: with line and column, when the text is no encoding or has anything after it.
    """
    encoding, end = parse_encoding_prefix(text, 0, aliases)
    rest = text[end:].lstrip()
    if rest:
        raise _error(text, len(text) - len(rest), "unexpected text after the encoding")
    return encoding


def parse_encoding_prefix(text: str, start: int = 0, aliases: Aliases | None = None) -> tuple[Encoding, int]:
    """The encoding at ``text[start:]`` and the position behind it: for parsers of larger texts."""
    return _Reader(text, start, aliases or {}).encoding()


class _Reader:
    """A cursor over the tokens of a text."""

    def __init__(self, text: str, position: int, aliases: Aliases):
        self.text, self.position, self.aliases = text, position, aliases

    def peek(self) -> str:
        match = _TOKEN.match(self.text, self.position)
        return match.group(match.lastindex) if match else ""

    def take(self, expected: str | None = None) -> str:
        match = _TOKEN.match(self.text, self.position)
        token = match.group(match.lastindex) if match else ""
        if not token or (expected is not None and token != expected):
            found = self.found()
            raise self.error(f"expected {expected!r}, found {found}" if expected else f"unexpected {found}")
        self.position = match.end()
        return token

    def found(self) -> str:
        """What stands at the cursor, for messages."""
        rest = self.text[self.position:].strip()
        return repr(self.peek() or rest[:1]) if rest else "the end"

    def error(self, message: str) -> ParseError:
        skipped = len(self.text) - len(self.text[self.position:].lstrip())
        return _error(self.text, min(skipped, len(self.text)), message)

    def encoding(self) -> tuple[Encoding, int]:
        begin = self.position
        token = self.take()
        if not token.startswith("#"):
            self.position = begin
            raise self.error(f"expected an encoding such as '#blocked<{{...}}>', found {token!r}")
        if self.peek() != "<":
            return self._alias(token, begin), self.position
        name = token[1:].removeprefix("triton_gpu.").removeprefix("ttg.").removesuffix("_layout")
        build = _BUILDERS.get(name)
        if build is None:
            self.position = begin
            raise self.error(f"unknown encoding '#{name}', known are {', '.join('#' + n for n in _BUILDERS)}")
        fields = self._fields()
        try:
            return build(_Fields(name, fields)), self.position
        except (LayoutError, TypeError) as fault:
            self.position = begin
            raise self.error(str(fault)) from fault

    def _alias(self, token: str, begin: int) -> Encoding:
        if token not in self.aliases:
            self.position = begin
            raise self.error(f"unknown alias '{token}'")
        return self.aliases[token]

    def _fields(self) -> dict[str, object]:
        self.take("<")
        self.take("{")
        fields: dict[str, object] = {}
        while self.peek() != "}":
            key = self.take()
            if key in fields:
                raise self.error(f"field '{key}' appears twice")
            self.take("=")
            fields[key] = self._value()
            if self.peek() == ",":
                self.take()
        self.take("}")
        self.take(">")
        return fields

    def _value(self):
        token = self.peek()
        if token.startswith("#"):
            return self.encoding()[0]
        if token in ("[", "{"):
            return self._list("]" if token == "[" else "}")
        if token in ("true", "false"):
            return self.take() == "true"
        if re.fullmatch(r"-?\d+", token):
            return int(self.take())
        raise self.error(f"expected a number, a list or an encoding, found {self.found()}")

    def _list(self, close: str) -> tuple:
        self.take()
        values = []
        while self.peek() != close:
            values.append(self._value())
            if self.peek() != close:
                self.take(",")
        self.take(close)
        return tuple(values)


class _Fields:
    """The fields of one encoding; complains about those that are missing or left over."""

    def __init__(self, name: str, values: dict[str, object]):
        self.name, self.values = name, values

    def get(self, key: str, default=None):
        return self.values.pop(key, default)

    def need(self, key: str):
        if key not in self.values:
            raise LayoutError(f"#{self.name} needs the field '{key}'")
        return self.values.pop(key)

    def cta(self, rank: int) -> CTALayout:
        per_cga, split = self.get("CTAsPerCGA"), self.get("CTASplitNum")
        order = self.get("CTAOrder", row_major(rank))
        if per_cga is None and split is None:
            return CTALayout.default(rank)
        return CTALayout(per_cga or split, split or per_cga, order)

    def done(self, encoding: Encoding) -> Encoding:
        if self.values:
            raise LayoutError(f"#{self.name} has no field '{next(iter(self.values))}'")
        return encoding


def _blocked(fields: _Fields) -> Encoding:
    size = fields.need("sizePerThread")
    order = fields.get("order", row_major(len(size)))
    threads, warps = fields.need("threadsPerWarp"), fields.need("warpsPerCTA")
    return fields.done(Blocked(size, threads, warps, order, fields.cta(len(order))))


def _slice(fields: _Fields) -> Encoding:
    return fields.done(Slice(fields.need("dim"), fields.need("parent")))


def _mma(fields: _Fields) -> Encoding:
    version = (fields.get("versionMajor", fields.get("version", 2)), fields.get("versionMinor", 0))
    warps_per_cta = fields.need("warpsPerCTA")
    shape = fields.get("instrShape", (16, 8))
    cta, interleave = fields.cta(len(warps_per_cta)), fields.get("interleave", (1, 1))
    tiles = fields.get("tilesPerWarp", (1, 1))
    return fields.done(Mma(version, warps_per_cta, shape, cta, interleave, tiles))


def _dot_op(fields: _Fields) -> Encoding:
    return fields.done(DotOperand(fields.need("opIdx"), fields.need("parent"), fields.get("kWidth", 0)))


def _shared(fields: _Fields) -> Encoding:
    order = fields.need("order")
    vec, per_phase, max_phase = fields.need("vec"), fields.need("perPhase"), fields.need("maxPhase")
    if fields.get("hasLeadingOffset", False):
        raise LayoutError("#shared has no leading offset, tiles in panels are #panels")
    return fields.done(Shared(vec, per_phase, max_phase, order, fields.cta(len(order))))


def _panels(fields: _Fields) -> Encoding:
    swizzle, bits, order = fields.need("swizzle"), fields.need("elementBits"), fields.need("order")
    return fields.done(Panels(swizzle, bits, order, fields.cta(len(order))))


def _linear(fields: _Fields) -> Encoding:
    bases = {name: fields.get(name, ()) for name in (REGISTER, LANE, WARP, BLOCK)}
    rank = max((len(v) for vectors in bases.values() for v in vectors), default=0)
    sizes = [1] * rank
    for vectors in bases.values():
        for vector in vectors:
            sizes = [max(s, 1 << value.bit_length()) for s, value in zip(sizes, vector)]
    return fields.done(Linear(LinearLayout(bases, zip(dim_names(rank), sizes))))


_BUILDERS: dict[str, Callable[[_Fields], Encoding]] = {
    "blocked": _blocked, "slice": _slice, "mma": _mma, "nvidia_mma": _mma, "dot_op": _dot_op,
    "shared": _shared, "swizzled_shared": _shared, "panels": _panels, "linear": _linear,
}


def _error(text: str, position: int, message: str) -> ParseError:
    before = text[:position]
    return ParseError(message, before.count("\n") + 1, position - (before.rfind("\n") + 1) + 1, text)
