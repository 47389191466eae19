"""Calls: of the language's functions, of jitted functions (inlined), of some of Python's own.

Functions defined in a kernel: ``lambda`` and nested ``def``. They are inlined where they are called, and
read the variables around them as they are then, as in Python; what they assign is their own.
"""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import math
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import attrs

from ptxforge.frontend.expressions import PYTHON_BUILTINS, Method, host_twin, static_object
from ptxforge.frontend.semantics import arith
from ptxforge.frontend.semantics.registry import ArgumentProblem, apply
from ptxforge.frontend.source import Parameter, SourceFunction, source_function
from ptxforge.frontend.values import (
    BlockPointer,
    Descriptor,
    TensorValue,
    construct,
    describe,
    is_number,
    is_static,
)
from ptxforge.frontend.visitor import Invoke, Visitor, handles
from ptxforge.language import core
from ptxforge.language import math as language_math
from ptxforge.language import types as L
from ptxforge.language.composite_types import constexpr_type, tuple_type
from ptxforge.language.constexpr import constexpr, unwrap
from ptxforge.language.core import Aggregate, is_aggregate
from ptxforge.language.descriptor import tensor_descriptor
from ptxforge.language.registry import DeviceFunction, is_builtin
from ptxforge.support.errors import CompilationError, PtxforgeError, TypeMismatchError, UnsupportedSyntaxError


class Closure:
    """A function of a kernel's own: its ``source``, and the call ``home`` whose variables it reads."""

    __slots__ = ("source", "home")
    __ptxforge_jit__ = True

    def __init__(self, source: SourceFunction, home: Visitor):
        self.source, self.home = source, home


@handles(ast.Lambda)
def lambda_(v: Visitor, node: ast.Lambda) -> Closure:
    """``lambda x: x + n``."""
    give = ast.copy_location(ast.Return(node.body), node.body)
    return _closure(v, node, "<lambda>", [give])


@handles(ast.FunctionDef)
def nested_function(v: Visitor, node: ast.FunctionDef) -> None:
    """``def helper(x): …`` in a kernel."""
    if node.decorator_list:
        raise UnsupportedSyntaxError("a nested function has no decorators").at(
            v.locate(node.decorator_list[0])
        )
    body = node.body
    if not isinstance(body[-1], ast.Return):
        body = [*body, ast.copy_location(ast.Return(None), body[-1])]
    v.scope[node.name] = _closure(v, node, node.name, body)


def _closure(v: Visitor, node: ast.Lambda | ast.FunctionDef, name: str, body: list[ast.stmt]) -> Closure:
    tree = getattr(node, "_function", None)
    if tree is None:  # what is known of its names is kept on it
        tree = ast.FunctionDef(name=name, args=node.args, body=body, decorator_list=[], returns=None)
        node._function = ast.copy_location(tree, node)
    variadic = node.args.vararg.arg if node.args.vararg else ""
    source = attrs.evolve(
        v.source, name=name, tree=tree, parameters=_parameters(v, node.args), variadic=variadic,
        positional=len(node.args.posonlyargs) + len(node.args.args),
    )  # fmt: skip
    return Closure(source, v)


def _parameters(v: Visitor, arguments: ast.arguments) -> tuple[Parameter, ...]:
    if arguments.kwarg is not None:
        raise UnsupportedSyntaxError("'**' in a nested function has no meaning in a kernel").at(
            v.locate(arguments.kwarg)
        )
    positional = [*arguments.posonlyargs, *arguments.args]
    missing: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults))
    defaults = [*missing, *arguments.defaults, *arguments.kw_defaults]
    return tuple(
        _parameter(v, argument.arg, default)
        for argument, default in zip([*positional, *arguments.kwonlyargs], defaults, strict=True)
    )


def _parameter(v: Visitor, name: str, default: ast.expr | None) -> Parameter:
    return Parameter(name, False) if default is None else Parameter(name, False, v.visit(default))


def surroundings(function: Any) -> dict[str, Any]:
    """The variables that a function reads beside its parameters and globals."""
    return dict(function.home.scope) if isinstance(function, Closure) else {}


_LOOPS = (core.range, core.static_range, core.condition)


@handles(ast.Call)
def call(v: Visitor, node: ast.Call) -> Any:
    """``f(x, y=z, *rest)``."""
    function = v.visit(node.func)
    args, kwargs = _arguments(v, node)
    if not isinstance(function, Method):
        return call_value(v, node, function, args, kwargs)
    function, args = function.function, [function.receiver, *args]
    if is_builtin(function):
        return call_language(v, node, function, args, kwargs, receiver=node.func.value)
    return _call_method(v, node, function, args, kwargs)


