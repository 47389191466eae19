"""Interprets a function's AST and builds IR as it goes.

A :class:`Visitor` runs one call of one function: the kernel itself, or a jitted function that is being
inlined. Its ``scope`` maps local names to values (see :mod:`ptxforge.frontend.values`). Expressions evaluate
to values; statements change the scope, build operations, and end in an *outcome*:

    None            control goes on with the next statement
    Returned(v)     the function has returned ``v``; what follows is dead
    MayReturn(f, v)   it has returned ``v`` if the runtime flag ``f`` holds, and goes on otherwise

What each kind of node means stands in ``expressions``, ``statements``, ``control`` and ``calls``; those files
register their functions here with :func:`handles`.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs

from ptxforge.frontend.context import Context
from ptxforge.frontend.source import SourceFunction
from ptxforge.frontend.values import TensorValue, Undefined
from ptxforge.ir.core import Block
from ptxforge.support.errors import CompilationError, UnsupportedSyntaxError
from ptxforge.support.location import Location


@attrs.frozen(slots=True)
class Returned:
    """The function has returned ``value``."""

    value: Any


@attrs.frozen(slots=True)
class MayReturn:
    """The function has returned ``value`` if ``flag`` (an int1 scalar) holds."""

    flag: TensorValue
    value: Any


Outcome = Returned | MayReturn | None

HANDLERS: dict[type, Callable[..., Any]] = {}
"""AST node type → what it means."""


def handles(*kinds: type[ast.AST]) -> Callable[[Callable], Callable]:
    """Decorator: register the meaning of kinds of AST nodes."""

    def register(function: Callable) -> Callable:
        for kind in kinds:
            HANDLERS[kind] = function
        return function

    return register


class Invoke(ast.expr):
    """An expression of the compiler's own: ``function(*arguments)``, at the place of ``node``."""

    def __init__(self, node: ast.AST, function: Any, arguments: Sequence[Any]):
        super().__init__()
        ast.copy_location(self, node)
        self.function, self.arguments = function, arguments


class Step:
    """The key of what a debugger is told before a statement."""


class Visitor:
    """One call of one function. ``stack`` holds the functions being inlined, outermost first."""

    __slots__ = ("ctx", "source", "scope", "call_site", "stack", "loops", "kept")

    def __init__(
        self,
        ctx: Context,
        source: SourceFunction,
        scope: dict[str, Any],
        call_site: Location | None = None,
        stack: tuple[SourceFunction, ...] = (),
    ):
        self.ctx, self.source, self.scope, self.call_site = ctx, source, scope, call_site
        self.stack = (*stack, source)
        self.kept: set[str] = set()  # names of which ``x: tl.constexpr`` says what their next value is
        self.loops: list[Any] = []  # those around this place that are left early, outermost first

    @property
    def is_library(self) -> bool:
        """Whether the function is one of the language's own."""
        return (self.source.fn.__module__ or "").startswith("ptxforge.language")

    # -- places ---------------------------------------------------------------------------------------

    def locate(self, node: ast.AST) -> Location:
        """Where a node stands, with the calls that led here."""
        return self.source.locate(node, self.call_site)

    def at(self, node: ast.AST) -> None:
        """Operations created from now on belong to ``node``."""
        self.ctx.builder.location = self.source.locate(node, self.call_site)

    # -- visiting -------------------------------------------------------------------------------------

    def visit(self, node: ast.AST) -> Any:
        """The value of an expression, or the outcome of a statement."""
        handler = HANDLERS.get(type(node))
        if handler is None:
            raise unsupported(node).at(self.locate(node))
        try:
            return handler(self, node)
        except CompilationError as error:
            error.at(self.locate(node))
            raise

    def execute(self, statements: Sequence[ast.stmt]) -> Outcome:
        """Run statements until one returns."""
        for index, node in enumerate(statements):
            if self.ctx.steps:
                HANDLERS[Step](self, node, statements[index - 1] if index else None)
            if type(node) is ast.If:
                rest = statements[index + 1 :]
                outcome, took_rest = HANDLERS[ast.If](self, node, rest)
                if took_rest:
                    return outcome
            else:
                outcome = self.visit(node)
            if type(outcome) is Returned:
                return outcome
            if type(outcome) is MayReturn:
                rest = statements[index + 1 :]
                return self.go_on(outcome, lambda rest=rest: self.execute(rest), node)
        return None

    def run_if(self, node: ast.If) -> Outcome:
        """Run an ``if`` with nothing behind it."""
        return HANDLERS[ast.If](self, node, ())[0]

    def go_on(self, perhaps: MayReturn, rest: Callable[[], Outcome], node: ast.AST) -> Outcome:
        """Run ``rest`` unless the function has returned."""
        return HANDLERS[MayReturn](self, perhaps, rest, node)

    # -- names ----------------------------------------------------------------------------------------

    def assign(self, name: str, value: Any) -> None:
        """Bind a local name. An unnamed IR value takes the name as its hint."""
        if type(value) is TensorValue and not value.value.hint:
            value.value.hint = name
        self.scope[name] = value

    def local(self, name: str) -> Any:
        """The value of a local name; raises for one that has none here."""
        value = self.scope[name]
        return value.read(self.ctx) if isinstance(value, Undefined) else value

    @contextlib.contextmanager
    def branch(self, block: Block, scope: dict[str, Any]) -> Iterator[None]:
        """Within the ``with``, build in ``block`` and keep names in ``scope``."""
        saved = self.scope, self.ctx.builder.location
        self.scope = scope
        with self.ctx.builder.inside(block):
            try:
                yield
            finally:
                self.scope, self.ctx.builder.location = saved


_WORDS = {
    ast.Try: ("'try'", ""),
    ast.Raise: ("'raise'", "use tl.static_assert or tl.device_assert"),
    ast.With: ("'with'", ""),
    ast.ClassDef: ("a class", ""),
    ast.Dict: ("a dictionary", "use separate constexpr parameters"),
    ast.Set: ("a set", "use a tuple"),
    ast.DictComp: ("a dictionary", ""),
    ast.SetComp: ("a set", ""),
    ast.GeneratorExp: ("a generator", "use a list comprehension over a tuple"),
    ast.Global: ("'global'", "pass values as arguments and return them"),
    ast.Nonlocal: ("'nonlocal'", "pass values as arguments and return them"),
    ast.Import: ("'import'", "import at the top of the file"),
    ast.ImportFrom: ("'import'", "import at the top of the file"),
    ast.Delete: ("'del'", ""),
    ast.Await: ("'await'", ""),
    ast.Yield: ("'yield'", "use tl.store to give results"),
    ast.YieldFrom: ("'yield'", "use tl.store to give results"),
    ast.Match: ("'match'", "use 'if'"),
    ast.Starred: ("an unpacking '*'", ""),
    ast.AsyncFunctionDef: ("'async'", ""),
}


def unsupported(node: ast.AST) -> UnsupportedSyntaxError:
    """The error for Python that has no meaning in a kernel."""
    words, hint = _WORDS.get(type(node), (f"this kind of Python ({type(node).__name__})", ""))
    return UnsupportedSyntaxError(f"{words} has no meaning in a kernel", hint=hint)
