"""What a kernel's parameters are, and what is wrong with a call that does not fit them."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

from ptxforge.language.constexpr import constexpr
from ptxforge.language.types import const, dtype
from ptxforge.runtime import options
from ptxforge.runtime.specialize import CONSTEXPR, Parameter
from ptxforge.support import dtypes
from ptxforge.support.dtypes import DType
from ptxforge.support.errors import ArgumentError, CompilationError


def parameters_of(
    fn: Callable,
    do_not_specialize: tuple = (),
    do_not_specialize_on_alignment: tuple = (),
    signature: inspect.Signature | None = None,
) -> tuple[Parameter, ...]:
    """The parameters of a kernel, whose ``signature`` may be known. The two lists hold names or positions, as
    in Triton.

    What is listed and no parameter is ignored, with a warning. Raises :class:`ArgumentError` for
    ``**kwargs``, and :class:`CompilationError` for a constant that is listed.
    """
    declared = (signature or inspect.signature(fn)).parameters.values()
    names = [parameter.name for parameter in declared]
    plain = _names(do_not_specialize, names)
    unaligned = _names(do_not_specialize_on_alignment, names)
    listed, result = plain | unaligned, []
    for index, parameter in enumerate(declared):
        if parameter.kind is parameter.VAR_KEYWORD:
            raise ArgumentError("a kernel's parameters have names; **kwargs has no meaning", parameter.name)
        annotation = _resolved(parameter.annotation, fn)
        if _is_constexpr(annotation) and parameter.name in listed:
            raise CompilationError(
                f"{parameter.name} marked as constexpr and listed in do_not_specialize",
                hint="a constant is compiled in, whatever that list says",
            )
        result.append(
            Parameter(
                name=parameter.name,
                index=index,
                constexpr=_is_constexpr(annotation),
                dtype=_element_type(annotation),
                const=annotation is const or annotation == "tl.const",
                alignment=parameter.name not in listed,
                ones=parameter.name not in plain,
                has_default=parameter.default is not parameter.empty,
                default=None if parameter.default is parameter.empty else parameter.default,
                variadic=parameter.kind is parameter.VAR_POSITIONAL,
            )
        )
    return tuple(result)


def _names(listed: Any, names: list[str]) -> set[str]:
    """The parameter names in a list of names and positions."""
    known = {**{name: name for name in names}, **dict(enumerate(names))}
    for item in listed or ():
        if item not in known:
            warnings.warn(f"{item!r}, listed in do_not_specialize, is no parameter", stacklevel=2)
    return {known[item] for item in listed or () if item in known}


def _resolved(annotation: Any, fn: Callable) -> Any:
    """An annotation as an object. ``from __future__ import annotations`` leaves its text, in which a text may
    stand."""
    for _ in range(2):
        if not isinstance(annotation, str):
            break
        try:
            annotation = eval(annotation, fn.__globals__)
        except Exception:  # an element type's short name, or a name known to type checkers only
            break
    return annotation


def _is_constexpr(annotation: Any) -> bool:
    if isinstance(annotation, str):
        return annotation.rpartition(".")[2] == CONSTEXPR
    return annotation is constexpr or isinstance(annotation, constexpr)


def _element_type(annotation: Any) -> DType | None:
    """The element type that an annotation fixes: ``tl.int64`` or its name; others say nothing to the
    compiler."""
    if isinstance(annotation, dtype):
        return annotation.base
    return (
        dtypes.BY_NAME.get(annotation) or dtypes.BY_SHORT.get(annotation)
        if isinstance(annotation, str)
        else None
    )


def make_binder(parameters: tuple[Parameter, ...]) -> Callable[..., tuple[tuple, dict[str, Any]]]:
    """A function with the kernel's own parameters that returns the arguments in order and the options.

    ``inspect.signature(...).bind`` does that in 10 µs; Python itself in a fraction of one.
    """
    scope = {f"__default{p.index}": p.default for p in parameters}
    header = [_declared(p) for p in parameters]
    names = "".join(f"{p.name}, " for p in parameters)
    exec(f"def bind({', '.join([*header, '**__options'])}):\n    return ({names}), __options", scope)
    return scope["bind"]


def _declared(p: Parameter) -> str:
    if p.variadic:
        return f"*{p.name}"
    return f"{p.name}=__default{p.index}" if p.has_default else p.name


def explain_binding(
    parameters: tuple[Parameter, ...], name: str, args: tuple, kwargs: dict[str, Any]
) -> str | None:
    """What is wrong with a call that does not bind, in the kernel's terms; ``None`` when it binds."""
    if any(parameter.variadic for parameter in parameters):
        return None
    if len(args) > len(parameters):
        return f"'{name}' takes {len(parameters)} arguments, {len(args)} were given"
    for parameter in parameters[: len(args)]:
        if parameter.name in kwargs:
            return f"argument '{parameter.name}' of '{name}' is given twice"
    missing = [p.name for p in parameters[len(args) :] if p.name not in kwargs and not p.has_default]
    if not missing:
        return None
    known = {*options.names(), *(parameter.name for parameter in parameters)}
    strange = [given for given in kwargs if given not in known]
    return f"'{name}' is missing {_listed('argument', missing)}" + (
        f"; it has no {_listed('parameter', strange)}" if strange else ""
    )


def _listed(noun: str, names: list[str]) -> str:
    return f"{noun}{'s' * (len(names) > 1)} {', '.join(map(repr, names))}"
