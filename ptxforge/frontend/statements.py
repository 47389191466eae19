"""Simple statements: assignments, expressions, assertions, return; ``breakpoint()``, and what a debugger is
told on its way through a kernel: the values of the variables."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from ptxforge.frontend.calls import call_language
from ptxforge.frontend.carried import return_from_loop
from ptxforge.frontend.expressions import PYTHON_BUILTINS, bind
from ptxforge.frontend.operators import apply_binary
from ptxforge.frontend.source import is_constexpr_annotation
from ptxforge.frontend.values import TensorValue, describe, dtype_name, is_number, is_static, make_tuple
from ptxforge.frontend.visitor import Outcome, Returned, Step, Visitor, handles
from ptxforge.ir.ops.debug import Breakpoint
from ptxforge.language import core
from ptxforge.language.constexpr import constexpr
from ptxforge.language.core import Aggregate
from ptxforge.support.errors import (
    CompilationError,
    CompileTimeAssertionError,
    UnsupportedSyntaxError,
)


def runtime_numbers(v: Visitor, value: Any) -> Any:
    """``value`` with each number as a runtime scalar: what a plain assignment keeps. Objects keep their
    fields, whose kinds their class tells."""
    if isinstance(value, tuple) and not isinstance(value, Aggregate):
        return make_tuple(value, [runtime_numbers(v, part) for part in value])
    return v.ctx.to_tensor(value) if is_number(value) else value


@handles(ast.Assign)
def assign(v: Visitor, node: ast.Assign) -> None:
    """``x = value``: a number becomes a runtime scalar."""
    value = v.visit(node.value)
    v.at(node)
    for target in node.targets:
        # What a field of an object is, its class says.
        is_name = isinstance(target, ast.Name)
        is_field = not is_name and any(isinstance(part, ast.Attribute) for part in ast.walk(target))
        bind(v, target, value if is_field else _held(v, target, value))


def _held(v: Visitor, target: ast.expr, value: Any) -> Any:
    """Numbers stay at compile time where an annotation came before."""
    if isinstance(target, ast.Name) and target.id in v.kept:
        v.kept.remove(target.id)
        return value
    if v.kept and isinstance(target, ast.Tuple) and type(value) is tuple and len(value) == len(target.elts):
        return tuple(_held(v, *pair) for pair in zip(target.elts, value))
    return runtime_numbers(v, value)


@handles(ast.AnnAssign)
def annotated_assign(v: Visitor, node: ast.AnnAssign) -> None:
    """``N: tl.constexpr = value`` keeps the value at compile time, ``N: tl.constexpr`` alone that of the next
    assignment; others say nothing."""
    if node.value is None:
        if isinstance(node.target, ast.Name) and _is_constexpr(v, node.annotation):
            v.kept.add(node.target.id)
        return
    if not _is_constexpr(v, node.annotation):
        v.at(node)
        bind(v, node.target, runtime_numbers(v, v.visit(node.value)))
        return
    # A runtime value stays one, as in Triton: where a compile-time one is needed, that place complains.
    bind(v, node.target, v.visit(node.value))


def _is_constexpr(v: Visitor, annotation: ast.expr) -> bool:
    """Whether a local annotation is ``tl.constexpr``: local annotations are not evaluated by Python."""
    if isinstance(annotation, ast.Constant):
        return is_constexpr_annotation(annotation.value)
    if not isinstance(annotation, (ast.Name, ast.Attribute)):
        return False
    last = annotation.id if isinstance(annotation, ast.Name) else annotation.attr
    if last == "constexpr":
        return True
    try:
        return v.visit(annotation) is constexpr
    except CompilationError:
        return False  # an annotation for type checkers, of a name that kernels cannot read


@handles(ast.AugAssign)
def augmented_assign(v: Visitor, node: ast.AugAssign) -> None:
    """``x += value`` is ``x = x + value``."""
    if not isinstance(node.target, ast.Name):
        raise UnsupportedSyntaxError(
            "only a variable can be updated in a kernel: blocks are values",
            hint="make a new block, with tl.where for instance",
        ).at(v.locate(node.target))
    left = v.visit(ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target))
    right = v.visit(node.value)
    result = apply_binary(v, node, type(node.op), left, right)
    v.at(node)
    bind(v, node.target, runtime_numbers(v, result))


@handles(ast.Expr)
def expression(v: Visitor, node: ast.Expr) -> None:
    """An expression for its effects; a text alone (a docstring) is nothing."""
    if isinstance(node.value, ast.Call):
        _check_result_may_be_dropped(v, node.value)
    if not isinstance(node.value, ast.Constant):
        v.visit(node.value)


def _check_result_may_be_dropped(v: Visitor, node: ast.Call) -> None:
    """Raise :class:`CompilationError` for a function that is marked with ``triton.must_use_result``."""
    scope = node.func.value if isinstance(node.func, ast.Attribute) else node.func
    if not isinstance(scope, ast.Name):
        return
    if scope is not node.func and not isinstance(v.visit(scope), ModuleType):
        return  # a method
    function = v.visit(node.func)
    required = getattr(function, "__triton_must_use_result__", False)
    if required is True or isinstance(required, str):
        name = getattr(function, "__name__", "the function")
        why = f": {required}" if isinstance(required, str) else ""
        raise CompilationError(
            f"the result of {name} is not being used{why}",
            hint=f"write x = {ast.unparse(node)}, or leave it out",
        ).at(v.locate(node))


@handles(ast.Pass)
def nothing(v: Visitor, node: ast.Pass) -> None:
    """``pass``."""


@handles(ast.Return)
def return_(v: Visitor, node: ast.Return) -> Outcome:
    """``return value``; of a kernel, plain ``return``."""
    value = None if node.value is None else v.visit(node.value)
    if value is not None and v.call_site is None:
        raise CompilationError(
            f"the kernel '{v.source.name}' returns {describe(value)}, but a kernel returns nothing",
            hint="give results through pointers, with tl.store",
        )
    return return_from_loop(v, value) if v.loops else Returned(value)


@handles(ast.Assert)
def assert_(v: Visitor, node: ast.Assert) -> None:
    """``assert condition, message``: at compile time when the condition is static, else
    ``tl.device_assert``."""
    condition = v.visit(node.test)
    message = "" if node.msg is None else v.visit(node.msg)
    if not is_static(condition):
        call_language(v, node, core.device_assert, (condition, message), {})
    elif not condition:
        raise CompileTimeAssertionError(f"assertion failed{f': {message}' if message else ''}")


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
