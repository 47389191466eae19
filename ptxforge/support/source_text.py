"""A Python function: its text as it was when the function became a kernel, and what it reads from outside.

Python keeps a function's place and not its text. A file may be edited between the decorator and the first
launch, so the lines are taken when :func:`remember` is called, by reference from ``linecache``: that costs a
look at the file's date, and the file is read once for all its kernels.

Where Python itself has no file, the text is looked for where Python, or what ran the code, left it:

==================================  ====================================================================
defined in                          its text
==================================  ====================================================================
a file, a zip, a notebook, doctest  ``linecache`` (notebooks and Python 3.13's prompt put their cells there)
``exec`` of a text                  the global ``__source__`` of the namespace that it is executed in
``python -c``                       the process's own command line
``python < file``                   the file, when standard input is one (a pipe has been read and is gone)
==================================  ====================================================================

What it reads from outside are names and dotted names in its text. Parameters are a function's own, and so is
a name from where it is first assigned. Read before that, it is the global of that name: a kernel's text is
compiled from top to bottom, so ``a = EPS; EPS = 0`` reads the global, where Python would raise
``UnboundLocalError``.
"""

from __future__ import annotations

import ast
import enum
import functools
import inspect
import linecache
import os
import stat
import sys
import textwrap
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import attrs

from ptxforge.support.errors import CompilationError
from ptxforge.support.location import show_from

_KEPT_IN = "__ptxforge_text__"
_CLOSING = (")", "]", "}")
_DECORATORS = 50
"""How many lines of decorators are allowed for."""
_WITH_VALUE = ("-X", "-W", "--check-hash-based-pycs")


@attrs.frozen(slots=True, eq=False)
class SourceText:
    """The lines of the text that a function stands in (shared, not to be changed), the number of its first
    line there, decorators included, from 1, and the number ``line`` of that line in the file of ``code``. The
    two differ for code that was given another place, as packages do that put a kernel together from the text
    of another."""

    code: types.CodeType
    lines: list[str]
    first: int
    line: int

    def cut(self) -> str:
        """The function's lines, cut out by indentation."""
        return "".join(self.own_lines())

    def own_lines(self) -> list[str]:
        """The function's lines, decorators included."""
        return _cut(self.lines, self.first - 1)

    @property
    def place(self) -> tuple[str, int]:
        """The file and the line that the function was defined at."""
        return self.code.co_filename, self.code.co_firstlineno

    def is_of(self, code: types.CodeType) -> bool:
        """Whether this is the text of ``code``, or of the same code with another place."""
        kept = self.code
        return kept is code or (kept.co_code, kept.co_consts, kept.co_names, kept.co_varnames) == (
            code.co_code, code.co_consts, code.co_names, code.co_varnames
        )  # fmt: skip

    def moved(self, code: types.CodeType) -> SourceText:
        """The text with the place of ``code``, the same code elsewhere. A place counts from the first
        decorator, which the text need not have: where the file has the text's last line a little further
        down, the text ends there."""
        own = [line.strip() for line in self.cut().rstrip().splitlines()]
        there = [line.strip() for line in linecache.getlines(code.co_filename)]
        line = code.co_firstlineno
        end = line + len(own) - 2  # counted from 0
        further = there[end : end + _DECORATORS]
        if own[-1] in further:
            line += further.index(own[-1])
        return SourceText(code, self.lines, self.first, line)

    def parse(self) -> tuple[ast.stmt, int, str]:
        """The function's AST; the lines that are put in front of its own, an ``if`` for an indented function
        so that columns stay the file's; and the text that was parsed, those included.

        The lines are cut out by indentation, which is much faster than ``inspect.getsource`` (that one
        tokenises); where the cut does not parse, Python's tokens decide.
        """
        try:
            return _parse(self.cut())
        except SyntaxError:
            return _parse("".join(inspect.getblock(self.lines[self.first - 1 :])))


    def bare(self) -> tuple[ast.stmt, str]:
        """The function's AST, and its text without indentation and decorators."""
        tree, shift, text = self.parse()
        own = "\n".join(text.splitlines()[tree.lineno - 1 : tree.end_lineno])
        return tree, textwrap.dedent(own) if shift else own


