"""Functions defined in a kernel: ``lambda`` and nested ``def``. They are inlined where they are called, and
read the variables around them as they are then, as in Python; what they assign is their own."""

from __future__ import annotations

import ast
from typing import Any

import attrs

from ptxforge.frontend.source import Parameter, SourceFunction
from ptxforge.frontend.visitor import Visitor, handles
from ptxforge.support.errors import UnsupportedSyntaxError


class Closure:
    """A function of a kernel's own: its ``source``, and the call ``home`` whose variables it reads."""

    __slots__ = ("source", "home")
    __ptxforge_jit__ = True

    def __init__(self, source: SourceFunction, home: Visitor):
        self.source, self.home = source, home


@handles(ast.Lambda)
def lambda_(v: Visitor, node: ast.Lambda) -> Closure:
    """``lambda x: x + n``."""
    give = ast.copy_location(ast.Return(node.body), node.body)
    return _closure(v, node, "<lambda>", [give])


@handles(ast.FunctionDef)
def nested_function(v: Visitor, node: ast.FunctionDef) -> None:
    """``def helper(x): …`` in a kernel."""
    if node.decorator_list:
        raise UnsupportedSyntaxError("a nested function has no decorators").at(
            v.locate(node.decorator_list[0])
        )
    body = node.body
    if not isinstance(body[-1], ast.Return):
        body = [*body, ast.copy_location(ast.Return(None), body[-1])]
    v.scope[node.name] = _closure(v, node, node.name, body)


def _closure(v: Visitor, node: ast.Lambda | ast.FunctionDef, name: str, body: list[ast.stmt]) -> Closure:
    tree = getattr(node, "_function", None)
    if tree is None:  # what is known of its names is kept on it
        tree = ast.FunctionDef(name=name, args=node.args, body=body, decorator_list=[], returns=None)
        node._function = ast.copy_location(tree, node)
    variadic = node.args.vararg.arg if node.args.vararg else ""
    source = attrs.evolve(
        v.source, name=name, tree=tree, parameters=_parameters(v, node.args), variadic=variadic,
        positional=len(node.args.posonlyargs) + len(node.args.args),
    )  # fmt: skip
    return Closure(source, v)


def _parameters(v: Visitor, arguments: ast.arguments) -> tuple[Parameter, ...]:
    if arguments.kwarg is not None:
        raise UnsupportedSyntaxError("'**' in a nested function has no meaning in a kernel").at(
            v.locate(arguments.kwarg)
        )
    positional = [*arguments.posonlyargs, *arguments.args]
    missing: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults))
    defaults = [*missing, *arguments.defaults, *arguments.kw_defaults]
    return tuple(
        _parameter(v, argument.arg, default)
        for argument, default in zip([*positional, *arguments.kwonlyargs], defaults, strict=True)
    )


def _parameter(v: Visitor, name: str, default: ast.expr | None) -> Parameter:
    return Parameter(name, False) if default is None else Parameter(name, False, v.visit(default))


def surroundings(function: Any) -> dict[str, Any]:
    """The variables that a function reads beside its parameters and globals."""
    return dict(function.home.scope) if isinstance(function, Closure) else {}
