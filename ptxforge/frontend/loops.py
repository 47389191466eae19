"""``for`` and ``while``. What they carry is decided in ``carried``."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from ptxforge.frontend import names
from ptxforge.frontend.carried import (
    Carried,
    bind_results,
    candidates,
    changed_static,
    check_kept_first,
    drop_unchanged,
    forget,
    materialize,
    next_values,
    no_return,
)
from ptxforge.frontend.context import default_dtype
from ptxforge.frontend.control import scalar_condition, unless_returned
from ptxforge.frontend.convert import cast
from ptxforge.frontend.expressions import bind
from ptxforge.frontend.merge import zero_like
from ptxforge.frontend.promote import common_integer
from ptxforge.frontend.semantics.arith import sub
from ptxforge.frontend.values import (
    TensorValue,
    describe,
    dtype_name,
    ir_type,
    is_number,
    leaves_of,
    map_leaves,
)
from ptxforge.frontend.visitor import Outcome, Perhaps, Returned, Visitor, handles
from ptxforge.ir.core import Block, BlockArgument, Region
from ptxforge.ir.ops.arith import AddI
from ptxforge.ir.ops.control import Condition, For, While, Yield
from ptxforge.language import core
from ptxforge.language import types as L
from ptxforge.support.errors import TypeMismatchError, UnsupportedSyntaxError

# -- for ---------------------------------------------------------------------------------------------------


@handles(ast.For)
def for_(v: Visitor, node: ast.For) -> Outcome:
    """``for i in range(…)`` at run time; over ``tl.static_range`` and tuples at compile time."""
    if node.orelse:
        raise UnsupportedSyntaxError("'else' of a loop has no meaning in a kernel").at(
            v.locate(node.orelse[0])
        )
    if not isinstance(node.iter, ast.Call):
        return _unrolled(v, node, _static_items(v, node))
    function = v.visit(node.iter.func)
    if function is core.static_range:
        return _unrolled(v, node, _static_range(v, node.iter))
    if function is range or function is core.range:
        _runtime_for(v, node, _loop_arguments(v, node.iter))
        return None
    return _unrolled(v, node, _static_items(v, node))


def _static_items(v: Visitor, node: ast.For) -> tuple:
    items = v.visit(node.iter)
    if not isinstance(items, (tuple, range)):
        raise UnsupportedSyntaxError(
            f"a 'for' runs over range(), tl.range(), tl.static_range() or a tuple, not over {describe(items)}"
        ).at(v.locate(node.iter))
    return tuple(items)


def _static_range(v: Visitor, node: ast.Call) -> range:
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


def _unrolled(v: Visitor, node: ast.For, items: Sequence[Any], start: int = 0) -> Outcome:
    """Run the body once for each item."""
    for index in range(start, len(items)):
        bind(v, node.target, items[index])
        outcome = v.execute(node.body)
        if isinstance(outcome, Returned):
            return outcome
        if isinstance(outcome, Perhaps):
            return unless_returned(v, outcome, lambda after=index + 1: _unrolled(v, node, items, after), node)
    return None


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


def _runtime_for(v: Visitor, node: ast.For, arguments: tuple[Any, Any, Any, dict[str, Any]]) -> None:
    lower, upper, step, attributes = arguments
    v.at(node.iter)
    number = _static_step(v, step)
    if number == 0:
        raise TypeMismatchError("the step of range() must not be zero").at(v.locate(node.iter))
    is_descending = number is not None and number < 0
    if is_descending:
        lower, upper, step = upper, lower, -number
    dtype = _index_dtype(v, node.iter, lower, upper, step)
    # The operation compares signed numbers; unsigned 32-bit bounds are counted in 64 bits.
    wide = L.int64 if dtype.int_bitwidth == 64 or dtype is L.uint32 else L.int32
    first, last, stride = (_as_index(v, bound, wide) for bound in (lower, upper, step))

    def bind_index(argument: BlockArgument) -> None:
        v.at(node.iter)
        index = TensorValue(argument, wide)
        if is_descending:
            # The loop runs upwards from the end: the user's index is (first + last) - it.
            index = sub(v.ctx, span, index)
        elif isinstance(node.target, ast.Name):
            argument.hint = node.target.id
        bind(v, node.target, cast(v.ctx, index, dtype))

    span = _descending_span(v, first, last) if is_descending else None
    targets = set(names.assigned(node.target))
    block, carried, scope, changed = _loop_body(v, node, wide, bind_index, targets)
    _close_for(v, node, block, carried, scope, (first, last, stride), attributes)
    forget(v, node, names.assigned_in(node.body), carried, [*targets, *changed], targets)


def _index_dtype(v: Visitor, node: ast.AST, *bounds: Any) -> L.dtype:
    """The common integer type of the bounds and the step, at least 32 bits wide."""
    dtype = None
    for bound in bounds:
        if not isinstance(bound, (TensorValue, int)) or (isinstance(bound, TensorValue) and bound.is_block):
            raise TypeMismatchError(f"bounds of range() are integers, not {describe(bound)}").at(
                v.locate(node)
            )
        value = bound.dtype if isinstance(bound, TensorValue) else default_dtype(bound)
        if isinstance(value, L.pointer_type) or not value.is_int():
            hint = "use // for whole numbers" if value.is_floating() else ""
            raise TypeMismatchError(f"bounds of range() are integers, not {dtype_name(value)}", hint=hint).at(
                v.locate(node)
            )
        dtype = value if dtype is None else common_integer(dtype, value)
    return dtype if dtype.int_bitwidth >= 32 else L.int32


def _as_index(v: Visitor, bound: Any, dtype: L.dtype) -> TensorValue:
    return cast(v.ctx, bound, dtype) if isinstance(bound, TensorValue) else v.ctx.constant(bound, dtype)


def _descending_span(v: Visitor, first: TensorValue, last: TensorValue) -> TensorValue:
    """With bounds exchanged, ``range(a, b, -s)`` takes the values ``a - (i - b)`` for ``i`` in ``range(b, a,
    s)``."""
    from_number, to_number = v.ctx.scalar_of(first), v.ctx.scalar_of(last)
    if from_number is not None and to_number is not None:
        return v.ctx.constant(from_number + to_number, first.dtype)
    return v.ctx.op(AddI, first, last)


def _loop_body(
    v: Visitor, node: ast.For, index: L.dtype, bind_index: Callable[[BlockArgument], None], targets: set[str]
) -> tuple[Block, Carried, dict[str, Any], list[str]]:
    """Build the body; again when a static number turns out to change."""
    while True:
        carried = Carried(candidates(v, node.body, but=targets))
        block = Block([ir_type(index), *carried.types()])
        scope = v.scope | carried.arguments(block.arguments[1:])
        with v.branch(block, scope):
            bind_index(block.arguments[0])
            outcome = v.execute(node.body)
            scope = v.scope
        no_return(v, node, outcome, node.body)
        changed = [
            n for n in changed_static(v, scope, names.assigned_in(node.body), carried) if n not in targets
        ]
        if not materialize(v, changed):
            check_kept_first(v, changed, node.body)
            return block, carried, scope, changed
        block.clear()


def _close_for(
    v: Visitor,
    node: ast.For,
    block: Block,
    carried: Carried,
    scope: dict[str, Any],
    bounds: tuple[TensorValue, TensorValue, TensorValue],
    attributes: dict[str, Any],
) -> None:
    """Yield the next values, make the operation and bind its results; what never changes is not carried."""
    v.at(node)
    with v.ctx.builder.inside(block):
        following = next_values(v, node, carried, scope, node.body)
    after, kept = drop_unchanged(carried, following, [block], first_argument=1)
    with v.ctx.builder.inside(block):
        v.ctx.builder.create(Yield, *[following[i].value for i in kept])
    initial = [carried.leaves[i].value for i in kept]
    op = v.ctx.builder.create(
        For, *[b.value for b in bounds], *initial, regions=[Region(block)], **attributes
    )
    bind_results(v, carried, after, kept, op.results)


# -- while -------------------------------------------------------------------------------------------------


@handles(ast.While)
def while_(v: Visitor, node: ast.While) -> None:
    """``while condition``: the condition is evaluated before each iteration, at run time."""
    if node.orelse:
        raise UnsupportedSyntaxError("'else' of a loop has no meaning in a kernel").at(
            v.locate(node.orelse[0])
        )
    while True:
        carried = Carried(candidates(v, [node.test, *node.body]))
        before, body = Block(carried.types()), Block(carried.types())
        flag, tested_scope = _while_test(v, node, carried, before)
        if isinstance(flag, bool):
            before.clear()
            if not flag:
                return
            _make_test_runtime(v, node)
            continue
        if _give_first_values(v, node.test, tested_scope):
            before.clear()
            continue
        with v.branch(before, tested_scope):
            passed = next_values(v, node, carried, tested_scope, [ast.Expr(node.test)])
        scope = v.scope | carried.arguments(body.arguments)
        with v.branch(body, scope):
            outcome = v.execute(node.body)
            scope = v.scope
        no_return(v, node, outcome, node.body)
        changed = changed_static(v, scope, names.assigned_in(node.body), carried)
        if not materialize(v, changed):
            break
        body.clear()
        before.clear()
    check_kept_first(v, changed, [node.test, *node.body])
    _close_while(v, node, (before, body), carried, (flag, passed), scope)
    forget(v, node, names.assigned_in([node.test, *node.body]), carried, changed)


def _while_test(
    v: Visitor, node: ast.While, carried: Carried, block: Block
) -> tuple[TensorValue | bool, dict[str, Any]]:
    """The condition, a ``bool`` when it is known at compile time, and the scope after it."""
    test = node.test
    if isinstance(test, ast.Call) and v.visit(test.func) is core.condition:
        test = test.args[0]
    with v.branch(block, v.scope | carried.arguments(block.arguments)):
        value = v.visit(test)
        flag = scalar_condition(v, test, value) if isinstance(value, TensorValue) else bool(value)
        return flag, v.scope


def _make_test_runtime(v: Visitor, node: ast.While) -> None:
    """Make runtime scalars of the numbers that decide a condition at first but that the body changes (an
    argument whose value 1 was compiled in, say). Raises :class:`UnsupportedSyntaxError` when there are
    none."""
    changing = names.assigned_in(node.body)
    if not materialize(v, [name for name in names.reads(node.test) if name in changing and name in v.scope]):
        raise UnsupportedSyntaxError(
            "this loop never ends: its condition is true at compile time",
            hint="there is no 'break' in a kernel",
        ).at(v.locate(node.test))


def _give_first_values(v: Visitor, test: ast.expr, scope: dict[str, Any]) -> bool:
    """Names that the condition defines (``:=``) go to the body as carried values, whose first value is never
    read. Whether there are any, so that the condition is built again."""
    new = [name for name in names.assigned(test) if name not in v.scope]
    for name in new:
        v.scope[name] = map_leaves(
            lambda leaf: (
                zero_like(v.ctx, v.ctx.to_tensor(leaf)) if is_number(leaf) or leaves_of(leaf) else leaf
            ),
            scope[name],
        )
    return bool(new)


def _close_while(
    v: Visitor,
    node: ast.While,
    blocks: tuple[Block, Block],
    carried: Carried,
    tested: tuple[TensorValue, list[TensorValue]],
    scope: dict[str, Any],
) -> None:
    v.at(node)
    before, body = blocks
    flag, passed = tested
    with v.ctx.builder.inside(body):
        following = next_values(v, node, carried, scope, node.body)
    passes_on = [value.value is argument for value, argument in zip(passed, before.arguments)]
    # A value that the condition itself changes is carried even when the body leaves it alone.
    marked = [
        value if same else TensorValue(flag.value, value.dtype) for value, same in zip(following, passes_on)
    ]
    after, kept = drop_unchanged(carried, marked, [before, body], first_argument=0)
    with v.ctx.builder.inside(before):
        v.ctx.builder.create(Condition, flag.value, *[passed[i].value for i in kept])
    with v.ctx.builder.inside(body):
        v.ctx.builder.create(Yield, *[following[i].value for i in kept])
    op = v.ctx.builder.create(
        While, *[carried.leaves[i].value for i in kept], regions=[Region(before), Region(body)]
    )
    bind_results(v, carried, after, kept, op.results)
