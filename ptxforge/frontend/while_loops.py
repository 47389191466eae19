"""``while``: a condition that is computed before each iteration."""

from __future__ import annotations

import ast
from collections.abc import Collection
from typing import Any

from ptxforge.frontend import source
from ptxforge.frontend.carried import Carried, refuse_else
from ptxforge.frontend.control import scalar_condition, zero_like
from ptxforge.frontend.exits import (
    Loop,
    Step,
    begin,
    end,
    iterate,
    keep_static_result,
    loop_of,
    needs_result,
)
from ptxforge.frontend.values import TensorValue, is_number, leaves_of, map_leaves
from ptxforge.frontend.visitor import Outcome, Visitor, handles
from ptxforge.ir.core import Block, Region
from ptxforge.ir.ops.control import Condition, While, Yield
from ptxforge.language import core
from ptxforge.language import types as L
from ptxforge.support.errors import UnsupportedSyntaxError


@handles(ast.While)
def while_(v: Visitor, node: ast.While) -> Outcome:
    """``while condition``: the condition is evaluated before each iteration, at run time."""
    refuse_else(v, node)
    loop = loop_of(node, lambda v: v.ctx.constant(False, L.int1))
    if loop is None or not loop.stop:
        run_while(v, node, loop)
        return None
    begin(v, loop, going=v.ctx.constant(True, L.int1))
    going = ast.copy_location(ast.Name(loop.stop, ast.Load()), node)
    stop = ast.copy_location(ast.Break(), node)
    check = ast.copy_location(ast.If(_tested(v, node.test), node.body, [stop]), node)
    run_while(v, ast.copy_location(ast.While(going, [Step(node, loop.hidden), check], []), node), loop)
    return end(v, loop, node)


def _tested(v: Visitor, test: ast.expr) -> ast.expr:
    """The condition without the advice of ``tl.condition``."""
    is_advised = isinstance(test, ast.Call) and v.visit(test.func) is core.condition
    return test.args[0] if is_advised else test


def run_while(v: Visitor, node: ast.While, loop: Loop | None, targets: Collection[str] = ()) -> None:
    """Make the operation; ``targets`` are names of a ``for`` that it came from."""
    carried = Carried(v, node, [node.test, *node.body], targets, loop)
    while True:
        carried.start()
        before, body = Block(carried.types()), Block(carried.types())
        flag, tested_scope = _while_test(v, node, carried, before)
        if isinstance(flag, bool):
            before.clear()
            if not flag:
                return
            _make_test_runtime(carried)
            continue
        if _give_first_values(v, node.test, tested_scope):
            before.clear()
            continue
        with v.branch(before, tested_scope):
            passed = carried.next_values(tested_scope, [ast.Expr(node.test)])
        with v.branch(body, carried.scope(body.arguments)):
            iterate(v, loop, node.body)
            scope = v.scope
        if not carried.builds_again(scope) and not needs_result(v, loop, scope):
            break
        body.clear()
        before.clear()
    _check_it_ends(v, node, loop, body, scope)
    carried.check_kept_first()
    _close_while(carried, (before, body), (flag, passed), scope)
    keep_static_result(v, loop, scope)


def _check_it_ends(
    v: Visitor, node: ast.While, loop: Loop | None, body: Block, scope: dict[str, Any]
) -> None:
    """A loop on a condition that is always true must have a ``break`` that some path reaches."""
    if loop is not None and loop.stop and scope[loop.stop].value in body.arguments:
        raise UnsupportedSyntaxError(
            "this loop never ends: its condition is true at compile time, and no 'break' is ever reached"
        ).at(v.locate(node))


def _while_test(
    v: Visitor, node: ast.While, carried: Carried, block: Block
) -> tuple[TensorValue | bool, dict[str, Any]]:
    """The condition, a ``bool`` when it is known at compile time, and the scope after it."""
    test = _tested(v, node.test)
    with v.branch(block, carried.scope(block.arguments)):
        value = v.visit(test)
        flag = scalar_condition(v, test, value) if isinstance(value, TensorValue) else bool(value)
        if isinstance(flag, TensorValue) and flag.is_block:
            raise UnsupportedSyntaxError(
                "elements cannot run a loop as often as each of them wants",
                hint="let all run it as often, with tl.static_range, and choose under 'if'",
            ).at(v.locate(test))
        return flag, v.scope


def _make_test_runtime(carried: Carried) -> None:
    """Make runtime scalars of the numbers that decide a condition at first but that the body changes (an
    argument whose value 1 was compiled in, say). Raises :class:`UnsupportedSyntaxError` when there are
    none."""
    v, node = carried.v, carried.node
    changing = source.assigned_in(node.body)
    deciding = [name for name in source.reads(node.test) if name in changing and name in v.scope]
    if not carried.materialize(deciding):
        raise UnsupportedSyntaxError(
            "this loop never ends: its condition is true at compile time",
            hint="leave it with 'break'",
        ).at(v.locate(node.test))


def _give_first_values(v: Visitor, test: ast.expr, scope: dict[str, Any]) -> bool:
    """Names that the condition defines (``:=``) go to the body as carried values, whose first value is never
    read. Whether there are any, so that the condition is built again."""
    new = [name for name in source.assigned(test) if name not in v.scope]
    for name in new:
        v.scope[name] = map_leaves(
            lambda leaf: (
                zero_like(v.ctx, v.ctx.to_tensor(leaf)) if is_number(leaf) or leaves_of(leaf) else leaf
            ),
            scope[name],
        )
    return bool(new)


def _close_while(
    carried: Carried, blocks: tuple[Block, Block], tested: tuple[TensorValue, list[TensorValue]],
    scope: dict[str, Any],
) -> None:  # fmt: skip
    v, node = carried.v, carried.node
    v.at(node)
    before, body = blocks
    flag, passed = tested
    with v.ctx.builder.inside(body):
        following = carried.next_values(scope, node.body)
    passes_on = [value.value is argument for value, argument in zip(passed, before.arguments)]
    # A value that the condition itself changes is carried even when the body leaves it alone.
    marked = [
        value if same else TensorValue(flag.value, value.dtype) for value, same in zip(following, passes_on)
    ]
    kept = carried.drop_unchanged(marked, [before, body])
    with v.ctx.builder.inside(before):
        v.ctx.builder.create(Condition, flag.value, *[passed[i].value for i in kept])
    with v.ctx.builder.inside(body):
        v.ctx.builder.create(Yield, *[following[i].value for i in kept])
    initial = [carried.leaves[i].value for i in kept]
    op = v.ctx.builder.create(While, *initial, regions=[Region(before), Region(body)])
    carried.bind_results(kept, op.results)
