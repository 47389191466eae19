"""What a kernel's expressions evaluate to.

A *runtime* value is a :class:`TensorValue`: an IR value with the language's element type, which carries the
sign that IR types lack. A *static* value is any other Python object: a number, a string, a tuple, an element
type, a function. Tuples of runtime values are plain Python tuples.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ptxforge.ir import types as T
from ptxforge.ir.core import Value
from ptxforge.language import types as L
from ptxforge.language.core import Aggregate
from ptxforge.language.descriptor import tensor_descriptor_type
from ptxforge.support.errors import CompilationError


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
    """``value`` with ``function`` applied to everything that is not a tuple."""
    if isinstance(value, tuple):
        parts = [map_leaves(function, part) for part in value]
        return make_tuple(value, parts)
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
