"""``break``, ``continue`` and ``return`` inside loops.

An iteration is built as a function is: a statement that leaves it early is its ``return``, and what it
"returns" are the values, at that place, of the names that the loop carries (:class:`Exit`). So the joining of
branches (``control``) joins the ways out of an iteration, too, and the region of the loop yields the result.

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
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from ptxforge.frontend import source
from ptxforge.frontend.control import NOTHING, zero_like
from ptxforge.frontend.values import Exit, Undefined, is_number, leaves_of, map_leaves
from ptxforge.frontend.visitor import MayReturn, Outcome, Returned, Visitor, handles
from ptxforge.language import types as L

_ABSENT = Undefined("this has no value on some way out of a loop")


@attrs.define(slots=True, eq=False)
class Loop:
    """A loop whose iterations can be left early. ``stop``, ``returned`` and ``result`` are its hidden names,
    empty where there is no such statement; ``stopped`` makes what ``break`` assigns to ``stop``; ``kept`` are
    the names whose values go on from one iteration to the next. The flags of an unrolled loop
    (``is_static``) are Python's as long as they are known."""

    stop: str = ""
    stopped: Callable[[Visitor], Any] = lambda v: True
    returned: str = ""
    result: str = ""
    is_static: bool = False
    kept: Sequence[str] = ()

    def flag(self, v: Visitor, value: bool) -> Any:
        """A hidden flag's value."""
        return value if self.is_static else v.ctx.constant(value, L.int1)

    @property
    def hidden(self) -> list[str]:
        """The names that users do not see."""
        return [name for name in (self.stop, self.returned, self.result) if name]


def loop_of(
    node: ast.For | ast.While, stopped: Callable[[Visitor], Any] | None = None
) -> Loop | None:
    """How the loop is left early; ``None`` when it never is. Without ``stopped`` it is an unrolled one."""
    found = source.exits(node)
    if not found:
        return None
    place = f".{node.lineno}.{node.col_offset}"
    returns = ast.Return in found
    return Loop(
        stop=f"stop{place}" if returns or ast.Break in found else "",
        stopped=stopped or (lambda v: True),
        is_static=stopped is None,
        returned=f"returned{place}" if returns else "",
        result=f"result{place}" if returns else "",
    )


def begin(v: Visitor, loop: Loop, going: Any) -> None:
    """Give the hidden names their values before the loop."""
    if loop.stop:
        v.scope[loop.stop] = going
    if loop.returned:
        v.scope[loop.returned] = loop.flag(v, False)
        v.scope[loop.result] = NOTHING


def end(v: Visitor, loop: Loop, node: ast.AST) -> Outcome:
    """After the loop: return, if an iteration has. The hidden names are gone."""
    outcome = None
    if loop.returned:
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
    v.scope[loop.returned] = loop.flag(v, True)
    v.scope[loop.result] = map_leaves(lambda leaf: v.ctx.to_tensor(leaf) if is_number(leaf) else leaf, value)
    return _leave(v)


def _stop(v: Visitor) -> None:
    loop = v.loops[-1]
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
        found = scope[loop.result]
        v.scope[loop.result] = None if found is NOTHING else found
