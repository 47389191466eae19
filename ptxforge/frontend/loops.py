"""Loops, whose carried values ``carried`` decides: ``for``; ``while``, with a condition that is computed
before each iteration; and loops that are unrolled while compiling: over a tuple, over compile-time values,
``tl.static_range``.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Sequence
from typing import Any

from ptxforge.frontend import source
from ptxforge.frontend.carried import (
    Carried,
    Loop,
    Step,
    begin,
    end,
    iterate,
    keep_static_result,
    loop_of,
    may_run_to_its_end,
    needs_result,
    refuse_else,
)
from ptxforge.frontend.control import scalar_condition, unless_returned, zero_like
from ptxforge.frontend.convert import cast
from ptxforge.frontend.counting import (
    as_index,
    descending_span,
    index_dtype,
    keep_last_value,
    trip_count,
    value_before,
)
from ptxforge.frontend.element_loops import PerElement, active, any_of, by_elements, stretched
from ptxforge.frontend.expressions import bind
from ptxforge.frontend.semantics import arith
from ptxforge.frontend.values import (
    TensorValue,
    describe,
    ir_type,
    is_number,
    leaves_of,
    map_leaves,
)
from ptxforge.frontend.visitor import MayReturn, Outcome, Returned, Visitor, handles
from ptxforge.ir.core import Block, Region, Value
from ptxforge.ir.ops.control import Condition, For, While, Yield
from ptxforge.language import core
from ptxforge.language import types as L
from ptxforge.support.errors import TypeMismatchError, UnsupportedSyntaxError


@handles(ast.For)
def for_(v: Visitor, node: ast.For) -> Outcome:
    """``for i in range(…)`` at run time; over ``tl.static_range`` and tuples at compile time."""
    refuse_else(v, node)
    if not isinstance(node.iter, ast.Call):
        return unroll(v, node, static_items(v, node))
    function = v.visit(node.iter.func)
    if function is core.static_range:
        return unroll(v, node, static_range(v, node.iter))
    if function is range or function is core.range:
        arguments = _loop_arguments(v, node.iter)
        each = any(isinstance(bound, TensorValue) and bound.is_block for bound in arguments[:3])
        return by_elements(v, lambda each: _runtime_for(v, node, arguments, each), each)
    return unroll(v, node, static_items(v, node))


_RANGE_PARAMETERS = ("arg1", "arg2", "step")
_LOOP_OPTIONS = (
    "num_stages", "loop_unroll_factor", "disallow_acc_multi_buffer", "flatten", "warp_specialize",
    "disable_licm",
)  # fmt: skip


def _loop_arguments(v: Visitor, node: ast.Call) -> tuple[Any, Any, Any, dict[str, Any]]:
    """Lower bound, upper bound, step and the attributes of the loop."""
    bounds = [v.visit(item) for item in node.args]
    named = {keyword.arg: v.visit(keyword.value) for keyword in node.keywords}
    allowed = (*_RANGE_PARAMETERS, *_LOOP_OPTIONS)
    for name in named:
        if name not in allowed:
            raise TypeMismatchError(
                f"range() has no option '{name}'; there are {', '.join(_LOOP_OPTIONS)}"
            ).at(v.locate(node))
    positional = len(_RANGE_PARAMETERS)
    for name, value in zip(_LOOP_OPTIONS, bounds[positional:]):
        named.setdefault(name, value)
    given = dict(zip(_RANGE_PARAMETERS, bounds)) | {n: named.pop(n) for n in _RANGE_PARAMETERS if n in named}
    first, second, step = (given.get(name) for name in _RANGE_PARAMETERS)
    if first is None:
        raise TypeMismatchError("range() needs a bound").at(v.locate(node))
    lower, upper = (0, first) if second is None else (first, second)
    return lower, upper, 1 if step is None else step, _loop_attributes(v, node, named)


def _loop_attributes(v: Visitor, node: ast.Call, options: dict[str, Any]) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    for name, value in options.items():
        if isinstance(value, TensorValue):
            raise TypeMismatchError(f"option '{name}' of range() must be known at compile time").at(
                v.locate(node)
            )
        if value is None:
            continue
        if name == "num_stages":
            attributes["num_stages"] = int(value)
        elif name == "loop_unroll_factor":
            attributes["unroll"] = max(1, int(value))
        elif value:
            attributes[name] = True
    return attributes


def _static_step(v: Visitor, step: Any) -> int | None:
    """The step as a number, when it is one."""
    return v.ctx.scalar_of(step) if isinstance(step, TensorValue) else step


def _runtime_for(
    v: Visitor, node: ast.For, arguments: tuple[Any, Any, Any, dict[str, Any]], each: bool
) -> Outcome:
    lower, upper, step, attributes = arguments
    v.at(node.iter)
    number = _static_step(v, step)
    if number == 0:
        raise TypeMismatchError("the step of range() must not be zero").at(v.locate(node.iter))
    is_descending = number is not None and number < 0
    if is_descending:
        lower, upper, step = upper, lower, -number
    dtype = index_dtype(v, node.iter, lower, upper, step)
    # The operation compares signed numbers; unsigned 32-bit bounds are counted in 64 bits.
    wide = L.int64 if dtype.int_bitwidth == 64 or dtype is L.uint32 else L.int32
    first, last, stride = (as_index(v, bound, wide) for bound in (lower, upper, step))
    if each:
        first, last = stretched(v.ctx, first), stretched(v.ctx, last)

    def seen(index: TensorValue) -> TensorValue:
        # A descending loop runs upwards from the end: the user's index is (first + last) - it.
        return cast(v.ctx, arith.sub(v.ctx, span, index) if is_descending else index, dtype)

    def bind_index(argument: Value) -> None:
        v.at(node.iter)
        if not is_descending and isinstance(node.target, ast.Name):
            argument.hint = node.target.id
        bind(v, node.target, seen(TensorValue(argument, wide)))

    span = descending_span(v, first, last) if is_descending else None
    targets = set(source.assigned(node.target))
    loop = loop_of(node, lambda v: v.ctx.constant(0, wide), each)
    bounds, before, scope = (first, last, stride), value_before(v, node, dtype), dict(v.scope)
    if loop is None or not loop.stop or (not each and may_run_to_its_end(v, node)):
        running = Loop() if loop is not None else None
        carried = Carried(v, node, node.body, targets, running)
        if _close_for(carried, *_loop_body(v, carried, wide, bind_index, running), bounds, attributes):
            keep_last_value(v, node, bounds, before, seen)
            return None
        v.scope = scope
    return _stoppable_for(
        v, node, loop, bounds, bind_index, targets,
        lambda end: keep_last_value(v, node, bounds, before, seen, end),
    )  # fmt: skip


def _loop_body(
    v: Visitor, carried: Carried, index: L.dtype, bind_index: Callable[[Value], None], loop: Loop | None
) -> tuple[Block, dict[str, Any]]:
    """Build the body; again when a static number turns out to change."""
    while True:
        carried.start()
        block = Block([ir_type(index), *carried.types()])
        with v.branch(block, carried.scope(block.arguments[1:])):
            bind_index(block.arguments[0])
            iterate(v, loop, carried.node.body)
            scope = v.scope
        if not carried.builds_again(scope):
            carried.check_kept_first()
            return block, scope
        block.clear()


def _close_for(
    carried: Carried, block: Block, scope: dict[str, Any], bounds: tuple[TensorValue, ...],
    attributes: dict[str, Any],
) -> bool:  # fmt: skip
    """Yield the next values, make the operation and bind its results; what never changes is not carried.
    Unless a ``break`` or ``return`` was built in it, against expectation."""
    v, node = carried.v, carried.node
    if carried.loop is not None and carried.loop.is_left:
        block.clear()
        return False
    v.at(node)
    with v.ctx.builder.inside(block):
        following = carried.next_values(scope, node.body)
        kept = carried.drop_unchanged(following, [block], first_argument=1)
        v.ctx.builder.create(Yield, *[carried.current(following[i].value) for i in kept])
    initial = [carried.leaves[i].value for i in kept]
    op = v.ctx.builder.create(
        For, *[b.value for b in bounds], *initial, regions=[Region(block)], **attributes
    )
    carried.bind_results(kept, op.results)
    return True


def _stoppable_for(
    v: Visitor,
    node: ast.For,
    loop: Loop,
    bounds: tuple[TensorValue, TensorValue, TensorValue],
    bind_index: Callable[[Value], None],
    targets: set[str],
    keep_last: Callable[[TensorValue], None],
) -> Outcome:
    """A loop with ``break`` or ``return``: a ``while`` that counts the iterations left."""
    first, last, stride = bounds
    index = f"index.{node.lineno}.{node.col_offset}"
    trips = trip_count(v, first, last, stride)
    begin(v, loop, going=arith.where(v.ctx, active(v.ctx), trips, 0) if loop.each else trips)
    v.scope[index] = first

    def advance(v: Visitor) -> None:
        v.at(node.iter)
        now = v.scope[index]
        v.scope[index] = arith.add(v.ctx, now, stride)
        v.scope[loop.stop] = arith.sub(v.ctx, v.scope[loop.stop], 1)
        bind_index(now.value)

    body = [Step(node, [*loop.hidden, index], advance), *node.body]
    left = ast.copy_location(ast.Name(loop.stop, ast.Load()), node.iter)
    body = _guarded(left, body) if loop.each else body
    while_ = ast.copy_location(ast.While(left, body, []), node)
    run_while(v, while_, loop, targets)
    keep_last(v.scope.pop(index))
    return end(v, loop, node)


@handles(ast.While)
def while_(v: Visitor, node: ast.While) -> Outcome:
    """``while condition``: the condition is evaluated before each iteration, at run time."""
    refuse_else(v, node)
    return by_elements(v, lambda each: _stoppable_while(v, node, each), each=bool(v.ctx.conditions))


def _stoppable_while(v: Visitor, node: ast.While, each: bool) -> Outcome:
    loop = loop_of(node, lambda v: v.ctx.constant(False, L.int1), each)
    if loop is None or not loop.stop:
        run_while(v, node, loop)
        return None
    begin(v, loop, going=active(v.ctx) if each else v.ctx.constant(True, L.int1))
    going = ast.copy_location(ast.Name(loop.stop, ast.Load()), node)
    stop = ast.copy_location(ast.Break(), node)
    check = ast.copy_location(ast.If(_tested(v, node.test), node.body, [stop]), node)
    body = [Step(node, loop.hidden), check]
    body = _guarded(going, body) if each else body
    run_while(v, ast.copy_location(ast.While(going, body, []), node), loop)
    return end(v, loop, node)


def _guarded(going: ast.expr, body: list[ast.stmt]) -> list[ast.stmt]:
    """An iteration for the elements that go on."""
    return [ast.copy_location(ast.If(going, body, []), going)]


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
        try:
            flag, tested_scope = _while_test(v, node, carried, before, loop)
        except PerElement:
            before.clear()
            raise
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
    v: Visitor, node: ast.While, carried: Carried, block: Block, loop: Loop | None
) -> tuple[TensorValue | bool, dict[str, Any]]:
    """The condition, a ``bool`` when it is known at compile time, and the scope after it."""
    test = _tested(v, node.test)
    with v.branch(block, carried.scope(block.arguments)):
        value = v.visit(test)
        flag = scalar_condition(v, test, value) if isinstance(value, TensorValue) else bool(value)
        if isinstance(flag, TensorValue) and flag.is_block:
            if loop is None or not loop.each:
                raise PerElement
            flag = any_of(v.ctx, flag)
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
        values = [carried.current(value.value) for value in (flag, *[passed[i] for i in kept])]
        v.ctx.builder.create(Condition, *values)
    with v.ctx.builder.inside(body):
        v.ctx.builder.create(Yield, *[carried.current(following[i].value) for i in kept])
    initial = [carried.leaves[i].value for i in kept]
    op = v.ctx.builder.create(While, *initial, regions=[Region(before), Region(body)])
    carried.bind_results(kept, op.results)


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
