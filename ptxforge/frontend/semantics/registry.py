"""The link between the language's stubs and their meaning.

    @implements(language.memory.load)
    def load(ctx, pointer, mask=None, ...): ...

The implementation takes a :class:`Context` and then the stub's very parameters, with their names and defaults
(``tests/frontend/test_semantics.py``). Arguments are runtime values or static Python objects, as the kernel
gave them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ptxforge.frontend.context import Context
from ptxforge.language.registry import is_builtin
from ptxforge.support.errors import CompilationError, TypeMismatchError

SEMANTICS: dict[Callable, Callable] = {}
"""Stub → implementation."""

KINDS: dict[type, Callable] = {}
"""Class of stubs → their implementation, which takes the stub behind the context."""


class ArgumentProblem(Exception):
    """An argument of a language function is wrong. The caller adds the function's name and the place."""

    def __init__(self, argument: str, message: str, hint: str = ""):
        super().__init__(message)
        self.argument, self.message, self.hint = argument, message, hint

    def explained(self, function: str) -> TypeMismatchError:
        """The error that the user sees."""
        return TypeMismatchError(
            f"argument '{self.argument}' of {function}(): {self.message}", hint=self.hint
        )


def implements(stub: Callable) -> Callable[[Callable], Callable]:
    """Decorator: register the meaning of a stub."""
    if not is_builtin(stub):
        raise TypeError(f"{stub} is not a function of the language")

    def register(fn: Callable) -> Callable:
        if stub in SEMANTICS:
            raise TypeError(f"tl.{stub.__name__}() has two meanings")
        SEMANTICS[stub] = fn
        return fn

    return register


def implements_kind(kind: type) -> Callable[[Callable], Callable]:
    """Decorator: register the meaning of all stubs that are of this class."""

    def register(fn: Callable) -> Callable:
        KINDS[kind] = fn
        return fn

    return register


def apply(ctx: Context, stub: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
    """The value of a call of a language function.

    Raises :class:`CompilationError` without a location, and :class:`ArgumentProblem`.
    """
    implementation = SEMANTICS.get(stub)
    if implementation is None and type(stub) in KINDS:
        implementation, args = KINDS[type(stub)], (stub, *args)
    if implementation is None:
        raise CompilationError(f"tl.{stub.__name__}() cannot be used here")
    try:
        return implementation(ctx, *args, **kwargs)
    except TypeError as error:
        if not isinstance(error, CompilationError):
            _explain_binding(stub, args[1:] if type(stub) in KINDS else args, kwargs)
        raise


def _explain_binding(stub: Callable, args: tuple, kwargs: dict[str, Any]) -> None:
    """Raise if the arguments do not fit the stub's parameters."""
    signature = inspect.signature(stub)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        options = ", ".join(signature.parameters)
        raise TypeMismatchError(f"{stub.__name__}(): {error}", hint=f"its parameters are {options}") from None
