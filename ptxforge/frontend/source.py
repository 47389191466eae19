"""A Python function as the frontend sees it: its AST with places in the original file, its parameters, its
names.

The text is the one that the function had when it became a kernel (:mod:`ptxforge.support.source_text`).
Indented functions are parsed under an ``if`` so that columns stay those of the file.
Facts that follow from the syntax alone, about names and places, are kept on the AST node once computed.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import linecache
import types
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs

from ptxforge.support.errors import CompilationError
from ptxforge.support.location import Location
from ptxforge.support.source_text import source_text


def assigned(node: ast.AST) -> dict[str, ast.AST]:
    """Each name that is assigned inside ``node``, and its last assignment."""
    found = getattr(node, "_assigned", None)
    if found is None:
        found = node._assigned = {}
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                found[part.id] = part
    return found


def assigned_in(statements: Sequence[ast.AST]) -> dict[str, ast.AST]:
    """:func:`assigned` of several statements."""
    return {name: node for statement in statements for name, node in assigned(statement).items()}


def reads(node: ast.AST) -> Counter[str]:
    """How often each name is read inside ``node``; ``x += 1`` reads, too."""
    found = getattr(node, "_reads", None)
    if found is None:
        found = node._reads = Counter()
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load):
                found[part.id] += 1
            elif isinstance(part, ast.AugAssign) and isinstance(part.target, ast.Name):
                found[part.target.id] += 1
    return found


def is_read_outside(name: str, node: ast.AST, function: ast.AST) -> bool:
    """Whether ``name`` is read anywhere in ``function`` but inside ``node``."""
    return reads(function)[name] > reads(node)[name]


_FUNCTIONS = (ast.FunctionDef, ast.Lambda)
_LOOPS = (ast.For, ast.While)


def exits(loop: ast.For | ast.While) -> frozenset[type[ast.stmt]]:
    """Which of ``break``, ``continue`` and ``return`` leave an iteration of ``loop`` early. Those of loops
    and functions inside it are their own, but that a ``return`` leaves every loop."""
    found = getattr(loop, "_exits", None)
    if found is None:
        found = loop._exits = frozenset(kind for part in loop.body for kind in _exits_in(part))
    return found


def _exits_in(node: ast.AST) -> Iterator[type[ast.stmt]]:
    if isinstance(node, (ast.Break, ast.Continue, ast.Return)):
        yield type(node)
    elif isinstance(node, _LOOPS):
        yield from exits(node) & {ast.Return}
    elif not isinstance(node, (*_FUNCTIONS, ast.expr)):
        for part in ast.iter_child_nodes(node):
            yield from _exits_in(part)


def guards(loop: ast.For) -> list[frozenset[str]]:
    """For each ``break`` and ``return`` that leaves ``loop``, the names that conditions around it in the loop
    read."""
    found = getattr(loop, "_guards", None)
    if found is None:
        kinds = (ast.Break, ast.Return)
        found = loop._guards = [names for part in loop.body for names in _guards_in(part, kinds, frozenset())]
    return found


def _guards_in(
    node: ast.AST, kinds: tuple[type[ast.stmt], ...], names: frozenset[str]
) -> Iterator[frozenset[str]]:
    if isinstance(node, kinds):
        yield names
    elif not isinstance(node, (*_FUNCTIONS, ast.expr)):
        names |= frozenset(reads(node.test)) if isinstance(node, ast.If) else frozenset()
        kinds = (ast.Return,) if isinstance(node, _LOOPS) else kinds
        for part in ast.iter_child_nodes(node):
            yield from _guards_in(part, kinds, names)


def is_read_first(name: str, statements: Sequence[ast.AST]) -> bool:
    """Whether the first mention of ``name`` in the text of ``statements`` reads it. In ``x = x + 1`` it
    does."""
    reading, writing = [], []
    for statement in statements:
        for part in ast.walk(statement):
            if isinstance(part, ast.Assign | ast.AnnAssign | ast.NamedExpr) and part.value is not None:
                targets = part.targets if isinstance(part, ast.Assign) else [part.target]
                names = [n for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)]
                writing += [(part.value.end_lineno, part.value.end_col_offset) for n in names if n.id == name]
            elif isinstance(part, ast.Name) and part.id == name and isinstance(part.ctx, ast.Load):
                reading.append((part.lineno, part.col_offset))
            elif (
                isinstance(part, ast.AugAssign)
                and isinstance(part.target, ast.Name)
                and part.target.id == name
            ):
                reading.append((part.lineno, part.col_offset))
    return bool(reading) and (not writing or min(reading) < min(writing))


_KEPT_IN = "__ptxforge_source__"
_MISSING = object()


@attrs.frozen(slots=True)
class Parameter:
    """A parameter: its name, whether it is annotated ``tl.constexpr``, its default (``_MISSING`` without
    one)."""

    name: str
    is_constexpr: bool
    default: Any = _MISSING

    @property
    def has_default(self) -> bool:
        return self.default is not _MISSING


@attrs.define(slots=True, eq=False)
class SourceFunction:
    """A function's AST and all that is needed to interpret it.

    ``offset`` is added to AST line numbers to get the file's; ``lines`` is the text that was parsed, when it
    has characters beyond ASCII (whose columns differ from the AST's, which count bytes), else ``None``.
    ``positional`` is the number of parameters that have a place; ``variadic`` is the name of a ``*args``
    parameter, or ``""``.
    """

    fn: Callable
    name: str
    file: str
    tree: ast.FunctionDef
    offset: int
    lines: list[str] | None
    parameters: tuple[Parameter, ...]
    positional: int
    variadic: str
    nonlocals: dict[str, Any]

    def locate(self, node: ast.AST, call_site: Location | None = None) -> Location:
        """Where a node stands in the file."""
        if call_site is not None:
            return self._place(node, call_site)
        found = getattr(node, "_location", None)
        if found is None:
            found = node._location = self._place(node, None)
        return found

    def _place(self, node: ast.AST, call_site: Location | None) -> Location:
        if self.lines is None:
            start, end = node.col_offset, node.end_col_offset
        else:
            start = _characters(self.lines, node.lineno, node.col_offset)
            end = _characters(self.lines, node.end_lineno, node.end_col_offset)
        return Location(
            self.file,
            node.lineno + self.offset,
            start,
            node.end_lineno + self.offset,
            end,
            self.name,
            call_site,
        )

    def header(self) -> Location:
        """Where the function's name stands."""
        line = self.tree.lineno + self.offset
        text = linecache.getline(self.file, line)
        column = max(0, text.find(self.name))
        return Location(self.file, line, column, line, column + len(self.name), self.name)

    def lookup(self, name: str) -> Any:
        """A closure variable, global or builtin; raises ``KeyError``."""
        if name in self.nonlocals:
            return self.nonlocals[name].cell_contents
        scope = self.fn.__globals__
        if name in scope:
            return scope[name]
        return vars(builtins)[name]


def source_function(fn: Any) -> SourceFunction:
    """The source of a Python function, kept on it. Raises :class:`CompilationError` when there is no text."""
    found = getattr(fn, _KEPT_IN, None)
    if found is None or found.fn is not fn:  # ``functools.wraps`` copies attributes
        found = _read(fn)
        setattr(fn, _KEPT_IN, found)
    return found


def _read(fn: Any) -> SourceFunction:
    if not isinstance(fn, types.FunctionType):
        raise CompilationError(f"a kernel is a Python function, not a '{type(fn).__name__}'")
    tree, offset, text = _parse(fn)
    parameters, variadic = _parameters(fn)
    return SourceFunction(
        fn=fn,
        name=fn.__name__,
        file=fn.__code__.co_filename,
        tree=tree,
        offset=offset,
        lines=None if text.isascii() else text.splitlines(),
        parameters=parameters,
        positional=fn.__code__.co_argcount,
        variadic=variadic,
        nonlocals=dict(zip(fn.__code__.co_freevars, fn.__closure__ or ())),
    )


def _parse(fn: Callable) -> tuple[ast.FunctionDef, int, str]:
    """The function's AST, the offset of its lines in the file, and the parsed text."""
    code = fn.__code__
    source = source_text(fn)
    tree, shift, text = source.parse()
    first = source.line
    if not isinstance(tree, ast.FunctionDef) or tree.name != code.co_name:  # fn.__name__ is free to change
        kind = "a lambda" if code.co_name == "<lambda>" else "not a plain 'def'"
        raise CompilationError(
            f"'{fn.__name__}' at {code.co_filename}:{first} is {kind}: a kernel is a 'def'"
        )
    if not isinstance(tree.body[-1], ast.Return):
        # Falling off the end is a return, too; now every path through a function has one.
        tree.body.append(ast.copy_location(ast.Return(None), tree.body[-1]))
    return tree, first - 1 - shift, text


def _parameters(fn: Callable) -> tuple[tuple[Parameter, ...], str]:
    code = fn.__code__
    if code.co_flags & inspect.CO_VARKEYWORDS:
        raise CompilationError(
            f"'{fn.__name__}' takes **{code.co_varnames[-1]}: a kernel's parameters have names"
        )
    count = code.co_argcount + code.co_kwonlyargcount
    defaults = dict(
        zip(code.co_varnames[code.co_argcount - len(fn.__defaults__ or ()) :], fn.__defaults__ or ())
    )
    defaults |= fn.__kwdefaults__ or {}
    parameters = tuple(
        Parameter(name, is_constexpr_annotation(fn.__annotations__.get(name)), defaults.get(name, _MISSING))
        for name in code.co_varnames[:count]
    )
    return parameters, code.co_varnames[count] if code.co_flags & inspect.CO_VARARGS else ""


def is_constexpr_annotation(annotation: Any) -> bool:
    """Whether an annotation (an object, or its text) is ``tl.constexpr``."""
    if isinstance(annotation, str):
        return annotation.strip("'\"").rpartition(".")[2] == "constexpr"
    return getattr(annotation, "__name__", "") == "constexpr"


def _characters(lines: list[str], line: int, byte_column: int) -> int:
    """A column in characters from one in UTF-8 bytes."""
    text = lines[line - 1]
    return byte_column if text.isascii() else len(text.encode()[:byte_column].decode())
