"""What ``ruff check`` asks for, without ruff:
no line beyond the limit in ``pyproject.toml``, no import without use."""

from __future__ import annotations

import ast
import io
import re
import tokenize
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
RUFF = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]
TABLES_OF_NAMES = {name for name, codes in RUFF["lint"]["per-file-ignores"].items() if "F401" in codes}
FOLDERS = ("ptxforge", "tests", "benchmarks", "examples")
FILES = {
    str(path.relative_to(ROOT)): path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))
}


def rows_with_noqa(text: str, code: str) -> set[int]:
    """The rows that a ``# noqa: CODE`` speaks for: its own, and those of a string that ends there."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    comments = {token.start[0]: token.string for token in tokens if token.type == tokenize.COMMENT}
    found = {row for row, comment in comments.items() if re.search(rf"noqa: .*\b{code}\b", comment)}
    strings = [node for node in ast.walk(ast.parse(text)) if isinstance(node, (ast.Constant, ast.JoinedStr))]
    return found.union(*(range(node.lineno, node.end_lineno) for node in strings if node.end_lineno in found))


def long_rows(text: str, limit: int) -> list[int]:
    """Rows of more than ``limit`` characters; a line of a single word cannot be broken."""
    lines = enumerate(text.splitlines(), 1)
    rows = [row for row, line in lines if len(line) > limit and len(line.split()) > 1]
    excused = rows_with_noqa(text, "E501") if rows else ()
    return [row for row in rows if row not in excused]


def unused_imports(text: str) -> list[str]:
    """Names that a module imports and does not use."""
    tree = ast.parse(text)
    nodes = list(ast.walk(tree))
    used = {node.id for node in nodes if isinstance(node, ast.Name)} | set(_exported(tree))
    unused = [(rows, name) for rows, name in _imported(nodes) if name not in used]
    excused = rows_with_noqa(text, "F401") if unused else set()
    return [name for rows, name in unused if not excused & rows]


def _imported(nodes: Iterable[ast.AST]) -> Iterator[tuple[set[int], str]]:
    """(rows of the statement's beginning and of the name, name) of each import."""
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            continue
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                yield {node.lineno, alias.lineno}, alias.asname or alias.name.partition(".")[0]


def _exported(tree: ast.Module) -> list[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return [element.value for element in ast.walk(node.value) if isinstance(element, ast.Constant)]
    return []


def test_lines_are_not_too_long():
    limit = RUFF["line-length"]
    long = {name: long_rows(path.read_text(), limit) for name, path in FILES.items()}
    assert not {name: rows for name, rows in long.items() if rows}, f"rows of more than {limit} columns"


def test_every_import_is_used():
    unused = {
        name: unused_imports(path.read_text()) for name, path in FILES.items() if name not in TABLES_OF_NAMES
    }
    assert not {name: names for name, names in unused.items() if names}


def test_the_checks_themselves():
    text = '"""Text."""\nimport os\nimport a.b as c, d.e\nfrom x import y, z\n__all__ = ["z"]\nprint(c, d)\n'
    assert unused_imports(text) == ["os", "y"]
    assert unused_imports("import os  # noqa: F401\n") == []
    assert long_rows("x = 1\ny = 'a b'  # c\n" + "z" * 50, 10) == [2]
    assert unused_imports("from x import (  # noqa: F401\n    y,\n)\n") == []
    assert long_rows('x = """\n1 2 3 4 5 6\n"""  # noqa: E501\n', 10) == []
