"""How long files and functions may be; longer ones stand here by name, with a reason."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2] / "ptxforge"
LINES_OF_A_FILE, LINES_OF_A_FUNCTION = 500, 60

LONG_FILES = {
    "emulator/async_copy.py": (720, "all forms of asynchronous copies, which share their checks"),
    "emulator/checks.py": (900, "all checks of races and barriers share one picture of memory"),
    "emulator/numerics.py": (1220, "exact arithmetic of all formats in all roundings"),
    "emulator/parser.py": (820, "the grammar of PTX"),
    "emulator/program.py": (620, "from text to a program: names, constants, functions, labels"),
    "emulator/translate.py": (620, "operands and their types, instruction by instruction"),
    "layouts/encodings.py": (850, "all encodings and what they have in common"),
    "layouts/linear.py": (610, "one class: linear maps, with examples"),
}
"""Lines at most, and why it is one file."""
LONG_FUNCTIONS = {
    "compile_function": (75, "the stages in order, and the artifact of what they made"),
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


def test_functions_are_short():
    lengths: dict[str, int] = {}
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                length = node.end_lineno - node.lineno + 1
                lengths[node.name] = max(length, lengths.get(node.name, 0))
    too_long = {
        name: length
        for name, length in lengths.items()
        if length > LONG_FUNCTIONS.get(name, (LINES_OF_A_FUNCTION, ""))[0]
    }
    assert not too_long, "split them"
    short = [name for name in LONG_FUNCTIONS if lengths.get(name, 0) <= LINES_OF_A_FUNCTION]
    assert not short, "these need no exception any more"
