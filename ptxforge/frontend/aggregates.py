"""Objects of aggregate classes: making them, their fields, methods and operators.

An object is a tuple (:class:`~ptxforge.language.core.Aggregate`), so that what carries, joins and
returns tuples does so with objects.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from ptxforge.frontend.context import Context
from ptxforge.frontend.values import TensorValue, Undefined, describe, is_number, is_static
from ptxforge.language import types as L
from ptxforge.language.constexpr import constexpr
from ptxforge.language.core import Aggregate
from ptxforge.support.errors import CompilationError, TypeMismatchError, UnsupportedSyntaxError

_BINARY = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "truediv", ast.FloorDiv: "floordiv",
    ast.Mod: "mod", ast.Pow: "pow", ast.LShift: "lshift", ast.RShift: "rshift", ast.BitAnd: "and",
    ast.BitOr: "or", ast.BitXor: "xor", ast.MatMult: "matmul",
}  # fmt: skip
_COMPARISONS = {
    ast.Eq: ("__eq__", "__eq__"), ast.NotEq: ("__ne__", "__ne__"), ast.Lt: ("__lt__", "__gt__"),
    ast.LtE: ("__le__", "__ge__"), ast.Gt: ("__gt__", "__lt__"), ast.GtE: ("__ge__", "__le__"),
}  # fmt: skip
_UNARY = {ast.USub: "__neg__", ast.UAdd: "__pos__", ast.Invert: "__invert__", ast.Not: "__not__"}


@attrs.frozen(slots=True, eq=False)
class Unfinished:
    """``self`` in a jitted ``__init__``: what is assigned to its fields stands in the scope, as
    ``self.field``."""

    kind: type[Aggregate]


class _Draft:
    """``self`` in an ``__init__`` that Python runs."""


Inline = Callable[[Any, Sequence[Any], dict[str, Any]], Any]
"""Inlines a jitted function with arguments, and gives its value and its scope at the end."""


def construct(
    ctx: Context, kind: type[Aggregate], args: Sequence[Any], kwargs: dict[str, Any], run: Inline
) -> Aggregate:
    """``kind(*args, **kwargs)``. Raises :class:`TypeMismatchError` for a field without its value."""
    init = method_of(kind, "__init__")
    if init is None:
        return _finished(ctx, kind, _by_position(kind, args, kwargs))
    if hasattr(type(init), "__ptxforge_jit__"):
        this, scope = run(init, [Unfinished(kind), *args], kwargs)
        prefix = f"{this}."
        found = {name[len(prefix) :]: value for name, value in scope.items() if name.startswith(prefix)}
        return _finished(ctx, kind, found)
    draft = _Draft()
    getattr(init, "fn", init)(draft, *args, **kwargs)
    return _finished(ctx, kind, vars(draft))


def _by_position(kind: type[Aggregate], args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    if len(args) > len(kind.__fields__):
        raise TypeMismatchError(
            f"{kind.__name__}() takes {len(kind.__fields__)} values, {len(args)} are given"
        )
    given = dict(zip(kind.__fields__, args))
    for name in kwargs:
        if name in given or name not in kind.__fields__:
            what = "twice" if name in given else "but has no such field"
            raise TypeMismatchError(f"{kind.__name__}() is given '{name}' {what}")
    return kind.__field_defaults__ | given | kwargs


def _finished(ctx: Context, kind: type[Aggregate], found: dict[str, Any]) -> Aggregate:
    for name in found:
        if name not in kind.__fields__:
            raise TypeMismatchError(
                f"'{kind.__name__}' has no field '{name}'",
                hint=f"annotate it in the class: {name}: tl.tensor",
            )
    return kind._of(_checked(ctx, kind, name, found.get(name, _MISSING)) for name in kind.__fields__)


_MISSING = Undefined("missing")


def _checked(ctx: Context, kind: type[Aggregate], name: str, value: Any) -> Any:
    """The value of a field, of the kind that its annotation asks for."""
    value = value.value if isinstance(value, constexpr) else value
    if isinstance(value, Undefined):
        reason = f"the field '{name}' of '{kind.__name__}' gets no value"
        raise TypeMismatchError(reason if value is _MISSING else value.reason, hint=value.hint)
    wanted = kind.__fields__[name]
    if wanted is constexpr:
        fits = is_static(value)
    elif wanted is L.tensor or isinstance(wanted, (L.dtype, L.pointer_type)):
        value = ctx.to_tensor(value) if is_number(value) else value
        fits = isinstance(value, TensorValue) and (wanted is L.tensor or value.dtype == wanted)
    elif isinstance(wanted, type):
        fits = isinstance(value, wanted)
    else:
        fits = True
    if not fits:
        text = getattr(wanted, "__name__", str(wanted))
        raise TypeMismatchError(f"the field '{name}' of '{kind.__name__}' is a {text}, not {describe(value)}")
    return value


def replaced(ctx: Context, value: Aggregate, fields: dict[str, Any]) -> Aggregate:
    """A copy with other values in some fields."""
    return _finished(ctx, type(value), dict(zip(value.__fields__, value)) | fields)


# -- members -----------------------------------------------------------------------------------------------


def method_of(kind: type, name: str) -> Any:
    """A method that an aggregate class defines itself or inherits from another one; else ``None``."""
    for base in kind.__mro__:
        found = vars(base).get("__methods__", {}).get(name)
        if found is not None:
            return found
    return None


def member(value: Aggregate, name: str) -> tuple[Any, bool]:
    """A field's value or a method, and whether it is a method of the object.

    Raises :class:`CompilationError` for an unknown name."""
    if name in value.__fields__:
        return value[list(value.__fields__).index(name)], False
    found = method_of(type(value), name)
    if found is None:
        text = f"'{type(value).__name__}' has no field or method '{name}'"
        raise CompilationError(text, hint=f"its fields are {', '.join(value.__fields__)}")
    if isinstance(found, staticmethod):
        return found.__func__, False
    is_method = hasattr(type(found), "__ptxforge_jit__") or hasattr(found, "fn") or inspect.isfunction(found)
    return found, is_method


def operator_of(kind: type[ast.AST], left: Any, right: Any) -> tuple[Any, list[Any]] | None:
    """The method that an operator means, and its arguments; ``None`` when neither side is an object."""
    if not isinstance(left, Aggregate) and not isinstance(right, Aggregate):
        return None
    if kind in _BINARY:
        names = f"__{_BINARY[kind]}__", f"__r{_BINARY[kind]}__"
    elif kind in _COMPARISONS:
        names = _COMPARISONS[kind]
    else:
        raise UnsupportedSyntaxError(f"this operator has no meaning for {describe(left)}")
    for name, this, other in ((names[0], left, right), (names[1], right, left)):
        method = method_of(type(this), name) if isinstance(this, Aggregate) else None
        if method is not None:
            return method, [this, other]
    raise TypeMismatchError(
        f"{describe(left)} and {describe(right)} have no operator '{names[0]}'",
        hint=f"define {names[0]} in the class",
    )


def unary_of(kind: type[ast.unaryop], value: Aggregate) -> Any:
    """The method that an operator of one operand means."""
    method = method_of(type(value), _UNARY[kind])
    if method is None:
        raise TypeMismatchError(f"{describe(value)} has no operator '{_UNARY[kind]}'")
    return method
