"""Who may import whom, read from the imports themselves; and the form of every module."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.architecture.trees import tree_of

ROOT = Path(__file__).parents[2] / "ptxforge"

FLOORS = {
    "support": 0,
    "layouts": 1, "language": 1, "driver": 1, "emulator": 1,
    "ir": 2,
    "frontend": 3, "interpreter": 3, "passes": 3, "codegen_ptx": 3,
    "compiler": 4, "debug": 4,
    "runtime": 5, "triton_compat": 5,
    "explain": 6, "checking": 6,
    "cli": 7, "__init__": 7, "__main__": 7,
}  # fmt: skip

SAME_FLOOR = {
    ("cli", "explain"), ("cli", "__init__"), ("__init__", "cli"),
    ("__main__", "cli"), ("triton_compat", "runtime"),
}  # fmt: skip
"""Imports within a floor that are meant: the left package stands on the right one."""

OPTIONAL = (
    "cuda", "torch", "cupy", "rich", "ptxforge.driver.cuda_api", "ptxforge.emulator",
    "ptxforge.runtime.interpreted",
)  # fmt: skip
"""Heavy packages that a function may import when it needs them; nothing else is imported inside functions."""

MODULES = sorted(ROOT.rglob("*.py"))


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def imports(tree: ast.AST) -> list[tuple[int, str]]:
    """(line, absolute module or name) of each import below ``tree``."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import in line {node.lineno}"
            found += [(node.lineno, f"{node.module}.{alias.name}") for alias in node.names]
    return found


def package_of(imported: str) -> str | None:
    """The first part of a name within ptxforge: ``ir`` for ``ptxforge.ir.core``; the top for
    ``ptxforge.compile``.

    ``import ptxforge`` alone is free: it is loaded before any of its modules.
    """
    parts = imported.split(".")
    if parts[0] != "ptxforge" or len(parts) == 1 or parts[1:] == ["__version__"]:
        return None
    return parts[1] if parts[1] in FLOORS else "__init__"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_go_down(path):
    here = path.relative_to(ROOT).parts[0].removesuffix(".py")
    assert here in FLOORS, f"'{here}' has no floor: add it to DESIGN and to this table"
    for line, imported in imports(tree_of(path)):
        there = package_of(imported)
        if there in (None, here) or (here, there) in SAME_FLOOR:
            continue
        assert FLOORS[there] < FLOORS[here], f"{path.name}:{line}: {here} must not import {imported}"


def test_ir_objects_do_not_know_the_operations():
    for stem in ("types", "core", "definition"):
        for line, imported in imports(tree_of(ROOT / "ir" / f"{stem}.py")):
            assert not imported.startswith("ptxforge.ir.ops"), f"{stem}.py:{line}"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_no_imports_inside_functions(path):
    for node in ast.walk(tree_of(path)):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        for line, imported in imports(node):
            is_optional = any(f"{imported}.".startswith(f"{heavy}.") for heavy in OPTIONAL)
            assert is_optional, f"{path.name}:{line} imports {imported} inside {node.name}"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_modules_say_what_they_are(path):
    tree = tree_of(path)
    if not tree.body:
        return
    assert ast.get_docstring(tree), "a module begins with a docstring"
    if any(isinstance(node, (ast.FunctionDef, ast.ClassDef)) for node in tree.body):
        first = tree.body[1]
        is_future = isinstance(first, ast.ImportFrom) and first.module == "__future__"
        assert is_future, "'from __future__ import annotations' comes first"


def test_the_check_itself_sees_imports():
    tree = ast.parse(
        "import ptxforge.runtime\nfrom ptxforge.passes import pipeline\ndef f():\n    import os\n"
    )
    assert [package_of(name) for _, name in imports(tree)] == ["runtime", "passes", None]
    assert package_of("ptxforge.compile") == "__init__"
