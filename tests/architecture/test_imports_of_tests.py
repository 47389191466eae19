"""What tests share stands in modules of its own: no file imports from a test."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"


def imported(text: str) -> Iterator[str]:
    """Every part of the names of modules that a file imports, and every name that it takes from one: which of
    these are modules the text does not say."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom):
            yield from (node.module or "").split(".")
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                yield from alias.name.split(".")


def imports_a_test(text: str, tests: set[str]) -> bool:
    return not tests.isdisjoint(imported(text))


def test_nothing_imports_from_tests():
    paths = [path for folder in (TESTS, ROOT / "benchmarks") for path in folder.rglob("*.py")]
    tests = {path.stem for path in paths if path.stem.startswith("test_")}
    found = [str(p.relative_to(ROOT)) for p in paths if imports_a_test(p.read_text(), tests)]
    assert not found, "put what they share into a module beside them"


def test_the_check_itself():
    tests = {"test_x"}
    for text in (
        "from tests.ops.test_x import exact", "from .test_x import y", "from tests.ops import y, test_x as z",
        "import tests.ops.test_x", "import test_x as z", "from . import test_x", "def f():\n  import test_x",
    ):  # fmt: skip
        assert imports_a_test(text, tests), text
    assert not imports_a_test("from tests.ops.floats import exact, test_y\nimport x", tests)