def _parse(text: str) -> tuple[ast.stmt, int, str]:
    if text[:1] in (" ", "\t"):
        text = "if 1:\n" + text
        return ast.parse(text).body[0].body[0], 1, text
    return ast.parse(text).body[0], 0, text


def remember(fn: Callable) -> None:
    """Keep the text that ``fn`` has now; nothing where there is none."""
    found = _read(fn.__code__, fn.__globals__)
    if found is not None:
        setattr(fn, _KEPT_IN, found)


def source_text(fn: Callable) -> SourceText:
    """The text that was remembered for ``fn``, else the one that it has now.

    Raises :class:`CompilationError` where there is none.
    """
    code = fn.__code__
    found = getattr(fn, _KEPT_IN, None)
    if found is None or not found.is_of(code):  # ``functools.wraps`` copies attributes
        found = _read(code, fn.__globals__)
    if found is None:
        raise CompilationError(
            f"the source of '{fn.__name__}' is not available ({code.co_filename})",
            hint="define kernels in a Python file; for one that exec() makes, leave the executed text in its "
            "namespace as '__source__'",
        )
    if found.code is not code and found.place != (code.co_filename, code.co_firstlineno):
        return found.moved(code)
    show_from(code.co_filename, found.lines)
    return found


def _read(code: types.CodeType, scope: dict) -> SourceText | None:
    file = code.co_filename
    linecache.checkcache(file)
    lines = linecache.getlines(file, scope)
    if not lines and file.startswith("<"):
        lines = _lines_without_a_file(code, scope)
    if not 1 <= code.co_firstlineno <= len(lines):
        return None
    return SourceText(code, lines, code.co_firstlineno, code.co_firstlineno)


def _lines_without_a_file(code: types.CodeType, scope: dict) -> list[str]:
    """Lines that are proved to be those of ``code``: compiled again, they give the same instructions."""
    for text in (scope.get("__source__"), _command_line_text(), _standard_input_text()):
        if isinstance(text, str) and _compiles_to(text, code):
            return text.splitlines(keepends=True)
    return []


def _compiles_to(text: str, code: types.CodeType) -> bool:
    try:
        found = [compile(text, code.co_filename, "exec", dont_inherit=True)]
    except (SyntaxError, ValueError):
        return False
    for outer in found:
        found += [constant for constant in outer.co_consts if isinstance(constant, types.CodeType)]
    wanted = (code.co_qualname, code.co_firstlineno, code.co_code, code.co_names)
    return wanted in [(c.co_qualname, c.co_firstlineno, c.co_code, c.co_names) for c in found]


def _command_line_text() -> str | None:
    """The program of ``python -c``."""
    arguments = iter(sys.orig_argv[1:])
    for argument in arguments:
        if argument in _WITH_VALUE:
            next(arguments, None)
        elif not argument.startswith("-"):
            return None
        elif not argument.startswith("--") and "c" in argument:  # -c, -Bc, -cTEXT
            return argument.partition("c")[2] or next(arguments, None)
    return None


def _standard_input_text() -> str | None:
    """All of standard input when it is a file; its position stays where it is."""
    try:
        status = os.fstat(0)
        if not stat.S_ISREG(status.st_mode):
            return None
        return os.pread(0, status.st_size, 0).decode()
    except (AttributeError, OSError, UnicodeDecodeError):  # Windows has no pread
        return None


def _cut(lines: list[str], start: int) -> list[str]:
    """Lines from ``start`` (a decorator or the ``def``) up to the first that is no longer indented deeper."""
    here = start
    while here < len(lines) and not lines[here].lstrip().startswith(("def ", "async ")):
        here += 1
    if here == len(lines):
        return lines[start : start + 1]
    indent = len(lines[here]) - len(lines[here].lstrip())
    end = here + 1
    while end < len(lines):
        text = lines[end].lstrip()
        is_code = text and not text.startswith("#")
        if is_code and len(lines[end]) - len(text) <= indent and not text.startswith(_CLOSING):
            break
        end += 1
    return lines[start:end]


@functools.cache
def source_of(fn: Callable) -> str:
    """A function's source without its indentation and decorators, as it was when it became a kernel.

    Raises :class:`CompilationError` for a function whose text is nowhere.
    """
    return source_text(fn).bare()[1]


