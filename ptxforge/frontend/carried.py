"""The names that a loop carries from one iteration to the next.

A loop carries the names that its body assigns and that have a value before it. A name that keeps its value is
not carried; a static one becomes a runtime scalar only if the body really changes it (the body is then built
again).
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from typing import Any

from ptxforge.frontend import names
from ptxforge.frontend.values import (
    COMPOSITES,
    TensorValue,
    Undefined,
    alike,
    describe,
    is_number,
    is_static,
    leaves_of,
    map_leaves,
)
from ptxforge.frontend.visitor import Visitor
from ptxforge.ir.core import Block, BlockArgument
from ptxforge.support.errors import CompilationError, TypeMismatchError


class Carried:
    """The names that a loop carries and their values before it."""

    def __init__(self, initial: dict[str, Any]):
        self.initial = initial
        self.leaves = [leaf for value in initial.values() for leaf in leaves_of(value)]

    def types(self) -> list:
        return [leaf.value.type for leaf in self.leaves]

    def bound(self, values: Iterable[Any]) -> dict[str, Any]:
        """The names with IR values in place of the initial ones."""
        remaining = iter(values)
        return {
            name: map_leaves(
                lambda leaf: (
                    TensorValue(next(remaining), leaf.dtype) if isinstance(leaf, TensorValue) else leaf
                ),
                value,
            )
            for name, value in self.initial.items()
        }

    def arguments(self, arguments: list[BlockArgument]) -> dict[str, Any]:
        """The names bound to a block's arguments, which take the names as hints."""
        bound = self.bound(arguments)
        for name, value in bound.items():
            for leaf in leaves_of(value):
                leaf.value.hint = name
        return bound


def candidates(v: Visitor, statements: Sequence[ast.AST], but: Iterable[str] = ()) -> dict[str, Any]:
    """Names that the statements assign and that have a runtime value before them, in order of definition."""
    assigned = names.assigned_in(statements)
    return {
        name: value
        for name, value in v.scope.items()
        if name in assigned and name not in but and leaves_of(value) and not isinstance(value, Undefined)
    }


def next_values(
    v: Visitor, node: ast.AST, carried: Carried, scope: dict[str, Any], statements: Sequence[ast.stmt]
) -> list[TensorValue]:
    """The carried values at the end of the body. Raises :class:`TypeMismatchError` for a changed type."""
    found = []
    for name, before in carried.initial.items():
        found.extend(_next_leaves(v, node, name, before, scope[name], statements))
    return found


def _next_leaves(
    v: Visitor, node: ast.AST, name: str, before: Any, after: Any, statements: Sequence[ast.stmt]
) -> list[TensorValue]:
    def complain() -> TypeMismatchError:
        place = names.assigned_in(statements).get(name, node)
        change = f"{describe(before)} before the loop and becomes {describe(after)} in it"
        return TypeMismatchError(
            f"loop-carried variable '{name}' is {change}",
            hint="give it the type of the loop's value before the loop, or cast in the loop",
        ).at(v.locate(place))

    if isinstance(after, Undefined):
        raise CompilationError(after.reason, hint=after.hint)
    if isinstance(before, COMPOSITES) and describe(before) != describe(after):
        raise complain()
    if isinstance(before, tuple) and isinstance(after, tuple) and alike(before, after):
        return [leaf for b, a in zip(before, after) for leaf in _next_leaves(v, node, name, b, a, statements)]
    if not isinstance(before, TensorValue):
        if is_static(after) and before == after:
            return []
        raise complain()
    if is_number(after):
        after = v.ctx.to_tensor(after)
    if not isinstance(after, TensorValue) or after.dtype != before.dtype or after.shape != before.shape:
        raise complain()
    return [after]


def changed_static(v: Visitor, scope: dict[str, Any], assigned: Iterable[str], carried: Carried) -> list[str]:
    """Static names from before the loop that its body has changed."""
    return [
        name
        for name in assigned
        if name in v.scope and name not in carried.initial and not _keeps(v.scope[name], scope.get(name))
    ]


def _keeps(before: Any, after: Any) -> bool:
    return before is after or (
        is_static(before) and is_static(after) and type(before) is type(after) and before == after
    )


def materialize(v: Visitor, changed: list[str]) -> bool:
    """Make runtime scalars of changed static numbers. Whether there were any, so that the body is built
    again."""
    numbers = [name for name in changed if _has_number(v.scope[name])]
    for name in numbers:
        v.scope[name] = map_leaves(
            lambda leaf: v.ctx.to_tensor(leaf) if is_number(leaf) else leaf, v.scope[name]
        )
    return bool(numbers)


def _has_number(value: Any) -> bool:
    return any(map(_has_number, value)) if isinstance(value, tuple) else is_number(value)


def forget(
    v: Visitor, node: ast.AST, assigned: Iterable[str], carried: Carried, changed: Iterable[str],
    targets: Iterable[str] = (),
) -> None:  # fmt: skip
    """After a loop: names that only its body gives a value have none, for it may not have run; nor have the
    ``targets`` of a ``for``."""
    line = node.lineno + v.source.offset
    for name in [*targets, *assigned]:
        is_new = name not in v.scope
        if (is_new or name in changed) and name not in carried.initial:
            v.scope[name] = Undefined(
                f"'{name}' gets its value in the loop at line {line}, which may not run at all",
                hint="assign it to another variable in the loop, and give that one a value before it"
                if name in targets
                else "give it a value of the same type before the loop",
            )


def check_kept_first(v: Visitor, changed: Iterable[str], statements: Sequence[ast.stmt]) -> None:
    """A name that is None (or the like) before the loop and a tensor in it must be assigned before it is
    read."""
    for name in changed:
        value = v.scope[name]
        if not isinstance(value, Undefined) and names.is_read_first(name, statements):
            raise TypeMismatchError(
                f"loop-carried variable '{name}' is {describe(value)} before the loop and a tensor in it",
                hint="give it a tensor of the right type before the loop",
            )


def drop_unchanged(
    carried: Carried, following: list[TensorValue], blocks: list[Block], first_argument: int
) -> tuple[list[Any], list[int]]:
    """Take out arguments whose next value is themselves (in the last block); gives the final values known so
    far and the positions still carried."""
    after: list[Any] = [leaf.value for leaf in carried.leaves]
    kept = []
    last = blocks[-1].arguments[first_argument:]
    for position, value in enumerate(following):
        if value.value is not last[position]:
            kept.append(position)
    for block in blocks:
        for position in reversed(range(len(following))):
            if position not in kept:
                argument = block.arguments[first_argument + position]
                argument.replace_all_uses_with(carried.leaves[position].value)
                block.erase_argument(first_argument + position)
    return after, kept


def bind_results(
    v: Visitor, carried: Carried, after: list[Any], kept: list[int], results: Sequence[Any]
) -> None:
    for position, result in zip(kept, results):
        after[position] = result
    final = carried.bound(after)
    for name, value in final.items():
        for leaf in leaves_of(value):
            if not leaf.value.hint:
                leaf.value.hint = name
        v.scope[name] = value
