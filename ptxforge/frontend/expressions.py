"""Expressions: constants, names, attributes, subscripts, texts. See ``operators`` for the rest."""

from __future__ import annotations

import ast
import builtins
import enum
import operator
import types
from collections.abc import Callable
from typing import Any

import attrs

from ptxforge.frontend.semantics import arith
from ptxforge.frontend.semantics.reduce import expand
from ptxforge.frontend.semantics.shape import permuted, sliced
from ptxforge.frontend.values import (
    COMPOSITES,
    BlockPointer,
    Descriptor,
    TensorValue,
    Unfinished,
    describe,
    is_static,
    member,
)
from ptxforge.frontend.visitor import Invoke, Visitor, handles, unsupported
from ptxforge.language import types as L
from ptxforge.language.composite_types import constexpr_type, tuple_type
from ptxforge.language.constexpr import constexpr, unwrap
from ptxforge.language.core import Aggregate
from ptxforge.language.descriptor import tensor_descriptor
from ptxforge.language.registry import MEMBERS, ConstexprFunction, is_builtin
from ptxforge.support.dtypes import DType
from ptxforge.support.errors import CompilationError, TypeMismatchError, UnsupportedSyntaxError, did_you_mean
from ptxforge.support.not_there import reason

# -- leaves ------------------------------------------------------------------------------------------------


@handles(ast.Constant)
def constant(v: Visitor, node: ast.Constant) -> Any:
    """A literal is a static value."""
    return node.value


@handles(ast.Name)
def name(v: Visitor, node: ast.Name) -> Any:
    """A local variable, or a global that a kernel may read."""
    if node.id in v.scope:
        return v.local(node.id)
    try:
        value = v.source.lookup(node.id)
    except (KeyError, ValueError):
        known = [*v.scope, *v.source.fn.__globals__, *v.source.nonlocals, *vars(builtins)]
        raise CompilationError(f"'{node.id}' is not defined", hint=did_you_mean(node.id, known)) from None
    if is_readable_global(value):
        return static_object(value)
    if node.id in vars(builtins):
        raise UnsupportedSyntaxError(f"'{node.id}' has no meaning in a kernel")
    if isinstance(value, types.FunctionType):
        raise CompilationError(
            f"'{node.id}' is a plain Python function, which a kernel cannot call",
            hint="decorate it with @ptxforge.jit (or @tl.constexpr_function to run it while compiling)",
        )
    raise CompilationError(
        f"the global variable '{node.id}' cannot be read in a kernel: it is not a compile-time constant",
        hint=f"make it one ({node.id} = tl.constexpr(…): an annotation does not), or pass it as an argument",
    )


_READABLE = (constexpr, types.ModuleType, type, L.dtype, L.pointer_type, DType)


def is_readable_global(value: Any) -> bool:
    """Whether a kernel may read this global: constants, modules, types and functions that it can call."""
    if isinstance(value, _READABLE) or is_builtin(value) or value in PYTHON_BUILTINS:
        return True
    kind = type(value)
    if hasattr(kind, "__ptxforge_jit__") or hasattr(kind, "__ptxforge_constexpr_function__"):
        return True
    return isinstance(value, types.FunctionType) and host_twin(value) is not None


class _Builtins:
    """Python's builtins that have a meaning in a kernel (filled by ``calls``); membership is by identity."""

    def __init__(self) -> None:
        self.meanings: dict[int, Callable] = {}

    def __contains__(self, value: Any) -> bool:
        return id(value) in self.meanings

    def __getitem__(self, value: Any) -> Callable:
        return self.meanings[id(value)]

    def means(self, builtin: Any) -> Callable[[Callable], Callable]:
        """Decorator: register the meaning of one of Python's builtins."""

        def register(function: Callable) -> Callable:
            self.meanings[id(builtin)] = function
            return function

        return register


PYTHON_BUILTINS = _Builtins()


def host_twin(function: types.FunctionType) -> Callable | None:
    """The language's function that a host helper of ptxforge (``ptxforge.cdiv``) is inside a kernel."""
    is_ours = function.__module__.startswith("ptxforge.runtime")
    return {"cdiv": arith.language.cdiv, "next_power_of_2": arith.language.next_power_of_2}.get(
        function.__name__ if is_ours else ""
    )


