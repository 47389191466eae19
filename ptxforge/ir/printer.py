"""IR objects → text. The exact inverse of :mod:`ptxforge.ir.parser`; ``docs/ir.md`` describes the format.

Everything is derived from the operations' definitions; only ``for`` has a header of its own. Layouts are
hoisted to the top under names of their own (``#blocked``, ``#blocked1``, ``#mma``); those made from a parent
(``slice``, ``dot_op``) stay where they are used and name the parent. Values are called by their hints, made
unique, or else numbered.

>>> from ptxforge.ir import types as T
>>> from ptxforge.ir.builder import Builder
>>> from ptxforge.ir.core import Function
>>> from ptxforge.ir.ops.control import Return
>>> function = Function("nothing", [T.I32], {"num_warps": 4})
>>> _ = Builder(function.body).create(Return)
>>> print(print_function(function))
func @nothing(%0: i32) attributes {num_warps = 4} {
  return
}
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ptxforge.ir import types as T
from ptxforge.ir.core import Block, Function, Operation, Value
from ptxforge.ir.ops.control import For
from ptxforge.layouts.encodings import Encoding
from ptxforge.support.location import Location

_NOT_IN_A_NAME = re.compile(r"[^\w.$]")
_COUNTED_NAME = re.compile(r"(.*?)_\d+")


def print_function(
    function: Function, locations: bool = False, notes: Mapping[Operation, str] | None = None
) -> str:
    """The text of a function. ``locations`` adds ``loc(…)`` suffixes; ``notes`` are shown under their
    operations."""
    return _Printer(locations, notes or {}).function(function)


def region_label(name: str) -> str:
    """The word in front of a second or later region: its field's name (``else`` for ``else_block``)."""
    return name.removesuffix("_block")


