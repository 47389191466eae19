"""What users download stays small, and holds what runs, nothing else."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

import hatch_build

ROOT = Path(__file__).parents[2]
LIMIT = 1_000_000
"""Bytes of the wheel at most, as is promised."""
SUFFIXES = {".py", ".typed", ".js", ".css"}
"""What a package consists of: code, and what the pages that it writes hold."""


def packaged() -> list[Path]:
    """The files of the package, without what Python and type checkers keep beside them."""
    found = (ROOT / hatch_build.PACKAGE).rglob("*")
    kept = [path for path in found if path.is_file() and "__pycache__" not in path.parts]
    return sorted(path for path in kept if not path.name.startswith("."))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    return Path(next(WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])))


@pytest.fixture(scope="module")
def unpacked(wheel) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(wheel.parent / "unpacked")
    return wheel.parent / "unpacked"


def test_the_wheel_is_small(wheel):
    size = wheel.stat().st_size
    assert size <= LIMIT, f"the wheel has {size} bytes"


def test_the_wheel_holds_what_runs(wheel):
    files = {str(path.relative_to(ROOT)) for path in packaged()}
    assert {Path(name).suffix for name in files} == SUFFIXES
    with zipfile.ZipFile(wheel) as archive:
        assert {name for name in archive.namelist() if ".dist-info/" not in name} == files


def code(source: str) -> ast.Module:
    """The tree of a source with the lines of everything in it, without what documents."""
    tree = ast.parse(source)
    for node in statements(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
            for argument in ast.walk(node.args) if node.name.startswith("_") else ():
                if isinstance(argument, ast.arg):
                    argument.annotation, argument.end_lineno = None, argument.lineno
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [statement for statement in node.body if not _is_constant(statement)]
            node.end_lineno = None  # a string may have been the last statement
    return tree


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """A module and all statements in it, with the arms of those that have some."""
    yield node
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for inner in getattr(node, field, ()):
            yield from statements(inner)


def are_alike(one: object, other: object) -> bool:
    """Whether two trees have the same nodes in the same lines."""
    if type(one) is not type(other):
        return False
    if isinstance(one, ast.AST):
        names = (*one._fields, "lineno", "end_lineno")
        return all(are_alike(getattr(one, name, None), getattr(other, name, None)) for name in names)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(are_alike, one, other))
    return one == other


def _is_constant(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def test_the_code_of_the_wheel_stands_where_the_sources_have_it(unpacked):
    inner = set(hatch_build.inner(ROOT))
    for path in packaged():
        made, source = (unpacked / path.relative_to(ROOT)).read_text(), path.read_text()
        assert are_alike(code(made), code(source)) if path in inner else (made == source), path


@pytest.mark.parametrize("other", [
    "def f(a):\n    return a + 2", "def f(a):\n\n    return a + 1", "def g(a):\n    return a + 1",
    "def f(a, b):\n    return a + 1", "def f(a):\n    return a + 1\nf(0)", "def f(a):\n    return a + 1.0",
])  # fmt: skip
def test_other_code_is_not_alike(other):
    source = "def f(a):\n    return a + 1"
    assert are_alike(code(source), code(source)) and not are_alike(code(source), code(other))


def test_what_documents_goes_but_not_what_looks_like_it():
    lines = ["def f():", "    'A.'", "class A:", "    'That.'  # why", "    x = '# no'  # so", "    'Of x.'"]
    made = ["def f():", "    ...", "class A:", "", "    x = '# no'", ""]
    assert hatch_build.code_alone("\n".join(lines)) == "\n".join(made)


def test_types_of_results_go_and_of_arguments_of_private_functions():
    body = "\n    x: int = a\n"
    source = "def _f(a: dict[str, 'Größe'], /, *b: int, c: str = 'x: int') -> tuple[int, ...]:" + body
    made = "def _f(a, /, *b, c = 'x: int'):" + body
    assert hatch_build.code_alone(source) == made
    public = source.replace("_f", "f")
    assert hatch_build.code_alone(public) == public.replace(" -> tuple[int, ...]", "")
    long = "def _f(\n    a: int, b: dict[\n        int, int],\n) -> dict[\n    int, int]:\n    ...\n"
    assert hatch_build.code_alone(long) == long.replace("a: int", "a")


IMPORTS = """
import os, ptxforge, ptxforge.language as tl
names = [getattr(module, name) for module in (ptxforge, tl) for name in module.__all__]
assert ptxforge.__file__ == os.path.abspath("ptxforge/__init__.py")
without = [x for x in names if (callable(x) or hasattr(x, "__path__")) and not x.__doc__]
assert not without, without
"""


@pytest.mark.parametrize("command", ["-m ptxforge demo", "-m ptxforge passes", "imports.py"])
def test_what_the_wheel_holds_runs(unpacked, command):
    """Public names keep their docstrings."""
    (unpacked / "imports.py").write_text(IMPORTS)
    variables = os.environ | {"PYTHONPATH": str(unpacked), "PTXFORGE_DEVICE": "emulator"}
    run = [sys.executable, *command.split()]
    done = subprocess.run(run, env=variables, cwd=unpacked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
