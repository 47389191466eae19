"""Loops that are unrolled while compiling: over a tuple, over compile-time values, ``tl.static_range``."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from ptxforge.frontend import source
from ptxforge.frontend.carried import Loop, Step, begin, end, iterate, loop_of
from ptxforge.frontend.control import NOTHING, unless_returned
from ptxforge.frontend.expressions import bind
from ptxforge.frontend.values import TensorValue, describe
from ptxforge.frontend.visitor import MayReturn, Outcome, Returned, Visitor
from ptxforge.support.errors import TypeMismatchError, UnsupportedSyntaxError


def static_items(v: Visitor, node: ast.For) -> tuple:
    items = v.visit(node.iter)
    if not isinstance(items, (tuple, range)):
        raise UnsupportedSyntaxError(
            f"a 'for' runs over range(), tl.range(), tl.static_range() or a tuple, not over {describe(items)}"
        ).at(v.locate(node.iter))
    return tuple(items)


def static_range(v: Visitor, node: ast.Call) -> range:
    values = [v.visit(item) for item in node.args]
    named = {keyword.arg: v.visit(keyword.value) for keyword in node.keywords}
    order = ("arg1", "arg2", "step")
    values += [named.pop(name) for name in order[len(values) :] if name in named]
    if named or not 1 <= len(values) <= 3:
        raise TypeMismatchError("tl.static_range() takes (end), (start, end) or (start, end, step)").at(
            v.locate(node)
        )
    for value, item in zip(values, [*node.args, *[k.value for k in node.keywords]]):
        if isinstance(value, TensorValue) or not isinstance(value, int):
            raise TypeMismatchError(
                f"bounds of tl.static_range() must be integers known at compile time, not {describe(value)}"
            ).at(v.locate(item))
    if len(values) == 3 and values[2] == 0:
        raise TypeMismatchError("the step of tl.static_range() must not be zero").at(v.locate(node))
    return range(*values)


def unroll(v: Visitor, node: ast.For, items: Sequence[Any]) -> Outcome:
    """Run the body once for each item."""
    if not source.exits(node) - {ast.Return}:
        return _from(v, node, items, 0)
    loop = loop_of(node)
    loop.kept = [*source.assigned_in([node.target, *node.body]), *loop.hidden]
    begin(v, loop, going=False)
    _from_unless_stopped(v, node, items, 0, loop)
    if loop.result and v.scope[loop.result] is NOTHING:
        v.scope[loop.result] = None
    return end(v, loop, node)


def _from(v: Visitor, node: ast.For, items: Sequence[Any], start: int) -> Outcome:
    """A loop without ``break`` and ``continue``: what returns in it, returns from the function."""
    for index in range(start, len(items)):
        bind(v, node.target, items[index])
        outcome = v.execute(node.body)
        if isinstance(outcome, Returned):
            return outcome
        if isinstance(outcome, MayReturn):
            return unless_returned(v, outcome, lambda after=index + 1: _from(v, node, items, after), node)
    return None


def _from_unless_stopped(v: Visitor, node: ast.For, items: Sequence[Any], start: int, loop: Loop) -> None:
    for index in range(start, len(items)):
        bind(v, node.target, items[index])
        iterate(v, loop, node.body)
        stopped = v.scope[loop.stop] if loop.stop else False
        if stopped is True:
            return
        if isinstance(stopped, TensorValue):
            after = index + 1
            rest = Step(node, [], lambda v: _from_unless_stopped(v, node, items, after, loop))
            test = ast.copy_location(ast.Name(loop.stop, ast.Load()), node)
            v.run_if(ast.copy_location(ast.If(test, [Step(node, [])], [rest]), node))
            return
