"""``breakpoint()``, and what a debugger is told on its way through a kernel: the values of the variables."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from typing import Any

from ptxforge.frontend.expressions import PYTHON_BUILTINS
from ptxforge.frontend.values import TensorValue, dtype_name, is_number
from ptxforge.frontend.visitor import Step, Visitor, handles
from ptxforge.ir.ops.debug import Breakpoint
from ptxforge.support.errors import CompilationError


@PYTHON_BUILTINS.means(builtins.breakpoint)
def breakpoint_(v: Visitor, node: ast.AST, *values: Any, **options: Any) -> None:
    """``breakpoint()``."""
    if values or options:
        raise CompilationError("breakpoint() takes no arguments in a kernel")
    if v.ctx.combines or v.ctx.elementwise is not None:
        raise CompilationError(
            f"'{v.source.name}' combines elements, many at once: no debugger can stop in it",
            hint="put breakpoint() before or behind the call that it is given to",
        )
    _mark(v, stops=True)


@handles(Step)
def step(v: Visitor, node: ast.stmt, before: ast.stmt | None) -> None:
    """Mark where a statement begins. (A function's last ``return`` is none of the user's, where it stands at
    the place of the statement before it.)"""
    if v.is_library or v.ctx.combines or v.ctx.elementwise is not None or _is_breakpoint(node):
        return
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return
    if before is not None and (node.lineno, node.col_offset) == (before.lineno, before.col_offset):
        return
    v.at(node)
    _mark(v, stops=False)


def _is_breakpoint(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and ast.unparse(node.value) == "breakpoint()"


def _mark(v: Visitor, stops: bool) -> None:
    values, names, types, constants = [], [], [], []
    for name, value in v.scope.items():
        for path, leaf in _leaves(name, value):
            if isinstance(leaf, TensorValue):
                values.append(leaf.value)
                names.append(path)
                types.append(dtype_name(leaf.dtype))
            elif leaf is None or is_number(leaf) or isinstance(leaf, str):
                constants.append(f"{path} = {leaf!r}")
    v.ctx.builder.create(
        Breakpoint, *values, stops=stops, names=tuple(names), types=tuple(types), constants=tuple(constants)
    )


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """What a value consists of, each part with its path: ``pair.0``, ``block.offsets.1``."""
    if not isinstance(value, tuple):
        yield path, value
        return
    fields = getattr(value, "__fields__", getattr(value, "_fields", range(len(value))))
    for field, part in zip(fields, value):
        yield from _leaves(f"{path}.{field}", part)
