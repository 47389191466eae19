"""What loops do with names and with early exits.

A loop carries the names that its body assigns and that have a value before it. A name that keeps its value is
not carried; a static one becomes a runtime scalar only if the body really changes it (the body is then built
again).

An iteration is built as a function is: a statement (``break``, ``continue``, ``return``) that leaves it early
is its ``return``, and what it "returns" are the values, at that place, of the names that the loop carries
(:class:`Exit`). So the joining of branches (``control``) joins the ways out of an iteration, too, and the
region of the loop yields the result.

What else ``break`` and ``return`` do stands in hidden variables that the loop carries as it does the user's:

    while test:             while going:
        body        →           if test: body
                                else: break                 (break: going = False)

    for i in range(…):      while left != 0:
        body        →           i, left = …, left - 1
                                body                        (break: left = 0)

    return value    →       returned, result = True, value; break
                            … and behind the loop: if returned: return result

An unrolled loop goes on with the next item under ``if not broken``. Hidden names hold a dot, which no name of
Python does.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import attrs

from ptxforge.frontend import source
from ptxforge.frontend.control import NOTHING, zero_like
from ptxforge.frontend.element_loops import stretched
from ptxforge.frontend.values import (
    COMPOSITES,
    Exit,
    Readable,
    TensorValue,
    Undefined,
    alike,
    describe,
    is_number,
    is_static,
    leaves_of,
    map_leaves,
)
from ptxforge.frontend.visitor import MayReturn, Outcome, Returned, Visitor, handles
from ptxforge.ir.core import Block, BlockArgument, Value
from ptxforge.language import types as L
from ptxforge.language.constexpr import constexpr
from ptxforge.support.errors import TypeMismatchError, UnsupportedSyntaxError


def refuse_else(v: Visitor, node: ast.For | ast.While) -> None:
    """Raises :class:`UnsupportedSyntaxError` for a loop with an ``else``."""
    if node.orelse:
        raise UnsupportedSyntaxError("'else' of a loop has no meaning in a kernel").at(
            v.locate(node.orelse[0])
        )


class Carried:
    """The names that the loop ``node`` carries, and their values before it.

    ``statements`` are what an iteration runs (the condition included), ``targets`` the names that a ``for``
    gives their values itself; ``loop`` says how it is left early, if it is. :meth:`start` comes before each
    building of the body, :meth:`builds_again` after it.
    """

    def __init__(
        self, v: Visitor, node: ast.For | ast.While, statements: Sequence[ast.AST],
        targets: Collection[str] = (), loop: Loop | None = None,
    ):  # fmt: skip
        self.v, self.node, self.statements, self.targets = v, node, statements, targets
        self.loop = loop
        self.assigned = [name for name in source.assigned_in(statements) if name not in targets]
        self.changed: list[str] = []
        """Static names from before the loop that its body changes."""
        self._dropped: dict[Value, Value] = {}
        if loop is not None:
            loop.kept = [name for name in self.assigned if name in v.scope]

    def start(self) -> None:
        """Carry the names that have a runtime value now, in order of definition."""
        assigned = set(self.assigned)
        for name in self.assigned:
            value = self.v.scope.get(name)
            if isinstance(value, Readable):  # each iteration would read the same
                self.v.scope[name] = Undefined(value.reason, value.hint)
        self.initial = {
            name: value
            for name, value in self.v.scope.items()
            if name in assigned and leaves_of(value) and not isinstance(value, Undefined)
        }
        self.leaves = [leaf for value in self.initial.values() for leaf in leaves_of(value)]

    def types(self) -> list:
        return [leaf.value.type for leaf in self.leaves]

    def bound(self, values: Iterable[Any]) -> dict[str, Any]:
        """The names with IR values in place of the initial ones."""
        remaining = iter(values)

        def follow(leaf: Any) -> Any:
            return TensorValue(next(remaining), leaf.dtype) if isinstance(leaf, TensorValue) else leaf

        return {name: map_leaves(follow, value) for name, value in self.initial.items()}

    def scope(self, arguments: list[BlockArgument]) -> dict[str, Any]:
        """The scope of a block with these arguments, which take the names as hints."""
        bound = self.bound(arguments)
        for name, value in bound.items():
            for leaf in leaves_of(value):
                leaf.value.hint = name
        return self.v.scope | bound

    def builds_again(self, scope: dict[str, Any]) -> bool:
        """After a body that ends with ``scope``: whether static numbers that it changes were made runtime
        scalars, so that it is built again."""
        before = self.v.scope
        self.changed = [
            name
            for name in self.assigned
            if name in before and name not in self.initial and not _keeps(before[name], scope.get(name))
        ]
        return self.materialize(self.changed) or self._stretch(scope)

    def _stretch(self, scope: dict[str, Any]) -> bool:
        """Where elements decide for themselves: whether scalars were made blocks, because they become blocks
        in the body."""
        ctx, grown = self.v.ctx, []
        if ctx.elementwise is None:
            return False
        for name, value in self.initial.items():
            pairs = zip(leaves_of(value), leaves_of(scope[name]))
            if any(after.is_block and not before.is_block for before, after in pairs):
                grown.append(name)
                self.v.scope[name] = map_leaves(lambda leaf: stretched(ctx, leaf), value)
        return bool(grown)

    def materialize(self, chosen: Iterable[str]) -> bool:
        """Make runtime scalars of the numbers among some names. Whether there were any."""
        scope = self.v.scope
        numbers = [name for name in chosen if _has_number(scope[name])]
        for name in numbers:
            scope[name] = map_leaves(
                lambda leaf: self.v.ctx.to_tensor(leaf) if is_number(leaf) else leaf, scope[name]
            )
        return bool(numbers)

    def check_kept_first(self) -> None:
        """A name that is None (or the like) before the loop and a tensor in it must be assigned before it is
        read."""
        for name in self.changed:
            value = self.v.scope[name]
            if not isinstance(value, Undefined) and source.is_read_first(name, self.statements):
                raise TypeMismatchError(
                    f"loop-carried variable '{name}' is {describe(value)} before the loop and a tensor in it",
                    hint="give it a tensor of the right type before the loop",
                )

    def next_values(self, scope: dict[str, Any], statements: Sequence[ast.stmt]) -> list[TensorValue]:
        """The carried values after ``statements``. Raises :class:`TypeMismatchError` for a changed type."""
        found = []
        for name, before in self.initial.items():
            found.extend(self._next_leaves(name, before, scope[name], statements))
        return found

    def _next_leaves(
        self, name: str, before: Any, after: Any, statements: Sequence[ast.stmt]
    ) -> list[TensorValue]:
        def complain() -> TypeMismatchError:
            place = source.assigned_in(statements).get(name, self.node)
            change = f"{describe(before)} before the loop and becomes {describe(after)} in it"
            return TypeMismatchError(
                f"loop-carried variable '{name}' is {change}",
                hint="give it the type of the loop's value before the loop, or cast in the loop",
            ).at(self.v.locate(place))

        if isinstance(after, Undefined):
            after = after.read(self.v.ctx)
        if isinstance(before, COMPOSITES) and describe(before) != describe(after):
            raise complain()
        if isinstance(before, tuple) and isinstance(after, tuple) and alike(before, after):
            pairs = zip(before, after)
            return [leaf for b, a in pairs for leaf in self._next_leaves(name, b, a, statements)]
        if not isinstance(before, TensorValue):
            if is_static(after) and before == after:
                return []
            raise complain()
        if is_number(after):
            after = self.v.ctx.to_tensor(after)
        if before.is_block and isinstance(after, TensorValue):
            after = stretched(self.v.ctx, after)
        if not isinstance(after, TensorValue) or after.dtype != before.dtype or after.shape != before.shape:
            raise complain()
        return [after]

    def drop_unchanged(
        self, following: list[TensorValue], blocks: list[Block], first_argument: int = 0
    ) -> list[int]:
        """Take out arguments whose next value is themselves (in the last block); gives the positions still
        carried. :meth:`current` says what stands for the others."""
        last = blocks[-1].arguments[first_argument:]
        kept = [i for i, value in enumerate(following) if value.value is not last[i]]
        for block in blocks:
            for position in reversed(range(len(following))):
                if position not in kept:
                    argument = block.arguments[first_argument + position]
                    argument.replace_all_uses_with(self.leaves[position].value)
                    self._dropped[argument] = self.leaves[position].value
                    block.erase_argument(first_argument + position)
        return kept

    def current(self, value: Value) -> Value:
        """``value``, or what a name that is not carried holds."""
        return self._dropped.get(value, value)

    def bind_results(self, kept: list[int], results: Sequence[Any]) -> None:
        """After the loop: carried names are its results; names that only its body gives a value have none,
        for it may not have run; nor have the targets of a ``for``."""
        after: list[Any] = [leaf.value for leaf in self.leaves]
        for position, result in zip(kept, results):
            after[position] = result
        for name, value in self.bound(after).items():
            for leaf in leaves_of(value):
                if not leaf.value.hint:
                    leaf.value.hint = name
            self.v.scope[name] = value
        self._forget()

    def _forget(self) -> None:
        line = self.node.lineno + self.v.source.offset
        lost = [*self.targets, *self.changed]
        for name in [*self.targets, *self.assigned]:
            if (name in lost or name not in self.v.scope) and name not in self.initial:
                self.v.scope[name] = Undefined(
                    f"'{name}' gets its value in the loop at line {line}, which may not run at all",
                    hint="assign it to another variable in the loop, and give that one a value before it"
                    if name in self.targets
                    else "give it a value of the same type before the loop",
                )


def _keeps(before: Any, after: Any) -> bool:
    return before is after or (
        is_static(before) and is_static(after) and type(before) is type(after) and before == after
    )


def _has_number(value: Any) -> bool:
    return any(map(_has_number, value)) if isinstance(value, tuple) else is_number(value)


_ABSENT = Undefined("this has no value on some way out of a loop")


@attrs.define(slots=True, eq=False)
class Loop:
    """A loop whose iterations can be left early. ``stop``, ``returned`` and ``result`` are its hidden names,
    empty where there is no such statement; ``stopped`` makes what ``break`` assigns to ``stop``; ``kept`` are
    the names whose values go on from one iteration to the next. The flags of an unrolled loop
    (``is_static``) are Python's as long as they are known. ``each``: every element leaves the loop by itself,
    and its ``stop`` is a block. ``is_left``: a ``break`` or ``return`` has been built."""

    stop: str = ""
    stopped: Callable[[Visitor], Any] = lambda v: True
    returned: str = ""
    result: str = ""
    is_static: bool = False
    each: bool = False
    kept: Sequence[str] = ()
    is_left: bool = False

    def flag(self, v: Visitor, value: bool) -> Any:
        """A hidden flag's value."""
        return value if self.is_static else v.ctx.constant(value, L.int1)

    @property
    def hidden(self) -> list[str]:
        """The names that users do not see."""
        return [name for name in (self.stop, self.returned, self.result) if name]