_after: dict[weakref.WeakMethod, None] = {}
"""Methods in the order in which they came; one whose object dies is found without asking the others."""


def on_redefinition(forget: Callable[[], None]) -> None:
    """Call a method, as long as its object lives, when some function gets another text."""
    _after[weakref.WeakMethod(forget, _after.pop)] = None


def redefinition() -> None:
    """Say that a function got another text: functions that inlined it have to look again."""
    for forget in list(_after):
        call = forget()
        if call is not None:
            call()


def redefined(fn: Callable, text: str) -> Callable:
    """The function that ``text`` (``def`` and its body) defines, with the names, defaults and globals of
    ``fn``, and what the variables of functions around it hold now.

    Raises :class:`CompilationError` for a text that does not define ``fn``.
    """
    file = f"<text of {fn.__qualname__}, {hash(text) & 0xFFFFFFFF:x}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    found = [
        constant
        for constant in compile(text, file, "exec", dont_inherit=True).co_consts
        if isinstance(constant, types.CodeType) and constant.co_name == fn.__name__
    ]
    if not found or found[0].co_freevars:
        raise CompilationError(f"the text does not define '{fn.__name__}' by itself")
    scope = scope_of(fn) if fn.__closure__ else fn.__globals__
    made = types.FunctionType(found[0], scope, fn.__name__, fn.__defaults__)
    made.__kwdefaults__, made.__annotations__ = fn.__kwdefaults__, dict(fn.__annotations__)
    made.__qualname__, made.__module__ = fn.__qualname__, fn.__module__
    if hasattr(fn, "__signature__"):
        made.__signature__ = fn.__signature__
    return made


Chain = tuple[str, ...]
"""A name, or a dotted name: ``("tl", "load")``."""


def chains_of(tree: ast.AST) -> set[Chain]:
    """Every name and dotted name that the body reads from outside: ``{("tl", "load"), ("EPS",)}``, but for
    those in default values."""
    found = _Names(tree)
    own = found.parameters | found.assigned.keys()
    if any(found.reads.get(name, end + 1) <= end for name, end in found.assigned.items()):
        own -= _read_early(tree) - found.parameters
    return {chain for chain in found.chains if chain[0] not in own}


class _Names:
    """The names in a function's text: its ``parameters``; the ``assigned`` ones, each with the last line of
    the assignment that comes first; the first line in which each is read (``reads``); and all ``chains`` that
    are read."""

    def __init__(self, tree: ast.AST):
        self.parameters: set[str] = set()
        self.assigned: dict[str, int] = {}
        self.reads: dict[str, int] = {}
        self.chains: set[Chain] = set()
        work: list[tuple[ast.AST, int]] = [(tree, 0)]  # a node, and where the statement around it ends
        while work:
            node, end = work.pop()
            kind = type(node)
            if kind is ast.Name:
                self._name(node, end)
                continue
            if kind is ast.Attribute:
                self.chains.update([chain] if (chain := _chain(node)) else ())
            elif kind is ast.arg:
                self.parameters.add(node.arg)
            elif kind in _SIMPLE:
                end = node.end_lineno
                if kind is ast.AugAssign and isinstance(node.target, ast.Name):
                    self._read(node.target)
            for field in node._fields:
                part = None if field in _SKIPPED else getattr(node, field, None)
                if isinstance(part, ast.AST):
                    work.append((part, end))
                elif isinstance(part, list):
                    work += [(item, end) for item in part if isinstance(item, ast.AST)]

    def _name(self, node: ast.Name, end: int) -> None:
        if isinstance(node.ctx, ast.Store):
            end = max(end, node.lineno)
            self.assigned[node.id] = min(self.assigned.get(node.id, end), end)
        else:
            self._read(node)

    def _read(self, node: ast.Name) -> None:
        self.chains.add((node.id,))
        self.reads[node.id] = min(self.reads.get(node.id, node.lineno), node.lineno)


_SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign)
_SKIPPED = {"ctx", "op", "ops", "defaults", "kw_defaults"}


