"""What a wheel has of the sources: all code, line for line, and the docstrings that programs and users read.

Docstrings and comments are more than a quarter of the package's deflated bytes. Those of the compiler's own
rooms are for who reads or changes it, and stand in the repository and in the source distribution; a wheel
has nothing in their lines, so that the lines of tracebacks stay what they are. An editable installation is
the sources.
"""

from __future__ import annotations

import ast
import io
import tempfile
import tokenize
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "ptxforge"
DOCUMENTED = (
    "language",  # `help(tl.load)`, and what editors show
    "driver/device_array.py",  # `ptxforge.DeviceArray`
    "cli",  # what `--help` prints
    "passes/properties.py",  # what a failed check of a pass prints
    "triton_compat/profiler.py",  # what its `--help` prints
)
"""Folders and files of the package that stay as they are, beside those that public names come from."""


class WheelHook(BuildHookInterface):
    """Puts code alone into the wheel, in the place of inner sources."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        root, self._folder = Path(self.root), tempfile.TemporaryDirectory()
        for path in inner(root):
            made = Path(self._folder.name, path.relative_to(root))
            made.parent.mkdir(parents=True, exist_ok=True)
            made.write_text(code_alone(path.read_text()))
            build_data["force_include"][str(made)] = str(path.relative_to(root))

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if version != "editable":
            self._folder.cleanup()


def inner(root: Path) -> list[Path]:
    """The files of the package below ``root`` of which a wheel has the code alone."""
    package = root / PACKAGE
    kept = {package / name for name in DOCUMENTED} | _homes(package / "__init__.py")
    return [path for path in sorted(package.rglob("*.py")) if kept.isdisjoint({path, *path.parents})]


def _homes(init: Path) -> set[Path]:
    """``init``, and the modules that it says its public names come from."""
    tables = [node.value for node in ast.parse(init.read_text()).body if isinstance(node, ast.Assign)]
    strings = [value for table in tables if isinstance(table, ast.Dict) for value in table.values]
    modules = [init.parents[1].joinpath(*value.value.split(".")) for value in strings]
    return {init} | {m / "__init__.py" if m.is_dir() else m.with_suffix(".py") for m in modules}


def code_alone(source: str) -> str:
    """The source without comments, and without the strings that document a module, class, function or name.
    Every line of code keeps its number."""
    lines = source.split("\n")
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            line, column = token.start
            lines[line - 1] = lines[line - 1][:column].rstrip()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            strings = [statement for statement in node.body if _documents(statement)]
            for string in strings:
                lines[string.lineno - 1 : string.end_lineno] = [""] * (string.end_lineno - string.lineno + 1)
            if strings == node.body and not isinstance(node, ast.Module):
                lines[strings[0].lineno - 1] = " " * strings[0].col_offset + "..."
    return "\n".join(lines)


def _documents(statement: ast.stmt) -> bool:
    is_constant = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return is_constant and isinstance(statement.value.value, str)
