"""What tests share stands in modules of its own: no test file imports from another one."""

from __future__ import annotations

import ast
from pathlib import Path

TESTS = Path(__file__).parents[1]
LEFT = {
    "emulator": "kernels of the tests of clusters and of asynchronous copies",
    "kernels": "kinds of products, and a product of a softmax",
}
"""Folders in which some do, and what they want."""


def imports_a_test(text: str) -> bool:
    """Whether a file imports from a module that is a test."""
    found = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)]
    return any((node.module or "").split(".")[-1].startswith("test_") for node in found)


def test_tests_do_not_import_from_tests():
    paths = [path.relative_to(TESTS) for path in TESTS.rglob("test_*.py")]
    found = [str(p) for p in paths if imports_a_test((TESTS / p).read_text()) and p.parts[0] not in LEFT]
    assert not found, "put what they share into a module beside them"


def test_the_check_itself():
    assert imports_a_test("from tests.ops.test_arith import exact")
    assert imports_a_test("from .test_x import y")
    assert not imports_a_test("from tests.ops.floats import exact\nimport test_x")
