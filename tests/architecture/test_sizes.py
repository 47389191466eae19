"""How long files and functions may be; longer ones stand here by name, with a reason."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.trees import tree_of

ROOT = Path(__file__).parents[2] / "ptxforge"
LINES_OF_A_FILE, LINES_OF_A_FUNCTION = 500, 60

LONG_FILES = {
    "emulator/async_copy.py": (720, "all forms of asynchronous copies, which share their checks"),
    "emulator/checks.py": (900, "all checks of races and barriers share one picture of memory"),
    "emulator/numerics.py": (1220, "exact arithmetic of all formats in all roundings"),
    "emulator/parser.py": (820, "the grammar of PTX"),
    "emulator/program.py": (620, "from text to a program: names, constants, functions, labels"),
    "emulator/translate.py": (620, "operands and their types, instruction by instruction"),
    "layouts/encodings.py": (780, "all encodings and what they have in common"),
    "layouts/linear.py": (610, "one class: linear maps, with examples"),
}
"""Lines at most, and why it is one file."""
LONG_FUNCTIONS = {
    "compiler.py:compile_function": (75, "the stages in order, and the artifact of what they made"),
}
"""Lines at most, and why it is one function."""


def modules() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def test_files_are_short():
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in modules()}
    too_long = {
        name: length
        for name, length in lengths.items()
        if length > LONG_FILES.get(name, (LINES_OF_A_FILE, ""))[0]
    }
    assert not too_long, "split them by what they do"
    short = [name for name in LONG_FILES if lengths.get(name, 0) <= LINES_OF_A_FILE]
    assert not short, "these need no exception any more"


def functions(tree: ast.AST, around: str = "") -> Iterator[tuple[str, int]]:
    """The functions of a module, by name and what is around them, and how many lines each has."""
    for node in ast.iter_child_nodes(tree):
        name = f"{around}{node.name}" if hasattr(node, "name") else ""
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield name, node.end_lineno - node.lineno + 1
        is_scope = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        yield from functions(node, f"{name}." if is_scope else around)


def test_functions_are_short():
    lengths = {
        f"{path.relative_to(ROOT)}:{name}": length
        for path in modules()
        for name, length in functions(tree_of(path))
    }
    too_long = {
        name: length
        for name, length in lengths.items()
        if length > LONG_FUNCTIONS.get(name, (LINES_OF_A_FUNCTION, ""))[0]
    }
    assert not too_long, "split them"
    short = [name for name in LONG_FUNCTIONS if lengths.get(name, 0) <= LINES_OF_A_FUNCTION]
    assert not short, "these need no exception any more"


def test_all_functions_are_found():
    text = "class A:\n  async def f(self):\n    def g():\n      pass\nif x:\n  def h(): pass\n"
    assert list(functions(ast.parse(text))) == [("A.f", 3), ("A.f.g", 2), ("h", 1)]
