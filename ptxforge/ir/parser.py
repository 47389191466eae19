"""IR text → objects. The exact inverse of :mod:`ptxforge.ir.printer`; ``docs/ir.md`` describes the format.

The parser checks what text alone can get wrong (syntax, unknown names, operand types that are not the
operands'); whether the IR is meaningful is the verifier's business.

A cursor over IR text: skips blanks and ``// comments``, matches tokens, reports errors with line and
column.
"""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

from ptxforge.ir import types as T
from ptxforge.ir.core import Block, Function, Operation, Region, Value
from ptxforge.ir.definition import REGISTRY
from ptxforge.ir.ops.control import For
from ptxforge.ir.printer import region_label
from ptxforge.layouts.encodings import Encoding
from ptxforge.layouts.syntax import parse_encoding_prefix
from ptxforge.support.errors import ParseError
from ptxforge.support.location import Location

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


_ATTRIBUTES = re.compile(r"\{\s*[^\W\d][\w.]*\s*=")


def parse_function(text: str) -> Function:
    """The only function in ``text``. Raises :class:`ParseError` with line and column."""
    parser = _Parser(text)
    function = parser.module()
    if not parser.lexer.at_end:
        parser.lexer.fail("expected the end of the text after the function")
    return function


def parse_type(text: str) -> T.Type:
    """A type by its text (layouts spelled out)."""
    parser = _Parser(text)
    type = parser.type()
    if not parser.lexer.at_end:
        parser.lexer.fail("expected the end of the type")
    return type