def _chain(node: ast.AST) -> Chain:
    if isinstance(node, ast.Name):
        return (node.id,) if isinstance(node.ctx, ast.Load) else ()
    inner = _chain(node.value) if isinstance(node, ast.Attribute) else ()
    return (*inner, node.attr) if inner else ()


def _read_early(tree: ast.AST) -> set[str]:
    """The names that are read before the text assigns them, be it in a branch of an ``if``; none of those
    that ``global`` declares, which are there to be changed."""
    early: set[str] = set()
    assigned = {name for part in ast.walk(tree) if isinstance(part, ast.Global) for name in part.names}
    for statement in getattr(tree, "body", ()):
        for name in _mentions(statement):
            if isinstance(name.ctx, ast.Store):
                assigned.add(name.id)
            elif name.id not in assigned:
                early.add(name.id)
    return early


_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def _mentions(node: ast.AST) -> Iterator[ast.Name]:
    """The names in a statement, in the order in which they are evaluated. Functions defined in it are left
    out: they are evaluated when they are called."""
    if isinstance(node, ast.Name):
        yield node
    elif not isinstance(node, (ast.Lambda, ast.FunctionDef)):
        for part in _in_order(node):
            yield from _mentions(part)


def _in_order(node: ast.AST) -> list[ast.AST]:
    if isinstance(node, ast.Assign):
        return [node.value, *node.targets]
    if isinstance(node, (ast.AnnAssign, ast.NamedExpr)):
        return [*([] if node.value is None else [node.value]), node.target]
    if isinstance(node, ast.AugAssign):
        before = [ast.Name(node.target.id, ast.Load())] if isinstance(node.target, ast.Name) else []
        return [*before, node.value, node.target]
    if isinstance(node, ast.For):
        return [node.iter, node.target, *node.body, *node.orelse]
    if isinstance(node, ast.comprehension):
        return [node.iter, node.target, *node.ifs]
    parts = list(ast.iter_child_nodes(node))
    if isinstance(node, _COMPREHENSIONS):
        parts.sort(key=lambda part: not isinstance(part, ast.comprehension))
    return parts


_KNOWN_BY_VERSION = {*sys.stdlib_module_names, "ptxforge"}
"""Packages whose functions stay the same as long as Python and ptxforge do."""


def helpers_of(fn: Callable, chains: Iterable[Chain]) -> list[types.FunctionType]:
    """The plain functions of the same package among what ``fn`` reads."""
    return [value for value in _read_by(fn, chains)
            if isinstance(value, types.FunctionType) and _package(value) == _package(fn)]  # fmt: skip


def foreign_functions(fn: Callable, chains: Iterable[Chain]) -> list[Any]:
    """What ``fn`` reads that can be called and whose meaning does not follow from ``fn``'s own package, from
    Python and from ptxforge: it may change without a change of any text that we know."""
    known = _KNOWN_BY_VERSION | {_package(fn)}
    return [value for value in _read_by(fn, chains)
            if callable(value) and not isinstance(value, type) and _package(value) not in known
            and not hasattr(type(value), "__ptxforge_constexpr_function__")]  # fmt: skip


def _read_by(fn: Callable, chains: Iterable[Chain]) -> list[Any]:
    scope = scope_of(fn)
    return [value for is_there, value in (resolve(chain, scope) for chain in chains) if is_there]


def _package(value: Any) -> str:
    return (getattr(value, "__module__", None) or "").partition(".")[0]


def scope_of(fn: Callable) -> dict[str, Any]:
    """Globals and closure variables of a function by name."""
    cells = zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True)
    return fn.__globals__ | {name: cell.cell_contents for name, cell in cells if is_filled(cell)}


def is_filled(cell: Any) -> bool:
    """Whether a variable of a function around has a value by now."""
    try:
        cell.cell_contents
    except ValueError:
        return False
    return True


def resolve(chain: Chain, scope: dict[str, Any]) -> tuple[bool, Any]:
    """Whether a dotted name means an object, and that: an attribute of a module, a class, an enumeration's
    member."""
    name, *rest = chain
    if name not in scope:
        return False, None
    value = scope[name]
    for attribute in rest:
        if not isinstance(value, (types.ModuleType, type, enum.Enum)) or not hasattr(value, attribute):
            return False, None
        value = getattr(value, attribute)
    return True, value
