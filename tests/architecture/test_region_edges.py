"""What a region's argument, or an operand of a loop, carries is asked of the loop (``carried_index``,
``first_of``, ``next_of``, ``last_of``): nobody else counts how many come before the carried ones."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.architecture.trees import tree_of

ROOT = Path(__file__).parents[2] / "ptxforge"
FOLDERS = ("passes", "codegen_ptx", "interpreter", "frontend")


def counted(tree: ast.AST) -> list[str]:
    """Sums of a position and a number."""
    return [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub))
        if any(isinstance(side, ast.Constant) for side in (node.left, node.right))
        if any(isinstance(side, ast.Attribute) and side.attr == "index" for side in (node.left, node.right))
    ]


def test_nobody_counts_what_comes_before_carried_values():
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    found = {str(path.relative_to(ROOT)): counted(tree_of(path)) for path in paths}
    assert not {name: sums for name, sums in found.items() if sums}


def test_sums_are_found():
    text = "a = loop.initial[value.index - 1]\nb = 3 + result.index\nc = value.index\nd = index - 1\n"
    assert sorted(counted(ast.parse(text))) == ["3 + result.index", "value.index - 1"]