def loop_of(
    node: ast.For | ast.While, stopped: Callable[[Visitor], Any] | None = None, each: bool = False
) -> Loop | None:
    """How the loop is left early; ``None`` when it never is. Without ``stopped`` it is an unrolled one; of
    one that ``each`` element leaves by itself all leave early."""
    found = source.exits(node)
    if not found and not each:
        return None
    place = f".{node.lineno}.{node.col_offset}"
    returns = ast.Return in found
    return Loop(
        stop=f"stop{place}" if each or returns or ast.Break in found else "",
        each=each,
        stopped=stopped or (lambda v: True),
        is_static=stopped is None,
        returned=f"returned{place}" if returns else "",
        result=f"result{place}" if returns else "",
    )


def may_run_to_its_end(v: Visitor, node: ast.For) -> bool:
    """Whether it may be known while compiling that no ``break`` or ``return`` is reached: a condition around
    each of them reads something that is known now and that the loop does not assign."""
    changing = source.assigned_in([node.target, *node.body])
    return all(
        any(name not in changing and _is_known(v, name) for name in names) for names in source.guards(node)
    )


def _is_known(v: Visitor, name: str) -> bool:
    if name in v.scope:
        return is_static(v.scope[name])
    try:
        return isinstance(v.source.lookup(name), constexpr)
    except (KeyError, ValueError):
        return False


