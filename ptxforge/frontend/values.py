"""What a kernel's expressions evaluate to.

A *runtime* value is a :class:`TensorValue`: an IR value with the language's element type, which carries the
sign that IR types lack. A *static* value is any other Python object: a number, a string, a tuple, an element
type, a function. Tuples of runtime values are plain Python tuples, and objects of aggregate classes
(:class:`~ptxforge.language.core.Aggregate`) are tuples, too, so that what carries, joins and returns tuples
does so with objects.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import attrs

from ptxforge.ir import types as T
from ptxforge.ir.core import Value
from ptxforge.language import types as L
from ptxforge.language.constexpr import constexpr
from ptxforge.language.core import Aggregate
from ptxforge.language.descriptor import tensor_descriptor_type
from ptxforge.support.errors import CompilationError, TypeMismatchError, UnsupportedSyntaxError

if TYPE_CHECKING:
    from ptxforge.frontend.context import Context


class TensorValue:
    """A block or scalar at run time: an IR ``value`` and its ``dtype`` (an element type or pointer type)."""

    __slots__ = ("value", "dtype")

    def __init__(self, value: Value, dtype: L.dtype | L.pointer_type):
        self.value, self.dtype = value, dtype

    def __repr__(self) -> str:
        return describe(self)

    @property
    def shape(self) -> tuple[int, ...]:
        type = self.value.type
        return type.shape if isinstance(type, T.TensorType) else ()

    @property
    def is_block(self) -> bool:
        return isinstance(self.value.type, T.TensorType)

    @property
    def is_pointer(self) -> bool:
        return isinstance(self.dtype, L.pointer_type)

    @property
    def type(self) -> L.dtype | L.pointer_type | L.block_type:
        """The language's type: a block type for a block, else the element type."""
        return L.block_type(self.dtype, self.shape) if self.is_block else self.dtype


class _BlockPointerParts(NamedTuple):
    pointer: TensorValue
    shape: tuple[TensorValue, ...]
    strides: tuple[TensorValue, ...]
    offsets: tuple[TensorValue, ...]
    block: L.block_type


class BlockPointer(_BlockPointerParts):
    """A block of a tensor in memory: a scalar ``pointer`` to its first element, the tensor's ``shape`` and
    ``strides`` (int64; elements), the ``offsets`` of the block in it and the type of the ``block``.

    As a named tuple it is carried, passed and joined like any other; ``advance`` moves pointer and offsets.
    """

    __slots__ = ()

    @property
    def box(self) -> tuple[int, ...]:
        """The shape of the block."""
        return self.block.shape

    @property
    def type(self) -> L.pointer_type:
        """A pointer to a block, as in Triton."""
        return L.pointer_type(self.block)


class _DescriptorParts(NamedTuple):
    base: TensorValue
    shape: tuple[TensorValue, ...]
    strides: tuple[TensorValue, ...]
    kind: tensor_descriptor_type


class Descriptor(_DescriptorParts):
    """A descriptor of the tensor at ``base``, with its ``shape`` (int32) and ``strides`` (int64; elements);
    the ``kind`` is static. A named tuple for the same reason as a block pointer."""

    __slots__ = ()

    @property
    def box(self) -> tuple[int, ...]:
        """The shape of a box."""
        return self.kind.block_type.shape

    @property
    def dtype(self) -> L.dtype:
        """The element type."""
        return self.kind.block_type.element_ty


COMPOSITES = (BlockPointer, Descriptor)
"""Values of several parts which a kernel sees as one."""


class Undefined:
    """Stands for a variable that has no value here; ``reason`` says why when it is used."""

    __slots__ = ("reason", "hint")

    def __init__(self, reason: str, hint: str = ""):
        self.reason, self.hint = reason, hint

    def read(self, ctx: Context) -> TensorValue:
        """Raises :class:`CompilationError` with the reason."""
        raise CompilationError(self.reason, hint=self.hint)


class Readable(Undefined):
    """A variable whose value is computed where it is read, by ``compute(ctx)``: most are not. What it is made
    of is known as long as the block lasts in which the variable got it; beyond, it is undefined."""

    __slots__ = ("compute",)

    def __init__(self, compute: Callable[[Context], TensorValue], reason: str, hint: str = ""):
        super().__init__(reason, hint)
        self.compute = compute

    def read(self, ctx: Context) -> TensorValue:
        """The value."""
        return self.compute(ctx)


