"""Facts about names that follow from the syntax alone. They are kept on the AST node once computed."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Sequence


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
