"""What a Python function reads from outside: names and dotted names in its text, and what they mean now.

Parameters are a function's own, and so is a name from where it is first assigned. Read before that, it is the
global of that name: a kernel's text is compiled from top to bottom, so ``a = EPS; EPS = 0`` reads the global,
where Python would raise ``UnboundLocalError``.
"""

from __future__ import annotations

import ast
import enum
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

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
