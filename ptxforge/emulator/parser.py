"""PTX text -> :class:`Module`: functions with flat lists of instructions, module variables, source lines.

The parser knows PTX's *shape* (directives, scopes, labels, operands) and no instruction's meaning. Registers
and labels that are declared inside a nested ``{ ... }`` are renamed (``%p~3``), so that later stages see one
flat name space per function. Identical operand texts inside one scope are parsed once.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from collections.abc import Container
from dataclasses import dataclass, field

from ptxforge.emulator import constants
from ptxforge.support.errors import EmulatorError

_TYPES_BY_BITS = {
    1: "pred", 8: "b8 u8 s8", 16: "b16 u16 s16 f16 bf16", 32: "b32 u32 s32 f32 f16x2 bf16x2 tf32",
    64: "b64 u64 s64 f64 f32x2", 128: "b128",
}  # fmt: skip
TYPE_BITS = {name: bits for bits, names in _TYPES_BY_BITS.items() for name in names.split()}
"""Width of every fundamental PTX type (PTX ISA, "Fundamental Types")."""
STATE_SPACES = ("global", "shared", "local", "param", "const")
_DECLARATIONS = tuple(
    ".visible .extern .weak .common .entry .func .global .const .shared .local .alias .pragma".split()
)
"""Directives that a declaration of a module begins with."""


@dataclass(frozen=True, slots=True)
class SourceLine:
    """Where an instruction came from, by ``.loc``: the innermost position."""

    file: str
    line: int
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Register:
    """A virtual or special register; ``bits`` is its declared width (0 for special registers)."""

    name: str
    bits: int
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Immediate:
    """A literal. ``kind`` is ``"i"`` (int), ``"f"`` (0f bit pattern), ``"d"`` (0d pattern or decimal
    float).
    """

    value: int
    kind: str = "i"

    def as_float(self) -> float:
        if self.kind == "f":
            return struct.unpack("<f", struct.pack("<I", self.value))[0]
        if self.kind == "d":
            return struct.unpack("<d", struct.pack("<Q", self.value))[0]
        return float(self.value)


@dataclass(frozen=True, slots=True)
class Symbol:
    """A variable, function or label; ``offset`` in bytes for ``name+4``."""

    name: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Vector:
    """``{a, b, ...}`` or the parenthesised lists of ``call``."""

    elements: tuple


@dataclass(frozen=True, slots=True)
class Pair:
    """``a|b``: two destinations."""

    first: object
    second: object


@dataclass(frozen=True, slots=True)
class Memory:
    """``[base+offset]``, with tensor coordinates or a second address in ``extra``."""

    base: object
    offset: int = 0
    extra: tuple = ()


@dataclass(frozen=True, slots=True)
class Sink:
    """``_``: the result is dropped."""


@dataclass(slots=True)
class Instruction:
    """One PTX instruction. ``opcode`` is the full dotted text; ``parts`` the same split at the dots."""

    opcode: str
    parts: tuple[str, ...]
    operands: tuple
    predicate: Register | None
    line: int
    source: SourceLine | None
    family: object = None

    def has(self, *names: str) -> bool:
        """Whether one of the modifiers is present."""
        return any(name in self.parts for name in names)

    def first_of(self, names: Container[str], default: str | None = None) -> str | None:
        """The first modifier that is one of ``names``."""
        return next((part for part in self.parts[1:] if part in names), default)

    @property
    def space(self) -> str:
        """The state space in the opcode; ``generic`` when there is none."""
        named = (part.partition("::")[0] for part in self.parts[1:])
        return next((name for name in named if name in STATE_SPACES), "generic")

    @property
    def vector_width(self) -> int:
        """Elements that each lane moves."""
        return int((self.first_of(("v2", "v4", "v8")) or "v1")[1:])

    @property
    def types(self) -> list[str]:
        """All type modifiers, in order."""
        return [part for part in self.parts if part in TYPE_BITS]

    @property
    def type(self) -> str:
        """The last type modifier (the only one for most instructions)."""
        for part in reversed(self.parts):
            if part in TYPE_BITS:
                return part
        raise EmulatorError(f"PTX line {self.line}: {self.opcode} has no type")


@dataclass(slots=True)
class Label:
    name: str
    line: int


@dataclass(slots=True)
class Variable:
    """A ``.global/.const/.shared/.local/.param`` variable, or a parameter in a register (``reg``).

    ``initial`` holds the bytes, or None.
    """

    name: str
    space: str
    nbytes: int
    align: int
    type: str = "b8"
    extern: bool = False
    initial: bytes | None = None
    relocations: list = field(default_factory=list)


@dataclass(slots=True)
class Function:
    """A ``.entry`` or ``.func``. ``body`` is a flat list of instructions and labels; None without a body."""

    name: str
    is_entry: bool
    params: list[Variable]
    returns: list[Variable]
    body: list | None = None
    registers: dict[str, str] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    branch_targets: dict[str, list[str]] = field(default_factory=dict)
    directives: dict[str, tuple[int, ...]] = field(default_factory=dict)
    line: int = 0


@dataclass(slots=True)
class Module:
    version: str
    target: str
    functions: dict[str, Function]
    variables: dict[str, Variable]
    text: str = ""
    rows: list[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.rows = self.text.splitlines()

    def line_text(self, line: int) -> str:
        """The instruction of a line. Every access asks for its own when it is translated."""
        return self.rows[line - 1].strip() if 0 < line <= len(self.rows) else ""


_COMMENT = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n]*|/\*.*?\*/', re.S)
_LABEL = re.compile(r"([A-Za-z_$%][\w$~]*)\s*:(?!:)")
_SPACE = re.compile(r"\s+")
_WORD = re.compile(r"[.\w$]+")
_LOC = re.compile(r"\.loc\s+(\d+)\s+(\d+)\s+(\d+)[^\n;]*;?")
_FILE = re.compile(r'\.file\s+(\d+)\s+"((?:[^"\\]|\\.)*)"[^\n]*')
_INSTRUCTION = re.compile(r"(?:@(!?)\s*([%\w$]+)\s+)?([A-Za-z][\w.:]*)\s*(.*)", re.S)
_DECIMAL = re.compile(r"[-+]?(?:0|[1-9]\d*)$")
_NAME = re.compile(r"[%$_A-Za-z][\w$%.]*$")
_DISPLACED = re.compile(r"([%$\w.]+)\s*\+?((?<=\+).*|-.*)", re.S)
"""``register + expression`` or ``register - expression``."""
_DECLARED = re.compile(r"([%$_A-Za-z][\w$%]*)\s*(?:<\s*(\d+)\s*>)?")
"""What stands behind the type in ``.reg``: a name, or a prefix and how many."""
_CLOSING = {"{": "}", "[": "]"}
_BITS_OF_FLOAT = re.compile(r"0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}")
_SPECIAL = re.compile(
    r"%(?:n?tid|n?ctaid|laneid|n?warpid|n?smid|gridid|lanemask_\w+|clock(?:_hi|64)?|pm\d+(?:_64)?"
    r"|globaltimer\w*"
    r"|envreg\d+|total_smem_size|dynamic_smem_size|aggr_smem_size|current_graph_exec|cluster\w+|nclusterid|is_explicit_cluster"
    r"|reserved_smem\w*)(?:\.[xyzw])?$"
)
_VARIABLE = re.compile(
    r"\.(global|const|shared|local|param|tex)\b\s*((?:\.attribute\([^)]*\)\s*)?)"
    r"((?:\.(?:align\s+\d+|ptr|v[248]"
    r"|\w+)\s*)*)\s*([\w$%.]*)\s*((?:\[[^\]]*\]\s*)*)\s*(?:=\s*(.*))?$",
    re.S,
)


def parse(text: str) -> Module:
    """Parse a PTX module. Raises :class:`EmulatorError` with the PTX line on malformed text."""
    return _Parser(text).module()


def _blank_comment(match: re.Match) -> str:
    found = match.group()
    return found if found[0] == '"' else "\n" * found.count("\n") or " "


def _split(text: str) -> list[str]:
    """Split at commas outside brackets."""
    if "{" not in text and "[" not in text and "(" not in text:
        return [part.strip() for part in text.split(",")] if text else []
    parts, depth, start = [], 0, 0
    for index, char in enumerate(text):
        if char in "{[(":
            depth += 1
        elif char in "}])":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:index].strip())
            start = index + 1
    parts.append(text[start:].strip())
    return parts


def _integer(text: str) -> int:
    """A signed integer literal, or a constant expression of integers. Raises ``ValueError`` for others."""
    if _DECIMAL.match(text):
        return int(text)
    value = constants.evaluate(text)
    if isinstance(value, float):
        raise ValueError(f"'{text}' is no integer")
    return value


class _Scope:
    """Names of one ``{ ... }``: what it declares is renamed with ``~serial`` unless it is the outermost."""

    def __init__(self, parent: _Scope | None, suffix: str):
        self.parent = parent
        self.suffix = suffix
        self.registers: dict[str, str] = {}
        self.ranges: dict[str, tuple[str, int]] = {}
        """Prefix -> (type, how many): ``.reg .b32 %r<3>`` declares ``%r0`` to ``%r2``."""
        self.labels: set[str] = set()
        self.symbols: dict[str, str] = {}
        self.operands: dict[str, object] = {}


class _Parser:
    def __init__(self, text: str):
        self.text = text
        self.clean = _COMMENT.sub(_blank_comment, text)
        self.newlines = [match.start() for match in re.finditer("\n", self.clean)]
        self.position = 0
        self.files: dict[str, str] = {}
        for match in _FILE.finditer(self.clean):
            self.files[match.group(1)] = match.group(2)
        self.version, self.target = "", ""
        self.functions: dict[str, Function] = {}
        self.variables: dict[str, Variable] = {}
        self.opcodes: dict[str, tuple[str, ...]] = {}

    def line(self, position: int | None = None) -> int:
        return bisect_right(self.newlines, (self.position if position is None else position) - 1) + 1

    def fail(self, message: str, position: int | None = None) -> EmulatorError:
        return EmulatorError(f"PTX line {self.line(position)}: {message}")

    def skip(self) -> None:
        match = _SPACE.match(self.clean, self.position)
        if match:
            self.position = match.end()

    def until(self, char: str) -> str:
        """The text up to ``char``; moves past it."""
        end = self.clean.find(char, self.position)
        if end < 0:
            raise self.fail(f"'{char}' expected before the end of the text")
        found = self.clean[self.position : end]
        self.position = end + 1
        return found

    # ---- module level --------------------------------------------------------------------------------------
    def module(self) -> Module:
        size = len(self.clean)
        while True:
            self.skip()
            if self.position >= size:
                return Module(self.version, self.target, self.functions, self.variables, self.text)
            self.top_level()

    def top_level(self) -> None:
        word = _WORD.match(self.clean, self.position)
        if not word:
            raise self.fail(f"unexpected '{self.clean[self.position]}'")
        kind = word.group()
        if kind == ".version":
            number = re.fullmatch(r"\.version\s+(\d+\.\d+)\s*;?\s*", self.rest_of_line())
            if number is None:
                raise self.fail(".version is followed by a number such as 8.7")
            self.version = number.group(1)
        elif kind == ".target":
            self.target = self.rest_of_line()[len(".target") :].split(",")[0].strip()
            if not re.fullmatch(r"sm_\d+[af]?", self.target):
                raise self.fail(".target is followed by an architecture such as sm_90a")
        elif kind in (".address_size", ".file", ".loc"):
            self.rest_of_line()
        elif kind == ".section":
            self.skip_section()
        elif kind in _DECLARATIONS:
            self.declaration()
        else:
            raise self.fail(f"unknown directive {kind}")

    def rest_of_line(self) -> str:
        end = self.clean.find("\n", self.position)
        end = len(self.clean) if end < 0 else end
        found = self.clean[self.position : end]
        self.position = end
        return found

    def skip_section(self) -> None:
        self.until("{")
        depth = 1
        while depth:
            match = re.compile(r"[{}]").search(self.clean, self.position)
            if not match:
                raise self.fail("unterminated .section")
            depth += 1 if match.group() == "{" else -1
            self.position = match.end()

    def declaration(self) -> None:
        start = self.position
        extern = False
        while True:
            self.skip()
            match = _WORD.match(self.clean, self.position)
            word = match.group() if match else ""
            if word in (".visible", ".weak", ".common", ".extern"):
                extern |= word == ".extern"
                self.position = match.end()
                continue
            break
        if word in (".entry", ".func"):
            self.position = match.end()
            self.function(word == ".entry")
            return
        text = self.until(";")
        if word in (".alias", ".pragma"):
            return
        variable = self.variable(text, start)
        variable.extern = extern
        self.variables[variable.name] = variable

    # ---- variables -----------------------------------------------------------------------------------------
    def variable(self, text: str, position: int) -> Variable:
        match = _VARIABLE.match(text.strip())
        if not match:
            raise self.fail(f"cannot read the declaration '{text.strip()}'", position)
        space, _, qualifiers, name, dims, initial = match.groups()
        # ".ptr .global .align 16" says what a pointer parameter points at, not where the parameter lies.
        qualifiers = re.sub(r"\.ptr\b(\s*\.(global|shared|const|local))?(\s*\.align\s+\d+)?", "", qualifiers)
        align_match = re.search(r"\.align\s+(\d+)", qualifiers)
        kinds = re.findall(r"\.(\w+)", re.sub(r"\.align\s+\d+", "", qualifiers))
        kind = next((word for word in kinds if word in TYPE_BITS), "b8")
        lanes = next((int(word[1:]) for word in kinds if re.fullmatch(r"v[248]", word)), 1)
        element = TYPE_BITS[kind] // 8 * lanes
        count, unsized = 1, False
        for dim in re.findall(r"\[([^\]]*)\]", dims):
            unsized |= not dim.strip()
            count *= self.integer(dim, position) if dim.strip() else 1
        data, relocations = (
            (None, []) if initial is None else self.initializer(initial, element, kind, position)
        )
        if data is not None and unsized:
            count, unsized = len(data) // element, False
        nbytes = 0 if unsized else element * count
        if data is not None:
            data = data.ljust(nbytes, b"\0")
        align = int(align_match.group(1)) if align_match else element
        return Variable(name, space, nbytes, align, kind, False, data, relocations)

    def initializer(self, text: str, element: int, kind: str, position: int) -> tuple[bytes, list]:
        data, relocations = bytearray(), []
        for item in re.sub(r"[{}]", " ", text).split(","):
            item = item.strip()
            if not item:
                continue
            mask = re.fullmatch(r"(0x[fF]+)\(([\w$.]+)\)", item)
            if (
                mask
                or _NAME.match(item.split("+")[0].strip())
                and not item[0].isdigit()
                or "generic(" in item
            ):
                name, _, offset = (mask.group(2) if mask else item).partition("+")
                name = re.sub(r"generic\(([^)]*)\)", r"\1", name).strip()
                shift = self.integer(offset, position) if offset else 0
                relocations.append((len(data), name, shift, element))
                data += bytes(element)
                continue
            value = self.literal(item)
            if value is None:
                raise self.fail(f"cannot read the initial value '{item}'", position)
            if kind.startswith("f") and value.kind != "i" or kind in ("f32", "f64"):
                data += struct.pack("<f" if element == 4 else "<d", value.as_float())
            else:
                data += (value.value & ((1 << 8 * element) - 1)).to_bytes(element, "little")
        return bytes(data), relocations

    def parameters(self, text: str, position: int) -> list[Variable]:
        return [self.parameter(part, position) for part in _split(text.strip()) if part]

    def parameter(self, text: str, position: int) -> Variable:
        """A parameter in ``.param`` space, or a device function's in a register (then of space "reg")."""
        made = self.variable(re.sub(r"^\.reg\b", ".param", text), position)
        if text.startswith(".reg"):
            made.space = "reg"
        return made

    def integer(self, text: str, position: int) -> int:
        try:
            return _integer(text.strip())
        except ValueError as error:
            raise self.fail(str(error), position) from error

    # ---- functions -----------------------------------------------------------------------------------------
    def parenthesised(self) -> str | None:
        self.skip()
        if not self.clean.startswith("(", self.position):
            return None
        self.position += 1
        return self.until(")")

    def function(self, is_entry: bool) -> None:
        start = self.position
        returns = self.parenthesised()
        self.skip()
        match = _WORD.match(self.clean, self.position)
        if not match:
            raise self.fail("function name expected")
        self.position = match.end()
        params = self.parenthesised()
        made = Function(
            match.group(),
            is_entry,
            self.parameters(params or "", start),
            self.parameters(returns or "", start),
            line=self.line(start),
        )
        while True:
            self.skip()
            char = self.clean[self.position : self.position + 1]
            if char == "{":
                self.position += 1
                _Body(self, made).parse()
                break
            if char == ";":
                self.position += 1
                break
            directive = re.compile(r"\.(\w+)\s*((?:\d+\s*,?\s*)*)").match(self.clean, self.position)
            if not directive:
                raise self.fail("function body expected")
            made.directives[directive.group(1)] = tuple(
                int(n) for n in re.findall(r"\d+", directive.group(2))
            )
            self.position = directive.end()
        if made.body is not None or made.name not in self.functions:
            self.functions[made.name] = made

    # ---- literals ------------------------------------------------------------------------------------------
    @staticmethod
    def literal(text: str) -> Immediate | None:
        if _BITS_OF_FLOAT.fullmatch(text):
            return Immediate(int(text[2:], 16), text[1].lower())
        try:
            value = int(text) if _DECIMAL.match(text) else constants.evaluate(text)
        except ValueError:
            return None
        if isinstance(value, int):
            return Immediate(value)
        return Immediate(struct.unpack("<Q", struct.pack("<d", value))[0], "d")

    def split_opcode(self, opcode: str) -> tuple[str, ...]:
        parts = self.opcodes.get(opcode)
        if parts is None:
            parts = self.opcodes[opcode] = tuple(opcode.split("."))
        return parts


