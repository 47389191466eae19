"""How the language's functions are declared.

``builtin``    a stub: signature, docstring, example. What it means inside a kernel stands in
               ``ptxforge.frontend.semantics``, in the file of the same name. Called outside a kernel it
               raises.
``library``    a function written in the language itself; the frontend inlines it as it does users' functions.

Both can be members of ``tl.tensor``: ``@builtin(member=True)`` makes ``x.sum(0)`` mean ``tl.sum(x, 0)``.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

from ptxforge.support import source_text
from ptxforge.support.errors import ForeignFunctionError, PtxforgeError
from ptxforge.support.source_text import chains_of, foreign_functions

F = TypeVar("F", bound=Callable[..., Any])
"""A function; a declared one keeps its signature for type checkers and editors."""

MEMBERS: dict[str, Any] = {}
"""Methods of tensors: name → the function whose first argument is the tensor."""


@overload
def builtin(fn: F) -> F: ...


@overload
def builtin(*, member: bool = False, name: str = "") -> Callable[[F], F]: ...


def builtin(fn: Callable | None = None, *, member: bool = False, name: str = "") -> Any:
    """Declare a stub. ``member``: tensors have it as a method; ``name``: its public name, where that shadows
    a builtin."""
    if fn is None:
        return functools.partial(builtin, member=member, name=name)
    public = name or fn.__name__

    @functools.wraps(fn)
    def outside(*args: Any, **kwargs: Any) -> Any:
        raise PtxforgeError(f"tl.{public}() has a meaning only inside a kernel")

    outside.__ptxforge_builtin__ = True
    outside.__name__ = outside.__qualname__ = public
    if member:
        MEMBERS[public] = outside
    return outside


def is_builtin(fn: Any) -> bool:
    """Whether ``fn`` is a stub of the language."""
    return getattr(fn, "__ptxforge_builtin__", False)


class KernelFunction:
    """A function of the language: Python cannot call it."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise PtxforgeError(f"tl.{self.__name__}() has a meaning only inside a kernel")

    def __repr__(self) -> str:
        return f"<function tl.{self.__name__}>"


class LibraryFunction(KernelFunction):
    """A function of the language written in the language. ``fn`` is the Python function."""

    __ptxforge_jit__ = True

    def __init__(self, fn: Callable):
        functools.update_wrapper(self, fn)
        self.fn = fn


@overload
def library(fn: F) -> F: ...


@overload
def library(*, member: bool = False) -> Callable[[F], F]: ...


def library(fn: Callable | None = None, *, member: bool = False) -> Any:
    """Declare a function written in the language."""
    if fn is None:
        return functools.partial(library, member=member)
    function = LibraryFunction(fn)
    if member:
        MEMBERS[fn.__name__] = function
    return function


class DeviceFunction(LibraryFunction):
    """A function of the device library: what it takes has a type. A number of Python that a kernel gives it
    is a scalar, an integer of its own type, a float of the widest float type beside it."""


def device_function(fn: F) -> F:
    """Declare a function of the device library, written in the language."""
    return DeviceFunction(fn)  # type: ignore[return-value]


class ConstexprFunction(Generic[F]):
    """A plain Python function that the frontend calls while compiling, with compile-time arguments."""

    __ptxforge_constexpr_function__ = True

    def __init__(self, fn: F):
        functools.update_wrapper(self, fn)
        self.fn = fn

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fn(*args, **kwargs)

    @property
    def src(self) -> str:
        """The source from ``def`` on."""
        return source_text.source_of(self.fn)

    @property
    def cache_key(self) -> str:
        """A hash of the source. Raises :class:`ForeignFunctionError` for a function that calls another
        package's, which the source does not tell."""
        tree, _, _ = source_text.source_text(self.fn).parse()
        tree.decorator_list = []
        for called in foreign_functions(self.fn, chains_of(tree)):
            raise ForeignFunctionError(
                f"{self.__name__} calls {called!r}, which its source does not tell; call it outside, and "
                "give the kernel its result"
            )
        return hashlib.sha256(self.src.encode()).hexdigest()

    def _unsafe_update_src(self, text: str) -> None:
        """Give the function another text, with the same parameters (Triton's name). What was compiled with it
        is forgotten."""
        self.fn = source_text.redefined(self.fn, text)
        source_text.remember(self.fn)
        source_text.redefinition()


def constexpr_function(fn: F) -> ConstexprFunction[F]:
    """Let kernels call a plain Python function on compile-time values.

    @tl.constexpr_function
    def tiles(n, block): return -(-n // block)
    """
    return ConstexprFunction(fn)