def begin(v: Visitor, loop: Loop, going: Any) -> None:
    """Give the hidden names their values before the loop."""
    if loop.stop:
        v.scope[loop.stop] = going
    if loop.returned:
        v.scope[loop.returned] = loop.flag(v, False)
        v.scope[loop.result] = NOTHING


def end(v: Visitor, loop: Loop, node: ast.AST) -> Outcome:
    """After the loop: return, if an iteration has. The hidden names are gone. (Where no ``return`` was built,
    because conditions known while compiling leave none, nothing has.)"""
    outcome = None
    if loop.returned and v.scope[loop.result] is not NOTHING:
        test, value = (_read(name, node) for name in (loop.returned, loop.result))
        give = ast.copy_location(ast.Return(value), node)
        check = ast.copy_location(ast.If(test, [give], []), node)
        outcome = v.run_if(check)
    for name in loop.hidden:
        v.scope.pop(name, None)
    return outcome


def _read(name: str, node: ast.AST) -> ast.Name:
    return ast.copy_location(ast.Name(name, ast.Load()), node)


class Step(ast.stmt):
    """A statement of the compiler's own: ``work(v)``, which assigns ``targets``."""

    _fields = ("targets",)

    def __init__(self, node: ast.AST, assigned: Sequence[str], work: Callable[[Visitor], None] | None = None):
        super().__init__(targets=[ast.copy_location(ast.Name(name, ast.Store()), node) for name in assigned])
        ast.copy_location(self, node)
        self.work = work