def static_object(value: Any) -> Any:
    """A Python object as the frontend keeps it: constants unwrapped, lists as tuples, element types the
    language's."""
    if isinstance(value, constexpr) and isinstance(value.value, types.FunctionType):
        return ConstexprFunction(value.value)  # ``@tl.constexpr`` above a plain function
    value = unwrap(value)
    if isinstance(value, DType):
        return L.of(value)
    if isinstance(value, list) or type(value) is tuple:
        return tuple(map(static_object, value))
    return value


# -- containers --------------------------------------------------------------------------------------------


@handles(ast.Tuple, ast.List)
def sequence(v: Visitor, node: ast.Tuple | ast.List) -> tuple:
    """A tuple or list; both are tuples."""
    items: list[Any] = []
    for item in node.elts:
        if isinstance(item, ast.Starred):
            items.extend(_iterable(v, item.value))
        else:
            items.append(v.visit(item))
    return tuple(items)


def _iterable(v: Visitor, node: ast.expr) -> tuple:
    value = v.visit(node)
    if not isinstance(value, (tuple, range)):
        raise TypeMismatchError(f"this must be a tuple, is {describe(value)}").at(v.locate(node))
    return tuple(value)


@handles(ast.ListComp)
def list_comprehension(v: Visitor, node: ast.ListComp) -> tuple:
    """``[f(x) for x in xs if static]`` over a tuple."""
    if len(node.generators) != 1:
        raise UnsupportedSyntaxError("a comprehension in a kernel has one 'for'")
    (generator,) = node.generators
    saved = dict(v.scope)
    items = []
    for item in _iterable(v, generator.iter):
        bind(v, generator.target, item)
        if all(static_truth(v, test) for test in generator.ifs):
            items.append(v.visit(node.elt))
    v.scope = saved
    return tuple(items)


def static_truth(v: Visitor, node: ast.expr) -> bool:
    """The truth of a condition that must be known at compile time."""
    value = v.visit(node)
    if isinstance(value, TensorValue):
        raise TypeMismatchError(
            f"this condition must be known at compile time, is a runtime {describe(value)}"
        ).at(v.locate(node))
    return bool(value)


def bind(v: Visitor, target: ast.expr, value: Any) -> None:
    """Assign ``value`` to a name, or its parts to a tuple of names."""
    if isinstance(target, ast.Name):
        v.assign(target.id, value)
        return
    if isinstance(target, ast.Attribute) and isinstance(v.visit(target.value), Unfinished):
        v.scope[f"{target.value.id}.{target.attr}"] = value
        return
    if not isinstance(target, (ast.Tuple, ast.List)):
        what = {ast.Subscript: "an element", ast.Attribute: "an attribute"}.get(type(target), "this")
        raise UnsupportedSyntaxError(
            f"{what} cannot be assigned in a kernel: blocks are values",
            hint="make a new block, with tl.where for instance"
            if what != "an attribute" else "make a new object, with tl.aggregate_replace for instance",
        ).at(v.locate(target))
    if any(isinstance(part, ast.Starred) for part in target.elts):
        raise UnsupportedSyntaxError("a starred target has no meaning in a kernel").at(v.locate(target))
    if not isinstance(value, tuple) or isinstance(value, Aggregate):
        raise TypeMismatchError(f"{describe(value)} cannot be unpacked").at(v.locate(target))
    if len(value) != len(target.elts):
        raise TypeMismatchError(f"{len(value)} values cannot be unpacked into {len(target.elts)} names").at(
            v.locate(target)
        )
    for part, item in zip(target.elts, value):
        bind(v, part, item)


@handles(ast.NamedExpr)
def named_expression(v: Visitor, node: ast.NamedExpr) -> Any:
    """``name := value``."""
    value = v.visit(node.value)
    v.assign(node.target.id, value)
    return value


def static_result(function: Callable, *values: Any) -> Any:
    """What Python gives for compile-time values. Raises :class:`CompilationError` for what it refuses."""
    try:
        return static_object(function(*values))
    except CompilationError:
        raise
    except Exception as error:  # whatever Python has against these constants is the kernel's fault
        raise CompilationError(f"{type(error).__name__} in a compile-time expression: {error}") from None


