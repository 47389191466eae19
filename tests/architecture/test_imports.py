"""Where a dozen names come from one module, the module is imported: a reader sees at each name where it is
from, and a list at the top need not grow with the file."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.architecture.trees import tree_of

ROOT = Path(__file__).parents[2] / "ptxforge"
MOST = 11

LEFT = {
    "codegen_ptx/ptx/builder.py": "its names are looked up for every instruction that is made",
    "codegen_ptx/ptx/coalesce_copies.py": "its names are looked up for every instruction of a loop",
    "emulator/checks.py": "its names are looked up for every access",
}
"""Files that take a dozen names from one module, and why."""


def long_imports(path: Path) -> list[str]:
    """The modules from which a file takes more than ``MOST`` names."""
    found = [node for node in ast.walk(tree_of(path)) if isinstance(node, ast.ImportFrom)]
    return [node.module or "." for node in found if len(node.names) > MOST]


def test_a_dozen_names_are_imported_by_module():
    paths = [path for path in sorted(ROOT.rglob("*.py")) if path.name != "__init__.py"]
    found = {path.relative_to(ROOT).as_posix(): modules for path in paths if (modules := long_imports(path))}
    assert not found.keys() - LEFT.keys(), "import the module"
    assert not LEFT.keys() - found.keys(), "these do no more: take them out of the list"


def test_long_imports_are_found(tmp_path):
    names = [f"name{number}" for number in range(MOST + 1)]
    (module := tmp_path / "m.py").write_text(
        f"from a import {', '.join(names)}\nfrom b import {', '.join(names[1:])}\n"
        f"def f():\n  from . import ({', '.join(names)})\n"
    )
    assert long_imports(module) == ["a", "."]