class _Parser:
    def __init__(self, text: str):
        self.lexer = Lexer(text)
        self.values: dict[str, Value] = {}
        self.aliases: dict[str, Encoding] = {}

    # -- values ----------------------------------------------------------------------------------------

    def define(self, value: Value, name: str, position: int) -> None:
        if name in self.values:
            self.lexer.fail(f"'%{name}' is defined twice", position)
        self.values[name] = value
        if not name.isdigit():
            value.hint = name

    def use(self) -> Value:
        position = self.lexer.position
        name = self.lexer.value_name()
        if name not in self.values:
            self.lexer.fail(f"'%{name}' is not defined before its use", position)
        return self.values[name]

    def use_list(self) -> list[Value]:
        # On the next line a value's name begins the next operation.
        if self.lexer.at_line_end or not self.lexer.sees("%"):
            return []
        values = [self.use()]
        while self.lexer.accept(","):
            values.append(self.use())
        return values

    # -- types -----------------------------------------------------------------------------------------

    def type(self) -> T.Type:
        position = self.lexer.position
        name = self.lexer.word("a type")
        if name in T.SCALARS:
            return T.SCALARS[name]
        reader = {
            "ptr": self._pointer, "tensor": self._tensor, "memdesc": self._memdesc, "flight": self._flight,
            "descriptor": self._descriptor, "token": self._token,
        }.get(name)  # fmt: skip
        if reader is not None:
            self.lexer.expect("<")
            type = reader()
            self.lexer.expect(">")
            return type
        for type in (T.TENSOR_MAP, T.MBARRIER):
            if name == str(type):
                return type
        self.lexer.fail(f"unknown type '{name}'", position)

    def _pointer(self) -> T.Type:
        pointee = self.type()
        space = self.lexer.word("an address space") if self.lexer.accept(",") else "global"
        return T.PointerType(pointee, space)

    def _tensor(self) -> T.Type:
        shape, element = self.lexer.dimensions(), self.type()
        return T.TensorType(shape, element, self.layout() if self.lexer.accept(",") else None)

    def _memdesc(self) -> T.Type:
        shape, element = self.lexer.dimensions(), self.type()
        self.lexer.expect(",")
        layout = self.layout()
        mutable = self.lexer.accept(",")
        if mutable:
            self.lexer.expect_word("mutable")
        return T.MemDescType(shape, element, layout, mutable)

    def _token(self) -> T.Type:
        position = self.lexer.position
        queue = self.lexer.word("a queue")
        if queue not in T.QUEUES:
            self.lexer.fail(f"unknown queue '{queue}': {', '.join(T.QUEUES)}", position)
        return T.TokenType(queue)

    def _descriptor(self) -> T.Type:
        shape, element = self.lexer.dimensions(), self.type()
        padding = self.lexer.word("a padding") if self.lexer.accept(",") else "zero"
        return T.DescriptorType(shape, element, padding)

    def _flight(self) -> T.Type:
        position = self.lexer.position
        tensor = self.type()
        if not isinstance(tensor, T.TensorType):
            self.lexer.fail(f"a flight is of a tensor, not of {tensor}", position)
        return T.FlightType(tensor)

    def type_list(self) -> list[T.Type]:
        types = [self.type()]
        while self.lexer.accept(","):
            types.append(self.type())
        return types

    def layout(self) -> Encoding:
        encoding, end = parse_encoding_prefix(self.lexer.text, self.lexer.position, self.aliases)
        self.lexer.advance(end)
        return encoding

    # -- attributes and locations ----------------------------------------------------------------------

    def attribute(self) -> Any:
        lexer = self.lexer
        if lexer.sees('"'):
            return lexer.string()
        if lexer.accept("["):
            return self._tuple()
        if lexer.sees("#"):
            return self.layout()
        number = lexer.number()
        if number is not None:
            return number
        position = lexer.position
        word = lexer.word("an attribute's value")
        words = {"true": True, "false": False, "none": None, "nan": float("nan")}
        if word not in words:
            lexer.fail(f"'{word}' is not an attribute's value", position)
        return words[word]

    def _tuple(self) -> tuple:
        items = []
        while not self.lexer.accept("]"):
            if items:
                self.lexer.expect(",")
            items.append(self.attribute())
        return tuple(items)

    def attributes(self) -> dict[str, Any]:
        """``{key = value, …}`` if it stands here; nothing else may begin with a brace here."""
        found: dict[str, Any] = {}
        if not self.lexer.accept("{"):
            return found
        while not self.lexer.accept("}"):
            if found:
                self.lexer.expect(",")
            key = self.lexer.word("an attribute's name")
            self.lexer.expect("=")
            found[key] = self.attribute()
        return found

    def location(self) -> Location | None:
        """`` loc("file":line:column… at …)`` if it stands here."""
        if not self.lexer.accept_word("loc"):
            return None
        self.lexer.expect("(")
        spans = [self._span()]
        while self.lexer.accept_word("at"):
            spans.append(self._span())
        self.lexer.expect(")")
        location = None
        for fields in reversed(spans):
            location = Location(**fields, call_site=location)
        return location

    def _span(self) -> dict[str, Any]:
        lexer = self.lexer
        file = lexer.string()
        lexer.expect(":")
        line = end_line = lexer.integer("a line")
        lexer.expect(":")
        column, end_column = lexer.integer("a column") - 1, None
        if lexer.accept("-"):
            end_column = lexer.integer("a column")
            if lexer.accept(":"):
                end_line, end_column = end_column, lexer.integer("a column")
        function = lexer.string() if lexer.accept_word("in") else ""
        return {
            "file": file, "line": line, "column": column, "function": function,
            "end_line": None if end_column is None else end_line, "end_column": end_column,
        }  # fmt: skip

    # -- structure -------------------------------------------------------------------------------------

    def module(self) -> Function:
        while self.lexer.sees("#"):
            position = self.lexer.position
            alias = self.lexer.layout_name()
            if alias in self.aliases:
                self.lexer.fail(f"layout '{alias}' is defined twice", position)
            self.lexer.expect("=")
            self.aliases[alias] = self.layout()
        return self.function()

    def function(self) -> Function:
        lexer = self.lexer
        lexer.expect_word("func")
        lexer.expect("@")
        function = Function(lexer.word("the function's name"))
        lexer.expect("(")
        while not lexer.accept(")"):
            if function.arguments:
                lexer.expect(",")
            argument = self._argument(function.body)
            argument.name, argument.attributes = argument.hint, self.attributes()
        if lexer.accept_word("attributes"):
            function.attributes = self.attributes()
        function.location = self.location()
        lexer.expect("{")
        self.block(function.body)
        return function

    def _argument(self, block: Block) -> Value:
        position = self.lexer.position
        name = self.lexer.value_name()
        self.lexer.expect(":")
        argument = block.add_argument(self.type())
        self.define(argument, name, position)
        return argument

    def block(self, block: Block) -> None:
        """Operations up to and including the closing brace."""
        while not self.lexer.accept("}"):
            if self.lexer.at_end:
                self.lexer.fail("expected '}'")
            block.append(self.operation())

    def operation(self) -> Operation:
        position = self.lexer.position
        names: list[tuple[str, int]] = []
        if self.lexer.sees("%"):
            names = self._result_names()
        kind_position = self.lexer.position
        name = self.lexer.word("an operation")
        kind = REGISTRY.get(name)
        if kind is None:
            self.lexer.fail(f"unknown operation '{name}'", kind_position)
        op = self._for() if kind.is_counted else self._generic(kind)
        if len(names) != len(op.results):
            self.lexer.fail(f"'{name}' has {len(op.results)} results, {len(names)} are named", position)
        for result, (result_name, where) in zip(op.results, names):
            self.define(result, result_name, where)
        return op

    def _result_names(self) -> list[tuple[str, int]]:
        names = [(self.lexer.position, self.lexer.value_name())]
        while self.lexer.accept(","):
            names.append((self.lexer.position, self.lexer.value_name()))
        self.lexer.expect("=")
        return [(name, position) for position, name in names]

    def _generic(self, kind: type[Operation]) -> Operation:
        operands = self.use_list()
        attributes = self._op_attributes()
        types = self._types(kind, operands)
        regions = [self._region(index, field) for index, field in enumerate(kind.definition.region_fields)]
        return kind(operands, types, attributes, regions, self.location())

    def _op_attributes(self) -> dict[str, Any]:
        """Attributes; a brace may open a region instead, which cannot begin with ``word =``."""
        opens_attributes = _ATTRIBUTES.match(self.lexer.text, self.lexer.position)
        return self.attributes() if opens_attributes else {}

    def _types(self, kind: type[Operation], operands: list[Value]) -> list[T.Type]:
        """The types after the colon, the operands' checked; gives the results'."""
        if not self.lexer.accept(":"):
            return []
        if not kind.definition.shows_operand_types:
            return self.type_list()
        position = self.lexer.position
        self.lexer.expect("(")
        given = [] if self.lexer.sees(")") else self.type_list()
        self.lexer.expect(")")
        if given != [v.type for v in operands]:
            actual = ", ".join(str(v.type) for v in operands)
            self.lexer.fail(f"the operands of '{kind.name}' have types ({actual})", position)
        return self.type_list() if self.lexer.accept("->") else []

    def _region(self, index: int, field) -> Region:
        if index:
            self.lexer.expect_word(region_label(field.name))
        self.lexer.expect("{")
        block = Block()
        if self.lexer.accept("("):
            while not self.lexer.accept(")"):
                if block.arguments:
                    self.lexer.expect(",")
                self._argument(block)
            self.lexer.expect(":")
        self.block(block)
        return Region(block)

    def _for(self) -> Operation:
        lexer = self.lexer
        counter = (lexer.position, lexer.value_name())
        lexer.expect("=")
        lower = self.use()
        lexer.expect_word("to")
        upper = self.use()
        lexer.expect_word("step")
        bounds = [lower, upper, self.use()]
        names, initial = self._iter_args() if lexer.accept_word("iter_args") else ([], [])
        attributes = self._op_attributes()
        types = self._types(For, [])
        block = Block([lower.type] + [v.type for v in initial])
        for argument, (position, name) in zip(block.arguments, [counter, *names]):
            self.define(argument, name, position)
        lexer.expect("{")
        self.block(block)
        return For(bounds + initial, types, attributes, [Region(block)], self.location())

    def _iter_args(self) -> tuple[list[tuple[int, str]], list[Value]]:
        names, initial = [], []
        self.lexer.expect("(")
        while not self.lexer.accept(")"):
            if names:
                self.lexer.expect(",")
            names.append((self.lexer.position, self.lexer.value_name()))
            self.lexer.expect("=")
            initial.append(self.use())
        return names, initial