# -- attributes and subscripts -----------------------------------------------------------------------------


@attrs.frozen(slots=True)
class Method:
    """A function with its first argument: of the language with a tensor, of a class with its object."""

    function: Any
    receiver: Any


def type_of(value: Any) -> Any:
    """The language's type of any value: a tuple's, a compile-time value's."""
    if isinstance(value, TensorValue):
        return value.type
    if isinstance(value, tuple):
        return tuple_type(map(type_of, value), getattr(value, "_fields", None))
    return constexpr_type(value)


def _numel(x: TensorValue) -> int:
    return x.value.type.numel if x.is_block else 1


def _transposed(v: Visitor, x: TensorValue) -> TensorValue:
    if len(x.shape) != 2:
        raise TypeMismatchError(f".T needs two dimensions, not {describe(x)}", hint="use tl.permute")
    return permuted(v.ctx, x, (1, 0))


_PROPERTIES: dict[str, Callable[[TensorValue], Any]] = {
    "dtype": lambda x: x.dtype,
    "type": lambda x: x.type,
    "shape": lambda x: x.shape,
    "numel": _numel,
    "rank": lambda x: len(x.shape),
    "ndim": lambda x: len(x.shape),
}


@handles(ast.Attribute)
def attribute(v: Visitor, node: ast.Attribute) -> Any:
    """``x.dtype``, ``x.sum``, ``tl.load``, ``CONSTANT.value``."""
    value = v.visit(node.value)
    if isinstance(value, TensorValue):
        return _tensor_attribute(v, node, value)
    if isinstance(value, BlockPointer):
        return _block_pointer_attribute(node, value)
    if isinstance(value, Descriptor):
        return _descriptor_attribute(node, value)
    if isinstance(value, (Aggregate, Unfinished)):
        return _object_attribute(v, node, value)
    if node.attr == "value" and not isinstance(value, enum.Enum):
        return value  # constants are kept unwrapped
    if node.attr == "type" and (value is None or isinstance(value, (tuple, bool, int, float, str))):
        return type_of(value)
    try:
        found = getattr(value, node.attr)
    except AttributeError:
        is_module = isinstance(value, types.ModuleType)
        what = f"module '{value.__name__}'" if is_module else describe(value)
        known = reason(f"tl.{node.attr}") if is_module and value.__name__.endswith(".language") else None
        hint = str(known) if known else did_you_mean(node.attr, dir(value))
        raise CompilationError(f"{what} has no attribute '{node.attr}'", hint=hint) from None
    return static_object(found)


def _object_attribute(v: Visitor, node: ast.Attribute, value: Aggregate | Unfinished) -> Any:
    if isinstance(value, Unfinished):
        field = f"{ast.unparse(node.value)}.{node.attr}"
        if field not in v.scope:
            raise CompilationError(f"'{field}' has no value yet")
        return v.local(field)
    found, is_method = member(value, node.attr)
    return Method(found, value) if is_method else static_object(found)


def _tensor_attribute(v: Visitor, node: ast.Attribute, x: TensorValue) -> Any:
    if node.attr in _PROPERTIES:
        return _PROPERTIES[node.attr](x)
    if node.attr == "T":
        v.at(node)
        return _transposed(v, x)
    if node.attr in MEMBERS:
        return Method(MEMBERS[node.attr], x)
    hint = did_you_mean(node.attr, [*_PROPERTIES, "T", *MEMBERS])
    if node.attr == "value":
        hint = "only compile-time values have a .value"
    raise CompilationError(f"a tensor has no attribute '{node.attr}'", hint=hint)


def _block_pointer_attribute(node: ast.Attribute, pointer: BlockPointer) -> Any:
    if node.attr in ("dtype", "type"):
        return pointer.type
    if node.attr in ("advance", "store"):
        return Method(MEMBERS[node.attr], pointer)
    hint = "" if node.attr not in ("shape", "strides") else "keep them in variables of their own"
    raise CompilationError(f"a block pointer has no attribute '{node.attr}'", hint=hint)


_DESCRIPTOR_PROPERTIES: dict[str, Callable[[Descriptor], Any]] = {
    "shape": lambda x: x.shape,
    "strides": lambda x: x.strides,
    "block_shape": lambda x: x.box,
    "dtype": lambda x: x.dtype,
    "block_type": lambda x: x.kind.block_type,
    "type": lambda x: x.kind,
}


