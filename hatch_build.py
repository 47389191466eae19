"""What a wheel has of the sources: all code, line for line, and the docstrings that programs and users read.

Docstrings and comments are more than a quarter of the package's deflated bytes. Those of the compiler's own
rooms are for who reads or changes it, and stand in the repository and in the source distribution; a wheel
has nothing in their lines, so that the lines of tracebacks stay what they are. Nor has it the types that
functions take and give there. An editable installation is the sources.
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
    """The source without comments, without the strings that document a module, class, function or name, and
    without the types of functions. Every line of code keeps its number."""
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
    return "\n".join(_without_annotations(lines))


def _without_annotations(lines: list[str]) -> list[str]:
    """Lines without the types that functions take and give; those that are longer than a line stay, and those of
    kernels, which say what is a constant."""
    rows = [line.encode() for line in lines]  # places in a tree count bytes
    cuts: list[tuple[int, int, int]] = []
    for node in ast.walk(ast.parse("\n".join(lines))):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or is_kernel(node):
            continue
        cuts += [_annotation(argument) for argument in ast.walk(node.args) if isinstance(argument, ast.arg)]
        cuts += [_result(node.returns, rows)] if node.returns is not None else []
    for line, begin, end in sorted(set(cuts), reverse=True):
        rows[line] = rows[line][:begin] + rows[line][end:]
    return [row.decode() for row in rows]


def is_kernel(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a function is one of the language: its types are read."""
    return any("jit" in ast.unparse(decorator) for decorator in function.decorator_list)


def _annotation(argument: ast.arg) -> tuple[int, int, int]:
    """The line of an argument, and the bytes of it that say its type; none where there is no type."""
    name, type_ = argument.col_offset + len(argument.arg.encode()), argument.annotation
    is_short = type_ is not None and argument.lineno == type_.end_lineno
    return argument.lineno - 1, name, type_.end_col_offset if is_short else name


def _result(type_: ast.expr, rows: list[bytes]) -> tuple[int, int, int]:
    """The line and the bytes of the type that a function gives; none if it is longer than a line."""
    line, end = type_.lineno - 1, type_.end_col_offset
    arrow = rows[line].rfind(b" ->", 0, type_.col_offset)
    return line, arrow if arrow >= 0 and type_.end_lineno == type_.lineno else end, end


def _documents(statement: ast.stmt) -> bool:
    is_constant = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return is_constant and isinstance(statement.value.value, str)