class Exit(tuple):
    """The values of a loop's names where an iteration ends. They join one by one: what differs in type is
    undefined afterwards, and matters only if the loop carries it."""


def describe(value: Any) -> str:
    """A value's type in words: ``float32[128, 64]``, ``pointer to float16``, ``constexpr 3``."""
    if isinstance(value, TensorValue):
        shape = f"{list(value.shape)}" if value.is_block else ""
        return f"{dtype_name(value.dtype)}{shape}"
    if isinstance(value, Undefined):
        return "undefined"
    if isinstance(value, BlockPointer):
        return f"block pointer to {dtype_name(value.pointer.dtype.element_ty)}{list(value.box)}"
    if isinstance(value, Descriptor):
        padding = "" if value.kind.padding == "zero" else ", NaN outside"
        return f"tensor descriptor of {dtype_name(value.dtype)}{list(value.box)}{padding}"
    if isinstance(value, Aggregate):
        fields = (f"{name}: {describe(part)}" for name, part in zip(value.__fields__, value))
        return f"{type(value).__name__}({', '.join(fields)})"
    if isinstance(value, tuple):
        return f"({', '.join(map(describe, value))})"
    if value is None or isinstance(value, (bool, int, float, str)):
        return f"constexpr {value!r}"
    return f"'{type(value).__name__}'"


def dtype_name(dtype: L.dtype | L.pointer_type) -> str:
    """``float32``, ``pointer to int8``."""
    if isinstance(dtype, L.pointer_type):
        return f"pointer to {dtype_name(dtype.element_ty)}"
    return dtype.base.name


def ir_type(dtype: L.dtype | L.pointer_type) -> T.Type:
    """The IR's element type. A pointer to int1 points at bytes.

    Raises :class:`CompilationError` for a type that is a name only."""
    if isinstance(dtype, L.pointer_type):
        pointee = dtype.element_ty
        return T.PointerType(T.I8 if pointee is L.int1 else ir_type(pointee))
    if not dtype.base.ir:
        raise CompilationError(
            f"no value can be {dtype_name(dtype)}: no NVIDIA GPU computes with that type",
            hint="use tl.float8e4nv or tl.float8e5" if dtype.is_floating() else "",
        )
    return T.SCALARS[dtype.base.ir]


def is_number(value: Any) -> bool:
    """Whether a static value is a number, which a runtime scalar can be made of."""
    return isinstance(value, (int, float))


def is_static(value: Any) -> bool:
    """Whether a value (a tuple: every part of it) is known at compile time."""
    if isinstance(value, tuple):
        return all(map(is_static, value))
    if isinstance(value, slice):
        return is_static((value.start, value.stop, value.step))
    return not isinstance(value, (TensorValue, Undefined))


def leaves_of(value: Any) -> list[TensorValue]:
    """The runtime values in a value, in order."""
    if isinstance(value, TensorValue):
        return [value]
    if isinstance(value, tuple):
        return [leaf for part in value for leaf in leaves_of(part)]
    return []


def map_leaves(function: Callable[[Any], Any], value: Any) -> Any:
    """``value`` with ``function`` applied to everything that is not a tuple. Tuples in which nothing changes
    stay themselves: whether a branch leaves a name alone is seen by its value's identity."""
    if isinstance(value, tuple):
        parts = [map_leaves(function, part) for part in value]
        is_same = all(new is old for new, old in zip(parts, value, strict=True))
        return value if is_same else make_tuple(value, parts)
    return function(value)


def alike(a: tuple, b: tuple) -> bool:
    """Whether two tuples can be joined part by part; objects are so with those of their class only."""
    is_object = isinstance(a, Aggregate) or isinstance(b, Aggregate)
    return len(a) == len(b) and (type(a) is type(b) or not is_object)


def make_tuple(like: tuple, parts: list) -> tuple:
    """``parts`` as a tuple of ``like``'s class (a named tuple stays one)."""
    if isinstance(like, Exit):
        return Exit(parts)
    if isinstance(like, Aggregate):
        return like._of(parts)
    return type(like)(*parts) if hasattr(like, "_fields") else tuple(parts)


# -- objects: making them, their fields, methods and operators ---------------------------------------------


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