def _descriptor_attribute(node: ast.Attribute, descriptor: Descriptor) -> Any:
    if node.attr in _DESCRIPTOR_PROPERTIES:
        return _DESCRIPTOR_PROPERTIES[node.attr](descriptor)
    method = vars(tensor_descriptor).get(node.attr)
    if is_builtin(method):
        return Method(method, descriptor)
    methods = [name for name, member in vars(tensor_descriptor).items() if is_builtin(member)]
    hint = did_you_mean(node.attr, [*_DESCRIPTOR_PROPERTIES, *methods])
    raise CompilationError(f"a tensor descriptor has no attribute '{node.attr}'", hint=hint)


@handles(ast.Subscript)
def subscript(v: Visitor, node: ast.Subscript) -> Any:
    """``x[:, None]`` of blocks; ``t[0]`` and ``t[1:]`` of tuples."""
    value = v.visit(node.value)
    if isinstance(value, TensorValue):
        return _index_block(v, node, value)
    if isinstance(value, Aggregate):
        method, _ = member(value, "__getitem__")
        return v.visit(Invoke(node, method, [value, v.visit(node.slice)]))
    index = v.visit(node.slice)
    if not is_static(index):
        raise TypeMismatchError(
            f"a tuple's index must be known at compile time, is a runtime {describe(index)}"
        )
    if isinstance(index, float) or value is None or isinstance(value, COMPOSITES):
        raise TypeMismatchError(f"{describe(value)} cannot be indexed by {describe(index)}")
    return static_result(operator.getitem, value, index)


@handles(ast.Slice)
def slice_(v: Visitor, node: ast.Slice) -> slice:
    """``start:stop:step``."""
    return slice(*(None if part is None else v.visit(part) for part in (node.lower, node.upper, node.step)))


def _index_block(v: Visitor, node: ast.Subscript, x: TensorValue) -> TensorValue:
    """``None`` inserts a dimension, ``:`` keeps one, ``start:stop:step`` keeps part of one."""
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    keys = [v.visit(part) for part in parts]
    v.at(node)
    kept = sum(isinstance(key, slice) for key in keys)
    for key, part in zip(keys, parts):
        if key is not None and not isinstance(key, slice):
            raise UnsupportedSyntaxError(
                f"a block is indexed with ':' and None only, not with {describe(key)}",
                hint="load the elements you need from memory, or use tl.gather, tl.split or tl.where",
            )
        if not is_static(key):
            raise TypeMismatchError("the bounds of a slice must be known at compile time").at(v.locate(part))
    if not x.shape:  # ':' of a scalar is nothing, as in Triton
        keys = [key for key in keys if key != slice(None)]
        kept = len(keys) - keys.count(None)
    if kept > len(x.shape):
        raise TypeMismatchError(f"too many indices: {kept} for a block of {len(x.shape)} dimensions")
    for axis, key in enumerate(key for key in keys if key is not None):
        x = sliced(v.ctx, x, axis, key)
    for position, key in enumerate(keys):
        if key is None:
            x = expand(v.ctx, x, position)
    return x


# -- text --------------------------------------------------------------------------------------------------


@handles(ast.JoinedStr)
def formatted(v: Visitor, node: ast.JoinedStr) -> str:
    """An f-string of static values."""
    return "".join(v.visit(part) for part in node.values)


_CONVERSIONS = {-1: lambda x: x, ord("s"): str, ord("r"): repr, ord("a"): ascii}


@handles(ast.FormattedValue)
def formatted_value(v: Visitor, node: ast.FormattedValue) -> str:
    """``{value!r:spec}``."""
    value = v.visit(node.value)
    if not is_static(value):
        raise TypeMismatchError(
            f"an f-string is made while compiling; this value is a runtime {describe(value)}",
            hint="give runtime values to tl.device_print as arguments of their own",
        )
    spec = "" if node.format_spec is None else v.visit(node.format_spec)
    return static_result(format, _CONVERSIONS[node.conversion](value), spec)


@handles(ast.Starred)
def starred(v: Visitor, node: ast.Starred) -> Any:
    """A star outside a call, a tuple or a list."""
    raise unsupported(node)