class _Printer:
    def __init__(self, locations: bool, notes: Mapping[Operation, str]):
        self.locations = locations
        self.notes = notes
        self.lines: list[str] = []
        self.names: dict[Value, str] = {}
        self.taken: set[str] = set()
        self.unnamed = 0
        self.aliases: dict[Encoding, str] = {}
        self.alias_count: dict[str, int] = {}
        self.type_texts: dict[T.Type, str] = {}

    # -- names -----------------------------------------------------------------------------------------

    def name(self, value: Value) -> str:
        """``%name`` of a value, chosen when it is first met."""
        found = self.names.get(value)
        if found is None:
            found = self.names[value] = "%" + self._choose_name(value.hint)
        return found

    def _choose_name(self, hint: str) -> str:
        if not hint:
            self.unnamed += 1
            return str(self.unnamed - 1)
        hint = _NOT_IN_A_NAME.sub("_", hint)
        if hint[0].isdigit():
            hint = f"_{hint}"
        name = hint
        if name in self.taken:
            counted = _COUNTED_NAME.fullmatch(hint)
            base, number = counted[1] if counted else hint, 1
            while (name := f"{base}_{number}") in self.taken:
                number += 1
        self.taken.add(name)
        return name

    def value_list(self, values: Iterable[Value]) -> str:
        return ", ".join([self.name(v) for v in values])

    # -- types and attributes --------------------------------------------------------------------------

    def type(self, type: T.Type) -> str:
        found = self.type_texts.get(type)
        if found is None:
            layout = T.layout_of(type)
            found = str(type) if layout is None else str(type).replace(str(layout), self.layout(layout))
            self.type_texts[type] = found
        return found

    def type_list(self, values: Iterable[Value]) -> str:
        return ", ".join([self.type(v.type) for v in values])

    def layout(self, layout: Encoding) -> str:
        """An encoding's alias, or its text with the alias of the encoding that it is derived from."""
        root = layout
        while (parent := getattr(root, "parent", None)) is not None:
            root = parent
        if root not in self.aliases:
            number = self.alias_count.get(root.name, 0)
            self.alias_count[root.name] = number + 1
            self.aliases[root] = f"#{root.name}{number or ''}"
        return self.aliases[root] if root is layout else layout.text(self.aliases)

    def attribute(self, value: Any) -> str:
        if value is None:
            return "none"
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int):
            return str(value)
        if isinstance(value, float):
            return "nan" if math.isnan(value) else repr(float(value))
        if isinstance(value, str):
            return json.dumps(value, ensure_ascii=False)
        if isinstance(value, (tuple, list)):
            return f"[{', '.join([self.attribute(item) for item in value])}]"
        if isinstance(value, Encoding):
            return self.layout(value)
        raise TypeError(f"an attribute cannot be a {type(value).__name__}: {value!r}")

    def attributes(self, attributes: Mapping[str, Any]) -> str:
        return ", ".join([f"{key} = {self.attribute(value)}" for key, value in attributes.items()])

    def op_attributes(self, op: Operation) -> str:
        """`` {key = value, …}``: declared attributes in order of declaration, unless default, then the
        others."""
        if not op.attributes:
            return ""
        fields = op.definition.attribute_fields
        shown = {}
        for key, field in fields.items():
            if key in op.attributes and op.attributes[key] != field.default:
                shown[key] = op.attributes[key]
        for key in sorted(op.attributes.keys() - fields.keys()):
            shown[key] = op.attributes[key]
        return f" {{{self.attributes(shown)}}}" if shown else ""

    def location(self, location: Location | None) -> str:
        if not self.locations or location is None:
            return ""
        return f" loc({' at '.join([_span(here) for here in location.chain()])})"

    # -- structure -------------------------------------------------------------------------------------

    def function(self, function: Function) -> str:
        parameters = ", ".join([self._parameter(argument) for argument in function.arguments])
        attributes = f" attributes {{{self.attributes(function.attributes)}}}" if function.attributes else ""
        head = f"func @{function.name}({parameters}){attributes}{self.location(function.location)} {{"
        self.lines.append(head)
        self.block(function.body, "  ")
        self.lines.append("}")
        layouts = [f"{alias} = {layout}" for layout, alias in self.aliases.items()]
        return "\n".join(layouts + self.lines)

    def _parameter(self, argument) -> str:
        attributes = f" {{{self.attributes(argument.attributes)}}}" if argument.attributes else ""
        return f"{self.name(argument)}: {self.type(argument.type)}{attributes}"

    def block(self, block: Block, indent: str) -> None:
        for op in block.operations:
            self.operation(op, indent)

    def operation(self, op: Operation, indent: str) -> None:
        if op.is_counted:
            head = self._for_head(op)
        else:
            head = self._head(op)
        head = f"{indent}{self.value_list(op.results)} = {head}" if op.results else indent + head
        if op.regions:
            self._regions(op, head, indent)
        else:
            self.lines.append(head + self.location(op.location))
        if op in self.notes:
            self.lines.append(f"{indent}^ {self.notes[op]}")

    def _head(self, op: Operation) -> str:
        operands = f" {self.value_list(op.operands)}" if op.operands else ""
        return f"{op.name}{operands}{self.op_attributes(op)}{self._types(op)}"

    def _types(self, op: Operation) -> str:
        if op.definition.shows_operand_types:
            arrow = f" -> {self.type_list(op.results)}" if op.results else ""
            return f" : ({self.type_list(op.operands)}){arrow}"
        return f" : {self.type_list(op.results)}" if op.results else ""

    def _for_head(self, op: For) -> str:
        # Bounds and initial values are named first: they come before the names that the header defines.
        lower, upper, step = (self.name(v) for v in op.operands[:3])
        initial = [self.name(v) for v in op.initial]
        pairs = ", ".join([f"{self.name(a)} = {v}" for a, v in zip(op.carried, initial)])
        carried = f" iter_args({pairs})" if pairs else ""
        bounds = f"{self.name(op.induction)} = {lower} to {upper} step {step}"
        return f"for {bounds}{carried}{self.op_attributes(op)}{self._types(op)}"

    def _regions(self, op: Operation, head: str, indent: str) -> None:
        for field, region in zip(op.definition.region_fields, op.regions):
            self.lines.append(f"{head} {{")
            if region.block.arguments and not op.is_counted:
                arguments = ", ".join(
                    [f"{self.name(a)}: {self.type(a.type)}" for a in region.block.arguments]
                )
                self.lines.append(f"{indent}  ({arguments}):")
            self.block(region.block, indent + "  ")
            following = field.index + 1
            if following < len(op.definition.region_fields):
                head = f"{indent}}} {region_label(op.definition.region_fields[following].name)}"
        self.lines.append(f"{indent}}}{self.location(op.location)}")


def _span(location: Location) -> str:
    """``"file":line:column``, then ``-column`` or ``-line:column`` of the last character, then the
    function."""
    text = f"{json.dumps(location.file, ensure_ascii=False)}:{location.line}:{location.column + 1}"
    if location.end_column is not None:
        line = "" if location.end_line in (None, location.line) else f"{location.end_line}:"
        text += f"-{line}{location.end_column}"
    return f"{text} in {json.dumps(location.function)}" if location.function else text