@handles(Step)
def step(v: Visitor, node: Step) -> None:
    """Do the compiler's work."""
    if node.work is not None:
        node.work(v)


# -- an iteration ------------------------------------------------------------------------------------------


def iterate(v: Visitor, loop: Loop | None, statements: Sequence[ast.stmt]) -> None:
    """Build one iteration. Afterwards the scope holds what its ways out agree on."""
    if loop is None:
        v.execute(statements)
        return
    v.loops.append(loop)
    try:
        outcome = v.execute(statements)
        if outcome is None:
            outcome = _leave(v)
        elif isinstance(outcome, MayReturn):
            outcome = v.go_on(outcome, lambda: _leave(v), statements[-1])
    finally:
        v.loops.pop()
    kept = zip(loop.kept, outcome.value, strict=True)
    v.scope = v.scope | {name: value for name, value in kept if value is not _ABSENT}


def _leave(v: Visitor) -> Returned:
    return Returned(Exit(v.scope.get(name, _ABSENT) for name in v.loops[-1].kept))


@handles(ast.Continue)
def continue_(v: Visitor, node: ast.Continue) -> Outcome:
    """``continue``: the iteration ends here."""
    return _leave(v)


@handles(ast.Break)
def break_(v: Visitor, node: ast.Break) -> Outcome:
    """``break``: the iteration ends here, and it was the last one."""
    v.at(node)
    _stop(v)
    return _leave(v)


def return_from_loop(v: Visitor, value: Any) -> Outcome:
    """``return value`` in a loop."""
    loop = v.loops[-1]
    _stop(v)
    if loop.returned:
        v.scope[loop.returned] = loop.flag(v, True)
        v.scope[loop.result] = map_leaves(
            lambda leaf: v.ctx.to_tensor(leaf) if is_number(leaf) else leaf, value
        )
    return _leave(v)


def _stop(v: Visitor) -> None:
    loop = v.loops[-1]
    loop.is_left = True
    if loop.stop:
        v.scope[loop.stop] = loop.stopped(v)


def needs_result(v: Visitor, loop: Loop | None, scope: dict[str, Any]) -> bool:
    """Whether an iteration returns run-time values, for which the loop must carry some first value: then the
    iteration is built again. Values known while compiling need none."""
    if loop is None or not loop.result or v.scope[loop.result] is not NOTHING:
        return False
    found = scope[loop.result]
    if not leaves_of(found):
        return False
    v.scope[loop.result] = map_leaves(lambda leaf: zero_like(v.ctx, leaf), found)
    return True


def keep_static_result(v: Visitor, loop: Loop | None, scope: dict[str, Any]) -> None:
    """What iterations return, if it is known while compiling, is the same after the loop."""
    if loop is not None and loop.result and not leaves_of(scope[loop.result]):
        v.scope[loop.result] = scope[loop.result]