@handles(Invoke)
def invoke(v: Visitor, node: Invoke) -> Any:
    """An operator that a class defines."""
    return _call_method(v, node, node.function, node.arguments, {})


def _call_method(
    v: Visitor, node: ast.AST, function: Any, args: Sequence[Any], kwargs: dict[str, Any]
) -> Any:
    if hasattr(type(function), "__ptxforge_jit__"):
        return inline(v, node, function, args, kwargs)
    return call_static(getattr(function, "fn", function), args, kwargs)


def _arguments(v: Visitor, node: ast.Call) -> tuple[list[Any], dict[str, Any]]:
    args: list[Any] = []
    for item in node.args:
        if isinstance(item, ast.Starred):
            found = v.visit(item.value)
            if not isinstance(found, tuple):
                raise TypeMismatchError(f"'*' needs a tuple, not {describe(found)}").at(v.locate(item))
            args.extend(found)
        else:
            args.append(v.visit(item))
    kwargs = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            raise UnsupportedSyntaxError("'**' in a call has no meaning in a kernel").at(
                v.locate(keyword.value)
            )
        kwargs[keyword.arg] = v.visit(keyword.value)
    return args, kwargs


def call_value(v: Visitor, node: ast.AST, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Call whatever ``function`` is."""
    if is_builtin(function):
        return call_language(v, node, function, args, kwargs)
    kind = type(function)
    if kind is DeviceFunction and not v.is_library:
        v.at(node)
        args, kwargs = _scalars(v, args, kwargs)
    if hasattr(kind, "__ptxforge_jit__"):
        return inline(v, node, function, args, kwargs)
    if function in PYTHON_BUILTINS:
        v.at(node)
        return PYTHON_BUILTINS[function](v, node, *args, **kwargs)
    if is_aggregate(function):
        v.at(node)
        return construct(v.ctx, function, args, kwargs, functools.partial(_run_init, v, node))
    if function is constexpr:
        return _constexpr(*args)
    if function in _LOOPS:
        raise UnsupportedSyntaxError(f"tl.{function.__name__} stands only in a 'for' or 'while' statement")
    if hasattr(kind, "__ptxforge_constexpr_function__"):
        return call_static(function.fn, args, kwargs)
    if _is_static_callable(function):
        return call_static(function, args, kwargs)
    if getattr(function, "__triton_builtin__", False):
        return call_foreign_builtin(function, args, kwargs)
    if isinstance(function, types.FunctionType):
        twin = host_twin(function)
        if twin is not None:
            return call_language(v, node, twin, args, kwargs)
        raise CompilationError(
            f"'{function.__name__}' is a plain Python function, which a kernel cannot call",
            hint="decorate it with @ptxforge.jit (or @tl.constexpr_function to run it while compiling)",
        )
    raise CompilationError(f"{describe(function)} cannot be called in a kernel")


# -- the language's functions ------------------------------------------------------------------------------


def call_language(
    v: Visitor,
    node: ast.AST,
    stub: Callable,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    receiver: ast.expr | None = None,
) -> Any:
    """Call a stub. ``receiver`` is ``x`` in ``x.f()``. An error about an argument points at that argument."""
    v.at(node)
    ctx = v.ctx
    ctx.call = lambda function, arguments: inline(v, node, function, arguments, {})
    try:
        return apply(ctx, stub, tuple(args), kwargs)
    except ArgumentProblem as problem:
        where = _argument_node(node, stub, problem.argument, receiver)
        raise problem.explained(stub.__name__).at(v.locate(where)) from None


def _argument_node(node: ast.AST, stub: Callable, name: str, receiver: ast.expr | None) -> ast.AST:
    """The expression that gave a parameter its value, or the whole call."""
    if not isinstance(node, ast.Call):
        return node
    for keyword in node.keywords:
        if keyword.arg == name:
            return keyword.value
    given = ([] if receiver is None else [receiver]) + node.args
    for parameter, item in zip(inspect.signature(stub).parameters.values(), given):
        if isinstance(item, ast.Starred) or parameter.kind is parameter.VAR_POSITIONAL:
            return node
        if parameter.name == name:
            return item
    return node


# -- static calls ------------------------------------------------------------------------------------------


def _constexpr(*args: Any) -> Any:
    (value,) = args if len(args) == 1 else (None,)
    if not is_static(value):
        raise TypeMismatchError(
            f"tl.constexpr() needs a value known at compile time, not a runtime {describe(value)}"
        )
    return value


_TYPES = (L.dtype, L.pointer_type, L.block_type, constexpr_type, tuple_type)
_STATIC_OWNERS = (*_TYPES, str, tuple, int, float)


def _is_static_callable(function: Any) -> bool:
    """Methods of compile-time objects, functions of ``math``, constructors of types and of named tuples."""
    if isinstance(function, type):
        return function in _TYPES or issubclass(function, tuple)
    owner = getattr(function, "__self__", None)
    return isinstance(owner, _STATIC_OWNERS) or owner is math


def call_static(function: Callable, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Call a Python function while compiling. A named tuple may hold runtime values, nothing else may."""
    holds_values = isinstance(function, type) and issubclass(function, tuple)
    for value in (*args, *kwargs.values()):
        if not holds_values and not is_static(value) and not isinstance(value, Aggregate):
            what = f"a runtime {describe(value)}"
            raise TypeMismatchError(
                f"{function.__name__}() is called while compiling; this argument is {what}"
            )
    return static_object(_called(function, args, kwargs))


def _called(function: Callable, args: Iterable[Any], kwargs: dict[str, Any]) -> Any:
    try:
        return function(*args, **kwargs)
    except PtxforgeError:
        raise
    except Exception as error:  # the function is the user's, and so is its fault
        raise CompilationError(f"{function.__name__}() raised {type(error).__name__}: {error}") from error


def call_foreign_builtin(function: Callable, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Call a function that generated code marks as a builtin of Triton: it runs while compiling, gets
    constants as ``tl.constexpr`` and runtime values as they are, and returns one of them or a constant."""
    named = {name: _as_constexpr(value) for name, value in kwargs.items()}
    return static_object(unwrap(_called(function, map(_as_constexpr, args), named)))


def _as_constexpr(value: Any) -> Any:
    return constexpr(value) if is_static(value) and not isinstance(value, tuple) else value


def _scalars(v: Visitor, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of a function of the device library: numbers as scalars."""
    given = (*args, *kwargs.values())
    wide = any(isinstance(value, TensorValue) and value.dtype is L.float64 for value in given)

    def scalar(value: Any) -> Any:
        number = unwrap(value)
        if not is_number(number):
            return value
        if wide and isinstance(number, float):
            return v.ctx.constant(number, L.float64)
        return v.ctx.to_tensor(number)

    return [scalar(value) for value in args], {name: scalar(value) for name, value in kwargs.items()}


# -- jitted functions --------------------------------------------------------------------------------------


def inline(v: Visitor, node: ast.AST, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The value of a call of a jitted function, whose body is built here."""
    source = function.source if isinstance(function, Closure) else source_function(function.fn)
    if source in v.stack:
        raise CompilationError(f"'{source.name}' calls itself: recursion has no meaning in a kernel")
    scope = surroundings(function) | bind_arguments(source, args, kwargs)
    saved = v.ctx.builder.location
    callee = Visitor(v.ctx, source, scope, v.locate(node), v.stack)
    outcome = callee.execute(source.tree.body)
    v.ctx.builder.location = saved
    return outcome.value


def _run_init(
    v: Visitor, node: ast.AST, function: Any, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[str, dict[str, Any]]:
    """Run a jitted ``__init__``: what it calls its object, and its variables at the end."""
    source = source_function(function.fn)
    callee = Visitor(v.ctx, source, bind_arguments(source, args, kwargs), v.locate(node), v.stack)
    saved = v.ctx.builder.location
    callee.execute(source.tree.body)
    v.ctx.builder.location = saved
    return source.parameters[0].name, callee.scope


def bind_arguments(source: SourceFunction, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Parameters and their values. Raises :class:`TypeMismatchError` when they do not fit.

    As in Triton, ``tl.constexpr`` on a parameter of an inlined function is not enforced: a runtime value may
    pass through, and where a compile-time one is needed that place complains.
    """
    parameters = source.parameters
    scope: dict[str, Any] = {}
    positional = source.positional
    for parameter, value in zip(parameters[:positional], args):
        scope[parameter.name] = value
    rest = tuple(args[positional:])
    if source.variadic:
        scope[source.variadic] = rest
    elif rest:
        raise TypeMismatchError(
            f"{source.name}() takes {positional} positional arguments, {len(args)} are given"
        )
    names = {parameter.name for parameter in parameters}
    for name, value in kwargs.items():
        if name in scope or name not in names:
            what = "twice" if name in scope else "but has no such parameter"
            raise TypeMismatchError(f"{source.name}() is given '{name}' {what}")
        scope[name] = value
    for parameter in parameters:
        _complete(source, parameter, scope)
    return scope


def _complete(source: SourceFunction, parameter: Parameter, scope: dict[str, Any]) -> None:
    """Give a parameter its default, if it has no value yet."""
    if parameter.name in scope:
        return
    if not parameter.has_default:
        raise TypeMismatchError(f"{source.name}() lacks its argument '{parameter.name}'")
    scope[parameter.name] = static_object(parameter.default)


# -- Python's builtins -------------------------------------------------------------------------------------


def _fold(v: Visitor, which: str, static: Callable, values: tuple) -> Any:
    if len(values) == 1 and isinstance(values[0], tuple):
        values = values[0]
    elif len(values) == 1:
        raise TypeMismatchError(
            f"{static.__name__}() takes at least two values, or a tuple; this is {describe(values[0])}",
            hint=f"of the elements of a block: tl.{static.__name__}(x, axis)",
        )
    if all(map(is_static, values)):
        for value in map(unwrap, values):
            if isinstance(value, float) and str(value) in ("nan", "-0.0"):
                raise CompilationError(
                    f"{static.__name__}() of compile-time values takes no {value}: their order would decide",
                    hint=f"tl.{which}() gives the same for any order",
                )
        return call_static(static, values, {})
    result = values[0]
    for value in values[1:]:
        result = arith.chosen(v.ctx, result, value, which)
    return result


@PYTHON_BUILTINS.means(builtins.min)
def _min(v: Visitor, node: ast.AST, *values: Any) -> Any:
    return _fold(v, "minimum", min, values)


@PYTHON_BUILTINS.means(builtins.max)
def _max(v: Visitor, node: ast.AST, *values: Any) -> Any:
    return _fold(v, "maximum", max, values)


@PYTHON_BUILTINS.means(builtins.print)
def _print(v: Visitor, node: ast.AST, *values: Any, **options: Any) -> None:
    if not values or not isinstance(values[0], str):
        values = ("", *values)
    call_language(v, node, core.device_print, values, options)


@PYTHON_BUILTINS.means(builtins.len)
def _len(v: Visitor, node: ast.AST, value: Any) -> int:
    if isinstance(value, TensorValue):
        if not value.is_block:
            raise TypeMismatchError("a scalar has no len()")
        return value.shape[0]
    if isinstance(value, tuple):
        return len(value)  # whatever it holds
    return call_static(len, (value,), {})


@PYTHON_BUILTINS.means(builtins.isinstance)
def _isinstance(v: Visitor, node: ast.AST, value: Any, kinds: Any) -> bool:
    given = kinds if isinstance(kinds, tuple) else (kinds,)
    for kind in (part for kind in given for part in typing.get_args(kind) or (kind,)):  # of ``A | B`` both
        is_runtime = isinstance(value, (TensorValue, BlockPointer))
        if isinstance(value, Descriptor):
            if kind is tensor_descriptor:
                return True
            continue
        if kind is L.tensor and is_runtime or kind is constexpr and not is_runtime:
            return True
        if isinstance(kind, type) and isinstance(value, kind):
            return True
    return False


@PYTHON_BUILTINS.means(builtins.hasattr)
def _hasattr(v: Visitor, node: ast.AST, value: Any, name: str) -> bool:
    try:
        _getattr(v, node, value, name)
    except CompilationError:
        return False
    return True


_MISSING = object()


@PYTHON_BUILTINS.means(builtins.getattr)
def _getattr(v: Visitor, node: ast.Call, value: Any, name: str, default: Any = _MISSING) -> Any:
    access = ast.copy_location(ast.Attribute(node.args[0], name, ast.Load()), node)
    try:
        return v.visit(access)
    except CompilationError:
        if default is _MISSING:
            raise
        return default


def _only_static(function: Callable, hint: str) -> None:
    """A builtin that works on compile-time values alone."""

    def meaning(v: Visitor, node: ast.AST, *values: Any) -> Any:
        if not all(map(is_static, values)):
            raise TypeMismatchError(f"{function.__name__}() needs compile-time values", hint=hint)
        return call_static(function, values, {})

    PYTHON_BUILTINS.means(function)(meaning)


_only_static(builtins.float, "cast with .to(tl.float32)")
_only_static(builtins.int, "cast with .to(tl.int32)")
_only_static(builtins.bool, "compare with 0")
_only_static(builtins.str, "")
_only_static(builtins.range, "runtime bounds are allowed in a 'for' statement")
_only_static(builtins.round, "use tl.math.rint")


@PYTHON_BUILTINS.means(builtins.abs)
def _abs(v: Visitor, node: ast.AST, value: Any) -> Any:
    if is_static(value):
        return call_static(abs, (value,), {})
    return call_language(v, node, language_math.abs, (value,), {})


@PYTHON_BUILTINS.means(builtins.tuple)
@PYTHON_BUILTINS.means(builtins.list)
def _tuple(v: Visitor, node: ast.AST, values: Any = ()) -> tuple:
    return tuple(values)