class _Body:
    """Parses the statements between a function's braces."""

    def __init__(self, parser: _Parser, function: Function):
        self.parser = parser
        self.function = function
        self.scope = _Scope(None, "")
        parameters = function.params + function.returns
        self.scope.registers.update({one.name: one.type for one in parameters if one.space == "reg"})
        self.scopes = 0
        self.source: SourceLine | None = None
        self.sources: dict[tuple, SourceLine] = {}

    def parse(self) -> None:
        parser, body = self.parser, []
        clean = parser.clean
        self.function.body = body
        while True:
            parser.skip()
            char = clean[parser.position : parser.position + 1]
            if not char:
                raise parser.fail(f"function {self.function.name} has no end")
            if char == "}":
                parser.position += 1
                if self.scope.parent is None:
                    return
                self.scope = self.scope.parent
            elif char == "{":
                parser.position += 1
                self.open_scope()
            elif char == ";":
                parser.position += 1
            elif char == ".":
                self.directive()
            else:
                self.statement(body)

    def open_scope(self) -> None:
        self.scopes += 1
        self.scope = _Scope(self.scope, f"~{self.scopes}")
        self.scope.labels = self.labels_ahead()

    def labels_ahead(self) -> set[str]:
        """Labels that the scope just opened defines itself (a branch may precede its label)."""
        clean, position, depth, found = self.parser.clean, self.parser.position, 0, set()
        token = re.compile(r"[{}]|(?:^|(?<=[\s;{}]))([A-Za-z_$][\w$]*)\s*:(?!:)")
        while True:
            match = token.search(clean, position)
            if not match:
                return found
            position = match.end()
            if match.group() == "{":
                depth += 1
            elif match.group() == "}":
                if depth == 0:
                    return found
                depth -= 1
            elif depth == 0:
                found.add(match.group(1))

    def statement(self, body: list) -> None:
        parser = self.parser
        match = _LABEL.match(parser.clean, parser.position)
        if match:
            body.append(Label(self.label_name(match.group(1)), parser.line()))
            parser.position = match.end()
            self.branch_targets_after(match.group(1))
            return
        start = parser.position
        text = parser.until(";").strip()
        body.append(self.instruction(text, start))

    def branch_targets_after(self, name: str) -> None:
        """``name: .branchtargets L1, L2;`` (also ``.calltargets`` / ``.callprototype``, which only calls
        use).
        """
        parser = self.parser
        parser.skip()
        if parser.clean.startswith(".branchtargets", parser.position):
            labels = parser.until(";")[len(".branchtargets") :]
            self.function.branch_targets[self.label_name(name)] = [
                self.label_name(label) for label in _split(labels)
            ]
        elif parser.clean.startswith((".callprototype", ".calltargets"), parser.position):
            parser.until(";")

    def directive(self) -> None:
        parser = self.parser
        clean, start = parser.clean, parser.position
        if clean.startswith((".loc ", ".loc\t"), start):
            match = _LOC.match(clean, start)
            if not match:
                raise parser.fail("cannot read .loc")
            self.source = self.source_line(match.groups())
            parser.position = match.end()
            return
        if clean.startswith(".file", start):
            parser.rest_of_line()
            return
        text = parser.until(";").strip()
        if text.startswith(".reg"):
            self.registers(text, start)
        elif text.startswith(".pragma"):
            return
        else:
            self.local_variable(text, start)

    def source_line(self, key: tuple) -> SourceLine | None:
        if key not in self.sources:
            file, line, column = key
            self.sources[key] = SourceLine(
                self.parser.files.get(file, f"file {file}"), int(line), int(column)
            )
        found = self.sources[key]
        return found if found.line else self.source

    def registers(self, text: str, start: int) -> None:
        match = re.match(r"\.reg\s*(?:\.v[248]\s*)?\.(\w+)\s*(.*)", text, re.S)
        if not match or match.group(1) not in TYPE_BITS:
            raise self.parser.fail(f"cannot read '{text}'", start)
        kind = match.group(1)
        for name in match.group(2).split(","):
            declared = _DECLARED.fullmatch(name.strip())
            if declared is None:
                raise self.parser.fail(f"cannot read '{text}'", start)
            name, count = declared.groups()
            if count is None:
                self.scope.registers[name] = kind
            else:
                self.scope.ranges[name] = kind, int(count)

    def local_variable(self, text: str, start: int) -> None:
        for part in self.separate_names(text):
            variable = self.parser.variable(re.sub(r"^\.extern\s*", "", part), start)
            variable.extern = text.startswith(".extern")
            unique = variable.name + self.scope.suffix
            self.scope.symbols[variable.name] = unique
            variable.name = unique
            self.function.variables[unique] = variable

    @staticmethod
    def separate_names(text: str) -> list[str]:
        """``.param .b32 a, b;`` declares two variables of one type; an initial value's commas do not
        separate.
        """
        if "=" in text or "," not in text:
            return [text]
        first, *others = _split(text)
        head = re.match(r"(.*[\s])[\w$%]+\s*(?:\[[^\]]*\]\s*)*$", first, re.S)
        return [first] + [head.group(1) + other for other in others] if head else [text]

    def label_name(self, name: str) -> str:
        scope = self.scope
        while scope is not None:
            if name in scope.labels:
                return name + scope.suffix
            scope = scope.parent
        return name

    # ---- instructions --------------------------------------------------------------------------------------
    def instruction(self, text: str, start: int) -> Instruction:
        match = _INSTRUCTION.fullmatch(text)
        if not match:
            raise self.parser.fail(f"cannot read '{text}'", start)
        negated, guard, opcode, rest = match.groups()
        line = self.parser.line(start)
        predicate = None
        if guard:
            predicate = self.guard(guard, bool(negated), start)
        if opcode.startswith("call"):
            operands = tuple([self.call_operand(part, start) for part in _split(rest)])
        else:
            operands = tuple([self.operand(part, start) for part in _split(rest)])
        return Instruction(opcode, self.parser.split_opcode(opcode), operands, predicate, line, self.source)

    def guard(self, name: str, negated: bool, start: int) -> Register:
        register = self.register(name)
        if register is None or register.bits != 1:
            raise self.parser.fail(f"the guard {name} is no predicate register", start)
        return Register(register.name, register.bits, negated)

    def call_operand(self, text: str, start: int) -> object:
        """Lists of arguments stand in parentheses; elsewhere these belong to constant expressions."""
        if not text.startswith("("):
            return self.operand(text, start)
        return Vector(tuple(self.operand(part, start) for part in _split(text[1:-1].strip())))

    def operand(self, text: str, start: int) -> object:
        cache = self.scope.operands
        found = cache.get(text)
        if found is None:
            found = cache[text] = self.read_operand(text, start)
        return found

    def read_operand(self, text: str, start: int) -> object:
        if not text:
            raise self.parser.fail("empty operand", start)
        first = text[0]
        if first in _CLOSING and text[-1] != _CLOSING[first]:
            raise self.parser.fail(f"'{first}' is not closed in '{text}'", start)
        if first == "{":
            return Vector(tuple(self.operand(part, start) for part in _split(text[1:-1].strip())))
        if first == "[":
            return self.memory(text, start)
        if text == "_":
            return Sink()
        negated = self.register(text[1:].strip()) if first == "!" else None
        if negated is not None:
            return Register(negated.name, negated.bits, True)
        if first.isdigit() or first in "-+~!(" or text.startswith("WARP_SZ"):
            literal = self.parser.literal(text)
            if literal is None:
                raise self.parser.fail(f"cannot read the operand '{text}'", start)
            return literal
        if text.count("|") == 1:
            left, right = text.split("|")
            return Pair(self.operand(left.strip(), start), self.operand(right.strip(), start))
        return self.name(text, start)

    def name(self, text: str, start: int) -> object:
        name, plus, offset = text.partition("+")
        name = name.strip()
        register = self.register(name)
        if register is not None:
            return register
        if _SPECIAL.match(name):
            return Register(name, 0)
        if not _NAME.match(name) or name.startswith("%") and "." in name and "~" not in name:
            raise self.parser.fail(f"cannot read the operand '{text}'", start)
        if name.startswith("%") and not self.declared(name):
            raise self.parser.fail(f"the register {name} is not declared", start)
        return Symbol(self.symbol(name), self.parser.integer(offset, start) if plus else 0)

    def symbol(self, name: str) -> str:
        scope = self.scope
        while scope is not None:
            if name in scope.symbols:
                return scope.symbols[name]
            if name in scope.labels:
                return name + scope.suffix
            scope = scope.parent
        return name

    def declared(self, name: str) -> bool:
        """Whether something other than a register has this name, which begins with ``%``."""
        if self.symbol(name) != name or name in self.scope.labels or name in self.parser.variables:
            return True
        parameters = self.function.params + self.function.returns
        return any(one.name == name for one in parameters) or bool(
            re.search(rf"(?<![\w%$]){re.escape(name)}\s*:(?!:)", self.parser.clean)
        )

    def register(self, name: str) -> Register | None:
        scope = self.scope
        while scope is not None:
            kind = scope.registers.get(name) or self.numbered(scope.ranges, name)
            if kind is not None:
                unique = name + scope.suffix
                self.function.registers[unique] = kind
                return Register(unique, TYPE_BITS[kind])
            scope = scope.parent
        return None

    @staticmethod
    def numbered(ranges: dict[str, tuple[str, int]], name: str) -> str | None:
        """The type of a register that a range declares. A prefix may end in a digit: ``%r1<3>`` declares
        ``%r10``.
        """
        for cut in range(len(name.rstrip("0123456789")), len(name)):
            kind, count = ranges.get(name[:cut], ("", 0))
            number = name[cut:]
            if number and int(number) < count and str(int(number)) == number:
                return kind
        return None

    def memory(self, text: str, start: int) -> Memory:
        inside = text[1:-1].strip()
        if not inside:
            raise self.parser.fail("empty operand", start)
        base, *extra = _split(inside)
        match = _DISPLACED.fullmatch(base)
        offset = 0
        if match:
            base = match.group(1)
            offset = self.parser.integer(match.group(2), start)
        found = self.operand(base, start)
        if isinstance(found, Symbol) and found.offset:
            offset += found.offset
            found = Symbol(found.name)
        return Memory(found, offset, tuple(self.operand(part, start) for part in extra))
